//go:build unix

package peers

import (
	"syscall"
	"time"
)

// cpuTime returns the user and system time of this process and of the children it has waited for.
func cpuTime() time.Duration {
	var total int64
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			return 0
		}
		total += u.Utime.Nano() + u.Stime.Nano()
	}
	return time.Duration(total)
}
