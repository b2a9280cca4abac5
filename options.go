package fileproc

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"runtime"
	"strings"
	"time"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/pattern"
	"github.com/fileproc/fileproc/internal/plumbing"
)

// NoRead as [Options.ReadSize] means that files are not opened: fn gets their
// names, and on request their metadata.
const NoRead = -1

// NoLimit as [Options.MaxFileSize] means that files of every size are read whole.
const NoLimit = -1

// defaultMaxFileSize is the limit for a zero Options.MaxFileSize, in bytes.
const defaultMaxFileSize = 256 << 20

// Symlinks selects what a run does with symbolic links below root.
type Symlinks int

const (
	// SymlinksSkip skips all links.
	SymlinksSkip Symlinks = iota
	// SymlinksFiles reads the files that links lead to.
	SymlinksFiles
	// SymlinksFollow also descends into the directories that links lead to. It
	// enters each directory once: first those that can be reached without a link,
	// then the others, in the order of the links' paths. So loops end, and each
	// run finds a file under the same path.
	SymlinksFollow
)

func (s Symlinks) String() string {
	if names := [...]string{"skip", "files", "follow"}; s >= 0 && int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Symlinks(%d)", int(s))
}

// Options select which files are processed and how. The zero value processes
// every regular file below root, whole, on GOMAXPROCS workers.
//
// A run reads its Options once, when it begins. The slices must not be changed
// during the run. The fields are in groups:
//
//   - Which files: [Options.Suffixes], [Options.Include], [Options.Exclude],
//     [Options.IgnoreCase], [Options.IgnoreFiles], [Options.GitIgnore], [Options.SkipHidden],
//     [Options.SkipLarger], [Options.SkipBinary], [Options.MaxDepth], [Options.Select],
//     [Options.SelectDir], [Options.SkipMarked], [Options.OneFilesystem]
//   - Symbolic links: [Options.Symlinks], [Options.SymlinksOutside]
//   - What is read of each file: [Options.ReadSize], [Options.MaxFileSize],
//     [Options.Download], [Options.Stat]
//   - Results, failures and progress: [Options.Ordered], [Options.OnError],
//     [Options.OnSkip], [Options.Report], [Options.OnProgress]
//   - Workers and machines: [Options.Workers], [Options.Shard],
//     [Options.Shards], [Options.DisableURing]
//   - In place of a listing, or of the operating system: [Options.Files],
//     [Options.FS]
type Options struct {
	// # Which files
	//
	// Suffixes, if not empty, keeps only files whose name ends with one of them.
	// The comparison is byte-wise unless IgnoreCase is set, and precedes all other
	// filters. A suffix that begins with * or has a slash is an error: patterns and
	// paths are for [Options.Include].
	Suffixes []string

	// Include, if not empty, keeps only files whose path matches one of its
	// patterns. Exclude leaves out files and directories whose path matches one.
	// A directory is not opened if excluded, or if no path in it can match Include.
	//
	// A pattern matches the whole slash-separated path relative to root: "*.md"
	// matches in root alone, "**/*.md" everywhere, "**/testdata" each directory of
	// that name. The wildcards *, ?, [a-z] and [!a-z] match no slash, {a,b/c}
	// matches either alternative, and ** as a name any number of directories; see
	// github.com/bmatcuk/doublestar.
	Include, Exclude []string

	// IgnoreCase lets Suffixes, Include and Exclude match without regard to case, by
	// simple Unicode folding as strings.EqualFold does. Ignore files and SkipMarked
	// always distinguish case, and so does GitIgnore.
	IgnoreCase bool

	// IgnoreFiles lists ignore files, such as ".gitignore" and ".ignore". What
	// their patterns ignore, exactly as in git, is skipped. An ignored directory is
	// not opened.
	//
	// An element without a slash is the name of a file in any directory, found in
	// its listing, that applies there and below. A symbolic link of that name is
	// not used. A file that cannot be read is a failure of its own. Entries are
	// kept in memory until their directory's listing ends.
	//
	// An element with a slash, such as ".git/info/exclude", is the path of one
	// file that applies in all of root. It is absolute or relative to root, and
	// need not exist. Its patterns are about paths relative to root or, if it begins
	// with "../", to the directory that its leading "../"s reach: two levels up for
	// "../.././../rules".
	//
	// A directory's files take precedence over its parents', and these over files
	// named by path. Among equals, later elements take precedence.
	IgnoreFiles []string

	// GitIgnore skips what git would leave out of a repository's work tree: .git, and
	// what the .gitignore files, the repository's info/exclude and the user's ignore
	// file (core.excludesFile) ignore. Outside a repository it skips nothing. It does
	// not run git.
	//
	// If root is in a repository, the rules of the directories above it apply too, but
	// cannot ignore root itself. A repository below root, such as a submodule, is
	// judged by its own rules alone. Files that git tracks although a rule ignores them
	// are skipped as well: only git's index knows them. A file of IgnoreFiles takes
	// precedence over a .gitignore beside it.
	//
	// A file with rules that cannot be read, a damaged configuration of git, or a .git
	// that cannot be looked at, is a failure of its own, and the other rules apply. With [Options.FS], repositories
	// are those in FS, and git's configuration is not used.
	GitIgnore bool

	// SkipHidden skips files and directories whose name begins with a dot.
	SkipHidden bool

	// SkipLarger, if positive, skips files of more than that many bytes, before
	// MaxFileSize and SkipBinary. It costs no system call for files that are read.
	// [NoRead] and [Walk] make one for each file.
	SkipLarger int64

	// SkipBinary skips files with a NUL byte in their first 8 KiB. A lower
	// [Options.ReadSize] still reads those, and [NoRead] is invalid.
	SkipBinary bool

	// MaxDepth limits how deep the run descends: 1 means root's own files, 2 also
	// those of its subdirectories, and so on. Zero means no limit.
	MaxDepth int

	// Select, if not nil, is called before a file is opened, and skips the file by
	// returning false. It may call [File.Stat] to select by size or age. It is
	// called on the workers, several calls at a time.
	Select func(*File) bool

	// SelectDir, if not nil, is called before a directory below root is opened. If
	// it returns false, the directory is left out with all its contents, and adds
	// one to Report.Found and to Report.Skipped[SkippedSelectDir]. It is called as
	// [Options.Select] is, with an [Entry] without metadata.
	//
	// [Walk] yields a directory after SelectDir has returned true. It also calls
	// SelectDir for directories that [Options.MaxDepth] leaves closed. SelectDir
	// judges paths: a link may still lead to a directory that it refuses. Of several
	// links to one directory, it gets only the first.
	SelectDir func(Entry) bool

	// SkipMarked lists names of files that mark a directory, such as CACHEDIR.TAG
	// or .nobackup. A directory, root included, that lists a regular file of such
	// a name is left out with all its contents, and adds one to Report.Found and
	// to Report.Skipped[SkippedMarked]. Only the listing shows this, so [Walk] has
	// already yielded the directory. Entries are kept in memory until their
	// directory's listing ends.
	SkipMarked []string

	// OneFilesystem keeps the run from entering directories on another device than
	// root's. Where there are no device numbers (Windows), all count as one.
	OneFilesystem bool

	// # Symbolic links
	//
	// Symlinks selects what happens to symbolic links below root. A link's target is
	// processed under the link's path, which the filters judge. [Options.Exclude] and
	// [Options.SkipHidden] also judge the target's own path in root. A link that leads
	// nowhere, or to itself, is skipped; more than 255 links in a row are a failure.
	Symlinks Symlinks

	// SymlinksOutside allows links that lead out of root.
	SymlinksOutside bool

	// # What is read of each file
	//
	// ReadSize, if positive, limits reads to the first ReadSize bytes of each
	// file, behind which [File.Reader] reads on. Zero means whole files. [NoRead]
	// opens no file and leaves [File.Data] nil.
	ReadSize int

	// MaxFileSize is the size in bytes above which reading a whole file fails with
	// [ErrTooLarge], before memory is allocated. Zero means 256 MiB, and [NoLimit]
	// no limit. It does not apply to reads that [Options.ReadSize] limits.
	MaxFileSize int64

	// Download also reads files whose content is elsewhere, which fetches it: those
	// that a cloud's driver shows on Windows (FILE_ATTRIBUTE_RECALL_ON_DATA_ACCESS).
	// They are skipped otherwise. [Options.FS] makes no difference between files.
	Download bool

	// Stat fetches each file's metadata with the handle that reads it, for
	// [File.Stat] and [Entry.Stat]. [Walk] and [NoRead] make one system call per
	// file, or use the listing on Windows and Plan 9. In a listing of Windows, a file
	// that is being written, or that has several names, may be as before the last
	// change.
	Stat bool

	// # Results, failures and progress
	//
	// Ordered gives results in the order of their paths, compared name by name and
	// byte by byte on every platform. [Process] sorts them at the end. [Stream] and
	// [Walk] yield them in order. For that they keep a bounded number of results
	// waiting, and the names of each directory being listed. A file's failure is
	// yielded in its place, that of a listing before the directory's contents.
	// Only Process supports Ordered with [SymlinksFollow].
	Ordered bool

	// OnError, if not nil, is called with each failure, a [*Failure], also that of
	// root. If it returns nil, the run goes on and reports the failure nowhere else.
	// If it returns an error, the run stops and returns that error. Without OnError,
	// [Process] returns the failures at its end, and [Stream] and [Walk] yield them as
	// they occur.
	//
	// The calls come one at a time, each on the worker that met the failure, while
	// other workers run fn. The goroutine that calls Process is one of the
	// workers. The one that loops over Stream or Walk is not. OnError is not
	// called if the run does not start: for invalid options, or an unreadable file that
	// [Options.IgnoreFiles] names by its path.
	OnError func(error) error

	// OnSkip, if not nil, is called with each entry that Report counts as skipped, and
	// the reason. It is not called for what is in a directory that is left out. The
	// Entry of root, if SkipMarked leaves it out, has an empty Rel. The calls come on
	// the workers, and no call of OnSkip or OnError overlaps another.
	OnSkip func(Entry, SkipReason)

	// Report, if not nil, is filled in before the run returns, whatever its error.
	// Only invalid options leave it unchanged.
	Report *Report

	// OnProgress, if not nil, is called about ten times a second with the current
	// Report, and once with the final one before the run returns. No number
	// decreases between calls. Abandoned is zero before the last call.
	//
	// The calls come one at a time, on a goroutine of their own, while workers run
	// fn and OnError. The last call comes after all calls of fn have returned, on
	// the goroutine that called [Process]. None is on the goroutine that loops over
	// [Stream] or [Walk].
	OnProgress func(Report)

	// # Workers and machines
	//
	// Workers is how many calls of fn, [Options.Select] and [Options.SelectDir] may
	// run at the same time. Zero means GOMAXPROCS. Goroutines are started only as
	// there is work for them.
	//
	// Where opens and reads wait for a disk, a network or a FUSE server, more files
	// than Workers are opened and read at a time, up to 64, and then wait for fn.
	// With [Options.FS], that is so only if Workers is zero; else at most Workers
	// goroutines call it.
	Workers int

	// Shard and Shards divide a job among processes or machines. Of Shards parts,
	// numbered from 0, the run processes the files of part Shard. A file's part
	// depends only on its path relative to root. Every part lists all directories.
	// Zero Shards is no division.
	Shard, Shards int

	// DisableURing keeps the run from using io_uring on Linux even where it works.
	// The build tag fileproc_nouring leaves io_uring out of the program.
	DisableURing bool

	// # In place of a listing, or of the operating system
	//
	// Files, if not nil, gives the paths of the files to process, relative to root
	// and with slashes. Root is then not listed. A path with a slash at its end
	// stands for all files below that directory, and one with "/." at its end for the
	// directory's own files. Each path given counts: one that is given twice, or that
	// is also in a directory given, is delivered twice.
	//
	// A path that does not lead to a regular file is a failure of its own. If
	// nothing is there, the failure is fs.ErrNotExist. It is fs.ErrInvalid if
	//   - the path is empty, absolute, above 65,536 bytes or 4,096 elements, or has
	//     a NUL byte or an element that is empty, "." or "..", but for its end;
	//   - it names a directory without a slash at its end, a symbolic link (without
	//     [SymlinksFiles]) or another file that is not regular;
	//   - a directory in it is a link, but for an FS that follows links.
	//
	// Root and the directories of the paths need not be readable if they can be searched,
	// as a /home of mode 711 can (Linux, macOS, FreeBSD, Solaris and AIX, but not with the
	// generic backend).
	//
	// The paths are grouped by directory as they come: a worker that has nothing
	// else to do takes the batch that came since, up to some 4 MiB. With
	// [Options.Ordered], [Stream] and Walk yield results in the order of the paths
	// given, files below a directory in path order. [Process] sorts all by path.
	//
	// The options judge a path as if it had been listed, before it is opened, and
	// each directory in it too. If one of these is left out, by [Options.Exclude],
	// [Options.SkipHidden], [Options.IgnoreFiles], [Options.GitIgnore],
	// [Options.SkipMarked] or [Options.SelectDir], the path is skipped for that
	// reason, which is no failure, and a link is skipped as in a listing. A path with a
	// slash at its end counts as a directory, so only for SelectDir and SkipMarked: see
	// [Report]. For each
	// batch, ignore files and SkipMarked's names are looked up, and SelectDir is
	// called, anew. [Options.MaxDepth], [Options.OneFilesystem] and [SymlinksFollow]
	// are about listings and cannot be combined with Files. Root must be a directory.
	// [Walk] yields the paths that lead to files, and of directories what it always
	// does.
	//
	// With [Options.FS], the directories of the paths are not opened unless a path
	// in them fails, and neither is root if it is ".": in an object store, that would
	// list them.
	//
	// The sequence is pulled once in each run, on one goroutine, which calls no fn
	// until the sequence has returned. For Process and [ForEach] that is the calling
	// one. The sequence may wait: what it has yielded until then is processed and
	// delivered. When the run is stopped, yield returns false. A panic in the sequence
	// is handled as one in fn. A run returns only when the sequence has returned.
	// So after a cancel no call of fn begins, but a sequence that may wait for long
	// must itself end when ctx does.
	Files iter.Seq[string]

	// FS, if not nil, is read in place of the operating system's files. Root is
	// then a path within it, as in [fs.ValidPath]. A file of type fs.ModeIrregular,
	// as object stores have, counts as regular. A listed name that is empty, "."
	// or "..", or that has a slash or a NUL byte, is a failure with fs.ErrInvalid.
	FS fs.FS

	hooks hooks // of other packages of this module

	// openRoot replaces the backend in tests.
	openRoot func(root string) (directory, error)
}

