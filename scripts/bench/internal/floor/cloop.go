//go:build linux

package floor

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
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
	return turns.Side{Pass: func() (p turns.Pass, _ error) {
		line := ""
		if err == nil {
			fmt.Fprintln(in, mode, size, threads)
			line, err = out.ReadString('\n') // fails if nobody has read the command
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
