//go:build linux

package fileproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var clockSpeed = regexp.MustCompile(`(?m)^(cpu MHz|clock)\s*:.*$`)

func TestInvariant2KernelFilesAreWhole(t *testing.T) {
	watchdog(t)
	for root, suffixes := range map[string][]string{
		"/proc":                   {"kallsyms", "cpuinfo", "filesystems", "version", "devices"},
		"/proc/self":              {"limits", "comm", "mountinfo"},
		"/sys/kernel":             nil,
		"/sys/class/net/lo":       nil,
		"/sys/devices/system/cpu": nil,
	} {
		t.Run(strings.ReplaceAll(root[1:], "/", "_"), func(t *testing.T) {
			entries, err := os.ReadDir(root)
			if err != nil {
				t.Logf("left out: %v", err)
				return
			}
			ours := func(name string) bool {
				for _, s := range suffixes {
					if strings.HasSuffix(name, s) {
						return true
					}
				}
				return suffixes == nil
			}
			plain := func() map[string]string {
				content := map[string]string{}
				for _, e := range entries {
					if e.Type().IsRegular() && ours(e.Name()) {
						if data, err := os.ReadFile(filepath.Join(root, e.Name())); err == nil {
							content[e.Name()] = string(data)
						}
					}
				}
				return content
			}
			opts := fileproc.Options{MaxDepth: 1, Suffixes: suffixes}
			// The kernel may change a file's content at any moment; it must equal the content before or after.
			var wrong []string
			for range 5 {
				wrong = nil
				before := plain()
				got, _ := read(t.Context(), root, opts)
				after := plain()
				for name := range before {
					g, delivered := got[name]
					g = clockSpeed.ReplaceAllString(g, "")
					if !delivered || g != clockSpeed.ReplaceAllString(before[name], "") && g != clockSpeed.ReplaceAllString(after[name], "") {
						wrong = append(wrong, fmt.Sprintf("%s: %d bytes, os.ReadFile %d", name, len(g), len(before[name])))
					}
				}
				require.NotEmpty(t, before)
				if wrong == nil {
					return
				}
			}
			require.Empty(t, wrong)
		})
	}
	if _, err := os.Stat("/proc/self/limits"); err == nil {
		_, err := fileproc.Process(t.Context(), "/proc/self/limits", fileproc.Options{MaxFileSize: 1}, nameOf)
		require.ErrorIs(t, err, fileproc.ErrTooLarge)
		require.ErrorContains(t, err, "at least", "the size that its metadata has is 0")
	}
}

