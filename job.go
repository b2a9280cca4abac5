package fileproc

import (
	"io/fs"
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/names"
)

// A job is something to be listed: a directory, links, or names that Options.Files gives.
// A worker lists one part of it at a time, and other workers may list the next part.
//
// A job holds what it needs, and gives each up once, with the methods of this file:
//
//   - a reference to its node's parent, until the node has been opened, if that is by its
//     name in the parent,
//   - a reference to its node, until the job is over,
//   - a pin on its node, while the job is being listed.
type job struct {
	node        *node // what the entries are entries of
	source      source
	span        *span        // ordered: the job's own
	buffer      *entryBuffer // nil unless entries are buffered until all are listed
	phase       jobPhase
	flat        bool // subdirectories are left out
	needsParent bool // holds the reference to the parent
	pinned      bool
}

// A jobPhase says how far the listing of a job has come.
type jobPhase uint8

const (
	jobNew         jobPhase = iota
	jobListing              // open, pinned and partly listed
	jobBuffered             // all is in buffer; the ignore files in it are to be read
	jobClassifying          // open and pinned again, after jobBuffered
)

// A source says where the entries of a job come from. These are the methods that the
// queues use; scan.go has those that workers use.
type source interface {
	// isReady reports whether the job can be begun now.
	isReady() bool
	// taken is called when the job is taken from its queue.
	taken(j *job)
	// end is called when the job has ended.
	end()
}

// alwaysReady has the methods of a source that is known whole when its job is made.
type alwaysReady struct{}

func (alwaysReady) isReady() bool { return true }
func (alwaysReady) taken(*job)    {}
func (alwaysReady) end()          {}

// A foundDir is the source of a directory that a listing has found, and of root. Other
// sources of directories embed it. Its other methods are in scan.go.
type foundDir struct {
	alwaysReady
	parts *parts // unless nil, the job lists one of them
}

// parts are jobs that list a directory together.
type parts struct {
	of     *node
	left   atomic.Int32 // those that have not come to their ends
	failed atomic.Bool
}

// end says that a part has ended, and reports whether the whole directory has. P may be nil: the
// directory has one part.
func (p *parts) end() bool { return p == nil || p.left.Add(-1) == 0 }

// fail says that a part has failed, and reports whether it is the first.
func (p *parts) fail() bool { return p == nil || !p.failed.Swap(true) }

// newJob returns a job for a copy of n, in one allocation.
func newJob(n node, s source) *job {
	j := &struct {
		job
		own node
	}{job{source: s}, n}
	j.node = &j.own
	return &j.job
}

// opened says that the node has been opened and pinned, if ok, or cannot be opened. In
// both cases its parent is needed no more.
func (j *job) opened(c *dirCache, ok bool) {
	j.pinned = j.pinned || ok
	if j.needsParent {
		j.needsParent = false
		c.release(j.node.parent, 0, 1)
	}
}

// pause gives up the pin. The node may be closed until the job goes on.
func (j *job) pause(c *dirCache) {
	j.pinned = false
	c.release(j.node, 1, 0)
}

// end ends the job, and gives up all that it holds.
func (j *job) end(c *dirCache) {
	j.source.end()
	j.opened(c, false)
	pins := 0
	if j.pinned {
		j.pinned, pins = false, 1
	}
	c.release(j.node, pins, 1)
}

// An entryBuffer has what the listing of one directory has given so far.
type entryBuffer struct {
	entries []bufferedEntry
	ignore  []string // names of ignore files
	git     bool     // .git is among them, and Options.GitIgnore set
	marked  bool     // a file of Options.SkipMarked is among them
}

type bufferedEntry struct {
	name  names.Name
	typ   fs.FileMode
	inode uint64
}

// A scanResult is what a scan of a job has found.
type scanResult struct {
	batch *batch  // files; nil if there were none
	subs  []*job  // directories to be listed, and links to be resolved
	part  *job    // unless nil, lists a part of what the job has listed so far
	spans []*span // ordered: all that the job has found, when it is over
	state scanState
}

type scanState uint8

const (
	scanDone  scanState = iota // nothing is left to list
	scanMore                   // the listing goes on
	scanAgain                  // the job goes back to the queue, and holds no descriptor meanwhile
)
