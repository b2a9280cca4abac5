//go:build linux

package hostile

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"

	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"golang.org/x/sys/unix"
)

// A racer swaps entries of root with stand-ins, and with each other.
type racer struct {
	names, stands []string
	fifo          *os.File // a stand-in that has bytes
	standing      [][2]string
}

// newRacer makes the stand-ins in dir/aside.
func newRacer(dir string, t *tree, flags *trial.Flags) (*racer, error) {
	c := &racer{names: t.swapped}
	outside, written := filepath.Join(dir, "outside"), filepath.Join(dir, "fifo")
	err := errors.Join(os.Mkdir(filepath.Join(dir, "aside"), 0o755), unix.Mkfifo(written, 0o644))
	if err == nil {
		c.fifo, err = os.OpenFile(written, os.O_RDWR|unix.O_NONBLOCK, 0)
	}
	if err == nil {
		_, err = c.fifo.WriteString(fifoSecret)
	}
	if err != nil {
		return nil, err
	}
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
	return c, nil
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
