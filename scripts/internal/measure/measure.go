// Package measure holds what the measuring commands share: the summary of repeated measurements.
package measure

import (
	"fmt"
	"slices"
)

// A Spread summarises repeated measurements of one thing. On a shared machine the median is the figure and the extremes
// say how far to trust it.
type Spread struct{ Median, Min, Max float64 }

// Summarize returns the spread of values, of which there must be at least one.
func Summarize(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	return Spread{Median: Median(sorted), Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// Median returns the middle of values, of which there must be at least one, or the mean of the middle two.
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
