//go:build aix || dragonfly || linux || openbsd || solaris

package cache

import "syscall"

func ctimeOf(st *syscall.Stat_t) (sec, nsec int64) { return st.Ctim.Unix() }
