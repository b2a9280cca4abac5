package fileproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
)

// hooks are the caller's functions that a run calls.
type hooks struct {
	fn      func(*fileproc.File) (int, error)
	sel     func(*fileproc.File) bool
	selDir  func(fileproc.Entry) bool
	onError func(error) error
	onSkip  func(fileproc.Entry, fileproc.SkipReason)
}

// culprits names each of the caller's functions that can end its goroutine, with misbehave in its place.
func culprits(misbehave func()) map[string]hooks {
	return map[string]hooks{
		"fn":        {fn: func(*fileproc.File) (int, error) { misbehave(); return 0, nil }},
		"Select":    {fn: succeed, sel: func(*fileproc.File) bool { misbehave(); return true }},
		"SelectDir": {fn: succeed, selDir: func(fileproc.Entry) bool { misbehave(); return true }},
		"OnError":   {fn: fail, onError: func(error) error { misbehave(); return nil }},
		"OnSkip":    {fn: succeed, sel: func(*fileproc.File) bool { return false }, onSkip: func(fileproc.Entry, fileproc.SkipReason) { misbehave() }},
		// Late: other workers are busy by then.
		"fn of one file in the middle": {fn: onNth(100, misbehave)},
	}
}

func onNth(n int64, do func()) func(*fileproc.File) (int, error) {
	var calls atomic.Int64
	return func(*fileproc.File) (int, error) {
		if calls.Add(1) == n {
			do()
		}
		return 1, nil
	}
}

func everyCall(t *testing.T, root string, test func(t *testing.T, call func(hooks) error)) {
	for _, p := range places(root) {
		for name, entry := range entryPoints {
			for _, workers := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s/%s/workers=%d", p.name, name, workers), func(t *testing.T) {
					watchdog(t)
					test(t, func(h hooks) error {
						opts := fileproc.Options{Workers: workers, FS: p.fsys, Select: h.sel, SelectDir: h.selDir, OnError: h.onError, OnSkip: h.onSkip}
						return entry(t.Context(), p.root, opts, h.fn)
					})
				})
			}
		}
	}
}

