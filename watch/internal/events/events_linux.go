package events

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"golang.org/x/sys/unix"
)

// The events that a watch of a directory asks for. IN_MODIFY is for files that stay open for long, and
// IN_ATTRIB for modes and times, which package incremental compares.
const watched = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_CLOSE_WRITE |
	unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// A kernel has the system calls that fail now and then, and the check of a file system. Tests replace them.
type kernel struct {
	addWatch   func(fd int, name string, mask uint32) (watch int, err error)
	read       func(fd int, b []byte) (n int, err error)
	poll       func(fds []unix.PollFd, timeout int) (n int, err error)
	keepsTimes func(name string) (bool, error) // as fsinfo.KeepsTimes
}

// A Source watches directories below one root. Several goroutines may call its methods at a
// time, except Close, which must be the last call.
type Source struct {
	pending *pending
	kernel  kernel
	root    string // the path by which the runs open it
	inotify int
	mounts  int // /proc/self/mountinfo
	wake    int // an eventfd, with which Close ends the goroutine
	done    chan struct{}

	reading sync.Mutex // held while events are read and handled, so that they stay in order
	buf     []byte     // for the events that are read

	mu      sync.Mutex // guards what follows
	top     *dir
	byWatch map[int32]*dir    // the directory that was added last with this watch; dir.twin leads to the others
	way     *way              // to the directory that was root when the source was opened
	points  map[string]string // see mountPoints
	moved   bool
	closed  bool
}

// A dir is a directory below root.
type dir struct {
	parent *dir
	name   string
	subs   map[string]*dir // nil: none
	watch  int32           // 0: none
	twin   *dir            // another path of the same directory, by a mount or through a link, with the same watch
}

func (d *dir) rel() string {
	if d.parent == nil {
		return "."
	}
	return join(d.parent.rel(), d.name)
}

// Open returns a source that watches nothing below root yet. It already notes when root is
// moved, replaced or unmounted, or leads elsewhere, and what is mounted below root.
func Open(root string) (*Source, error) {
	return openWith(root, system())
}

func system() kernel {
	return kernel{addWatch: unix.InotifyAddWatch, read: unix.Read, poll: unix.Poll, keepsTimes: fsinfo.KeepsTimes}
}

func openWith(root string, k kernel) (*Source, error) {
	s := &Source{
		pending: newPending(), kernel: k, root: root, inotify: -1, wake: -1, mounts: -1, done: make(chan struct{}), buf: make([]byte, 64<<10),
		top: &dir{}, byWatch: map[int32]*dir{},
	}
	if err := s.open(); err != nil {
		s.closeAll()
		return nil, err
	}
	go s.read()
	return s, nil
}

func (s *Source) open() (err error) {
	if s.inotify, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		// EMFILE: fs.inotify.max_user_instances.
		return fmt.Errorf("%w: %w", ErrUnsupported, os.NewSyscallError("inotify_init1", err))
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, os.NewSyscallError("eventfd", err))
	}
	if s.mounts, err = unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, os.NewSyscallError("open /proc/self/mountinfo", err))
	}
	if s.way, err = s.findWay(); err == nil {
		s.points = s.mountPoints()
	}
	return err
}

// tellsOfAll returns an error with ErrUnsupported if others may change the file system of the
// directory name without telling this kernel.
func (s *Source) tellsOfAll(name string) error {
	if ok, err := s.kernel.keepsTimes(name); ok || err != nil {
		return err
	}
	return fmt.Errorf("%w: the file system of %s", ErrUnsupported, name)
}

func (s *Source) addWatch(name string, mask uint32) (int32, error) {
	watch, err := s.kernel.addWatch(s.inotify, name, mask|unix.IN_ONLYDIR|unix.IN_MASK_ADD) // root is watched twice: IN_MASK_ADD keeps the first mask
	switch {
	case err == unix.ENOSPC || err == unix.ENOMEM: // fs.inotify.max_user_watches
		return 0, fmt.Errorf("%w: %w", ErrLimit, os.NewSyscallError("inotify_add_watch", err))
	case err != nil:
		return 0, &fs.PathError{Op: "inotify_add_watch", Path: name, Err: err}
	}
	return int32(watch), nil
}

