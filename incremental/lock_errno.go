//go:build !plan9

package incremental

import "syscall"

// errNoLocks is what NFS without a lock service returns.
var errNoLocks error = syscall.ENOLCK
