package backend

import (
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
}

const (
	mostInGroup  = 1000
	bytesInGroup = 64 << 20
	mostGroups   = 4 // of a worker: each holds a descriptor
)

// Groups are those of one worker.
type Groups[F any] []*Group[F]

// For returns the Group for files in d. It returns nil if a group cannot be made durable there.
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
	if len(*gs) == mostGroups {
		return nil
	}
	s, err := r.OpenSync()
	if err != nil {
		return nil
	}
	g := &Group[F]{Syncer: s, device: device}
	*gs = append(*gs, g)
	return g
}

func (gs Groups[F]) Close() {
	for _, g := range gs {
		g.Syncer.Close()
	}
}

// Add adds a file with so many bytes, and reports whether the group is full.
func (g *Group[F]) Add(f F, bytes int) bool {
	g.Files = append(g.Files, f)
	g.bytes += bytes
	return len(g.Files) >= mostInGroup || g.bytes >= bytesInGroup
}

// Take empties the group, and returns the files that were in it.
func (g *Group[F]) Take() []F {
	files := g.Files
	g.Files, g.bytes = nil, 0
	return files
}

// MakeDurable makes the content of n files durable, commits them, and makes their names
// durable. It returns the error of each file. If failed is not nil, it is the error of all.
func MakeDurable(s Syncer, n int, commit func(i int, failed error) error, failed error) []error {
	errs := make([]error, n)
	if failed == nil {
		failed = s.Sync()
	}
	for i := range errs {
		errs[i] = commit(i, failed)
	}
	if failed == nil {
		failed = s.Sync()
	}
	for i := range errs {
		if errs[i] == nil {
			errs[i] = failed
		}
	}
	return errs
}
