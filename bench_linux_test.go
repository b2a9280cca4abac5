package fileproc_test

import (
	"os"

	"golang.org/x/sys/unix"
)

func init() {
	if os.Getenv("FILEPROC_BENCH_SMALL_PAGES") != "" { // where page faults are counted: whether huge pages are free is chance
		if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
			panic(err)
		}
	}
	pageFaults = func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			panic(err) // the arguments are constants
		}
		return int64(u.Minflt)
	}
}
