package replace

import (
	"os"
	"syscall"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// keepIn gives the new file the owner and the mode of the old one: Node.js has no calls for the rest.
func keepIn(old, new *os.File, was, now sys.Stat) error {
	from, err := old.Stat()
	if err != nil {
		return sys.AsError("fstat", err)
	}
	to, err := new.Stat()
	if err != nil {
		return sys.AsError("fstat", err)
	}
	a, b := from.Sys().(*syscall.Stat_t), to.Sys().(*syscall.Stat_t)
	if a.Uid != b.Uid || a.Gid != b.Gid {
		err = new.Chown(int(a.Uid), int(a.Gid))
	}
	if err == nil && was.Mode != now.Mode {
		err = new.Chmod(was.Mode)
	}
	if err != nil {
		return sys.AsError("fchown", err)
	}
	return nil
}

func mayRemove(*os.Root, names.Name) error { return nil }
