// Package program runs programs for the commands of bench, such as go build with another version of a module.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Output runs a program in dir and returns what it printed. The error is one line: the first that the program complained with, since
// those after it are consequences or a usage, and the last, since progress may stand before it.
func Output(ctx context.Context, dir, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, &stdout, &stderr, 20*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it can undo its mounts
	err := cmd.Run()
	if errors.As(err, new(*exec.ExitError)) {
		var said []string
		for line := range strings.Lines(stderr.String() + stdout.String()) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") { // the go command's name of a package
				said = append(said[:min(1, len(said))], line)
			}
		}
		err = errors.New(strings.Join(append(said, err.Error())[:max(1, len(said))], " … "))
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(append([]string{filepath.Base(name)}, args[:min(1, len(args))]...), " "), err)
	}
	return strings.TrimSpace(stdout.String()), err
}
