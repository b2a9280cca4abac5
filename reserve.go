package fileproc

import (
	"math"
	"os"
	"sync/atomic"
)

// keptReserve is how many descriptors a run leaves to all runs when it takes one
// that it keeps to its end: what the one that holds fdTurn needs besides its root,
// and one for a run that began alone and has not opened its root yet.
var keptReserve = map[bool]int{false: 4, true: 7}[backendName == "generic"]

// manyDescriptors is half of a limit that many small runs at once do not come near.
const manyDescriptors = 2048

// leavesReserve returns nil if keptReserve descriptors are left. The one to be kept
// is open and has this number; -1 is unknown. Where the limit is high and little of
// it is in use it does not look: all runs keep half of it at most. A low number alone
// says little, since what others have just closed may lie below what is kept.
func leavesReserve(number int) error {
	half := descriptorBudget().half
	if half == math.MaxInt || half >= manyDescriptors && uint(number) <= uint(half) && runsOpen.Load() <= int64(half/2) {
		return nil
	}
	for range keptReserve {
		f, err := os.Open(os.DevNull)
		if err == nil {
			defer f.Close()
		} else if isScarce(err) {
			return err
		}
	}
	return nil
}

// runsOpen counts the runs whose root is open in the operating system. A root stays
// open until its run ends. So roots must never take all descriptors: then none of
// the runs could go on.
var runsOpen atomic.Int64
