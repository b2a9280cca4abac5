//go:build linux

package floor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc/internal/dirent"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/uring"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

// A goLoop does the work of the C loop in Go: nothing but the system calls. With a ring, io_uring opens and reads.
type goLoop struct {
	dir     string
	threads int
	chunk   int // names that a thread takes at a time
	depth   int // files that a ring reads at a time; 0 without one
}

// bare compares the Go loop with the C loop: with plain calls, at several batch sizes, and, if this machine allows io_uring, with
// rings of several depths.
func (r *run) bare() error {
	const usual = 128
	theirs := r.cLoop(r.dir, "read", cReadSize, r.threads)
	var list []turns.Comparison
	add := func(name string, chunk, depth int) {
		list = append(list, turns.Against(name+" / C loop", turns.Work(goLoop{r.dir, r.threads, chunk, depth}.read).Side(""), theirs))
	}
	add("Go loop", usual, 0)
	for chunk := 1; chunk <= 1024; chunk *= 4 {
		add(fmt.Sprintf("Go loop, %d at a time", chunk), chunk, 0)
	}
	if ring, err := uring.New(1, cReadSize); err != nil {
		list = append(list, turns.Against("Go loop with io_uring / C loop", turns.Side{Missing: "io_uring: " + err.Error()}, theirs))
		return r.compare(list...)
	} else {
		ring.Close()
	}
	for depth := 1; depth <= 256; depth *= 2 {
		add(fmt.Sprintf("Go loop with io_uring, %d deep", depth), max(usual, depth), depth)
	}
	return r.compare(list...)
}

func (g goLoop) read() (int, int64, error) {
	var l listing
	defer l.close()
	if err := l.add(unix.AT_FDCWD, g.dir); err != nil {
		return 0, 0, err
	}
	var next, total atomic.Int64
	errs := make([]error, g.threads)
	var wg sync.WaitGroup
	for t := range errs {
		wg.Go(func() {
			r := bareReader{buf: make([]byte, cReadSize)}
			if g.depth > 0 {
				if r.ring, errs[t] = uring.New(g.depth, cReadSize); errs[t] != nil {
					return
				}
				defer r.ring.Close()
			}
			for errs[t] == nil {
				end := int(next.Add(int64(g.chunk)))
				if end-g.chunk >= len(l.files) {
					break
				}
				errs[t] = r.read(l.files[end-g.chunk:min(end, len(l.files))], g.depth)
			}
			total.Add(r.bytes)
		})
	}
	wg.Wait()
	return len(l.files), total.Load(), errors.Join(errs...)
}

// A listing holds the files of a directory and its subdirectories. The directories stay open.
type listing struct {
	files []bareFile
	arena names.Arena
	dirs  []int
	buf   []byte
}

type bareFile struct {
	dir  int
	name names.Name
}

func (l *listing) close() {
	for _, fd := range l.dirs {
		unix.Close(fd)
	}
}

func (l *listing) add(at int, name string) error {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "openat", Path: name, Err: err}
	}
	l.dirs = append(l.dirs, fd)
	if l.buf == nil {
		l.buf = make([]byte, 1<<20)
	}
	var subs []string
	for {
		n, err := unix.Getdents(fd, l.buf)
		if err != nil {
			return &os.PathError{Op: "getdents64", Path: name, Err: err}
		}
		if n == 0 {
			break
		}
		for rest := l.buf[:n]; len(rest) > 0; {
			var e dirent.Record
			if e, rest, err = dirent.Next(rest); err != nil {
				return err
			}
			if e.Type == dirent.Regular {
				l.files = append(l.files, bareFile{fd, l.arena.Add(e.Name)})
			} else if e.Type == dirent.Directory && !names.IsDot(e.Name) {
				subs = append(subs, string(e.Name))
			}
		}
	}
	for _, sub := range subs {
		if err := l.add(fd, sub); err != nil {
			return err
		}
	}
	return nil
}

type bareReader struct {
	ring  *uring.Ring
	names []names.Name
	buf   []byte
	bytes int64
}

func (r *bareReader) read(files []bareFile, depth int) error {
	for r.ring != nil && len(files) > 0 {
		n := min(depth, len(files))
		if i := slices.IndexFunc(files[:n], func(f bareFile) bool { return f.dir != files[0].dir }); i > 0 {
			n = i // a ring reads files of one directory at a time
		}
		r.names = r.names[:0]
		for _, f := range files[:n] {
			r.names = append(r.names, f.name)
		}
		if err := r.ring.Read(files[0].dir, r.names, unix.O_RDONLY|unix.O_NOFOLLOW, cReadSize, unix.RWF_NOWAIT); err != nil {
			return err
		}
		for i := range n {
			p := r.ring.Bytes(i)
			if p == nil { // the file is not in the page cache, or it is empty
				if err := r.plain(files[i]); err != nil {
					return err
				}
			}
			r.bytes += int64(len(p))
		}
		files = files[n:]
	}
	for _, f := range files {
		if err := r.plain(f); err != nil {
			return err
		}
	}
	return nil
}

// plain uses raw system calls, the cheapest that Go has, which do not notify the scheduler.
func (r *bareReader) plain(f bareFile) error {
	fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(f.dir), uintptr(f.name.Pointer()),
		unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return &os.PathError{Op: "openat", Path: f.name.String(), Err: errno}
	}
	n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&r.buf[0])), uintptr(len(r.buf)))
	unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	if errno != 0 {
		return &os.PathError{Op: "read", Path: f.name.String(), Err: errno}
	}
	r.bytes += int64(n)
	return nil
}
