//go:build linux

// Command disk emulates a disk, to measure what a cold run asks of one. It needs root.
//
//	go run ./disk image -fs ext4 -from ../.data/tickets_flat_100k -o flat.img
//	go run ./disk run -image flat.img -rate 3000 -latency 500us -- COMMAND {}
//
// The second command mounts the image read-only through the emulated disk, runs COMMAND with {} replaced by the mount point,
// and prints the requests and bytes that COMMAND read from the disk and the seconds that it took, as a line of JSON. Mounts
// are in a mount namespace of their own, and the loop device clears itself, so that neither outlives the command.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const usage = `usage: disk image -fs ext4|xfs|btrfs -from DIR -o FILE
       disk run -image FILE [-rate N] [-latency D] [-inflight N] [-seek D] -- COMMAND [ARG]...
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "disk:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("want image or run; -h explains")
	}
	flags := flag.NewFlagSet("disk "+args[0], flag.ExitOnError)
	switch args[0] {
	case "image":
		fs := flags.String("fs", "ext4", "file `system`: ext4, xfs or btrfs")
		from := flags.String("from", "", "`directory` to copy into the image")
		out := flags.String("o", "", "image `file` to make")
		flags.Parse(args[1:])
		if *from == "" || *out == "" || flags.NArg() > 0 {
			return errors.New("image needs -from and -o, and no other arguments")
		}
		if err := ownMounts(); err != nil {
			return err
		}
		return makeImage(ctx, *fs, *from, *out)
	case "run":
		image := flags.String("image", "", "image `file`")
		var d drive
		d.flags(flags)
		flags.Parse(args[1:])
		if *image == "" || flags.NArg() == 0 {
			return errors.New("run needs -image and a command")
		}
		if err := d.check(); err != nil {
			return err
		}
		if err := ownMounts(); err != nil {
			return err
		}
		c, err := runOn(ctx, *image, &d, flags.Args())
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(c)
	case "-h", "-help", "--help":
		fmt.Fprint(os.Stderr, usage)
		return nil
	}
	return fmt.Errorf("unknown command %q: want image or run", args[0])
}

// ownMounts gives this thread a mount namespace. The caller's goroutine keeps the thread, so that every process which it
// starts is in the namespace too. When the last one ends, the kernel removes the mounts, even after SIGKILL.
func ownMounts() error {
	if os.Geteuid() != 0 {
		return errors.New("loop devices and mounts need root")
	}
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	return nil
}

// A count is what a command did to the disk.
type count struct {
	Requests int64   `json:"requests"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
}

// runOn runs a command on the image, which it mounts anew: so nothing of the image is cached. Dropping the caches instead
// would also drop the command's program and what the rest of the machine uses.
func runOn(ctx context.Context, image string, d *drive, command []string) (c count, err error) {
	kind, err := identify(ctx, image)
	if err != nil {
		return c, err
	}
	dir, err := os.MkdirTemp("", "disk-")
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	stop, err := serve(image, dir, d)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	// NVMe and the volumes of clouds have no scheduler.
	m := mountOf{file: filepath.Join(dir, "disk"), readOnly: true, fs: kind, options: fileSystems[kind].readOnly,
		settings: map[string]string{"max_sectors_kb": fmt.Sprint(maxRead >> 10), "scheduler": "none"}}
	err = withMount(m, func(l loop, dir string) error {
		before, err := l.reads()
		if err != nil {
			return err
		}
		start := time.Now()
		err = runCommand(ctx, dir, command)
		c.Seconds = time.Since(start).Seconds()
		if err != nil {
			return err
		}
		after, err := l.reads()
		c.Requests, c.Bytes = after.Requests-before.Requests, after.Bytes-before.Bytes
		return err
	})
	return c, err
}

// runCommand runs the command on dir, in a process group, of which nothing runs on: it would keep the image mounted.
func runCommand(ctx context.Context, dir string, command []string) error {
	var args []string
	for _, a := range command {
		args = append(args, strings.ReplaceAll(a, "{}", dir))
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	err := cmd.Run()
	if cmd.Process != nil {
		cmd.Cancel() // what it has started runs on
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	} else if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return nil
}
