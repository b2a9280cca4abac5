//go:build !fileproc_generic && (aix || dragonfly || linux || openbsd || solaris)

package sys

import (
	"time"

	"golang.org/x/sys/unix"
)

func birthOf(*unix.Stat_t) time.Time { return time.Time{} }
