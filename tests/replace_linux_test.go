package fileproc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() {
	tasks["kept"] = keptByReplace
	tasks["other's"] = replaceOthers
	tasks["until killed"] = replaceUntilKilled
	tasks["durable with few descriptors"] = durableWithFewDescriptors
	tasks["durable where nothing can be listed"] = durableUnlisted
}

// acl returns an ACL as an extended attribute: entries of a tag, permissions and a number.
func acl(entries ...[3]uint32) []byte {
	p := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range entries {
		p = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(p, uint16(e[0])), uint16(e[1]))
		p = binary.LittleEndian.AppendUint32(p, e[2])
	}
	return p
}

const aclOfNobody = ^uint32(0)

// plainACL lets user 1234 read.
var plainACL = acl([3]uint32{1, 6, aclOfNobody}, [3]uint32{2, 4, 1234}, [3]uint32{4, 0, aclOfNobody}, [3]uint32{16, 4, aclOfNobody}, [3]uint32{32, 0, aclOfNobody})

// inodeFlags returns the flags of chattr that a file keeps.
func inodeFlags(name string) uint32 {
	f, err := os.Open(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	flags, _ := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	return flags & (0x40 | 0x80 | 0x800000) // d, A, C
}

func setInodeFlags(t *testing.T, name string, flags int) bool {
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	was, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(was)|flags)
	}
	return err == nil
}

// keptByReplace writes one of two equal files in place, and replaces the other: both then have the same.
func keptByReplace(t *testing.T, root string) {
	isRoot := os.Geteuid() == 0
	xattr := func(name string, value []byte) func(string) error {
		return func(file string) error { return unix.Setxattr(file, name, value, 0) }
	}
	mode := func(mode uint32) func(string) error {
		return func(file string) error { return unix.Chmod(file, mode) }
	}
	capability := []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // cap_net_bind_service
	for _, tt := range []struct {
		name  string
		setup []func(string) error
	}{
		{"plain", nil}, {"read-only", []func(string) error{mode(0o444)}}, {"for all", []func(string) error{mode(0o777)}},
		{"setuid", []func(string) error{mode(0o4755)}}, {"setgid", []func(string) error{mode(0o2755)}}, {"all bits", []func(string) error{mode(0o7777)}},
		{"owner", []func(string) error{func(f string) error { return os.Chown(f, 1234, 1235) }, mode(0o6750)}},
		{"attributes", []func(string) error{xattr("user.a", []byte("1")), xattr("user.b", nil), xattr("user.long", bytes.Repeat([]byte("x"), 900))}},
		{"trusted", []func(string) error{xattr("trusted.a", []byte("1"))}},
		{"ACL", []func(string) error{xattr("system.posix_acl_access", plainACL)}},
		{"capability", []func(string) error{xattr("security.capability", capability), mode(0o755)}},
		{"flags", []func(string) error{func(f string) error {
			if !setInodeFlags(t, f, 0x40|0x80) {
				return unix.ENOTTY
			}
			return nil
		}}},
	} {
		for _, inherits := range []string{"", "default ACL", "setgid directory"} {
			for _, content := range []string{"new content", ""} {
				t.Run(fmt.Sprintf("%s, %s, %d bytes", tt.name, inherits, len(content)), func(t *testing.T) {
					dir, err := os.MkdirTemp(root, "kept") // root is on the file system that the test is about
					require.NoError(t, err)
					a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
					for _, name := range []string{a, b} {
						require.NoError(t, os.WriteFile(name, []byte("old"), 0o644))
						for _, do := range tt.setup {
							if err := do(name); err != nil {
								t.Skip("left out: ", err)
							}
						}
					}
					switch inherits {
					case "default ACL":
						if err := unix.Setxattr(dir, "system.posix_acl_default", plainACL, 0); err != nil {
							t.Skip("left out: ", err)
						}
					case "setgid directory":
						if isRoot {
							require.NoError(t, os.Chown(dir, -1, 4321))
						}
						require.NoError(t, unix.Chmod(dir, 0o2755))
					}
					f, err := os.OpenFile(b, os.O_WRONLY|os.O_TRUNC, 0)
					if tt.name != "read-only" {
						require.NoError(t, err)
						_, err = f.WriteString(content)
						require.NoError(t, errors.Join(err, f.Close()))
					}
					require.NoError(t, fileproc.ForEach(t.Context(), dir, fileproc.Options{Suffixes: []string{"a"}}, func(f *fileproc.File) error {
						return f.Replace([]byte(content))
					}))
					data, err := os.ReadFile(a)
					require.NoError(t, err)
					require.Equal(t, content, string(data))
					var is, want unix.Stat_t
					require.NoError(t, errors.Join(unix.Stat(a, &is), unix.Stat(b, &want)))
					require.Equal(t, fmt.Sprintf("%o %d %d", want.Mode, want.Uid, want.Gid), fmt.Sprintf("%o %d %d", is.Mode, is.Uid, is.Gid))
					require.Equal(t, inodeFlags(b), inodeFlags(a))
					require.Equal(t, xattrsOf(t, b), xattrsOf(t, a))
				})
			}
		}
	}
}

