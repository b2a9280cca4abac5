//go:build linux

package fileproc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// An early end is a way in which a run ends in the middle, at a call of fn.
type earlyEnd struct {
	name string
	// run ends at the call of fn for which at is true, and checks each file by fn.
	run func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool)
}

var errEnough = errors.New("enough")

func process(ctx context.Context, root string, opts fileproc.Options, fn func(*fileproc.File) error) error {
	_, err := fileproc.Process(ctx, root, opts, func(f *fileproc.File) (struct{}, error) { return struct{}{}, fn(f) })
	return err
}

func earlyEnds() []earlyEnd {
	ends := []earlyEnd{
		{"cancel", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			process(ctx, root, opts, func(f *fileproc.File) error {
				if at() {
					cancel()
				}
				return check(f)
			})
		}},
		{"cancel from outside", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ready := make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				<-ready
				cancel()
			}()
			process(ctx, root, opts, func(f *fileproc.File) error {
				if at() {
					close(ready)
				}
				return check(f)
			})
			if ctx.Err() == nil {
				select {
				case <-ready:
				default:
					close(ready)
				}
			}
			<-ended
		}},
		{"panic", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			defer func() { _ = recover() }()
			process(context.Background(), root, opts, func(f *fileproc.File) error {
				err := check(f)
				if at() {
					panic("in the middle")
				}
				return err
			})
		}},
		{"Goexit", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				process(context.Background(), root, opts, func(f *fileproc.File) error {
					err := check(f)
					if at() {
						runtime.Goexit()
					}
					return err
				})
			}()
			<-ended
		}},
		{"SkipAll", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			process(context.Background(), root, opts, func(f *fileproc.File) error {
				err := check(f)
				if at() {
					return fs.SkipAll
				}
				return err
			})
		}},
		{"OnError", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			opts.OnError = func(err error) error { return err }
			process(context.Background(), root, opts, func(f *fileproc.File) error {
				err := check(f)
				if at() {
					return errEnough
				}
				return err
			})
		}},
		{"panic in OnError", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			defer func() { _ = recover() }()
			opts.OnError = func(err error) error { panic(err) }
			process(context.Background(), root, opts, func(f *fileproc.File) error {
				err := check(f)
				if at() {
					return errEnough
				}
				return err
			})
		}},
	}
	return append(ends,
		earlyEnd{"a pull that stops", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			next, stop := iter.Pull2(fileproc.Stream(context.Background(), root, opts, func(f *fileproc.File) (error, error) { return check(f), nil }))
			defer stop()
			for more := true; more && !at(); {
				_, _, more = next()
			}
		}},
		earlyEnd{"break", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			for range fileproc.Stream(context.Background(), root, opts, func(f *fileproc.File) (error, error) { return check(f), nil }) {
				if at() {
					break
				}
			}
		}},
		earlyEnd{"panic in the loop", func(root string, opts fileproc.Options, check func(*fileproc.File) error, at func() bool) {
			defer func() { _ = recover() }()
			for range fileproc.Stream(context.Background(), root, opts, func(f *fileproc.File) (error, error) { return check(f), nil }) {
				if at() {
					panic("in the loop")
				}
			}
		}},
	)
}

// requireClosed requires that nothing keeps the files open, not even a ring that no longer has a descriptor.
func requireClosed(t *testing.T, root string, rels []string) {
	t.Helper()
	for _, rel := range rels {
		f, err := os.OpenFile(filepath.Join(root, rel), os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK) // granted if the file is not open elsewhere
		f.Close()
		if err == unix.EINVAL {
			t.Log("left out: no leases on this file system")
			return
		}
		require.NoError(t, err, "%s is still open", rel)
	}
}

// memoryInUse does not count memory that is only reserved: threads, whose number varies, reserve much.
func memoryInUse(t *testing.T) (kib int) {
	debug.FreeOSMemory() // what is left is in use
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(status), "RssAnon:")
	_, err = fmt.Sscan(after, &kib)
	require.NoError(t, err)
	return kib
}

func TestInvariant6NothingIsLeftAfterThousandsOfEarlyEnds(t *testing.T) {
	root, rels := plantMany(t, 2, 600)
	rounds := 250
	switch {
	case testing.Short():
		rounds = 20
	case raceDetector || wantsRings(root) != "":
		rounds = 60 // the others are for the memory of rings, which is measured below
	}
	for i, end := range earlyEnds() {
		t.Run(end.name, func(t *testing.T) {
			watchdog(t)
			random := rand.New(rand.NewSource(int64(i)))
			var memory int
			for round := range rounds {
				if round == 10 {
					memory = memoryInUse(t)
				}
				var wrong atomic.Pointer[error]
				var calls atomic.Int64
				last := 1 + random.Int63n(int64(len(rels)))
				var report fileproc.Report
				opts := fileproc.Options{Workers: 1 + random.Intn(3), ReadSize: []int{0, 0, 1000}[round%3], Report: &report}
				leavesNoRing(t, func() {
					end.run(root, opts, func(f *fileproc.File) error {
						if err := exact(f, opts.ReadSize); err != nil {
							err = fmt.Errorf("%s: %w", f.Rel(), err)
							wrong.Store(&err)
						}
						return nil
					}, func() bool { return calls.Add(1) == last })
				})
				if err := wrong.Load(); err != nil {
					t.Fatal(*err)
				}
				requireBalanced(t, report)
				if round%50 == 0 {
					requireClosed(t, root, rels)
				}
			}
			// A ring's buffers are 1 MiB, and most of the 250 rounds fill a part of one or more.
			if raceDetector {
				t.Log("left out: the race detector's own memory is in use too")
				return
			}
			require.Less(t, memoryInUse(t)-memory, 32<<10, "KiB more")
		})
	}
}
