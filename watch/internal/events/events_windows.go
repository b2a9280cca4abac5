package events

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// bufferSize is the largest buffer that ReadDirectoryChangesW accepts on every volume.
const bufferSize = 64 << 10

// cookie begins the names of the directories that Sync makes for a moment.
const cookie = ".fileproc-sync-"

const (
	changes = windows.FILE_NOTIFY_CHANGE_FILE_NAME | windows.FILE_NOTIFY_CHANGE_DIR_NAME | windows.FILE_NOTIFY_CHANGE_ATTRIBUTES |
		windows.FILE_NOTIFY_CHANGE_SIZE | windows.FILE_NOTIFY_CHANGE_LAST_WRITE | windows.FILE_NOTIFY_CHANGE_CREATION
	stop = 1 // the key of Close's message
)

// A Source watches all that is below one root. Several goroutines may call its methods at a
// time, except Close, which must be the last call.
type Source struct {
	pending *pending
	given   string      // the path by which the runs open root
	is      os.FileInfo // the directory to which given led when the source was opened
	root    string      // its path without links
	handle  windows.Handle
	port    windows.Handle
	done    chan struct{}
	buf     []byte
	io      windows.Overlapped

	mu      sync.Mutex               // guards what follows
	cookies map[string]chan struct{} // by name; each belongs to a call of Sync that waits
	moved   bool
}

// Open returns a source that watches all below root.
func Open(root string) (*Source, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	is, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	os.SameFile(is, is) // looks up the file's identity now: Stat leaves that for later, when the path may lead elsewhere
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	name, err := windows.UTF16PtrFromString(abs)
	if err != nil {
		return nil, err
	}
	if !isLocal(abs) {
		return nil, fmt.Errorf("%w: the volume of %s", ErrUnsupported, root)
	}
	handle, err := windows.CreateFile(name, windows.FILE_LIST_DIRECTORY, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE,
		nil, windows.OPEN_EXISTING, windows.FILE_FLAG_BACKUP_SEMANTICS|windows.FILE_FLAG_OVERLAPPED, 0)
	if err != nil {
		return nil, &os.PathError{Op: "CreateFile", Path: root, Err: err}
	}
	port, err := windows.CreateIoCompletionPort(handle, 0, 0, 0)
	if err != nil {
		_ = windows.CloseHandle(handle)
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, os.NewSyscallError("CreateIoCompletionPort", err))
	}
	s := &Source{
		pending: newPending(), given: root, is: is, root: abs, handle: handle, port: port, done: make(chan struct{}),
		buf: make([]byte, bufferSize), cookies: map[string]chan struct{}{},
	}
	if err := s.ask(); err != nil {
		_ = windows.CloseHandle(port)
		_ = windows.CloseHandle(handle)
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, os.NewSyscallError("ReadDirectoryChangesW", err))
	}
	go s.read()
	return s, nil
}

