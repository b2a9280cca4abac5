//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
)

type mountOf struct {
	file     string            // the image, for the loop device
	readOnly bool              // and without the page cache
	settings map[string]string // of the block device's queue
	fs       string
	options  string
}

// withMount calls use with the device and the directory where it is mounted.
func withMount(m mountOf, use func(l loop, dir string)) {
	dir := fail.Must(os.MkdirTemp("", "disk-"))
	defer fail.Undo(func() error { return os.Remove(dir) }) // Remove, not RemoveAll: after a failed unmount, its files are those of the image
	args, flags := []string{"losetup", "--find", "--show", m.file}, uintptr(0)
	if m.readOnly {
		args, flags = append(args, "--read-only", "--direct-io=on"), unix.MS_RDONLY
	}
	path := output(context.Background(), args...)
	err := unix.Mount(path, dir, m.fs, flags, m.options)
	// The kernel clears a device in use at the unmount, also if that is the end of the namespace.
	output(context.Background(), "losetup", "--detach", path)
	fail.If(err != nil, "mounting the image as %s: %w", m.fs, err)
	defer fail.Undo(func() error {
		err := retryBusy(func() error { return unix.Unmount(dir, 0) })
		if err != nil { // then it is unmounted when the last process that uses it ends
			err = errors.Join(fmt.Errorf("unmounting %s: %w", dir, err), unix.Unmount(dir, unix.MNT_DETACH))
		}
		return err
	})
	l := loop(filepath.Base(path))
	for name, value := range m.settings {
		old := l.set(name, value)
		defer l.set(name, old) // the setting outlives the attached file
	}
	use(l, dir)
}

// A loop is the name of a block device over a file.
type loop string

// set changes a setting of the device's queue, and returns what it was.
func (l loop) set(name, value string) (old string) {
	file := filepath.Join("/sys/block", string(l), "queue", name)
	old = selected(string(fail.Must(os.ReadFile(file))))
	if old != value {
		err := os.WriteFile(file, []byte(value), 0)
		fail.If(err != nil, "setting %s to %s: %w", name, value, err)
	}
	return old
}

// selected returns the value of a setting. Among several choices it is the one in brackets.
func selected(text string) string {
	if _, after, ok := strings.Cut(text, "["); ok {
		text, _, _ = strings.Cut(after, "]")
	}
	return strings.TrimSpace(text)
}

// reads returns the reads of the device so far. It first waits for requests that a killed process may have left.
func (l loop) reads() count {
	for ; ; time.Sleep(time.Millisecond) {
		if c, inflight := parseStat(string(fail.Must(os.ReadFile(filepath.Join("/sys/block", string(l), "stat"))))); inflight == 0 {
			return c
		}
	}
}

// parseStat parses /sys/block/DEVICE/stat. Its fields are the completed reads, the merged reads, their sectors of 512 bytes, their
// milliseconds, the same four of writes, and the requests in flight.
func parseStat(text string) (c count, inflight int64) {
	var sectors, other int64
	_, err := fmt.Sscan(text, &c.Requests, &other, &sectors, &other, &other, &other, &other, &other, &inflight)
	fail.If(err != nil, "the device's stat is %q", text)
	c.Bytes = sectors * 512
	return c, inflight
}

// fileSystems has, for each file system, the command that makes an image and the options that keep a mount from writing.
var fileSystems = map[string]struct {
	format   []string
	readOnly string
}{
	"ext4":  {[]string{"mkfs.ext4", "-q", "-F"}, "noload"},
	"xfs":   {[]string{"mkfs.xfs", "-q", "-f"}, "norecovery,nouuid"},
	"btrfs": {[]string{"mkfs.btrfs", "-q", "-f"}, ""},
}

func identify(ctx context.Context, image string) (name string) {
	err := fail.Try(func() { name = output(ctx, "blkid", "-p", "-o", "value", "-s", "TYPE", image) })
	if _, ok := fileSystems[name]; !ok {
		fail.On(errors.Join(fmt.Errorf("%s is not an image of ext4, xfs or btrfs", image), err))
	}
	return name
}

// makeImage makes an image of a file system with the files of a directory. Cp writes them in the order of their inodes, the order
// in which they were written.
func makeImage(ctx context.Context, name, from, out string) {
	kind, ok := fileSystems[name]
	fail.If(!ok, "unknown file system %q: want ext4, xfs or btrfs", name)
	// The image is sparse, so it may be larger than the files and their inodes need.
	size := int64(1 << 30)
	fail.On(filepath.WalkDir(from, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += 20<<10 + 2*info.Size()
		}
		return err
	}))
	fail.On(errors.Join(os.WriteFile(out, nil, 0o600), os.Truncate(out, size&^(1<<20-1))))
	err := fail.Try(func() {
		output(ctx, append(slices.Clone(kind.format), out)...)
		withMount(mountOf{file: out, fs: name}, func(_ loop, dir string) { output(ctx, "cp", "-a", from+"/.", dir) })
	})
	if err != nil {
		fail.On(errors.Join(err, os.Remove(out)))
	}
	output(ctx, "sync", out) // a later writeback would disturb the measurement
}

// output returns what a program prints.
func output(ctx context.Context, args ...string) string {
	return fail.Must(commands.Output(ctx, "", args[0], args[1:]...))
}
