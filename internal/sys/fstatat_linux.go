//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x) && !fileproc_unix && !fileproc_generic

package sys

import "golang.org/x/sys/unix"

// FstatatCall is the system call that fills a unix.Stat_t, 0 if there is none.
const FstatatCall = unix.SYS_NEWFSTATAT
