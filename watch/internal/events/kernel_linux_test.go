package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openFiles returns how many descriptors the process has.
func openFiles(t *testing.T) int {
	t.Helper()
	_, err := os.ReadFile("/proc/self/mountinfo") // the first one makes the runtime's own descriptors
	require.NoError(t, err)
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// leavesNoFile checks that at the end of the test as many descriptors are open as there are now.
func leavesNoFile(t *testing.T) {
	before := openFiles(t)
	t.Cleanup(func() { require.Equal(t, before, openFiles(t), "descriptors") })
}

// kernelWatches returns how many watches the kernel keeps for s.
func kernelWatches(t *testing.T, s *Source) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", s.inotify))
	require.NoError(t, err)
	return strings.Count(string(text), "inotify wd:")
}

// watches returns how many watches s knows of: each is one of the kernel's.
func watches(s *Source) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.way.watches)
	for watch := range s.byWatch {
		all[watch] = true
	}
	return len(all)
}

// knows reports whether s knows the directory rel.
func knows(s *Source, rel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(rel, false) != nil
}

// setPoints replaces the mount points that s knows.
func setPoints(s *Source, points map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.points = points
}

// The mask shows whether a call of addWatch is for a directory on the way to root, or for root itself.
func isStep(mask uint32) bool { return mask&unix.IN_MOVED_TO != 0 && mask&unix.IN_CREATE == 0 }
func isRoot(mask uint32) bool { return mask&unix.IN_MOVED_TO == 0 }

// TestOpenLeavesNothing: Open leaves no descriptor behind if any of its calls fails for want of one.
func TestOpenLeavesNothing(t *testing.T) {
	leavesNoFile(t)
	dir := t.TempDir()
	testtree.Make(t, dir, "one/root/")
	testtree.Symlink(t, dir+"/one", dir+"/link")
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	first, err := unix.Dup(0)
	require.NoError(t, err)
	require.NoError(t, unix.Close(first))
	before, failed := openFiles(t), map[string]bool{}
	for more := 0; ; more++ {
		few := was
		few.Cur = uint64(first + more)
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
		s, err := Open(dir + "/link/root")
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
		if err == nil {
			require.NoError(t, s.Close())
			break
		}
		require.Nil(t, s)
		require.ErrorIs(t, err, unix.EMFILE)
		failed[err.Error()] = true
		isCall := strings.Contains(err.Error(), "inotify_init1") || strings.Contains(err.Error(), "eventfd") || strings.Contains(err.Error(), "mountinfo")
		require.Equal(t, isCall, errors.Is(err, ErrUnsupported), "%v", err)
		require.Equal(t, before, openFiles(t), "%v", err)
	}
	require.GreaterOrEqual(t, len(failed), 5, "%v", failed)
}

// TestNoWatch: the error of Add tells whether the limit of watches is reached, or names the directory and what is wrong. Add then sets no watch.
func TestNoWatch(t *testing.T) {
	var refused error
	k := system()
	k.addWatch = func(fd int, name string, mask uint32) (int, error) {
		if refused != nil {
			return -1, refused
		}
		return unix.InotifyAddWatch(fd, name, mask)
	}
	root := t.TempDir()
	testtree.Make(t, root, "d/", "f=1")
	s := openThis(t, root, k)
	for _, refused = range []error{unix.ENOSPC, unix.ENOMEM} {
		err := s.Add("d")
		require.ErrorIs(t, err, ErrLimit)
		require.ErrorIs(t, err, refused)
	}
	refused = unix.EACCES
	err := s.Add("d")
	var e *fs.PathError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.NotErrorIs(t, err, ErrLimit)
	require.Equal(t, fs.PathError{Op: "inotify_add_watch", Path: root + "/d", Err: unix.EACCES}, *e)
	require.False(t, knows(s, "d"))
	refused = nil
	require.ErrorIs(t, s.Add("none"), fs.ErrNotExist)
	require.ErrorIs(t, s.Add("f"), unix.ENOTDIR)
	require.ErrorAs(t, s.Add(strings.Repeat("none/", 1000)+"none"), &e)
	require.Equal(t, unix.ENOENT, e.Err)
	require.Equal(t, "openat", e.Op)
	require.NoError(t, s.Add("d"))
	require.Equal(t, watches(s), kernelWatches(t, s))
}

