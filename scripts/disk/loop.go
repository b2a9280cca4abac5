//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A mountOf says what to mount.
type mountOf struct {
	file     string // a block device is made of it
	flags    uint32 // of the device
	settings [][2]string
	fs       string
	options  string
}

// withMount calls use with the device and the directory where it is mounted.
func withMount(m mountOf, use func(l *loop, dir string) error) (err error) {
	dir, err := os.MkdirTemp("", "disk-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }() // not its files: if the unmount has failed, they are the image's
	l, err := attach(m.file, m.flags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.detach()) }()
	for _, s := range m.settings {
		if err := l.set(s[0], s[1]); err != nil {
			return err
		}
	}
	var flags uintptr
	if m.flags&unix.LO_FLAGS_READ_ONLY != 0 {
		flags = unix.MS_RDONLY
	}
	if err := unix.Mount(l.path, dir, m.fs, flags, m.options); err != nil {
		return fmt.Errorf("mounting the image as %s: %w", m.fs, err)
	}
	defer func() {
		if e := retryBusy(func() error { return unix.Unmount(dir, 0) }); e != nil { // then when the last process that uses it ends
			err = errors.Join(err, fmt.Errorf("unmounting %s: %w", dir, e), unix.Unmount(dir, unix.MNT_DETACH))
		}
	}()
	return use(l, dir)
}

// A loop is a block device over a file. It is cleared by the kernel when it is neither mounted nor held by this process.
type loop struct {
	path string
	held *os.File
	old  [][2]string // settings of the queue to restore, since they outlive the attached file
}

// attach makes a block device over the file.
func attach(name string, flags uint32) (*loop, error) {
	mode := os.O_RDWR
	if flags&unix.LO_FLAGS_READ_ONLY != 0 {
		mode = os.O_RDONLY
	}
	backing, err := os.OpenFile(name, mode, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("finding a free loop device: %w", err)
		}
		l := &loop{path: fmt.Sprint("/dev/loop", n)}
		if l.held, err = os.OpenFile(l.path, mode, 0); err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: flags | unix.LO_FLAGS_AUTOCLEAR}}
		copy(config.Info.File_name[:len(config.Info.File_name)-1], name)
		if err = unix.IoctlLoopConfigure(int(l.held.Fd()), &config); err == nil {
			return l, nil
		}
		l.held.Close()
		if !errors.Is(err, unix.EBUSY) { // EBUSY: another process was faster
			return nil, fmt.Errorf("attaching %s to %s: %w", name, l.path, err)
		}
	}
}

// detach lets the kernel clear the device.
func (l *loop) detach() (err error) {
	for _, s := range l.old {
		err = errors.Join(err, os.WriteFile(l.sys("queue", s[0]), []byte(s[1]), 0))
	}
	return errors.Join(err, l.held.Close())
}

func (l *loop) sys(names ...string) string {
	return filepath.Join(append([]string{"/sys/block", filepath.Base(l.path)}, names...)...)
}

// set changes a setting of the device's queue.
func (l *loop) set(name, value string) error {
	text, err := os.ReadFile(l.sys("queue", name))
	old := selected(string(text))
	if err != nil || old == value {
		return err
	}
	if err := os.WriteFile(l.sys("queue", name), []byte(value), 0); err != nil {
		return fmt.Errorf("setting %s to %s: %w", name, value, err)
	}
	l.old = append(l.old, [2]string{name, old})
	return nil
}

// selected returns the value of a setting. Among several choices it is the one in brackets.
func selected(text string) string {
	if _, after, ok := strings.Cut(text, "["); ok {
		text, _, _ = strings.Cut(after, "]")
	}
	return strings.TrimSpace(text)
}

// reads returns what was read from the device so far. A killed process may have left requests, so it waits for them.
func (l *loop) reads() (count, error) {
	for {
		text, err := os.ReadFile(l.sys("stat"))
		if err != nil {
			return count{}, err
		}
		c, inflight, err := parseStat(string(text))
		if err != nil || inflight == 0 {
			return c, err
		}
		time.Sleep(time.Millisecond)
	}
}

// parseStat parses /sys/block/DEVICE/stat: the reads completed, merged, their sectors of 512 bytes, their milliseconds, the
// same of writes, and the requests in flight.
func parseStat(text string) (c count, inflight int64, err error) {
	var n [9]int64
	fields := strings.Fields(text)
	for i := range n {
		if i < len(fields) && err == nil {
			n[i], err = strconv.ParseInt(fields[i], 10, 64)
		}
	}
	if err != nil || len(fields) < len(n) {
		return c, 0, fmt.Errorf("the device's stat is %q", text)
	}
	return count{Requests: n[0], Bytes: n[2] * 512}, n[8], nil
}

// A fileSystem is what an image is made with and mounted as.
type fileSystem struct {
	name     string
	format   []string // the command
	readOnly string   // options that keep the mount from writing
	magic    string
	at       int64 // where the magic is, in bytes
}

var fileSystems = []fileSystem{
	{"ext4", []string{"mkfs.ext4", "-q", "-F"}, "noload", "\x53\xef", 1080},
	{"xfs", []string{"mkfs.xfs", "-q", "-f"}, "norecovery,nouuid", "XFSB", 0},
	{"btrfs", []string{"mkfs.btrfs", "-q", "-f"}, "", "_BHRfS_M", 65600},
}

// identify returns the file system of an image.
func identify(image string) (fileSystem, error) {
	f, err := os.Open(image)
	if err != nil {
		return fileSystem{}, err
	}
	defer f.Close()
	i := slices.IndexFunc(fileSystems, func(fs fileSystem) bool {
		magic := make([]byte, len(fs.magic))
		f.ReadAt(magic, fs.at) // a short image has another magic
		return string(magic) == fs.magic
	})
	if i < 0 {
		return fileSystem{}, fmt.Errorf("%s is not an image of ext4, xfs or btrfs", image)
	}
	return fileSystems[i], nil
}
