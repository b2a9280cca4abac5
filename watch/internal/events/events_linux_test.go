package events

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMovedDirectoryHasItsNewPath: the watches below a moved directory are gone. Directories that are added again have the new path.
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

// TestLinkTakesNoWatch: if a link has replaced a directory, Add of that directory leaves the watch of the link's target at the target's path.
func TestLinkTakesNoWatch(t *testing.T) {
	leavesNoFile(t)
	s, root := open(t, "d", "d/e", "g", "g/e")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "d")))
	require.NoError(t, os.Symlink("g", filepath.Join(root, "d")))
	take(t, s)
	require.NoError(t, s.Add("d"))
	require.NoError(t, s.Add("d/e"))
	require.Empty(t, take(t, s))
	require.NoError(t, os.WriteFile(filepath.Join(root, "g", "f"), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(root, "g", "e", "f"), nil, 0o644))
	require.Equal(t, []string{"g/e/f", "g/f"}, take(t, s))
}

// TestDirectoryHasSeveralPaths: if a mount shows a directory at a second path, an event gives a hint for each path. Add gives no hint.
func TestDirectoryHasSeveralPaths(t *testing.T) {
	s, root := open(t, "d", "d/e", "g")
	bind(t, root, filepath.Join(root, "g"))
	take(t, s)
	for range 2 {
		for _, rel := range []string{".", "d", "d/e", "g", "g/d", "g/d/e"} {
			require.NoError(t, s.Add(rel))
		}
		require.Empty(t, take(t, s))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "d", "e", "f"), nil, 0o644))
	require.Equal(t, []string{"d/e/f", "g/d/e/f"}, take(t, s))
	require.NoError(t, os.RemoveAll(filepath.Join(root, "d", "e")))
	require.Equal(t, []string{"d/e/", "g/d/e/"}, take(t, s))
	s.Drop("g/d")
	require.NoError(t, os.WriteFile(filepath.Join(root, "d", "f"), nil, 0o644))
	require.Equal(t, []string{"d/f"}, take(t, s))
}

// bind mounts the directory from at to until the end of the test.
func bind(t *testing.T, from, to string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		t.Skip("this system does not let root mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
}

// TestDropForgets: a dropped directory gives no hint and takes no memory. Other directories still give hints.
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

// TestRootMoves: the source tells when root is moved, removed or replaced, itself, with a directory above it, or by a change of its link.
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
			require.Equal(t, []Hint{{".", true}}, told(s))
			require.True(t, s.Moved())
		})
	}
}

// told returns the hints of events only. take would also return those of Sync's checks.
func told(s *Source) []Hint {
	s.takeIn()
	return s.Take()
}

// TestWayToRoot: each name on the way to root, through links that lead to links, is watched. In each case root is another directory
// afterwards.
func TestWayToRoot(t *testing.T) {
	remake := func(dir string) error { return errors.Join(os.RemoveAll(dir), os.MkdirAll(dir+"/root", 0o755)) }
	relink := func(target, name string) error {
		return errors.Join(os.Symlink(target, name+".new"), os.Rename(name+".new", name))
	}
	for name, tt := range map[string]struct {
		root string
		do   func() error
	}{
		"removed":               {"one/root", func() error { return remake("one/root") }},
		"above removed":         {"one/root", func() error { return remake("one") }},
		"above replaced":        {"one/root", func() error { return errors.Join(os.Rename("one", "was"), os.Rename("two", "one")) }},
		"exchanged":             {"one/root", func() error { return unix.Renameat2(unix.AT_FDCWD, "one", unix.AT_FDCWD, "two", unix.RENAME_EXCHANGE) }},
		"link above":            {"now/root", func() error { return relink("two", "now") }},
		"link above, removed":   {"now/root", func() error { return errors.Join(os.Remove("now"), os.Symlink("two", "now")) }},
		"target removed":        {"now/root", func() error { return remake("one") }},
		"first of two links":    {"now2/root", func() error { return relink("two", "now2") }},
		"second of two links":   {"now2/root", func() error { return relink("two", "now") }},
		"directory of a link":   {"far/root", func() error { return errors.Join(os.Rename("deep", "was"), os.Rename("deepest", "deep")) }},
		"link behind a link":    {"far/root", func() error { return relink("../../two", "deep/er/now") }},
		"root is a link":        {"conf", func() error { return relink("..2", "..data") }},
		"above the link's root": {"now/../root", func() error { return relink("deepest/er", "now") }},
	} {
		for _, at := range []string{"", "absolute"} {
			t.Run(name+" "+at, func(t *testing.T) {
				dir := t.TempDir()
				testtree.Make(t, dir, "one/root/", "two/root/", "deep/er/", "deepest/er/", "deepest/root/", "..1/conf/", "..2/conf/", "root/")
				for _, link := range []string{"now one", "now2 now", "far deep/er/now", "deep/er/now ../../one", "deepest/er/now ../../two", "..data ..1", "conf ..data/conf"} {
					link, target, _ := strings.Cut(link, " ")
					if at != "" && !strings.HasPrefix(target, "..") {
						target = dir + "/" + target
					}
					testtree.Symlink(t, target, filepath.Join(dir, link))
				}
				t.Chdir(dir)
				root := tt.root
				if at != "" {
					root = dir + "/" + root
				}
				held, err := os.Open(root) // as a shell does that sits there
				require.NoError(t, err)
				defer held.Close()
				s, err := Open(root)
				require.NoError(t, err)
				defer s.Close()
				require.NoError(t, s.Add("."))
				testtree.Make(t, dir, "beside", "one/beside", "two/beside")
				require.NoError(t, os.Remove("beside"))
				require.Empty(t, take(t, s))
				require.False(t, s.Moved())
				require.NoError(t, tt.do())
				require.Equal(t, []Hint{{".", true}}, told(s))
				require.True(t, s.Moved())
				_, err = os.Stat(root)
				require.NoError(t, err, "the case is as it is meant")
			})
		}
	}
}

