//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc/scripts/internal/fail"
)

// maxRead is the largest read, in bytes, that FUSE does not split. The block device makes no larger requests, so that each of
// them is one read.
const maxRead = 1 << 20

// A disk is the image, slowed by a drive.
type disk struct {
	fs.Inode
	image []byte
	drive *drive
}

var (
	_ fs.NodeGetattrer = (*disk)(nil)
	_ fs.NodeOpener    = (*disk)(nil)
	_ fs.NodeReader    = (*disk)(nil)
)

func (d *disk) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o400, uint64(len(d.image))
	return 0
}

func (d *disk) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (d *disk) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	end := min(off+int64(len(dest)), int64(len(d.image)))
	off = min(off, end)
	d.drive.wait(off, end)
	return fuse.ReadResultData(d.image[off:end]), 0
}

// mapImage maps the image and reads all of it but holes. The kernel drops no mapped page, so that the machine's disk has no
// influence on the measurement.
func mapImage(name string) []byte {
	f := fail.Must(os.Open(name))
	defer f.Close()
	image, err := unix.Mmap(int(f.Fd()), 0, int(fail.Must(f.Stat()).Size()), unix.PROT_READ, unix.MAP_SHARED)
	fail.If(err != nil, "mapping %s: %w", name, err)
	for end := int64(0); ; {
		start, err := f.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return image
		}
		fail.On(err)
		end = fail.Must(f.Seek(start, unix.SEEK_HOLE))
		err = unix.Madvise(image[start&^int64(os.Getpagesize()-1):end], unix.MADV_POPULATE_READ)
		fail.If(err != nil, "reading %s: %w", name, err)
	}
}

// serve mounts a directory that has the emulated disk as its only file, and returns a function that unmounts it. This process serves
// the directory: the measured command is another process, so that these goroutines do not take part in its GOMAXPROCS.
func serve(image, dir string, d *drive) (stop func() error) {
	content := mapImage(image)
	root := new(fs.Inode) // a directory with one file, the disk
	server, err := fs.Mount(dir, root, &fs.Options{
		OnAdd: func(ctx context.Context) {
			file := &disk{image: content, drive: d}
			root.AddChild("disk", root.NewPersistentInode(ctx, file, fs.StableAttr{}), false)
		},
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "disk", Name: "disk", MaxWrite: maxRead,
			Logger: log.New(io.Discard, "", 0), // the kernel sometimes ends the connection before go-fuse expects it
			// Without these, the kernel sends one read after the other, or twelve at most.
			ExtraCapabilities: fuse.CAP_ASYNC_DIO, MaxBackground: 1024},
	})
	if err != nil {
		fail.On(errors.Join(fmt.Errorf("mounting FUSE: %w", err), unix.Munmap(content)))
	}
	return func() error { return errors.Join(retryBusy(server.Unmount), unix.Munmap(content)) }
}

// retryBusy repeats an unmount for up to 5 s: the kernel may still be closing files of a process that has ended.
func retryBusy(unmount func() error) (err error) {
	for range 100 {
		if err = unmount(); !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// A drive says how the emulated disk behaves. The zero value, with enough requests in flight, is as fast as the machine.
type drive struct {
	rate     float64       // requests a second at most; 0: any number
	latency  time.Duration // of each request
	inflight int           // requests at the same time at most
	seek     time.Duration // of a single head, before a request that does not begin where the last one ended

	slots chan struct{}

	mu   sync.Mutex
	free time.Time // when the next request may begin; guarded by mu
	end  int64     // where the last request ended; guarded by mu
}

func (d *drive) flags(f *flag.FlagSet) {
	f.Float64Var(&d.rate, "rate", 0, "requests a `second` at most; 0: any number")
	f.DurationVar(&d.latency, "latency", 0, "`time` that each request takes")
	f.IntVar(&d.inflight, "inflight", 128, "`requests` in flight at most")
	f.DurationVar(&d.seek, "seek", 0, "`time` that the one head takes to a request that does not follow the last one")
}

func (d *drive) check() {
	fail.If(d.rate < 0 || d.latency < 0 || d.seek < 0, "-rate, -latency and -seek must not be negative")
	fail.If(d.inflight < 1, "-inflight %d: must be at least 1", d.inflight)
	d.slots = make(chan struct{}, d.inflight)
}

// wait waits until the drive has done a request for the bytes from off to end.
func (d *drive) wait(off, end int64) {
	d.slots <- struct{}{}
	defer func() { <-d.slots }()
	sleepUntil(d.schedule(time.Now(), off, end))
}

// schedule returns when a request that arrives now will be done. Requests begin in the order in which they arrive.
func (d *drive) schedule(now time.Time, off, end int64) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	start := now
	if d.free.After(now) {
		start = d.free
	}
	if off != d.end {
		start = start.Add(d.seek)
	}
	d.end, d.free = end, start
	if d.rate > 0 {
		d.free = start.Add(time.Duration(float64(time.Second) / d.rate))
	}
	return start.Add(d.latency)
}

// sleepUntil sleeps in a system call, because an idle Go program rounds its timers up to a millisecond.
func sleepUntil(t time.Time) {
	for left := time.Until(t); left > 0; left = time.Until(t) {
		ts := unix.NsecToTimespec(int64(left))
		unix.Nanosleep(&ts, nil) // after a signal, the loop goes on
	}
}
