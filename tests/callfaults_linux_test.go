//go:build amd64 || arm64 || loong64 || riscv64

package fileproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/callfaults"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() {
	tasks["each call fails"] = eachCallFails
	tasks["short counts"] = shortCounts
	tasks["always interrupted"] = alwaysInterrupted
	tasks["each call of Replace fails"] = eachCallOfReplaceFails
	tasks["syncs fail"] = syncsFail
	tasks["killed at a call"] = replaceKilledAtCall
}

// failingCalls are the calls that fail in the tests, and whether a run has another way than each.
var failingCalls = map[string]struct {
	number   uintptr
	absorbed bool
}{
	"openat": {unix.SYS_OPENAT, false}, "getdents64": {unix.SYS_GETDENTS64, false}, "read": {unix.SYS_READ, false},
	"pread64": {unix.SYS_PREAD64, false}, "fstat": {unix.SYS_FSTAT, false}, "statx": {unix.SYS_STATX, false}, "readlinkat": {unix.SYS_READLINKAT, false},
	"fstatat": {map[string]uintptr{"amd64": 262}[runtime.GOARCH] + map[bool]uintptr{true: 79}[runtime.GOARCH != "amd64"], false},
	"preadv2": {unix.SYS_PREADV2, true}, "fstatfs": {unix.SYS_FSTATFS, true}, "fadvise64": {unix.SYS_FADVISE64, true}, "close": {unix.SYS_CLOSE, true},
	"openat2":        {unix.SYS_OPENAT2, true},
	"io_uring_setup": {unix.SYS_IO_URING_SETUP, true}, "io_uring_register": {unix.SYS_IO_URING_REGISTER, true}, "io_uring_enter": {unix.SYS_IO_URING_ENTER, true},
	"io_setup": {unix.SYS_IO_SETUP, true}, "io_submit": {unix.SYS_IO_SUBMIT, true}, "io_getevents": {unix.SYS_IO_GETEVENTS, true},
}

// TestInvariant1EachCallFails lets each system call of a run fail in turn. The k-th call fails for every k.
func TestInvariant1EachCallFails(t *testing.T) {
	root := t.TempDir()
	for _, rel := range []string{"a", "b", "c", "d/b", "d/c", "d/e/f", "g/h", "g/i"} { // so many at the top that openat2 is called
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, rel)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, rel), testtree.BytesOf(rel), 0o644))
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "empty"), 0o755))
	require.NoError(t, os.Symlink("empty", filepath.Join(root, "to-empty")))
	output, _ := runTask(t, "each call fails", root)
	noteLeftOut(t, output)
}

// TestInvariant2ShortCounts lets the kernel read less than it was asked for, and list fewer entries.
func TestInvariant2ShortCounts(t *testing.T) {
	root, _ := plantMany(t, 3, 40)
	output, _ := runTask(t, "short counts", root)
	noteLeftOut(t, output)
}

// TestInvariant8CallThatIsAlwaysInterrupted cancels runs in which each call of a kind is interrupted each time.
func TestInvariant8CallThatIsAlwaysInterrupted(t *testing.T) {
	if fileproc.Backend() != "linux" {
		t.Skip("package os repeats its calls for ever")
	}
	root, _ := plantMany(t, 3, 40)
	require.True(t, testtree.Make(t, root, repository(".", "none\n")...))
	output, _ := runTask(t, "always interrupted", root)
	noteLeftOut(t, output)
}

