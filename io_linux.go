//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"io/fs"
	"sync"
	"time"
	"unsafe"

	"github.com/fileproc/fileproc/internal/dirent"
	"golang.org/x/sys/unix"
)

const backendName = "linux"

type direntBuffer [32 << 10]byte

// direntBuffers have room for one getdents64 call.
var direntBuffers = sync.Pool{New: func() any { return new(direntBuffer) }}

// shortCall is how many bytes of a listing one call is asked for, unless it waits
// for what is not a processor: some 50 µs of work. Go's monitor takes the
// processor of a call that it sees twice, at least 20 µs apart; see visitsInARow.
const shortCall = 4 << 10

// linuxDir lists with getdents64, whose records are parsed in place.
type linuxDir struct {
	fdDir
	waits bool // a call for a part of the listing took long
}

var _ directory = (*linuxDir)(nil)

func openRoot(root string) (directory, error) {
	var fd int
	err := ignoringEINTR(func() (err error) {
		fd, err = unix.Open(root, dirFlags, 0)
		return err
	})
	if err != nil {
		return nil, &sysError{"open", err}
	}
	return &linuxDir{fdDir: fdDir{fd: fd}}, nil
}

func (d *linuxDir) openDir(name string) (directory, error) {
	fd, err := d.openSub(name)
	if err != nil {
		return nil, err
	}
	return &linuxDir{fdDir: fdDir{fd: fd}}, nil
}

func (d *linuxDir) list(s *sink) (bool, error) {
	buf := direntBuffers.Get().(*direntBuffer)
	defer direntBuffers.Put(buf)
	// A call that gives little may be the last but one: asking again at once
	// spares others from being called for a listing that is over.
	for listed := 0; listed < len(buf)/2; {
		ask := shortCall
		if d.waits {
			ask = len(buf)
		}
		start := time.Now()
		records, err := getdents(d.fd, buf[:ask])
		d.waits = d.waits || time.Since(start) > 10*slowCall
		if err != nil || len(records) == 0 {
			return false, err
		}
		listed += len(records)
		for len(records) > 0 {
			var r dirent.Record
			if r, records, err = dirent.Next(records); err != nil {
				return false, &sysError{"getdents64", err}
			}
			if !isDot(r.Name) {
				s.add(r.Name, direntType(r.Type))
			}
		}
	}
	return true, nil
}

// getdents returns the records of the next call, none at the end.
func getdents(fd int, buf []byte) ([]byte, error) {
	for {
		n, err := unix.Getdents(fd, buf)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, &sysError{"getdents64", err}
		default:
			return buf[:n], nil
		}
	}
}

func (d *linuxDir) close() { unix.Close(d.fd) }

func direntType(t uint8) fs.FileMode {
	switch t {
	case dirent.Regular:
		return 0
	case dirent.Directory:
		return fs.ModeDir
	case dirent.Symlink:
		return fs.ModeSymlink
	case dirent.FIFO:
		return fs.ModeNamedPipe
	case dirent.Socket:
		return fs.ModeSocket
	case dirent.CharDev:
		return fs.ModeDevice | fs.ModeCharDevice
	case dirent.BlockDev:
		return fs.ModeDevice
	}
	return typeUnknown
}

// openat is unix.Openat without its copy of name, behind which is a zero.
func openat(dirfd int, name string, flags int) (int, error) {
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dirfd), uintptr(unsafe.Pointer(unsafe.StringData(name))),
			uintptr(flags|unix.O_LARGEFILE), 0, 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
		default:
			return -1, errno
		}
	}
}

// readCached reads from the beginning what the page cache has. A position is
// given so that a FIFO refuses (ESPIPE), which could hold just as little as a
// small file. The flag is known since Linux 4.14; EOPNOTSUPP is from it being
// unknown, and from file systems without such a read: FUSE, proc, sysfs,
// overlayfs, and tmpfs.
func readCached(fd int, p []byte) (int, error) {
	return unix.Preadv2(fd, [][]byte{p}, 0, unix.RWF_NOWAIT)
}
