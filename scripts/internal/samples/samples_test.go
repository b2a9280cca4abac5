package samples

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPairedRatio(t *testing.T) {
	var of, to []float64
	for i := range 20 { // both sides follow the machine
		to = append(to, 1+float64(i))
		of = append(of, 1.5*(1+float64(i)))
	}
	ratio, lo, hi := PairedRatio(of, to)
	assert.InDeltaSlice(t, []float64{1.5, 1.5, 1.5}, []float64{ratio, lo, hi}, 1e-9)
}