// A read of /proc/kmsg waits for the kernel's next message. It consumes the kernel's messages, so one run is enough.
func TestInvariant8ReadThatDoesNotComeBack(t *testing.T) {
	if _, err := os.Stat("/proc/kmsg"); err != nil {
		t.Skip("there is no /proc/kmsg: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // some seconds are enough
	defer cancel()
	_, err := fileproc.Process(ctx, "/proc", fileproc.Options{MaxDepth: 1, Suffixes: []string{"kmsg"}}, func(f *fileproc.File) (int, error) { return len(f.Data()), nil })
	require.NoError(t, ctx.Err())
	if errors.Is(err, fs.ErrPermission) { // for every user but root, and for root in most containers
		return
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var p *fs.PathError
	require.ErrorAs(t, err, &p)
	require.Equal(t, "/proc/kmsg", p.Path)
}

func TestInvariant2SizesAroundEveryBlock(t *testing.T) {
	watchdog(t)
	parents := map[string]string{"temporary directory": t.TempDir(), "tmpfs": memoryDir(t)}
	sizes := []int{0, 1, 400, 3 << 20, 1<<20 + 12_345}
	for _, block := range []int{512, 4096, 8192, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20} {
		sizes = append(sizes, block-1, block, block+1)
	}
	random := rand.New(rand.NewSource(2))
	want := map[string]string{}
	for _, size := range sizes {
		data := make([]byte, size)
		random.Read(data)
		want[fmt.Sprintf("dense%d", size)] = string(data)
	}
	want["sparse"] = strings.Repeat("\x00", 2<<20) + "middle" + strings.Repeat("\x00", 1<<20)
	for name, dir := range parents {
		for file, content := range want {
			path := filepath.Join(dir, file)
			if file == "sparse" {
				f, err := os.Create(path)
				require.NoError(t, err)
				_, err = f.WriteAt([]byte("middle"), 2<<20)
				require.NoError(t, err)
				require.NoError(t, f.Truncate(int64(len(content))))
				require.NoError(t, f.Close())
			} else {
				require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
			}
		}
		for _, limit := range []int{0, 1, 400, 512, 4095, 4096, 4097, 65536, 1 << 20} {
			t.Run(fmt.Sprintf("%s/ReadSize=%d", name, limit), func(t *testing.T) {
				opts := fileproc.Options{ReadSize: limit, Workers: 2}
				files, err := fileproc.Process(t.Context(), dir, opts, func(f *fileproc.File) (string, error) {
					full := want[f.Name()]
					part := full
					if limit > 0 {
						part = full[:min(limit, len(full))]
					}
					if string(f.Data()) != part {
						return "", fmt.Errorf("got %d bytes that are not the first %d", len(f.Data()), len(part))
					}
					if f.Truncated() != (len(part) < len(full)) {
						return "", fmt.Errorf("Truncated is %v with %d of %d bytes", f.Truncated(), len(part), len(full))
					}
					return f.Name(), nil
				})
				require.NoError(t, err)
				require.Len(t, files, len(want))
			})
		}
	}
}

// cacheFirstPage leaves of a file only the first page in the cache, if the file system is willing.
func cacheFirstPage(t *testing.T, path string) *os.File {
	f, err := os.Open(path)
	require.NoError(t, err)
	fd := int(f.Fd())
	require.NoError(t, unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED))
	require.NoError(t, unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM)) // reads nothing ahead
	_, err = unix.Pread(fd, make([]byte, 1), 0)
	require.NoError(t, err)
	return f
}

// A read from the cache is short where the cached part ends.
func TestInvariant2HalfCachedFilesAreWhole(t *testing.T) {
	watchdog(t)
	root, rels := plantMany(t, 1, 1600)
	dir, err := os.Open(root)
	require.NoError(t, err)
	defer dir.Close()
	for _, opts := range []fileproc.Options{{Workers: 1}, {Workers: 3}, {Workers: 1, ReadSize: 9000}, {DisableURing: true}} {
		require.NoError(t, unix.Syncfs(int(dir.Fd())))
		for _, rel := range rels {
			if len(testtree.BytesOf(rel)) > 4096 {
				cacheFirstPage(t, filepath.Join(root, rel)).Close()
			}
		}
		requireExact(t, root, opts, rels)
	}
	for _, rel := range rels {
		if size := len(testtree.BytesOf(rel)); size > 4096 {
			f := cacheFirstPage(t, filepath.Join(root, rel))
			defer f.Close()
			// This read makes the kernel fetch the rest, so it does not use the files of the test.
			if n, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, size)}, 0, unix.RWF_NOWAIT); err != nil || n == size {
				t.Logf("left out: this file system does not keep a part of a file in the cache: %d bytes of %d, %v", n, size, err)
			}
			return
		}
	}
}

// TestLargestFile reads the beginning of a file of the largest size that the file system has: 2^63-1 bytes on xfs and btrfs.
func TestLargestFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(name, nil, 0o644))
	size := int64(math.MaxInt64)
	for os.Truncate(name, size) != nil {
		size /= 2
	}
	t.Logf("%d bytes", size)
	for _, cold := range []bool{false, true} {
		if cold {
			testtree.Set(t, &knobs.AlwaysCold, true)
		}
		for _, opts := range []fileproc.Options{{}, {Stat: true}, {SkipBinary: true}, {MaxFileSize: math.MaxInt64 - 1}, {MaxFileSize: fileproc.NoLimit}} {
			for _, opts.DisableURing = range []bool{false, true} {
				limited := opts
				limited.ReadSize = 100
				n, err := fileproc.Process(t.Context(), dir, limited, func(f *fileproc.File) (int, error) {
					if !f.Truncated() {
						return 0, errors.New("not truncated")
					}
					return len(f.Data()), nil
				})
				require.NoError(t, err)
				if !opts.SkipBinary {
					require.Equal(t, []int{100}, n)
				}
				if opts.MaxFileSize == 0 && !opts.SkipBinary && size > 1<<30 {
					_, err = fileproc.Process(t.Context(), dir, opts, nameOf)
					require.ErrorIs(t, err, fileproc.ErrTooLarge)
				}
			}
		}
	}
}