func TestInvariant6NothingIsLeftAfterAnyEnd(t *testing.T) {
	dir := spread(t, 20, 15)
	stream := fileproc.Stream[int]
	process := func(ctx context.Context, p place, opts fileproc.Options, fn func(*fileproc.File) (int, error)) error {
		_, err := fileproc.Process(ctx, p.root, opts, fn)
		return err
	}
	ends := map[string]struct {
		run  func(ctx context.Context, p place, opts fileproc.Options) error
		want error
	}{
		"return": {run: func(ctx context.Context, p place, opts fileproc.Options) error {
			return process(ctx, p, opts, succeed)
		}},
		"every fn fails": {want: errFromFn, run: func(ctx context.Context, p place, opts fileproc.Options) error {
			return process(ctx, p, opts, fail)
		}},
		"OnError stops": {want: errFromFn, run: func(ctx context.Context, p place, opts fileproc.Options) error {
			opts.OnError = func(err error) error { return err }
			return process(ctx, p, opts, fail)
		}},
		"SkipAll": {run: func(ctx context.Context, p place, opts fileproc.Options) error {
			return process(ctx, p, opts, func(*fileproc.File) (int, error) { return 0, fs.SkipAll })
		}},
		"cancelled before": {want: context.Canceled, run: func(ctx context.Context, p place, opts fileproc.Options) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return process(ctx, p, opts, succeed)
		}},
		"cancelled by fn": {want: errFromFn, run: func(ctx context.Context, p place, opts fileproc.Options) error {
			ctx, cancel := context.WithCancelCause(ctx)
			return process(ctx, p, opts, onNth(50, func() { cancel(errFromFn) }))
		}},
		"Stream to the end": {run: func(ctx context.Context, p place, opts fileproc.Options) error {
			return drain(stream(ctx, p.root, opts, succeed))
		}},
		"Stream cancelled by its reader": {want: context.Canceled, run: func(ctx context.Context, p place, opts fileproc.Options) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			// A result is delivered when its file is done, so the first result cannot wait for the 250th call.
			cancelled := make(chan struct{}) // after ctx.Done: the run's own context ends later
			end := sync.OnceFunc(func() { cancel(); close(cancelled) })
			var last error
			for _, err := range stream(ctx, p.root, opts, onNth(250, func() { <-cancelled })) {
				end()
				if err != nil {
					last = err
				}
			}
			return last
		}},
		"break at the first": {run: func(ctx context.Context, p place, opts fileproc.Options) error {
			for range stream(ctx, p.root, opts, succeed) {
				break
			}
			return nil
		}},
		"break in the middle": {run: func(ctx context.Context, p place, opts fileproc.Options) error {
			n := 0
			for range stream(ctx, p.root, opts, succeed) {
				if n++; n == 100 {
					break
				}
			}
			return nil
		}},
		"break at a failure": {run: func(ctx context.Context, p place, opts fileproc.Options) error {
			for _, err := range stream(ctx, p.root, opts, fail) {
				if err != nil {
					break
				}
			}
			return nil
		}},
		"a pull that stops": {run: func(ctx context.Context, p place, opts fileproc.Options) error {
			next, stop := iter.Pull2(stream(ctx, p.root, opts, succeed))
			next()
			next()
			stop()
			return nil
		}},
		"a panic in the loop over Stream": {run: func(ctx context.Context, p place, opts fileproc.Options) error {
			defer func() { _ = recover() }()
			for range stream(ctx, p.root, opts, succeed) {
				panic("in the loop")
			}
			return errors.New("the panic was lost")
		}},
		"Walk to the end": {run: func(ctx context.Context, p place, opts fileproc.Options) error {
			return drain(fileproc.Walk(ctx, p.root, opts))
		}},
		"Walk and break": {run: func(ctx context.Context, p place, opts fileproc.Options) error {
			n := 0
			for range fileproc.Walk(ctx, p.root, opts) {
				if n++; n == 30 {
					break
				}
			}
			return nil
		}},
		"a missing root": {want: fs.ErrNotExist, run: func(ctx context.Context, p place, opts fileproc.Options) error {
			p.root = filepath.ToSlash(filepath.Join(p.root, "missing"))
			return process(ctx, p, opts, succeed)
		}},
		"a root that is a file": {run: func(ctx context.Context, p place, opts fileproc.Options) error {
			p.root = filepath.ToSlash(filepath.Join(p.root, "dir0000", "file0000"))
			return process(ctx, p, opts, succeed)
		}},
	}
	for name, end := range ends {
		for _, p := range places(dir) {
			for _, workers := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s/%s/workers=%d", name, p.name, workers), func(t *testing.T) {
					watchdog(t)
					var report fileproc.Report
					opts := fileproc.Options{Workers: workers, FS: p.fsys, Report: &report}
					var err error
					leavesNothing(t, func() { err = end.run(t.Context(), p, opts) })
					require.ErrorIs(t, err, end.want)
					if end.want == nil {
						require.NoError(t, err)
					}
					requireBalanced(t, report)
				})
			}
		}
	}
}

//go:noinline
func explode() { panic("the caller's own mistake") }

func TestInvariant6PanicReachesTheCallerWithItsStack(t *testing.T) {
	dir := spread(t, 20, 15)
	for name, h := range culprits(explode) {
		t.Run(name, func(t *testing.T) {
			everyCall(t, dir, func(t *testing.T, call func(hooks) error) {
				if name == "fn of one file in the middle" {
					h.fn = onNth(100, explode)
				}
				var text string
				leavesNothing(t, func() {
					defer func() {
						if r := recover(); r != nil {
							if p, ok := r.(*fileproc.PanicError); !ok || p.Value != "the caller's own mistake" || !bytes.Contains(p.Stack, []byte("explode")) {
								t.Errorf("the panic is %T, of %v", r, r)
							}
							// If fn ran on this very goroutine, the current stack is the original.
							text = fmt.Sprintf("%v\n%s", r, debug.Stack())
						}
					}()
					_ = call(h)
				})
				require.Contains(t, text, "the caller's own mistake")
				require.Contains(t, text, "tests_test.explode", "the original stack")
			})
		})
	}
}

