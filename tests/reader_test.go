package fileproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestReader reads files of many sizes in every way, behind what each option has read of them.
func TestReader(t *testing.T) {
	sizes := []int{0, 1, 9, 511, 512, 513, 4095, 8191, 8192, 8193, 32 << 10, 100_000, 300_000, 1<<20 + 7}
	list := []string{"d/e/", "empty="}
	total := int64(0)
	for i, size := range sizes {
		list = append(list, fmt.Sprintf("d%d/f%d=%s", i%3, size, testtree.Content(size)))
		total += int64(size)
	}
	dir, all := rooted(t, list...)
	tree := take(t, dir)
	readers := map[string]func(io.Reader) ([]byte, error){
		"ReadAll": io.ReadAll,
		"Copy": func(r io.Reader) ([]byte, error) {
			var b bytes.Buffer
			n, err := io.Copy(struct{ io.Writer }{&b}, r)
			if err == nil && n != int64(b.Len()) {
				err = fmt.Errorf("Copy gave %d bytes and says %d", b.Len(), n)
			}
			return b.Bytes(), err
		},
		"half": func(r io.Reader) ([]byte, error) { return io.ReadAll(iotest.HalfReader(r)) },
		"another goroutine": func(r io.Reader) ([]byte, error) {
			to, from := io.Pipe()
			go func() {
				_, err := io.Copy(from, r)
				from.CloseWithError(err)
			}()
			return io.ReadAll(to)
		},
	}
	for i, p := range all {
		for j, size := range []int{0, 1, 512, 8192, 10_000, 1 << 20, fileproc.NoRead} {
			for k, opts := range []fileproc.Options{{}, {Stat: true}, {SkipBinary: size != fileproc.NoRead}, {DisableURing: true}} {
				for l, name := range slices.Sorted(maps.Keys(readers)) {
					if !testtree.Takes(i + j + k + l) {
						continue
					}
					readAll := readers[name]
					var report fileproc.Report
					opts.ReadSize, opts.FS, opts.Report, opts.MaxFileSize = size, p.fsys, &report, 2<<20
					leavesNothing(t, func() {
						got, err := fileproc.Process(t.Context(), p.root, opts, func(f *fileproc.File) (string, error) {
							got, err := readAll(f.Reader())
							if want := tree.files[filepath.ToSlash(f.Rel())]; err == nil && !bytes.Equal(got, want) {
								err = fmt.Errorf("%d bytes, want %d", len(got), len(want))
							}
							return f.Name(), err
						})
						require.NoError(t, err, "%s, %s, %+v", p.name, name, opts)
						require.Len(t, got, len(sizes)+1)
					})
					require.Equal(t, total, report.Bytes, "Report.Bytes, %s, %s, %+v", p.name, name, opts)
				}
			}
		}
	}
}

// TestReaderIsWithoutALimit: MaxFileSize is about files that are read whole.
func TestReaderIsWithoutALimit(t *testing.T) {
	_, all := rooted(t, "f="+testtree.Content(100_000))
	for _, p := range all {
		opts := fileproc.Options{ReadSize: 10, MaxFileSize: 20, FS: p.fsys}
		require.NoError(t, fileproc.ForEach(t.Context(), p.root, opts, func(f *fileproc.File) error {
			n, err := io.Copy(io.Discard, f.Reader())
			require.EqualValues(t, 100_000, n)
			return err
		}))
	}
}

// TestReaderBeginsAnew: each call reads from the beginning, and only the last reader is of use.
func TestReaderBeginsAnew(t *testing.T) {
	want := testtree.Content(100_000)
	_, all := rooted(t, "f="+want)
	for _, p := range all {
		for _, size := range []int{0, 10, fileproc.NoRead} {
			opts := fileproc.Options{ReadSize: size, FS: p.fsys}
			require.NoError(t, fileproc.ForEach(t.Context(), p.root, opts, func(f *fileproc.File) error {
				first := f.Reader()
				_, err := io.ReadFull(first, make([]byte, 50_000))
				require.NoError(t, err)
				second := f.Reader()
				_, err = first.Read(make([]byte, 1))
				require.ErrorIs(t, err, fs.ErrClosed)
				got, err := io.ReadAll(second)
				require.Equal(t, want, string(got))
				n, again := second.Read(make([]byte, 1))
				require.Zero(t, n)
				require.Equal(t, io.EOF, again)
				return err
			}))
		}
	}
}