func alwaysInterrupted(t *testing.T, root string) {
	newHome(t)
	var number atomic.Uint64 // of the call that is interrupted, or none
	var met atomic.Int64
	const none = 1 << 40
	errCancelled := errors.New("cancelled")
	number.Store(none)
	calls := []string{"openat", "openat2", "getdents64", "statx", "fstat", "fstatat", "read", "pread64", "preadv2", "io_uring_enter", "io_getevents"}
	var numbers []uintptr
	for _, c := range calls {
		numbers = append(numbers, failingCalls[c].number)
	}
	err := callfaults.Start(numbers, func(c callfaults.Call) (int, unix.Errno, bool) {
		if uint64(c.Number) != number.Load() {
			return 0, 0, false
		}
		met.Add(1)
		return 0, unix.EINTR, true
	})
	if err != nil {
		t.Log("left out: ", err)
		return
	}
	for _, cold := range []bool{false, true} {
		testtree.Set(t, &knobs.AlwaysCold, cold)
		for _, call := range calls {
			for _, opts := range []fileproc.Options{{}, {Stat: true, OneFilesystem: true}, {Stat: true, ReadSize: fileproc.NoRead, Ordered: true}} {
				ctx, cancel := context.WithCancelCause(t.Context())
				timer := time.AfterFunc(50*time.Millisecond, func() { cancel(errCancelled) })
				leavesNothing(t, func() {
					var report fileproc.Report
					opts.Report = &report
					opts.GitIgnore = call == "read" // of .git/info/exclude
					met.Store(0)
					number.Store(uint64(failingCalls[call].number))
					defer number.Store(none) // which a run that goes on past the cancel never reaches
					_, err = fileproc.Process(ctx, root, opts, relOf)
					number.Store(none)
					if call == "openat" || opts.GitIgnore { // without which there is no run; of others there are other ways
						require.ErrorIs(t, err, errCancelled)
						require.Positive(t, met.Load())
					}
					requireBalanced(t, report)
				})
				timer.Stop()
				cancel(nil)
			}
		}
	}
}

func eachCallFails(t *testing.T, root string) {
	testtree.Set(t, &knobs.SlowCall, 1<<62) // the same calls in each run
	var fault callFault
	var calls []uintptr
	for _, c := range failingCalls {
		calls = append(calls, c.number)
	}
	if !fault.start(t, calls) {
		return
	}
	want := relsOf(t, root)
	runs := 0
	// freshOf is the content of a file in this run. Buffers that are used again hold that of the run before, at the same places.
	freshOf := func(rel string) []byte {
		p := bytes.Clone(testtree.BytesOf(rel))
		for i := range p {
			p[i] ^= byte(runs) ^ byte(runs>>8)
		}
		return p
	}
	isFresh := func(f *fileproc.File) (string, error) {
		if p := freshOf(f.Rel()); !bytes.Equal(f.Data(), p) {
			return "", fmt.Errorf("%s: %d bytes are wrong, of %d", f.Rel(), len(f.Data()), len(p))
		}
		return f.Rel(), nil
	}
	// one makes a run in which the k-th call fails, and returns how many there were.
	one := func(mode faultMode, call string, k int64, with unix.Errno) int64 {
		const plenty = 1 << 40
		if k == 0 {
			k = plenty
		}
		runs++
		for _, rel := range want {
			if p := freshOf(rel); len(p) > 0 {
				require.NoError(t, os.WriteFile(filepath.Join(root, rel), p, 0o644))
			}
		}
		fault.set(failingCalls[call].number, k, with)
		what := fmt.Sprintf("%s: call %d of %s fails with %v", mode.name, k, call, with)
		got, failed := map[string]bool{}, map[string]error{}
		var report fileproc.Report
		leavesNothing(t, func() {
			fault.armed.Store(true)
			defer fault.armed.Store(false)
			opts := mode.opts
			opts.Report = &report
			opts.OnError = func(err error) error {
				var p *fs.PathError
				require.ErrorAs(t, err, &p, what)
				require.True(t, errors.Is(err, with) || errors.Is(err, fileproc.ErrChanged), "%s: %v", what, err)
				rel, _ := filepath.Rel(root, p.Path)
				failed[rel] = err
				return nil
			}
			mode.run(root, opts, isFresh, func(rel string, err error) {
				if err != nil {
					require.NoError(t, opts.OnError(err))
					return
				}
				require.False(t, got[rel], "%s: %s comes twice", what, rel)
				got[rel] = true
			})
		})
		requireBalanced(t, report)
		require.Zero(t, report.Abandoned, what)
		if isMadeUpFor(call, with) {
			require.Empty(t, failed, what)
		}
		requireExplained(t, want, got, failed, what)
		return k - fault.left.Load()
	}
	for _, mode := range faultModes {
		if mode.cold {
			testtree.Set(t, &knobs.AlwaysCold, true)
		}
		for _, call := range slices.Sorted(maps.Keys(failingCalls)) {
			knobs.NoOpenat2.Store(false)
			n := one(mode, call, 0, unix.EIO)
			for k := int64(1); k <= n; k++ {
				others := []unix.Errno{unix.EIO, unix.EPERM, unix.ENOSYS, unix.ENOMEM, unix.ESTALE}
				for _, with := range []unix.Errno{unix.EINTR, unix.EAGAIN, unix.EMFILE, others[runs%len(others)]} {
					knobs.NoOpenat2.Store(false)
					made := one(mode, call, k, with)
					if call == "openat2" && (with == unix.EPERM || with == unix.ENOSYS) {
						require.Equal(t, k, made, "%s: openat2 is not tried again", mode.name)
					}
				}
			}
		}
	}
	t.Logf("%d runs", runs)
}

