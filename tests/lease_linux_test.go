//go:build linux

package fileproc_test

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// lease takes a write lease on a file and gives it up when another open asks for it.
func lease(t *testing.T, path string) (released <-chan struct{}, ok bool) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	asked, done := make(chan os.Signal, 1), make(chan struct{}) // buffered: a signal without a waiting receiver is dropped
	signal.Notify(asked, unix.SIGIO)
	t.Cleanup(func() { signal.Stop(asked) })
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Logf("left out: no lease here: %v", err)
		return nil, false
	}
	go func() {
		defer close(done)
		<-asked
		time.Sleep(20 * time.Millisecond) // an open that does not wait has failed by then
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
			t.Error(err)
		}
	}()
	return done, true
}

func TestInvariant1LeasedFileIsWaitedFor(t *testing.T) {
	for _, opts := range []fileproc.Options{{}, {ReadSize: 3}, {ReadSize: 4096, Stat: true}, {Workers: 1}} {
		t.Run(fmt.Sprintf("ReadSize=%d,Workers=%d", opts.ReadSize, opts.Workers), func(t *testing.T) {
			watchdog(t)
			dir := t.TempDir()
			for _, name := range []string{"a", "leased", "z"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
			}
			released, ok := lease(t, filepath.Join(dir, "leased"))
			if !ok {
				return
			}
			var report fileproc.Report
			opts.Report = &report
			got, err := read(t.Context(), dir, opts)
			require.NoError(t, err)
			leased := "leased"
			if opts.ReadSize == 3 {
				leased = "lea"
			}
			require.Equal(t, map[string]string{"a": "a", "leased": leased, "z": "z"}, got)
			requireBalanced(t, report)
			<-released
		})
	}
}

func TestInvariant1LeasedFileIsWaitedForByOpen(t *testing.T) {
	watchdog(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "leased"), []byte("leased"), 0o644))
	released, ok := lease(t, filepath.Join(dir, "leased"))
	if !ok {
		return
	}
	opts := fileproc.Options{ReadSize: fileproc.NoRead}
	got, err := fileproc.Process(t.Context(), dir, opts, func(f *fileproc.File) (string, error) {
		handle, err := f.Open()
		if err != nil {
			return "", err
		}
		defer handle.Close()
		data, err := io.ReadAll(handle)
		return string(data), err
	})
	require.NoError(t, err)
	require.Equal(t, []string{"leased"}, got)
	<-released
}

// A leased file that is root itself is waited for, too, whatever other runs are under way.
func TestInvariant1LeasedRootIsWaitedFor(t *testing.T) {
	for _, beside := range []bool{false, true} {
		t.Run(fmt.Sprintf("beside=%v", beside), func(t *testing.T) {
			watchdog(t)
			dir := t.TempDir()
			leased := filepath.Join(dir, "leased")
			require.NoError(t, os.WriteFile(leased, []byte("leased"), 0o644))
			released, ok := lease(t, leased)
			if !ok {
				return
			}
			run := func() {
				got, err := read(t.Context(), leased, fileproc.Options{})
				require.NoError(t, err)
				require.Equal(t, map[string]string{"leased": "leased"}, got)
			}
			if beside {
				require.NoError(t, fileproc.ForEach(t.Context(), dir, fileproc.Options{ReadSize: fileproc.NoRead}, func(*fileproc.File) error {
					run()
					return nil
				}))
			} else {
				run()
			}
			<-released
		})
	}
}
