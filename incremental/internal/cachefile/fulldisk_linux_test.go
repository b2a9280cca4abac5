package cachefile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mount mounts a tmpfs of half a MiB.
func mount(t *testing.T) string {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Skip("mounting needs root: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// A full disk leaves the file as it was, for an append and for a new snapshot, and
// a later save catches up.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := mount(t)
	file := filepath.Join(dir, "cache")
	mustSave(t, mustLoad(t, file), records(0, 1000)...)
	want := asMap(records(0, 1000)...)
	for _, c := range []struct{ add, fill int }{{200, 1 << 20}, {2500, 300 << 10}} { // an append, a new snapshot
		s := mustLoad(t, file)
		for _, rec := range records(1000, 1000+c.add) {
			s.Add(0, rec)
			want[rec.Path] = rec
		}
		fill := filepath.Join(dir, "fill")
		_ = os.WriteFile(fill, make([]byte, c.fill), 0o600) // as far as it goes
		before, err := os.ReadFile(file)
		require.NoError(t, err)
		err = s.save(nil)
		require.ErrorIs(t, err, unix.ENOSPC)
		require.ErrorContains(t, err, s.Path)
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, before, after)
		require.NoFileExists(t, file+tempSuffix)
		require.NoError(t, os.Remove(fill))
		require.NoError(t, s.save(nil))
		require.Equal(t, want, contents(t, mustLoad(t, file)))
	}
}

// TestFailedSaveCloses: a failed save, an append or a new snapshot, leaves no descriptor open and no temporary file, whichever step
// fails. Neither does a save that succeeds, or a load.
func TestFailedSaveCloses(t *testing.T) {
	t.Parallel()
	for name, scenario := range scenarios(t) {
		t.Run(name, func(t *testing.T) {
			for k, failed := 0, true; failed; k++ {
				failed = false
				file := filepath.Join(t.TempDir(), "cache")
				s, _, _ := scenario(file)
				step := 0
				s.hook = func(size int, do func(int) error) error {
					if step++; step-1 == k {
						failed = true
						return unix.EIO
					}
					return do(size)
				}
				if err := s.save(nil); failed {
					require.ErrorIs(t, err, unix.EIO)
				}
				open, err := filepath.Glob("/proc/self/fd/*")
				require.NoError(t, err)
				require.NotEmpty(t, open)
				for _, fd := range open {
					name, _ := os.Readlink(fd)
					require.NotContains(t, name, filepath.Dir(s.Path), "step %d", k)
				}
				left, err := filepath.Glob(file + tempSuffix + "*")
				require.NoError(t, err)
				require.Empty(t, left)
			}
		})
	}
}

// A file system that is mounted read-only serves what is there.
func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	dir := mount(t)
	file := filepath.Join(dir, "cache")
	mustSave(t, mustLoad(t, file), records(0, 10)...)
	require.NoError(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	s := mustLoad(t, file)
	require.Equal(t, asMap(records(0, 10)...), contents(t, s))
	s.Add(0, testRecord(11))
	err := s.save(nil)
	require.ErrorIs(t, err, unix.EROFS)
	require.ErrorContains(t, err, s.Path)
}