// openThis is Open with the kernel k. The end of the test closes the source.
func openThis(t *testing.T, root string, k kernel) *Source {
	t.Helper()
	s, err := openWith(root, k)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// closedAbove returns how many directories above dir this user may search, but not read: they get no watch.
func closedAbove(dir string) (n int) {
	for dir != "/" {
		if dir = filepath.Dir(dir); unix.Access(dir, unix.R_OK) != nil {
			n++
		}
	}
	return n
}

// TestWayIsBlind: a directory on the way to root may get no watch for lack of permission or at the limit, or be on a file system that does not
// tell of all changes. If that is true of root itself, or another call fails, Open fails.
func TestWayIsBlind(t *testing.T) {
	root := t.TempDir()
	no := errors.New("no")
	for name, tc := range map[string]struct {
		step, root error // of addWatch
		keeps      func(name string) bool
		blind      bool
		want       error
	}{
		"well":                        {},
		"permission":                  {step: unix.EACCES, blind: true},
		"limit":                       {step: unix.ENOSPC, blind: true},
		"another error":               {step: no, want: no},
		"no permission to watch root": {root: unix.EACCES, want: unix.EACCES},
		"no watch for root":           {root: unix.ENOSPC, want: ErrLimit},
		"way on another file system":  {keeps: func(name string) bool { return name == root }, blind: true},
		"root on another file system": {keeps: func(name string) bool { return name != root }, want: ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			leavesNoFile(t)
			k := system()
			k.addWatch = func(fd int, name string, mask uint32) (int, error) {
				switch {
				case isStep(mask) && tc.step != nil:
					return -1, tc.step
				case isRoot(mask) && tc.root != nil:
					return -1, tc.root
				}
				return unix.InotifyAddWatch(fd, name, mask)
			}
			k.keepsTimes = func(name string) (bool, error) {
				if real, err := os.Readlink(name); err == nil {
					name = real
				}
				return tc.keeps == nil || tc.keeps(name), nil
			}
			s, err := openWith(root, k)
			if tc.want != nil {
				require.ErrorIs(t, err, tc.want)
				require.Equal(t, tc.want == ErrUnsupported, errors.Is(err, ErrUnsupported))
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.blind || closedAbove(root) > 0, s.way.blind)
			require.Equal(t, watches(s), kernelWatches(t, s))
			require.NoError(t, s.Close())
		})
	}
}

// TestRootChangesDuringOpen: Open fails if root is another directory, or gone, by the time when it has its watch.
func TestRootChangesDuringOpen(t *testing.T) {
	for name, again := range map[string]bool{"another": true, "gone": false} {
		t.Run(name, func(t *testing.T) {
			leavesNoFile(t)
			root := filepath.Join(t.TempDir(), "root")
			require.NoError(t, os.Mkdir(root, 0o755))
			k := system()
			k.addWatch = func(fd int, name string, mask uint32) (int, error) {
				if isRoot(mask) {
					require.NoError(t, os.Rename(root, root+".away"))
					if again {
						require.NoError(t, os.Mkdir(root, 0o755))
					}
				}
				return unix.InotifyAddWatch(fd, name, mask)
			}
			_, err := openWith(root, k)
			require.Equal(t, again, errors.Is(err, ErrUnsupported))
			require.Equal(t, !again, errors.Is(err, fs.ErrNotExist))
			if e := (*fs.PathError)(nil); errors.As(err, &e) {
				require.Equal(t, fs.PathError{Op: "stat", Path: root, Err: unix.ENOENT}, *e)
			}
		})
	}
}

// TestWayFails: if the path does not lead to a directory, Open fails with an error that says where.
func TestWayFails(t *testing.T) {
	leavesNoFile(t)
	dir := t.TempDir()
	testtree.Make(t, dir, "f=1", "d/root/")
	testtree.Symlink(t, "loop", dir+"/loop")
	testtree.Symlink(t, "d", dir+"/link0")
	for i := range maxLinks {
		testtree.Symlink(t, fmt.Sprint("link", i), fmt.Sprint(dir, "/link", i+1))
	}
	for rel, want := range map[string]error{
		"none": unix.ENOENT, "none/none": unix.ENOENT, "f": unix.ENOTDIR, "f/root": unix.ENOTDIR, "loop": unix.ELOOP, "d/none": unix.ENOENT,
		fmt.Sprintf("link%d/root", maxLinks): unix.ELOOP, // one more than Linux follows
	} {
		_, err := Open(dir + "/" + rel)
		require.ErrorIs(t, err, want, rel)
		var e *fs.PathError
		require.ErrorAs(t, err, &e)
		require.NotEmpty(t, e.Path)
		if want == unix.ELOOP {
			require.Equal(t, dir+"/"+rel, e.Path)
		}
	}
	s, err := Open(dir + fmt.Sprintf("/.//link%d/./", maxLinks-1) + "root/")
	require.NoError(t, err)
	require.Len(t, s.way.steps, strings.Count(dir, "/")+maxLinks+2-closedAbove(dir))
	require.NoError(t, s.Close())
}

