package sys

import "io/fs"

// OpenOfFSWaits reports whether name in fsys leads to what an open may wait for or
// have an effect on, a FIFO or a device, and its mode. It does not open it: an fs.FS
// that cannot look a name up is not asked.
func OpenOfFSWaits(fsys fs.FS, name string) (mode fs.FileMode, waits bool) {
	var info fs.FileInfo
	var err error
	switch f := fsys.(type) {
	case fs.StatFS:
		info, err = f.Stat(name)
	case fs.ReadLinkFS:
		info, err = f.Lstat(name)
	default:
		return 0, false
	}
	if err != nil {
		return 0, false // the open says why
	}
	return info.Mode(), info.Mode()&(fs.ModeNamedPipe|fs.ModeDevice|fs.ModeSocket) != 0
}