func xattrsOf(t *testing.T, name string) map[string][]byte {
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	all, err := sys.Xattrs(int(f.Fd()))
	if !errors.Is(err, unix.ENOTSUP) {
		require.NoError(t, err)
	}
	return all
}

// TestInvariant11Kept: mode, owner, attributes, ACL and flags are as a write in place leaves them.
func TestInvariant11Kept(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	t.Run("self", func(t *testing.T) { keptByReplace(t, dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	runTask(t, "kept", dir, asNobody(t))
}

// TestInvariant11NotKept: what cannot be kept is an error, and nothing has changed.
func TestInvariant11NotKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	root := t.TempDir()
	testtree.Removable(t, root)
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	for name, mode := range map[string]os.FileMode{"writable": 0o777, "closed": 0o755, "sticky": 0o777 | os.ModeSticky} {
		write(t, root, map[string]string{name + "/f": "root's"})
		require.NoError(t, os.Chmod(filepath.Join(root, name), mode))
	}
	write(t, root, map[string]string{"group/f": "nobody's, but not of its group"})
	require.NoError(t, os.Chmod(filepath.Join(root, "group"), 0o777))
	require.NoError(t, os.Chown(filepath.Join(root, "group/f"), 65534, 4321))
	was := contents(t, root)
	runTask(t, "other's", root, asNobody(t))
	require.Equal(t, was, contents(t, root))
	if fileproc.Backend() == "generic" {
		return
	}
	for name, flag := range map[string]int{"immutable": 0x10, "append-only": 0x20} {
		file := filepath.Join(root, name, "f")
		write(t, root, map[string]string{name + "/f": "as it was"})
		if !setInodeFlags(t, file, flag) {
			t.Log("left out: no flags")
			continue
		}
		err := fileproc.ForEach(t.Context(), filepath.Dir(file), fileproc.Options{}, upper)
		f, _ := os.Open(file)
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0)
		f.Close()
		require.ErrorIs(t, err, unix.EPERM, name)
		require.Equal(t, map[string]string{"f": "as it was"}, contents(t, filepath.Dir(file)))
	}
}

func replaceOthers(t *testing.T, root string) {
	var report fileproc.Report
	failed := map[string]error{}
	require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{Report: &report, OnError: func(err error) error {
		rel, _ := filepath.Rel(root, err.(*fileproc.Failure).Path)
		failed[rel] = err
		return nil
	}}, upper))
	require.Len(t, failed, 4)
	require.ErrorIs(t, failed["writable/f"], unix.EPERM)
	require.ErrorIs(t, failed["sticky/f"], unix.EPERM)
	require.ErrorIs(t, failed["group/f"], unix.EPERM)
	require.ErrorIs(t, failed["closed/f"], unix.EACCES)
	require.Zero(t, report.Replaced)
}

func changeTime(t *testing.T, name string) unix.Timespec {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(name, &st))
	return st.Ctim
}

