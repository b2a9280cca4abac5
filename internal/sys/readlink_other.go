//go:build !fileproc_generic && (aix || dragonfly || solaris)

package sys

import (
	"errors"

	"github.com/fileproc/fileproc/internal/names"
)

// ReadLinkAt is not supported: golang.org/x/sys has no call for it.
func ReadLinkAt(int, names.Name) (string, error) { return "", errors.ErrUnsupported }
