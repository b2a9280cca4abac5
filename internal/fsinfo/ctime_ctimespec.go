//go:build darwin || freebsd || netbsd

package fsinfo

import (
	"syscall"
	"time"
)

func changeOf(st *syscall.Stat_t) time.Time { return time.Unix(st.Ctimespec.Unix()) }