// TestReaderEndsWithTheCallback: a reader that is kept gives an error, and no byte of this or another file.
func TestReaderEndsWithTheCallback(t *testing.T) {
	_, all := rooted(t, testtree.Numbered("d/f", 100)...)
	for _, p := range all {
		for _, size := range []int{0, 2, fileproc.NoRead} {
			for _, callback := range []string{"fn", "Select"} {
				var kept []io.Reader
				var users sync.WaitGroup
				keep := func(f *fileproc.File) {
					if len(kept) > 0 {
						_, err := kept[len(kept)-1].Read(make([]byte, 1))
						require.ErrorIs(t, err, fs.ErrClosed)
					}
					r := f.Reader()
					_, err := r.Read(nil)
					require.NoError(t, err)
					_, err = io.ReadFull(r, make([]byte, 1))
					require.NoError(t, err)
					kept = append(kept, r)
				}
				opts := fileproc.Options{ReadSize: size, FS: p.fsys, Workers: 1}
				fn := func(f *fileproc.File) error { keep(f); return nil }
				if callback == "Select" {
					fn = func(*fileproc.File) error { return nil }
					opts.Select = func(f *fileproc.File) bool { keep(f); return false }
				}
				leavesNothing(t, func() { require.NoError(t, fileproc.ForEach(t.Context(), p.root, opts, fn)) })
				require.Len(t, kept, 100)
				for _, r := range kept {
					for _, size := range []int{0, 10} {
						n, err := r.Read(make([]byte, size))
						require.Zero(t, n)
						require.ErrorIs(t, err, fs.ErrClosed)
					}
					users.Go(func() {
						n, err := io.Copy(io.Discard, r)
						if n != 0 || !errors.Is(err, fs.ErrClosed) {
							t.Errorf("%d bytes, %v", n, err)
						}
					})
				}
				users.Wait()
			}
		}
	}
}

// TestReaderOfAStrayGoroutine: one that goes on reading when fn has returned races with nothing.
func TestReaderOfAStrayGoroutine(t *testing.T) {
	watchdog(t)
	var list []string
	for i := range 50 {
		list = append(list, fmt.Sprintf("f%02d=%s", i, strings.Repeat(string(rune('a'+i%26)), 40_000)))
	}
	_, all := rooted(t, list...)
	for _, p := range all {
		for _, size := range []int{0, 100} {
			var strays sync.WaitGroup
			err := fileproc.ForEach(t.Context(), p.root, fileproc.Options{ReadSize: size, FS: p.fsys}, func(f *fileproc.File) error {
				r, want := f.Reader(), f.Data()[0]
				begun := make(chan struct{})
				strays.Go(func() {
					one := make([]byte, 1)
					for once := sync.OnceFunc(func() { close(begun) }); ; once() {
						n, err := r.Read(one)
						if n == 1 && one[0] != want {
							t.Errorf("another file's byte: %q, want %q", one[0], want)
						}
						if err != nil {
							once()
							return
						}
					}
				})
				<-begun
				return nil
			})
			require.NoError(t, err)
			strays.Wait()
		}
	}
}

