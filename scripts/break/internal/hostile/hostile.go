//go:build linux

// Package hostile runs fileproc on a tree while a racer swaps its links, FIFOs, devices and directories.
package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"golang.org/x/sys/unix"
)

func Main(ctx context.Context, args []string) error {
	flags := trial.NewFlags("hostile")
	return flags.Temp(args, func(dir string) { hostile(ctx, flags, dir) })
}

const (
	secret     = "SECRET: this file is outside root\n"
	fifoSecret = "SECRET: these bytes are in a FIFO\n"
)

// A tree is a directory with root, what runs read; outside, which they must not read; and aside, where the racer keeps what it
// swaps into root.
type tree struct {
	root    string
	calm    map[string]bool // files that no swap moves or hides, by path relative to root
	bodies  map[string]bool // the contents of all files that began in root
	swapped []string        // paths of directories, files and links at every depth
}

// plant makes a tree. Outside has the same names as root, so that a link in a directory's place finds something.
func plant(dir string) *tree {
	t := &tree{root: filepath.Join(dir, "root"), calm: map[string]bool{}, bodies: map[string]bool{}}
	var rels []string
	links := map[string]string{}
	var fill func(rel string, depth int)
	fill = func(rel string, depth int) {
		for i := range 4 {
			rels = append(rels, fmt.Sprintf("%sf%d", rel, i))
		}
		for i := 0; i < 3 && depth < 4; i++ {
			sub := fmt.Sprintf("%sd%d/", rel, i)
			fill(sub, depth+1)
			t.swapped = append(t.swapped, filepath.Join(t.root, sub))
		}
		// Links to follow: to a file and to directories of the tree, through directories that the racer swaps.
		for i, to := range []string{"f0", "d1/d2/f1", "d1/d2"} {
			links[filepath.Join(t.root, fmt.Sprintf("%sl%d", rel, i))] = filepath.Join(t.root, to)
		}
	}
	fill("", 1)
	for _, rel := range rels {
		t.swapped = append(t.swapped, filepath.Join(t.root, rel))
	}
	for i := range 300 {
		rels = append(rels, fmt.Sprintf("calm%d/f%03d", i%4, i))
		t.calm[rels[len(rels)-1]] = true
	}
	fail.On(trial.Write(t.root, testtree.BytesOf, rels...))
	fail.On(trial.Write(filepath.Join(dir, "outside"), func(string) []byte { return []byte(secret) }, rels...))
	for _, rel := range rels {
		t.bodies[string(testtree.BytesOf(rel))] = true
	}
	for link, to := range links {
		t.swapped = append(t.swapped, link)
		fail.On(os.Symlink(to, link))
	}
	slices.Sort(t.swapped)
	return t
}

// newRun returns a run over a tree that is being swapped.
func (t *tree) newRun(random *rand.Rand, flags *trial.Flags) *trial.Run {
	r := &trial.Run{Root: t.root, Entry: trial.Pick(random, "Process", "Process", "Stream", "Walk"), Opts: trial.Options(random)}
	r.Opts.MaxFileSize = 1 << 20 // a device that is read has no end
	r.Opts.Symlinks = trial.Pick(random, fileproc.SymlinksSkip, fileproc.SymlinksSkip, fileproc.SymlinksFiles, fileproc.SymlinksFollow)
	r.Opts.SymlinksOutside = r.Opts.Symlinks != fileproc.SymlinksSkip && random.Intn(8) == 0
	if r.Entry != "Process" && r.Opts.Symlinks == fileproc.SymlinksFollow {
		r.Opts.Ordered = false // the targets of links come last
	}
	r.Opts.OneFilesystem = random.Intn(8) == 0
	if random.Intn(8) == 0 {
		r.Opts.IgnoreFiles = []string{".gitignore", "f9"}
	}
	if r.Opts.SymlinksOutside { // one of the links is to /etc and one to the directory of the test
		r.Opts.MaxDepth = 3
	}
	r.Want, r.Content, r.May = t.calm, testtree.BytesOf, func(string) bool { return true }
	open := random.Intn(4) == 0
	r.File = func(f *fileproc.File, _ *trial.Answer) error {
		flags.Count("contents", 1)
		if err := t.check(r, f, open); err != nil {
			r.Wrong(err)
		}
		return nil
	}
	r.Failure = func(rel string, err error) error {
		calm := strings.HasPrefix(rel, "calm") && (t.calm[rel] || !strings.Contains(rel, "/"))
		if calm || r.Opts.Symlinks == fileproc.SymlinksSkip && !errors.Is(err, fileproc.ErrChanged) {
			return err
		}
		return nil
	}
	return r
}

// check returns what is wrong with f, which it opens once more if open is set.
func (t *tree) check(r *trial.Run, f *fileproc.File, open bool) error {
	calm := t.calm[f.Rel()]
	if s, err := f.Stat(); r.Opts.Stat && (err != nil || !s.Mode.IsRegular()) {
		return fmt.Errorf("%s: Stat returns %v, %w", f.Rel(), s.Mode, err)
	}
	if r.Opts.ReadSize != fileproc.NoRead {
		if err := t.content(r, f.Data(), !f.Truncated()); err != nil {
			return fmt.Errorf("%s: %w", f.Rel(), err)
		}
	}
	if !open {
		return nil
	}
	file, err := f.Open()
	if err != nil && !calm {
		return nil
	}
	var data []byte
	if err == nil {
		defer file.Close()
		data, err = io.ReadAll(file)
	}
	if err = errors.Join(err, t.content(r, data, true)); err != nil || calm && !bytes.Equal(data, testtree.BytesOf(f.Rel())) {
		return fmt.Errorf("%s, through Open: %d bytes, %w", f.Rel(), len(data), err)
	}
	return nil
}

