package fileproc

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/pattern"
	"github.com/fileproc/fileproc/internal/plumbing"
)

// NoRead, as the value of [Options.ReadSize], means that no file is opened: fn gets
// their names, and on request their metadata.
const NoRead = -1

// NoLimit, as the value of [Options.MaxFileSize], means that files of every size are
// read whole.
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

// Options select which files are processed and how. The zero value processes every regular
// file below root, whole, on GOMAXPROCS workers. A run reads its Options once, when it
// begins. The slices must not be changed during the run.
type Options struct {
	// # Which files
	//
	// Suffixes, if not empty, keeps only files whose name ends with one of them, byte by byte
	// unless IgnoreCase is set. A suffix that begins with * or has a slash is an error:
	// patterns and paths are for Include.
	Suffixes []string

	// Include, if not empty, keeps only files whose path matches one of its patterns. Exclude
	// leaves out files and directories whose path matches one. A directory is not opened if
	// excluded, or if no path in it can match Include.
	//
	// A pattern matches the whole slash-separated path relative to root: "*.md" matches in
	// root alone, "**/*.md" everywhere, "**/testdata" each directory of that name. *, ?, [a-z]
	// and [!a-z] match no slash, {a,b/c} either alternative, and ** as a whole element any
	// number of directories; see github.com/bmatcuk/doublestar.
	Include, Exclude []string

	// IgnoreCase lets Suffixes, Include and Exclude match without regard to case, by simple
	// Unicode folding as strings.EqualFold does. Ignore files, SkipMarked and GitIgnore always
	// distinguish case.
	IgnoreCase bool

	// IgnoreFiles lists ignore files, such as ".gitignore" and ".ignore". The run skips what
	// their patterns ignore, exactly as git would, and does not open an ignored directory.
	//
	// An element without a slash names regular files in any directory, which apply there and
	// below. One that cannot be read is a failure of its own. Entries are kept in memory until
	// their directory's listing ends.
	//
	// An element with a slash, such as ".git/info/exclude", is the path of one file for all of
	// root. The path is absolute or relative to root, and need not exist. Its patterns are
	// relative to root or, if the path begins with one "../" or several, to the directory to
	// which these lead: two levels up for "../../rules".
	//
	// A directory's files take precedence over those of its parents, and all of these over
	// files named by path. Among equals, later elements take precedence.
	IgnoreFiles []string

	// GitIgnore skips what git would leave out of a repository's work tree: .git, and what
	// .gitignore files, info/exclude and the user's ignore file (core.excludesFile) ignore. It
	// keeps files that git tracks, whatever the rules say: when a rule has ignored something,
	// the run reads git's index. Outside a repository it skips nothing. It does not run git.
	//
	// If root is in a repository, the rules above root apply too, but cannot ignore root
	// itself. In a repository below root, such as a submodule, only its own rules apply. A
	// file of IgnoreFiles takes precedence over a .gitignore beside it.
	//
	// What cannot be read of the rules, the index, git's configuration or .git is a failure of
	// its own, and the other rules apply. With FS, repositories are those in FS, and git's
	// configuration is not used.
	GitIgnore bool

	// GitTracked keeps only the files that git's index lists and the work tree still has. A
	// directory with no such file is not opened, and a [Report] counts neither it nor what is
	// not tracked. Files of submodules, which have indexes of their own, are left out.
	// GitTracked replaces GitIgnore; other ignore files apply. Without a repository or a
	// readable index, the run fails. With FS, the repository is in FS.
	GitTracked bool

	// SkipHidden skips files and directories whose name begins with a dot.
	SkipHidden bool

	// SkipLarger, if positive, skips files of more than that many bytes, before MaxFileSize
	// and SkipBinary apply. Only with [NoRead] and in [Walk] does it cost a system call for
	// each file.
	SkipLarger int64

	// SkipBinary skips files with a NUL byte in their first 8 KiB. It reads these 8 KiB even
	// if [Options.ReadSize] is lower, and cannot be combined with [NoRead].
	SkipBinary bool

	// MaxDepth limits how deep the run descends: 1 means root's own files, 2 also those of its
	// subdirectories, and so on. Zero means no limit.
	MaxDepth int

	// Select, if not nil, is called before a file is opened, and skips the file by returning
	// false. It may call [File.Stat] to select by size or age. It is called on the workers,
	// several calls at a time.
	Select func(*File) bool

	// SelectDir, if not nil, is called as Select is, before a directory below root is opened.
	// If it returns false, the run leaves out the directory with all its contents, and counts
	// one skipped entry (SkippedSelectDir). Its [Entry] has no metadata.
	//
	// [Walk] yields a directory after SelectDir has returned true, and also asks about
	// directories that MaxDepth leaves closed. SelectDir judges one path: a link may still
	// lead to a directory that it has refused under another path. Of several links to one
	// directory, it gets only the first.
	SelectDir func(Entry) bool

	// SkipMarked lists names of files that mark a directory, such as CACHEDIR.TAG or
	// .nobackup. If a directory, root included, has a regular file of such a name, the run
	// leaves out the directory with all its contents, and counts one skipped entry
	// (SkippedMarked). A CACHEDIR.TAG counts only if it begins with the signature of the Cache
	// Directory Tagging Specification. With "*/" in front of a name, as in "*/go.mod", the
	// file does not mark root. [Walk] yields a directory before its listing shows the file.
	// Entries are kept in memory until their directory's listing ends.
	SkipMarked []string

	// OneFilesystem keeps the run from entering directories on another device than root's.
	// Without device numbers (on Windows), all directories count as being on one device.
	OneFilesystem bool

	// AllTypes passes every entry to fn, and [Walk] yields it: root, whose Rel is empty, each
	// directory before its contents, symbolic links, FIFOs, sockets and devices. [File.Type]
	// says which it is, and [File.ReadLink] returns the text of a link. Options about content
	// or size apply to regular files alone. A directory that cannot be opened is an entry and
	// a failure.
	//
	// Filters for files also apply to links and special files, and Shard to directories, too.
	// AllTypes cannot be combined with Files, with Symlinks, or with package incremental.
	AllTypes bool

	// # Symbolic links
	//
	// Symlinks selects what happens to symbolic links below root. A link's target is processed
	// under the link's path, and the filters apply to that path. Exclude and SkipHidden also
	// apply to the target's own path in root. A link that leads nowhere, or to itself, is
	// skipped. A chain of more than 255 links is a failure.
	Symlinks Symlinks

	// SymlinksOutside allows links that lead out of root.
	SymlinksOutside bool

	// # What is read of each file
	//
	// ReadSize, if positive, limits reads, and so [File.Data], to the first ReadSize bytes of
	// each file. [File.Reader] reads what follows them. Zero means whole files. [NoRead] opens
	// no file and leaves File.Data nil.
	ReadSize int

	// MaxFileSize is the size in bytes above which reading a whole file fails with
	// [ErrTooLarge], before memory is allocated. Zero means 256 MiB, and [NoLimit] no limit.
	// It does not apply to reads that [Options.ReadSize] limits.
	MaxFileSize int64

	// Download also reads files that are stored remotely, which downloads them: those that the
	// driver of a cloud storage on Windows marks with FILE_ATTRIBUTE_RECALL_ON_DATA_ACCESS.
	// Without Download, the run skips them.
	Download bool

	// Stat fetches each file's metadata with the handle that reads it, for [File.Stat] and
	// [Entry.Stat]. [Walk] and [NoRead] make one system call per file, or use the listing on
	// Windows and Plan 9. A listing on Windows may show metadata from before the last change
	// of a file that is being written or has several names.
	Stat bool

	// Durable lets what [File.Replace] has written survive a loss of power: it is on the disk
	// when the run returns. On ext4, xfs and btrfs (Linux 5.8), each worker syncs up to 1,000
	// files together. Replace then returns nil before its file has the new content; fn's
	// result is delivered once the disk has it. If that fails, so does the file, with
	// Replace's error. A cancelled run abandons files that still wait. Elsewhere, in a
	// [Stream], with package incremental, through links, and until the sequence of Files has
	// ended, Replace syncs its file and the directory, which takes far longer. If Files or
	// Roots give a file twice, the second Replace may fail with ErrChanged. FS cannot be
	// durable.
	Durable bool

	// # Results, failures and progress
	//
	// Ordered gives results in the order of their paths, compared name by name and byte by
	// byte (see [ComparePaths]). [Process] sorts the results at the end. [Stream] and [Walk]
	// hold back a bounded number of results, and keep the names of each directory being
	// listed. They yield a file's failure in the file's place, and that of a listing before
	// the directory's contents. Only Process supports Ordered with [SymlinksFollow].
	Ordered bool

	// OnError, if not nil, is called with each failure, also one of root, as a [*Failure]. If
	// it returns nil, the run goes on and reports the failure nowhere else. If it returns an
	// error, the run stops and returns that error. Without OnError, [Process] returns the
	// failures at its end, and [Stream] and [Walk] yield them as they occur.
	//
	// The calls come one at a time, on the worker that met the failure, while others run fn.
	// The goroutine that calls Process is a worker; the one that loops over Stream or Walk is
	// not. There is no call if the run does not start: for invalid options, or an unreadable
	// file that IgnoreFiles names by its path.
	OnError func(error) error

	// OnSkip, if not nil, is called with each entry that Report counts as skipped, and the
	// reason, but not with what is below a directory that is left out. If SkipMarked leaves
	// out root, its Entry has an empty Rel. The calls come on the workers, and no call of
	// OnSkip or OnError overlaps another.
	OnSkip func(Entry, SkipReason)

	// Report, if not nil, is filled in before the run returns, whatever its error. Only
	// invalid options leave it unchanged.
	Report *Report

	// OnProgress, if not nil, is called about ten times a second with the current Report, and
	// once with the final one before the run returns. No number decreases between calls.
	// Abandoned is zero before the last call. Bytes has what [File.Reader] gives as soon as it
	// is read.
	//
	// The calls come one at a time, on a goroutine of their own, while workers run fn and
	// OnError, never on the one that loops over [Stream] or [Walk]. The last one comes after
	// all calls of fn, on the goroutine that called [Process].
	OnProgress func(Report)

	// # Workers and machines
	//
	// Workers is how many calls of fn, Select and SelectDir may run at the same time. Zero
	// means GOMAXPROCS.
	//
	// Where opens and reads wait for a disk, a network or a FUSE server, the run opens and
	// reads up to 64 files at a time, which then wait for their calls of fn. With FS, it does
	// so only if Workers is zero; otherwise at most Workers goroutines call FS.
	Workers int

	// Shard and Shards divide a job among processes or machines: of Shards parts, numbered
	// from 0, the run processes the files of part Shard. A file's part depends only on its
	// path relative to root. The run of each part lists all directories. If Shards is zero,
	// the job is not divided.
	Shard, Shards int

	// DisableURing keeps the run from using io_uring on Linux even where it works. The build
	// tag fileproc_nouring leaves io_uring out of the program.
	DisableURing bool

	// # In place of root, a listing or the operating system
	//
	// Roots, if not empty, such as [flag.Args], are processed in one run in place of root. The
	// other options apply to each as to root. [File.Root] says which of them led to a file.
	// One that is given twice is processed twice. One that fails does not end the run, nor
	// does an unreadable file that IgnoreFiles names by its path. With Ordered, results come
	// in the order of Roots. Roots cannot be combined with Files, whose paths are relative to
	// one root. A root may itself be a file.
	Roots []string

	// Files, if not nil, gives the paths of the files to process, relative to root and with
	// slashes. They may begin with "./", as find prints them, and may be absolute if root has
	// no "..". Root is then not listed. A path with a slash at its end stands for all files
	// below that directory, and one with "/." for the directory's own files. A file that is
	// given twice, or also in a directory given, is delivered twice.
	//
	// A path that does not lead to a regular file is a failure of its own: fs.ErrNotExist if
	// nothing is there, and fs.ErrInvalid if
	//   - the path is empty, leads out of root, is above 65,536 bytes or 4,096 elements, or
	//     has a NUL byte;
	//   - an element is empty, "." or "..", except as above;
	//   - it names a directory without a slash at its end, a symbolic link (without
	//     [SymlinksFiles]) or another file that is not regular;
	//   - a directory in it is a link, unless FS follows links.
	//
	// Root and the directories of the paths need not be readable if they can be searched, as a
	// /home of mode 711 (Linux, macOS, FreeBSD, Solaris and AIX; not with the generic
	// backend).
	//
	// The run groups the paths by directory, in batches of up to some 4 MiB. With Ordered,
	// [Stream] and [Walk] yield results in the order of the paths given, files below a
	// directory in path order. [Process] sorts all by path.
	//
	// The options apply to a path, and to each directory in it, as if they had been listed.
	// What leaves out a directory, such as Exclude or GitIgnore, skips the path, which is no
	// failure. With [SymlinksFiles], links are skipped as in a listing. A path with a slash at
	// its end counts as skipped only if SelectDir or SkipMarked leaves it out. The run looks
	// up ignore files and SkipMarked's names, and calls SelectDir, anew for each batch.
	// MaxDepth, OneFilesystem and [SymlinksFollow] cannot be combined with Files. Root must be
	// a directory. Walk yields the paths that lead to files, and what is below a directory
	// given.
	//
	// With FS, the run opens a directory of the paths only if a path in it fails, and root
	// only if it is not ".": an object store would list them.
	//
	// A run pulls the sequence once, on one goroutine (the calling one for Process and
	// [ForEach]), which calls no fn until the sequence has returned. While the sequence waits,
	// the run delivers what has been yielded. When the run is stopped, yield returns false. A
	// panic in the sequence is handled as one in fn. A run returns only when the sequence has:
	// one that may wait for long must end when ctx does.
	Files iter.Seq[string]

	// FS, if not nil, is read in place of the operating system's files. Root is then a path
	// within it, as in [fs.ValidPath]. A file of type fs.ModeIrregular, as object stores have,
	// counts as regular. A listed name that is empty, "." or "..", or has a slash or a NUL
	// byte, is a failure (fs.ErrInvalid). A directory is opened and listed as an
	// [fs.ReadDirFile]; a file is opened and read. Metadata comes from the open file, or from
	// FS if it is an [fs.StatFS] or [fs.ReadLinkFS].
	FS fs.FS

	hooks hooks // of other packages of this module

	// openRoot replaces the backend in tests.
	openRoot func(root string) (backend.Directory, error)
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
		root: root, roots: o.Roots, fsys: o.FS, files: o.Files, maxDepth: o.MaxDepth,
		suffixes: o.Suffixes, include: o.Include, exclude: o.Exclude, gitIgnore: o.GitIgnore && !o.GitTracked, gitTracked: o.GitTracked, namesFromIndex: o.takesNamesFromIndex(), gitFS: o.FS, gitRoot: o.hooks.GitRoot,
		ignoreByName: o.hooks.IgnoreByName, ignoreLists: o.hooks.Ignore, ignoreAbove: o.hooks.IgnoreAbove,
		skipHidden: o.SkipHidden, skipBinary: o.SkipBinary, oneFilesystem: o.OneFilesystem,
		shard: o.Shard, shards: o.Shards, ignoreCase: o.IgnoreCase,
		followFiles: o.Symlinks != SymlinksSkip, followDirs: o.Symlinks == SymlinksFollow, followOutside: o.SymlinksOutside,
		noRead: o.ReadSize == NoRead, readLimit: cmp.Or(o.MaxFileSize, defaultMaxFileSize), skipLarger: o.SkipLarger, stat: o.Stat, allTypes: o.AllTypes, statFirst: o.hooks.Unchanged != nil, noURing: o.DisableURing, durable: o.Durable, onReplace: o.hooks.OnReplace, download: o.Download,
		workers: cmp.Or(o.Workers, runtime.GOMAXPROCS(0)), mayGrow: o.FS == nil || o.Workers == 0,
	}
	if c.noRead && (c.files != nil || c.statFirst || c.skipLarger > 0) {
		c.stat = true // only metadata show what a path leads to, or the size; for statFirst they are fetched anyway
	}
	if c.gitRoot != "" {
		c.gitFS = o.hooks.GitFS
	}
	if len(c.roots) == 1 {
		c.root, c.roots = c.roots[0], nil
	}
	c.ignoreNames, c.ignorePaths = names.SplitPaths(o.IgnoreFiles)
	for _, m := range o.SkipMarked {
		name, belowRoot := names.Mark(m)
		if c.skipMarked = append(c.skipMarked, name); !belowRoot {
			c.skipRootMarked = append(c.skipRootMarked, name)
		}
	}
	if o.ReadSize > 0 {
		c.readLimit, c.truncate = int64(o.ReadSize), true
	}
	return c, nil
}

