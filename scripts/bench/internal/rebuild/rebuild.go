// Package rebuild runs programs for the commands of bench, such as go build with another version of a module.
package rebuild

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
)

// Module makes the file mod, and its go.sum, for go build -modfile -mod=mod: this module with the one in dir as that module.
func Module(ctx context.Context, mod, module, dir string) error {
	return All(ctx, [][]string{
		{"cp", "go.mod", mod},
		{"cp", "go.sum", strings.TrimSuffix(mod, ".mod") + ".sum"},
		{"go", "mod", "edit", "-replace", module + "=" + dir, mod},
	})
}

// All runs programs one after the other.
func All(ctx context.Context, commands [][]string) error {
	for _, args := range commands {
		if _, err := Output(ctx, args[0], args[1:]...); err != nil {
			return errors.New(args[0] + ": " + err.Error())
		}
	}
	return nil
}

// Output returns what a program printed. The error is the first line that it printed on stderr: those after it are
// consequences.
func Output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it can undo its mounts
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		reason, _, _ := strings.Cut(stderr.String(), "\n")
		err = errors.New(cmp.Or(reason, err.Error()))
	}
	return out, err
}
