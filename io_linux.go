//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"io/fs"
	"time"

	"github.com/fileproc/fileproc/internal/dirent"
	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

const backendName = "linux"

// listingSize is the size in bytes of the records of one directory.list.
const listingSize = 32 << 10

// shortCall is how many bytes of a listing one call asks for, some 50 µs of
// work, unless calls wait. Go's monitor takes the processor from a call that it
// sees twice, at least 20 µs apart; see visitsInARow.
const shortCall = 4 << 10

// linuxDir lists with getdents64 and parses the records in place.
type linuxDir struct {
	fdDir
	waits bool // a call of list took long
}

var _ directory = (*linuxDir)(nil)

func newDir(fd int, _ string) directory { return &linuxDir{fdDir: fdDir{fd: fd}} }

func (d *linuxDir) list(l *listing) (bool, error) {
	// After a call that gives little, the next may be the last. Making it at once
	// avoids waking other workers for a listing that is over.
	for buf := l.recordBuffer(); len(buf) > listingSize/2; {
		ask := shortCall
		if d.waits {
			ask = len(buf)
		}
		start := time.Now()
		n, err := getdents(d.fd, buf[:ask], func(r dirent.Record) error {
			if !names.IsDot(r.Name) {
				l.add(r.Name, direntType(r.Type), r.Ino)
			}
			return nil
		})
		d.waits = d.waits || time.Since(start) > 10*slowCall
		if err != nil || n == 0 {
			return false, err
		}
		buf = buf[n:]
	}
	return true, nil
}

// recordBuffer returns memory for the records, which stays with l.
func (l *listing) recordBuffer() []byte {
	if l.records == nil {
		l.records = make([]byte, listingSize)
	}
	return l.records[:listingSize]
}

// getdents calls add for each record of the next getdents64 until add fails. It
// returns how many bytes of buf the records take, and 0 at the end.
func getdents(fd int, buf []byte, add func(dirent.Record) error) (int, error) {
	n, err := ignoringEINTR(func() (int, error) { return unix.Getdents(fd, buf) })
	for records := buf[:max(n, 0)]; len(records) > 0 && err == nil; {
		var r dirent.Record
		if r, records, err = dirent.Next(records); err == nil {
			if err := add(r); err != nil {
				return n, err
			}
		}
	}
	if err != nil {
		err = &sysError{"getdents64", err}
	}
	return n, err
}

func (d *linuxDir) close() { unix.Close(d.fd) }

// direntType is fileType of a record. Its type is an inode's mode without the
// lower 12 bits.
func direntType(t uint8) fs.FileMode { return fileType(uint32(t) << 12) }

// openat is unix.Openat without its copy of the name.
func openat(dirfd int, name names.Name, flags int) (int, error) {
	return ignoringEINTR(func() (int, error) {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dirfd), uintptr(name.Pointer()), uintptr(flags|unix.O_LARGEFILE), 0, 0, 0)
		if errno != 0 {
			return -1, errno
		}
		return int(fd), nil
	})
}

// readCached reads what the page cache has of the file's beginning. It passes
// an offset so that a FIFO, whose content could be as short as a small file's,
// refuses (ESPIPE). Linux has the flag since 4.14. EOPNOTSUPP means an older
// kernel, or a file system without such a read: FUSE, proc, sysfs, overlayfs,
// and tmpfs.
func readCached(fd int, p []byte) (int, error) {
	return unix.Preadv2(fd, [][]byte{p}, 0, unix.RWF_NOWAIT)
}
