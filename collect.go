package fileproc

import "slices"

// A collector keeps the results of Process, apart for each slot.
type collector[T any] struct {
	slots []*[]T
}

func newCollector[T any](workers int) *collector[T] {
	return &collector[T]{make([]*[]T, workers)}
}

// add is called in a slot.
func (c *collector[T]) add(slot int, v T) {
	s := c.slots[slot]
	if s == nil {
		// Behind a pointer, so that no two slots share a cache line.
		s = &new(padded[T]).results
		c.slots[slot] = s
	}
	*s = append(*s, v)
}

type padded[T any] struct {
	results []T
	_       [128]byte
}

// all returns the results of all slots.
func (c *collector[T]) all() []T {
	var all [][]T
	for _, s := range c.slots {
		if s != nil {
			all = append(all, *s)
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
