package sys

import (
	"io/fs"
	"syscall"
)

// NoFollow is a flag of os.Root.OpenFile with which it opens a link itself. It is 0
// where no flag does that.
const NoFollow = syscall.FILE_FLAG_OPEN_REPARSE_POINT

// recallOnDataAccess is FILE_ATTRIBUTE_RECALL_ON_DATA_ACCESS of winnt.h.
const recallOnDataAccess = 0x400000

// IsReparsePoint reports whether an open with NoFollow gives what is stored in place
// of the content: of a link, or of a file that is deduplicated, compressed or remote.
func IsReparsePoint(info fs.FileInfo) bool {
	return hasAttribute(info, syscall.FILE_ATTRIBUTE_REPARSE_POINT)
}

// IsRemote reports whether the file's content would be fetched to be read.
func IsRemote(info fs.FileInfo) bool { return hasAttribute(info, recallOnDataAccess) }

func hasAttribute(info fs.FileInfo, attribute uint32) bool {
	data, ok := info.Sys().(*syscall.Win32FileAttributeData)
	return ok && data.FileAttributes&attribute != 0
}
