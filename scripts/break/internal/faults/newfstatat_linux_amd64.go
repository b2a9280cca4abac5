package faults

import "golang.org/x/sys/unix"

const newfstatat = unix.SYS_NEWFSTATAT
