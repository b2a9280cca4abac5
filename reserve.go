package fileproc

import (
	"math"
	"os"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/sys"
)

// keptReserve is how many descriptors a run leaves to all runs when it takes one
// that it keeps to its end: what the one that holds fdTurn needs besides its root,
// and one for a run that began alone and has not opened its root yet.
var keptReserve = map[bool]int{false: 4, true: 7}[sys.Backend == "generic"]

// reserveLevels is how many reserves there are. A run that begins in a callback of
// another leaves less than that by what a root takes, and so does a third in its
// callback, which leaves the least that the holder of fdTurn can do with. So the runs
// of one level never take what those need for which they wait.
const reserveLevels = 3

// rootTakes is how many descriptors a root takes.
var rootTakes = map[bool]int{false: 1, true: 2}[sys.Backend == "generic"]

// manyDescriptors is half of a limit that many small runs at once do not come near.
const manyDescriptors = 2048

// leavesReserve returns nil if the reserve of level is left. The descriptor to be kept
// is open and has this number; -1 is unknown. Where the limit is high and little of
// it is in use it does not look: all runs keep half of it at most. A low number alone
// says little, since what others have just closed may lie below what is kept.
func leavesReserve(number, level int) error {
	half := descriptorBudget().half
	if half == math.MaxInt || half >= manyDescriptors && uint(number) <= uint(half) && runsOpen.Load() <= int64(half/2) {
		return nil
	}
	for range keptReserve - level*rootTakes {
		f, err := os.Open(os.DevNull)
		if err == nil {
			defer f.Close()
		} else if sys.IsScarce(err) {
			return err
		}
	}
	return nil
}

// runsOpen counts the runs whose root is open in the operating system. A root stays
// open until its run ends. So roots must never take all descriptors: then none of
// the runs could go on.
var runsOpen atomic.Int64

// within calls f below depth+1 frames of its own, by which nesting knows a run that
// begins in f. Nothing else says in which callback a goroutine is.
//
//go:noinline
func within(depth int, f func()) {
	if depth > 0 {
		within(depth-1, f)
		return
	}
	f()
}

// nesting returns the number of frames of the innermost within, or 0 outside any.
func nesting() (frames int) {
	var pcs [64]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		for fs, more := runtime.CallersFrames(pcs[:n]), n > 0; more; {
			var f runtime.Frame
			f, more = fs.Next()
			switch {
			case strings.HasSuffix(f.Function, "/fileproc.within"):
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
