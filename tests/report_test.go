package fileproc_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProgress(t *testing.T) {
	dir := spread(t, 20, 50)
	for _, entry := range []string{"Process", "Stream"} {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ordered=%v", entry, ordered), func(t *testing.T) {
				watchdog(t)
				var final fileproc.Report
				var reports []fileproc.Report
				var inside atomic.Int64
				enough := make(chan struct{})
				opts := fileproc.Options{Workers: 4, Ordered: ordered, Report: &final, Suffixes: []string{"1", "2", "3"}, OnProgress: func(r fileproc.Report) {
					if inside.Add(1) != 1 {
						t.Error("two calls at a time")
					}
					defer inside.Add(-1)
					if reports = append(reports, r); len(reports) == 3 {
						close(enough)
					}
				}}
				require.NoError(t, entryPoints[entry](t.Context(), dir, opts, func(*fileproc.File) (int, error) {
					select {
					case <-enough:
					case <-time.After(5 * time.Millisecond):
					}
					return 0, nil
				}))
				n := len(reports)
				require.GreaterOrEqual(t, n, 2, "300 files of 5 ms on 4 workers")
				require.Equal(t, final, reports[n-1])
				require.EqualValues(t, 300, final.Processed)
				require.GreaterOrEqual(t, final.Elapsed, 5*time.Millisecond)
				requireBalanced(t, final)
				require.True(t, final.Listed)
				for i := range n - 1 {
					requireNoLess(t, reports[i], reports[i+1])
					require.False(t, reports[i].Listed && reports[i].Found < final.Found)
				}
				time.Sleep(150 * time.Millisecond)
				require.Len(t, reports, n, "called after the return")
			})
		}
	}
}

func requireNoLess(t *testing.T, a, b fileproc.Report) {
	t.Helper()
	require.LessOrEqual(t, a.Found, b.Found)
	require.LessOrEqual(t, a.Processed, b.Processed)
	require.LessOrEqual(t, a.Directories, b.Directories)
	require.LessOrEqual(t, a.Failed, b.Failed)
	require.LessOrEqual(t, a.Bytes, b.Bytes)
	require.LessOrEqual(t, a.Elapsed, b.Elapsed)
	for why, n := range a.Skipped {
		require.LessOrEqual(t, n, b.Skipped[why])
	}
}

// TestProgressIsFinal: however a run ends, the last call gets its Report. Invalid input starts no run.
func TestProgressIsFinal(t *testing.T) {
	dir := spread(t, 3, 5)
	for name, tc := range map[string]struct {
		root  string
		opts  fileproc.Options
		fn    func(*fileproc.File) (int, error)
		calls bool
	}{
		"nothing to do":  {t.TempDir(), fileproc.Options{}, succeed, true},
		"all":            {dir, fileproc.Options{}, succeed, true},
		"SkipAll":        {dir, fileproc.Options{}, func(*fileproc.File) (int, error) { return 0, fs.SkipAll }, true},
		"stopped":        {dir, fileproc.Options{OnError: func(err error) error { return err }}, fail, true},
		"no root":        {filepath.Join(dir, "none"), fileproc.Options{}, succeed, true},
		"no ignore file": {dir, fileproc.Options{IgnoreFiles: []string{"dir0000/"}}, succeed, true},
		"bad input":      {dir, fileproc.Options{MaxDepth: -1}, succeed, false},
		"bad pattern":    {dir, fileproc.Options{Include: []string{"["}}, succeed, false},
	} {
		for entry, call := range entryPoints {
			for _, ordered := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%v", name, entry, ordered), func(t *testing.T) {
					var final, last fileproc.Report
					calls := 0
					tc.opts.Report, tc.opts.Ordered = &final, ordered
					tc.opts.OnProgress = func(r fileproc.Report) { calls++; last = r }
					leavesNothing(t, func() { _ = call(t.Context(), tc.root, tc.opts, tc.fn) })
					require.Equal(t, tc.calls, calls > 0)
					require.Equal(t, final, last)
					requireBalanced(t, final)
				})
			}
		}
	}
}

