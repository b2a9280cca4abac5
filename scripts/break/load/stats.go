package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// percentiles are those in records, under the names that k6 gives them.
var percentiles = []float64{50, 90, 95, 99, 99.9}

// percentile returns the p-th percentile of sorted values, of which there is at least one: the least value that at least p
// percent of the values do not exceed.
func percentile(sorted []time.Duration, p float64) time.Duration {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// A metric summarises one operation, of one side, in one slice, at one number of VUs or in the whole run. Times are in
// milliseconds, as in k6. They are of the operations that succeeded.
type metric struct {
	Count   int     `json:"count"`
	Failed  int     `json:"failed"`
	Rate    float64 `json:"rate"` // the share that succeeded
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"` // that the side ran
	Avg     float64 `json:"avg"`
	Min     float64 `json:"min"`
	Med     float64 `json:"med"`
	P90     float64 `json:"p(90)"`
	P95     float64 `json:"p(95)"`
	P99     float64 `json:"p(99)"`
	P999    float64 `json:"p(99.9)"`
	Max     float64 `json:"max"`
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// summarize sorts the latencies.
func summarize(s sample, elapsed time.Duration) metric {
	m := metric{Count: len(s.latencies) + s.failed, Failed: s.failed, Bytes: s.bytes, Seconds: elapsed.Seconds(), Rate: 1}
	if m.Count > 0 {
		m.Rate = float64(len(s.latencies)) / float64(m.Count)
	}
	if len(s.latencies) == 0 {
		return m
	}
	slices.Sort(s.latencies)
	var sum time.Duration
	for _, d := range s.latencies {
		sum += d
	}
	at := func(p float64) float64 { return milliseconds(percentile(s.latencies, p)) }
	m.Avg = milliseconds(sum) / float64(len(s.latencies))
	m.Min, m.Max = milliseconds(s.latencies[0]), at(100)
	m.Med, m.P90, m.P95, m.P99, m.P999 = at(50), at(90), at(95), at(99), at(99.9)
	return m
}

func (m metric) perSecond() float64 { return float64(m.Count-m.Failed) / m.Seconds }

// mbPerSecond is in millions of bytes.
func (m metric) mbPerSecond() float64 { return float64(m.Bytes) / 1e6 / m.Seconds }

// alpha is what p must be below for a difference to be called significant.
const alpha = 0.05

// holm returns which of these tests are significant, if the chance that any of them is so without reason is to be at most
// alpha: Holm's method. Without it, one in twenty comparisons of a run with itself would be called significant.
func holm(ps []float64) []bool {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(ps[a], ps[b]) })
	significant := make([]bool, len(ps))
	for k, i := range order {
		if ps[i] >= alpha/float64(len(ps)-k) {
			break
		}
		significant[i] = true
	}
	return significant
}
