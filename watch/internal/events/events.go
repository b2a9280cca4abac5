// Package events says what may have changed below a directory: a seam for what the
// systems offer. An event is a hint, and the reader looks at what it names. No event
// is missing: what a source cannot name exactly, it names as a whole.
//
// On Linux each directory is watched by inotify. On Windows one handle watches all
// that is below root. Elsewhere, and on file systems that other machines or programs
// change without a word to the kernel, there is no source: see ErrUnsupported.
package events

import (
	"errors"
	"path"
	"sync"
)

var (
	// ErrUnsupported is in the error of Open and Add where there are no events, or not
	// of all changes: the reader has to look by itself now and then.
	ErrUnsupported = errors.New("no events here")

	// ErrLimit is in the error of Add when the system allows no more watches.
	ErrLimit = errors.New("no more watches")
)

// A Hint names what may have been made, written, replaced or removed.
type Hint struct {
	Rel  string // a path below root with slashes, "." for root
	Tree bool   // also anything below Rel
}

// maxHints bounds the hints that wait for Take. Beyond it they become one about root.
const maxHints = 1 << 18

// A pending gathers hints until they are taken.
type pending struct {
	ready chan struct{} // buffered: who adds does not wait

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

// Take returns the hints since the last call, in no order: each path once, and none
// that is below one with Tree.
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