// takesNamesFromIndex returns config.namesFromIndex.
func (o *Options) takesNamesFromIndex() bool {
	return o.GitTracked && o.ReadSize != NoRead && o.FS == nil && o.Symlinks == SymlinksSkip && !o.AllTypes && o.hooks.Unchanged == nil &&
		o.Select == nil && len(o.IgnoreFiles)+len(o.SkipMarked) == 0
}

// callbacks returns the caller's functions, without fn.
func (o *Options) callbacks() callbacks {
	c := callbacks{
		onError: o.OnError, openRoot: o.openRoot, selectFile: o.Select,
		unchanged: o.hooks.Unchanged, onBinary: o.hooks.OnBinary, onDir: o.hooks.OnDir, onRule: o.hooks.OnRule,
	}
	// Each closure captures the function that it calls, and not o: so o need not be allocated.
	if call := o.SelectDir; call != nil {
		c.selectDir = func(w *worker, parent *node, name string) bool {
			return call(Entry{node: parent, name: name, typ: fs.ModeDir})
		}
	}
	if call := o.OnSkip; call != nil {
		c.onSkip = func(w *worker, n *node, name string, typ fs.FileMode, why SkipReason) {
			call(Entry{node: n, name: name, typ: typ}, why)
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
	roots := o.Roots
	if len(roots) == 0 {
		roots = []string{root}
	}
	for _, root := range roots {
		switch {
		case root == "":
			bad("root is empty")
		case strings.IndexByte(root, 0) >= 0:
			bad("root %q contains a NUL byte", root)
		case o.FS != nil && !fs.ValidPath(root):
			bad("root %q is not a valid path within Options.FS (see fs.ValidPath)", root)
		}
	}
	if len(o.Roots) > 0 && o.Files != nil {
		bad("Options.Roots cannot be combined with Options.Files, whose paths are relative to one root")
	}
	if o.MaxDepth < 0 {
		bad("Options.MaxDepth is %d: want a depth from 1, or 0 for no limit", o.MaxDepth)
	}
	aboutListings := func(name string, isSet bool) {
		if isSet && o.Files != nil {
			bad("Options.%s is about listings and cannot be combined with Options.Files", name)
		}
	}
	aboutListings("MaxDepth", o.MaxDepth != 0)
	aboutListings("AllTypes", o.AllTypes)
	aboutListings("OneFilesystem", o.OneFilesystem)
	aboutListings("Symlinks", o.Symlinks == SymlinksFollow)
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
	if o.AllTypes && o.Symlinks != SymlinksSkip {
		bad("Options.AllTypes is for links themselves, and cannot be combined with Options.Symlinks, which follows them")
	}
	if o.AllTypes && o.hooks.Unchanged != nil {
		bad("Options.AllTypes cannot be combined with package incremental, which knows regular files alone")
	}
	if o.Durable && o.FS != nil {
		bad("Options.Durable cannot be combined with Options.FS, which does not report what is on a disk")
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
		if n, _ := names.LevelsUp(f); o.FS != nil && slices.ContainsFunc(roots, func(root string) bool { return n > names.Depth(root) }) {
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
		if name, _ := names.Mark(m); !names.Valid([]byte(name)) || strings.IndexByte(name, 0) >= 0 {
			bad("Options.SkipMarked has %q: want the name of a file, without a slash, or \"*/\" and a name", m)
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

// validateStream reports options that Stream and Walk do not support.
func (o *Options) validateStream() error {
	if o.Ordered && o.Symlinks == SymlinksFollow {
		return errors.New("fileproc: Options.Ordered cannot be combined with SymlinksFollow in Stream and Walk: the targets of links are visited last")
	}
	return nil
}