// Add watches the directory rel. From now on each change in it gives a hint. So the caller lists the
// directory after Add: a change before Add gives none.
func (s *Source) Add(rel string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, done, err := s.nameOf(rel)
	if err != nil {
		return err
	}
	defer done()
	if _, ok := s.points[rel]; ok { // a directory that is no mount point has the file system of the one above
		if err := s.tellsOfAll(name); err != nil {
			return err
		}
	}
	watch, err := s.addWatch(name, watched|unix.IN_MOVE_SELF)
	if err != nil {
		return err
	}
	if rel == "." && watch != s.way.root { // root is not the directory that Open found: it was replaced since
		s.moved = true
		s.pending.add(".", true)
	}
	d := s.find(rel, false)
	if d != nil && d.watch == watch {
		return nil
	}
	if s.byWatch[watch] != nil && s.isBehindLink(rel, name) { // a link has replaced a directory; its target is watched by its own path
		return nil
	}
	d = s.find(rel, true)
	s.unwatch(d)
	d.watch = watch
	d.twin, s.byWatch[watch] = s.byWatch[watch], d
	return nil
}

// isBehindLink reports whether name, a path of the directory rel, leads through a link below root.
func (s *Source) isBehindLink(rel, name string) bool {
	f, _ := handle(unix.AT_FDCWD, name, 0) // nil has no path
	defer f.Close()
	real, err := os.Readlink(byHandle(f))
	return err == nil && real != filepath.Join(s.way.real, rel)
}

// nameOf returns a path of rel that is short enough for the kernel. The path is valid until the caller calls done.
func (s *Source) nameOf(rel string) (name string, done func(), err error) {
	if name = s.root + "/" + rel; len(name) < unix.PathMax {
		return name, func() {}, nil
	}
	at, err := handle(unix.AT_FDCWD, s.root, 0)
	for err == nil && rel != "" {
		part := rel
		if len(part) >= unix.PathMax { // PathMax counts the NUL byte at the end
			part = part[:strings.LastIndexByte(part[:unix.PathMax-1], '/')+1]
		}
		var next *os.File
		next, err = handle(int(at.Fd()), part, 0)
		rel = rel[len(part):]
		at.Close()
		at = next
	}
	if err != nil {
		return "", nil, err
	}
	return byHandle(at), func() { at.Close() }, nil
}

// find returns the directory rel. If it is unknown, find adds it if makes is set, else returns nil.
func (s *Source) find(rel string, makes bool) *dir {
	d := s.top
	for rel != "." && rel != "" {
		var name string
		name, rel, _ = strings.Cut(rel, "/")
		sub := d.subs[name]
		if sub == nil {
			if !makes {
				return nil
			}
			sub = &dir{parent: d, name: strings.Clone(name)}
			if d.subs == nil {
				d.subs = map[string]*dir{}
			}
			d.subs[sub.name] = sub
		}
		d = sub
	}
	return d
}

// Drop ends the watches of rel and of all directories below it.
func (s *Source) Drop(rel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(s.find(rel, false))
}

func (s *Source) drop(d *dir) {
	if d == nil {
		return
	}
	for _, sub := range d.subs {
		s.drop(sub)
	}
	s.unwatch(d)
	s.forget(d)
}

// unwatch takes the watch from d. It ends the kernel's watch unless the directory has another path, or is
// on the way to root.
func (s *Source) unwatch(d *dir) {
	if d.watch == 0 {
		return
	}
	first := s.byWatch[d.watch]
	at := &first
	for *at != d {
		at = &(*at).twin
	}
	*at, d.twin = d.twin, nil
	if s.byWatch[d.watch] = first; first == nil {
		delete(s.byWatch, d.watch)
		if !s.way.watches[d.watch] {
			_, _ = unix.InotifyRmWatch(s.inotify, uint32(d.watch)) // fails if the directory, and with it the watch, is gone
		}
	}
	d.watch = 0
}

// forget removes d from the tree if nothing needs it, then likewise each directory above it.
func (s *Source) forget(d *dir) {
	for d.parent != nil && d.watch == 0 && len(d.subs) == 0 {
		delete(d.parent.subs, d.name)
		d = d.parent
	}
}

// Moved reports whether root may not be where it was. The caller must then open another source.
func (s *Source) Moved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved
}

// Sync returns when Take can return the hints about all changes that were made before the call.
// inotify queues an event before the system call that caused it returns, so Sync need not wait.
func (s *Source) Sync(context.Context) error {
	s.takeIn()
	s.mounted()
	return nil
}

// Close ends the source. It waits until the source's goroutine has ended.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_, _ = unix.Write(s.wake, binary.NativeEndian.AppendUint64(nil, 1))
	<-s.done
	s.closeAll()
	return nil
}

func (s *Source) closeAll() {
	for _, fd := range []int{s.inotify, s.wake, s.mounts} {
		_ = unix.Close(fd) // fails for -1
	}
}

