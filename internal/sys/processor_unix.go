//go:build unix

package sys

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessorTime returns the processor time that this process has used, or elapsed time if the system does not tell.
func ProcessorTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return time.Since(begun)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
