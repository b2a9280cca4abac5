//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package faults

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/fileproc/fileproc/internal/seccomp"
	"golang.org/x/sys/unix"
)

// A filter is a seccomp filter that refuses calls for the whole of a process, as containers do.
type filter struct {
	calls  []string
	errno  unix.Errno // 0: the call kills the process
	odd    bool       // only if the argument 1 is odd: a length for which the runtime's mmap never asks
	reveal bool       // files may fail: the run has no other way
}

// number is the number of each call on this machine.
var number = map[string]uintptr{
	"io_uring_setup": unix.SYS_IO_URING_SETUP, "io_uring_enter": unix.SYS_IO_URING_ENTER, "io_uring_register": unix.SYS_IO_URING_REGISTER,
	"io_setup": unix.SYS_IO_SETUP, "io_submit": unix.SYS_IO_SUBMIT, "io_getevents": unix.SYS_IO_GETEVENTS, "io_destroy": unix.SYS_IO_DESTROY,
	"statx": unix.SYS_STATX, "openat2": unix.SYS_OPENAT2, "preadv2": unix.SYS_PREADV2, "fadvise64": unix.SYS_FADVISE64, "fstatfs": unix.SYS_FSTATFS,
	"getdents64": unix.SYS_GETDENTS64, "openat": unix.SYS_OPENAT, "fstat": unix.SYS_FSTAT, "newfstatat": newfstatat, "read": unix.SYS_READ,
	"pread64": unix.SYS_PREAD64, "readlinkat": unix.SYS_READLINKAT, "mmap": unix.SYS_MMAP, "close": unix.SYS_CLOSE,
}

const (
	ringCalls  = "io_uring_setup io_uring_enter io_uring_register"
	asyncCalls = "io_setup io_submit io_getevents io_destroy"
)

// filters are by name.
var filters = func() map[string]filter {
	all := map[string]filter{
		"large mmap ENOMEM": {calls: []string{"mmap"}, errno: unix.ENOMEM, odd: true, reveal: true},
	}
	// What has another way, so that nobody notices.
	for _, calls := range []string{ringCalls, "io_uring_setup", "io_uring_enter", "io_uring_register", "openat2", "statx", "preadv2", "fadvise64", "fstatfs",
		ringCalls + " " + asyncCalls, "io_uring_setup io_submit", "io_uring_setup io_getevents", ringCalls + " " + asyncCalls + " statx openat2 preadv2"} {
		for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
			all[calls+" "+unix.ErrnoName(errno)] = filter{calls: strings.Fields(calls), errno: errno}
		}
	}
	// What has none.
	for _, calls := range []string{"getdents64", "openat", "fstat", "statx newfstatat", "read", "pread64", "readlinkat"} {
		for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
			all[calls+" "+unix.ErrnoName(errno)] = filter{calls: strings.Fields(calls), errno: errno, reveal: true}
		}
	}
	for _, call := range []string{"getdents64", "preadv2", "io_uring_enter", "statx", "fstat", "close"} {
		all[call+" kills"] = filter{calls: []string{call}}
	}
	return all
}()

// launchUnder replaces this process with the victim under the filter.
func launchUnder(name, mode, root, cache string) error {
	f, ok := filters[name]
	if !ok {
		return fmt.Errorf("no filter %q", name)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the filter holds for this thread, and for the process that it becomes
	if err := f.install(); err != nil {
		return err
	}
	return syscall.Exec(self, []string{self, "faults", "-run", mode, "-root", root, "-cache", cache}, os.Environ())
}

// install makes the filter hold for this thread.
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
		if f.odd {
			program = append(program, unix.SockFilter{Code: equal, K: uint32(number[call]), Jf: 3}, unix.SockFilter{Code: load, K: seccomp.Argument(1)},
				unix.SockFilter{Code: anyBit, K: 1, Jf: 1}, unix.SockFilter{Code: ret, K: action})
			break
		}
		program = append(program, unix.SockFilter{Code: equal, K: uint32(number[call]), Jf: 1}, unix.SockFilter{Code: ret, K: action})
	}
	_, err := seccomp.Install(append(program, unix.SockFilter{Code: ret, K: seccomp.Allow}), 0)
	return err
}

// underFilters returns the runs of each mode under each filter of a call that it makes.
func (d *driver) underFilters() (jobs []job) {
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		f := filters[name]
		for _, b := range backends {
			for _, m := range modes {
				j := job{backend: b.name, mode: m, t: target{call: "seccomp"}, fault: name, errno: unix.ErrnoName(f.errno), filter: true}
				makes := slices.ContainsFunc(f.calls, func(call string) bool { return d.counts[b.name+" "+m.name+" "+call] > 0 })
				if j.applies() && (makes || f.odd) && strings.Contains(j.String(), d.only) {
					jobs = append(jobs, j)
				}
			}
		}
	}
	return jobs
}

// withShortCounts returns the runs of each mode in which reads and listings return less than they were asked for.
func (d *driver) withShortCounts() (jobs []job) {
	for seed := range 5 {
		for _, b := range backends {
			for _, m := range modes {
				j := job{backend: b.name, mode: m, t: target{call: "short"}, short: 1 + seed}
				if j.applies() && strings.Contains(j.String(), d.only) {
					jobs = append(jobs, j)
				}
			}
		}
	}
	return jobs
}

// withoutStrace runs j, with a filter or short counts, and judges what it did.
func (d *driver) withoutStrace(j job, scratch string) {
	f := filters[j.fault]
	args, sum := append(d.victimArgs(j, scratch), "-launch", j.fault), &d.filtered
	if j.short > 0 {
		args, sum = append(d.victimArgs(j, scratch), "-short", strconv.Itoa(j.short)), &d.shortened
	}
	env := []string{injectedVariable + "=" + j.errno}
	out, err := command(env, args[0], args[1:]...)
	failed := strings.Contains("\n"+string(out), "\nfailed ")
	var exit *exec.ExitError
	killed := j.filter && f.errno == 0 && errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGSYS
	repeat := env[0] + " " + quoted(args)
	switch {
	case killed:
	case err != nil:
		d.lost(j, repeat, err.Error()+"\n"+string(out))
	case failed && !f.reveal:
		d.lost(j, repeat, "files failed although the run has another way\n"+string(out))
	case !strings.Contains(string(out), "leaked=0"):
		d.lost(j, repeat, "descriptors are left open\n"+string(out))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	sum.runs++
	switch {
	case killed:
		sum.ended++
	case failed:
		sum.reported++
	default:
		sum.absorbed++
	}
}