// A panic or Goexit of fn while the loop over Stream ends is not lost either.
func TestInvariant6MishapAfterABreak(t *testing.T) {
	dir := spread(t, 1, 2)
	for _, ordered := range []bool{false, true} {
		for name, mishap := range map[string]func(){"panic": explode, "Goexit": runtime.Goexit} {
			var caught any
			returned := false
			leavesNothing(t, func() {
				begun, left, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
				fn := func(f *fileproc.File) (int, error) {
					if f.Name() == "file0000" {
						<-begun
						return 0, nil
					}
					close(begun)
					<-left
					mishap()
					return 0, nil
				}
				go func() {
					defer close(done)
					defer func() { caught = recover() }()
					for range fileproc.Stream(t.Context(), dir, fileproc.Options{Workers: 2, Ordered: ordered}, fn) {
						close(left)
						break
					}
					returned = true
				}()
				<-done
			})
			require.False(t, returned, name)
			if name == "panic" {
				require.Contains(t, fmt.Sprint(caught), "tests_test.explode", "the original stack")
			}
		}
	}
}

func TestInvariant6PanicOfOneFileWorksInTheSmallestDirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "one"), []byte("1"), 0o644))
	everyCall(t, dir, func(t *testing.T, call func(hooks) error) {
		leavesNothing(t, func() {
			require.Panics(t, func() {
				_ = call(hooks{fn: func(*fileproc.File) (int, error) { panic("alone") }})
			})
		})
	})
}

func TestInvariant6GoexitDoesNotDeadlock(t *testing.T) {
	dir := spread(t, 20, 15)
	for name, h := range culprits(runtime.Goexit) {
		t.Run(name, func(t *testing.T) {
			everyCall(t, dir, func(t *testing.T, call func(hooks) error) {
				if name == "fn of one file in the middle" {
					h.fn = onNth(100, runtime.Goexit)
				}
				var returned bool
				var err error
				leavesNothing(t, func() {
					done := make(chan struct{})
					go func() {
						defer close(done)
						err = call(h)
						returned = true
					}()
					<-done
				})
				if returned {
					require.Error(t, err, "a run that fn ended looks complete")
				}
			})
		})
	}
}

func TestInvariant7NoFileSeesAnothersBytes(t *testing.T) {
	dir := t.TempDir()
	files := 400
	if testing.Short() {
		files = 100
	}
	// Sizes jump, so that a short file follows a long one through the same buffer.
	want := func(i int) []byte {
		size := []int{0, 1, 400, 70_000, 3, 4096, 512, 9_000}[i%8]
		return bytes.Repeat([]byte{byte(i), byte(i >> 8), 'x'}, size/3+1)[:size]
	}
	for i := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), want(i), 0o644))
	}
	for _, p := range places(dir) {
		for _, size := range []int{0, 5, 4096} {
			t.Run(fmt.Sprintf("%s/ReadSize=%d", p.name, size), func(t *testing.T) {
				watchdog(t)
				opts := fileproc.Options{Workers: 4, ReadSize: size, FS: p.fsys}
				names, err := fileproc.Process(t.Context(), p.root, opts, func(f *fileproc.File) (string, error) {
					var i int
					if _, err := fmt.Sscan(f.Name(), &i); err != nil {
						return "", err
					}
					content := want(i)
					if size > 0 && len(content) > size {
						content = content[:size]
					}
					data := f.Data()
					if !bytes.Equal(data, content) {
						return "", fmt.Errorf("%d bytes, not the %d of this file", len(data), len(content))
					}
					if len(data) != cap(data) {
						return "", fmt.Errorf("len %d, cap %d: append could reach another file's bytes", len(data), cap(data))
					}
					// Borrowed for reading, but a careless fn must not reach its neighbours.
					for j := range data {
						data[j] = 0xEE
					}
					_ = append(data, bytes.Repeat([]byte{0xEE}, 5000)...)
					return f.Name(), nil
				})
				require.NoError(t, err)
				require.Len(t, names, files)
				seen := map[string]bool{}
				for _, name := range names {
					require.False(t, seen[name], "%s twice", name)
					seen[name] = true
				}
			})
		}
	}
}