// TestListed: once all is listed, OnProgress says so, while the last file is processed. While names may come, it does not.
func TestListed(t *testing.T) {
	dir := spread(t, 5, 3)
	testtree.Make(t, dir, "a=", "link -> .")
	follows := fileproc.SymlinksFollow
	for name, opts := range map[string]fileproc.Options{"": {}, "Files": {Files: slices.Values([]string{"a", "dir0000/", "dir0001/", "dir0001/file0001"})}, "SymlinksFollow": {Symlinks: follows}} {
		for _, entry := range []string{"Process", "Stream"} {
			for _, opts.Ordered = range []bool{false, true} {
				if opts.Symlinks == follows && opts.Ordered && entry == "Stream" {
					continue
				}
				t.Run(fmt.Sprint(name, entry, opts.Ordered), func(t *testing.T) {
					watchdog(t)
					var all, final fileproc.Report
					opts := opts
					opts.Report, opts.Workers = &all, 2 // one more than waits in fn
					nothing := func(*fileproc.File) (int, error) { return 0, nil }
					require.NoError(t, entryPoints[entry](t.Context(), dir, opts, nothing))
					require.True(t, all.Listed)

					told, listed := make(chan struct{}), make(chan struct{})
					if names := opts.Files; names != nil {
						opts.Files = func(yield func(string) bool) {
							names(yield)
							<-told
						}
					}
					tell, end := sync.OnceFunc(func() { close(told) }), sync.OnceFunc(func() { close(listed) })
					opts.Report, opts.OnProgress = &final, func(r fileproc.Report) {
						if r.Found == all.Found && !r.Listed {
							tell()
						}
						if r.Listed {
							assert.Equal(t, all.Found, r.Found)
						}
						if r.Listed {
							end()
						}
					}
					if opts.Symlinks == follows {
						end()
					}
					var calls atomic.Int64
					require.NoError(t, entryPoints[entry](t.Context(), dir, opts, func(*fileproc.File) (int, error) {
						if calls.Add(1) == all.Processed {
							<-listed
						}
						return 0, nil
					}))
					require.True(t, final.Listed)
				})
			}
		}
	}
	var report fileproc.Report
	err := fileproc.ForEach(t.Context(), dir, fileproc.Options{Workers: 1, Report: &report}, func(*fileproc.File) error { return fs.SkipAll })
	require.NoError(t, err)
	require.False(t, report.Listed)
}

// TestProgressOfOneFile: OnProgress sees what File.Reader gives while the callback reads it, and the final Report counts it once.
func TestProgressOfOneFile(t *testing.T) {
	watchdog(t)
	dir := t.TempDir()
	const size, half = 1 << 20, 1 << 19
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), make([]byte, size), 0o666))
	for _, readSize := range []int{1000, fileproc.NoRead} {
		seen, calls := make(chan bool), 0
		var read atomic.Bool
		var final fileproc.Report
		opts := fileproc.Options{ReadSize: readSize, Report: &final, OnProgress: func(r fileproc.Report) {
			require.LessOrEqual(t, r.Bytes, int64(size))
			if read.Load() && r.Processed == 0 {
				if calls++; calls == 3 {
					assert.GreaterOrEqual(t, r.Bytes, int64(half-1000)) // those of Data count when the callback has returned
					close(seen)
				}
			}
		}}
		err := fileproc.ForEach(t.Context(), dir, opts, func(f *fileproc.File) error {
			in := f.Reader()
			_, err := io.CopyN(io.Discard, in, half)
			require.NoError(t, err)
			read.Store(true)
			<-seen
			_, err = io.Copy(io.Discard, in)
			return err
		})
		require.NoError(t, err)
		require.EqualValues(t, size, final.Bytes)
	}
}

// TestGoroutinesOfCallbacks: on which goroutine OnError and OnProgress run.
func TestGoroutinesOfCallbacks(t *testing.T) {
	dir := spread(t, 20, 15)
	goroutine := func() string {
		var stack [64]byte
		return strings.Fields(string(stack[:runtime.Stack(stack[:], false)]))[1]
	}
	for entry, call := range entryPoints {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ordered=%v", entry, ordered), func(t *testing.T) {
				watchdog(t)
				var onFn, onError sync.Map
				var onProgress []string
				err := call(t.Context(), dir, fileproc.Options{
					Workers: 4,
					Ordered: ordered,
					OnError: func(err error) error {
						_, metByFn := onFn.Load(goroutine() + err.(*fileproc.Failure).Path)
						require.True(t, metByFn, "OnError runs on another goroutine than the failure's")
						onError.Store(goroutine(), true)
						return nil
					},
					OnProgress: func(fileproc.Report) { onProgress = append(onProgress, goroutine()) },
				}, func(f *fileproc.File) (int, error) {
					onFn.Store(goroutine()+f.Path(), true)
					time.Sleep(3 * time.Millisecond)
					return 0, errors.New("fails")
				})
				require.NoError(t, err)
				caller := goroutine()
				_, failedHere := onError.Load(caller)
				last := len(onProgress) - 1
				require.NotContains(t, onProgress[:last], caller)
				if entry != "Stream" {
					require.True(t, failedHere, "the caller is a worker")
					require.Equal(t, caller, onProgress[last])
				} else {
					require.False(t, failedHere, "the loop's goroutine is no worker")
					require.NotEqual(t, caller, onProgress[last])
				}
			})
		}
	}
}