// content returns an error if no file that began in root has data as its content, or, unless all is set, as its first bytes.
func (t *tree) content(r *trial.Run, data []byte, all bool) error {
	switch {
	case bytes.Contains(data, []byte(fifoSecret)):
		return errors.New("bytes of a FIFO")
	case r.Opts.SymlinksOutside:
		return nil // outside may be read
	case bytes.Contains(data, []byte("SECRET")) || bytes.Contains(data, []byte("root:")):
		return fmt.Errorf("LEAKED from outside root: %.60q", data)
	case t.bodies[string(data)]:
		return nil
	}
	for body := range t.bodies {
		if !all && strings.HasPrefix(body, string(data)) {
			return nil
		}
	}
	return fmt.Errorf("%d bytes that no file of root has: %.60q", len(data), data)
}

func hostile(ctx context.Context, flags *trial.Flags, dir string) {
	t := plant(dir)
	racer := newRacer(dir, t, flags)
	runtime.GOMAXPROCS(2 + runtime.GOMAXPROCS(0)) // the racer never waits
	flags.Against(ctx, math.MaxInt, 1, racer.swap, func(random *rand.Rand, still sync.Locker) (any, error) {
		flags.Count("runs", 1)
		r := t.newRun(random, flags)
		r.Still = still
		return r, r.Do(ctx)
	})
	said := make([]byte, 2*len(fifoSecret))
	n, err := racer.fifo.Read(said)
	fail.If(string(said[:n]) != fifoSecret, "somebody has read from the FIFO or written to it: %q, %w", said[:n], err)
}

// A racer swaps entries of root with stand-ins, and with each other.
type racer struct {
	names, stands []string
	fifo          *os.File // a stand-in that has bytes
	standing      [][2]string
}

// newRacer makes the stand-ins in dir/aside.
func newRacer(dir string, t *tree, flags *trial.Flags) *racer {
	c := &racer{names: t.swapped}
	outside, written := filepath.Join(dir, "outside"), filepath.Join(dir, "fifo")
	fail.On(errors.Join(os.Mkdir(filepath.Join(dir, "aside"), 0o755), unix.Mkfifo(written, 0o644)))
	c.fifo = fail.Must(os.OpenFile(written, os.O_RDWR|unix.O_NONBLOCK, 0))
	fail.Must(c.fifo.WriteString(fifoSecret))
	n := 0
	put := func(kind string, do func(path string) error) {
		path := filepath.Join(dir, "aside", fmt.Sprintf("%02d", n))
		n++
		if e := do(path); e != nil {
			flags.Count(fmt.Sprintf("left out: %s: %v", kind, e), 1)
			return
		}
		c.stands = append(c.stands, path)
	}
	node := func(kind string, mode, major, minor uint32) {
		put(kind, func(path string) error { return unix.Mknod(path, mode|0o644, int(unix.Mkdev(major, minor))) })
	}
	for _, to := range []string{outside, outside + "/d0", outside + "/d1/d2", outside + "/f0", outside + "/calm0/f000", "/etc", "/etc/passwd",
		"../outside", "../../outside", "../../../outside/d1", "..", ".", "nowhere", dir} {
		put("link", func(path string) error { return os.Symlink(to, path) })
	}
	for range 6 { // as many as links, since a run must come at the one moment between listing and opening
		put("FIFO with a writer", func(path string) error { return os.Link(written, path) })
		node("FIFO", unix.S_IFIFO, 0, 0)
	}
	node("socket", unix.S_IFSOCK, 0, 0)
	for minor, name := range map[uint32]string{5: "zero", 3: "null", 7: "full", 9: "random", 11: "kernel log"} {
		node("device "+name, unix.S_IFCHR, 1, minor)
	}
	node("block device", unix.S_IFBLK, 7, 99)
	put("directory", func(path string) error { return os.Mkdir(path, 0o755) })
	put("directory full of links", func(path string) error {
		e := os.Mkdir(path, 0o755)
		for _, name := range []string{"d0", "d1", "d2", "f0", "f1", "l0"} {
			e = errors.Join(e, os.Symlink(filepath.Join(outside, name), filepath.Join(path, name)))
		}
		return e
	})
	return c
}

// exchange swaps two entries. Through a link the racer itself would move files of outside into root.
func exchange(a, b string) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	from, err := unix.Openat2(unix.AT_FDCWD, filepath.Dir(a), &how)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	to, err := unix.Openat2(unix.AT_FDCWD, filepath.Dir(b), &how)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	return unix.Renameat2(from, filepath.Base(a), to, filepath.Base(b), unix.RENAME_EXCHANGE)
}

// swap is what the racer does again and again. It swaps most back at once, and a few dozen later.
func (c *racer) swap(random *rand.Rand, _, _ int) (did string, err error) {
	a, b := trial.Pick(random, c.names...), trial.Pick(random, c.stands...)
	if random.Intn(4) == 0 {
		b = trial.Pick(random, c.names...)
	}
	if exchange(a, b) != nil {
		return "refused swaps", nil
	}
	for range random.Intn(trial.Pick(random, 100, 3000, 100_000)) { // time for a run
	}
	if random.Intn(4) > 0 {
		exchange(a, b)
	} else if c.standing = append(c.standing, [2]string{a, b}); len(c.standing) > 40 {
		for _, p := range slices.Backward(c.standing) { // the last first, so that all is in its place again
			exchange(p[0], p[1])
		}
		c.standing = nil
	}
	return "swaps", nil
}
