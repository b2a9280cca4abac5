//go:build linux

package fileproc_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// replacements are what may have replaced a file by the time it is opened. None of them may be read.
func replacements(t *testing.T) map[string]func(path string) error {
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("secret"), 0o644))
	written := filepath.Join(filepath.Dir(outside), "fifo")
	require.NoError(t, unix.Mkfifo(written, 0o644))
	writer, err := unix.Open(written, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(writer) })
	_, err = unix.Write(writer, []byte("secret"))
	require.NoError(t, err)
	devices := map[string]func(path string) error{}
	for name, number := range map[string]uint64{
		"zero": unix.Mkdev(1, 5), "null": unix.Mkdev(1, 3), "random": unix.Mkdev(1, 9), "kernel log": unix.Mkdev(1, 11),
	} {
		node := func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(number)) }
		probe := filepath.Join(t.TempDir(), "probe")
		err := node(probe)
		if err == nil {
			var f *os.File
			if f, err = os.OpenFile(probe, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
				f.Close()
			}
		}
		if err != nil {
			t.Logf("%s device left out: %v", name, err)
			continue
		}
		devices[name+" device"] = node
	}
	all := map[string]func(path string) error{
		"nothing":       func(string) error { return nil },
		"symlink":       func(path string) error { return os.Symlink(outside, path) },
		"neighbour":     func(path string) error { return os.Symlink("a", path) },
		"dangling link": func(path string) error { return os.Symlink("nowhere", path) },
		"link to self":  func(path string) error { return os.Symlink(path, path) },
		"directory": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "inner"), []byte("secret"), 0o644))
		},
		"fifo":               func(path string) error { return unix.Mkfifo(path, 0o644) },
		"socket":             func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o644, 0) },
		"fifo with a writer": func(path string) error { return os.Link(written, path) },
	}
	for name, node := range devices {
		all[name] = node
	}
	return all
}

func TestInvariant3FileReplacedBetweenListingAndOpening(t *testing.T) {
	variants := map[string]struct {
		opts  fileproc.Options
		stats bool
	}{
		"whole":                    {},
		"whole after a Stat":       {stats: true},
		"whole with Stat":          {opts: fileproc.Options{Stat: true}},
		"prefix":                   {opts: fileproc.Options{ReadSize: 4096}},
		"prefix after a Stat":      {opts: fileproc.Options{ReadSize: 4096}, stats: true},
		"prefix of three bytes":    {opts: fileproc.Options{ReadSize: 3}},
		"prefix of the whole size": {opts: fileproc.Options{ReadSize: len("secret")}},
		"Stat only":                {opts: fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}},
	}
	for what, replace := range replacements(t) {
		for name, v := range variants {
			t.Run(what+"/"+name, func(t *testing.T) {
				watchdog(t)
				root := t.TempDir()
				for _, name := range []string{"a", "victim", "z"} {
					require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte("own"), 0o644))
				}
				var report fileproc.Report
				opts := v.opts
				opts.Report = &report
				opts.Select = func(f *fileproc.File) bool {
					if f.Name() == "victim" {
						if v.stats {
							if _, err := f.Stat(); err != nil {
								t.Errorf("Stat in Select: %v", err)
							}
						}
						if err := errors.Join(os.Remove(f.Path()), replace(f.Path())); err != nil {
							t.Error(err)
						}
					}
					return true
				}
				var names []string
				var err error
				leavesNothing(t, func() {
					names, err = fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
						if data := f.Data(); !strings.HasPrefix("own", string(data)) {
							t.Errorf("%s delivered as %q", f.Name(), data[:min(len(data), 20)])
						}
						return f.Name(), nil
					})
				})
				require.ErrorIs(t, err, fileproc.ErrChanged)
				require.ErrorContains(t, err, filepath.Join(root, "victim"))
				require.ElementsMatch(t, []string{"a", "z"}, names)
				require.EqualValues(t, 1, report.Failed)
				requireBalanced(t, report)
			})
		}
	}
}

