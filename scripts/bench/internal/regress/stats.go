//go:build linux

package regress

import (
	"golang.org/x/perf/benchmath"

	"github.com/fileproc/fileproc/scripts/internal/samples"
)

const confidence = 0.95

type change samples.Change

func changeOf(old, new []float64) change { return change(samples.ChangeOf(old, new)) }

// pairedChange is changeOf for samples that were taken in turn: sample i of both is from the same moment. The estimate and its
// interval are those of the pairs. The test is still Mann and Whitney's, which does not gain by the pairs and so claims less.
func pairedChange(old, new []float64) change {
	c := changeOf(old, new)
	ratio, lo, hi := samples.PairedRatio(new, old)
	c.Estimate, c.Lo, c.Hi = ratio-1, lo-1, hi-1
	return c
}

// above reports whether the change is significant and larger than the limit. That half of the limit lies below the interval
// keeps a measurement that is mostly noise from counting: it is significant now and then, but wide.
func (c change) above(limit float64) bool {
	return c.P < benchmath.DefaultThresholds.CompareAlpha && c.Estimate > limit && c.Lo > limit/2
}

// decides reports whether the samples are enough to say whether the change is above the limit. They are not while it may be,
// and a change of half of that may be too.
func (c change) decides(limit float64) bool {
	return c.Hi <= limit || c.Lo > limit/2 && c.P < benchmath.DefaultThresholds.CompareAlpha
}
