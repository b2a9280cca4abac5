// Package measure summarises repeated measurements, and says how much two samples of them differ and whether that is chance.
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

// A Change is how much larger one sample is than another: 0.1 is 10 %. Lo and Hi bound it with 95 % confidence.
type Change struct{ Estimate, Lo, Hi, P float64 }

// normal95 is the quantile of the normal distribution for an interval of 95 %.
const normal95 = 1.96

// ChangeOf tests with Mann and Whitney's U, and estimates with what belongs to it: Hodges and Lehmann's median of all
// pairwise ratios, whose interval excludes 0 where the test calls the difference significant (at small p, by its normal
// approximation). All values are positive.
func ChangeOf(old, new []float64) Change {
	var ratios []float64
	for _, o := range old {
		for _, n := range new {
			ratios = append(ratios, n/o-1)
		}
	}
	n, m := float64(len(old)), float64(len(new))
	median, lo, hi := interval(ratios, n*m/2, n*m*(n+m+1)/12)
	return Change{median, lo, hi, benchmath.AssumeNothing.Compare(NewSample(old), NewSample(new)).P}
}

// interval returns the median and its 95 % interval, by the mean and the variance of the test's rank.
func interval(values []float64, mean, variance float64) (median, lo, hi float64) {
	slices.Sort(values)
	cut := max(int(math.Floor(mean-normal95*math.Sqrt(variance))), 0)
	return Median(values), values[cut], values[len(values)-1-cut]
}

// PairedRatio returns the ratio of samples whose i-th values are from the same moment, and its 95 % interval: the median of the
// geometric means of two pairs' ratios, and the interval that belongs to Wilcoxon's signed ranks. What the machine was like at
// a moment is in both samples, and so is not in the ratio.
func PairedRatio(of, to []float64) (ratio, lo, hi float64) {
	var means []float64
	for i := range of {
		for j := range i + 1 {
			means = append(means, math.Sqrt(of[i]/to[i]*of[j]/to[j]))
		}
	}
	n := float64(len(of))
	return interval(means, n*(n+1)/4, n*(n+1)*(2*n+1)/24)
}

// NewSample copies, since benchmath sorts in place and samples may belong together by index.
func NewSample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}
