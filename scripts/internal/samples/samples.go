// Package samples says how much two samples of measurements differ, and whether that is chance.
package samples

import (
	"math"
	"slices"

	"github.com/fileproc/fileproc/scripts/internal/measure"
	"golang.org/x/perf/benchmath"
)

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
	slices.Sort(ratios)
	n, m := float64(len(old)), float64(len(new))
	cut := max(int(math.Floor(n*m/2-normal95*math.Sqrt(n*m*(n+m+1)/12))), 0)
	return Change{
		Estimate: measure.Median(ratios),
		Lo:       ratios[cut],
		Hi:       ratios[len(ratios)-1-cut],
		P:        benchmath.AssumeNothing.Compare(NewSample(old), NewSample(new)).P,
	}
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
	slices.Sort(means)
	n := float64(len(of))
	cut := max(int(math.Floor(n*(n+1)/4-normal95*math.Sqrt(n*(n+1)*(2*n+1)/24))), 0)
	return measure.Median(means), means[cut], means[len(means)-1-cut]
}

// NewSample copies, since benchmath sorts in place and samples may belong together by index.
func NewSample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}
