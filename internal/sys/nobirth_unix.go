//go:build aix || dragonfly || linux || openbsd || solaris

package sys

import (
	"syscall"
	"time"
)

func timesOf(st *syscall.Stat_t) (change, birth time.Time) {
	return time.Unix(st.Ctim.Unix()), time.Time{}
}
