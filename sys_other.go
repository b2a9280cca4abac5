//go:build !unix

package fileproc

import (
	"errors"
	"io/fs"
	"math"
	"syscall"
)

const openNonblock = 0

func isScarce(err error) bool { return errors.Is(err, syscall.EMFILE) }

func isLeased(error) bool { return false }

func descriptorBudget() budget { return fullBudget }

func allocLarge(size int64) ([]byte, error) {
	if size > math.MaxInt {
		return nil, errors.New("too large for this platform's address space")
	}
	return make([]byte, size), nil
}

func freeLarge([]byte) {}

func inodeOf(fs.FileInfo) (number, device uint64) { return 0, 0 }
