// Package measure summarises repeated measurements. It says how much two samples differ, and whether the difference is significant.
package measure

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// English formats numbers for a page: thousands get commas.
var English = message.NewPrinter(language.English)

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

// A Change says how much larger one sample is than another: 0.1 is 10 %. Lo and Hi are its 95 % confidence interval.
type Change struct{ Estimate, Lo, Hi, P float64 }

// ChangeOf compares samples whose i-th values are from the same moment, so that the state of the machine at that moment is not in their
// ratio. The estimate is the median of the geometric means of two pairs' ratios, with the interval of Wilcoxon's signed ranks. P is that of
// Mann and Whitney's test. This test does not use the pairs, and so finds less. All values must be positive.
func ChangeOf(old, new []float64) Change {
	var means []float64
	for i := range old {
		for j := range i + 1 {
			means = append(means, math.Sqrt(new[i]/old[i]*new[j]/old[j])-1)
		}
	}
	slices.Sort(means)
	n := float64(len(old))
	const normal95 = 1.96 // the quantile of the normal distribution for an interval of 95 %
	cut := max(int(n*(n+1)/4-normal95*math.Sqrt(n*(n+1)*(2*n+1)/24)), 0)
	sample := func(values []float64) *benchmath.Sample { // copies, since benchmath sorts in place
		return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	}
	return Change{Median(means), means[cut], means[len(means)-1-cut], benchmath.AssumeNothing.Compare(sample(old), sample(new)).P}
}
