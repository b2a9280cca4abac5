package cache

import (
	"io"
	"io/fs"
	"slices"
)

// A handle is what open files and directories have in common.
type handle struct {
	of     *content
	name   string
	closed bool
}

func (h *handle) err(op string) error {
	if h.closed {
		return &fs.PathError{Op: op, Path: h.name, Err: fs.ErrClosed}
	}
	return nil
}

func (h *handle) Stat() (fs.FileInfo, error) {
	if err := h.err("stat"); err != nil {
		return nil, err
	}
	return &h.of.info, nil
}

func (h *handle) Close() error {
	err := h.err("close")
	h.closed = true
	return err
}

// file is an open regular file. It keeps the state of the file that it was opened
// with.
type file struct {
	handle
	at int64 // of the next read; it may be beyond the end
}

var _ interface {
	fs.File
	io.ReadSeeker
	io.ReaderAt
	io.WriterTo
} = (*file)(nil)

func (f *file) Read(p []byte) (int, error) {
	if err := f.err("read"); err != nil {
		return 0, err
	}
	if f.at >= int64(len(f.of.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.of.data[f.at:])
	f.at += int64(n)
	return n, nil
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.err("read"); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrInvalid}
	}
	if off >= int64(len(f.of.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.of.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	if err := f.err("seek"); err != nil {
		return 0, err
	}
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += int64(len(f.of.data))
	}
	if offset < 0 || whence < io.SeekStart || whence > io.SeekEnd {
		return 0, &fs.PathError{Op: "seek", Path: f.name, Err: fs.ErrInvalid}
	}
	f.at = offset
	return offset, nil
}

// WriteTo gives w a copy: the content is shared, and a w with a defect may change what it gets.
func (f *file) WriteTo(w io.Writer) (n int64, err error) {
	return io.Copy(w, struct{ io.Reader }{f})
}

// openDir is an open directory.
type openDir struct {
	handle
	next int
}

var _ fs.ReadDirFile = (*openDir)(nil)

func (d *openDir) Read([]byte) (int, error) {
	if err := d.err("read"); err != nil {
		return 0, err
	}
	return 0, isDirectory("read", d.name)
}

func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if err := d.err("readdir"); err != nil {
		return nil, err
	}
	rest := d.of.names[d.next:]
	if n > 0 {
		if len(rest) == 0 {
			return nil, io.EOF
		}
		rest = rest[:min(n, len(rest))]
	}
	d.next += len(rest)
	return slices.Clone(rest), nil
}
