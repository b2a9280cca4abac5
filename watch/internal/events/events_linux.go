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

	"github.com/fileproc/fileproc/internal/fsinfo"
	"golang.org/x/sys/unix"
)

// What is asked of a directory. IN_MODIFY is for files that stay open for long, and
// IN_ATTRIB for modes and times, which incremental compares.
const watched = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_CLOSE_WRITE |
	unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// A Source watches directories below one root. Its methods may be called by several
// goroutines at a time, but for Close, which is the last call.
type Source struct {
	pending *pending
	root    string // without links
	inotify int
	mounts  int // /proc/self/mountinfo, -1 if there is none
	wake    int // an eventfd, with which Close ends the goroutine
	done    chan struct{}

	reading sync.Mutex // held while events are read and taken in: in their order
	buf     []byte     // of what is read

	mu        sync.Mutex // guards what follows
	top       *dir
	byWatch   map[int32]*dir
	above     map[int32]string  // by the watch of a directory above root, or of root: the name in it that matters, "" for the directory itself
	rootWatch int32             // the watch of root in above: that of the directory that was root when the source was opened
	points    map[string]string // see mountPoints
	moved     bool
	closed    bool
}

// A dir is a directory below root.
type dir struct {
	parent *dir
	name   string
	subs   map[string]*dir // nil: none
	watch  int32           // 0: it is not watched
}

func (d *dir) rel() string {
	if d.parent == nil {
		return "."
	}
	return join(d.parent.rel(), d.name)
}

// Open returns a source that watches nothing below root yet, but notes when root itself
// is moved, replaced or unmounted, and what is mounted below it.
func Open(root string) (*Source, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, err
	}
	if err := tellsOfAll(real); err != nil {
		return nil, err
	}
	s := &Source{
		pending: newPending(), root: real, mounts: -1, done: make(chan struct{}), buf: make([]byte, 64<<10),
		top: &dir{}, byWatch: map[int32]*dir{}, above: map[int32]string{},
	}
	if s.inotify, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		// EMFILE: fs.inotify.max_user_instances.
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, os.NewSyscallError("inotify_init1", err))
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(s.inotify)
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, os.NewSyscallError("eventfd", err))
	}
	if fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		s.mounts = fd
		s.points = s.mountPoints()
	}
	if s.rootWatch, err = s.watchAbove(real, unix.IN_MOVE_SELF|unix.IN_DELETE_SELF, ""); err != nil {
		s.closeAll()
		return nil, err
	}
	for dir := real; dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
		_, _ = s.watchAbove(dir, unix.IN_MOVE_SELF|unix.IN_DELETE_SELF, "")
	}
	if abs != real {
		if info, err := os.Lstat(abs); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			_, _ = s.watchAbove(filepath.Dir(abs), unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO, filepath.Base(abs))
		}
	}
	go s.read()
	return s, nil
}

// tellsOfAll returns an error with ErrUnsupported if the file system of a directory is
// one that others change without a word to this kernel.
func tellsOfAll(name string) error {
	if ok, err := fsinfo.KeepsTimes(name); ok || err != nil {
		return err
	}
	return fmt.Errorf("%w: the file system of %s", ErrUnsupported, name)
}

// watchAbove adds events of a directory that is not below root.
func (s *Source) watchAbove(name string, mask uint32, entry string) (int32, error) {
	watch, err := s.addWatch(name, mask)
	if err == nil && s.above[watch] == "" {
		s.above[watch] = entry
	}
	return watch, err
}

func (s *Source) addWatch(name string, mask uint32) (int32, error) {
	watch, err := unix.InotifyAddWatch(s.inotify, name, mask|unix.IN_ONLYDIR|unix.IN_MASK_ADD) // root is watched twice
	switch {
	case err == unix.ENOSPC || err == unix.ENOMEM: // fs.inotify.max_user_watches
		return 0, fmt.Errorf("%w: %w", ErrLimit, os.NewSyscallError("inotify_add_watch", err))
	case err != nil:
		return 0, &fs.PathError{Op: "inotify_add_watch", Path: name, Err: err}
	}
	return int32(watch), nil
}

