//go:build unix

package fileproc

import "syscall"

func init() {
	scarceErrors = append(scarceErrors, syscall.ENFILE)
	leasedErrors = append(leasedErrors, syscall.EAGAIN)
}
