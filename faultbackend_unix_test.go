//go:build unix

package fileproc

import "syscall"

func init() {
	scarceErrors = append(scarceErrors, syscall.ENFILE)
	otherErrors = append(otherErrors, syscall.ENOMEM, syscall.ESTALE)
	leasedErrors = append(leasedErrors, syscall.EAGAIN, syscall.EINTR)
}
