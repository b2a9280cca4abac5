//go:build linux

package floor

import (
	"cmp"
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

// A goLoop does the work of the C loop in Go: nothing but the system calls.
type goLoop struct {
	dir       string
	threads   int
	chunk     int // files that a thread takes at a time
	byInode   bool
	newReader func() (reader, error) // for a thread
}

// A reader reads files and returns how many bytes. The last call, without files, frees what it holds.
type reader func(files []bareFile) (bytes int64, err error)

// bare compares the Go loop with the C loop: with plain calls, at several batch sizes, and, if this machine allows io_uring, with
// rings of several depths.
func (r *run) bare() {
	const usual = 128
	theirs := r.cLoop(r.dir, "read", cReadSize, r.threads)
	var list []turns.Comparison
	add := func(name string, chunk int, newReader func() (reader, error)) {
		loop := goLoop{dir: r.dir, threads: r.threads, chunk: chunk, newReader: newReader}
		list = append(list, turns.Against(name+" / C loop", turns.Work(loop.read).Side(""), theirs))
	}
	add("Go loop", usual, plain)
	for chunk := 1; chunk <= 1024; chunk *= 4 {
		add(fmt.Sprintf("Go loop, %d at a time", chunk), chunk, plain)
	}
	for depth := 1; depth <= 256; depth *= 2 {
		add(fmt.Sprintf("Go loop with io_uring, %d deep", depth), max(usual, depth), ring(depth))
	}
	r.LeaveOut = true // without io_uring
	r.compare(list...)
}

const window = 256 // files

// inOrder returns a side that reads whole files in the order of the inodes, which is the one of the disk: the first reads of a window
// in one submission, so that the kernel can merge the requests for neighbouring blocks.
func (r *run) inOrder(size, threads int) turns.Side {
	return turns.Work(goLoop{r.dir, threads, window, true, inWindows(size)}.read).Side("")
}

func (g goLoop) read() (int, int64, error) {
	var l listing
	defer l.close()
	err := l.open(unix.AT_FDCWD, g.dir)
	if err == nil {
		err = l.list()
	}
	if err != nil {
		return 0, 0, err
	}
	if g.byInode {
		slices.SortFunc(l.files, func(a, b bareFile) int { return cmp.Compare(a.inode, b.inode) })
	}
	var next, total atomic.Int64
	errs := make([]error, g.threads)
	var wg sync.WaitGroup
	for t := range errs {
		wg.Go(func() {
			read, err := g.newReader()
			for err == nil {
				start := int(next.Add(int64(g.chunk))) - g.chunk
				if start >= len(l.files) {
					_, err = read(nil)
					break
				}
				var n int64
				n, err = read(l.files[start:min(start+g.chunk, len(l.files))])
				total.Add(n)
			}
			errs[t] = err
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
}

type bareFile struct {
	dir   int
	inode uint64
	name  names.Name
}

func (l *listing) close() {
	for _, fd := range l.dirs {
		unix.Close(fd)
	}
}

func (l *listing) open(at int, name string) error {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "openat", Path: name, Err: err}
	}
	l.dirs = append(l.dirs, fd)
	return nil
}

// list lists the directories in l.dirs, to which it adds the subdirectories that it finds.
func (l *listing) list() error {
	buf := make([]byte, 1<<20)
	for i := 0; i < len(l.dirs); {
		n, err := unix.Getdents(l.dirs[i], buf)
		if err != nil {
			return os.NewSyscallError("getdents64", err)
		}
		if n == 0 {
			i++
		}
		for rest := buf[:n]; len(rest) > 0; {
			var e dirent.Record
			if e, rest, err = dirent.Next(rest); err != nil {
				return err
			}
			if e.Type == dirent.Regular {
				l.files = append(l.files, bareFile{l.dirs[i], e.Ino, l.arena.Add(e.Name)})
			} else if e.Type == dirent.Directory && !names.IsDot(e.Name) {
				if err := l.open(l.dirs[i], string(e.Name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// open uses a raw system call, the cheapest that Go has, which does not notify the scheduler.
func (f bareFile) open() (fd uintptr, err error) {
	fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(f.dir), uintptr(f.name.Pointer()),
		unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return 0, &os.PathError{Op: "openat", Path: f.name.String(), Err: errno}
	}
	return fd, nil
}

// plain returns a reader that opens, reads and closes one file after the other.
func plain() (reader, error) {
	buf := make([]byte, cReadSize)
	return func(files []bareFile) (bytes int64, err error) {
		for _, f := range files {
			fd, err := f.open()
			if err != nil {
				return bytes, err
			}
			n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&buf[0])), cReadSize)
			unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
			if errno != 0 {
				return bytes, &os.PathError{Op: "read", Path: f.name.String(), Err: errno}
			}
			bytes += int64(n)
		}
		return bytes, nil
	}, nil
}

// ring returns a maker of readers that open and read depth files of a directory with one call, and those that are not in the page
// cache, or empty, with plain calls.
func ring(depth int) func() (reader, error) {
	return func() (reader, error) {
		u, err := uring.New(depth, cReadSize)
		if err != nil {
			return nil, fmt.Errorf("io_uring: %w", err)
		}
		one, _ := plain()
		var together []names.Name
		return func(files []bareFile) (bytes int64, err error) {
			if len(files) == 0 {
				u.Close()
			}
			for len(files) > 0 && err == nil {
				n := 0
				together = together[:0]
				for ; n < min(depth, len(files)) && files[n].dir == files[0].dir; n++ {
					together = append(together, files[n].name)
				}
				err = u.Read(files[0].dir, together, unix.O_RDONLY|unix.O_NOFOLLOW, cReadSize, unix.RWF_NOWAIT)
				for i := 0; i < n && err == nil; i++ {
					more := int64(len(u.Bytes(i)))
					if more == 0 {
						more, err = one(files[i : i+1])
					}
					bytes += more
				}
				files = files[n:]
			}
			return bytes, err
		}, nil
	}
}

// inWindows returns a maker of readers that read the beginnings of many open files with one call, and what follows with plain calls.
func inWindows(size int) func() (reader, error) {
	return func() (reader, error) {
		u, err := uring.NewForFiles(window, window*size)
		if err != nil {
			return nil, fmt.Errorf("io_uring: %w", err)
		}
		return func(files []bareFile) (bytes int64, err error) {
			if len(files) == 0 {
				u.Close()
				return 0, nil
			}
			var reads []uring.FileRead
			for i, f := range files {
				fd, err := f.open()
				if err != nil {
					return 0, err
				}
				defer unix.Close(int(fd))
				reads = append(reads, uring.FileRead{FD: int32(fd), At: uint32(i * size), Len: uint32(size)})
			}
			if err := u.ReadFiles(reads, 0); err != nil {
				return 0, err
			}
			for i, r := range reads {
				n, at := u.Count(i), int64(0)
				for ; n == size; n, err = unix.Pread(int(r.FD), u.Memory()[r.At:r.At+r.Len], at) {
					at += int64(n)
				}
				if n < 0 {
					return bytes, &os.PathError{Op: "read", Path: files[i].name.String(), Err: cmp.Or(err, error(unix.Errno(-n)))}
				}
				bytes += at + int64(n)
			}
			return bytes, nil
		}, nil
	}
}
