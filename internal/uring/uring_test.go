//go:build linux

package uring

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fileproc/fileproc/internal/names"
	"golang.org/x/sys/unix"
)

func newRing(t *testing.T, depth, size int) *Ring {
	r, err := New(depth, size)
	if err != nil {
		t.Logf("left out: no io_uring here: %v", err)
		return nil
	}
	t.Cleanup(r.Close)
	return r
}

func openDir(t *testing.T, dir string) int {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestReadGivesEachFileItsBytes(t *testing.T) {
	r := newRing(t, 32, 4096)
	if r == nil {
		return
	}
	dir := t.TempDir()
	var files []names.Name
	content := map[string][]byte{}
	for i := range 1000 {
		name := fmt.Sprintf("file-%d", i)
		if i%7 != 0 { // every seventh is missing
			content[name] = bytes.Repeat([]byte{byte(i), byte(i >> 8)}, (i*37)%2048)
			if err := os.WriteFile(filepath.Join(dir, name), content[name], 0o644); err != nil {
				t.Fatal(err)
			}
		}
		files = append(files, names.New(name))
	}
	fd := openDir(t, dir)
	for round := range 20 {
		for i := 0; i < len(files); {
			k := min(1+(i*13+round)%32, len(files)-i)
			if err := r.Read(fd, files[i:i+k], unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 4096, 0); err != nil {
				t.Fatal(err)
			}
			for j := range k {
				if got := r.Bytes(j); !bytes.Equal(got, content[files[i+j].String()]) {
					t.Fatalf("round %d, %s: %d bytes, want %d", round, files[i+j], len(got), len(content[files[i+j].String()]))
				}
			}
			i += k
		}
	}
}

// Only regular files have a result, even if others have bytes to read.
func TestReadOfOtherTypesGivesNothing(t *testing.T) {
	r := newRing(t, 8, 4096)
	if r == nil {
		return
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(path("regular"), []byte("content"), 0o644))
	must(os.Symlink("regular", path("link")))
	must(os.Mkdir(path("directory"), 0o755))
	must(unix.Mkfifo(path("fifo"), 0o644))
	must(unix.Mkfifo(path("empty"), 0o644))
	w, err := unix.Open(path("fifo"), unix.O_RDWR|unix.O_NONBLOCK, 0)
	must(err)
	defer unix.Close(w)
	_, err = unix.Write(w, []byte("secret"))
	must(err)
	files := []names.Name{names.New("link"), names.New("directory"), names.New("fifo"), names.New("empty")}
	if unix.Mknod(path("log"), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 11))) == nil {
		files = append(files, names.New("log")) // the kernel's log, with records of any length
	}
	files = append(files, names.New("regular"))
	must(r.Read(openDir(t, dir), files, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 4096, unix.RWF_NOWAIT))
	for i, name := range files[:len(files)-1] {
		if p := r.Bytes(i); p != nil {
			t.Errorf("%s: read %q", name, p)
		}
	}
	// Some file systems, such as tmpfs and overlayfs, refuse a read that must not wait.
	f, err := os.Open(path("regular"))
	must(err)
	defer f.Close()
	want := "content"
	if _, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, 10)}, 0, unix.RWF_NOWAIT); err == unix.EOPNOTSUPP {
		want = ""
	}
	if got := r.Bytes(len(files) - 1); string(got) != want {
		t.Errorf("regular: read %q, want %q", got, want)
	}
}

