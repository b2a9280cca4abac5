// Package measure summarises repeated measurements.
package measure

import (
	"fmt"
	"slices"
)

// A Spread summarises repeated measurements. The median is the result; the extremes show how noisy the machine was.
type Spread struct{ Median, Min, Max float64 }

// Summarize returns the spread of at least one value.
func Summarize(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	return Spread{Median: Median(sorted), Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// Median returns the median of at least one value: the middle one, or the mean of the middle two.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

func (s Spread) String() string {
	return fmt.Sprintf("%.3f (%.3f to %.3f)", s.Median, s.Min, s.Max)
}
