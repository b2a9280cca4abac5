package fileproc

import "slices"

// A collector keeps the results of Process, apart for each slot.
type collector[T any] struct {
	first []T // slot 0
	_     cacheLine
	rest  []*padded[T] // slot 1 and those after it
}

func newCollector[T any](workers int) *collector[T] {
	return &collector[T]{rest: make([]*padded[T], workers-1)}
}

// add is called in a slot.
func (c *collector[T]) add(slot int, v T) {
	if slot == 0 {
		c.first = append(c.first, v)
		return
	}
	s := c.rest[slot-1]
	if s == nil {
		s = new(padded[T])
		c.rest[slot-1] = s
	}
	s.results = append(s.results, v)
}

// padded keeps the results of two slots from sharing a cache line.
type padded[T any] struct {
	results []T
	_       cacheLine
}

type cacheLine [128]byte

// all returns the results of all slots.
func (c *collector[T]) all() []T {
	var all [][]T
	if len(c.first) > 0 {
		all = append(all, c.first)
	}
	for _, s := range c.rest {
		if s != nil {
			all = append(all, s.results)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return slices.Concat(all...)
}

// located is a result and where its file is.
type located[T any] struct {
	node *node
	name string
	v    T
}

// sortByPath returns the results in the order of paths.
func sortByPath[T any](all []located[T]) []T {
	slices.SortFunc(all, func(a, b located[T]) int { return comparePaths(a.node, a.name, b.node, b.name) })
	values := slices.Grow([]T(nil), len(all))
	for i := range all {
		values = append(values, all[i].v)
	}
	return values
}