// TestReaderOfAFileThatHasChanged changes the file between Data and the rest.
func TestReaderOfAFileThatHasChanged(t *testing.T) {
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	for name, change := range map[string]func(t *testing.T, file string){
		"removed": func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) },
		"grown": func(t *testing.T, file string) {
			require.NoError(t, os.WriteFile(file, []byte(testtree.Content(60_000)), 0o644))
		},
		"shrunk to nothing": func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 0)) },
		"of another time": func(t *testing.T, file string) {
			require.NoError(t, os.Chtimes(file, old.Add(time.Second), old.Add(time.Second)))
		},
		"a link to a file": func(t *testing.T, file string) {
			require.NoError(t, os.Rename(file, file+".old"))
			testtree.Symlink(t, "f.new", file)
		},
		"a directory": func(t *testing.T, file string) {
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.Mkdir(file, 0o755))
		},
		"another of the same size and time": func(t *testing.T, file string) { require.NoError(t, os.Rename(file+".new", file)) },
	} {
		for i := range 2 {
			for _, stat := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/Stat=%t", name, places("")[i].name, stat), func(t *testing.T) {
					dir, all := rooted(t, "d/f="+testtree.Content(50_000), "d/f.new="+testtree.Content(50_000))
					p, file := all[i], filepath.Join(dir, "d", "f")
					if !fsinfo.HasInodes && (name == "another of the same size and time" || name == "a link to a file" && p.fsys != nil) {
						t.Skip("without inode numbers, a file of the same size and time, also behind a link that an FS follows, cannot be told from the first")
					}
					for _, path := range []string{file, file + ".new"} {
						require.NoError(t, os.Chtimes(path, old, old))
					}
					opts := fileproc.Options{ReadSize: 100, Include: []string{"d/f"}, FS: p.fsys, Stat: stat}
					err := fileproc.ForEach(t.Context(), p.root, opts, func(f *fileproc.File) error {
						change(t, file)
						r := f.Reader()
						data, err := io.ReadAll(r)
						require.Equal(t, testtree.Content(50_000)[:100], string(data))
						require.ErrorIs(t, err, fileproc.ErrChanged)
						var pathErr *fs.PathError
						require.ErrorAs(t, err, &pathErr)
						require.Equal(t, f.Path(), pathErr.Path)
						_, again := r.Read(make([]byte, 1))
						require.Equal(t, err, again)
						return nil
					})
					require.NoError(t, err)
				})
			}
		}
	}
}

// TestReaderSeesTheStop: what fn reads when the run is stopped is an error, and the file is abandoned.
func TestReaderSeesTheStop(t *testing.T) {
	watchdog(t)
	_, all := rooted(t, "f="+testtree.Content(100_000))
	for _, p := range all {
		ctx, cancel := context.WithCancelCause(t.Context())
		var report fileproc.Report
		opts := fileproc.Options{ReadSize: 100, FS: p.fsys, Report: &report}
		_, err := fileproc.Process(ctx, p.root, opts, func(f *fileproc.File) (int64, error) {
			r := f.Reader()
			_, err := io.ReadFull(r, make([]byte, 1000))
			require.NoError(t, err)
			cancel(errFromFn)
			n, err := io.Copy(io.Discard, r)
			require.Error(t, err)
			return n, fmt.Errorf("wrapped: %w", err)
		})
		require.Equal(t, errFromFn, err, "the cause alone")
		require.EqualValues(t, 1, report.Abandoned)
		requireBalanced(t, report)
	}
}

// TestReaderOfACallbackThatPanics leaves no descriptor.
func TestReaderOfACallbackThatPanics(t *testing.T) {
	_, all := rooted(t, append(testtree.Numbered("d/f", 20), "big="+testtree.Content(100_000))...)
	for _, p := range all {
		for _, callback := range []string{"fn", "Select"} {
			var calls atomic.Int64
			misbehave := func(f *fileproc.File) {
				_, _ = io.ReadFull(f.Reader(), make([]byte, 5)) // fails once another call has panicked
				if calls.Add(1) == 3 {
					panic("the caller's own mistake")
				}
			}
			opts := fileproc.Options{ReadSize: 1, FS: p.fsys, Workers: 3}
			fn := func(f *fileproc.File) error { misbehave(f); return nil }
			if callback == "Select" {
				opts.Select = func(f *fileproc.File) bool { misbehave(f); return true }
				fn = func(*fileproc.File) error { return nil }
			}
			leavesNothing(t, func() {
				require.Panics(t, func() { _ = fileproc.ForEach(t.Context(), p.root, opts, fn) })
			})
		}
	}
}

// seeklessFS hides what its files have beside fs.File, such as Seek.
type seeklessFS struct{ fs.FS }

