//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
)

// command returns a call of this test binary as the command.
func command(t *testing.T, args ...string) *exec.Cmd { return commandAs(t, "fileproc", args...) }

// commandAs returns a call of one of the commands that TestMain lists.
func commandAs(t *testing.T, name string, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), name) // testscript.Main runs the command of this name
	require.NoError(t, os.Symlink(exe, link))
	return exec.Command(link, args...)
}

// An interrupt ends a run that would take hours. The output so far is printed, and nothing about what had not been read.
func TestInterruptPrintsWhatThereIs(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "small"), []byte("hello\n"), 0o666))
	huge, err := os.Create(filepath.Join(dir, "huge"))
	require.NoError(t, err)
	require.NoError(t, huge.Truncate(1<<42)) // 4 TiB, sparse
	require.NoError(t, huge.Close())

	list := filepath.Join(t.TempDir(), "list")
	const sum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03  " // of hello
	require.NoError(t, os.WriteFile(list, []byte(sum+dir+"/small\n"+sum+dir+"/huge\n"+strings.Repeat(sum+dir+"/none\n", 9)), 0o666))

	for _, args := range [][]string{
		{"small\n", "hash", dir}, {"small\n", "hash", filepath.Join(dir, "small"), filepath.Join(dir, "huge")},
		{"small: OK\n", "hash", "--check", "--report", "-j1", list},
	} {
		cmd := command(t, args[1:]...)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Start())
		r := bufio.NewReader(stdout)
		line, err := r.ReadString('\n') // also shows that a line does not wait for the buffer to be full
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(line, args[0]), line)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Empty(t, rest)
		requireEndedBy(t, syscall.SIGINT, cmd.Wait())
		require.Empty(t, stderr.String())
	}
}

// A signal ends the command also while a read blocks.
func TestSignalEndsABlockedRead(t *testing.T) {
	test := func(sig syscall.Signal, ignored bool) {
		t.Run(fmt.Sprint(sig, ignored), func(t *testing.T) {
			t.Parallel()
			cmd := command(t, "grep", "-c", "x", "-")
			if ignored { // as by a shell whose background job the command is: the signal cannot end it
				cmd = exec.Command("sh", "-c", `trap "" INT; exec "$0" "$@"`, cmd.Path, "grep", "-c", "x", "-")
			}
			stdin, err := cmd.StdinPipe()
			require.NoError(t, err)
			defer stdin.Close()
			require.NoError(t, cmd.Start())
			_, err = stdin.Write(make([]byte, 1<<20)) // more than a pipe holds: the command has begun to read
			require.NoError(t, err)
			require.NoError(t, cmd.Process.Signal(sig))
			err = cmd.Wait()
			requireEndedBy(t, sig, err)
			if ignored {
				require.Equal(t, 128+int(sig), cmd.ProcessState.ExitCode())
			}
		})
	}
	test(syscall.SIGINT, false)
	test(syscall.SIGTERM, false)
	test(syscall.SIGINT, true)
}

// The same while the file that is read has so much output that its worker has locked standard output.
func TestInterruptEndsABlockedReadThatLockedTheOutput(t *testing.T) {
	cmd := command(t, "grep", "x", "-")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	fed := make(chan error, 1)
	go func() {
		_, err := stdin.Write(bytes.Repeat([]byte("x\n"), output.SpillSize/2))
		fed <- err
	}()
	_, err = io.ReadFull(stdout, make([]byte, output.SpillSize)) // the command has printed all of it, and waits for more
	require.NoError(t, err)
	require.NoError(t, <-fed)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	requireEndedBy(t, syscall.SIGINT, cmd.Wait())
}

func requireEndedBy(t *testing.T, sig syscall.Signal, err error) {
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	status := exit.Sys().(syscall.WaitStatus)
	// The signal does not end a process that inherited it as ignored, as a shell's background job does. That exits with a code.
	require.True(t, status.Signaled() && status.Signal() == sig || status.ExitStatus() == 128+int(sig), status)
}