// TestInvariant11AttributesMeanwhile: what a file gets while it waits for others is kept. Another name is no change.
func TestInvariant11AttributesMeanwhile(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"a": "old", "b": "old", "link": "old"})
	err := fileproc.ForEach(t.Context(), root, fileproc.Options{Durable: true, Workers: 1}, func(f *fileproc.File) error {
		err := f.Replace([]byte("new"))
		switch f.Name() {
		case "a":
			for was := changeTime(t, f.Path()); changeTime(t, f.Path()) == was; { // an old kernel's clock may not have ticked since the file was made
				_ = unix.Removexattr(f.Path(), "user.a") // the same value again is no change
				if e := unix.Setxattr(f.Path(), "user.a", []byte("1"), 0); e != nil {
					t.Skip("this file system has no user attributes: ", e)
				}
			}
		case "link":
			require.NoError(t, os.Link(f.Path(), filepath.Join(t.TempDir(), "link")))
		}
		return err
	})
	require.Equal(t, []byte("1"), xattrsOf(t, filepath.Join(root, "a"))["user.a"])
	want := map[string]string{"a": "new", "b": "new", "link": "new"}
	if err != nil {
		require.ErrorIs(t, err, fileproc.ErrChanged)
		want["a"] = "old"
	}
	require.Equal(t, want, contents(t, root))
}

// TestDurableUnlisted: a directory that may be written but not read can be made durable, too.
func TestDurableUnlisted(t *testing.T) {
	if fileproc.Backend() == "generic" {
		t.Skip("the generic backend opens no directory that may not be read")
	}
	root := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	require.NoError(t, os.Chmod(root, 0o777))
	runTask(t, "durable where nothing can be listed", root, asNobody(t))
}

func durableUnlisted(t *testing.T, root string) {
	write(t, root, map[string]string{"d/f": "old"})
	require.NoError(t, os.Chmod(filepath.Join(root, "d"), 0o300))
	err := fileproc.ForEach(t.Context(), root, fileproc.Options{Durable: true, Files: slices.Values([]string{"d/f"})}, upper)
	require.NoError(t, os.Chmod(filepath.Join(root, "d"), 0o700))
	require.Equal(t, map[string]string{"d/f": "OLD"}, contents(t, root))
	if err != nil { // the file system cannot be synced as a whole
		require.ErrorIs(t, err, fs.ErrPermission)
		require.ErrorContains(t, err, "not for sure on the disk")
	}
}

// TestInvariant4Durable: the directories of files that wait for others leave descriptors for the rest of the run.
func TestInvariant4Durable(t *testing.T) {
	root := t.TempDir()
	for i := range 120 {
		write(t, root, map[string]string{fmt.Sprintf("d%d/e%d/f", i%20, i): "old"})
	}
	runTask(t, "durable with few descriptors", root)
	for rel, content := range contents(t, root) {
		require.Equal(t, "new", content, rel)
	}
}

func durableWithFewDescriptors(t *testing.T, root string) {
	limitDescriptors(t, 32)
	var report fileproc.Report
	require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{Durable: true, Workers: 4, Report: &report}, func(f *fileproc.File) error {
		return f.Replace([]byte("new"))
	}))
	require.EqualValues(t, 120, report.Replaced)
}

// replaceUntilKilled replaces all files by turns, on two workers.
func replaceUntilKilled(t *testing.T, root string) {
	fmt.Println("begun")
	durable := strings.HasSuffix(root, "-durable")
	for i := 0; ; i++ {
		require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{Workers: 2, Durable: durable}, func(f *fileproc.File) error {
			return f.Replace(bytes.Repeat([]byte{byte('a' + i%26)}, 10_000))
		}))
	}
}

// TestInvariant11Killed: a process that is killed leaves each file whole, and at most one temporary file for each worker, or,
// with Options.Durable, one for each file.
func TestInvariant11Killed(t *testing.T) {
	watchdog(t)
	testKilled(t, filepath.Join(t.TempDir(), "once"), 2)
	testKilled(t, filepath.Join(t.TempDir(), "once-durable"), 50)
}

