// Package descriptors keeps runs from taking descriptors that other runs need to go on.
package descriptors

import (
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/sys"
)

// Limit returns how many descriptors this process may have. Tests set it.
var Limit = sys.DescriptorLimit

// Kept is the reserve of level 0: the number of descriptors that must stay free after a run
// has opened its root. The holder of fdTurn needs all but one of them, besides its root. The
// last is for a run that began alone and has not opened its root yet.
var Kept = map[bool]int{false: 4, true: 7}[sys.Backend == "generic"]

// Levels is the number of reserves. A run that a callback of another run starts is one level
// higher, and its reserve is smaller by what a root takes. So the runs of a level leave enough
// for the next level, whose runs they wait for. The reserve of the last level is the least with
// which the holder of fdTurn can go on.
const Levels = 3

// Turns has a turn for each level: the one run of the level that waits for its reserve holds
// it. Each level has its own turn, because a run must not wait for the turn of a run that it
// is nested in, or of one beside that.
var Turns = func() (turns [Levels]chan struct{}) {
	for i := range turns {
		turns[i] = make(chan struct{}, 1) // buffered: a mutex that a select can wait for
	}
	return turns
}()

// rootTakes is how many descriptors a root takes.
var rootTakes = map[bool]int{false: 1, true: 2}[sys.Backend == "generic"]

// many is half of the lowest limit that many small runs at once do not come near.
const many = 2048

// Few reports whether many small runs at once may come near the limit.
func Few() bool { return Limit()/2 < many }

// LeavesReserve returns nil if the reserve of level is free. The caller has opened the
// descriptor number, to keep it; -1 means that the number is unknown. LeavesReserve does not
// look if the limit is high and little of it is in use: all runs keep half of it at most. A low
// number alone says little: others may just have closed it, and kept ones may have higher numbers.
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

// IsFree reports whether a descriptor is free.
func IsFree() bool {
	f, err := os.Open(os.DevNull)
	if err == nil {
		f.Close()
	}
	return !sys.IsScarce(err)
}

// RunsOpen counts the runs whose root is open in the operating system. A root stays
// open until its run ends. So roots must never take all descriptors: no run
// could go on then.
var RunsOpen atomic.Int64

// A Holder closes the descriptors that it can do without.
type Holder interface{ GiveUp() }

// Holders are those of all runs under way, except of runs over an fs.FS, whose methods
// another run must not call.
var Holders holders

type holders struct {
	mu  sync.RWMutex // held for reading while they give up descriptors
	all []Holder
}

// Add adds h, until Remove.
func (s *holders) Add(h Holder) {
	s.mu.Lock()
	s.all = append(s.all, h)
	s.mu.Unlock()
}

// Remove waits until no other run makes h give up descriptors.
func (s *holders) Remove(h Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.all, h); i >= 0 {
		s.all = slices.Delete(s.all, i, i+1)
	}
}

// GiveUp closes what no run uses at this moment.
func (s *holders) GiveUp() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.all {
		h.GiveUp()
	}
}

// Len returns how many there are.
func (s *holders) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.all)
}

// Within calls f below depth+1 frames of Within. Nesting counts these frames to find the
// level of a run that begins in f: nothing else says in which callback a goroutine is.
//
//go:noinline
func Within(depth int, f func()) {
	if depth > 0 {
		Within(depth-1, f)
		return
	}
	f()
}

// calls has the return addresses of the calls in Within: of f, and of Within.
var calls = sync.OnceValue(func() (pcs [2]uintptr) {
	Within(1, func() { runtime.Callers(2, pcs[:]) })
	return pcs
})

// Nesting returns the number of frames of the innermost Within, or 0 outside any.
func Nesting() (frames int) {
	calls := calls()
	var pcs [64]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		for _, pc := range pcs[:n] {
			if pc == calls[0] || pc == calls[1] {
				frames++
			} else if frames > 0 {
				return frames
			}
		}
		if n < len(pcs) {
			return frames
		}
	}
}
