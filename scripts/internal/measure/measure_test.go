package measure

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSummarize(t *testing.T) {
	values := []float64{5, 1, 4, 2}
	assert.Equal(t, Spread{Median: 3, Min: 1, Max: 5}, Summarize(values))
	assert.Equal(t, []float64{5, 1, 4, 2}, values, "the argument was sorted in place")
	assert.Equal(t, Spread{Median: 2, Min: 1, Max: 9}, Summarize([]float64{9, 1, 2}))
	assert.Equal(t, Spread{Median: 7, Min: 7, Max: 7}, Summarize([]float64{7}))
}

func TestChangeOf(t *testing.T) {
	var of, to []float64
	for i := range 20 { // both sides follow the machine
		to = append(to, 1+float64(i))
		of = append(of, 1.5*(1+float64(i)))
	}
	c := ChangeOf(to, of)
	assert.InDeltaSlice(t, []float64{0.5, 0.5, 0.5}, []float64{c.Estimate, c.Lo, c.Hi}, 1e-9)
}
