package sys

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

// maxLinks is the maximum number of symbolic links that one path may follow, as on Linux.
const maxLinks = 40

// OpenOfFSWaits reports whether an open of name in fsys may wait or have an effect: name
// leads to a FIFO, a device or a socket, whose mode it returns. It opens nothing: if fsys cannot
// look up a name, it returns false. It returns true for a link that only fsys can follow, since the link
// may lead to such a file.
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

// StatFS is fs.Stat, but opens name only if fsys has no other way to look it up.
func StatFS(fsys fs.FS, name string) (fs.FileInfo, error) {
	if info, err := lookUpFS(fsys, name); info != nil || err != nil {
		return info, err
	}
	return fs.Stat(fsys, name)
}

var errFarLink = errors.New("a link whose target cannot be looked up without opening it")

// lookUpFS looks up name without opening it. It returns nil and nil if fsys cannot do that.
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

// follow looks up the file to which the link name leads. It goes one component at a time, since
// .. behind a link is the parent of the link's target.
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
