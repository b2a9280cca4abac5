//go:build linux

// Command disk emulates a disk, to measure the requests of a cold run. It needs root.
//
//	go run ./disk image -fs ext4 -from ../.data/tickets_flat_100k -o flat.img
//	go run ./disk run -image flat.img -rate 3000 -latency 500us -- COMMAND {}
//
// The second command mounts the image read-only through the emulated disk, and runs COMMAND with {} replaced by the mount point. It
// then prints a line of JSON: COMMAND's requests to the disk, the bytes read, and the seconds. The mounts are in a separate mount
// namespace, and the loop device clears itself, so that neither outlives the command.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
)

func main() { commands.Main(1, both) }

var both = map[string]func(context.Context, []string) error{"image": imageMain, "run": runMain}

func imageMain(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("disk image", flag.ContinueOnError)
	fs := flags.String("fs", "ext4", "file `system`: ext4, xfs or btrfs")
	from := flags.String("from", "", "`directory` to copy into the image")
	out := flags.String("o", "", "image `file` to make")
	return fail.Try(func() {
		fail.On(flags.Parse(args))
		fail.If(*from == "" || *out == "" || flags.NArg() > 0, "image needs -from and -o, and no other arguments")
		ownMounts()
		makeImage(ctx, *fs, *from, *out)
	})
}

func runMain(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("disk run", flag.ContinueOnError)
	image := flags.String("image", "", "image `file`")
	var d drive
	d.flags(flags)
	return fail.Try(func() {
		fail.On(flags.Parse(args))
		fail.If(*image == "" || flags.NArg() == 0, "run needs -image and a command")
		d.check()
		ownMounts()
		fail.On(json.NewEncoder(os.Stdout).Encode(runOn(ctx, *image, &d, flags.Args())))
	})
}

// ownMounts gives this thread a mount namespace of its own. The caller's goroutine keeps the thread, so that the processes that it
// starts are in the namespace too. When the last of these ends, the kernel removes the mounts, even after SIGKILL.
func ownMounts() {
	fail.If(os.Geteuid() != 0, "loop devices and mounts need root")
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	fail.If(err != nil, "making a mount namespace: %w", err)
}

type count struct {
	Requests int64   `json:"requests"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
}

// runOn runs a command on the image. It mounts the image first, so that nothing of it is cached. Dropping the caches instead
// would also drop the command's program, and what other programs use.
func runOn(ctx context.Context, image string, d *drive, command []string) (c count) {
	kind := identify(ctx, image)
	dir := fail.Must(os.MkdirTemp("", "disk-"))
	defer fail.Undo(func() error { return os.Remove(dir) })
	defer fail.Undo(serve(image, dir, d))
	// NVMe and the volumes of clouds have no scheduler.
	m := mountOf{file: filepath.Join(dir, "disk"), readOnly: true, fs: kind, options: fileSystems[kind].readOnly,
		settings: map[string]string{"max_sectors_kb": fmt.Sprint(maxRead >> 10), "scheduler": "none"}}
	withMount(m, func(l loop, dir string) {
		before, start := l.reads(), time.Now()
		runCommand(ctx, dir, command)
		c.Seconds = time.Since(start).Seconds()
		after := l.reads()
		c.Requests, c.Bytes = after.Requests-before.Requests, after.Bytes-before.Bytes
	})
	return c
}

// runCommand runs the command on dir in a process group, and ends the whole group: any process left would keep the image mounted.
func runCommand(ctx context.Context, dir string, command []string) {
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
		cmd.Cancel() // ends the processes that it has started
	}
	fail.If(ctx.Err() != nil, "interrupted")
	fail.If(err != nil, "%s: %w", args[0], err)
}
