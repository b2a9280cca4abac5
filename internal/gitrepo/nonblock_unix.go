//go:build unix

package gitrepo

import "syscall"

const nonBlock = syscall.O_NONBLOCK
