package incremental

import "errors"

// ErrNotSaved is wrapped by the error of a run that could not write all its results to
// the cache file. The results are complete. The next run processes the files whose
// results are missing there again.
var ErrNotSaved = errors.New("incremental: not all results are saved")

// Options say where and how results are kept between runs.
type Options[T any] struct {
	// File is the path of the cache file. A run creates it if it does not exist, and
	// replaces it if it is damaged, or was written for another Version, root, type T or
	// Codec, or with other options that change what is read. A run does not replace a
	// file that was never a cache file: its error then wraps ErrNotSaved. It does replace
	// such a file if that is empty or begins with zeros, as after a crash of the machine.
	// One file serves one root, or any number if each run has several in opts.Roots. Runs in
	// several processes may use it at the same time.
	//
	// The lock file File.lock stays beside the cache file. Both are created with mode 0600,
	// so that only their owner can use them. While a run replaces the cache file, there is
	// also a file whose name begins with File.fileproc-tmp. If these files are below root,
	// fn does not get them, nor the cache file through a link or by another name.
	//
	// If File is empty, a [Session] or package watch keeps the results in memory until it
	// ends, as fn has returned them. Codec and Version then have no effect.
	File string

	// Version stands for fn: change it whenever fn would return something else for
	// the same file.
	Version string

	// Codec turns results into bytes and back. Nil means JSON. A run returns each result
	// as Decode gives it, even if fn has returned it in this run, so that results do not
	// depend on what was in the cache file. A codec is identified by its type, and also
	// by its value if that consists of numbers, text, and arrays and structs of these.
	// Codecs that differ in other values (a dictionary, a function) and so decode
	// differently need different Versions.
	Codec Codec[T]

	// Compare says how to decide that a file is unchanged.
	Compare Compare

	// Deleted, if not nil, is called for each file that is in the cache file and
	// that the options select, but that no longer exists. Rel is its path relative
	// to root, or what File.Path was if opts.Roots has several. The run makes these calls one after the other at its end, before it
	// writes the cache file: a program that stops in between gets them again. A run
	// that was cancelled or stopped early makes none, and a cancel ends them.
	//
	// Of several roots, those count that the run has and that are directories, each by the name
	// that it was given: results below other roots are kept. When SelectDir is asked about
	// directories that may be gone, Entry.Root is ".".
	//
	// While Deleted is set, the cache file also records files whose results are not kept,
	// but not files that could never be read, so that fn never got them.
	// Deleted is not called for a file that only the cache file of another Version, root,
	// type T or Codec had.
	//
	// With opts.Files, Deleted is called for the named files, and the files below the named
	// directories, that no longer exist. Such a path is then not a failure. A missing path
	// that the cache file does not know is a failure that wraps fs.ErrNotExist. A file
	// behind a link counts as existing if a run without Files would reach it now, with the
	// Symlinks of the last such run that was saved.
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
	// CompareGit is CompareAuto, and also knows tracked files in a git work tree: if git's index
	// shows that a file has the content that it had in an earlier run, the file is unchanged
	// although it is another one, as in a fresh clone to which the cache file was restored. The
	// file is not opened. CompareGit does not see a change that git status does not see. Fn must
	// take the content from File.Data, and nothing but size and mode from File.Stat.
	// CompareAuto decides
	//
	//   - with fileproc.NoRead or Options.FS, and where CompareAuto compares content;
	//   - for a file that is untracked, longer than ReadSize or skipped by SkipBinary, and one that
	//     attributes let git convert: by autocrlf or eol, if that changes the file, by
	//     a filter (as Git LFS is one), ident or working-tree-encoding;
	//   - if root is in no work tree, or the index cannot be read, and in repositories below root
	//     that are no submodules.
	//
	// A file is read if the index does not show that the file is unchanged: because the file is as
	// new as the index (where times are true to a tick of a clock: if both are of one second), was
	// written since then, or is marked as assume-unchanged or skip-worktree.
	CompareGit
)
