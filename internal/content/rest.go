package content

import "github.com/fileproc/fileproc/internal/sys"

// A Beginning describes a file of which Content.Data is only the beginning.
type Beginning struct {
	Stat  sys.Stat // of the handle that was read, unless Whole is set
	Rest  []byte   // what follows Data, as far as it was read
	Whole bool     // nothing follows Rest
	// Stream says that the file is one: it is read on behind Rest.
	Stream bool
}

// IsSame reports whether a and b are metadata of the same file, and nothing shows a change
// in between.
func IsSame(a, b sys.Stat) bool {
	return a.Device == b.Device && a.Inode == b.Inode && a.Size == b.Size &&
		a.ModTime.Equal(b.ModTime) && a.ChangeTime.Equal(b.ChangeTime)
}

// A Skipper is a File that can be read from an offset.
type Skipper interface {
	// Skip makes the first Read begin at offset n, and reports whether that is possible.
	Skip(n int64) bool
}

// A Rest is an open file, which is read from after its first bytes.
type Rest struct {
	reader Reader
	h      File
}

// NewRest returns the Rest of h after its first n bytes. H was just opened. If b is not the
// beginning of h, the error is ErrChanged; a nil b is the beginning of every file. NewRest
// closes h unless it returns a Rest. A Stream goes on where it is.
func NewRest(h File, b *Beginning, n int64, stopped func() bool) (*Rest, error) {
	r := &Rest{Reader{Stopped: stopped}, h}
	returned := false
	defer func() {
		if !returned { // also when an fs.FS panics
			h.Close()
		}
	}()
	s, err := statRegular(h)
	if isStream(h) {
		b, n = nil, 0
	}
	if err == nil && b != nil && !IsSame(b.Stat, s) {
		err = &sys.Error{Op: "fstat", Err: sys.ErrChanged}
	}
	if err == nil && n > 0 {
		err = r.skip(n)
	}
	if returned = err == nil; !returned {
		return nil, err
	}
	return r, nil
}

func (r *Rest) skip(n int64) error {
	if s, ok := r.h.(Skipper); ok && s.Skip(n) {
		return nil
	}
	r.reader.TakeBuffer()
	defer r.reader.GiveBuffer()
	for n > 0 {
		k, err := r.reader.next(r.h, r.reader.buf[:min(n, FirstBuffer)])
		switch {
		case err != nil:
			return err
		case k == 0:
			return &sys.Error{Op: "read", Err: sys.ErrChanged}
		}
		n -= int64(k)
	}
	return nil
}

// Read reads as File.Read does, but waits as a Reader does.
func (r *Rest) Read(p []byte) (int, error) {
	return r.reader.next(r.h, p[:min(len(p), MaxRead)])
}

// Close closes the file.
func (r *Rest) Close() { r.h.Close() }
