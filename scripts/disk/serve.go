//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// maxRead is the largest read that FUSE passes on in one piece, in bytes. The block device asks for no more at once, so that
// each request of the block device is one read.
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

// mapImage maps the image and reads what is not a hole. The kernel drops no page that is mapped, so that the machine's disk
// does not take part in what is measured.
func mapImage(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	image, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", name, err)
	}
	for end := int64(0); ; {
		start, err := f.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return image, nil
		} else if err != nil {
			return nil, err
		}
		if end, err = f.Seek(start, unix.SEEK_HOLE); err != nil {
			return nil, err
		}
		start &^= int64(os.Getpagesize() - 1)
		if err := unix.Madvise(image[start:end], unix.MADV_POPULATE_READ); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
	}
}

// serve mounts the directory of the image's disk, and returns what unmounts it. This process serves it, since what is measured is
// a process of its own, whose GOMAXPROCS is not shared with these goroutines.
func serve(image, dir string, d *drive) (stop func() error, err error) {
	content, err := mapImage(image)
	if err != nil {
		return nil, err
	}
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
		return nil, errors.Join(fmt.Errorf("mounting FUSE: %w", err), unix.Munmap(content))
	}
	return func() error { return errors.Join(retryBusy(server.Unmount), unix.Munmap(content)) }, nil
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
