package incremental

import "errors"

// ErrNotSaved is in the error of a run whose results are complete, but not all of
// them are in the cache file. The next run processes those files again.
var ErrNotSaved = errors.New("incremental: not all results are saved")

// Options say where and how results are kept between runs.
type Options[T any] struct {
	// File is the path of the cache file. It is made if it is not there, and
	// replaced if it is damaged, or was written for another Version, root, type T or
	// Codec, or with other options that change what is read. A file that was never
	// a cache file is left alone, which is ErrNotSaved, unless it is empty or begins
	// with zeros, as after a crash of the machine. One file serves one
	// tree. Runs in several processes may use it at a time. File.lock, which is beside it, stays
	// there. Both are made with mode 0600, so that only their owner can use them. While
	// the cache file is replaced, there is also one whose name begins with
	// File.fileproc-tmp. If these files are below root, fn does not get them, nor the
	// cache file through a link or by another name.
	File string

	// Version stands for fn: change it whenever fn would return something else for
	// the same file.
	Version string

	// Codec turns results into bytes and back. If it is nil, it is JSON. Each
	// result is what Decode makes of it, also if the file was processed in this run,
	// so that it does not depend on what was in the cache file. A codec is known by its
	// type, and by its value if that consists of numbers, text, and arrays and structs of
	// these. For other values that decode differently (a dictionary, a function), Version
	// must differ.
	Codec Codec[T]

	// Compare says how to decide that a file is unchanged.
	Compare Compare

	// Deleted, if not nil, is called for each file that is in the cache file and
	// that the options select, but that is no longer there, with its path relative
	// to root. The calls come one after the other when the run has ended, before the
	// cache file is written: a program that stops in between gets them again. There
	// are none if the run was cancelled or stopped early, and no more after a cancel.
	//
	// While it is set, the cache file also knows the files whose results are not kept,
	// but not those that have always failed before fn was called.
	// It is not called for a file that only the cache file of another Version, root,
	// type T or Codec had.
	//
	// If opts.Files names the files, it is called for those among them, and those
	// below a directory among them, that are no longer there. Such a path is not a
	// failure then. One that the cache file does not know is a failure that wraps
	// fs.ErrNotExist. Behind a link is what the last saved run without Files would have
	// reached with its Symlinks.
	Deleted func(rel string)
}

// Compare selects how to decide that a file is unchanged.
type Compare int

const (
	// CompareAuto compares metadata where the file system is known to keep it well,
	// and content elsewhere.
	CompareAuto Compare = iota
	// CompareMetadata compares metadata on every file system.
	CompareMetadata
	// CompareContent compares content on every file system.
	CompareContent
)
