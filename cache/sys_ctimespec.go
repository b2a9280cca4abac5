//go:build darwin || freebsd || netbsd

package cache

import "syscall"

func ctimeOf(st *syscall.Stat_t) (sec, nsec int64) { return st.Ctimespec.Unix() }