// A callFault lets one call fail while it is armed.
type callFault struct {
	armed  atomic.Bool
	number atomic.Uint64 // of the calls that are counted
	left   atomic.Int64  // of these, until one fails
	errno  atomic.Uint32
}

// start reports whether the calls with these numbers can fail.
func (f *callFault) start(t *testing.T, numbers []uintptr) bool {
	err := callfaults.Start(numbers, func(c callfaults.Call) (int, unix.Errno, bool) {
		if !f.armed.Load() || uint64(c.Number) != f.number.Load() || f.left.Add(-1) != 0 {
			return 0, 0, false
		}
		if c.Number == unix.SYS_CLOSE { // which closes whatever it returns
			callfaults.Bypass(c)
		}
		return 0, unix.Errno(f.errno.Load()), true
	})
	if err != nil {
		t.Log("left out: ", err)
	}
	return err == nil
}

// set chooses the k-th of the calls with a number.
func (f *callFault) set(number uintptr, k int64, with unix.Errno) {
	f.number.Store(uint64(number))
	f.errno.Store(uint32(with))
	f.left.Store(k)
}

// isMadeUpFor reports whether nothing fails after a call that has failed once: it is made again, or there is another way.
func isMadeUpFor(call string, with unix.Errno) bool {
	return with == unix.EINTR || call == "openat" && (with == unix.EMFILE || with == unix.EAGAIN) || failingCalls[call].absorbed
}

// requireExplained requires that each file came, or that it or a directory above it has failed.
func requireExplained(t *testing.T, want []string, got map[string]bool, failed map[string]error, what string) {
	for _, rel := range want {
		explained := false
		for at := rel; !explained && at != "."; at = filepath.Dir(at) {
			explained = got[at] || failed[at] != nil
		}
		require.True(t, explained || failed["."] != nil, "%s: %s is missing; the failures are %v", what, rel, failed)
	}
}

// A faultMode is a way to use the package.
type faultMode struct {
	name string
	opts fileproc.Options
	cold bool
	run  func(root string, opts fileproc.Options, fn func(*fileproc.File) (string, error), yield func(rel string, err error))
}

var faultModes = []faultMode{
	{"Process", fileproc.Options{Workers: 1}, false, processAll},
	{"Stream", fileproc.Options{Workers: 1, Ordered: true, Stat: true}, false, func(root string, opts fileproc.Options, fn func(*fileproc.File) (string, error), yield func(string, error)) {
		for rel, err := range fileproc.Stream(context.Background(), root, opts, fn) {
			yield(rel, err)
		}
	}},
	{"Walk", fileproc.Options{Workers: 1, Stat: true}, false, func(root string, opts fileproc.Options, _ func(*fileproc.File) (string, error), yield func(string, error)) {
		for e, err := range fileproc.Walk(context.Background(), root, opts) {
			if err != nil {
				yield("", err)
			} else if !e.IsDir() {
				yield(e.Rel(), nil)
			}
		}
	}},
	{"Files", fileproc.Options{Workers: 1, Files: slices.Values([]string{"a", "b", "c", "d/", "g/h", "g/i"})}, false, processAll},
	{"links", fileproc.Options{Workers: 1, Symlinks: fileproc.SymlinksFollow}, false, processAll},
	{"cold", fileproc.Options{Workers: 1}, true, processAll},
	{"cold without a ring", fileproc.Options{Workers: 1, DisableURing: true}, true, processAll},
}

