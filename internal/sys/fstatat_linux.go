//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x) && !fileproc_unix && !fileproc_generic

package sys

import "golang.org/x/sys/unix"

// FstatatCall and FstatCall are the system calls that fill a unix.Stat_t, 0 if there are
// none.
const (
	FstatatCall = unix.SYS_NEWFSTATAT
	FstatCall   = unix.SYS_FSTAT
)