type hooks = plumbing.Hooks[*File]

func init() {
	plumbing.Provide(plumbing.API[Options, *File, Stat]{
		Hooks:        func(o *Options) *hooks { return &o.hooks },
		SetUnchanged: func(f *File) { f.unchanged = true },
		Dir:          func(f *File) any { return f.node },
		Restat:       (*File).restat,
		IsOfRule:     isOfRule,
	})
}

// config returns what a run needs of o, or one error that lists all mistakes.
func (o *Options) config(root string, noFn bool) (config, error) {
	err := o.validate(root)
	if noFn {
		err = errors.Join(err, errors.New("fileproc: fn is nil"))
	}
	if err != nil {
		return config{}, err
	}
	c := config{
		root: root, fsys: o.FS, files: o.Files, maxDepth: o.MaxDepth,
		suffixes: o.Suffixes, include: o.Include, exclude: o.Exclude, skipMarked: o.SkipMarked, gitIgnore: o.GitIgnore, gitFS: o.FS, gitRoot: o.hooks.GitRoot,
		ignoreByName: o.hooks.IgnoreByName, ignoreLists: o.hooks.Ignore, ignoreAbove: o.hooks.IgnoreAbove,
		skipHidden: o.SkipHidden, skipBinary: o.SkipBinary, oneFilesystem: o.OneFilesystem,
		shard: o.Shard, shards: o.Shards, ignoreCase: o.IgnoreCase,
		followFiles: o.Symlinks != SymlinksSkip, followDirs: o.Symlinks == SymlinksFollow, followOutside: o.SymlinksOutside,
		noRead: o.ReadSize == NoRead, readLimit: o.MaxFileSize, skipLarger: o.SkipLarger, stat: o.Stat, statFirst: o.hooks.Unchanged != nil, noURing: o.DisableURing, download: o.Download,
		workers: o.Workers, mayGrow: o.FS == nil || o.Workers == 0,
	}
	if c.noRead && (c.files != nil || c.statFirst || c.skipLarger > 0) {
		c.stat = true // nothing else shows what a path leads to, or the size; or it is fetched anyway
	}
	if c.gitRoot != "" {
		c.gitFS = o.hooks.GitFS
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

// callbacks returns the caller's functions, without fn.
func (o *Options) callbacks() callbacks {
	c := callbacks{onError: o.OnError, openRoot: o.openRoot}
	// A closure keeps what it uses and not o, which then need not be allocated.
	if call := o.Select; call != nil {
		c.selectFile = func(f *currentFile) bool {
			selects := call((*File)(f))
			f.w.endReading()
			return selects
		}
	}
	if call := o.hooks.Unchanged; call != nil {
		c.unchanged = func(f *currentFile) bool { return call((*File)(f)) }
	}
	if call := o.hooks.OnBinary; call != nil {
		c.onBinary = func(f *currentFile) { call((*File)(f)) }
	}
	c.onDir, c.onRule = o.hooks.OnDir, o.hooks.OnRule
	if call := o.SelectDir; call != nil {
		c.selectDir = func(w *worker, parent *node, name string) bool {
			return call(Entry{paths: w.paths, node: parent, name: name, typ: fs.ModeDir})
		}
	}
	if call := o.OnSkip; call != nil {
		c.onSkip = func(w *worker, n *node, name string, typ fs.FileMode, why SkipReason) {
			call(Entry{paths: w.paths, node: n, name: name, typ: typ}, why)
		}
	}
	if call := o.OnProgress; call != nil {
		c.onProgress = func(c counts, elapsed time.Duration) { call(newReport(c, elapsed)) }
	}
	if report := o.Report; report != nil {
		c.onReport = func(c counts, elapsed time.Duration) { *report = newReport(c, elapsed) }
	}
	return c
}

// validate returns one error that lists all that is wrong with o and root.
func (o *Options) validate(root string) error {
	var wrong []error
	bad := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("fileproc: "+format, args...))
	}
	switch {
	case root == "":
		bad("root is empty")
	case strings.IndexByte(root, 0) >= 0:
		bad("root %q contains a NUL byte", root)
	case o.FS != nil && !fs.ValidPath(root):
		bad("root %q is not a valid path within Options.FS (see fs.ValidPath)", root)
	}
	if o.MaxDepth < 0 {
		bad("Options.MaxDepth is %d: want a depth from 1, or 0 for no limit", o.MaxDepth)
	}
	for name, isSet := range o.aboutListings() {
		if isSet && o.Files != nil {
			bad("Options.%s is about listings and cannot be combined with Options.Files", name)
		}
	}
	if o.ReadSize < NoRead {
		bad("Options.ReadSize is %d: want a size in bytes, 0 for whole files, or NoRead", o.ReadSize)
	}
	if o.MaxFileSize < NoLimit {
		bad("Options.MaxFileSize is %d: want a size in bytes, 0 for the default, or NoLimit", o.MaxFileSize)
	}
	if o.SkipLarger < 0 {
		bad("Options.SkipLarger is %d: want a size in bytes, or 0 to skip none", o.SkipLarger)
	}
	if o.SkipBinary && o.ReadSize == NoRead {
		bad("Options.SkipBinary cannot be combined with ReadSize NoRead, which reads no content")
	}
	switch {
	case o.Symlinks < SymlinksSkip || o.Symlinks > SymlinksFollow:
		bad("Options.Symlinks is %v: want SymlinksSkip, SymlinksFiles or SymlinksFollow", o.Symlinks)
	case o.Symlinks != SymlinksSkip && o.FS != nil:
		bad("Options.Symlinks is %v: want SymlinksSkip with Options.FS, which does not report where a link leads", o.Symlinks)
	case o.SymlinksOutside && o.Symlinks == SymlinksSkip:
		bad("Options.SymlinksOutside has no effect while Options.Symlinks skips links: want files or follow")
	}
	if o.OneFilesystem && o.FS != nil {
		bad("Options.OneFilesystem cannot be combined with Options.FS, which reports no devices")
	}
	switch {
	case o.Shards < 0:
		bad("Options.Shards is %d: want a number of parts, or 0 for no division", o.Shards)
	case o.Shard < 0 || o.Shard >= max(o.Shards, 1):
		bad("Options.Shard is %d: want 0 to %d, one less than Shards", o.Shard, max(o.Shards, 1)-1)
	}
	for _, f := range o.IgnoreFiles {
		if f == "" || f == "." || f == ".." || strings.IndexByte(f, 0) >= 0 {
			bad("Options.IgnoreFiles has %q: want the name or the path of a file", f)
		}
		if n, _ := levelsUp(f); o.FS != nil && n > depthOf(root) {
			bad("Options.IgnoreFiles has %q, which is above Options.FS: want a path within it", f)
		}
	}
	for _, s := range o.Suffixes {
		if strings.HasPrefix(s, "*") || strings.ContainsAny(s, "/\x00") {
			name := strings.Trim(s[strings.LastIndexByte(s, '/')+1:], "*\x00")
			bad("Options.Suffixes has %q: want the end of a name, such as %q, or a pattern in Options.Include", s, cmp.Or(name, ".md"))
		}
	}
	for _, m := range o.SkipMarked {
		if !names.Valid([]byte(m)) || strings.IndexByte(m, 0) >= 0 {
			bad("Options.SkipMarked has %q: want the name of a file, without a slash", m)
		}
	}
	for _, p := range o.Include {
		if why := pattern.Invalid(p); why != "" {
			bad("Options.Include has the pattern %q, which %s", p, why)
		}
	}
	for _, p := range o.Exclude {
		if why := pattern.Invalid(p); why != "" {
			bad("Options.Exclude has the pattern %q, which %s", p, why)
		}
	}
	if o.Workers < 0 {
		bad("Options.Workers is %d: want a number of workers, or 0 for GOMAXPROCS", o.Workers)
	}
	if o.Workers > workersLimit {
		bad("Options.Workers is %d: want at most %d", o.Workers, workersLimit)
	}
	return errors.Join(wrong...)
}

// aboutListings yields the options that have no meaning for Files, and whether
// each is set.
func (o *Options) aboutListings() iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		_ = yield("MaxDepth", o.MaxDepth != 0) && yield("OneFilesystem", o.OneFilesystem) && yield("Symlinks", o.Symlinks == SymlinksFollow)
	}
}

// validateStream reports options that Stream and Walk do not support.
func (o *Options) validateStream() error {
	if o.Ordered && o.Symlinks == SymlinksFollow {
		return errors.New("fileproc: Options.Ordered cannot be combined with SymlinksFollow in Stream and Walk: the targets of links are visited last")
	}
	return nil
}
