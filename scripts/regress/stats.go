//go:build linux

package main

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/fileproc/fileproc/scripts/internal/measure"
)

const confidence = 0.95

// newSample copies, since benchmath sorts in place and our samples belong together by index.
func newSample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}

// A change is how much larger one sample is than another: 0.1 is 10 %. Hi and Lo bound it with 95 % confidence.
type change struct{ Estimate, Lo, Hi, P float64 }

// changeOf tests with Mann and Whitney's U, and estimates with what belongs to it: Hodges and Lehmann's median of all
// pairwise ratios, whose interval excludes 0 where the test calls the difference significant (at small p, by its normal
// approximation).
func changeOf(old, new []float64) change {
	var ratios []float64
	for _, o := range old {
		for _, n := range new {
			ratios = append(ratios, n/o-1)
		}
	}
	slices.Sort(ratios)
	n, m := float64(len(old)), float64(len(new))
	const quantile = 1.96 // of the normal distribution, for 95 %
	cut := int(math.Floor(n*m/2 - quantile*math.Sqrt(n*m*(n+m+1)/12)))
	cut = max(cut, 0)
	return change{
		Estimate: measure.Median(ratios),
		Lo:       ratios[cut],
		Hi:       ratios[len(ratios)-1-cut],
		P:        benchmath.AssumeNothing.Compare(newSample(old), newSample(new)).P,
	}
}

// pairedChange is changeOf for samples that were taken in turn: sample i of both is from the same moment, and what the machine
// was like then is in both. So the estimate is the median of the means of two pairs' ratios, with the interval that belongs
// to Wilcoxon's signed ranks. The test is still Mann and Whitney's, which does not gain by the pairs and so claims less.
func pairedChange(old, new []float64) change {
	c := changeOf(old, new)
	var means []float64
	for i := range old {
		for j := range i + 1 {
			means = append(means, math.Sqrt(new[i]/old[i]*new[j]/old[j])-1)
		}
	}
	slices.Sort(means)
	n := float64(len(old))
	const quantile = 1.96 // of the normal distribution, for 95 %
	cut := max(int(math.Floor(n*(n+1)/4-quantile*math.Sqrt(n*(n+1)*(2*n+1)/24))), 0)
	c.Estimate, c.Lo, c.Hi = measure.Median(means), means[cut], means[len(means)-1-cut]
	return c
}

// above reports whether the change is significant and larger than the limit. That half of the limit lies below the interval
// keeps a measurement that is mostly noise from counting: it is significant now and then, but wide.
func (c change) above(limit float64) bool {
	return c.P < benchmath.DefaultThresholds.CompareAlpha && c.Estimate > limit && c.Lo > limit/2
}

// decides reports whether the samples are enough to say whether the change is above the limit. They are not while it may be,
// and a change of half of that may be too.
func (c change) decides(limit float64) bool {
	return c.Hi <= limit || c.Lo > limit/2 && c.P < benchmath.DefaultThresholds.CompareAlpha
}
