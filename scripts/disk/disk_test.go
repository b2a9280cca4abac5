//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
)

func TestSchedule(t *testing.T) {
	now := time.Now()
	ms := func(d *drive, after int, off, end int64) float64 {
		return d.schedule(now.Add(time.Duration(after)*time.Millisecond), off, end).Sub(now).Seconds() * 1e3
	}

	d := &drive{}
	assert.EqualValues(t, 7, ms(d, 7, 0, 1), "no slowness")

	d = &drive{rate: 100, latency: 25 * time.Millisecond}
	assert.EqualValues(t, 25, ms(d, 0, 0, 1))
	assert.EqualValues(t, 35, ms(d, 0, 5, 6), "10 ms after the first one, while it is in flight")
	assert.EqualValues(t, 45, ms(d, 12, 1, 2))
	assert.EqualValues(t, 125, ms(d, 100, 2, 3), "an idle disk saves nothing up")
	assert.EqualValues(t, 135, ms(d, 100, 3, 4))

	d = &drive{seek: 4 * time.Millisecond, latency: time.Millisecond}
	assert.EqualValues(t, 1, ms(d, 0, 0, 10), "the head begins at 0")
	assert.EqualValues(t, 1, ms(d, 0, 10, 20), "it follows the last one")
	assert.EqualValues(t, 5, ms(d, 0, 0, 10), "backwards")
	assert.EqualValues(t, 9, ms(d, 0, 11, 20), "a gap; there is one head")
	assert.EqualValues(t, 9, ms(d, 0, 20, 30))
}

func TestInFlight(t *testing.T) {
	d := &drive{inflight: 2, latency: 10 * time.Millisecond}
	d.check()
	start := time.Now()
	done := make(chan struct{})
	for range 6 {
		go func() { d.wait(0, 1); done <- struct{}{} }()
	}
	for range 6 {
		<-done
	}
	assert.GreaterOrEqual(t, time.Since(start), 30*time.Millisecond, "six requests, two at a time")
}

func TestDriveFlags(t *testing.T) {
	var d drive
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	d.flags(flags)
	require.NoError(t, flags.Parse(strings.Fields("-rate 0.5 -latency 500us -inflight 3 -seek 1s")))
	assert.Equal(t, &drive{rate: 0.5, latency: 500 * time.Microsecond, inflight: 3, seek: time.Second}, &d)
	assert.EqualError(t, fail.Try((&drive{}).check), "-inflight 0: must be at least 1")
	assert.ErrorContains(t, fail.Try((&drive{inflight: 1, seek: -1}).check), "must not be negative")
}

func TestParseStat(t *testing.T) {
	c, inflight := parseStat("  12 3 400 5 6 7 8 9 2 11 12 13 14 15 16 17 18\n")
	assert.Equal(t, count{Requests: 12, Bytes: 204800}, c)
	assert.EqualValues(t, 2, inflight)
	for _, text := range []string{"", "1 2 3", "a b c d e f g h i"} {
		assert.Error(t, fail.Try(func() { parseStat(text) }), text)
	}
}

func TestSelected(t *testing.T) {
	assert.Equal(t, "none", selected("[none] mq-deadline\n"))
	assert.Equal(t, "bfq", selected("none [bfq] kyber\n"))
	assert.Equal(t, "1280", selected("1280\n"))
}

func TestIdentify(t *testing.T) {
	image := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	assert.ErrorContains(t, fail.Try(func() { identify(t.Context(), image) }), "is not an image")
}

func TestBadArguments(t *testing.T) {
	for _, args := range []string{"", "mount"} {
		assert.EqualError(t, commands.Do(t.Context(), strings.Fields(args), both), "want a command: one of [image run]")
	}
	for want, args := range map[string]string{
		"needs -from and -o":         "image -from x",
		"needs -image and a command": "run -image x",
		"-inflight 0":                "run -image x -inflight 0 true",
		"must not be negative":       "run -image x -rate -1 true",
		"and no other arguments":     "image -from x -o y z",
	} {
		assert.ErrorContains(t, commands.Do(t.Context(), strings.Fields(args), both), want)
	}
}

// The counts of requests and bytes are exact, and nothing is left behind, also after a failure and an interrupt.
func TestDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("left out: loop devices and mounts need root")
	}
	for _, name := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(name); err != nil {
			t.Skip("left out:", err)
		}
	}
	for name, kind := range fileSystems {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(kind.format[0]); err != nil {
				t.Skip("left out:", err)
			}
			testDisk(t, name)
		})
	}
}

func testDisk(t *testing.T, fs string) {
	tmp, from := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	const pieces = 40
	require.NoError(t, os.WriteFile(filepath.Join(from, "file"), bytes.Repeat([]byte("0123456789abcdef"), pieces*256<<10/16), 0o644))
	image := filepath.Join(t.TempDir(), "image")
	err := fail.Try(func() {
		ownMounts() // of this test's thread, which ends with the test
		makeImage(t.Context(), fs, from, image)
	})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
		t.Skip("left out:", err) // a container, or a kernel without the file system
	}
	require.NoError(t, err)

	try := func(ctx context.Context, d *drive, command ...string) (c count, err error) {
		d.check()
		err = fail.Try(func() { c = runOn(ctx, image, d, command) })
		return c, err
	}
	runs := func(d *drive, command ...string) count {
		t.Helper()
		c, err := try(t.Context(), d, command...)
		require.NoError(t, err)
		return c
	}
	// A read of one byte reads the same metadata as a read of the whole file.
	read := func(n int) []string {
		return []string{"dd", "if={}/file", "of=/dev/null", "iflag=direct", "bs=256k", "status=none", fmt.Sprint("count=", n)}
	}
	one, all := runs(&drive{inflight: 128}, read(1)...), runs(&drive{inflight: 1, rate: 1000}, read(pieces)...)
	assert.EqualValues(t, (pieces-1)*256<<10, all.Bytes-one.Bytes)
	assert.EqualValues(t, pieces-1, all.Requests-one.Requests)
	assert.GreaterOrEqual(t, all.Seconds, 0.001*float64(all.Requests-1))
	assert.Equal(t, one.Requests, runs(&drive{inflight: 1}, read(1)...).Requests, "the second run is as cold as the first")

	d := drive{inflight: 1}
	_, err = try(t.Context(), &d, "cmp", "-s", "-n", "16", "{}/file", "/dev/zero")
	assert.ErrorContains(t, err, "cmp: exit status 1")
	_, err = try(t.Context(), &d, "/nosuch")
	assert.ErrorIs(t, err, os.ErrNotExist)
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	_, err = try(ctx, &d, "sh", "-c", "cd {} && sleep 60 & cd {}; sleep 60")
	assert.EqualError(t, err, "interrupted")

	err = fail.Try(func() { makeImage(t.Context(), fs, filepath.Join(from, "file"), image+"2") })
	assert.ErrorContains(t, err, "cp -a: cp: ")
	assert.NoFileExists(t, image+"2")
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, name := range loops {
		file, _ := os.ReadFile(name)
		assert.NotContains(t, string(file), tmp)
	}
}
