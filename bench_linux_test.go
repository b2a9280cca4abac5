package fileproc_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BenchmarkFloor does the work of BenchmarkProcess with bare system calls: it
// lists everything, then goroutines take 128 names at a time. It is what the
// time of BenchmarkProcess is divided by to compare machines, so it must not
// change with the package, and it uses nothing of the package.
func BenchmarkFloor(b *testing.B) {
	for _, layout := range layouts {
		for _, size := range sizes {
			set, ok := openDataset(b, layout, size)
			if !ok {
				continue
			}
			for _, m := range modes {
				for _, g := range []struct {
					name       string
					goroutines int
				}{{"1", 1}, {"max", runtime.GOMAXPROCS(0)}} {
					b.Run(fmt.Sprintf("layout=%s/files=%s/mode=%s/goroutines=%s", layout, size, m.name, g.name), func(b *testing.B) {
						f := floor{handle: floorHandlers[m.name]}
						m := startMeter(b)
						for b.Loop() {
							got, err := f.pass(set.dir, g.goroutines)
							if err != nil {
								b.Fatal(err)
							}
							set.check(b, f.handle != nil, got)
						}
						m.perFile(set.files, set.bytes)
					})
				}
			}
		}
	}
}

// A floorHandler does what a mode needs of one file, and returns its bytes.
// The name ends with a zero byte.
type floorHandler func(dirfd int, name *byte, buf []byte) (int64, unix.Errno)

var floorHandlers = map[string]floorHandler{
	"frontmatter": func(dirfd int, name *byte, buf []byte) (int64, unix.Errno) { return floorRead(dirfd, name, buf[:2048]) },
	"whole":       floorRead,
	"stat":        floorStat,
	"names":       nil,
}

func floorRead(dirfd int, name *byte, buf []byte) (int64, unix.Errno) {
	fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(dirfd), uintptr(unsafe.Pointer(name)), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
	unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	return int64(n), errno
}

func floorStat(dirfd int, name *byte, buf []byte) (int64, unix.Errno) {
	st := (*unix.Statx_t)(unsafe.Pointer(&buf[0]))
	_, _, errno := unix.RawSyscall6(unix.SYS_STATX, uintptr(dirfd), uintptr(unsafe.Pointer(name)), unix.AT_SYMLINK_NOFOLLOW,
		unix.STATX_BASIC_STATS, uintptr(unsafe.Pointer(st)), 0)
	return int64(st.Size), errno
}

type floor struct {
	handle  floorHandler // nil: names only
	records []byte       // what getdents64 gave; grows in the first pass
	files   []floorFile
	fds     []int // of the directories, open until the pass ends
}

type floorFile struct{ dirfd, name int32 } // name is an offset into records

func (f *floor) pass(root string, goroutines int) ([]tally, error) {
	f.records, f.files, f.fds = f.records[:0], f.files[:0], f.fds[:0]
	defer func() {
		for _, fd := range f.fds {
			unix.Close(fd)
		}
	}()
	if err := f.list(unix.AT_FDCWD, root); err != nil || f.handle == nil {
		return []tally{{files: int64(len(f.files))}}, err
	}
	got := make([]tally, goroutines)
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	for g := range got {
		wg.Go(func() {
			buf := make([]byte, 4096)
			var t tally
			for {
				const chunk = 128
				end := int(next.Add(chunk))
				if end-chunk >= len(f.files) {
					break
				}
				for _, file := range f.files[end-chunk : min(end, len(f.files))] {
					n, errno := f.handle(int(file.dirfd), &f.records[file.name], buf)
					if errno != 0 {
						failed.Store(int64(errno))
					}
					t.files++
					t.bytes += n
				}
			}
			got[g] = t
		})
	}
	wg.Wait()
	if errno := failed.Load(); errno != 0 {
		return nil, unix.Errno(errno)
	}
	return got, nil
}

// list appends the contents of name and its subdirectories.
func (f *floor) list(dirfd int, name string) error {
	const (
		atLeast           = 32 << 10 // bytes of room for a call
		reclen, typ, text = 16, 18, 19
	)
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f.fds = append(f.fds, fd)
	var subs []string
	for {
		f.records = slices.Grow(f.records, atLeast)
		start := len(f.records)
		n, err := unix.Getdents(fd, f.records[start:start+atLeast])
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		f.records = f.records[:start+n]
		for at := start; at < start+n; at += int(*(*uint16)(unsafe.Pointer(&f.records[at+reclen]))) {
			switch f.records[at+typ] {
			case unix.DT_REG:
				f.files = append(f.files, floorFile{int32(fd), int32(at + text)})
			case unix.DT_DIR:
				if sub := unix.ByteSliceToString(f.records[at+text:]); sub != "." && sub != ".." {
					subs = append(subs, sub)
				}
			}
		}
	}
	for _, sub := range subs {
		if err := f.list(fd, sub); err != nil {
			return err
		}
	}
	return nil
}