func TestInvariant8CancelIsSeenBetweenFiles(t *testing.T) {
	dir := spread(t, 10, 200)
	for _, p := range places(dir) {
		for _, workers := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s/workers=%d", p.name, workers), func(t *testing.T) {
				watchdog(t)
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					var calls, after atomic.Int64
					var report fileproc.Report
					opts := fileproc.Options{Workers: workers, FS: p.fsys, Report: &report}
					done, err := fileproc.Process(ctx, p.root, opts, func(*fileproc.File) (int, error) {
						if ctx.Err() != nil {
							after.Add(1)
							time.Sleep(time.Millisecond) // in fake time, which advances when the cancel has had all its effects
						}
						if calls.Add(1) == 20 {
							cancel(errFromFn)
						}
						return 1, nil
					})
					require.ErrorIs(t, err, errFromFn, "the cause of the cancel")
					require.Len(t, done, int(calls.Load()), "finished results are returned")
					require.EqualValues(t, calls.Load(), report.Processed)
					require.LessOrEqual(t, after.Load(), int64(workers), "calls begun after the cancel, of 1,980 remaining")
					requireBalanced(t, report)
				})
			})
		}
	}
}

// drip gives its files' content 64 KiB at a time and calls onRead before each read.
type drip struct {
	fs.FS
	onRead func()
}

type dripFile struct {
	fs.File
	onRead func()
}

func (d drip) Open(name string) (fs.File, error) {
	f, err := d.FS.Open(name)
	if _, lists := f.(fs.ReadDirFile); err != nil || lists {
		return f, err
	}
	return dripFile{f, d.onRead}, nil
}

func (f dripFile) Read(p []byte) (int, error) {
	f.onRead()
	return f.File.Read(p[:min(len(p), 64<<10)])
}

func TestInvariant8CancelIsSeenInsideALargeRead(t *testing.T) {
	fsys := fstest.MapFS{"large": {Data: make([]byte, 32<<20)}}
	for name, entry := range entryPoints {
		t.Run(name, func(t *testing.T) {
			watchdog(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var reads, after atomic.Int64
			opts := fileproc.Options{FS: drip{fsys, func() {
				if ctx.Err() != nil {
					after.Add(1)
				}
				if reads.Add(1) == 5 {
					cancel(errFromFn)
				}
			}}}
			var called atomic.Bool
			err := entry(ctx, ".", opts, func(*fileproc.File) (int, error) {
				called.Store(true)
				return 0, nil
			})
			require.ErrorIs(t, err, errFromFn)
			require.False(t, called.Load(), "fn got half a file")
			require.LessOrEqual(t, after.Load(), int64(2), "reads after the cancel")
		})
	}
}

// meeting blocks each caller until enough callers have arrived. It does not measure time.
type meeting struct {
	mu     sync.Mutex
	inside int
	needed int
	full   chan struct{}
}

func newMeeting(needed int) *meeting { return &meeting{needed: needed, full: make(chan struct{})} }

func (m *meeting) attend(ctx context.Context) error {
	m.mu.Lock()
	if m.inside++; m.inside == m.needed {
		close(m.full)
	}
	m.mu.Unlock()
	select {
	case <-m.full:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestInvariant10SlowWorkSpreads(t *testing.T) {
	cases := []struct{ dirs, files, workers, together int }{
		{1, 100, 32, 32},
		{1, 2, 2, 2},
		{2, 1, 2, 2},
		{40, 1, 32, 32},
		{1, 129, 64, 64},
		{1, 1000, 64, 64},
	}
	for _, c := range cases {
		dir := spread(t, c.dirs, c.files)
		for _, p := range places(dir) {
			for name, entry := range entryPoints {
				t.Run(fmt.Sprintf("%d dirs of %d files, %d workers/%s/%s", c.dirs, c.files, c.workers, p.name, name), func(t *testing.T) {
					ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errors.New("they never met"))
					defer cancel()
					m := newMeeting(c.together)
					var calls atomic.Int64
					opts := fileproc.Options{Workers: c.workers, FS: p.fsys}
					err := entry(ctx, p.root, opts, func(f *fileproc.File) (int, error) {
						if w := f.Worker(); w < 0 || w >= c.workers {
							return 0, fmt.Errorf("worker %d of %d", w, c.workers)
						}
						calls.Add(1)
						return 1, m.attend(ctx)
					})
					m.mu.Lock()
					defer m.mu.Unlock()
					require.NoError(t, err, "%d of %d calls ran at once", m.inside, m.needed)
					require.EqualValues(t, c.dirs*c.files, calls.Load())
				})
			}
		}
	}
}