func processAll(root string, opts fileproc.Options, fn func(*fileproc.File) (string, error), yield func(string, error)) {
	rels, err := fileproc.Process(context.Background(), root, opts, fn)
	for _, rel := range rels {
		yield(rel, nil)
	}
	if err != nil {
		yield("", err)
	}
}

func exactRel(f *fileproc.File) (string, error) { return f.Rel(), exact(f, 0) }

func shortCounts(t *testing.T, root string) {
	random := rand.New(rand.NewSource(1))
	var shortened atomic.Int64
	calls := []uintptr{unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_GETDENTS64}
	err := callfaults.Start(calls, func(c callfaults.Call) (int, unix.Errno, bool) {
		few := uint64(1 + random.Intn(5000))
		if c.Number == unix.SYS_GETDENTS64 {
			few = uint64(280 + random.Intn(500)) // an entry takes 280 bytes at most
		}
		if c.Args[2] <= few || random.Intn(4) == 0 {
			return 0, 0, false
		}
		shortened.Add(1)
		n, errno := callfaults.Short(c, few)
		return n, errno, true
	})
	if err != nil {
		t.Log("left out: ", err)
		return
	}
	rels := relsOf(t, root)
	for range 3 {
		for _, mode := range faultModes {
			if mode.name == "Files" {
				mode.opts.Files = slices.Values(rels)
			}
			var got []string
			mode.opts.Workers = 2
			mode.run(root, mode.opts, exactRel, func(rel string, err error) {
				require.NoError(t, err, mode.name)
				got = append(got, rel)
			})
			slices.Sort(got)
			require.Equal(t, rels, got, mode.name)
		}
	}
	require.Greater(t, shortened.Load(), int64(100))
}

// callsOfReplace are the calls that fail in eachCallOfReplaceFails, each with errors that it may have.
var callsOfReplace = map[string]struct {
	number uintptr
	errors []unix.Errno
}{
	"openat": {unix.SYS_OPENAT, []unix.Errno{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EMFILE, unix.EINTR}},
	"fstat":  {unix.SYS_FSTAT, []unix.Errno{unix.EIO}}, "fchown": {unix.SYS_FCHOWN, []unix.Errno{unix.EPERM, unix.EDQUOT}},
	"fchmod": {unix.SYS_FCHMOD, []unix.Errno{unix.EPERM, unix.EIO}}, "pwrite64": {unix.SYS_PWRITE64, []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EFBIG, unix.EINTR}},
	"ftruncate": {unix.SYS_FTRUNCATE, []unix.Errno{unix.EIO}}, "flistxattr": {unix.SYS_FLISTXATTR, []unix.Errno{unix.EIO, unix.ENOTSUP}},
	"fgetxattr": {unix.SYS_FGETXATTR, []unix.Errno{unix.EIO}}, "fsetxattr": {unix.SYS_FSETXATTR, []unix.Errno{unix.EPERM, unix.ENOSPC, unix.EDQUOT}},
	"ioctl": {unix.SYS_IOCTL, []unix.Errno{unix.ENOTTY, unix.EPERM}}, "close": {unix.SYS_CLOSE, []unix.Errno{unix.ENOSPC, unix.EIO}},
	"renameat2": {unix.SYS_RENAMEAT2, []unix.Errno{unix.ENOSYS, unix.EINVAL, unix.EPERM, unix.EXDEV, unix.EIO, unix.EROFS, unix.EINTR}},
	"statx":     {unix.SYS_STATX, []unix.Errno{unix.EIO}}, "unlinkat": {unix.SYS_UNLINKAT, []unix.Errno{unix.EIO, unix.EINTR}},
	"sync_file_range": {unix.SYS_SYNC_FILE_RANGE, []unix.Errno{unix.EIO}}, "fremovexattr": {unix.SYS_FREMOVEXATTR, []unix.Errno{unix.EPERM, unix.EIO}},
	"fsync": {unix.SYS_FSYNC, []unix.Errno{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EINTR}}, "syncfs": {unix.SYS_SYNCFS, []unix.Errno{unix.EIO, unix.ENOSPC, unix.EDQUOT}},
}

