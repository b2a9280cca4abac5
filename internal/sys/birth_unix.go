//go:build darwin || freebsd || netbsd

package sys

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func timesOf(st *syscall.Stat_t) (change, birth time.Time) {
	return time.Unix(st.Ctimespec.Unix()), time.Unix(st.Birthtimespec.Unix())
}

func birthOf(st *unix.Stat_t) time.Time { return time.Unix(st.Btim.Unix()) }
