package sys

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// NoFollow is the flag with which os.Root.OpenFile opens a link itself, 0
// where there is no such flag.
const NoFollow = syscall.FILE_FLAG_OPEN_REPARSE_POINT

// recallOnDataAccess is FILE_ATTRIBUTE_RECALL_ON_DATA_ACCESS of winnt.h.
const recallOnDataAccess = 0x400000

// IsReparsePoint reports whether an open with NoFollow gives other data than the content: the
// file is a link, or is stored deduplicated, compressed or remotely.
func IsReparsePoint(info fs.FileInfo) bool {
	return hasAttribute(info, syscall.FILE_ATTRIBUTE_REPARSE_POINT)
}

// IsRemote reports whether the file's content is stored remotely, so that reading downloads it.
func IsRemote(info fs.FileInfo) bool { return hasAttribute(info, recallOnDataAccess) }

func hasAttribute(info fs.FileInfo, attribute uint32) bool {
	var s Stat
	addSystemStat(&s, info)
	return s.Flags&attribute != 0
}

// addSystemStat adds to s the fields that only info.Sys has.
func addSystemStat(s *Stat, info fs.FileInfo) {
	if data, ok := info.Sys().(*syscall.Win32FileAttributeData); ok {
		s.Flags = data.FileAttributes
	}
}

// ProcessorTime returns the processor time that this process has used, or elapsed time if the system does not tell.
func ProcessorTime() time.Duration {
	var created, ended, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(windows.CurrentProcess(), &created, &ended, &kernel, &user); err != nil {
		return time.Since(begun)
	}
	of := func(t windows.Filetime) time.Duration {
		return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100 // a Filetime counts units of 100 ns
	}
	return of(kernel) + of(user)
}

// WaitReadable does not wait: the read does.
func WaitReadable(*os.File, time.Duration) bool { return true }
