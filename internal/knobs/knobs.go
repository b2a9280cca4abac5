// Package knobs holds what all runs of a process share and tests set: no option
// changes it.
package knobs

import (
	"runtime"
	"sync/atomic"
	"time"
)

var (
	// SlowCall is how long a call takes that waits for something other than a
	// processor.
	SlowCall = 100 * time.Microsecond

	// AlwaysCold keeps every run in the cold mode.
	AlwaysCold bool

	// MaxBacklog is about how many bytes of memory the names may take that were
	// pulled and that no worker has taken: 100,000 names of 20 bytes.
	MaxBacklog = 4 << 20

	// HasRemote says that a file's handle may know that its content is remote.
	HasRemote = runtime.GOOS == "windows"

	// NoOpenat2 says that the kernel (before Linux 5.6) or a seccomp filter refuses
	// openat2.
	NoOpenat2 atomic.Bool
)
