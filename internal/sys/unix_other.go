//go:build !unix

package sys

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"runtime"
	"syscall"
)

const Backend = "generic"

// OpenFlags are the extra flags for opening files and directories.
const OpenFlags = 0

// InDir is for systems on which the open of a directory may wait for a FIFO. Here package os
// checks the type first, or no open waits.
const InDir = ""

// OpenWaits says that the open of a FIFO waits for a writer.
const OpenWaits = runtime.GOOS == "js" || runtime.GOOS == "wasip1"

// ListsMetadata says that a listing comes with the metadata of each entry.
const ListsMetadata = runtime.GOOS == "windows" || runtime.GOOS == "plan9"

func IsScarce(err error) bool { return errors.Is(err, syscall.EMFILE) }

func IsLeased(error) bool { return false }

func IsInterrupted(error) bool { return false }

func IsOtherKind(error) bool { return false }

// DescriptorLimit is not known here.
var DescriptorLimit = func() uint64 { return math.MaxUint64 }

func AllocLarge(size int64) ([]byte, error) {
	if size > math.MaxInt {
		return nil, errors.New("too large for this platform's address space")
	}
	return make([]byte, size), nil
}

func FreeLarge([]byte) {}

// Unchanged reports whether a and b are the same file without a write in
// between. A new file may have the number of an old file, but not also its time.
func Unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}
