package fileproc_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/plumbing"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var core = plumbing.Of[fileproc.Options, *fileproc.File, fileproc.Stat]()

// asking returns opts with plumbing.Hooks.Unchanged.
func asking(opts fileproc.Options, unchanged func(*fileproc.File) bool) fileproc.Options {
	core.Hooks(&opts).Unchanged = unchanged
	return opts
}

// TestUnchanged: a file for which Hooks.Unchanged returns true is not opened, and fn gets it on the same worker number;
// every other file comes once, with its content and the metadata from before it was read. The trees are large enough
// for metadata and content to be read ahead, and for files to be read after the others of their batch.
func TestUnchanged(t *testing.T) {
	for name, list := range map[string][]string{
		"few":      {"a=1", "b=22", "d/c=333", "d/d="},
		"flat":     testtree.Numbered("", 700),
		"twenties": slices.Concat(testtree.Numbered("a/", 20), testtree.Numbered("b/", 20), testtree.Numbered("c/", 20), testtree.Numbered("d/", 20)),
		"nested":   append(testtree.Numbered("d/e/", 150), append(testtree.Numbered("f/", 300), "x=y")...),
	} {
		_, all := rooted(t, list...)
		t.Run(name, func(t *testing.T) {
			everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
				for _, share := range []int{0, 2, 7, 1} { // of so many files, one is unchanged; 0: none
					var asked, told atomic.Int64
					var last [64]string // by worker
					opts := asking(fileproc.Options{Workers: workers}, func(f *fileproc.File) bool {
						asked.Add(1)
						s, err := f.Stat()
						assert.NoError(t, err)
						assert.Nil(t, f.Data())
						old := share > 0 && (int(s.Size)+len(f.Name()))%share == 0
						if old {
							last[f.Worker()] = f.Rel()
						}
						return old
					})
					got, errs, report := entry(t, t.Context(), p, opts, func(f *fileproc.File) (string, error) {
						s, err := f.Stat()
						if err != nil {
							return "", err
						}
						again, err := core.Restat(f)
						if err != nil {
							return "", err
						}
						if s.BirthTime.IsZero() { // with the handle
							again.BirthTime = s.BirthTime
						}
						if s != again {
							return "", fmt.Errorf("%s is %+v, and then %+v", f.Rel(), s, again)
						}
						if last[f.Worker()] == f.Rel() {
							told.Add(1)
							if f.Data() != nil {
								return "", fmt.Errorf("%s is unchanged, and has been read", f.Rel())
							}
							return filepath.ToSlash(f.Rel()), nil
						}
						if f.Data() == nil || int(s.Size) != len(f.Data()) {
							return "", fmt.Errorf("worker %d had %q: %d bytes of %d", f.Worker(), last[f.Worker()], len(f.Data()), s.Size)
						}
						return filepath.ToSlash(f.Rel()), nil
					})
					require.Empty(t, errs)
					var want []string
					for _, spec := range list {
						rel, _, _ := strings.Cut(spec, "=")
						want = append(want, rel)
					}
					require.ElementsMatch(t, want, got)
					requireBalanced(t, report)
					require.EqualValues(t, len(want), asked.Load())
					require.Equal(t, told.Load(), report.Unchanged)
					require.Equal(t, int64(len(want)), report.Unchanged+report.Processed)
				}
			})
		})
	}
}

// TestRestat: Restat sees what has changed since Stat.
func TestRestat(t *testing.T) {
	_, all := rooted(t, append(testtree.Numbered("", 100), "d/a=1")...)
	everyEntry(t, all[:1], func(t *testing.T, p place, entry entryPoint, workers int) {
		opts := asking(fileproc.Options{Workers: workers}, func(*fileproc.File) bool { return false })
		got, errs, _ := entry(t, t.Context(), p, opts, func(f *fileproc.File) (string, error) {
			before, err := f.Stat()
			if err != nil {
				return "", err
			}
			old := before.ModTime.Add(-time.Hour).Truncate(time.Second) // js sets whole seconds
			if err := os.Chtimes(f.Path(), old, old); err != nil {
				return "", err
			}
			after, err := core.Restat(f)
			if err == nil && (!after.ModTime.Equal(old) || after.Size != before.Size) {
				err = fmt.Errorf("%+v, and then %+v", before, after)
			}
			if again, _ := f.Stat(); again != before {
				err = fmt.Errorf("Stat is %+v, and then %+v", before, again)
			}
			return f.Name(), err
		})
		require.Empty(t, errs)
		require.Len(t, got, 101)
	})
}

