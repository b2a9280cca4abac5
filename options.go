package fileproc

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
)

// NoRead as Options.ReadSize says that files are not opened: fn gets their
// names, and their metadata if it asks for it.
const NoRead = -1

const (
	// defaultMaxFileSize is what a zero Options.MaxFileSize stands for, in bytes.
	defaultMaxFileSize = 256 << 20
	// maxWorkers keeps a mistaken number (a size, a time) from becoming a
	// million goroutines' worth of tables.
	maxWorkers = 1 << 16
)

// Options say which files are processed and how. The zero value processes
// every regular file below root, whole, on GOMAXPROCS workers.
//
// Options are read once, when a run begins. The slices must not be changed
// while it goes on.
type Options struct {
	// MaxDepth limits how deep the run goes: 1 is root's own files, 2 those
	// of its subdirectories too, and so on. Zero is no limit.
	MaxDepth int

	// Suffixes, unless empty, keeps only the files whose name ends with one
	// of them. The comparison is byte-wise and comes before everything else.
	Suffixes []string

	// SkipHidden skips files and directories whose name begins with a dot.
	SkipHidden bool

	// Select, unless nil, is called before a file is opened, and false skips
	// the file. It may call the File's Stat, so that it can pick by size or
	// age. It is called on the workers, several calls at a time.
	Select func(*File) bool

	// ReadSize limits what is read of each file: n > 0 is at most the first n
	// bytes, 0 the whole file, and NoRead nothing at all.
	ReadSize int

	// MaxFileSize is the size in bytes above which reading a whole file fails
	// with ErrTooLarge, before memory is taken for it. Zero is 256 MiB, -1 no
	// limit. It does not apply to reads limited by ReadSize.
	MaxFileSize int64

	// Stat fetches each file's metadata with the handle that reads it, so
	// that File.Stat and Entry.Stat have it at hand. With Walk, or with
	// NoRead, it costs one system call per file.
	Stat bool

	// Workers is how many goroutines run fn: GOMAXPROCS if zero. As many are
	// started as there is work for, and no more.
	Workers int

	// OnError, unless nil, is called for each failure, one at a time. Nil
	// lets the run go on, and the failure is then told nowhere else; an error
	// stops the run and is what it returns. Without OnError failures are
	// collected and returned at the end (Process), or yielded as they occur
	// (Stream, Walk).
	OnError func(error) error

	// Report, unless nil, is filled in before the run returns.
	Report *Report

	// FS, unless nil, is read instead of the operating system's files. Root
	// is then a path within it, in the sense of fs.ValidPath.
	FS fs.FS

	// DisableURing keeps the run from using io_uring on Linux even where it
	// works. The build tag fileproc_nouring leaves it out altogether.
	DisableURing bool

	// openRoot replaces the backend in tests.
	openRoot func(root string) (directory, error)
}

// validate says in one error all that is wrong with o and root.
func (o *Options) validate(root string) error {
	var wrong []error
	bad := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("fileproc: "+format, args...))
	}
	switch {
	case root == "":
		bad("root is empty")
	case strings.IndexByte(root, 0) >= 0:
		bad("root %q holds a NUL byte", root)
	case o.FS != nil && !fs.ValidPath(root):
		bad("root %q is not a path within Options.FS (see fs.ValidPath)", root)
	}
	if o.MaxDepth < 0 {
		bad("Options.MaxDepth is negative: %d", o.MaxDepth)
	}
	if o.ReadSize < NoRead {
		bad("Options.ReadSize is %d: want a size in bytes, 0 for whole files, or NoRead", o.ReadSize)
	}
	if o.MaxFileSize < -1 {
		bad("Options.MaxFileSize is %d: want a size in bytes, 0 for the default, or -1 for no limit", o.MaxFileSize)
	}
	if o.Workers < 0 {
		bad("Options.Workers is negative: %d", o.Workers)
	}
	if o.Workers > maxWorkers {
		bad("Options.Workers is %d: the most is %d", o.Workers, maxWorkers)
	}
	return errors.Join(wrong...)
}

func (o *Options) workers() int {
	if o.Workers == 0 {
		return runtime.GOMAXPROCS(0)
	}
	return o.Workers
}

// maxFileSize returns the largest size in bytes that is read whole, or -1.
func (o *Options) maxFileSize() int64 {
	if o.MaxFileSize == 0 {
		return defaultMaxFileSize
	}
	return o.MaxFileSize
}

func (o *Options) hasSuffix(name string) bool {
	if len(o.Suffixes) == 0 {
		return true
	}
	for _, s := range o.Suffixes {
		if strings.HasSuffix(name, s) {
			return true
		}
	}
	return false
}
