package replace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"unsafe"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/windows"
)

// ReplaceFile is not used: it has a moment in which the name leads to no file, and it opens both files by path. So keepIn copies
// what belongs to the old file, and a rename by handle replaces it.

// belongings are what a file has beside its content.
type belongings struct {
	attributes uint32
	created    windows.Filetime  // wine and some servers derive it from other times, so it is not compared
	security   string            // owner, group, ACL and integrity label
	named      map[string]string // streams, which begin with a colon, and extended attributes
}

const (
	security = windows.OWNER_SECURITY_INFORMATION | windows.GROUP_SECURITY_INFORMATION | windows.DACL_SECURITY_INFORMATION | windows.LABEL_SECURITY_INFORMATION
	// notKeptAttributes depend on the content, or a write sets them.
	notKeptAttributes = windows.FILE_ATTRIBUTE_ARCHIVE | windows.FILE_ATTRIBUTE_NORMAL | windows.FILE_ATTRIBUTE_SPARSE_FILE
	// setAttributes can be set. The last two are PINNED and UNPINNED of a remote file.
	setAttributes = windows.FILE_ATTRIBUTE_HIDDEN | windows.FILE_ATTRIBUTE_SYSTEM | windows.FILE_ATTRIBUTE_TEMPORARY | windows.FILE_ATTRIBUTE_OFFLINE |
		windows.FILE_ATTRIBUTE_NOT_CONTENT_INDEXED | 0x80000 | 0x100000
)

// mayRemove fails if the rename would fail: the process has no right to delete the file, or another program has it open without
// sharing its deletion. A temporary file with the same ACL would stay.
func mayRemove(root *os.Root, name names.Name) error {
	dir, err := root.Open(".")
	if err != nil {
		return sys.AsError("openat", err)
	}
	defer dir.Close()
	h, err := openAt(dir, name.String(), windows.DELETE, windows.FILE_OPEN)
	if err != nil {
		return &sys.Error{Op: "renameat", Err: err}
	}
	windows.CloseHandle(h)
	return nil
}

// keepIn gives the new file, which is empty, what belongs to the old one. The ACL comes late: it may forbid the rest.
func keepIn(old, new *os.File, _, _ sys.Stat) error {
	was, err := belongingsOf(old)
	if err != nil {
		return err
	}
	if was.attributes&windows.FILE_ATTRIBUTE_READONLY != 0 { // the rename would fail
		return &sys.Error{Op: "renameat", Err: windows.ERROR_ACCESS_DENIED}
	}
	now, err := belongingsOf(new)
	for name, value := range was.named {
		if err == nil {
			err = keepNamed(old, new, name, value)
		}
	}
	if err == nil && was.security != now.security {
		err = keepSecurity(new, was.security, now.security)
	}
	if err == nil {
		err = keepAttributes(new, was)
	}
	if err == nil {
		now, err = belongingsOf(new)
	}
	switch {
	case err != nil:
		return err
	case was.security != now.security:
		err = fmt.Errorf("%w: %s became %s", errNotKept, was.security, now.security)
	case was.attributes != now.attributes || !maps.Equal(was.named, now.named):
		err = errNotKept
	default:
		return nil
	}
	return &sys.Error{Op: "keep", Err: err}
}

func belongingsOf(f *os.File) (b belongings, err error) {
	h := windows.Handle(f.Fd())
	var info windows.ByHandleFileInformation
	if err = windows.GetFileInformationByHandle(h, &info); err != nil {
		return b, &sys.Error{Op: "GetFileInformationByHandle", Err: err}
	}
	sd, err := windows.GetSecurityInfo(h, windows.SE_FILE_OBJECT, security)
	if err != nil {
		return b, &sys.Error{Op: "GetSecurityInfo", Err: err}
	}
	b = belongings{info.FileAttributes &^ notKeptAttributes, info.CreationTime, sd.String(), map[string]string{}}
	if err = b.addStreams(h); err == nil {
		err = b.addEAs(h)
	}
	return b, err
}

// isNone reports whether err says that a file has nothing of a kind, or that its file system has no such thing.
func isNone(err error) bool {
	return err == windows.ERROR_HANDLE_EOF || err == windows.ERROR_INVALID_PARAMETER || err == windows.ERROR_INVALID_FUNCTION || err == windows.ERROR_NOT_SUPPORTED ||
		err == windows.STATUS_NO_EAS_ON_FILE || err == windows.STATUS_EAS_NOT_SUPPORTED || err == windows.STATUS_INVALID_DEVICE_REQUEST || err == windows.STATUS_NOT_IMPLEMENTED
}

// addStreams adds the names of the streams beside the content.
func (b *belongings) addStreams(h windows.Handle) error {
	list := make([]byte, 1<<16)
	err := windows.GetFileInformationByHandleEx(h, windows.FileStreamInfo, &list[0], uint32(len(list)))
	if isNone(err) {
		return nil
	}
	if err != nil {
		return &sys.Error{Op: "GetFileInformationByHandleEx", Err: err}
	}
	for { // each entry is a FILE_STREAM_INFO
		name := make([]uint16, binary.LittleEndian.Uint32(list[4:])/2)
		for i := range name {
			name[i] = binary.LittleEndian.Uint16(list[24+2*i:])
		}
		if s := windows.UTF16ToString(name); s != "" && s != "::$DATA" {
			b.named[s] = ""
		}
		next := binary.LittleEndian.Uint32(list)
		if next == 0 {
			return nil
		}
		list = list[next:]
	}
}