// TestWayWithoutEvents: where no event tells of changes on the way to root, Sync checks the way, and so does the source now and then.
func TestWayWithoutEvents(t *testing.T) {
	dir := t.TempDir()
	testtree.Make(t, dir, "one/root/", "two/root/")
	for name, tt := range map[string]struct {
		root string
		do   func() error
	}{
		"link of /proc": {"/proc/self/cwd/root", func() error { return os.Chdir(dir + "/two") }},
		"711": {dir + "/one/root", func() error {
			return errors.Join(os.Rename(dir+"/one", dir+"/was"), os.Rename(dir+"/two", dir+"/one"), os.Rename(dir+"/was", dir+"/two"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "711" && os.Getuid() == 0 {
				t.Skip("root may read every directory")
			}
			t.Chdir(dir + "/one")
			for _, name := range []string{dir + "/one", dir + "/two", dir} {
				require.NoError(t, os.Chmod(name, 0o311)) // as 711 is for others
				defer os.Chmod(name, 0o755)
			}
			for _, bySync := range []bool{true, false} {
				inBubble(t, func(t *testing.T, k kernel) {
					s, err := openWith(tt.root, k)
					require.NoError(t, err)
					defer s.Close()
					require.NoError(t, s.Add("."))
					require.Empty(t, take(t, s))
					require.NoError(t, tt.do())
					if bySync {
						require.NoError(t, s.Sync(t.Context()))
					} else {
						time.Sleep(2 * lookEvery)
					}
					require.Equal(t, []Hint{{".", true}}, s.Take())
					require.True(t, s.Moved())
				})
				if name != "711" {
					require.NoError(t, os.Chdir(dir+"/one"))
				}
			}
		})
	}
}

// TestLongPaths: a directory whose path is longer than the kernel accepts is watched as others are.
func TestLongPaths(t *testing.T) {
	leavesNoFile(t)
	s, root := open(t)
	at, err := unix.Open(root, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	rel := ""
	for range 50 {
		name := strings.Repeat("n", 200)
		require.NoError(t, unix.Mkdirat(at, name, 0o755))
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(at))
		at = next
		rel = strings.TrimPrefix(rel+"/"+name, "/")
		require.NoError(t, s.Add(rel))
	}
	take(t, s)
	fd, err := unix.Openat(at, "f", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	require.NoError(t, err)
	require.NoError(t, errors.Join(unix.Close(fd), unix.Close(at)))
	require.Equal(t, []string{rel + "/f"}, take(t, s))
}

// TestRootIsReplacedBeforeAdd: root may be replaced between Open and Add. Add notices that without an event.
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

// TestMounts: the source tells of a mount over a directory, and of its unmount, but not of mounts elsewhere.
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

// TestMountInPlaceOfAnother: the source tells of a mount that replaces another one, also if it sees neither in between.
func TestMountInPlaceOfAnother(t *testing.T) {
	s, root := open(t, "a", "b", "at")
	bind(t, filepath.Join(root, "a"), filepath.Join(root, "at"))
	require.Equal(t, []string{"at/"}, take(t, s))
	s.mu.Lock() // nobody looks
	err := unix.Unmount(filepath.Join(root, "at"), unix.MNT_DETACH)
	if err == nil {
		err = unix.Mount(filepath.Join(root, "b"), filepath.Join(root, "at"), "", unix.MS_BIND, "")
	}
	s.mu.Unlock()
	require.NoError(t, err)
	require.Equal(t, []string{"at/"}, take(t, s))
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
