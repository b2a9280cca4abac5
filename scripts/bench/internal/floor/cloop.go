//go:build linux

package floor

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/turns"
)

//go:embed c/cloop.c
var cLoopSource []byte

// cLoop returns a side that runs passes of the C program in one of its modes. The program starts now, so that no pass includes that.
func (r *run) cLoop(dir, mode string, size, threads int) turns.Side {
	in, out, err := r.startCLoop(dir)
	if errors.Is(err, exec.ErrNotFound) {
		return turns.Side{Missing: "no C compiler (cc) in PATH"}
	}
	return turns.Side{Pass: func() (p turns.Pass, _ error) {
		line := ""
		if err == nil {
			_, err = fmt.Fprintln(in, mode, size, threads)
		}
		if err == nil {
			line, err = out.ReadString('\n')
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
		tmp, err := r.temp("")
		if err != nil {
			return nil, nil, err
		}
		cc := exec.Command("cc", "-O2", "-pthread", "-o", filepath.Join(tmp, "cloop"), "-x", "c", "-")
		cc.Stdin = bytes.NewReader(cLoopSource)
		if text, err := cc.CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("cc: %w: %s", err, text)
		}
		r.cloop = cc.Args[4]
	}
	cmd := exec.Command(r.cloop, dir)
	cmd.Stderr = os.Stderr
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	r.cleanup = append(r.cleanup, func() error {
		in.Close() // ends its loop
		cmd.Wait() // a failure was the error of a pass
		return nil
	})
	return in, bufio.NewReader(out), nil
}