// TestXattrs: all attributes of the file that was read, and of no other.
func TestXattrs(t *testing.T) {
	dir, all := rooted(t, "a=1", "d/f=2", "none=3")
	want := map[string][]byte{"user.empty": nil, "user.x": []byte("some\x00bytes"), "user.long": bytes.Repeat([]byte("x"), 2000)}
	for name, value := range want {
		if err := unix.Setxattr(filepath.Join(dir, "d", "f"), name, value, 0); err != nil {
			t.Skip("no extended attributes here: ", err)
		}
	}
	for _, opts := range []fileproc.Options{{}, {Stat: true}, {ReadSize: fileproc.NoRead}} {
		require.NoError(t, fileproc.ForEach(t.Context(), dir, opts, func(f *fileproc.File) error {
			got, err := f.Xattrs()
			if f.Name() == "f" {
				require.Equal(t, want, got)
			} else {
				require.Empty(t, got)
			}
			return err
		}))
	}
	require.NoError(t, fileproc.ForEach(t.Context(), dir, fileproc.Options{Stat: true}, func(f *fileproc.File) error {
		require.NoError(t, os.WriteFile(f.Path()+".new", []byte("new"), 0o600))
		require.NoError(t, os.Rename(f.Path()+".new", f.Path()))
		_, err := f.Xattrs()
		require.ErrorIs(t, err, fileproc.ErrChanged)
		return nil
	}))
	require.NoError(t, fileproc.ForEach(t.Context(), ".", fileproc.Options{FS: all[1].fsys}, func(f *fileproc.File) error {
		_, err := f.Xattrs()
		require.ErrorIs(t, err, errors.ErrUnsupported)
		return nil
	}))
}

// TestXattrsOfDirectories: root's too, and those of links and FIFOs, not of what a link leads to.
func TestXattrsOfDirectories(t *testing.T) {
	dir, _ := rooted(t, "d/f=1", "link -> d", "pipe|")
	for _, rel := range []string{"", "d"} {
		if err := unix.Setxattr(filepath.Join(dir, rel), "user.of", []byte("dir "+rel), 0); err != nil {
			t.Skip("no extended attributes here: ", err)
		}
	}
	own := map[string]string{} // only root may give them some
	for _, name := range []string{"link", "pipe"} {
		if unix.Lsetxattr(filepath.Join(dir, name), "trusted.of", []byte(name), 0) == nil {
			own[name] = name
		}
	}
	for _, stat := range []bool{false, true} {
		require.NoError(t, fileproc.ForEach(t.Context(), dir, fileproc.Options{AllTypes: true, Stat: stat}, func(f *fileproc.File) error {
			got, err := f.Xattrs()
			switch {
			case f.IsDir():
				require.Equal(t, "dir "+f.Rel(), string(got["user.of"]))
			case f.Type() != 0 && fileproc.Backend() == "generic":
				require.ErrorIs(t, err, errors.ErrUnsupported)
				return nil
			case f.Type() != 0:
				require.Equal(t, own[f.Name()], string(got["trusted.of"]))
				require.NotContains(t, got, "user.of")
			default:
				require.Empty(t, got)
			}
			return err
		}))
	}
	require.NoError(t, fileproc.ForEach(t.Context(), dir, fileproc.Options{AllTypes: true, Stat: true}, func(f *fileproc.File) error {
		if f.Rel() == "link" && fileproc.Backend() != "generic" {
			require.NoError(t, os.Remove(f.Path()))
			require.NoError(t, os.Symlink("another", f.Path()))
			_, err := f.Xattrs()
			require.ErrorIs(t, err, fileproc.ErrChanged)
			require.NoError(t, os.Remove(f.Path()))
			_, err = f.Xattrs()
			require.ErrorIs(t, err, fileproc.ErrChanged)
		}
		return nil
	}))
	require.NoError(t, fileproc.ForEach(t.Context(), dir, fileproc.Options{AllTypes: true, Stat: true, Workers: 1}, func(f *fileproc.File) error {
		if f.Rel() != "d" {
			return nil
		}
		require.NoError(t, os.WriteFile(filepath.Join(f.Path(), "new"), nil, 0o600))
		require.NoError(t, os.Chtimes(f.Path(), time.Time{}, time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)))
		_, err := f.Xattrs()
		require.ErrorIs(t, err, fileproc.ErrChanged)
		return nil
	}))
}
