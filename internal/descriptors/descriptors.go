// Package descriptors keeps runs from taking descriptors that others need to go on.
package descriptors

import (
	"math"
	"os"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/sys"
)

// Limit returns how many descriptors this process may have. Tests set it.
var Limit = sys.DescriptorLimit

// Kept is how many descriptors a run leaves to all runs when it takes one
// that it keeps to its end: what the one that holds fdTurn needs besides its root,
// and one for a run that began alone and has not opened its root yet.
var Kept = map[bool]int{false: 4, true: 7}[sys.Backend == "generic"]

// Levels is how many reserves there are. A run that begins in a callback of
// another leaves less than that by what a root takes, and so does a third in its
// callback, which leaves the least that the holder of fdTurn can do with. So the runs
// of one level never take what those need for which they wait.
const Levels = 3

// rootTakes is how many descriptors a root takes.
var rootTakes = map[bool]int{false: 1, true: 2}[sys.Backend == "generic"]

// many is half of a limit that many small runs at once do not come near.
const many = 2048

// Few reports whether many small runs at once may come near the limit.
func Few() bool { return Limit()/2 < many }

// LeavesReserve returns nil if the reserve of level is left. The descriptor to be kept
// is open and has this number; -1 is unknown. Where the limit is high and little of
// it is in use it does not look: all runs keep half of it at most. A low number alone
// says little, since what others have just closed may lie below what is kept.
func LeavesReserve(number, level int) error {
	limit := Limit()
	half := min(limit/2, math.MaxInt32)
	if limit == math.MaxUint64 || half >= many && uint64(number) <= half && RunsOpen.Load() <= int64(half/2) {
		return nil
	}
	for range Kept - level*rootTakes {
		f, err := os.Open(os.DevNull)
		if err == nil {
			defer f.Close()
		} else if sys.IsScarce(err) {
			return err
		}
	}
	return nil
}

// RunsOpen counts the runs whose root is open in the operating system. A root stays
// open until its run ends. So roots must never take all descriptors: then none of
// the runs could go on.
var RunsOpen atomic.Int64

// Within calls f below depth+1 frames of its own, by which Nesting knows a run that
// begins in f. Nothing else says in which callback a goroutine is.
//
//go:noinline
func Within(depth int, f func()) {
	if depth > 0 {
		Within(depth-1, f)
		return
	}
	f()
}

// Nesting returns the number of frames of the innermost Within, or 0 outside any.
func Nesting() (frames int) {
	var pcs [64]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		for fs, more := runtime.CallersFrames(pcs[:n]), n > 0; more; {
			var f runtime.Frame
			f, more = fs.Next()
			switch {
			case strings.HasSuffix(f.Function, "/descriptors.Within"):
				frames++
			case frames > 0:
				return frames
			}
		}
		if n < len(pcs) {
			return frames
		}
	}
}
