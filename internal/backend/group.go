package backend

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
)

// A GroupReplacer is a directory in which the new content of many files can become durable
// together: to sync each would take many times as long as to write it.
type GroupReplacer interface {
	// OpenSync fails where Sync would not reach the disk.
	OpenSync() (Syncer, error)
	// Prepare writes content to a temporary file beside the file name.
	Prepare(name names.Name, content []byte, check replace.Check) (replace.Pending, error)
	// Commit gives the temporary file its name. If failed is not nil, it removes the
	// temporary file in place of that, and returns failed.
	Commit(p replace.Pending, failed error) error
}

// A Syncer makes all that a file system has durable.
type Syncer interface {
	Sync() error
	Close()
}

// A Group is files of one worker and one file system that become durable together.
type Group[F any] struct {
	Syncer
	Files  []F
	device uint64
	bytes  int
	since  time.Time // the first file came
	dirs   heldDirs
}

const (
	mostInGroup  = 1000
	bytesInGroup = 64 << 20
	mostGroups   = 4  // of a worker: each holds a descriptor
	mostDirs     = 64 // of a group
)

// heldDirs are directories with files of a group. They stay open until these files are committed: a directory that is renamed
// meanwhile could not be found again.
type heldDirs []*heldDir

type heldDir struct {
	Directory
	where any
	files int
}

// held is how many descriptors the groups of the process hold, for their file systems and directories: at most an eighth of all,
// and one more for each worker.
var held atomic.Int64

func holdsMost() bool { return uint64(held.Load()) >= descriptors.Limit()/8 }

func (h *heldDirs) isFull() bool { return len(*h) >= mostDirs || holdsMost() }

// hold returns d's entry, with one file more.
func (h *heldDirs) hold(d Directory, where any) (*heldDir, error) {
	i := slices.IndexFunc(*h, func(o *heldDir) bool { return o.where == where })
	if i < 0 {
		own, err := OpenDirToSearch(d, names.Dot)
		if err != nil {
			return nil, err
		}
		held.Add(1)
		i = len(*h)
		*h = append(*h, &heldDir{Directory: own, where: where})
	}
	(*h)[i].files++
	return (*h)[i], nil
}

// release takes one file away, and closes the directory if it was the last one.
func (h *heldDirs) release(o *heldDir) {
	if o.files--; o.files == 0 {
		o.Close()
		held.Add(-1)
		*h = slices.DeleteFunc(*h, func(p *heldDir) bool { return p == o })
	}
}

// A Waiting is a file of a group that has new content in its temporary file. It is committed once.
type Waiting struct {
	replace.Pending
	of  *heldDirs
	dir *heldDir
}

// Prepare is that of d, for a file of the group. Where says which directory d is.
func (g *Group[F]) Prepare(d Directory, where any, name names.Name, content []byte, check replace.Check) (w Waiting, err error) {
	w.of = &g.dirs
	if w.dir, err = w.of.hold(d, where); err != nil {
		return w, err
	}
	if w.Pending, err = d.(GroupReplacer).Prepare(name, content, check); err != nil {
		w.of.release(w.dir)
	}
	return w, err
}

// Commit is that of GroupReplacer.
func (w *Waiting) Commit(failed error) error {
	defer w.of.release(w.dir)
	return w.dir.Directory.(GroupReplacer).Commit(w.Pending, failed)
}

// Groups are those of one worker.
type Groups[F any] []*Group[F]

// For returns the Group for files in d. It returns nil if a group cannot be made durable there, or may hold no descriptor.
func (gs *Groups[F]) For(d Directory) *Group[F] {
	r, ok := d.(GroupReplacer)
	if !ok {
		return nil
	}
	id, err := d.Identity()
	if err != nil {
		return nil
	}
	device, _ := id.Inode()
	for _, g := range *gs {
		if g.device == device {
			return g
		}
	}
	if len(*gs) == mostGroups || holdsMost() {
		return nil
	}
	s, err := r.OpenSync()
	if err != nil {
		return nil
	}
	held.Add(1)
	g := &Group[F]{Syncer: s, device: device}
	*gs = append(*gs, g)
	return g
}

func (gs Groups[F]) Close() {
	for _, g := range gs {
		g.Syncer.Close()
		held.Add(-1)
	}
}

// Add adds a file with so many bytes, and reports whether the group is full. After a while it is: another run would remove the
// temporary files as leftovers.
func (g *Group[F]) Add(f F, bytes int) bool {
	if len(g.Files) == 0 {
		g.since = time.Now()
	}
	g.Files = append(g.Files, f)
	g.bytes += bytes
	return len(g.Files) >= mostInGroup || g.bytes >= bytesInGroup || g.dirs.isFull() || time.Since(g.since) >= replace.StaleAfter/4
}

// Take empties the group, and returns the files that were in it.
func (g *Group[F]) Take() []F {
	files := g.Files
	g.Files, g.bytes = nil, 0
	return files
}

// MakeDurable makes the content of n files durable, commits them, and makes their names
// durable. It returns the error of each file, with replace.IsDone if the file has its new
// content. If failed is not nil, it is the error of all.
func MakeDurable(s Syncer, n int, commit func(i int, failed error) error, failed error) []error {
	if n == 0 {
		return nil // to sync takes long
	}
	errs := make([]error, n)
	if failed == nil {
		failed = s.Sync()
	}
	for i := range errs {
		errs[i] = commit(i, failed)
	}
	if failed == nil {
		failed = replace.AsUnsynced(s.Sync())
	}
	for i := range errs {
		if errs[i] == nil {
			errs[i] = failed
		}
	}
	return errs
}