// Add watches the directory rel. What happens in it from now on gives a hint, so it is
// to be listed afterwards. If it was watched by another name, it has moved here.
func (s *Source) Add(rel string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := filepath.Join(s.root, rel)
	if _, ok := s.points[rel]; ok || s.mounts < 0 { // the others have the file system of the directory above
		if err := tellsOfAll(name); err != nil {
			return err
		}
	}
	watch, err := s.addWatch(name, watched|unix.IN_MOVE_SELF)
	if err != nil {
		return err
	}
	if rel == "." && watch != s.rootWatch { // another directory than the one that tells when it moves
		s.moved = true
		s.pending.add(".", true)
	}
	d := s.find(rel, true)
	if was := s.byWatch[watch]; was != nil && was != d {
		was.watch = 0
		s.pending.add(was.rel(), true) // unless it has moved, a link has led here, and it needs a watch again
	}
	if d.watch != watch {
		s.unwatch(d)
	}
	d.watch = watch
	s.byWatch[watch] = d
	return nil
}

// find returns the directory rel, nil if it is not known and not to be made.
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

// Drop ends the watches of rel and of all below.
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

// unwatch ends the watch of d. Root's also tells that root has moved, so it stays.
func (s *Source) unwatch(d *dir) {
	if d.watch == 0 {
		return
	}
	delete(s.byWatch, d.watch)
	if _, ok := s.above[d.watch]; !ok {
		_, _ = unix.InotifyRmWatch(s.inotify, uint32(d.watch)) // it is gone if the directory is
	}
	d.watch = 0
}

// forget removes d, and the directories above it, from the tree if nothing needs them.
func (s *Source) forget(d *dir) {
	for d.parent != nil && d.watch == 0 && len(d.subs) == 0 {
		if d.parent.subs[d.name] == d {
			delete(d.parent.subs, d.name)
		}
		d = d.parent
	}
}

// Moved reports whether root may not be where it was. Another source is then to be opened.
func (s *Source) Moved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved
}

// Sync returns when the hints about all that has happened before are there for Take.
// inotify queues an event before the system call that caused it returns.
func (s *Source) Sync(context.Context) error {
	s.takeIn()
	s.mounted()
	return nil
}

// Close ends the source. It waits until nothing of it is left.
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
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// read takes in what the kernel tells until Close. It makes no system call while nothing happens.
func (s *Source) read() {
	defer close(s.done)
	fds := []unix.PollFd{{Fd: int32(s.inotify), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN}, {Fd: int32(s.mounts), Events: unix.POLLPRI}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			s.pending.add(".", true)
			return
		}
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return
		}
		if fds[0].Revents != 0 {
			s.takeIn()
		}
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
		n, err := unix.Read(s.inotify, s.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n < unix.SizeofInotifyEvent {
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
	if mask&unix.IN_Q_OVERFLOW != 0 {
		s.pending.add(".", true)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	self := mask&(unix.IN_MOVE_SELF|unix.IN_DELETE_SELF|unix.IN_UNMOUNT|unix.IN_IGNORED) != 0
	entry, above := s.above[watch]
	if above && (self || entry != "" && name == entry) {
		s.moved = true
		s.pending.add(".", true)
	}
	d := s.byWatch[watch]
	if mask&unix.IN_IGNORED != 0 {
		delete(s.above, watch)
		if d != nil {
			delete(s.byWatch, watch)
			d.watch = 0
			s.forget(d)
		}
		return
	}
	switch {
	case d == nil: // it was dropped
	case name == "" || self:
		s.pending.add(d.rel(), true)
	default:
		isDir := mask&unix.IN_ISDIR != 0
		if isDir && mask&(unix.IN_MOVED_FROM|unix.IN_DELETE) != 0 {
			// What is watched there has another path now, or none.
			s.drop(s.find(join(d.rel(), name), false))
		}
		s.pending.add(join(d.rel(), name), isDir)
	}
}

// mounted hints at what has been mounted or unmounted.
func (s *Source) mounted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mounts < 0 {
		return
	}
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

// mountPoints returns the numbers of the mounts at and below root, and as "." those of the directories above.
func (s *Source) mountPoints() map[string]string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return s.points
	}
	points := map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // number, parent, device, directory of the device, mount point, ...; see proc(5)
		if len(fields) < 5 {
			continue
		}
		at := unescape(fields[4])
		if rel, err := filepath.Rel(s.root, at); err == nil && filepath.IsLocal(rel) {
			points[rel] += " " + fields[0]
		} else if rel, err := filepath.Rel(at, s.root); err == nil && filepath.IsLocal(rel) {
			points["."] += " " + fields[0]
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
