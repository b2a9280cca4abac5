//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// makeImage makes an image of a file system with the files of a directory, which cp writes in the order of their inodes, as
// they were written there.
func makeImage(ctx context.Context, name, from, out string) error {
	kind, ok := fileSystems[name]
	if !ok {
		return fmt.Errorf("unknown file system %q: want ext4, xfs or btrfs", name)
	}
	// The image is sparse, so its size may be generous with the files and their inodes.
	size := int64(1 << 30)
	err := filepath.WalkDir(from, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += 20<<10 + 2*info.Size()
		}
		return err
	})
	if err == nil {
		err = errors.Join(os.WriteFile(out, nil, 0o600), os.Truncate(out, size&^(1<<20-1)))
	}
	if err != nil {
		return err
	}
	_, err = quietly(ctx, append(slices.Clone(kind.format), out)...)
	if err == nil {
		err = withMount(mountOf{file: out, fs: name}, func(_ loop, dir string) error {
			_, err := quietly(ctx, "cp", "-a", from+"/.", dir)
			return err
		})
	}
	if err != nil {
		return errors.Join(err, os.Remove(out))
	}
	_, err = quietly(ctx, "sync", out) // written back later, it would disturb what is measured
	return err
}

// quietly runs a command and returns the last line of its output, which is in its error, too.
func quietly(ctx context.Context, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := lines[len(lines)-1]
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	} else if err != nil {
		err = fmt.Errorf("%s: %w %s", args[0], err, last)
	}
	return last, err
}
