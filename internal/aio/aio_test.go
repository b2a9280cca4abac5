//go:build linux

package aio

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Each read gets its file's bytes, or nothing where the page cache does not have them all.
func TestReadGivesEachFileItsBytes(t *testing.T) {
	c, err := New(32)
	if err != nil {
		t.Skipf("left out: no asynchronous I/O here: %v", err)
	}
	defer c.Close()
	dir := t.TempDir()
	var files []*os.File
	want := make([][]byte, 32)
	for i := range want {
		want[i] = bytes.Repeat([]byte{byte(i + 1)}, 300*i+1)
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(name, want[i], 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	for round := range 20 {
		reads := make([]Read, 1+(round*7)%32)
		for i := range reads {
			if i%5 == round%5 { // drop it from the page cache, if the kernel is willing
				if err := files[i].Sync(); err != nil {
					t.Fatal(err)
				}
				unix.Fadvise(int(files[i].Fd()), 0, 0, unix.FADV_DONTNEED)
			}
			reads[i] = Read{FD: int(files[i].Fd()), Buf: make([]byte, len(want[i])+1)}
		}
		if err := c.Read(reads); err == unix.EOPNOTSUPP || err == unix.EINVAL {
			t.Skipf("left out: not on this file system: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
		for i, r := range reads {
			if r.Count > len(want[i]) || r.Count >= 0 && !bytes.Equal(r.Buf[:r.Count], want[i][:r.Count]) {
				t.Fatalf("round %d, file %d: read %d bytes, want %d", round, i, r.Count, len(want[i]))
			}
			if r.Count < 0 && i%5 != round%5 {
				t.Fatalf("round %d, file %d: not read, but it is in the page cache", round, i)
			}
		}
	}
}

func TestErrorOfOneReadIsItsOwn(t *testing.T) {
	c, err := New(4)
	if err != nil {
		t.Skipf("left out: no asynchronous I/O here: %v", err)
	}
	defer c.Close()
	if err := c.Read([]Read{{FD: -1, Buf: make([]byte, 1)}}); err != unix.EBADF {
		t.Fatal(err)
	}
}

func BenchmarkClose(b *testing.B) {
	for b.Loop() {
		c, err := New(256)
		if err != nil {
			b.Skip(err)
		}
		start := time.Now()
		c.Close()
		b.ReportMetric(float64(time.Since(start).Microseconds()), "close-us")
	}
}

// Results that could not be had must not count for the files of a later Read.
func TestContextIsNotUsedAfterLostResults(t *testing.T) {
	c, err := New(4)
	if err != nil {
		t.Skipf("left out: no asynchronous I/O here: %v", err)
	}
	defer c.Close()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	noAccess, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(noAccess)
	read := func() Read { return Read{FD: int(f.Fd()), Buf: make([]byte, 10)} }

	memory := c.events
	c.events = unsafe.Slice((*event)(unsafe.Pointer(&noAccess[0])), 4)
	if err := c.Read([]Read{read(), read()}); err == unix.EOPNOTSUPP || err == unix.EINVAL {
		t.Skipf("left out: not on this file system: %v", err)
	} else if err != unix.EFAULT {
		t.Fatalf("the error is %v", err)
	}
	c.events = memory
	if err := c.Read([]Read{read()}); err == nil {
		t.Fatal("results of the first Read may come for this one")
	}
}
