//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// slowFiles is how many files a slowDir has.
const slowFiles = 1000

// A slowDir is a directory in memory, served over FUSE, of which each open takes a while.
type slowDir struct {
	fs.Inode
	files int
	delay time.Duration
}

func (d *slowDir) OnAdd(ctx context.Context) {
	for i := range d.files {
		f := &slowFile{fs.MemRegularFile{Data: make([]byte, 400)}, d.delay}
		d.AddChild(fmt.Sprintf("ticket-%07d.md", i), d.NewPersistentInode(ctx, f, fs.StableAttr{}), true)
	}
}

type slowFile struct {
	fs.MemRegularFile
	delay time.Duration
}

var _ fs.NodeOpener = (*slowFile)(nil)

func (f *slowFile) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	time.Sleep(f.delay)
	return f.MemRegularFile.Open(ctx, flags)
}

// serveSlow is what this program does when mountSlow has started it: it serves until its input ends.
func serveSlow(dir, delay string) error {
	wait, err := time.ParseDuration(delay)
	if err != nil {
		return err
	}
	valid := time.Second // as libfuse's default
	server, err := fs.Mount(dir, &slowDir{files: slowFiles, delay: wait}, &fs.Options{
		EntryTimeout: &valid, AttrTimeout: &valid,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "fileproc", Name: "floor"},
	})
	if err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	fmt.Println("mounted")
	io.Copy(io.Discard, os.Stdin)
	return server.Unmount()
}

// mountSlow mounts such a directory, served by a process of its own, as file systems are: it takes none of the processors
// that this one's goroutines have.
func mountSlow(delay time.Duration) (dir string, unmount func() error, err error) {
	if dir, err = os.MkdirTemp("", "floor-"); err != nil {
		return "", nil, err
	}
	server := exec.Command("/proc/self/exe", "serve", dir, delay.String())
	server.Stderr = os.Stderr
	in, err := server.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := server.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := server.Start(); err != nil {
		return "", nil, err
	}
	unmount = func() error {
		in.Close()
		return errors.Join(server.Wait(), os.Remove(dir))
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return "", nil, errors.Join(err, unmount())
	}
	return dir, unmount, nil
}
