//go:build linux && (arm64 || loong64 || riscv64)

package faults

import "golang.org/x/sys/unix"

const newfstatat = unix.SYS_FSTATAT
