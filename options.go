package fileproc

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/fileproc/fileproc/internal/names"
)

// NoRead as Options.ReadSize says that files are not opened: fn gets their
// names, and their metadata if it asks for it.
const NoRead = -1

// NoLimit as Options.MaxFileSize says that files of every size are read whole.
const NoLimit = -1

// defaultMaxFileSize is what a zero Options.MaxFileSize stands for, in bytes.
const defaultMaxFileSize = 256 << 20

// Symlinks is what a run does with symbolic links below root.
type Symlinks int

const (
	// SymlinksSkip skips all links.
	SymlinksSkip Symlinks = iota
	// SymlinksFiles reads the files that links lead to.
	SymlinksFiles
	// SymlinksFollow also goes into the directories that links lead to, each
	// directory once: first all that are come to without a link, and then, in
	// the order of the links' paths, those that are left. So loops end, and
	// which path a file is found by does not change from run to run.
	SymlinksFollow
)

func (s Symlinks) String() string {
	if names := [...]string{"skip", "files", "follow"}; s >= 0 && int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Symlinks(%d)", int(s))
}

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

	// Include, unless empty, keeps only the files whose path fits one of these
	// patterns, and Exclude leaves out those that fit one, with all that is
	// below if it is a directory, which is then not opened. Nor is a directory
	// in which no path could fit Include. A pattern is matched with the whole
	// slash-separated path relative to root: * stands for any part of a name, **
	// as a name for any number of directories, and there are ?, [a-z], [!a-z] and
	// {a,b/c}; see github.com/bmatcuk/doublestar. None of *, ? and [ ] matches a
	// slash. So "*.md" is in root alone, "**/*.md" everywhere, and "**/testdata"
	// excludes each directory of that name.
	Include, Exclude []string

	// IgnoreFiles are the names of ignore files, such as ".gitignore" and
	// ".ignore": what the patterns in them leave out, exactly as git reads
	// them, is skipped, and a directory is then not opened. A name is looked for
	// in every directory, and holds there and below. What has a slash is the
	// path of one file, absolute or relative to root, that holds in all of
	// root, such as ".git/info/exclude"; it need not exist. Where that path begins
	// with ..s, as "../../.gitignore" does, its patterns are about paths relative to
	// the directory that these lead to, which a . ends: "../.././../rules" is of
	// the directory two above root, but in the one three above. The files of a
	// directory count more than those of its parents and than the paths, and
	// within each of these, later ones more than earlier ones. An ignore file
	// that is a symbolic link is not used. That one cannot be read is a failure
	// of its own. GitIgnoreFiles returns the ignore files that git would use.
	//
	// The entries of a directory are then kept in memory until all of them are
	// listed.
	IgnoreFiles []string

	// SkipHidden skips files and directories whose name begins with a dot.
	SkipHidden bool

	// Select, unless nil, is called before a file is opened, and false skips
	// the file. It may call the File's Stat, so that it can pick by size or
	// age. It is called on the workers, several calls at a time.
	Select func(*File) bool

	// SelectDir, unless nil, is called before a directory below root is opened,
	// and false leaves it out with all that is in it: one more in Found, and in
	// Skipped for a reason of its own. It is called as Select is, with an Entry
	// without metadata. Walk yields a directory when SelectDir has said yes, and
	// asks about those too that MaxDepth keeps from being opened. It judges
	// paths: what it refuses may be reached by a link, and of several links to
	// one directory (SymlinksFollow) it is asked about the first alone.
	SelectDir func(Entry) bool

	// SkipMarked are names of files that mark a directory, such as CACHEDIR.TAG
	// or .nobackup. A directory that lists a regular file of one of these names,
	// also if it is root, is left out with all that is in it: one more in Found,
	// and in Skipped for a reason of its own. Nothing is looked for: it is the
	// listing that tells, so Walk has yielded the directory itself by then. The
	// entries of a directory are kept in memory until all of them are listed.
	SkipMarked []string

	// ReadSize limits what is read of each file: n > 0 is at most the first n
	// bytes, 0 the whole file, and NoRead nothing at all: files are then not
	// opened, and File.Data is nil.
	ReadSize int

	// Symlinks says what becomes of symbolic links below root. A link that is
	// followed is handled under its own path: Suffixes, Include and the like are
	// about that, and what Exclude or SkipHidden leaves out is not come to by a
	// link either.
	Symlinks Symlinks

	// SymlinksOutside lets links lead out of root.
	SymlinksOutside bool

	// SkipBinary skips the files that have a NUL byte in their first 8 KiB,
	// which are read for that also if ReadSize is less.
	SkipBinary bool

	// OneFilesystem keeps the run from going down into directories that are on
	// another device than root. Where the operating system does not tell
	// devices, as on Windows, all are taken for one.
	OneFilesystem bool

	// MaxFileSize is the size in bytes above which reading a whole file fails
	// with ErrTooLarge, before memory is taken for it. Zero is 256 MiB; with
	// NoLimit there is none. It does not apply to reads limited by ReadSize.
	MaxFileSize int64

	// Stat fetches each file's metadata with the handle that reads it, so
	// that File.Stat and Entry.Stat have it at hand. With Walk, or with
	// NoRead, it costs one system call per file.
	Stat bool

	// Workers is how many calls of fn, Select and SelectDir run at the same time:
	// GOMAXPROCS if zero. As many goroutines are started as there is work for.
	// Where opens and reads wait for a disk, a network or a FUSE server, more
	// files than Workers are opened and read at a time, up to 64, and then wait
	// for fn. With FS this is so if Workers is zero; else its methods are called
	// by that many goroutines at most.
	Workers int

	// Ordered gives results in the order of their paths, compared name by name
	// and byte by byte, which is the same everywhere: Process sorts them at the
	// end, Stream and Walk yield them in order, for which they keep a bounded
	// number of results waiting, and the names of each directory that they are at.
	// Failures of files are yielded in their place too, and those of listing a
	// directory before what is in it. With SymlinksFollow it is for Process
	// only.
	Ordered bool

	// OnError, unless nil, is called for each failure. Nil lets the run go on,
	// and the failure is then reported nowhere else; an error stops the run and
	// is what it returns. Without OnError failures are collected and returned at
	// the end (Process), or yielded as they occur (Stream, Walk).
	//
	// The calls come one at a time, each on the worker that met the failure,
	// while other workers run fn. The goroutine that called Process is one of
	// the workers; the one that loops over Stream or Walk is not. What keeps a
	// run from beginning is returned without a call: invalid options, a root that
	// cannot be opened, an unreadable file that IgnoreFiles names by its path.
	OnError func(error) error

	// Report, unless nil, is filled in before the run returns, whatever the error,
	// but for invalid options, which leave it as it is.
	Report *Report

	// OnProgress, unless nil, is called about ten times a second with the
	// Report as it is then, and once more, with the final one, before the run
	// returns. Except for Abandoned, which only the last call knows, no
	// number is ever less than in the call before.
	//
	// The calls come one at a time, on a goroutine that does nothing else,
	// while workers run fn and OnError. The last call is on the goroutine that
	// called Process, when no fn runs any more. None is on the goroutine that
	// loops over Stream or Walk.
	OnProgress func(Report)

	// Shard and Shards divide a job among processes or machines: of Shards
	// parts, numbered from 0, only the files of part Shard are processed.
	// Which part a file belongs to depends on nothing but its path relative to
	// root. Every part lists all directories. Zero Shards is no division.
	Shard, Shards int

	// FS, unless nil, is read instead of the operating system's files. Root
	// is then a path within it, in the sense of fs.ValidPath. What it calls
	// fs.ModeIrregular, as stores of objects do, is taken for a regular file. An
	// entry that it lists by a name that is none (empty, "." or "..", or with a
	// slash or a NUL byte) is a failure with fs.ErrInvalid.
	FS fs.FS

	// DisableURing keeps the run from using io_uring on Linux even where it
	// works. The build tag fileproc_nouring leaves it out altogether.
	DisableURing bool

	// openRoot replaces the backend in tests.
	openRoot func(root string) (directory, error)
}

