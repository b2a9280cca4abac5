// Package events reports what may have changed below a directory. It hides how the
// systems differ. An event is a hint: the reader looks at the path that it names. No event
// is missing: if a source cannot name a path exactly, it names a directory above it, or root.
//
// On Linux inotify watches each directory. On Windows one handle watches all
// that is below root. On other systems, and on file systems that other machines or programs
// change without telling the kernel, there is no source: see ErrUnsupported.
package events

import (
	"errors"
	"path"
	"sync"
)

var (
	// ErrUnsupported is in the error of Open and Add where the system reports no changes, or
	// not all of them. The reader then has to poll.
	ErrUnsupported = errors.New("no events here")

	// ErrLimit is in the error of Add when the system allows no more watches.
	ErrLimit = errors.New("no more watches")
)

// A Hint names a file or directory that may have been made, written, replaced or removed.
type Hint struct {
	Rel  string // a path below root with slashes, "." for root
	Tree bool   // the hint is also about everything below Rel
}

// maxHints is the maximum number of hints that wait for Take. If there are more, one hint about root replaces them.
const maxHints = 1 << 18

// A pending gathers hints until they are taken.
type pending struct {
	ready chan struct{} // buffered: add does not wait

	mu    sync.Mutex
	hints map[string]bool // Tree by Rel
}

func newPending() *pending {
	return &pending{ready: make(chan struct{}, 1), hints: map[string]bool{}}
}

func (p *pending) add(rel string, tree bool) {
	p.mu.Lock()
	p.hints[rel] = p.hints[rel] || tree
	if len(p.hints) > maxHints {
		p.hints = map[string]bool{".": true}
	}
	p.mu.Unlock()
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// Ready returns a channel that has a value when Take may return hints.
func (s *Source) Ready() <-chan struct{} { return s.pending.ready }

// Take returns the hints since the last call, in no order. It returns each path once, and leaves
// out the paths below one with Tree.
func (s *Source) Take() []Hint {
	p := s.pending
	p.mu.Lock()
	taken := p.hints
	p.hints = map[string]bool{}
	p.mu.Unlock()
	var hints []Hint
	for rel, tree := range taken {
		if !isBelowTree(taken, rel) {
			hints = append(hints, Hint{rel, tree})
		}
	}
	return hints
}

// isBelowTree reports whether a directory above rel has a hint with Tree.
func isBelowTree(hints map[string]bool, rel string) bool {
	for rel != "." {
		if rel = path.Dir(rel); hints[rel] {
			return true
		}
	}
	return false
}

// join returns the path of the entry name of the directory dir.
func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}
