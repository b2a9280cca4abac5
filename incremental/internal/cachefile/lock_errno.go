//go:build !plan9

package cachefile

import "syscall"

// errNoLocks is what NFS without a lock service returns.
var errNoLocks error = syscall.ENOLCK
