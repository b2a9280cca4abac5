package fileproc

import (
	"cmp"
	"context"
	"slices"
)

// located is a result and the path, relative to root, of its file.
type located[T any] struct {
	rel string
	v   T
}

// processInOrder is process for Options.Ordered.
func processInOrder[T any](ctx context.Context, root string, opts *Options, fn func(*File) (T, error)) ([]T, error) {
	all, err := process(ctx, root, opts, func(f *File) (located[T], error) {
		v, err := fn(f)
		return located[T]{f.Rel(), v}, err
	})
	slices.SortFunc(all, func(a, b located[T]) int { return comparePaths(a.rel, b.rel) })
	values := slices.Grow([]T(nil), len(all))
	for i := range all {
		values = append(values, all[i].v)
	}
	return values, err
}

// comparePaths compares two slash-separated paths name by name, so that what is
// in a directory comes before a sibling whose name begins with the directory's.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		switch {
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		}
		return cmp.Compare(a[i], b[i])
	}
	return cmp.Compare(len(a), len(b))
}
