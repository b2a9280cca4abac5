//go:build aix || dragonfly || linux || openbsd || solaris

package sys

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func timesOf(st *syscall.Stat_t) (change, birth time.Time) {
	return time.Unix(st.Ctim.Unix()), time.Time{}
}

//lint:ignore U1000 fd.go uses it, which the tag fileproc_generic leaves out
func birthOf(*unix.Stat_t) time.Time { return time.Time{} }
