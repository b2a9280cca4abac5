package sys

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

// maxLinks is how many symbolic links in a row are followed, as many as Linux does.
const maxLinks = 40

// OpenOfFSWaits reports whether name in fsys leads to what an open may wait for or
// have an effect on, a FIFO or a device, and its mode. It does not open it: an fs.FS
// that cannot look a name up is not asked. A link that fsys alone can follow may lead
// to one.
func OpenOfFSWaits(fsys fs.FS, name string) (mode fs.FileMode, waits bool) {
	info, err := lookUpFS(fsys, name)
	if errors.Is(err, errFarLink) {
		return fs.ModeSymlink, true
	}
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

var errFarLink = errors.New("a link whose target cannot be looked up without opening it")

// lookUpFS returns neither if fsys cannot look name up.
func lookUpFS(fsys fs.FS, name string) (info fs.FileInfo, err error) {
	if f, ok := fsys.(fs.StatFS); ok {
		return f.Stat(name)
	}
	f, ok := fsys.(fs.ReadLinkFS)
	if !ok || !fs.ValidPath(name) {
		return nil, nil
	}
	if info, err = f.Lstat(name); err == nil && info.Mode().Type() == fs.ModeSymlink {
		return follow(f, name)
	}
	return info, err
}

// follow looks up what the link name leads to. It goes one component at a time, since
// behind a link .. is not the directory that the path says.
func follow(f fs.ReadLinkFS, name string) (info fs.FileInfo, err error) {
	at, links := ".", 0
	for rest := strings.Split(name, "/"); len(rest) > 0; {
		next := path.Join(at, rest[0])
		if !fs.ValidPath(next) { // out of f
			return nil, &fs.PathError{Op: "stat", Path: name, Err: errFarLink}
		}
		rest = rest[1:]
		if info, err = f.Lstat(next); err != nil {
			return nil, err
		}
		if info.Mode().Type() != fs.ModeSymlink {
			at = next
			continue
		}
		to, err := f.ReadLink(next)
		if links++; err != nil || path.IsAbs(to) || links > maxLinks {
			return nil, &fs.PathError{Op: "stat", Path: name, Err: errFarLink}
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return info, nil
}
