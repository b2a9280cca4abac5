//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Package callfaults answers system calls of this process in place of the kernel, through seccomp's user notification. It serves
// tests in processes of their own: a filter cannot be removed.
package callfaults

import (
	"errors"
	"reflect"
	"runtime"
	"unsafe"

	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/seccomp"
	"golang.org/x/sys/unix"
)

// A Call is a system call that is about to be made.
type Call struct {
	Number uintptr
	Args   [6]uint64
}

// An Answer decides what a call returns, or, if answered is false, that the kernel makes it. Start calls it on one
// goroutine. An Answer that itself makes a call on which it decides must use Bypass. It must be quick, since the thread
// that makes the call waits.
type Answer func(c Call) (result int, err unix.Errno, answered bool)

// The structs here are those of the kernel's include/uapi/linux/seccomp.h.

type notification struct {
	id         uint64
	pid, flags uint32
	number     int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type response struct {
	id     uint64
	result int64
	err    int32
	flags  uint32
}

var (
	_ [80]byte = [unsafe.Sizeof(notification{})]byte{}
	_ [24]byte = [unsafe.Sizeof(response{})]byte{}
)

const (
	receive = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	send    = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	goOn    = 1          // SECCOMP_USER_NOTIF_FLAG_CONTINUE

	// mark is the sixth argument of calls that the filter lets pass. None of the calls that tests answer has six arguments.
	mark = 0x66617573
)

// Start makes answer decide on each of the calls, in all threads, until the process ends. It fails where seccomp or its
// notifications are missing or forbidden.
func Start(calls []uintptr, answer Answer) error {
	const (
		load, equal, ret = seccomp.Load, seccomp.Equal, seccomp.Return

		notify      = 0x7fc00000 // SECCOMP_RET_USER_NOTIF
		caller      = 8 + 4      // in struct seccomp_data, the upper half of the instruction pointer on these machines
		newListener = 8          // SECCOMP_FILTER_FLAG_NEW_LISTENER
		noThread    = 16         // SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	)
	filter := []unix.SockFilter{
		{Code: load, K: seccomp.Argument(5)}, {Code: equal, K: mark, Jf: 1}, {Code: ret, K: seccomp.Allow},
		// Calls by the C library pass: it may hold locks that the answering thread needs. The race detector brings that library. Its
		// code is elsewhere in memory than Go's.
		{Code: load, K: caller}, {Code: equal, K: uint32(uint64(reflect.ValueOf(Start).Pointer()) >> 32), Jt: 1}, {Code: ret, K: seccomp.Allow},
		{Code: load, K: 0},
	}
	for _, c := range calls {
		filter = append(filter, unix.SockFilter{Code: equal, K: uint32(c), Jf: 1}, unix.SockFilter{Code: ret, K: notify})
	}
	filter = append(filter, unix.SockFilter{Code: ret, K: seccomp.Allow})

	knobs.Reported = true
	listener := make(chan int)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		fd, err := seccomp.Install(filter, seccomp.AllThreads|newListener|noThread)
		if err != nil {
			failed <- err
			return
		}
		listener <- int(fd)
		for {
			var n notification
			if _, _, errno := unix.Syscall6(unix.SYS_IOCTL, fd, receive, uintptr(unsafe.Pointer(&n)), 0, 0, mark); errno != 0 {
				if errno == unix.EINTR || errno == unix.ENOENT { // a signal, to this thread or to the caller
					continue
				}
				return
			}
			r := response{id: n.id, flags: goOn}
			if result, err, answered := answer(Call{uintptr(n.number), n.args}); answered {
				r = response{id: n.id, result: int64(result), err: -int32(err)}
			}
			unix.Syscall6(unix.SYS_IOCTL, fd, send, uintptr(unsafe.Pointer(&r)), 0, 0, mark) // fails if a signal has ended the call
		}
	}()
	select {
	case <-listener:
		return nil
	case err := <-failed:
		return errors.Join(errors.New("seccomp's user notification"), err)
	}
}

// Bypass makes a call of up to five arguments, which the filter lets pass.
func Bypass(c Call) (result int, err unix.Errno) {
	r, _, errno := unix.Syscall6(c.Number, uintptr(c.Args[0]), uintptr(c.Args[1]), uintptr(c.Args[2]), uintptr(c.Args[3]), uintptr(c.Args[4]), mark)
	return int(r), errno
}

// Short makes a call that counts bytes, but asks for n bytes at most. The result is a short count, as the kernel may return it at any
// time.
func Short(c Call, n uint64) (result int, err unix.Errno) {
	c.Args[2] = min(c.Args[2], n) // of read, pread64 and getdents64
	return Bypass(c)
}