// isLocal reports whether this machine alone changes the volume of a path.
func isLocal(name string) bool {
	volume, err := windows.UTF16PtrFromString(filepath.VolumeName(name) + `\`)
	if err != nil {
		return false
	}
	switch windows.GetDriveType(volume) {
	case windows.DRIVE_FIXED, windows.DRIVE_REMOVABLE, windows.DRIVE_RAMDISK:
		return true
	}
	return false
}

// ask lets the system fill the buffer. From the first call on, the system keeps what happens between two calls.
func (s *Source) ask() error {
	return windows.ReadDirectoryChanges(s.handle, &s.buf[0], bufferSize, true, changes, nil, &s.io, 0)
}

// Add does nothing: all directories are watched.
func (s *Source) Add(string) error { return nil }

// Drop does nothing.
func (s *Source) Drop(string) {}

// Moved reports whether root may not be where it was. The caller must then open another source.
func (s *Source) Moved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved
}

// Sync returns when Take can return the hints about all changes that were made before the call. It
// makes and removes a directory in root, and waits for the event of the removal.
func (s *Source) Sync(ctx context.Context) error {
	if s.look(); s.Moved() {
		return nil
	}
	name, err := os.MkdirTemp(s.root, cookie)
	if err != nil {
		return err
	}
	seen := make(chan struct{})
	s.mu.Lock()
	s.cookies[filepath.Base(name)] = seen
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.cookies, filepath.Base(name))
		s.mu.Unlock()
	}()
	if err := os.Remove(name); err != nil { // its event comes when seen is already in s.cookies
		return err
	}
	select {
	case <-seen:
		return nil
	case <-s.done:
		return os.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// look finds out whether root leads to another directory now: no event reports a move of root, or a change
// of a link above it.
func (s *Source) look() {
	is, err := os.Stat(s.given)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.moved && (err != nil || !os.SameFile(is, s.is)) {
		s.moved = true
		s.pending.add(".", true)
	}
}

// lookEvery is the interval at which the source calls look.
const lookEvery = time.Second

// Close ends the source. It waits until the source's goroutine has ended.
func (s *Source) Close() error {
	err := windows.PostQueuedCompletionStatus(s.port, 0, stop, nil)
	if err == nil {
		<-s.done
	}
	return errors.Join(err, windows.CloseHandle(s.port))
}

// read handles what the system reports, until Close.
func (s *Source) read() {
	defer close(s.done)
	asked, stopped := true, false
	looked := time.Now()
	for asked || !stopped {
		if time.Since(looked) >= lookEvery && !stopped {
			s.look()
			looked = time.Now()
		}
		var n uint32
		var key uintptr
		var io *windows.Overlapped
		err := windows.GetQueuedCompletionStatus(s.port, &n, &key, &io, uint32(lookEvery.Milliseconds()))
		if io == nil && errors.Is(err, windows.WAIT_TIMEOUT) {
			continue
		}
		if io == nil { // Close's message, or the port does not work any more
			stopped = true
			_ = windows.CloseHandle(s.handle) // which ends the request of ask
			if err != nil {
				return
			}
			continue
		}
		asked = false
		if stopped {
			continue
		}
		switch {
		case err != nil && !errors.Is(err, windows.ERROR_NOTIFY_ENUM_DIR): // root is gone
			s.lost()
			continue
		case err != nil || n == 0: // more has happened than the buffer holds
			s.pending.add(".", true)
			s.wakeAll()
		default:
			s.takeIn(s.buf[:n])
		}
		if err := s.ask(); err != nil {
			s.lost()
			continue
		}
		asked = true
	}
}

func (s *Source) lost() {
	s.mu.Lock()
	s.moved = true
	s.mu.Unlock()
	s.pending.add(".", true)
	s.wakeAll()
}

// wakeAll ends the waiting of all calls of Sync. The caller has added a hint that covers all that has happened.
func (s *Source) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, seen := range s.cookies {
		close(seen)
		delete(s.cookies, name)
	}
}

// takeIn turns FILE_NOTIFY_INFORMATION structures into hints.
func (s *Source) takeIn(b []byte) {
	const head = 12
	for len(b) >= head {
		e := (*windows.FileNotifyInformation)(unsafe.Pointer(unsafe.SliceData(b)))
		if int(e.FileNameLength) > len(b)-head {
			s.pending.add(".", true)
			return
		}
		name := windows.UTF16ToString(unsafe.Slice(&e.FileName, e.FileNameLength/2))
		s.event(strings.ReplaceAll(name, `\`, "/"), e.Action)
		if e.NextEntryOffset == 0 || int(e.NextEntryOffset) > len(b) {
			return
		}
		b = b[e.NextEntryOffset:]
	}
}

func (s *Source) event(rel string, action uint32) {
	if strings.HasPrefix(rel, cookie) {
		s.mu.Lock()
		if seen := s.cookies[rel]; seen != nil && action == windows.FILE_ACTION_REMOVED {
			close(seen)
			delete(s.cookies, rel)
		}
		s.mu.Unlock()
		return
	}
	// A change in a directory gives events of its own. The hint about a directory that comes or goes covers
	// all that is in it.
	s.pending.add(rel, action != windows.FILE_ACTION_MODIFIED)
}
