package sys

import (
	"time"

	"golang.org/x/sys/windows"
)

// ProcessorTime returns how much time of processors this process has taken.
func ProcessorTime() time.Duration {
	var created, ended, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(windows.CurrentProcess(), &created, &ended, &kernel, &user); err != nil {
		return time.Since(begun)
	}
	of := func(t windows.Filetime) time.Duration {
		return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100 // a count of 100 ns
	}
	return of(kernel) + of(user)
}