// config returns what a run needs of o, or one error that says all that is wrong
// with o, root, and fn if there is none.
func (o *Options) config(root string, noFn bool) (*config, error) {
	err := o.validate(root)
	if noFn {
		err = errors.Join(err, errors.New("fileproc: fn is nil"))
	}
	if err != nil {
		return nil, err
	}
	c := &config{
		root: root, fsys: o.FS, maxDepth: o.MaxDepth,
		suffixes: o.Suffixes, include: o.Include, exclude: o.Exclude, skipMarked: o.SkipMarked,
		skipHidden: o.SkipHidden, skipBinary: o.SkipBinary, oneFilesystem: o.OneFilesystem,
		shard: o.Shard, shards: o.Shards,
		followFiles: o.Symlinks != SymlinksSkip, followDirs: o.Symlinks == SymlinksFollow, followOutside: o.SymlinksOutside,
		noRead: o.ReadSize == NoRead, readLimit: o.MaxFileSize, stat: o.Stat, noURing: o.DisableURing,
		workers: o.Workers, mayGrow: o.FS == nil || o.Workers == 0,
	}
	c.ignoreNames, c.ignorePaths = splitIgnoreFiles(o.IgnoreFiles)
	if c.workers == 0 {
		c.workers = runtime.GOMAXPROCS(0)
	}
	if c.readLimit == 0 {
		c.readLimit = defaultMaxFileSize
	}
	if o.ReadSize > 0 {
		c.readLimit, c.truncate = int64(o.ReadSize), true
	}
	return c, nil
}

