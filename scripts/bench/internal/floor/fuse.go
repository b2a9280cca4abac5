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
	files int
	slow  *slowness
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
	s := &slowness{delay: d}
	for word := range strings.FieldsFuncSeq(kind, func(c rune) bool { return c == ',' }) {
		switch word {
		case "busy":
			s.busy = true
		case "serial":
			s.serial = true
		default:
			return nil, fmt.Errorf("-server: unknown kind %q: want busy, serial or busy,serial", word)
		}
	}
	return s, err
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
	for i := range d.files {
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
	server, err := fs.Mount(dir, &slowDir{files: slowFiles, slow: slow}, &fs.Options{
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

// mountSlow mounts a slowDir that a separate process serves, as with real file systems. The server's goroutines do not count
// towards this process's GOMAXPROCS.
func mountSlow(delay time.Duration, kind string) (dir string, unmount func() error, err error) {
	if _, err := newSlowness(delay.String(), kind); err != nil {
		return "", nil, err
	}
	if dir, err = os.MkdirTemp("", "floor-"); err != nil {
		return "", nil, err
	}
	server := exec.Command("/proc/self/exe", "floor", "serve", dir, delay.String(), kind)
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