func TestCloseLeavesNoFileOpen(t *testing.T) {
	r := newRing(t, 8, 64)
	if r == nil {
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	// A write lease is granted only while nobody has the file open.
	lease := func() error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		return err
	}
	if err := lease(); err != nil {
		t.Logf("left out: no leases here: %v", err)
		return
	}
	other, err := New(8, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Read(openDir(t, dir), []names.Name{names.New("f")}, unix.O_RDONLY, 64, 0); err != nil || string(other.Bytes(0)) != "x" {
		t.Fatal(err, other.Bytes(0))
	}
	if lease() == nil {
		t.Fatal("the file should be open until the ring is closed")
	}
	other.Close()
	if err := lease(); err != nil {
		t.Fatalf("the file is still open: %v", err)
	}
}

func TestBrokenRingIsOfNoUse(t *testing.T) {
	r := newRing(t, 8, 64)
	if r == nil {
		return
	}
	dir := openDir(t, t.TempDir())
	fd := r.fd
	r.fd = -1
	if err := r.Read(dir, []names.Name{names.New("f")}, 0, 64, 0); err != unix.EBADF {
		t.Fatal(err)
	}
	r.fd = fd
	if r.Read(dir, []names.Name{names.New("f")}, 0, 64, 0) == nil {
		t.Fatal("a ring with requests in it that were never submitted must not be used")
	}
}

// All reads are submitted in a row. Those of the page cache are then complete.
func TestReadFilesTellsWhenAllAreSubmitted(t *testing.T) {
	r, err := NewForFiles(8, 1<<20)
	if err != nil {
		t.Skipf("no io_uring here: %v", err)
	}
	defer r.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, 8)}, 0, unix.RWF_NOWAIT); n != 4 {
		t.Skipf("the file system of the temporary directory has no reads that do not wait: %v", err)
	}
	reads := []FileRead{{FD: int32(f.Fd()), At: 0, Len: 8}, {FD: int32(f.Fd()), At: 8, Len: 8}}
	var complete []int
	submitted := func() { complete = append(complete, int(atomic.LoadUint32(r.cqTail)-*r.cqHead)) }
	if err := r.ReadFiles(reads, 0, submitted); err != nil || r.Count(0) != 4 || r.Count(1) != 4 {
		t.Fatal(err, r.Count(0), r.Count(1))
	}
	if !slices.Equal(complete, []int{2}) {
		t.Fatal("reads that were complete when all were submitted: ", complete)
	}
	fd := r.fd
	for _, r.fd = range []int{-1, fd} { // the second time, the ring is broken
		if r.ReadFiles(reads, 0, submitted) == nil {
			t.Fatal("no error")
		}
	}
	if len(complete) != 3 {
		t.Fatal("it is not told after an error: ", complete)
	}
}

// Memory that the kernel may still write into is never another ring's.
func TestMemoryOfLostRequestsIsNotUsedAgain(t *testing.T) {
	r, err := NewForFiles(8, 1<<20)
	if err != nil {
		t.Skipf("no io_uring here: %v", err)
	}
	if err := r.giveUp(unix.EIO, 1); err != unix.EIO { // it waits for a second
		t.Fatal(err)
	}
	lost := &r.Memory()[0]
	r.Close()
	if m := takeMemory(1); &(*m)[0] == lost {
		t.Fatal("the memory is used again")
	}
}

// Memory that is kept from a ring is another one's, if it is large enough, but never that of two at once.
func TestRingsShareNoMemory(t *testing.T) {
	if newRing(t, 8, 64) == nil {
		return
	}
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte(name), 4096), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fd := openDir(t, dir)
	for range 3 {
		small, err := New(8, 64)
		if err != nil {
			t.Fatal(err)
		}
		small.Close()
		var rings [2]*Ring
		for i, name := range []string{"a", "b"} {
			if rings[i], err = New(8, 4096); err != nil {
				t.Fatal(err)
			}
			if err := rings[i].Read(fd, []names.Name{names.New(name)}, unix.O_RDONLY, 4096, 0); err != nil {
				t.Fatal(err)
			}
		}
		for i, name := range []string{"a", "b"} {
			if want := bytes.Repeat([]byte(name), 4096); !bytes.Equal(rings[i].Bytes(0), want) {
				t.Fatalf("ring %d: %d bytes, not those of %s", i, len(rings[i].Bytes(0)), name)
			}
			rings[i].Close()
		}
	}
}

// A file's buffer begins at a multiple of 512, and all buffers fit.
func TestRoom(t *testing.T) {
	for _, size := range []int{1 << 20, 1<<20 + 100} {
		r := &Ring{bufs: make([]byte, size)}
		for n := 1; n <= 64; n++ {
			room := r.Room(n)
			if room%512 != 0 || n*room > size || (room+512)*n <= size {
				t.Errorf("%d bytes for each of %d in %d", room, n, size)
			}
		}
	}
}