// TestUnchangedOutcomes: ErrSkip counts as unchanged too, an error as a failure.
func TestUnchangedOutcomes(t *testing.T) {
	_, all := rooted(t, "skip=1", "fail=2", "ok=3", "content=4")
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		opts := asking(fileproc.Options{Workers: workers}, func(f *fileproc.File) bool { return f.Name() != "content" })
		got, errs, report := entry(t, t.Context(), p, opts, func(f *fileproc.File) (string, error) {
			switch f.Name() {
			case "skip":
				return "", fileproc.ErrSkip
			case "fail":
				return "", errFromFn
			case "content":
				if string(f.Data()) != "4" {
					return "", errFromFn
				}
				core.SetUnchanged(f)
			}
			return f.Name(), nil
		})
		require.Len(t, errs, 1)
		require.ErrorIs(t, errs[0], errFromFn)
		require.ElementsMatch(t, []string{"ok", "content"}, got)
		require.EqualValues(t, 3, report.Unchanged)
		require.EqualValues(t, 1, report.Failed)
		require.Zero(t, report.Processed)
		require.Empty(t, report.Skipped)
		require.Contains(t, report.String(), "0 files processed, 3 unchanged,")
	})
}

// TestUnchangedVanishes: a file that is gone, or no longer a regular file, when Unchanged is to be asked is a failure,
// and Unchanged does not get it.
func TestUnchangedVanishes(t *testing.T) {
	dir := t.TempDir()
	require.True(t, testtree.Make(t, dir, "a=1", "b=2"))
	opts := asking(fileproc.Options{
		Workers: 1, Report: new(fileproc.Report),
		Select: func(f *fileproc.File) bool {
			if f.Name() == "b" {
				assert.NoError(t, os.Remove(f.Path()))
			}
			return true
		},
	}, func(f *fileproc.File) bool {
		assert.Equal(t, "a", f.Name())
		return true
	})
	got, err := fileproc.Process(t.Context(), dir, opts, nameOf)
	require.ErrorIs(t, err, fileproc.ErrChanged)
	require.Equal(t, []string{"a"}, got)
	require.EqualValues(t, 1, opts.Report.Unchanged)
}

// TestUnchangedIsNotRegular: what is no regular file reaches neither Unchanged nor fn, whether Files names it or it has replaced
// a file since the listing, and whether files are read or not. Files that are not read have their metadata fetched once.
func TestUnchangedIsNotRegular(t *testing.T) {
	list := testtree.Numbered("", 100)
	irregular := []string{"000050.md/", "000051.md -> 000001.md", "000052.md -> missing", "000053.md|"}
	opts := fileproc.Options{}
	for _, opts.ReadSize = range []int{fileproc.NoRead, 0} {
		for _, opts.Stat = range []bool{false, true} {
			for _, opts.Ordered = range []bool{false, true} {
				for _, named := range []bool{false, true} {
					t.Run(fmt.Sprintf("ReadSize=%d/stat=%t/ordered=%t/named=%t", opts.ReadSize, opts.Stat, opts.Ordered, named), func(t *testing.T) {
						everyEntry(t, []place{{}}, func(t *testing.T, _ place, entry entryPoint, workers int) {
							for _, unchanged := range []bool{false, true} {
								dir, all := rooted(t, list...)
								gone := 0
								replace := func() {
									for _, spec := range irregular {
										assert.NoError(t, os.Remove(filepath.Join(dir, spec[:len("000000.md")])))
										testtree.Make(t, dir, spec) // if not, it is missing
										gone++
									}
								}
								var stats sync.Map
								isRegular := func(f *fileproc.File) (string, error) {
									s, err := f.Stat()
									first, known := stats.LoadOrStore(f.Name(), s)
									if err == nil && (!s.Mode.IsRegular() || known && opts.ReadSize == fileproc.NoRead && first != s) {
										err = errFromFn
									}
									return f.Name(), err
								}
								opts, once := opts, sync.Once{}
								opts.Workers = workers
								core.Hooks(&opts).Unchanged = func(f *fileproc.File) bool {
									_, err := isRegular(f)
									assert.NoError(t, err, f.Name())
									return unchanged
								}
								if named {
									replace()
									opts.Files = func(yield func(string) bool) {
										for _, spec := range list {
											if !yield(spec[:len("000000.md")]) {
												return
											}
										}
									}
								} else {
									opts.Select = func(*fileproc.File) bool { once.Do(replace); return true }
								}
								got, errs, report := entry(t, t.Context(), all[0], opts, isRegular)
								require.Len(t, got, len(list)-gone)
								for _, err := range errs {
									require.NotErrorIs(t, err, errFromFn)
									require.Equal(t, !named, errors.Is(err, fileproc.ErrChanged), err)
								}
								require.EqualValues(t, gone, report.Failed)
								require.EqualValues(t, len(list), report.Found)
							}
						})
					})
				}
			}
		}
	}
}