func testKilled(t *testing.T, root string, most int) {
	for i := range 50 {
		write(t, root, map[string]string{fmt.Sprintf("d%d/f%d", i%3, i): strings.Repeat("a", 10_000)})
	}
	self, err := os.Executable()
	require.NoError(t, err)
	left := 0
	for range testtree.Rounds(t, "FILEPROC_FAULTS", 5) {
		cmd := exec.Command(self, "-test.run=^TestInvariantInAProcessOfItsOwn$", "-test.v")
		cmd.Env = append(os.Environ(), taskVariable+"=until killed="+root)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		for said := make([]byte, 1<<10); !bytes.Contains(said, []byte("begun")); {
			n, err := out.Read(said)
			require.NoError(t, err)
			said = said[:n]
			if !bytes.Contains(said, []byte("begun")) {
				said = make([]byte, 1<<10)
			}
		}
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		files := 0
		temporaries := 0
		for rel, content := range contents(t, root) {
			if replace.IsTemporary([]byte(filepath.Base(rel))) {
				temporaries++
				require.NoError(t, os.Remove(filepath.Join(root, rel)))
				continue
			}
			files++
			require.Len(t, content, 10_000, rel)
			require.Empty(t, strings.Trim(content, content[:1]), rel)
		}
		require.Equal(t, 50, files)
		require.LessOrEqual(t, temporaries, most)
		left += temporaries
	}
	t.Log(left, " temporary files were left")
}

// TestInvariant11Full: on a disk that is full, and above a quota, each file stays as it is, and nothing is left.
func TestInvariant11Full(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T) (at string, isFull error){
		"tmpfs": func(t *testing.T) (string, error) {
			at := t.TempDir()
			if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m"); err != nil {
				t.Skip("nothing can be mounted here: ", err)
			}
			t.Cleanup(func() { require.NoError(t, unix.Unmount(at, 0)) })
			return at, unix.ENOSPC
		},
		"ext4": func(t *testing.T) (string, error) { return mountFull(t, 8<<20, "mkfs.ext4 -q -F -m 0"), unix.ENOSPC },
		"btrfs with a quota": func(t *testing.T) (string, error) {
			at := mountFull(t, 160<<20, "mkfs.btrfs -q -f")
			limited := filepath.Join(at, "limited")
			for _, args := range [][]string{{"subvolume", "create", limited}, {"quota", "enable", at}, {"qgroup", "limit", "1M", limited}} {
				if out, err := exec.Command("btrfs", args...).CombinedOutput(); err != nil {
					t.Skipf("left out: no btrfs-progs, or a kernel without quota groups: %v: %s", err, out)
				}
			}
			return limited, unix.EDQUOT
		},
	} {
		t.Run(name, func(t *testing.T) {
			at, isFull := prepare(t)
			root := filepath.Join(at, "root")
			for i := range 5 {
				write(t, root, map[string]string{fmt.Sprint("f", i): fmt.Sprint("old ", i)})
			}
			was := contents(t, root)
			filler, err := os.Create(filepath.Join(at, "filler"))
			require.NoError(t, err)
			for err == nil {
				_, err = filler.Write(fullPage)
			}
			require.ErrorIs(t, err, isFull)
			require.NoError(t, filler.Close())
			for _, opts := range []fileproc.Options{{}, {Durable: true}} {
				var report fileproc.Report
				opts.Report = &report
				leavesNothing(t, func() {
					err := fileproc.ForEach(t.Context(), root, opts, func(f *fileproc.File) error { return f.Replace(bytes.Repeat(fullPage, 100)) })
					require.ErrorIs(t, err, isFull)
				})
				require.Zero(t, report.Replaced)
				require.Equal(t, was, contents(t, root))
			}
		})
	}
}

var fullPage = bytes.Repeat([]byte("full"), 1<<10)

func mountFull(t *testing.T, size int64, mkfs string) string {
	image := filepath.Join(memoryDir(t), "image")
	format(t, image, size, mkfs)
	at, _, err := mount(t, image, "")
	if err != nil {
		t.Skip("nothing can be mounted here: ", err)
	}
	return at
}

// TestInvariant11AppendOnlyDirectory: where no file can be removed, no temporary file is made.
func TestInvariant11AppendOnlyDirectory(t *testing.T) {
	if fileproc.Backend() == "generic" {
		t.Skip("the generic backend does not know such directories")
	}
	root := t.TempDir()
	write(t, root, map[string]string{"f": "old"})
	for name, flag := range map[string]int{"append-only": 0x20, "immutable": 0x10} {
		if !setInodeFlags(t, root, flag) {
			t.Skip("the temporary directory keeps no flags of chattr, or only root may set them")
		}
		err := fileproc.ForEach(t.Context(), root, fileproc.Options{}, func(f *fileproc.File) error { return f.Replace([]byte("new")) })
		dir, e := os.Open(root)
		require.NoError(t, e)
		e = unix.IoctlSetPointerInt(int(dir.Fd()), unix.FS_IOC_SETFLAGS, 0)
		require.NoError(t, errors.Join(e, dir.Close()))
		require.ErrorIs(t, err, unix.EPERM, name)
		require.Equal(t, map[string]string{"f": "old"}, contents(t, root), name)
	}
}