// lookEvery is the interval at which the source checks the way to root where not all changes of the way
// give an event.
const lookEvery = time.Second

// read handles what the kernel reports, until Close. While nothing happens it makes no system call, unless
// it has to check the way to root.
func (s *Source) read() {
	defer close(s.done)
	fds := []unix.PollFd{{Fd: int32(s.inotify), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN}, {Fd: int32(s.mounts), Events: unix.POLLPRI}}
	looked := time.Now()
	for {
		timeout := -1
		if s.way.blind {
			if time.Since(looked) >= lookEvery { // also while events keep coming
				s.look()
				looked = time.Now()
			}
			timeout = int((lookEvery - time.Since(looked)).Milliseconds()) + 1
		}
		if _, err := s.kernel.poll(fds, timeout); err != nil && !errors.Is(err, unix.EINTR) {
			s.mu.Lock()
			s.moved = true // so that another source is opened
			s.mu.Unlock()
			s.pending.add(".", true)
			return
		}
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return
		}
		s.takeIn()
		if fds[2].Revents&(unix.POLLPRI|unix.POLLERR) != 0 {
			s.mounted()
		}
	}
}

// takeIn reads events until there are no more.
func (s *Source) takeIn() {
	s.reading.Lock()
	defer s.reading.Unlock()
	for {
		n, err := s.kernel.read(s.inotify, s.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n < unix.SizeofInotifyEvent { // -1 with an error
			return
		}
		for b := s.buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			ne := binary.NativeEndian // struct inotify_event: watch, mask, cookie, length of the name, name; see inotify(7)
			end := unix.SizeofInotifyEvent + int(ne.Uint32(b[12:]))
			name, _, _ := strings.Cut(string(b[unix.SizeofInotifyEvent:end]), "\x00")
			s.event(int32(ne.Uint32(b)), ne.Uint32(b[4:]), name)
			b = b[end:]
		}
	}
}

func (s *Source) event(watch int32, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 { // no directory has its watch, which is -1
		s.pending.add(".", true)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	self := mask&(ofItself|unix.IN_UNMOUNT|unix.IN_IGNORED) != 0
	if s.way.steps[step{watch, name}] || self && s.way.watches[watch] {
		s.moved = true
		s.pending.add(".", true)
	}
	var dirs []*dir // a copy of the list, from which drop removes some
	for d := s.byWatch[watch]; d != nil; d = d.twin {
		dirs = append(dirs, d)
	}
	if mask&unix.IN_IGNORED != 0 { // the watch has ended
		delete(s.way.watches, watch)
		delete(s.byWatch, watch)
		for _, d := range dirs {
			d.watch, d.twin = 0, nil
			s.forget(d)
		}
		return
	}
	isDir := mask&unix.IN_ISDIR != 0
	for _, d := range dirs {
		rel := d.rel()
		if name != "" {
			rel = join(rel, name)
		}
		if isDir && mask&(unix.IN_MOVED_FROM|unix.IN_DELETE) != 0 {
			// The directories that are watched there have another path now, or none.
			s.drop(s.find(rel, false))
		}
		s.pending.add(rel, isDir || name == "")
	}
}

// mounted adds hints about all that has been mounted or unmounted, also on the way to root.
func (s *Source) mounted() {
	s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.points
	s.points = s.mountPoints()
	for rel, id := range was {
		if s.points[rel] != id {
			s.pending.add(rel, true)
		}
	}
	for rel, id := range s.points {
		if was[rel] != id {
			s.pending.add(rel, true)
		}
	}
}

// mountPoints returns what is mounted at each path at or below root. The entry "." also has the mounts above root.
func (s *Source) mountPoints() map[string]string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return s.points
	}
	return pointsIn(string(text), s.way.real)
}

// pointsIn is mountPoints for the text of mountinfo. root is a path without links.
func pointsIn(text, root string) map[string]string {
	points := map[string]string{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line) // number, parent, device, directory of the device, mount point, ...; see proc(5)
		if len(fields) < 5 {
			continue
		}
		what := fmt.Sprint(fields[0], fields[2:4]) // not the number alone: a new mount may get that of one that is gone
		at := unescape(fields[4])
		if rel, _ := filepath.Rel(root, at); filepath.IsLocal(rel) {
			points[rel] += what
		} else if rel, _ := filepath.Rel(at, root); filepath.IsLocal(rel) {
			points["."] += what
		}
	}
	return points
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n := int(s[i+1]-'0')<<6 | int(s[i+2]-'0')<<3 | int(s[i+3]-'0'); 0 < n && n <= math.MaxUint8 {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
