package sys

import (
	"time"

	"golang.org/x/sys/windows"
)

// ProcessorTime returns the processor time that this process has used, or elapsed time if the system does not tell.
func ProcessorTime() time.Duration {
	var created, ended, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(windows.CurrentProcess(), &created, &ended, &kernel, &user); err != nil {
		return time.Since(begun)
	}
	of := func(t windows.Filetime) time.Duration {
		return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100 // a Filetime counts units of 100 ns
	}
	return of(kernel) + of(user)
}
