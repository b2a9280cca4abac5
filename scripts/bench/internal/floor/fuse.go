//go:build linux

package floor

import (
	"bufio"
	"cmp"
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

	"github.com/fileproc/fileproc/scripts/internal/fail"
)

const slowFiles = 1000

// A slowFile is a file in memory, served over FUSE, that takes a while to open.
type slowFile struct {
	fs.MemRegularFile
	delay time.Duration
}

var _ fs.NodeOpener = (*slowFile)(nil)

func (f *slowFile) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	time.Sleep(f.delay)
	return f.MemRegularFile.Open(ctx, flags)
}

// serveSlow runs in the process that mountSlow starts. It serves a directory until its standard input ends.
func serveSlow(dir, delay string) error {
	slow, err := time.ParseDuration(delay)
	if err != nil {
		return err
	}
	root, valid := new(fs.Inode), time.Second // libfuse's default
	server, err := fs.Mount(dir, root, &fs.Options{
		EntryTimeout: &valid, AttrTimeout: &valid,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "fileproc", Name: "floor"},
		OnAdd: func(ctx context.Context) {
			for i := range slowFiles {
				f := &slowFile{fs.MemRegularFile{Data: make([]byte, 400)}, slow}
				root.AddChild(fmt.Sprintf("ticket-%07d.md", i), root.NewPersistentInode(ctx, f, fs.StableAttr{}), true)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	fmt.Println("mounted")
	io.Copy(io.Discard, os.Stdin)
	return server.Unmount()
}

// mountSlow mounts the directory to process. A separate process serves it, as with real file systems, so the server's goroutines do
// not count towards this process's GOMAXPROCS.
func (r *run) mountSlow(delay time.Duration) {
	r.dir = r.temp()
	r.Data = fmt.Sprintf("%d files with %v an open", slowFiles, delay)
	_, out, err := r.start("/proc/self/exe", "floor", "serve", r.dir, delay.String())
	fail.On(err)
	fail.Must(out.ReadString('\n'))
}

// start starts a program that ends when its standard input ends, which is after the run.
func (r *run) start(program string, args ...string) (io.Writer, *bufio.Reader, error) {
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at a terminal is for the run
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := cmp.Or(errIn, errOut, cmd.Start()); err != nil {
		return nil, nil, err
	}
	r.cleanup = append(r.cleanup, func() error { return errors.Join(in.Close(), cmd.Wait()) })
	return in, bufio.NewReader(out), nil
}
