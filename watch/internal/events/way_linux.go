package events

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A way is how the kernel finds root: it looks up one name after the other, each in a directory, and follows all links.
//
// The source watches each of these directories. An event about one of the names says that root may be another directory now. The
// watch of root itself would tell too late: the kernel reports the removal of a directory once nobody uses it any more, not
// even as a working directory.
type way struct {
	steps   map[step]bool
	watches map[int32]bool // of the directories, and of root
	root    int32          // the watch of root, which no other directory gets
	real    string         // root's path without links
	blind   bool           // not all changes of the way give an event
}

// A step is the lookup of a name in the directory with the watch.
type step struct {
	watch int32
	name  string
}

func (w *way) equal(o *way) bool {
	return w.root == o.root && w.blind == o.blind && maps.Equal(w.steps, o.steps)
}

const (
	maxLinks = 40 // the number that Linux follows
	ofItself = unix.IN_MOVE_SELF | unix.IN_DELETE_SELF
	ofNames  = unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO // no IN_CREATE: the name exists already
)

// findWay follows the way to root. It watches a directory before it looks up a name there, so that each later change of the
// name gives an event.
func (s *Source) findWay() (*way, error) {
	w := &way{steps: map[step]bool{}, watches: map[int32]bool{}}
	at, names := ".", strings.Split(s.root, "/")
	if filepath.IsAbs(s.root) {
		at = "/"
	}
	dir, err := handle(unix.AT_FDCWD, at, 0)
	if err != nil {
		return nil, err
	}
	defer func() { dir.Close() }()
	for links := 0; len(names) > 0; {
		name := names[0]
		if names = names[1:]; name == "" || name == "." {
			continue
		}
		if err := s.watchStep(w, dir, name); err != nil {
			return nil, err
		}
		next, err := handle(int(dir.Fd()), name, unix.O_NOFOLLOW)
		if err != nil {
			return nil, err
		}
		target, err := readLink(next)
		switch {
		case err == nil && links == maxLinks:
			next.Close()
			return nil, &fs.PathError{Op: "openat", Path: s.root, Err: unix.ELOOP}
		case err == nil:
			links++
			names = append(strings.Split(target, "/"), names...)
			if next.Close(); !filepath.IsAbs(target) {
				continue
			}
			if next, err = handle(unix.AT_FDCWD, "/", 0); err != nil {
				return nil, err
			}
		}
		dir.Close()
		dir = next
	}
	return w, s.arrive(w, dir)
}

// watchStep watches dir, in which name is about to be looked up.
func (s *Source) watchStep(w *way, dir *os.File, name string) error {
	watch, err := s.addWatch(byHandle(dir), ofNames|ofItself)
	switch {
	case err == nil:
		w.watches[watch], w.steps[step{watch, name}] = true, true
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrLimit): // a name can be looked up without the right to read, which a watch needs
		w.blind = true
	default:
		return err
	}
	keeps, _ := s.kernel.keepsTimes(byHandle(dir))
	w.blind = w.blind || !keeps
	return nil
}

// arrive notes that dir is root, and watches it.
func (s *Source) arrive(w *way, dir *os.File) (err error) {
	if keeps, _ := s.kernel.keepsTimes(byHandle(dir)); !keeps {
		return fmt.Errorf("%w: the file system of %s", ErrUnsupported, s.root)
	}
	if w.root, err = s.addWatch(byHandle(dir), ofItself); err != nil {
		return err
	}
	w.watches[w.root] = true
	is, _ := dir.Stat()
	now, err := os.Stat(s.root)
	if err != nil {
		return err
	}
	if !os.SameFile(is, now) {
		return fmt.Errorf("%w: a name in %s has changed meanwhile, or is a link of /proc that has a meaning of its own", ErrUnsupported, s.root)
	}
	if w.real, err = os.Readlink(byHandle(dir)); err != nil { // root's path is longer than a path may be
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return nil
}

// handle opens name, relative to the directory at, with O_PATH: the result only marks a place in the tree.
func handle(at int, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "openat", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// byHandle returns a short path that leads to the open file f, however long f's own path is.
func byHandle(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// readLink returns the target of the symbolic link f. It fails if f is no link.
func readLink(f *os.File) (string, error) {
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", b)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

// look finds out whether the way to root is still the same. It is for changes that give no event.
func (s *Source) look() {
	w, err := s.findWay()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.moved && (err != nil || !w.equal(s.way)) {
		s.moved = true
		s.pending.add(".", true)
	}
}