// callbacks returns what the caller of the API wants to be called, without fn.
func (o *Options) callbacks() callbacks {
	c := callbacks{onError: o.OnError, openRoot: o.openRoot}
	if o.Select != nil {
		c.selectFile = func(f *currentFile) bool { return o.Select((*File)(f)) }
	}
	if o.SelectDir != nil {
		c.selectDir = func(w *worker, parent *node, name string) bool {
			return o.SelectDir(Entry{paths: w.paths, node: parent, name: name, typ: fs.ModeDir})
		}
	}
	if o.OnProgress != nil {
		c.onProgress = func(c counts, elapsed time.Duration) { o.OnProgress(newReport(c, elapsed)) }
	}
	if o.Report != nil {
		c.onReport = func(c counts, elapsed time.Duration) { *o.Report = newReport(c, elapsed) }
	}
	return c
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
	if o.MaxFileSize < NoLimit {
		bad("Options.MaxFileSize is %d: want a size in bytes, 0 for the default, or NoLimit", o.MaxFileSize)
	}
	if o.SkipBinary && o.ReadSize == NoRead {
		bad("Options.SkipBinary has nothing to look at with ReadSize NoRead")
	}
	switch {
	case o.Symlinks < SymlinksSkip || o.Symlinks > SymlinksFollow:
		bad("Options.Symlinks is %v: want SymlinksSkip, SymlinksFiles or SymlinksFollow", o.Symlinks)
	case o.Symlinks != SymlinksSkip && o.FS != nil:
		bad("Options.Symlinks cannot be had with Options.FS, which does not tell where a link leads")
	case o.SymlinksOutside && o.Symlinks == SymlinksSkip:
		bad("Options.SymlinksOutside means nothing while Options.Symlinks skips links")
	}
	if o.OneFilesystem && o.FS != nil {
		bad("Options.OneFilesystem cannot be had with Options.FS, which tells no devices")
	}
	switch {
	case o.Shards < 0:
		bad("Options.Shards is negative: %d", o.Shards)
	case o.Shard < 0 || o.Shard >= max(o.Shards, 1):
		bad("Options.Shard is %d: want 0 to %d, one less than Shards", o.Shard, max(o.Shards, 1)-1)
	}
	for _, f := range o.IgnoreFiles {
		if f == "" || f == "." || f == ".." || strings.IndexByte(f, 0) >= 0 {
			bad("Options.IgnoreFiles has %q, which cannot be the name of a file", f)
		}
		if n, _ := levelsUp(f); o.FS != nil && n > depthOf(root) {
			bad("Options.IgnoreFiles has %q, which is above Options.FS", f)
		}
	}
	for _, m := range o.SkipMarked {
		if !names.Valid([]byte(m)) || strings.IndexByte(m, 0) >= 0 {
			bad("Options.SkipMarked has %q, which cannot be the name of a file", m)
		}
	}
	for _, p := range o.Include {
		if why := wrongPattern(p); why != "" {
			bad("Options.Include has the pattern %q, which %s", p, why)
		}
	}
	for _, p := range o.Exclude {
		if why := wrongPattern(p); why != "" {
			bad("Options.Exclude has the pattern %q, which %s", p, why)
		}
	}
	if o.Workers < 0 {
		bad("Options.Workers is negative: %d", o.Workers)
	}
	if o.Workers > maxWorkers {
		bad("Options.Workers is %d: the most is %d", o.Workers, maxWorkers)
	}
	return errors.Join(wrong...)
}

// validateStream says what Stream and Walk cannot do.
func (o *Options) validateStream() error {
	if o.Ordered && o.Symlinks == SymlinksFollow {
		return errors.New("fileproc: Options.Ordered with SymlinksFollow, which visits what links lead to last, is for Process only")
	}
	return nil
}

// wrongPattern says why the pattern can never match, or "".
func wrongPattern(p string) string {
	switch {
	case p == "":
		return "is empty"
	case !doublestar.ValidatePattern(p):
		return "is malformed"
	case len(alternatives(nil, p)) > maxAlternatives:
		return fmt.Sprintf("has braces that stand for more than %d patterns", maxAlternatives)
	case p[0] == '/':
		return "begins with a slash: paths are relative to root"
	case p[len(p)-1] == '/':
		return "ends with a slash: a directory is matched by its name, without one"
	}
	for level := range strings.SplitSeq(p, "/") {
		if level == "." || level == ".." || level == "" {
			return fmt.Sprintf("has the part %q, which no path relative to root has", level)
		}
	}
	return ""
}
