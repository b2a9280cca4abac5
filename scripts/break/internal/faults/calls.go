//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/internal/seccomp"
	"golang.org/x/sys/unix"
)

// A target is a system call with its errors.
type target struct {
	call string
	// paths says that only calls with a path or descriptor of the tree fail, and not those of the Go runtime. If it is false,
	// calls of the runtime fail, too, and it may end the process, which is no loss.
	paths bool
	// absorbed says that no file may fail: the run has another way, or the call does not matter.
	absorbed bool
	errors   string // from the manual page
	// few says that the runtime makes most of these calls, so that a few errors and modes are enough.
	few bool
}

// anyCall has the errors that each call gets in addition to those of its manual page.
const anyCall = "EINTR EAGAIN EMFILE ENFILE ENOMEM EIO ESTALE EPERM ENOSYS"

// targets are the calls that the package makes, itself or through package os. strace -c of each mode shows no other calls but those
// of the Go runtime.
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
	// The calls of package incremental on the cache file.
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

func (t target) errnos() []string {
	if t.few {
		return strings.Fields("EINTR ENOMEM EPERM ENOSYS EINVAL")
	}
	all := strings.Fields(t.errors + " " + anyCall)
	slices.Sort(all)
	return slices.Compact(all)
}

// waits reports whether an operation waits after errno, for up to 30 seconds or a minute. The case that such a call always fails is
// left to the tests, which run in fake time.
func waits(errno string) bool { return errno == "EMFILE" || errno == "ENFILE" || errno == "EAGAIN" }

// retried has the calls that a run makes again after an error. Package os does so too.
var retried = map[string]string{"EINTR": "openat getdents64 read pread64 fstat newfstatat statx readlinkat",
	"EAGAIN": "openat read pread64", "EMFILE": "openat", "ENFILE": "openat"}

// A filter is a seccomp filter that refuses calls during the whole run, as containers do.
type filter struct {
	calls    []string
	errno    unix.Errno // 0: the call kills the process
	absorbed bool       // no file may fail: the run has another way
	odd      bool       // only if argument 1 is odd: the runtime never maps an odd length
}

var number = map[string]uintptr{
	"io_uring_setup": unix.SYS_IO_URING_SETUP, "io_uring_enter": unix.SYS_IO_URING_ENTER, "io_uring_register": unix.SYS_IO_URING_REGISTER,
	"io_setup": unix.SYS_IO_SETUP, "io_submit": unix.SYS_IO_SUBMIT, "io_getevents": unix.SYS_IO_GETEVENTS,
	"io_destroy": unix.SYS_IO_DESTROY, "statx": unix.SYS_STATX, "openat2": unix.SYS_OPENAT2, "preadv2": unix.SYS_PREADV2,
	"fadvise64": unix.SYS_FADVISE64, "fstatfs": unix.SYS_FSTATFS, "getdents64": unix.SYS_GETDENTS64, "openat": unix.SYS_OPENAT,
	"fstat": unix.SYS_FSTAT, "newfstatat": unix.SYS_NEWFSTATAT, "read": unix.SYS_READ, "pread64": unix.SYS_PREAD64,
	"readlinkat": unix.SYS_READLINKAT, "mmap": unix.SYS_MMAP, "close": unix.SYS_CLOSE,
}

// filters are by name, which has no spaces.
var filters = func() map[string]filter {
	const (
		ring  = "io_uring_setup io_uring_enter io_uring_register"
		async = "io_setup io_submit io_getevents io_destroy"
	)
	all := map[string]filter{"large-mmap=ENOMEM": {calls: []string{"mmap"}, errno: unix.ENOMEM, odd: true}}
	add := func(f filter, errno unix.Errno, as string) {
		f.errno = errno
		all[strings.Join(f.calls, "+")+"="+as] = f
	}
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
		for _, calls := range []string{ring, "io_uring_setup", "io_uring_enter", "io_uring_register", "openat2", "statx", "preadv2", "fadvise64",
			"fstatfs", ring + " " + async, "io_uring_setup io_submit", "io_uring_setup io_getevents", ring + " " + async + " statx openat2 preadv2"} {
			add(filter{calls: strings.Fields(calls), absorbed: true}, errno, unix.ErrnoName(errno))
		}
		for _, calls := range []string{"getdents64", "openat", "fstat", "statx newfstatat", "read", "pread64", "readlinkat"} {
			add(filter{calls: strings.Fields(calls)}, errno, unix.ErrnoName(errno))
		}
	}
	for _, call := range []string{"getdents64", "preadv2", "io_uring_enter", "statx", "fstat", "close"} {
		add(filter{calls: []string{call}}, 0, "kill")
	}
	return all
}()

func (f filter) install() error {
	const load, equal, anyBit = seccomp.Load, seccomp.Equal, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	action := uint32(seccomp.Refuse) | uint32(f.errno)
	if f.errno == 0 {
		action = unix.SECCOMP_RET_KILL_PROCESS
	}
	program := []unix.SockFilter{{Code: load, K: 0}}
	for _, call := range f.calls {
		if f.odd { // the only call
			program = append(program, unix.SockFilter{Code: equal, K: uint32(number[call]), Jf: 3},
				unix.SockFilter{Code: load, K: seccomp.Argument(1)}, unix.SockFilter{Code: anyBit, K: 1, Jf: 1})
		} else {
			program = append(program, unix.SockFilter{Code: equal, K: uint32(number[call]), Jf: 1})
		}
		program = append(program, unix.SockFilter{Code: seccomp.Return, K: action})
	}
	_, err := seccomp.Install(append(program, unix.SockFilter{Code: seccomp.Return, K: seccomp.Allow}), seccomp.AllThreads)
	return err
}

// withoutStrace returns the runs of each mode under each filter for a call of this mode, and the runs in which reads and listings
// return less than asked.
func (d *driver) withoutStrace() (jobs []job) {
	for _, j := range uses() {
		for _, name := range slices.Sorted(maps.Keys(filters)) {
			if f := filters[name]; f.odd || slices.ContainsFunc(f.calls, func(call string) bool { return d.counts[j.use()+call] > 0 }) {
				jobs = append(jobs, parseJob(j.use()+seccompRuns+" "+name+" when="))
			}
		}
		for seed := range 5 {
			jobs = append(jobs, parseJob(fmt.Sprint(j.use(), shortRuns, " ", 1+seed, " when=")))
		}
	}
	return slices.DeleteFunc(jobs, func(j job) bool { return !strings.Contains(j.String(), d.only) })
}
