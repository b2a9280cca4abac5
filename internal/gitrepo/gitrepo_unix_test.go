//go:build unix

package gitrepo

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ReadFile never waits for the writer of a FIFO, also if that takes the place of a regular file at any time.
func TestReadFileWhileAFIFOTakesItsPlace(t *testing.T) {
	var here Place
	dir := t.TempDir()
	name, fifo, plain := filepath.Join(dir, "f"), filepath.Join(dir, "fifo"), filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("x"), 0o600))
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Skip("no FIFO here: ", err)
	}
	require.NoError(t, os.Link(plain, name))
	rounds := 50_000
	if testing.Short() {
		rounds = 10_000
	}
	stop, swapped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swapped)
		for {
			for _, from := range []string{fifo, plain} {
				next := filepath.Join(dir, "next")
				os.Link(from, next)
				os.Rename(next, name)
				os.Remove(next) // there still if both names were of one file
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	read := make(chan [2]int)
	go func() {
		whole, refused := 0, 0
		for range rounds {
			if content, err := here.ReadFile(name, 10); err == nil && string(content) == "x" {
				whole++
			} else {
				refused++
			}
		}
		read <- [2]int{whole, refused}
	}()
	var got [2]int
	select {
	case got = <-read:
		close(stop)
	case <-time.After(time.Minute):
		close(stop)
		t.Error("ReadFile waits for a writer")
		for done := false; !done; { // lets it go
			if fd, err := unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				unix.Close(fd)
			}
			select {
			case got = <-read:
				done = true
			case <-time.After(time.Millisecond):
			}
		}
	}
	<-swapped
	require.Positive(t, got[0])
	require.Positive(t, got[1])

	require.NoError(t, os.WriteFile(plain, []byte("0123456789a"), 0o600))
	_, err := here.ReadFile(plain, 10)
	require.ErrorContains(t, err, "larger than 10 bytes")
	content, err := here.ReadFile(plain, 11)
	require.NoError(t, err)
	require.Equal(t, "0123456789a", string(content))
	_, err = here.ReadFile(dir, 10)
	require.ErrorContains(t, err, "not a regular file")
	_, err = here.ReadFile(filepath.Join(plain, "x"), 10)
	require.ErrorIs(t, err, syscall.ENOTDIR)
}
