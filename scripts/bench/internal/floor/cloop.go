//go:build linux

package floor

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed c/cloop.c
var cLoopSource []byte

// A cLoop is the running C program, whose start is not measured. It is nil on a machine without a C compiler.
type cLoop struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	threads int
}

// startCLoop compiles and starts the C program. Without a C compiler it prints a message and returns nil.
func startCLoop(dir string, threads int) (*cLoop, error) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		fmt.Fprintln(os.Stderr, "floor: no C compiler (cc) in PATH: continuing without the C loop")
		return nil, nil
	}
	tmp, err := os.MkdirTemp("", "floor-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp) // the running program does not need its file
	source, program := filepath.Join(tmp, "cloop.c"), filepath.Join(tmp, "cloop")
	if err := os.WriteFile(source, cLoopSource, 0o644); err != nil {
		return nil, err
	}
	if text, err := exec.Command(cc, "-O2", "-pthread", "-o", program, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cc: %w: %s", err, text)
	}

	c := &cLoop{cmd: exec.Command(program, dir), threads: threads}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, c.cmd.Start()
}

// side returns a side that runs passes of the C program in one of its modes.
func (c *cLoop) side(mode string, size int) side {
	if c == nil {
		return nil
	}
	return func() (p pass, err error) {
		if _, err := fmt.Fprintln(c.in, mode, size, c.threads); err != nil {
			return p, fmt.Errorf("cloop: %w", err)
		}
		line, err := c.out.ReadString('\n')
		if err != nil {
			return p, fmt.Errorf("cloop: %w", err)
		}
		if text, ok := strings.CutPrefix(line, "error: "); ok {
			return p, errors.New("cloop: " + strings.TrimSpace(text))
		}
		if _, err := fmt.Sscan(line, &p.wall, &p.cpu, &p.files, &p.bytes); err != nil {
			return p, fmt.Errorf("cloop said %q: %w", line, err)
		}
		return p, nil
	}
}

func (c *cLoop) close() {
	if c == nil {
		return
	}
	c.in.Close() // ends its loop
	c.cmd.Wait()
}