// TestInvariant11EachCallFails lets each system call of Replace fail in turn, also with Options.Durable: for files that wait for
// others, and for files that are synced alone.
func TestInvariant11EachCallFails(t *testing.T) { runTaskOfReplace(t, "each call of Replace fails") }

// runTaskOfReplace runs a task in which calls of Replace fail.
func runTaskOfReplace(t *testing.T, task string) {
	t.Helper()
	if fileproc.Backend() == "generic" {
		t.Skip("the generic backend calls package os, whose system calls cannot be made to fail here")
	}
	output, _ := runTask(t, task, t.TempDir())
	noteLeftOut(t, output)
}

func eachCallOfReplaceFails(t *testing.T, root string) {
	var fault callFault
	var interferes, saved atomic.Bool
	var durable string // "", "in a group" or "alone"
	var calls []uintptr
	for _, c := range callsOfReplace {
		calls = append(calls, c.number)
	}
	if !fault.start(t, calls) {
		return
	}
	olds := map[string]string{"plain": "old", "attributes": "old attributes", "to empty": "old, not empty", "owner": "old of 1234"}
	news := map[string]string{"plain": "new content", "attributes": "new attributes", "to empty": "", "owner": "new of 1234"}
	theirs := "saved by somebody else"
	prepare := func() {
		require.NoError(t, os.RemoveAll(root))
		write(t, root, olds)
		_ = unix.Setxattr(root, "system.posix_acl_default", plainACL, 0) // which no temporary file may keep
		_ = unix.Setxattr(filepath.Join(root, "attributes"), "user.a", []byte("1"), 0)
		require.NoError(t, os.Chmod(filepath.Join(root, "attributes"), 0o640))
		_ = os.Chown(filepath.Join(root, "owner"), 1234, 1234)
	}
	replace.AfterPrepare = func() {
		if interferes.Load() {
			fault.armed.Store(false)
			require.NoError(t, os.WriteFile(filepath.Join(root, "aside"), []byte(theirs), 0o644))
			require.NoError(t, os.Rename(filepath.Join(root, "aside"), filepath.Join(root, "plain")))
			saved.Store(true)
			fault.armed.Store(true)
		}
	}
	runs := 0
	one := func(call string, k int64, with unix.Errno, file string) int64 {
		prepare()
		saved.Store(false)
		runs++
		var report fileproc.Report
		failed := map[string]error{}
		what := fmt.Sprintf("call %d of %s fails with %v, %s, durable: %q", k, call, with, file, durable)
		fault.set(callsOfReplace[call].number, k, with)
		leavesNothing(t, func() {
			opts := fileproc.Options{Workers: 1, Durable: durable != "", Report: &report, OnError: func(err error) error {
				failed[filepath.Base(err.(*fileproc.Failure).Path)] = err
				return nil
			}}
			fault.duringReplace(t, root, opts, durable, file, news)
		})
		requireBalanced(t, report)
		got := contents(t, root)
		require.ElementsMatch(t, slices.Collect(maps.Keys(olds)), slices.Collect(maps.Keys(got)), what)
		for rel, content := range got {
			switch err := failed[rel]; {
			case interferes.Load():
				require.Equal(t, map[bool]string{true: theirs, false: olds[rel]}[rel == file && saved.Load()], content, what)
			case err == nil && (file == "" || rel == file):
				require.Equal(t, news[rel], content, what)
			case content != news[rel]:
				require.Equal(t, olds[rel], content, "%s: %v", what, err)
			}
			if rel == "attributes" {
				info, err := os.Stat(filepath.Join(root, rel))
				require.NoError(t, err)
				require.EqualValues(t, 0o640, info.Mode().Perm(), what)
			}
		}
		return k - fault.left.Load()
	}
	made := map[string]int64{}
	for i := range 4 {
		meanwhile := i == 1
		interferes.Store(meanwhile)
		durable = []string{"", "", "in a group", "alone"}[i]
		file := map[bool]string{true: "plain"}[meanwhile]
		for _, call := range slices.Sorted(maps.Keys(callsOfReplace)) {
			n := one(call, 1<<40, unix.EIO, file)
			made[call] += n
			for k := int64(1); k <= n; k++ {
				errs := callsOfReplace[call].errors
				if durable != "" {
					errs = errs[:min(len(errs), 2)]
				}
				for _, with := range errs {
					one(call, k, with, file)
				}
			}
		}
	}
	for call := range callsOfReplace {
		if !slices.Contains([]string{"fchown", "fremovexattr", "syncfs"}, call) { // not everywhere: other users, ACLs, a sync of all
			require.Positive(t, made[call], call)
		}
	}
	t.Logf("%d runs", runs)
}

