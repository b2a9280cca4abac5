//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package faults

import "strings"

// A target is a system call with its errors.
type target struct {
	call string
	// paths says that only calls with a path or descriptor of the tree fail, and not those of the Go runtime. Without it, a
	// runtime that ends the process is no loss.
	paths bool
	// absorbed says that no file may fail: the run has another way, or what fails does not matter.
	absorbed bool
	errors   string // those of the manual page
	// few says that the runtime makes most of these calls: a few errors and modes are enough.
	few bool
}

// anyCall are the errors that each call gets besides those of its manual page.
const anyCall = "EINTR EAGAIN EMFILE ENFILE ENOMEM EIO ESTALE EPERM ENOSYS"

// targets are the calls that the package makes, or has package os make. strace -c of each mode shows no others but those of
// the Go runtime.
var targets = []target{
	{"openat", true, false, "EACCES EBUSY EFAULT EFBIG EINVAL EISDIR ELOOP ENAMETOOLONG ENODEV ENOENT ENOSPC ENOTDIR ENXIO EOVERFLOW EROFS ETXTBSY EDQUOT", false},
	{"openat2", true, true, "EACCES E2BIG EXDEV EINVAL ELOOP ENOENT ENOTDIR", false},
	{"getdents64", true, false, "EBADF EFAULT EINVAL ENOENT ENOTDIR", false},
	{"read", true, false, "EBADF EFAULT EINVAL EISDIR", false},
	{"pread64", true, false, "EBADF EFAULT EINVAL EISDIR ENXIO EOVERFLOW ESPIPE", false},
	{"preadv2", false, true, "EBADF EFAULT EINVAL EISDIR EOPNOTSUPP EOVERFLOW ESPIPE", false},
	{"fstat", true, false, "EBADF EFAULT EOVERFLOW", false},
	{"newfstatat", true, false, "EACCES EBADF EFAULT EINVAL ELOOP ENAMETOOLONG ENOENT ENOTDIR EOVERFLOW", false},
	{"statx", false, false, "EACCES EBADF EFAULT EINVAL ELOOP ENAMETOOLONG ENOENT ENOTDIR", false},
	{"readlinkat", true, false, "EACCES EBADF EFAULT EINVAL ELOOP ENAMETOOLONG ENOENT ENOTDIR", false},
	{"fstatfs", false, true, "EBADF EFAULT EOVERFLOW", false},
	{"fadvise64", false, true, "EBADF EINVAL ESPIPE", false},
	{"lseek", true, false, "EBADF EINVAL ENXIO EOVERFLOW ESPIPE", false},
	{"fcntl", true, false, "EACCES EBADF EBUSY EDEADLK EFAULT EINVAL ENOLCK", false},
	{"close", true, true, "EBADF ENOSPC EDQUOT", false},
	{"io_uring_setup", false, true, "EFAULT EINVAL", false},
	{"io_uring_register", false, true, "EACCES EBADF EBADFD EBUSY EEXIST EFAULT EINVAL ENXIO EOPNOTSUPP", false},
	{"io_uring_enter", false, true, "EBADF EBADFD EBADR EBUSY EEXIST EFAULT EINVAL EOPNOTSUPP ENXIO", false},
	{"io_setup", false, true, "EFAULT EINVAL", false},
	{"io_submit", false, true, "EBADF EFAULT EINVAL", false},
	{"io_getevents", false, true, "EFAULT EINVAL", false},
	{"io_destroy", false, true, "EFAULT EINVAL", false},
	{"mmap", true, true, "EACCES EBADF EINVAL ENODEV EOVERFLOW ETXTBSY", false},
	{"munmap", false, true, "EINVAL", true},
	{"madvise", false, true, "EACCES EBADF EINVAL", true},
	{"prlimit64", false, true, "EFAULT EINVAL ESRCH", true},
	{"epoll_create1", false, false, "EINVAL", true},
	{"epoll_ctl", false, false, "EBADF EEXIST EINVAL ELOOP ENOENT ENOSPC", true},
	{"epoll_pwait", false, false, "EBADF EFAULT EINVAL", true},
	{"eventfd2", false, false, "EINVAL ENODEV", true},
	{"poll", false, true, "EFAULT EINVAL", true},
	{"ppoll", false, true, "EFAULT EINVAL", true},
	// What package incremental does with the cache file.
	{"write", true, false, "EBADF EDESTADDRREQ EDQUOT EFAULT EFBIG EINVAL ENOSPC", false},
	{"pwrite64", true, false, "EBADF EDQUOT EFAULT EFBIG EINVAL ENOSPC ENXIO EOVERFLOW ESPIPE", false},
	{"ftruncate", true, false, "EACCES EFBIG EINVAL EROFS", false},
	{"flock", true, false, "EBADF EINVAL ENOLCK", false},
	{"renameat", true, false, "EACCES EBUSY EDQUOT EINVAL EISDIR ELOOP EMLINK ENAMETOOLONG ENOENT ENOSPC ENOTDIR EROFS EXDEV", false},
	{"unlinkat", true, false, "EACCES EBUSY EISDIR ELOOP ENAMETOOLONG ENOENT ENOTDIR EROFS", false},
	{"fchmod", true, false, "EBADF EROFS", false},
	{"fchmodat", true, false, "EACCES ENOENT ENOTDIR EROFS", false},
	{"fsync", true, false, "EBADF EDQUOT EINVAL ENOSPC EROFS", false},
}

// errnos returns the errors of a call, each once.
func (t target) errnos() (all []string) {
	seen := map[string]bool{}
	if t.few {
		return strings.Fields("EINTR ENOMEM EPERM ENOSYS EINVAL")
	}
	for _, e := range strings.Fields(t.errors + " " + anyCall) {
		if !seen[e] {
			seen[e] = true
			all = append(all, e)
		}
	}
	return all
}

// waits reports whether errno is one for which an operation waits, for up to 30 seconds or a minute. A call that always fails so
// is left to the tests, which run in fake time.
func waits(errno string) bool { return errno == "EMFILE" || errno == "ENFILE" || errno == "EAGAIN" }

// retried are the calls that are made again after EINTR, and after EAGAIN. Package os does so too.
func retried(call, errno string) bool {
	switch errno {
	case "EINTR":
		return strings.Contains(" openat getdents64 read pread64 fstat newfstatat statx readlinkat ", " "+call+" ")
	case "EAGAIN":
		return call == "openat" || call == "read" || call == "pread64"
	case "EMFILE", "ENFILE":
		return call == "openat"
	}
	return false
}
