//go:build unix

package replace

import (
	"io/fs"

	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// keep gives the new file, which is empty, what belongs to the old one: the owner, flags, extended attributes with ACLs, and the
// mode. The mode comes last, since a change of the owner takes setuid away; the content that follows does too, as in the old file.
func keep(old, new int, was, now sys.Stat) error {
	if was.UID != now.UID || was.GID != now.GID {
		uid, gid := int(was.UID), int(was.GID)
		if was.UID == now.UID {
			uid = -1
		}
		if was.GID == now.GID {
			gid = -1
		}
		if err := unix.Fchown(new, uid, gid); err != nil {
			return &sys.Error{Op: "fchown", Err: err}
		}
	}
	if err := keepFlags(old, new, was, now); err != nil {
		return err
	}
	hasACL, err := keepXattrs(old, new)
	if err == nil {
		err = keepACL(old, new)
	}
	if err != nil {
		return err
	}
	if mode := modeBits(was); hasACL || mode != modeBits(now) {
		if err := unix.Fchmod(new, mode); err != nil {
			return &sys.Error{Op: "fchmod", Err: err}
		}
	}
	return nil
}

// specialBits are the bits of a mode beside those of fs.FileMode.Perm.
var specialBits = [...]struct {
	is uint32
	as fs.FileMode
}{{unix.S_ISUID, fs.ModeSetuid}, {unix.S_ISGID, fs.ModeSetgid}, {unix.S_ISVTX, fs.ModeSticky}}

func modeBits(s sys.Stat) uint32 {
	mode := uint32(s.Mode.Perm())
	for _, bit := range specialBits {
		if s.Mode&bit.as != 0 {
			mode |= bit.is
		}
	}
	return mode
}