// TestOnSkip: OnSkip gets what Report counts as skipped, once each and one at a time with OnError, also what fn declines. The
// pairwise test has the other reasons.
func TestOnSkip(t *testing.T) {
	list := []string{"a=text", "b=\x00", "d/c=text\x00", "d/declined=", "fails="}
	for i := range 100 { // of which most are read ahead
		list = append(list, fmt.Sprintf("e/%d=\x00", i))
	}
	_, all := rooted(t, list...)
	everyEntry(t, all, func(t *testing.T, p place, entry entryPoint, workers int) {
		skipped := map[string]fileproc.SkipReason{}
		hooked := make(chan string, len(list))
		inside := 0 // without a lock, as skipped: the race detector sees calls that overlap
		opts := fileproc.Options{Workers: workers, SkipBinary: true, OnError: func(error) error { inside++; return nil }}
		opts.OnSkip = func(e fileproc.Entry, why fileproc.SkipReason) {
			inside++
			rel := filepath.ToSlash(e.Rel())
			assert.Empty(t, skipped[rel])
			assert.Equal(t, p.path(rel), e.Path())
			skipped[rel] = why
		}
		core.Hooks(&opts).OnBinary = func(f *fileproc.File) {
			assert.Nil(t, f.Data())
			hooked <- filepath.ToSlash(f.Rel())
		}
		got, errs, report := entry(t, t.Context(), p, opts, func(f *fileproc.File) (string, error) {
			switch f.Name() {
			case "declined":
				return "", fileproc.ErrSkip
			case "fails":
				return "", errFromFn
			}
			return f.Name(), nil
		})
		require.Empty(t, errs)
		require.Equal(t, []string{"a"}, got)
		count := map[fileproc.SkipReason]int64{}
		for _, why := range skipped {
			count[why]++
		}
		require.Equal(t, map[fileproc.SkipReason]int64{fileproc.SkippedBinary: 102, fileproc.SkippedByFunc: 1}, count)
		require.Equal(t, count, report.Skipped)
		require.Equal(t, fileproc.SkippedByFunc, skipped["d/declined"])
		require.Equal(t, 104, inside)
		require.Len(t, hooked, 102)
	})
}

// TestUnchangedFS: an fs.FS that has no metadata worth asking for is read.
func TestUnchangedFS(t *testing.T) {
	files := fstest.MapFS{"a": {Data: []byte("x")}}
	got, err := fileproc.Process(t.Context(), ".", asking(fileproc.Options{FS: files}, func(f *fileproc.File) bool {
		s, err := f.Stat()
		assert.NoError(t, err)
		return s.ModTime.IsZero() && s.Size == 1
	}), nameOf)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, got)
}
