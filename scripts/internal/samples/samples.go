// Package samples is measure, under the name that other commands still use.
package samples

import "github.com/fileproc/fileproc/scripts/internal/measure"

type Change = measure.Change

var (
	ChangeOf    = measure.ChangeOf
	PairedRatio = measure.PairedRatio
	NewSample   = measure.NewSample
)