// TestProgressMishaps: a panic in OnProgress, and a Goexit, reach the caller.
func TestProgressMishaps(t *testing.T) {
	dir := spread(t, 20, 15)
	for name, stop := range map[string]func(){"panic": func() { panic("told too much") }, "Goexit": runtime.Goexit} {
		for entry, call := range entryPoints {
			for _, final := range []bool{false, true} {
				for _, ordered := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/final=%v/%v", name, entry, final, ordered), func(t *testing.T) {
						watchdog(t)
						var caught any
						returned := false
						var once sync.Once
						told := make(chan struct{})
						opts := fileproc.Options{Workers: 4, Ordered: ordered, OnProgress: func(fileproc.Report) {
							once.Do(func() { defer close(told); stop() })
						}}
						leavesNothing(t, func() {
							done := make(chan struct{})
							go func() {
								defer close(done)
								defer func() { caught = recover() }()
								_ = call(t.Context(), dir, opts, func(*fileproc.File) (int, error) {
									if !final {
										<-told
									}
									return 0, nil
								})
								returned = true
							}()
							<-done
						})
						require.False(t, returned)
						if name == "panic" {
							require.ErrorContains(t, asError(caught), "told too much")
						}
					})
				}
			}
		}
	}
}

func asError(v any) error {
	if err, ok := v.(error); ok {
		return err
	}
	return fmt.Errorf("%v", v)
}

// TestReportAdd: every number is added, and neither the other Report nor a copy of the sum changes.
func TestReportAdd(t *testing.T) {
	numbered := func(skipped map[fileproc.SkipReason]int64) fileproc.Report {
		r := fileproc.Report{Skipped: skipped}
		v := reflect.ValueOf(&r).Elem()
		for i := range v.NumField() {
			if v.Field(i).CanInt() {
				v.Field(i).SetInt(1 << i)
			}
		}
		return r
	}
	var sum fileproc.Report
	one := numbered(map[fileproc.SkipReason]int64{"a": 1, "b": 2})
	sum.Add(one)
	require.Equal(t, one, sum)
	kept := sum
	sum.Add(numbered(map[fileproc.SkipReason]int64{"b": 3}))
	require.Equal(t, one, numbered(map[fileproc.SkipReason]int64{"a": 1, "b": 2}))
	require.Equal(t, one, kept)
	sum.Add(fileproc.Report{})
	require.Equal(t, map[fileproc.SkipReason]int64{"a": 1, "b": 5}, sum.Skipped)
	v := reflect.ValueOf(sum)
	for i := range v.NumField() {
		if v.Field(i).CanInt() {
			require.EqualValues(t, 2<<i, v.Field(i).Int(), "%s", v.Type().Field(i).Name)
		}
	}
}

func TestReportString(t *testing.T) {
	for want, r := range map[string]fileproc.Report{
		"0 files processed, 0 B read, 0 directories, in 0s":                                        {},
		"3 files processed, 999 B read, 2 directories, in 1.5ms":                                   {Processed: 3, Bytes: 999, Directories: 2, Elapsed: 1500 * time.Microsecond},
		"1 file processed, 1.0 kB read, 1 directory, in 12ms":                                      {Processed: 1, Bytes: 1000, Directories: 1, Elapsed: 12_345 * time.Microsecond},
		"1 file processed, 1.0 MB read, 1 directory, in 1m0.001s":                                  {Processed: 1, Bytes: 999_950, Directories: 1, Elapsed: time.Minute + time.Millisecond},
		"3 files delivered, 1 of them processed, 9 B read, 1 directory, 2 skipped (func 2), in 0s": {Processed: 1, Bytes: 9, Directories: 1, Skipped: map[fileproc.SkipReason]int64{fileproc.SkippedByFunc: 2}},
		"0 files processed, 9.2 EB read, 0 directories, 1 failed, in 0s":                           {Bytes: 1<<63 - 1, Failed: 1},
		"0 files processed, 0 B read, 0 directories, 5 skipped (binary 2, suffix 3), 1 failed, 4 abandoned, in 0s": {
			Skipped: map[fileproc.SkipReason]int64{fileproc.SkippedSuffix: 3, fileproc.SkippedBinary: 2}, Failed: 1, Abandoned: 4},
	} {
		require.Equal(t, want, r.String())
	}
}