// TestInvariant11Project: the file stays in its project, whose quota counts it.
func TestInvariant11Project(t *testing.T) {
	at := mountFull(t, 320<<20, "mkfs.xfs -q -f")
	if fileproc.Backend() == "generic" {
		t.Skip("the generic backend does not know projects")
	}
	project := func(name string, args ...string) string {
		out, err := exec.Command("xfs_io", append(args, "-c", "lsproj", name)...).CombinedOutput()
		if err != nil {
			t.Skipf("left out: no xfs_io: %v: %s", err, out)
		}
		return string(out)
	}
	for name, of := range map[string][]string{"plain": nil, "inherits": {"-c", "chproj 7", "-c", "chattr +P"}} {
		dir := filepath.Join(at, name)
		require.NoError(t, os.Mkdir(dir, 0o755))
		project(dir, of...)
		write(t, dir, map[string]string{"own": "old", "other": "old"})
		was := project(filepath.Join(dir, "own"), "-c", "chproj 8")
		err := fileproc.ForEach(t.Context(), dir, fileproc.Options{}, func(f *fileproc.File) error { return f.Replace([]byte("new")) })
		now := contents(t, dir)
		require.Equal(t, was, project(filepath.Join(dir, "own")))
		require.Contains(t, was, "8")
		require.Equal(t, "new", now["other"])
		if err != nil { // names of files of other projects cannot be exchanged where files inherit the directory's
			require.ErrorIs(t, err, unix.EXDEV)
			require.Equal(t, "old", now["own"])
		}
		require.Equal(t, err == nil, now["own"] == "new")
		require.Len(t, now, 2)
	}
}

// TestInvariant11HostileReplace: while a racer swaps directories for links out of root, and files for others, nothing outside is
// replaced, and nothing is left anywhere.
func TestInvariant11HostileReplace(t *testing.T) {
	h := plantHostile(t)
	c := newRacer(t, h)
	var outside []string
	require.NoError(t, filepath.WalkDir(filepath.Join(h.dir, "outside"), func(path string, _ os.DirEntry, err error) error {
		outside = append(outside, path)
		return err
	}))
	inodes := func() map[string]uint64 {
		all := map[string]uint64{}
		for _, path := range append(outside, "/etc/passwd") {
			var st unix.Stat_t
			require.NoError(t, unix.Lstat(path, &st))
			all[path] = st.Ino
		}
		return all
	}
	was := inodes()
	var stop atomic.Bool
	var racer sync.WaitGroup
	racer.Go(func() {
		for random := rand.New(rand.NewPCG(0, 2)); !stop.Load(); {
			c.swap(random)
		}
	})
	var report fileproc.Report
	replaced := int64(0)
	end := time.Now().Add(time.Duration(testtree.Rounds(t, "FILEPROC_HOSTILE", 1)) * time.Second)
	for i := 0; time.Now().Before(end) || replaced == 0; i++ {
		opts := fileproc.Options{Report: &report, Workers: 1 + i%4, Stat: i%2 == 0, Durable: i%3 == 0, Symlinks: []fileproc.Symlinks{fileproc.SymlinksSkip, fileproc.SymlinksFiles}[i%2]}
		_ = fileproc.ForEach(t.Context(), h.root, opts, func(f *fileproc.File) error {
			if bytes.Contains(f.Data(), []byte("SECRET")) || bytes.Contains(f.Data(), []byte("root:")) {
				t.Errorf("%s: read from outside", f.Rel())
			}
			return f.Replace(bytes.Clone(f.Data()))
		})
		requireBalanced(t, report)
		replaced += report.Replaced
	}
	stop.Store(true)
	racer.Wait()
	require.Equal(t, was, inodes())
	for rel := range contents(t, h.dir) {
		require.False(t, replace.IsTemporary([]byte(filepath.Base(rel))), rel)
	}
	t.Log(replaced, " files replaced, ", c.swaps, " swaps")
}
