package incremental_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mount mounts a file system in memory at dir.
func mount(t *testing.T, dir, kind, options string) {
	if err := unix.Mount(kind, dir, kind, 0, options); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// TestLockThatIsNone: a run neither opens nor follows a FIFO, a link or a directory in the place of the lock.
func TestLockThatIsNone(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(string) error{
		"FIFO":          func(name string) error { return unix.Mkfifo(name, 0o600) },
		"dangling link": func(name string) error { return os.Symlink("target", name) },
		"directory":     func(name string) error { return os.Mkdir(name, 0o700) },
	} {
		p := newProject(t, "a=1")
		lock := p.inc.File + ".lock"
		require.NoError(t, plant(lock))
		done := make(chan error, 1)
		go func() {
			_, err := p.try(t.Context())
			done <- err
		}()
		select {
		case err := <-done:
			require.ErrorIs(t, err, incremental.ErrNotSaved, name)
			require.ErrorContains(t, err, lock, name)
		case <-time.After(20 * time.Second):
			t.Fatal("the run waits: ", name)
		}
		require.NoFileExists(t, filepath.Join(filepath.Dir(lock), "target"))
		require.NoError(t, os.Remove(lock))
		p.run()
	}
}

// TestFullDisk: on a full disk a run's results are complete, the error is ErrNotSaved, and what was kept before is still of
// use. Once there is room, all is kept.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	for i := range 200 {
		p.write(fmt.Sprintf("d/%03d", i), "1")
	}
	disk := t.TempDir()
	mount(t, disk, "tmpfs", "size=1m")
	p.inc.File, p.inc.Compare = filepath.Join(disk, "cache"), incremental.CompareContent
	var report fileproc.Report
	p.opts.Report = &report
	p.run()
	ballast := filepath.Join(disk, "ballast")
	for _, room := range []int{0, 4096, 20_000} { // for the log, or for a part of a snapshot
		for _, changed := range []int{25, 180} {
			p.run()
			f, err := os.Create(ballast)
			require.NoError(t, err)
			for err == nil { // to the last page
				_, err = f.Write(make([]byte, 4096))
			}
			f.Close()
			info, err := os.Stat(ballast)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(ballast, info.Size()-int64(room)))

			for i := range changed {
				p.write(fmt.Sprintf("d/%03d", i), strings.Repeat(fmt.Sprintf("%6d,%3d", room, changed), 150))
			}
			full, err := fileproc.Process(t.Context(), p.root, p.opts, result)
			require.NoError(t, err)
			for range 2 {
				got, err := p.try(t.Context())
				require.ErrorIs(t, err, incremental.ErrNotSaved)
				require.ErrorIs(t, err, unix.ENOSPC)
				require.ElementsMatch(t, full, got)
				require.GreaterOrEqual(t, report.Unchanged, int64(200-changed))
				require.NoFileExists(t, p.inc.File+".fileproc-tmp")
			}
			require.NoError(t, os.Remove(ballast))
			p.run()
			p.calledFor()
		}
	}
}

// TestReadOnlyDisk: a disk that is read-only is like a full disk.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "b=2")
	disk := t.TempDir()
	mount(t, disk, "tmpfs", "size=200k")
	p.inc.File = filepath.Join(disk, "cache")
	p.run()
	require.NoError(t, unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=200k"))
	p.calledFor()
	p.write("a", "x")
	p.settle()
	for range 2 {
		got, err := p.try(t.Context())
		require.ErrorIs(t, err, incremental.ErrNotSaved)
		require.ElementsMatch(t, []string{"a=x", "b=2"}, got)
		require.Equal(t, []string{"a"}, p.calls)
	}
	require.NoError(t, unix.Mount("", disk, "", unix.MS_REMOUNT, "size=200k"))
	p.calledFor("a")
	p.calledFor()
}

// TestOtherFileSystemBelow: on a file system that is mounted below root and does not keep its times well, a run compares content.
func TestOtherFileSystemBelow(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a=1", "m/")
	mount(t, p.path("m"), "ramfs", "")
	p.write("m/b", "2")
	p.write("m/c.skip", "3")
	p.settle()
	p.calledFor("a", "m/b", "m/c.skip")
	var report fileproc.Report
	p.opts.Report = &report
	p.calledFor()
	_, err := p.try(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, report.Unchanged)
	require.EqualValues(t, 2, report.Bytes)
	p.write("m/b", "x")
	p.calledFor("m/b")
	p.calledFor()
	require.NoError(t, os.Remove(p.path("m/b")))
	p.calledFor()
	require.Equal(t, []string{"m/b"}, p.gone)

	p.root, p.opts.Report = p.path("m"), &report // and so it does if root is there
	p.calledFor("c.skip")
	p.calledFor()
	_, err = p.try(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, report.Unchanged)
	require.EqualValues(t, 1, report.Bytes)
}