func (f seeklessFS) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if dir, ok := file.(fs.ReadDirFile); ok && err == nil {
		if info, err := file.Stat(); err == nil && info.IsDir() {
			return dir, nil
		}
	}
	return struct{ fs.File }{file}, err
}

// A falseSeekFS has files whose Seek fails.
type falseSeekFS struct{ seeklessFS }

type falseSeeker struct{ fs.File }

func (falseSeeker) Seek(int64, int) (int64, error) { return 0, fs.ErrInvalid }

func (f falseSeekFS) Open(name string) (fs.File, error) {
	file, err := f.seeklessFS.Open(name)
	if _, isDir := file.(fs.ReadDirFile); err != nil || isDir {
		return file, err
	}
	return falseSeeker{file}, nil
}

// TestReaderWithoutSeek reads what it cannot skip.
func TestReaderWithoutSeek(t *testing.T) {
	want := testtree.Content(200_000)
	dir, _ := rooted(t, "f="+want)
	seekless := seeklessFS{os.DirFS(dir)}
	for _, fsys := range []fs.FS{seekless, falseSeekFS{seekless}} {
		for _, size := range []int{1, 32 << 10, 100_000} {
			require.NoError(t, fileproc.ForEach(t.Context(), ".", fileproc.Options{ReadSize: size, FS: fsys}, func(f *fileproc.File) error {
				got, err := io.ReadAll(f.Reader())
				require.Equal(t, want, string(got))
				return err
			}))
		}
	}
}

// TestNewFile: such a File is as one of a run is, but for Open.
func TestNewFile(t *testing.T) {
	for _, name := range []string{"f.md", "d/f.md", "d/e e/f.md", "/abs/f.md", "../f", "-", "a//b", "", ".", "..", "/", "//", "a/", "a//", "/a/", "./", "C:/f.md", "C:f.md", "C:/", "//host/share/f"} {
		for _, data := range []string{"", "some\x00bytes"} {
			f := fileproc.NewFile(name, append([]byte(nil), data...))
			require.Equal(t, name, f.Rel())
			require.Equal(t, filepath.FromSlash(name), f.Path())
			require.Equal(t, name[strings.LastIndexByte(name, '/')+1:], f.Name())
			require.Equal(t, data, string(f.Data()))
			require.Len(t, f.Data(), cap(f.Data()))
			require.False(t, f.Truncated())
			require.Zero(t, f.Worker())
			s, err := f.Stat()
			require.NoError(t, err)
			require.Equal(t, fileproc.Stat{Size: int64(len(data))}, s)
			require.True(t, s.Mode.IsRegular())
			info, err := f.Info()
			require.NoError(t, err)
			require.EqualValues(t, len(data), info.Size())
			require.Empty(t, f.LinkTarget())
			for range 2 {
				got, err := io.ReadAll(f.Reader())
				require.NoError(t, err)
				require.Equal(t, data, string(got))
				same, err := f.Unchanged()
				require.NoError(t, err)
				require.True(t, same)
				_, err = f.Open()
				require.ErrorIs(t, err, errors.ErrUnsupported)
				var pathErr *fs.PathError
				require.ErrorAs(t, err, &pathErr)
				require.Equal(t, f.Path(), pathErr.Path)
			}
		}
	}
}

// TestReaderOfARootThatIsAFile reads on in the file that root leads to, also through a link.
func TestReaderOfARootThatIsAFile(t *testing.T) {
	want := testtree.Content(100_000)
	dir, _ := rooted(t, "d/f="+want)
	places := []place{{"os", filepath.Join(dir, "d", "f"), nil}, {"fs", "d/f", os.DirFS(dir)}}
	for _, p := range places {
		for _, size := range []int{0, 100, fileproc.NoRead} {
			leavesNothing(t, func() {
				require.NoError(t, fileproc.ForEach(t.Context(), p.root, fileproc.Options{ReadSize: size, FS: p.fsys}, func(f *fileproc.File) error {
					for range 2 {
						got, err := io.ReadAll(f.Reader())
						require.NoError(t, err)
						require.Equal(t, want, string(got), "%s, %d", p.name, size)
					}
					return nil
				}))
			})
		}
	}
}