func TestInvariant3OpenOfAReplacedFile(t *testing.T) {
	for what, replace := range replacements(t) {
		t.Run(what, func(t *testing.T) {
			watchdog(t)
			root := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(root, "victim"), []byte("own"), 0o644))
			leavesNothing(t, func() {
				_, err := fileproc.Process(t.Context(), root, fileproc.Options{ReadSize: fileproc.NoRead},
					func(f *fileproc.File) (int, error) {
						if err := errors.Join(os.Remove(f.Path()), replace(f.Path())); err != nil {
							return 0, err
						}
						handle, err := f.Open()
						if err == nil {
							handle.Close()
							return 0, errors.New("Open gave a handle")
						}
						if !errors.Is(err, fileproc.ErrChanged) {
							return 0, fmt.Errorf("not ErrChanged: %w", err)
						}
						return 0, nil
					})
				require.NoError(t, err)
			})
		})
	}
}

// A link in a file's place is not followed, even if it leads to the very file that was listed. Another file, or another
// directory, in the place of what was listed is delivered.
func TestInvariant3RenamedBetweenListingAndOpening(t *testing.T) {
	testtree.NotInColdMode(t, "files are not in the order of the listing")
	root := t.TempDir()
	plant(t, root, "a", "victim", "d/victim")
	aside := t.TempDir()
	plant(t, aside, "new", "d/new")
	time.Sleep(20 * time.Millisecond) // some kernels keep a time by ticks
	run := func(change func() error) (map[string]string, error) {
		t.Helper()
		var once sync.Once
		return read(t.Context(), root, fileproc.Options{Workers: 1, Select: func(*fileproc.File) bool {
			once.Do(func() { require.NoError(t, change()) }) // before anything is opened
			return true
		}})
	}
	in := func(name string) string { return filepath.Join(root, name) }

	got, err := run(func() error {
		return errors.Join(os.Rename(in("victim"), filepath.Join(aside, "victim")),
			os.Rename(filepath.Join(aside, "new"), in("victim")),
			os.Rename(in("d"), filepath.Join(aside, "was")),
			os.Rename(filepath.Join(aside, "d"), in("d")))
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "a", "victim": "new", filepath.FromSlash("d/new"): "d/new"}, got)

	time.Sleep(20 * time.Millisecond)
	got, err = run(func() error {
		return errors.Join(os.Rename(in("victim"), in("moved")), os.Symlink("moved", in("victim")),
			os.Rename(in("d"), in("moved d")), os.Symlink("moved d", in("d")))
	})
	require.ErrorIs(t, err, fileproc.ErrChanged)
	require.ErrorContains(t, err, in("victim"))
	require.ErrorContains(t, err, in("d")+":")
	require.Equal(t, map[string]string{"a": "a"}, got)
}

// swapTree is root/{a,d/own,d/sub/own} beside outside/{own,sub/own}, which has the secret.
func swapTree(t *testing.T) (root, outside, aside string) {
	base := t.TempDir()
	root, outside, aside = filepath.Join(base, "root"), filepath.Join(base, "outside"), filepath.Join(base, "aside")
	for _, dir := range []string{filepath.Join(root, "d"), outside} {
		content := []byte("own")
		if dir == outside {
			content = []byte("secret")
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "own"), content, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "sub", "own"), content, 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "a"), []byte("own"), 0o644))
	return root, outside, aside
}

