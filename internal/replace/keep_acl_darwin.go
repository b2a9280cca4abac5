package replace

import (
	"bytes"
	"encoding/binary"
	"syscall"
	"unsafe"

	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// An ACL is a kauth_filesec of sys/kauth.h: a magic number, two GUIDs, the number of entries, flags; then for each entry a GUID,
// flags and rights.
const (
	aclMagic  = 0x12cc16d
	aclCount  = 4 + 16 + 16
	aclHeader = aclCount + 4 + 4
	aclEntry  = 16 + 4 + 4
	noACL     = 0xffffffff // in place of the number of entries
	mostACL   = aclHeader + 128*aclEntry

	kindMask, deny = 0xf, 2
	rightToDelete  = 1 << 4
)

// keepACL gives the new file the ACL of the old one.
func keepACL(old, new int) error {
	was, err := aclOf(old)
	if err != nil {
		return err
	}
	now, err := aclOf(new)
	if err != nil {
		return err
	}
	for at := aclHeader; at+aclEntry <= len(was); at += aclEntry {
		flags, rights := binary.LittleEndian.Uint32(was[at+16:]), binary.LittleEndian.Uint32(was[at+20:])
		if flags&kindMask == deny && rights&rightToDelete != 0 { // a temporary file with this ACL might stay
			_ = setACL(new, nil) // it may have inherited the same
			return &sys.Error{Op: "renameat", Err: unix.EACCES}
		}
	}
	if bytes.Equal(was, now) {
		return nil
	}
	if err = setACL(new, was); err == nil {
		now, err = aclOf(new)
	}
	if err == nil && !bytes.Equal(was, now) {
		err = &sys.Error{Op: "fsetattrlist", Err: errNotKept}
	}
	return err
}

// aclList asks for the ACL alone, which comes as an attrreference_t: an offset from here, and a length.
var aclList = unix.Attrlist{Bitmapcount: unix.ATTR_BIT_MAP_COUNT, Commonattr: unix.ATTR_CMN_EXTENDED_SECURITY}

// aclOf returns nil if a file has no ACL.
func aclOf(fd int) ([]byte, error) {
	var b [4 + 8 + mostACL]byte // the length of all comes first
	_, _, e := syscall.Syscall6(unix.SYS_FGETATTRLIST, uintptr(fd), uintptr(unsafe.Pointer(&aclList)), uintptr(unsafe.Pointer(&b)), unsafe.Sizeof(b), 0, 0)
	if e == unix.ENOTSUP || e == unix.EINVAL {
		return nil, nil // the file system has no ACLs
	}
	from, n := 4+binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	if e == 0 && (from > uint32(len(b)) || n > uint32(len(b))-from) {
		e = unix.ERANGE
	}
	if e != 0 {
		return nil, &sys.Error{Op: "fgetattrlist", Err: e}
	}
	if n < aclHeader || binary.LittleEndian.Uint32(b[from+aclCount:]) == noACL {
		return nil, nil
	}
	return bytes.Clone(b[from : from+n]), nil
}

// setACL removes the ACL if that is nil.
func setACL(fd int, acl []byte) error {
	if acl == nil {
		acl = make([]byte, aclHeader)
		binary.LittleEndian.PutUint32(acl, aclMagic)
		binary.LittleEndian.PutUint32(acl[aclCount:], noACL)
	}
	b := binary.LittleEndian.AppendUint32(nil, 8)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(acl))), acl...)
	_, _, e := syscall.Syscall6(unix.SYS_FSETATTRLIST, uintptr(fd), uintptr(unsafe.Pointer(&aclList)), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0)
	if e != 0 {
		return &sys.Error{Op: "fsetattrlist", Err: e}
	}
	return nil
}
