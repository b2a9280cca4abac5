//go:build linux

package floor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// slowFiles is the number of files in a slowDir.
const slowFiles = 1000

// A slowDir is an in-memory directory, served over FUSE, whose files take a while to open.
type slowDir struct {
	fs.Inode
	slow *slowness
}

// slowness is the delay of each open.
type slowness struct {
	delay  time.Duration
	busy   bool       // the delay uses a processor
	serial bool       // one open at a time
	mu     sync.Mutex // held during the delay if serial
}

func newSlowness(delay, kind string) (*slowness, error) {
	d, err := time.ParseDuration(delay)
	if !slices.Contains([]string{"", "busy", "serial", "busy,serial"}, kind) {
		err = fmt.Errorf("-server: unknown kind %q: want busy, serial or busy,serial", kind)
	}
	return &slowness{delay: d, busy: strings.Contains(kind, "busy"), serial: strings.Contains(kind, "serial")}, err
}

func (s *slowness) wait() {
	if s.serial {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	if !s.busy {
		time.Sleep(s.delay)
		return
	}
	for start := time.Now(); time.Since(start) < s.delay; {
	}
}

func (d *slowDir) OnAdd(ctx context.Context) {
	for i := range slowFiles {
		f := &slowFile{fs.MemRegularFile{Data: make([]byte, 400)}, d.slow}
		d.AddChild(fmt.Sprintf("ticket-%07d.md", i), d.NewPersistentInode(ctx, f, fs.StableAttr{}), true)
	}
}

type slowFile struct {
	fs.MemRegularFile
	slow *slowness
}

var _ fs.NodeOpener = (*slowFile)(nil)

func (f *slowFile) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f.slow.wait()
	return f.MemRegularFile.Open(ctx, flags)
}

// serveSlow runs in the process that mountSlow starts. It serves until its standard input ends.
func serveSlow(dir, delay, kind string) error {
	slow, err := newSlowness(delay, kind)
	if err != nil {
		return err
	}
	valid := time.Second // libfuse's default
	server, err := fs.Mount(dir, &slowDir{slow: slow}, &fs.Options{
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

// mountSlow mounts a slowDir as the directory to process. A separate process serves it, as with real file systems, so the server's
// goroutines do not count towards this process's GOMAXPROCS.
func (r *run) mountSlow() (err error) {
	if _, err = newSlowness(r.fuse.String(), r.server); err != nil {
		return err
	}
	if r.dir, err = r.temp(""); err != nil {
		return err
	}
	r.Data = fmt.Sprintf("%d files with %v an open", slowFiles, r.fuse)
	server := exec.Command("/proc/self/exe", "floor", "serve", r.dir, r.fuse.String(), r.server)
	server.Stderr = os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal ends the run, which then unmounts
	in, errIn := server.StdinPipe()
	out, errOut := server.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	r.cleanup = append(r.cleanup, func() error {
		in.Close()
		return server.Wait()
	})
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}
