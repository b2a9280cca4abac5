//go:build !plan9

package testtree

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// mksocket makes the socket at a short path and renames it: an address holds only some 100 bytes, and the
// path of a test's directory is longer.
func mksocket(name string) error {
	tmp, err := os.MkdirTemp("", "s")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	short := filepath.Join(tmp, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		return err
	}
	// The simulated network of js and wasip1 makes no file.
	if info, err := os.Lstat(short); err != nil || info.Mode().Type() != fs.ModeSocket {
		return errors.Join(errors.New("no socket file was made"), err)
	}
	return os.Rename(short, name)
}
