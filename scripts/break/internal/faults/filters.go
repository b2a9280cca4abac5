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

// A filter is a seccomp filter that refuses calls for the whole of a run, as containers do.
type filter struct {
	calls    []string
	errno    unix.Errno // 0: the call kills the process
	absorbed bool       // no file may fail: the run has another way
	odd      bool       // only if the argument 1 is odd: a length for which the runtime's mmap never asks
}

// number is the number of each call on this machine.
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

// install makes the filter hold for this process.
func (f filter) install() error {
	const (
		load, equal, ret = seccomp.Load, seccomp.Equal, seccomp.Return

		anyBit = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		kill   = 0x80000000 // SECCOMP_RET_KILL_PROCESS
	)
	action := uint32(seccomp.Refuse) | uint32(f.errno)
	if f.errno == 0 {
		action = kill
	}
	program := []unix.SockFilter{{Code: load, K: 0}}
	for _, call := range f.calls {
		if f.odd { // the only call
			program = append(program, unix.SockFilter{Code: equal, K: uint32(number[call]), Jf: 3},
				unix.SockFilter{Code: load, K: seccomp.Argument(1)}, unix.SockFilter{Code: anyBit, K: 1, Jf: 1})
		} else {
			program = append(program, unix.SockFilter{Code: equal, K: uint32(number[call]), Jf: 1})
		}
		program = append(program, unix.SockFilter{Code: ret, K: action})
	}
	_, err := seccomp.Install(append(program, unix.SockFilter{Code: ret, K: seccomp.Allow}), seccomp.AllThreads)
	return err
}

// underFilters returns the runs of each mode under each filter of a call that it makes.
func (d *driver) underFilters() (jobs []job) {
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		f := filters[name]
		for _, j := range uses() {
			j.t, j.fault = target{call: seccompRuns, paths: true, absorbed: f.absorbed}, name
			if f.odd || slices.ContainsFunc(f.calls, func(call string) bool { return d.counts[j.use()+call] > 0 }) {
				jobs = append(jobs, j)
			}
		}
	}
	return d.chosen(jobs)
}

// withShortCounts returns the runs of each mode in which reads and listings return less than they were asked for.
func (d *driver) withShortCounts() (jobs []job) {
	for seed := range 5 {
		for _, j := range uses() {
			j.t, j.fault = target{call: shortRuns, paths: true, absorbed: true}, fmt.Sprint(1+seed)
			jobs = append(jobs, j)
		}
	}
	return d.chosen(jobs)
}
