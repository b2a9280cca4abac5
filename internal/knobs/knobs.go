// Package knobs holds variables that all runs of a process share. Tests set them; no option
// does.
package knobs

import (
	"sync/atomic"
	"time"
)

var (
	// SlowCall is the duration above which a call counts as one that has waited for
	// something other than a processor.
	SlowCall = 100 * time.Microsecond

	// AlwaysCold keeps every run in the cold mode.
	AlwaysCold bool

	// MaxBacklog is the approximate maximum of memory, in bytes, for names that have
	// been pulled and that no worker has taken: 100,000 names of 20 bytes.
	MaxBacklog = 4 << 20

	// Reported says that Go's scheduler hears of each system call. Where the process itself
	// answers them, a call that it does not hear of would wait for a goroutine that has no processor.
	Reported bool

	// NoOpenat2 says that the kernel (before Linux 5.6) or a seccomp filter refuses
	// openat2.
	NoOpenat2 atomic.Bool
)
