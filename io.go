package fileproc

import (
	"io/fs"
	"os"
	"time"
)

// A directory is the seam between the core and a backend: an open directory of
// an operating system, of an fs.FS, or of a test.
//
// A name is one component that list has given, and a zero byte stands behind
// it. No method follows a symbolic link in the last component. Errors are
// *sysError where the system call is known. An entry that is not what the
// listing said gives an error that is ErrChanged.
//
// One goroutine at a time calls list; the other methods may be called by
// several, also during list. Nothing is called after close.
type directory interface {
	// list hands the entries of one buffer to s, "." and ".." left out, and
	// reports whether the listing goes on.
	list(s *sink) (more bool, err error)
	// openDir opens a subdirectory.
	openDir(name string) (directory, error)
	// open opens a file for reading, without waiting for a FIFO's writer. The
	// result need not be a regular file: the reader checks that. It may be
	// made in spare, a closed content that the same backend returned before.
	open(name string, spare content) (content, error)
	// stat returns the metadata of an entry of any type.
	stat(name string) (Stat, error)
	// openFile opens a regular file for a caller, who gets path as its name.
	openFile(name, path string) (*os.File, error)
	// identity tells the directory from all others that exist now.
	identity() (identity, error)
	close()
}

// A content is an open file. One goroutine uses it.
type content interface {
	// cached reads into p what is at hand without waiting. ok says that the
	// file is a regular one and that p[:n] is all of it; if not, the n bytes
	// are its first, and read goes on behind them.
	cached(p []byte) (n int, ok bool)
	// read reads as read(2) does, with 0 and nil at the end. errWouldBlock says
	// that there is nothing to read yet, for which it has waited waitSlice at most.
	read(p []byte) (n int, err error)
	stat() (Stat, error)
	close()
}

// An identity is equal to another if both are of the same directory.
type identity interface {
	same(identity) bool
	// inode is the same of all identities that are equal, and of few others.
	inode() (device, number uint64)
}

// Stat is a file's metadata.
type Stat struct {
	Size    int64 // in bytes
	ModTime time.Time
	Mode    fs.FileMode // type and permission bits
	Inode   uint64      // 0 where there is none, as on Windows or in most fs.FS
	Device  uint64      // as Inode
}
