package events

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMovedDirectoryHasItsNewPath: the watches below a directory that has moved are gone, and what is added anew has the new path.
func TestMovedDirectoryHasItsNewPath(t *testing.T) {
	s, root := open(t, "d", "d/e", "o")
	require.NoError(t, os.Rename(filepath.Join(root, "d"), filepath.Join(root, "o", "d")))
	require.Equal(t, []string{"d/", "o/d/"}, take(t, s))
	require.Len(t, s.byWatch, 2, "root and o")
	require.Nil(t, s.find("d", false))
	require.NoError(t, s.Add("o/d"))
	require.NoError(t, s.Add("o/d/e"))
	require.NoError(t, os.WriteFile(filepath.Join(root, "o", "d", "e", "f"), nil, 0o644))
	require.Equal(t, []string{"o/d/e/f"}, take(t, s))
}

// TestAddBeforeTheMoveIsSeen: a listing may find a directory at its new place before the event of its move is read.
func TestAddBeforeTheMoveIsSeen(t *testing.T) {
	s, root := open(t, "d", "d/e")
	s.reading.Lock() // no event is read
	require.NoError(t, os.Rename(filepath.Join(root, "d"), filepath.Join(root, "n")))
	require.NoError(t, s.Add("n"))
	require.NoError(t, s.Add("n/e"))
	s.reading.Unlock()
	require.Equal(t, []string{"d/", "n/"}, take(t, s))
	require.NoError(t, os.WriteFile(filepath.Join(root, "n", "e", "f"), nil, 0o644))
	require.Equal(t, []string{"n/e/f"}, take(t, s))
}

// TestLinkTakesAWatch: Add of a directory whose place a link has taken gets the watch of what that leads to, which is hinted at.
func TestLinkTakesAWatch(t *testing.T) {
	s, root := open(t, "d", "g")
	s.reading.Lock() // no event is read
	require.NoError(t, os.Remove(filepath.Join(root, "d")))
	require.NoError(t, os.Symlink("g", filepath.Join(root, "d")))
	require.NoError(t, s.Add("d"))
	s.reading.Unlock()
	require.Equal(t, []string{"d/", "g/"}, take(t, s))
	require.NoError(t, s.Add("g"))
	require.NoError(t, os.WriteFile(filepath.Join(root, "g", "f"), nil, 0o644))
	require.Contains(t, take(t, s), "g/f")
}

// TestDropForgets: what is dropped gives no hint and takes no memory, and the rest goes on.
func TestDropForgets(t *testing.T) {
	s, root := open(t, "d", "d/e", "d/e/f", "g")
	s.Drop("d/e")
	s.Drop("none/at/all")
	require.NoError(t, os.WriteFile(filepath.Join(root, "d", "e", "x"), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(root, "d", "x"), nil, 0o644))
	require.Equal(t, []string{"d/x"}, take(t, s))
	require.Nil(t, s.find("d/e", false))
	for i := range 100 {
		name := filepath.Join(root, "g", strconv.Itoa(i))
		require.NoError(t, os.Mkdir(name, 0o755))
		require.NoError(t, s.Add("g/"+strconv.Itoa(i)))
		require.NoError(t, os.Remove(name))
	}
	take(t, s)
	require.Len(t, s.byWatch, 3, "root, d and g")
	require.Empty(t, s.find("g", false).subs)
}

// TestOverflow: when the kernel's queue is full, everything may have changed.
func TestOverflow(t *testing.T) {
	s, root := open(t, "d")
	s.reading.Lock()
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	require.NoError(t, err)
	n, err := strconv.Atoi(string(limit[:len(limit)-1]))
	require.NoError(t, err)
	a, b := filepath.Join(root, "d", "a"), filepath.Join(root, "d", "b")
	require.NoError(t, os.WriteFile(a, nil, 0o644))
	for range n/4 + 1 { // two events each
		require.NoError(t, os.Rename(a, b))
		require.NoError(t, os.Rename(b, a))
	}
	s.reading.Unlock()
	require.Equal(t, []string{"./"}, take(t, s))
	require.False(t, s.Moved())
	require.NoError(t, os.Remove(a))
	require.Equal(t, []string{"d/a"}, take(t, s))
}

