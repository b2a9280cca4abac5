package fileproc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCollector(t *testing.T) {
	for _, test := range []struct {
		name string
		adds [][]int // by slot
		want []int
	}{
		{"nobody", [][]int{nil, nil, nil}, nil},
		{"the first", [][]int{{1, 2, 3}, nil}, []int{1, 2, 3}},
		{"the last", [][]int{nil, nil, {1, 2}}, []int{1, 2}},
		{"two", [][]int{{1}, nil, {2, 3}}, []int{1, 2, 3}},
		{"all", [][]int{{1, 2, 3}, {4}, {5, 6}}, []int{1, 2, 3, 4, 5, 6}},
		{"as many in each", [][]int{{1}, {2}, {3}}, []int{1, 2, 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCollector[int](len(test.adds))
			for w, values := range test.adds {
				for _, v := range values {
					c.add(w, v)
				}
			}
			require.Equal(t, test.want, c.all())
		})
	}
}
