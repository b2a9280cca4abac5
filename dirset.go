package fileproc

import (
	"slices"
	"sync"
)

// A dirSet is the directories that a run with SymlinksFollow has entered, or is
// to enter through links.
type dirSet struct {
	mu         sync.Mutex // guards what follows
	linked     []*node    // directories that links lead to
	ids        map[[2]uint64][]identity
	duplicates int64 // links to directories that were entered by another path
}

// addLinked puts off n, which a link leads to, until all others are listed.
func (s *dirSet) addLinked(n *node) {
	s.mu.Lock()
	s.linked = append(s.linked, n)
	s.mu.Unlock()
}

// takeLinked returns the directories that links lead to and nothing else does.
// It is called when all others have been listed. Which one of several links to
// one directory is taken depends on their paths alone.
func (s *dirSet) takeLinked() []*node {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.linked, func(a, b *node) int {
		return comparePaths(a.parent, a.name.String(), b.parent, b.name.String())
	})
	var taken []*node
	for _, n := range s.linked {
		if s.insert(n.id) {
			taken = append(taken, n)
		} else {
			s.duplicates++
		}
	}
	s.linked = nil
	slices.Reverse(taken) // the queue takes the last one first
	return taken
}

// enter adds a directory and reports whether it was not in the set.
func (s *dirSet) enter(id identity) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.insert(id)
}

func (s *dirSet) insert(id identity) bool {
	var key [2]uint64
	key[0], key[1] = id.inode()
	for _, other := range s.ids[key] {
		if other.same(id) {
			return false
		}
	}
	if s.ids == nil {
		s.ids = map[[2]uint64][]identity{}
	}
	s.ids[key] = append(s.ids[key], id)
	return true
}
