//go:build aix || dragonfly || linux || openbsd || solaris

package fsinfo

import (
	"syscall"
	"time"
)

func changeOf(st *syscall.Stat_t) time.Time { return time.Unix(st.Ctim.Unix()) }