func TestInvariant3DirectorySwappedMidWalk(t *testing.T) {
	swaps := map[string]func(outside, path string) error{
		"symlink":  os.Symlink,
		"nothing":  func(string, string) error { return nil },
		"file":     func(_, path string) error { return os.WriteFile(path, []byte("secret"), 0o644) },
		"fifo":     func(_, path string) error { return unix.Mkfifo(path, 0o644) },
		"self":     func(_, path string) error { return os.Symlink(path, path) },
		"relative": func(_, path string) error { return os.Symlink("../outside", path) },
	}
	type trigger struct {
		rel string
		fn  bool
	}
	for what, swap := range swaps {
		for _, on := range []trigger{{"a", false}, {"a", true}, {"d/own", false}, {"d/own", true}} {
			for _, workers := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s/%+v/workers=%d", what, on, workers), func(t *testing.T) {
					watchdog(t)
					root, outside, aside := swapTree(t)
					d := filepath.Join(root, "d")
					var once sync.Once
					act := func(f *fileproc.File) {
						if f.Rel() == filepath.FromSlash(on.rel) {
							once.Do(func() {
								if err := errors.Join(os.Rename(d, aside), swap(outside, d)); err != nil {
									t.Error(err)
								}
							})
						}
					}
					var report fileproc.Report
					opts := fileproc.Options{Workers: workers, Report: &report, Select: func(f *fileproc.File) bool {
						if !on.fn {
							act(f)
						}
						return true
					}}
					type file struct{ rel, data, handle string }
					files, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (file, error) {
						if on.fn {
							act(f)
						}
						handle, err := f.Open()
						if err != nil {
							return file{}, err
						}
						defer handle.Close()
						data, err := io.ReadAll(handle)
						return file{f.Rel(), string(f.Data()), string(data)}, err
					})
					got := map[string]bool{}
					for _, f := range files {
						require.Equal(t, "own", f.data, "%s", f.rel)
						require.Equal(t, "own", f.handle, "%s through Open", f.rel)
						got[f.rel] = true
					}
					require.True(t, got["a"])
					if on.rel == "d/own" {
						require.True(t, got["d/own"], "its directory was open already: %v", err)
					}
					if got["d/own"] && got["d/sub/own"] {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, fileproc.ErrChanged)
						require.EqualValues(t, 1, report.Failed)
					}
					requireBalanced(t, report)
				})
			}
		}
	}
}

func TestInvariant3DirectorySwappedAllTheTime(t *testing.T) {
	watchdog(t)
	root, outside, aside := swapTree(t)
	d, link := filepath.Join(root, "d"), filepath.Join(filepath.Dir(root), "link")
	require.NoError(t, os.Symlink(outside, link))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(d, aside)
			_ = os.Rename(link, d)
			runtime.Gosched()
			_ = os.Rename(d, link)
			_ = os.Rename(aside, d)
			runtime.Gosched()
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	runs := 500
	if testing.Short() {
		runs = 50
	}
	for i := range runs {
		got, err := read(t.Context(), root, fileproc.Options{Workers: 1 + i%4})
		for rel, data := range got {
			require.Equal(t, "own", data, "%s", rel)
		}
		if err != nil {
			require.ErrorIs(t, err, fileproc.ErrChanged)
		}
	}
}

// A file in whose place others are renamed all the time comes whole in every run: its name is never free.
func TestInvariant1FileReplacedAllTheTime(t *testing.T) {
	watchdog(t)
	root, aside := memoryDir(t), memoryDir(t)
	write := func(path string, i int) error {
		return os.WriteFile(path, fmt.Appendf(nil, "whole %s", strings.Repeat(fmt.Sprint(i%10), i%3000)), 0o644)
	}
	rels := []string{"a", "b", "c"}
	for i, rel := range rels {
		require.NoError(t, write(filepath.Join(root, rel), i))
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			next := filepath.Join(aside, "next")
			if err := errors.Join(write(next, i), os.Rename(next, filepath.Join(root, rels[i%len(rels)]))); err != nil {
				stopped <- err
				return
			}
		}
	}()
	defer func() {
		close(stop)
		require.NoError(t, <-stopped)
	}()
	runs := 2000
	if testing.Short() {
		runs = 200
	}
	for i := range runs {
		got, err := read(t.Context(), root, fileproc.Options{Workers: 1 + i%4, DisableURing: i%2 == 0})
		require.NoError(t, err)
		for rel, data := range got {
			filling, ok := strings.CutPrefix(data, "whole ")
			require.True(t, ok && (filling == "" || filling == strings.Repeat(filling[:1], len(filling))), "%s: torn: %.40q", rel, data)
		}
	}
}
