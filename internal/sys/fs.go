package sys

import (
	"io/fs"
	"path"
)

// maxLinks is how many symbolic links in a row are followed, as many as Linux does.
const maxLinks = 40

// OpenOfFSWaits reports whether name in fsys leads to what an open may wait for or
// have an effect on, a FIFO or a device, and its mode. It does not open it: an fs.FS
// that cannot look a name up is not asked.
func OpenOfFSWaits(fsys fs.FS, name string) (mode fs.FileMode, waits bool) {
	info, err := lookUpFS(fsys, name)
	if err != nil || info == nil { // the open says why
		return 0, false
	}
	return info.Mode(), info.Mode()&(fs.ModeNamedPipe|fs.ModeDevice|fs.ModeSocket) != 0
}

// StatFS is fs.Stat, but opens name only if fsys cannot look it up otherwise.
func StatFS(fsys fs.FS, name string) (fs.FileInfo, error) {
	if info, err := lookUpFS(fsys, name); info != nil || err != nil {
		return info, err
	}
	return fs.Stat(fsys, name)
}

// lookUpFS returns neither if fsys cannot look name up.
func lookUpFS(fsys fs.FS, name string) (info fs.FileInfo, err error) {
	if f, ok := fsys.(fs.StatFS); ok {
		return f.Stat(name)
	}
	f, ok := fsys.(fs.ReadLinkFS)
	for range maxLinks {
		if !ok || !fs.ValidPath(name) {
			break
		}
		if info, err = f.Lstat(name); err != nil || info.Mode().Type() != fs.ModeSymlink {
			return info, err
		}
		to, err := f.ReadLink(name)
		if err != nil || path.IsAbs(to) {
			break
		}
		name = path.Join(path.Dir(name), to)
	}
	return nil, nil
}
