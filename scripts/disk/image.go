//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// makeImage makes an image of a file system with the files of a directory, which cp writes in the order of their inodes, as
// they were written there.
func makeImage(ctx context.Context, name, from, out string) error {
	i := slices.IndexFunc(fileSystems, func(fs fileSystem) bool { return fs.name == name })
	if i < 0 {
		return fmt.Errorf("unknown file system %q: want ext4, xfs or btrfs", name)
	}
	size, err := imageSize(from)
	if err != nil {
		return err
	}
	if err := createSparse(out, size); err != nil {
		return err
	}
	if err := quietly(ctx, append(slices.Clone(fileSystems[i].format), out)...); err != nil {
		return errors.Join(err, os.Remove(out))
	}
	if err := fill(ctx, name, from, out); err != nil {
		return errors.Join(err, os.Remove(out))
	}
	// Written back later, it would disturb what is measured.
	f, err := os.Open(out)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// fill copies the directory into a new file system.
func fill(ctx context.Context, name, from, out string) (err error) {
	tmp, err := os.MkdirTemp("", "disk-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeEmpty(tmp)) }()
	l, err := attach(out, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.detach()) }()
	dir := filepath.Join(tmp, "mnt")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(l.path, dir, name, 0, ""); err != nil {
		return fmt.Errorf("mounting the new image as %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, unmount(dir)) }()
	return quietly(ctx, "cp", "-a", from+"/.", dir)
}

// imageSize returns a size with room for the files and their inodes, in bytes. The image is sparse, so it may be generous.
func imageSize(dir string) (int64, error) {
	size := int64(1 << 30)
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += 20<<10 + 2*info.Size()
		}
		return err
	})
	return size &^ (1<<20 - 1), err
}

func createSparse(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// quietly runs a command whose output matters only if it fails, and then its last line.
func quietly(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	text, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case err != nil:
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		return fmt.Errorf("%s: %w %s", args[0], err, lines[len(lines)-1])
	}
	return nil
}
