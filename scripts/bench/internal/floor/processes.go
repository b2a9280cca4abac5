//go:build linux

package floor

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/turns"
	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

//go:embed c/cloop.c
var cLoopSource []byte

// cLoop returns a side that runs passes of the C program in a mode. It starts the program now, so that passes do not include that.
func (r *run) cLoop(dir, mode string, size, threads int) turns.Side {
	in, out, err := r.startCLoop(dir)
	return turns.Side{Pass: func() (p turns.Pass, _ error) {
		line := ""
		if err == nil {
			fmt.Fprintln(in, mode, size, threads)
			line, err = out.ReadString('\n') // fails if the program did not read the command
		}
		if err != nil {
			return p, fmt.Errorf("cloop: %w", err)
		}
		if text, ok := strings.CutPrefix(line, "error: "); ok {
			return p, errors.New("cloop: " + strings.TrimSpace(text))
		}
		if _, err := fmt.Sscan(line, &p.Wall, &p.CPU, &p.Files, &p.Bytes); err != nil {
			return p, fmt.Errorf("cloop said %q: %w", line, err)
		}
		return p, nil
	}}
}

func (r *run) startCLoop(dir string) (io.Writer, *bufio.Reader, error) {
	if r.cloop == "" {
		program := filepath.Join(r.temp(), "cloop")
		cc := exec.Command("cc", "-O2", "-pthread", "-o", program, "-x", "c", "-")
		cc.Stdin = bytes.NewReader(cLoopSource)
		if text, err := cc.CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("cc: %w: %s", err, text)
		}
		r.cloop = program
	}
	return r.start(r.cloop, dir)
}

const slowFiles = 1000

// A slowFile is a file in memory, served over FUSE, whose open takes a while.
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

// mountSlow mounts the directory to process. A separate process serves it, so that the server's goroutines do not count towards this
// process's GOMAXPROCS, as with real file systems.
func (r *run) mountSlow(delay time.Duration) {
	r.dir = r.temp()
	r.Data = fmt.Sprintf("%d files with %v an open", slowFiles, delay)
	_, out, err := r.start("/proc/self/exe", "floor", "serve", r.dir, delay.String())
	fail.On(err)
	fail.Must(out.ReadString('\n'))
}

// start starts a program that runs until its standard input ends, after the run.
func (r *run) start(program string, args ...string) (io.Writer, *bufio.Reader, error) {
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that an interrupt at a terminal reaches only the run
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := cmp.Or(errIn, errOut, cmd.Start()); err != nil {
		return nil, nil, err
	}
	r.cleanup = append(r.cleanup, func() error { return errors.Join(in.Close(), cmd.Wait()) })
	return in, bufio.NewReader(out), nil
}