// TestLongRoot: if root's path without links is longer than a path may be, there are no events: nobody could say what is mounted below root.
func TestLongRoot(t *testing.T) {
	leavesNoFile(t)
	dir, part := t.TempDir(), strings.Repeat(strings.Repeat("n", 200)+"/", 10)
	for i, at := range []string{"", "link0/", "link1/"} {
		require.NoError(t, os.MkdirAll(dir+"/"+at+part, 0o755))
		testtree.Symlink(t, at+part, fmt.Sprint(dir, "/link", i))
	}
	s, err := Open(dir + "/link0")
	require.NoError(t, errors.Join(err, s.Close()))
	_, err = Open(dir + "/link2")
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorIs(t, err, unix.ENAMETOOLONG)
}

// TestWaysDiffer: two ways differ if their steps, their root or blind differ.
func TestWaysDiffer(t *testing.T) {
	newWay := func() *way {
		return &way{steps: map[step]bool{{1, "a"}: true}, watches: map[int32]bool{1: true}, root: 2}
	}
	require.True(t, newWay().equal(newWay()))
	for i, change := range []func(w *way){
		func(w *way) { w.steps[step{1, "b"}] = true }, func(w *way) { w.root++ }, func(w *way) { w.blind = true },
	} {
		w := newWay()
		change(w)
		require.False(t, w.equal(newWay()), i)
	}
}