// duringReplace is armed while file, or each if that is "", gets its content in news.
func (f *callFault) duringReplace(t *testing.T, root string, opts fileproc.Options, durable, file string, news map[string]string) {
	fn := func(replaced *fileproc.File) (string, error) {
		if replaced.Rel() != file && file != "" {
			return "", nil
		}
		f.armed.Store(true)
		if durable != "in a group" { // else the calls that matter come when the run ends
			defer f.armed.Store(false)
		}
		return replaced.Rel(), replaced.Replace([]byte(news[replaced.Rel()]))
	}
	defer f.armed.Store(false)
	if durable == "alone" {
		for _, err := range fileproc.Stream(t.Context(), root, opts, fn) {
			require.NoError(t, err)
		}
		return
	}
	_, err := fileproc.Process(t.Context(), root, opts, fn)
	require.NoError(t, err)
}

// TestInvariant11SyncFails: with Options.Durable, a file of which the disk does not have all is a failure. It keeps its old
// content, unless only the sync of its name has failed. A group of files needs two syncs.
func TestInvariant11SyncFails(t *testing.T) { runTaskOfReplace(t, "syncs fail") }

func syncsFail(t *testing.T, root string) {
	var made, failing atomic.Int64
	var keeps atomic.Bool // no file can be removed
	err := callfaults.Start([]uintptr{unix.SYS_SYNCFS, unix.SYS_FSYNC, unix.SYS_UNLINKAT}, func(c callfaults.Call) (int, unix.Errno, bool) {
		if c.Number == unix.SYS_UNLINKAT {
			return 0, unix.EIO, keeps.Load()
		}
		return 0, unix.EIO, made.Add(1) == failing.Load()
	})
	if err != nil {
		t.Log("left out: ", err)
		return
	}
	const n = 20
	dir, err := os.Open(root)
	require.NoError(t, err)
	defer dir.Close()
	for _, streams := range []bool{false, true} {
		isGroup := !streams && fsinfo.SyncsWhole(int(dir.Fd()))
		for k := range int64(3) {
			for i := range n {
				write(t, root, map[string]string{fmt.Sprint("f", i): "old"})
			}
			made.Store(0)
			failing.Store(k)
			var report fileproc.Report
			errs := map[string]error{}
			opts := fileproc.Options{Durable: true, Workers: 1, Report: &report, OnError: func(err error) error {
				errs[filepath.Base(err.(*fileproc.Failure).Path)] = err
				return nil
			}}
			fn := func(f *fileproc.File) (string, error) { return f.Rel(), f.Replace([]byte("new")) }
			results := 0
			if streams { // its loop may wait for the result
				for _, err := range fileproc.Stream(t.Context(), root, opts, fn) {
					require.NoError(t, err)
					results++
				}
			} else {
				rels, err := fileproc.Process(t.Context(), root, opts, fn)
				require.NoError(t, err)
				results = len(rels)
			}
			requireBalanced(t, report)
			calls, failed := 2*n, 1
			if isGroup {
				calls, failed = 2, n
			}
			if k == 0 {
				failed = 0
			} else if k == 1 {
				calls-- // the names are not synced
			}
			require.EqualValues(t, calls, made.Load())
			require.Equal(t, n-failed, results)
			require.Len(t, errs, failed)
			require.EqualValues(t, map[bool]int{true: n - failed, false: n}[k == 1], report.Replaced)
			now := contents(t, root)
			require.Len(t, now, n)
			for name, content := range now {
				require.Equal(t, k == 1 && errs[name] != nil, content == "old")
				require.True(t, errs[name] == nil || errors.Is(errs[name], unix.EIO), errs[name])
				require.Equal(t, k == 2 && errs[name] != nil, strings.Contains(fmt.Sprint(errs[name]), "the file has the new content"))
			}
		}
	}
	for _, durable := range []bool{false, true} {
		var report fileproc.Report
		keeps.Store(true)
		err := fileproc.ForEach(t.Context(), root, fileproc.Options{Durable: durable, Report: &report}, func(f *fileproc.File) error { return f.Replace([]byte("newest")) })
		keeps.Store(false)
		require.ErrorContains(t, err, "the file has the new content, but the old one is still in .fileproc-")
		require.EqualValues(t, n, report.Replaced)
		require.EqualValues(t, n, report.Failed)
		for name := range contents(t, root) {
			if strings.HasSuffix(name, ".tmp") {
				require.NoError(t, os.Remove(filepath.Join(root, name)))
			}
		}
		require.Len(t, contents(t, root), n)
		require.Equal(t, "newest", contents(t, root)["f0"])
	}
	made.Store(0)
	failing.Store(2) // after the exchange: the root is the new file
	err = fileproc.ForEach(t.Context(), filepath.Join(root, "f0"), fileproc.Options{Durable: true}, func(f *fileproc.File) error {
		require.ErrorContains(t, f.Replace([]byte("newer")), "the file has the new content")
		opened, err := f.Open()
		if err == nil {
			opened.Close()
		}
		return err
	})
	require.NoError(t, err)
}

