package fileproc

import (
	"bytes"
	"io/fs"
	"iter"
	"math"
	"slices"
	"sync"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/names"
)

const (
	// workersLimit rejects a mistaken number (a size, a time), for which a run would
	// allocate the tables of a million goroutines.
	workersLimit = 1 << 16
	// maxInFlight bounds the workers while calls block. More would gain nothing
	// on a disk, and little on a network.
	maxInFlight = 64
	// maxColdWorkers bounds the workers in the cold mode, each of which reads up to
	// content.WindowMax files together.
	maxColdWorkers = 8
)

// gitIgnoreFile is the name of git's ignore files.
const gitIgnoreFile = ".gitignore"

// A config is what a run uses of Options: validated, with the defaults resolved.
// It does not change.
type config struct {
	root  string
	roots []string // if there are several, in place of root
	fsys  fs.FS    // nil: the operating system's files

	files                      iter.Seq[string] // nil: all that listings give
	maxDepth                   int              // 0: no limit
	suffixes, include, exclude []string
	ignoreNames, ignorePaths   []string // Options.IgnoreFiles; later elements take precedence
	skipMarked, skipRootMarked []string // names of files that mark a directory below root, and root
	gitIgnore, gitTracked      bool     // one of them at most
	namesFromIndex             bool     // gitTracked: each file is opened anyway, and nothing needs to be known of it before
	gitFS                      fs.FS    // where repositories are, see plumbing.Hooks; nil: the operating system's
	gitRoot                    string   // root's path for git; "" if that is root itself
	ignoreByName               bool     // this and the two below: see plumbing.Hooks
	ignoreLists                []*gitignore.List
	ignoreAbove                func(root string) string
	skipHidden, skipBinary     bool
	ignoreCase                 bool // of suffixes, include and exclude
	oneFilesystem              bool
	shard, shards              int

	followFiles, followDirs, followOutside bool // symbolic links

	noRead     bool  // do not open files
	skipLarger int64 // skip larger files; 0: none
	readLimit  int64 // the most bytes to deliver of a file, or -1
	truncate   bool  // deliver the beginning of a longer file, in place of ErrTooLarge
	stat       bool
	allTypes   bool // also pass to fn what is no regular file
	statFirst  bool // fetch the metadata before the content, for hooks.Unchanged
	noURing    bool
	durable    bool
	onReplace  func(worker int, content []byte) // see plumbing.Hooks
	download   bool                             // also read files that are stored remotely

	workers int
	// mayGrow says that more files than workers may wait for an open or a read.
	mayGrow bool
}

// want returns what to read of each file.
func (c *config) want() content.Want {
	return content.Want{Limit: c.readLimit, Truncate: c.truncate, SkipLarger: c.skipLarger, Stat: c.stat || c.statFirst, SkipBinary: c.skipBinary, SkipRemote: !c.download}
}

// statsAhead reports whether to stat files in the order of the disk. For names that
// Options.Files gives, only their stat would show that order.
func (c *config) statsAhead() bool { return (c.statFirst || c.noRead && c.stat) && c.files == nil }

// opensDepth reports whether directories at this depth are opened.
func (c *config) opensDepth(depth int) bool { return c.maxDepth == 0 || depth < c.maxDepth }

// ignoreRank returns the rank of an ignore file. With Hooks.IgnoreByName it depends on
// the file's name; otherwise all files have the same.
func (c *config) ignoreRank(name string) int {
	if !c.ignoreByName {
		return 0
	}
	return 1 + slices.Index(c.ignoreNames, name)
}

// ignoredAbove returns the names of the ignore files, besides .gitignore, that apply from
// directories above root.
func (c *config) ignoredAbove() (names []string) {
	for _, name := range c.ignoreNames {
		if c.ignoreByName && name != gitIgnoreFile {
			names = append(names, name)
		}
	}
	return names
}

// canOpen reports whether a name from a listing can open nothing but the entry. Only an fs.FS
// can list a name with a NUL byte, at which a system call would end the name.
func (c *config) canOpen(name []byte) bool {
	if c.fsys != nil {
		return bytes.IndexByte(name, 0) < 0
	}
	return names.IsLocal(name)
}

// A budget says how many descriptors a run may take for each purpose.
type budget struct {
	open     int // directories that stay open while they are not in use
	listings int // directories that are partly listed, which keeps them in use
	inFlight int // workers while calls block
	window   int // files that a worker opens to read them together
}

// descriptorBudget returns how a run divides its descriptors. Below 64, Linux
// need not grow the process's table of descriptors; all threads wait while it
// grows. A walk seldom returns to more than a few dozen levels. Under a low limit,
// directories get a third of the limit. Files in flight, which take a descriptor
// or two each, get at most an eighth of it.
var descriptorBudget = sync.OnceValue(func() budget {
	b, most := fullBudget, descriptors.Limit()
	if most == math.MaxUint64 { // none, or unknown
		return b
	}
	if most < 3*uint64(fullBudget.open) {
		n := int(most) / 3
		b.open, b.listings = n/2, max(1, n/2)
	}
	b.inFlight = int(min(most/16, maxInFlight))
	b.window = int(min(most/2/maxColdWorkers, content.WindowMax))
	return b
})

var fullBudget = budget{32, 32, maxInFlight, content.WindowMax}