// TestMountPoints: mountinfo tells of the mounts at and below root. Those above root count as mounts at root.
func TestMountPoints(t *testing.T) {
	text := strings.Join([]string{
		"1 0 8:1 / / rw - ext4 /dev/a rw", "2 1 8:2 / /r rw - ext4", "3 2 8:3 /x /r/oot rw", "4 3 8:4 / /r/oot/a\\040b/c rw", "5 3 8:5 / /r/oot2 rw",
		"6 3 8:6 / /else rw", "7 3 8:7 /", "", "8 3 8:8 /y /r/oot/d", "9 8 8:9 / /r/oot/d rw",
	}, "\n")
	require.Equal(t, map[string]string{
		".": "1[8:1 /]" + "2[8:2 /]" + "3[8:3 /x]", "a b/c": "4[8:4 /]", "d": "8[8:8 /y]" + "9[8:9 /]",
	}, pointsIn(text, "/r/oot"))
	require.Empty(t, pointsIn("6 3 8:6 / not/absolute rw\n", "/r"))
	for escaped, want := range map[string]string{
		`a\040b`: "a b", `\134\011\012`: "\\\t\n", `\377`: "\xff", `\400`: `\400`, `\777`: `\777`, `\000`: `\000`, `\04`: `\04`, `a\`: `a\`, `\001`: "\x01",
	} {
		require.Equal(t, want, unescape(escaped))
	}
}

// TestMountsAreTold: a mount that comes, goes or is replaced gives a hint about all below it. One that stays gives none.
func TestMountsAreTold(t *testing.T) {
	s, _ := open(t)
	s.mu.Lock()
	real := maps.Clone(s.points)
	s.mu.Unlock()
	for name, tc := range map[string]struct {
		was  map[string]string
		want []string
	}{
		"unmounted":  {map[string]string{"a": "1", "b/c": "2"}, []string{"a/", "b/c/"}},
		"nothing":    {nil, nil},
		"above root": {map[string]string{".": "another"}, []string{"./"}},
	} {
		was := maps.Clone(real)
		maps.Copy(was, tc.was)
		setPoints(s, was)
		require.Equal(t, tc.want, take(t, s), name)
		require.Empty(t, take(t, s), name)
	}
	setPoints(s, map[string]string{})
	require.Equal(t, []string{"./"}, take(t, s), "mounted")
}

// TestMountWithoutEvents: Add checks whether the file system tells of all changes for mount points below root, and for no other directory.
func TestMountWithoutEvents(t *testing.T) {
	k := system()
	k.poll = func(fds []unix.PollFd, timeout int) (int, error) { return unix.Poll(fds[:2], timeout) } // without what others mount
	asked, keeps, fails := []string{}, true, error(nil)
	root := t.TempDir()
	testtree.Make(t, root, "d/", "e/")
	k.keepsTimes = func(name string) (bool, error) {
		asked = append(asked, name)
		return keeps, fails
	}
	s := openThis(t, root, k)
	asked = nil
	setPoints(s, map[string]string{"d": "x"})
	require.NoError(t, s.Add("."))
	require.NoError(t, s.Add("e"))
	require.NoError(t, s.Add("d"))
	require.True(t, knows(s, "d"))
	require.Equal(t, []string{root + "/d"}, asked)
	s.Drop("d")
	fails = unix.EIO
	require.ErrorIs(t, s.Add("d"), unix.EIO)
	keeps, fails = false, nil
	err := s.Add("d")
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, root+"/d")
	require.False(t, knows(s, "d"))
}

// TestDroppedRoot: a Drop of root, which is on the way, leaves the kernel's watch of root.
func TestDroppedRoot(t *testing.T) {
	s, root := open(t, "d")
	n := kernelWatches(t, s)
	s.Drop("d")
	require.Equal(t, n-1, kernelWatches(t, s))
	s.Drop(".")
	require.Equal(t, n-1, kernelWatches(t, s))
	require.Equal(t, n-1, watches(s))
	require.NoError(t, os.Remove(root+"/d"))
	told(s)
	require.False(t, s.Moved())
	require.NoError(t, os.Rename(root, root+".away"))
	require.NoError(t, os.Rename(root+".away", root))
	require.Equal(t, []Hint{{".", true}}, told(s))
	require.True(t, s.Moved())
}

// TestOtherDirectory: if a directory has replaced a watched one, Add watches the new one and ends the watch of the other.
func TestOtherDirectory(t *testing.T) {
	s, root := open(t, "d", "e")
	s.reading.Lock() // no event is read
	require.NoError(t, os.Rename(root+"/d", filepath.Join(t.TempDir(), "away")))
	require.NoError(t, os.Mkdir(root+"/d", 0o755))
	n := kernelWatches(t, s)
	require.NoError(t, s.Add("d"))
	require.Equal(t, n, kernelWatches(t, s))
	for range 2 {
		require.NoError(t, s.Add("d"))
		require.NoError(t, s.Add("."))
	}
	s.reading.Unlock()
	take(t, s)
	require.NoError(t, s.Add("d"))
	require.NoError(t, os.WriteFile(root+"/d/f", nil, 0o644))
	require.Equal(t, []string{"d/f"}, take(t, s))
	require.Equal(t, watches(s), kernelWatches(t, s))
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Nil(t, s.find("d", false).twin)
}

// TestAddedTwice: Add of a directory that is watched leaves its watch as it is.
func TestAddedTwice(t *testing.T) {
	s, root := open(t, "d")
	n := kernelWatches(t, s)
	for range 2 {
		require.NoError(t, s.Add("d"))
		require.NoError(t, s.Add("."))
		require.Equal(t, n, kernelWatches(t, s))
		require.Empty(t, take(t, s))
		require.NoError(t, os.WriteFile(root+"/d/f", nil, 0o644))
		require.Equal(t, []string{"d/f"}, take(t, s))
	}
}

// TestBehindLink: a directory to which only a link leads is watched by the path of the link.
func TestBehindLink(t *testing.T) {
	leavesNoFile(t)
	s, root := open(t)
	outside := t.TempDir()
	testtree.Symlink(t, outside, root+"/l")
	take(t, s)
	require.NoError(t, s.Add("l"))
	require.NoError(t, s.Add("l"))
	require.NoError(t, os.WriteFile(outside+"/f", nil, 0o644))
	require.Equal(t, []string{"l/f"}, take(t, s))
	require.False(t, s.isBehindLink("gone", root+"/gone"))
}

// TestRemovedDirectories: the source keeps nothing of directories that are gone, even if no directory above them was watched.
func TestRemovedDirectories(t *testing.T) {
	root := t.TempDir()
	testtree.Make(t, root, "a/b/c/", "a/b/d/")
	s := openThis(t, root, system())
	require.NoError(t, s.Add("a/b/c"))
	require.NoError(t, os.Chmod(root+"/a/b/c", 0o700)) // a single event without a name
	require.Equal(t, []string{"a/b/c/"}, take(t, s))
	require.NoError(t, s.Add("a/b/d"))
	s.mu.Lock()
	n := len(s.way.watches)
	s.mu.Unlock()
	require.NoError(t, os.Remove(root+"/a/b/c"))
	require.Equal(t, []string{"a/b/c/"}, take(t, s))
	require.False(t, knows(s, "a/b/c"))
	require.True(t, knows(s, "a/b/d"))
	require.NoError(t, os.RemoveAll(root+"/a"))
	require.Equal(t, []string{"a/b/d/"}, take(t, s))
	require.False(t, knows(s, "a"))
	require.Equal(t, n, watches(s))
	require.NoError(t, os.Remove(root))
	require.Equal(t, []string{"./"}, take(t, s))
	require.True(t, s.Moved())
	require.Equal(t, n-1, watches(s))
	require.Equal(t, n-1, kernelWatches(t, s))
}

// TestEvents: each event of the kernel gives the right hints.
func TestEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		of    string // the directory with the watch, "" for none
		mask  uint32
		name  string
		want  []string
		moved bool
	}{
		"write":                      {"d", unix.IN_MODIFY, "f", []string{"d/f"}, false},
		"file is moved":              {"d", unix.IN_MOVED_FROM, "e", []string{"d/e"}, false},
		"directory comes":            {"d", unix.IN_CREATE | unix.IN_ISDIR, "n", []string{"d/n/"}, false},
		"mode of a directory":        {"d", unix.IN_ATTRIB | unix.IN_ISDIR, "e", []string{"d/e/"}, false},
		"mode of its own":            {"d", unix.IN_ATTRIB | unix.IN_ISDIR, "", []string{"d/"}, false},
		"it is gone":                 {"d/e", unix.IN_DELETE_SELF, "", []string{"d/e/"}, false},
		"it has moved":               {"d/e", unix.IN_MOVE_SELF, "", []string{"d/e/"}, false},
		"it is unmounted":            {"d/e", unix.IN_UNMOUNT, "", []string{"d/e/"}, false},
		"its watch has ended":        {"d/e", unix.IN_IGNORED, "", nil, false},
		"root has moved":             {".", unix.IN_MOVE_SELF, "", []string{"./"}, true},
		"root is unmounted":          {".", unix.IN_UNMOUNT, "", []string{"./"}, true},
		"root's watch has ended":     {".", unix.IN_IGNORED, "", []string{"./"}, true},
		"an old watch":               {"", unix.IN_MODIFY, "f", nil, false},
		"overflow":                   {"", unix.IN_Q_OVERFLOW, "", []string{"./"}, false},
		"overflow that has a watch":  {"d", unix.IN_Q_OVERFLOW, "f", []string{"./"}, false},
		"a name that is on no way":   {".", unix.IN_MOVED_TO, "d", []string{"d"}, false},
		"mode of root by its own":    {".", unix.IN_ATTRIB | unix.IN_ISDIR, "", []string{"./"}, false},
		"directory is moved":         {"d", unix.IN_MOVED_FROM | unix.IN_ISDIR, "e", []string{"d/e/"}, false},
		"directory comes to a place": {"d", unix.IN_MOVED_TO | unix.IN_ISDIR, "e", []string{"d/e/"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := open(t, "d", "d/e")
			watch := int32(1 << 20)
			if tc.of != "" {
				watch = s.find(tc.of, false).watch
			}
			s.event(watch, tc.mask, tc.name)
			var got []string
			for _, h := range s.Take() {
				got = append(got, h.Rel+map[bool]string{true: "/"}[h.Tree])
			}
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.moved, s.Moved())
			isKept := !(name == "its watch has ended" || name == "directory is moved")
			require.Equal(t, isKept, knows(s, "d/e"))
		})
	}
}

// TestPathsAtTheLimit: directories with paths of the length that the kernel accepts, and a byte longer, are watched, and leave no descriptor.
func TestPathsAtTheLimit(t *testing.T) {
	leavesNoFile(t)
	root := t.TempDir()
	s := openThis(t, root, system())
	inRoot := unix.PathMax - len(root) - 1 // of a path with root that is too long, with its NUL byte
	for _, length := range []int{inRoot - 1, inRoot, inRoot + 1, unix.PathMax - 1, unix.PathMax, unix.PathMax + 1} {
		part := strings.Repeat("n", 99) + "/"
		rel := strings.Repeat(part, length/100-1)
		rel += strings.Repeat("m", length-len(rel))
		r, err := os.OpenRoot(root)
		require.NoError(t, err)
		require.NoError(t, r.MkdirAll(rel, 0o755))
		require.NoError(t, s.Add(rel))
		take(t, s)
		require.NoError(t, r.WriteFile(rel+"/f", nil, 0o644))
		require.NoError(t, r.Close())
		require.Equal(t, []string{rel + "/f"}, take(t, s), length)
	}
}

// inBubble runs a test in virtual time. A poll there returns as soon as something is to be read.
func inBubble(t *testing.T, test func(t *testing.T, k kernel)) {
	synctest.Test(t, func(t *testing.T) {
		k := system()
		k.poll = func(fds []unix.PollFd, timeout int) (int, error) {
			for end := time.Now().Add(time.Duration(timeout) * time.Millisecond); ; time.Sleep(time.Millisecond) {
				n, err := unix.Poll(fds, 0)
				if err == unix.EINTR {
					continue
				}
				if n != 0 || err != nil || timeout >= 0 && !time.Now().Before(end) {
					return n, err
				}
			}
		}
		test(t, k)
	})
}

// TestReads: hints come without Sync. While nothing happens, a source makes no call.
func TestReads(t *testing.T) {
	inBubble(t, func(t *testing.T, k kernel) {
		var polls, reads, adds atomic.Int64
		poll, read := k.poll, k.read
		k.addWatch = func(fd int, name string, mask uint32) (int, error) {
			adds.Add(1)
			step := isStep(mask)
			if step {
				mask &^= ofNames // what others do beside the test's directory costs a read
			}
			watch, err := unix.InotifyAddWatch(fd, name, mask)
			if err == unix.EACCES && step { // a directory above that this user may only search
				return 1<<30 + int(adds.Load()), nil
			}
			return watch, err
		}
		k.poll = func(fds []unix.PollFd, timeout int) (int, error) {
			polls.Add(1)
			require.Equal(t, -1, timeout)
			return poll(fds[:2], timeout) // without what others mount
		}
		k.read = func(fd int, b []byte) (int, error) { reads.Add(1); return read(fd, b) }
		root := t.TempDir()
		s := openThis(t, root, k)
		require.NoError(t, s.Add("."))
		adds.Store(0)
		time.Sleep(time.Minute)
		require.Equal(t, [2]int64{1, 0}, [2]int64{polls.Load(), reads.Load()})
		require.NoError(t, os.Mkdir(root+"/d", 0o755))
		time.Sleep(time.Second)
		<-s.Ready()
		require.Equal(t, []Hint{{"d", true}}, s.Take())
		require.Equal(t, [2]int64{2, 2}, [2]int64{polls.Load(), reads.Load()})
		require.Zero(t, adds.Load(), "the way is not looked at")
	})
}

// TestMountsWithoutSync: the source tells once, without Sync, of a mount and of an unmount, and not of the system's other mounts.
func TestMountsWithoutSync(t *testing.T) {
	inBubble(t, func(t *testing.T, k kernel) {
		root := t.TempDir()
		testtree.Make(t, root, "a/", "b/")
		s := openThis(t, root, k)
		require.NoError(t, s.Add("."))
		bind(t, root+"/a", root+"/b")
		time.Sleep(time.Second)
		require.Equal(t, []Hint{{"b", true}}, s.Take())
		require.NoError(t, unix.Unmount(root+"/b", unix.MNT_DETACH))
		time.Sleep(time.Second)
		require.Equal(t, []Hint{{"b", true}}, s.Take())
		require.False(t, s.Moved())
		time.Sleep(time.Minute)
		require.Empty(t, s.Take())
	})
}

// TestBlindLooks: where no event tells of changes on the way to root, the source checks the way each second, also while events keep coming. It
// tells of a change once.
func TestBlindLooks(t *testing.T) {
	for _, busy := range []bool{false, true} {
		inBubble(t, func(t *testing.T, k kernel) {
			leavesNoFile(t)
			var polls, looks atomic.Int64
			poll := k.poll
			k.poll = func(fds []unix.PollFd, timeout int) (int, error) {
				polls.Add(1)
				require.Positive(t, timeout)
				require.LessOrEqual(t, timeout, 1001)
				return poll(fds, timeout)
			}
			k.addWatch = func(fd int, name string, mask uint32) (int, error) {
				if isStep(mask) {
					return -1, unix.EACCES
				}
				if isRoot(mask) {
					looks.Add(1)
				}
				return unix.InotifyAddWatch(fd, name, mask&^(unix.IN_MOVE_SELF|unix.IN_DELETE_SELF)|unix.IN_ATTRIB)
			}
			above := t.TempDir() + "/above"
			root := above + "/root"
			require.NoError(t, os.MkdirAll(root, 0o755))
			s := openThis(t, root, k)
			require.NoError(t, s.Add("."))
			for range 100 {
				if time.Sleep(100 * time.Millisecond); busy {
					require.NoError(t, os.WriteFile(root+"/f", nil, 0o644))
				}
			}
			s.Take()
			require.InDelta(t, 11, looks.Load(), 1)
			require.True(t, busy || polls.Load() <= 12, polls.Load())
			require.False(t, s.Moved())
			require.NoError(t, os.Rename(above, above+".away"))
			require.NoError(t, os.MkdirAll(root, 0o755))
			for i := range 11 {
				require.False(t, s.Moved() && i == 0)
				time.Sleep(100 * time.Millisecond)
				if busy {
					require.NoError(t, os.WriteFile(above+".away/root/f", nil, 0o644))
				}
			}
			require.True(t, s.Moved())
			require.Contains(t, s.Take(), Hint{".", true})
			time.Sleep(10 * time.Second)
			require.NotContains(t, s.Take(), Hint{".", true}, "it has said so")
		})
	}
}

// TestInterrupted: a signal during a call makes no difference. The source stops reading when a read returns nothing.
func TestInterrupted(t *testing.T) {
	inBubble(t, func(t *testing.T, k kernel) {
		poll, read := k.poll, k.read
		polls := 0
		var interrupts atomic.Bool // the next read
		k.poll = func(fds []unix.PollFd, timeout int) (int, error) {
			if polls++; polls%2 == 1 {
				return -1, unix.EINTR
			}
			return poll(fds, timeout)
		}
		k.read = func(fd int, b []byte) (int, error) {
			if interrupts.CompareAndSwap(true, false) {
				return -1, unix.EINTR
			}
			return read(fd, b)
		}
		k.addWatch = func(fd int, name string, mask uint32) (int, error) {
			if isStep(mask) {
				mask &^= ofNames // the test alone gives something to read
			}
			return unix.InotifyAddWatch(fd, name, mask)
		}
		root := t.TempDir()
		s := openThis(t, root, k)
		require.NoError(t, s.Add("."))
		synctest.Wait() // the source waits, and does not read first
		require.NoError(t, os.Mkdir(root+"/d", 0o755))
		interrupts.Store(true)
		require.Equal(t, []Hint{{"d", true}}, told(s))
		require.False(t, interrupts.Load())
		require.NoError(t, os.Mkdir(root+"/e", 0o755))
		time.Sleep(time.Second)
		require.Equal(t, []Hint{{"e", true}}, s.Take())
		require.False(t, s.Moved())
	})
	s, _ := open(t)
	event, err := binary.Append(nil, binary.NativeEndian, unix.InotifyEvent{Wd: -1, Mask: unix.IN_Q_OVERFLOW}) // it has no name, and may come alone
	require.NoError(t, err)
	s.reading.Lock()
	s.kernel.read = func(_ int, b []byte) (n int, _ error) {
		n, event = copy(b, event), nil
		return n, nil
	}
	s.reading.Unlock()
	require.Equal(t, []Hint{{".", true}}, told(s))
	require.Empty(t, told(s))
}

// TestPollFails: a source that cannot wait for events any more says that it has moved, so that another one is opened, and can be closed.
func TestPollFails(t *testing.T) {
	inBubble(t, func(t *testing.T, k kernel) {
		k.poll = func([]unix.PollFd, int) (int, error) { return -1, unix.ENOMEM }
		s := openThis(t, t.TempDir(), k)
		<-s.Ready()
		<-s.done
		require.Equal(t, []Hint{{".", true}}, s.Take())
		require.True(t, s.Moved())
	})
}
