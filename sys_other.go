//go:build !unix

package fileproc

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"runtime"
	"syscall"
)

const openFlags = 0

// openWaits says that the open of a FIFO waits for a writer.
const openWaits = runtime.GOOS == "js" || runtime.GOOS == "wasip1"

func isScarce(err error) bool { return errors.Is(err, syscall.EMFILE) }

func isLeased(error) bool { return false }

func isOtherKind(error) bool { return false }

var descriptorBudget = func() budget { return fullBudget }

func allocLarge(size int64) ([]byte, error) {
	if size > math.MaxInt {
		return nil, errors.New("too large for this platform's address space")
	}
	return make([]byte, size), nil
}

func freeLarge([]byte) {}

func addSystemStat(*Stat, fs.FileInfo) {}

// unchanged reports whether a and b are the same file without a write in
// between. A new file may have an old one's number, but not its time too.
func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}