// TestRootMoves: a root that is moved, removed or replaced, by itself or with a directory above, or through its own link, is told of.
func TestRootMoves(t *testing.T) {
	for name, do := range map[string]func(above, root string) error{
		"root":   func(above, root string) error { return os.Rename(root, root+".away") },
		"above":  func(above, root string) error { return os.Rename(above, above+".away") },
		"remove": func(above, root string) error { return os.Remove(root) },
		"link": func(above, root string) error {
			if err := os.Symlink(above, root+".new"); err != nil {
				return err
			}
			return os.Rename(root+".new", filepath.Join(filepath.Dir(above), "link"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			above := filepath.Join(t.TempDir(), "above")
			root := filepath.Join(above, "root")
			require.NoError(t, os.MkdirAll(root, 0o755))
			link := filepath.Join(filepath.Dir(above), "link")
			testtree.Symlink(t, root, link)
			s, err := Open(link)
			require.NoError(t, err)
			defer s.Close()
			require.NoError(t, s.Add("."))
			require.Empty(t, take(t, s))
			require.NoError(t, os.WriteFile(filepath.Join(above, "beside"), nil, 0o644))
			require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(above), "beside"), nil, 0o644))
			require.Empty(t, take(t, s), "what is not below root")
			require.NoError(t, os.WriteFile(filepath.Join(root, "x"), nil, 0o644))
			require.Equal(t, []string{"x"}, take(t, s))
			require.NoError(t, os.Remove(filepath.Join(root, "x")))
			take(t, s)
			require.False(t, s.Moved())
			require.NoError(t, do(above, root))
			require.Equal(t, []string{"./"}, take(t, s))
			require.True(t, s.Moved())
		})
	}
}

// TestRootIsReplacedBeforeAdd: the first watch of root may be of another directory than that which tells when it moves. No event is needed.
func TestRootIsReplacedBeforeAdd(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.Mkdir(root, 0o755))
	s, err := Open(root)
	require.NoError(t, err)
	defer s.Close()
	s.reading.Lock()
	defer s.reading.Unlock()
	require.NoError(t, s.Add("."))
	require.False(t, s.Moved())
	require.NoError(t, os.Rename(root, root+".away"))
	require.ErrorIs(t, s.Add("."), os.ErrNotExist)
	require.NoError(t, os.Mkdir(root, 0o755))
	require.NoError(t, s.Add("."))
	require.True(t, s.Moved())
	require.Equal(t, []Hint{{".", true}}, s.Take())
}

// TestMounts: what is mounted over a directory, and unmounted again, is told of. Mounts elsewhere are not.
func TestMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	s, root := open(t, "a b", "o")
	mount := func(dir string) {
		t.Helper()
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			t.Skip("this system does not let root mount: ", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	elsewhere := t.TempDir()
	mount(elsewhere)
	require.Empty(t, take(t, s))
	dir := filepath.Join(root, "a b")
	mount(dir)
	require.Equal(t, []string{"a b/"}, take(t, s))
	require.NoError(t, s.Add("a b"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o644))
	require.Equal(t, []string{"a b/x"}, take(t, s))
	require.NoError(t, os.Remove(filepath.Join(dir, "x")))
	take(t, s)
	require.NoError(t, unix.Unmount(dir, 0))
	for hints := []Hint(nil); len(hints) == 0; hints = s.Take() {
		<-s.Ready() // without Sync
	}
}

// TestNothingIsLeft: Close closes what Open has opened, and ends its goroutine.
func TestNothingIsLeft(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	before := count()
	for range 10 {
		s, err := Open(t.TempDir())
		require.NoError(t, err)
		require.NoError(t, s.Add("."))
		require.NoError(t, s.Close())
		<-s.done
	}
	require.Equal(t, before, count())
}