// addEAs adds the extended attributes as NtSetEaFile wants them. Those of the kernel depend on the content.
func (b *belongings) addEAs(h windows.Handle) error {
	list := make([]byte, 1<<17) // twice of what a file can have
	var status windows.IO_STATUS_BLOCK
	err := windows.NtQueryEaFile(h, &status, &list[0], uint32(len(list)), false, nil, 0, nil, true)
	if isNone(err) || err == nil && status.Information == 0 {
		return nil
	}
	if err != nil {
		return ntError("NtQueryEaFile", err)
	}
	for { // each entry is a FILE_FULL_EA_INFORMATION
		next := binary.LittleEndian.Uint32(list)
		clear(list[:4])
		nameEnd := 8 + int(list[5])
		name := string(list[8:nameEnd])
		if !strings.HasPrefix(strings.ToUpper(name), "$KERNEL.") {
			b.named[name] = string(list[:nameEnd+1+int(binary.LittleEndian.Uint16(list[6:]))])
		}
		if next == 0 {
			return nil
		}
		list = list[next:]
	}
}

func keepNamed(old, new *os.File, name, value string) error {
	if name[0] != ':' {
		entry := []byte(value)
		var status windows.IO_STATUS_BLOCK
		return ntError("NtSetEaFile", windows.NtSetEaFile(windows.Handle(new.Fd()), &status, &entry[0], uint32(len(entry))))
	}
	from, err := openAt(old, name, windows.FILE_GENERIC_READ, windows.FILE_OPEN)
	if err != nil {
		return &sys.Error{Op: "open a stream of", Err: err}
	}
	r := os.NewFile(uintptr(from), name)
	defer r.Close()
	to, err := openAt(new, name, windows.FILE_GENERIC_WRITE, windows.FILE_OPEN_IF)
	if err != nil {
		return &sys.Error{Op: "create a stream of", Err: err}
	}
	w := os.NewFile(uintptr(to), name)
	defer w.Close()
	if _, err = io.Copy(w, r); err != nil {
		return sys.AsError("write", err)
	}
	return nil
}

func ntError(op string, err error) error {
	if err == nil {
		return nil
	}
	if status, ok := errors.AsType[windows.NTStatus](err); ok {
		err = status.Errno()
	}
	return &sys.Error{Op: op, Err: err}
}

// openAt opens something of f: a stream, or f itself if name is empty.
func openAt(f *os.File, name string, access, disposition uint32) (h windows.Handle, err error) {
	s, err := windows.NewNTUnicodeString(name)
	if err != nil {
		return 0, err
	}
	attributes := windows.OBJECT_ATTRIBUTES{RootDirectory: windows.Handle(f.Fd()), ObjectName: s, Attributes: windows.OBJ_CASE_INSENSITIVE}
	attributes.Length = uint32(unsafe.Sizeof(attributes))
	var status windows.IO_STATUS_BLOCK
	err = windows.NtCreateFile(&h, access|windows.SYNCHRONIZE, &attributes, &status, nil, 0, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE,
		disposition, windows.FILE_SYNCHRONOUS_IO_NONALERT|windows.FILE_NON_DIRECTORY_FILE, 0, 0)
	if status, ok := errors.AsType[windows.NTStatus](err); ok {
		err = status.Errno()
	}
	return h, err
}

// keepSecurity sets the owner and the label only if it must: that needs a right which the creator of a file may not have.
func keepSecurity(f *os.File, was, now string) error {
	sd, err := windows.SecurityDescriptorFromString(was)
	if err != nil {
		return &sys.Error{Op: "SetKernelObjectSecurity", Err: err}
	}
	parts, access := windows.SECURITY_INFORMATION(windows.DACL_SECURITY_INFORMATION), uint32(windows.WRITE_DAC)
	if ownerIn(was) != ownerIn(now) || strings.Contains(was+now, "(ML;") {
		parts, access = security, access|windows.WRITE_OWNER
	}
	h, err := openAt(f, "", access, windows.FILE_OPEN)
	if err == nil {
		defer windows.CloseHandle(h)
		// Without the request, the system forgets that entries were inherited.
		if control, _, e := sd.Control(); e == nil && control&windows.SE_DACL_AUTO_INHERITED != 0 {
			_ = sd.SetControl(windows.SE_DACL_AUTO_INHERIT_REQ, windows.SE_DACL_AUTO_INHERIT_REQ)
		}
		err = windows.SetKernelObjectSecurity(h, parts, sd)
	}
	if err != nil {
		return &sys.Error{Op: "SetKernelObjectSecurity", Err: err}
	}
	return nil
}

// ownerIn returns what a security descriptor in string form has before its ACL: owner and group.
func ownerIn(sddl string) string {
	s, _, _ := strings.Cut(sddl, "D:")
	return s
}

func keepAttributes(f *os.File, was belongings) error {
	info := struct { // a FILE_BASIC_INFO; times that are zero stay
		created                    windows.Filetime
		accessed, written, changed int64
		attributes, _              uint32
	}{created: was.created, attributes: was.attributes & setAttributes}
	if info.attributes == 0 {
		info.attributes = windows.FILE_ATTRIBUTE_NORMAL
	}
	if err := windows.SetFileInformationByHandle(windows.Handle(f.Fd()), windows.FileBasicInfo, (*byte)(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		return &sys.Error{Op: "SetFileInformationByHandle", Err: err}
	}
	return nil
}