// replaceKilledAtCall replaces two files. The process is killed at the call with the number that ends the name of root's parent.
func replaceKilledAtCall(t *testing.T, root string) {
	var n int64
	_, err := fmt.Sscan(filepath.Base(filepath.Dir(root)), &n)
	require.NoError(t, err)
	var calls []uintptr
	for _, c := range callsOfReplace {
		calls = append(calls, c.number)
	}
	var begun atomic.Bool
	var made atomic.Int64
	if err := callfaults.Start(calls, func(callfaults.Call) (int, unix.Errno, bool) {
		if begun.Load() && made.Add(1) == n {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		return 0, 0, false
	}); err != nil {
		fmt.Println("left out: ", err)
		return
	}
	_ = fileproc.ForEach(t.Context(), root, fileproc.Options{Workers: 1, Durable: filepath.Base(root) == "durable"}, func(f *fileproc.File) error {
		begun.Store(true)
		return f.Replace([]byte("new"))
	})
	fmt.Println("survived")
}

// TestInvariant11KilledAtEachCall kills a process at each system call of two Replaces in turn.
func TestInvariant11KilledAtEachCall(t *testing.T) {
	if fileproc.Backend() == "generic" {
		t.Skip("the generic backend calls package os, whose system calls cannot be met here")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for _, how := range []string{"plain", "durable"} {
		for n := 1; ; n++ {
			require.Less(t, n, 200)
			root := filepath.Join(t.TempDir(), fmt.Sprint(n), how)
			write(t, root, map[string]string{"a": "old", "b": "old"})
			require.NoError(t, os.Chmod(filepath.Join(root, "a"), 0o640))
			cmd := exec.Command(self, "-test.run=^TestInvariantInAProcessOfItsOwn$", "-test.v")
			cmd.Env = append(os.Environ(), taskVariable+"=killed at a call="+root)
			out, _ := cmd.CombinedOutput()
			got := contents(t, root)
			require.Subset(t, []string{"old", "new"}, []string{got["a"], got["b"]}, "call %d, %s", n, how)
			info, err := os.Stat(filepath.Join(root, "a"))
			require.NoError(t, err)
			require.EqualValues(t, 0o640, info.Mode().Perm(), "call %d, %s", n, how)
			require.LessOrEqual(t, len(got), map[string]int{"plain": 3, "durable": 4}[how], "call %d: %q", n, got)
			if bytes.Contains(out, []byte("left out")) {
				t.Skipf("seccomp filters cannot be set here: %s", out)
			}
			if bytes.Contains(out, []byte("survived")) {
				require.Equal(t, map[string]string{"a": "new", "b": "new"}, got)
				t.Logf("%d calls, %s", n-1, how)
				break
			}
		}
	}
}
