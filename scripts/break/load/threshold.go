package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A threshold is a condition on a metric in the words of k6, such as "read:p(95)<500". In place of a time, a threshold may
// have a ratio to the other side: "read:p(95)<=1.15x".
type threshold struct {
	text     string
	metric   string // an operation, or "checks" for all operations of both sides
	stat     string // avg, min, med, max, p(N), rate or count
	percent  float64
	operator string
	limit    float64 // times are in milliseconds
	relative bool
}

var thresholdPattern = regexp.MustCompile(`^\s*(\w+):\s*(avg|min|med|max|rate|count|p\(([0-9.]+)\))\s*(<=|>=|==|!=|<|>)\s*([0-9.]+)(x|us|µs|ms|s)?\s*$`)

// units are how many milliseconds a unit is; k6 has none and means milliseconds.
var units = map[string]float64{"us": 1e-3, "µs": 1e-3, "ms": 1, "s": 1e3, "": 1}

func parseThreshold(text string) (threshold, error) {
	if text == "none" {
		return threshold{text: text}, nil
	}
	fail := func(why string) (threshold, error) {
		return threshold{}, fmt.Errorf("threshold %q: %s", text, why)
	}
	m := thresholdPattern.FindStringSubmatch(text)
	if m == nil {
		return fail("want METRIC:STATISTIC OPERATOR LIMIT, such as read:p(95)<500 (milliseconds), read:p(95)<=1.15x or checks:rate==1")
	}
	t := threshold{text: text, metric: m[1], stat: m[2], operator: m[4], relative: m[6] == "x"}
	var err error
	if t.limit, err = strconv.ParseFloat(m[5], 64); err != nil {
		return fail("the limit is not a number")
	}
	switch {
	case t.metric == "checks" && t.stat != "rate":
		return fail("checks have a rate only")
	case t.metric != "checks" && !slices.Contains(opNames[:], t.metric):
		return fail("the metrics are checks, " + strings.Join(opNames[:], ", "))
	case (t.stat == "rate" || t.stat == "count") && m[6] != "":
		return fail("a " + t.stat + " has no unit")
	}
	if strings.HasPrefix(t.stat, "p(") {
		if t.percent, err = strconv.ParseFloat(m[3], 64); err != nil || !slices.Contains(percentiles, t.percent) {
			return fail(fmt.Sprint("the percentiles are ", percentiles))
		}
	}
	if !t.relative {
		t.limit *= units[m[6]]
	}
	return t, nil
}

// A verdict is what became of a threshold.
type verdict struct {
	Threshold string  `json:"threshold"`
	Value     float64 `json:"value"` // in milliseconds, or a ratio, a share or a count
	OK        bool    `json:"ok"`
}

func (t threshold) judge(r *record) verdict {
	v := verdict{Threshold: t.text}
	if t.metric == "checks" {
		var count, failed int
		for _, side := range r.Sides {
			for _, m := range r.Total[side] {
				count, failed = count+m.Count, failed+m.Failed
			}
		}
		v.Value = 1
		if count > 0 {
			v.Value = float64(count-failed) / float64(count)
		}
	} else {
		mine, other := r.Total[r.Sides[0]][t.metric], r.Total[r.Sides[1]][t.metric]
		if isTime := t.stat != "rate" && t.stat != "count"; isTime && mine.Count == mine.Failed || t.relative && other.Count == other.Failed {
			return v // nothing succeeded that could be within the limit
		}
		v.Value = t.of(mine)
		if t.relative {
			v.Value /= t.of(other)
		}
	}
	switch t.operator {
	case "<":
		v.OK = v.Value < t.limit
	case "<=":
		v.OK = v.Value <= t.limit
	case ">":
		v.OK = v.Value > t.limit
	case ">=":
		v.OK = v.Value >= t.limit
	case "==":
		v.OK = v.Value == t.limit
	case "!=":
		v.OK = v.Value != t.limit
	}
	return v
}

func (t threshold) of(m metric) float64 {
	switch t.stat {
	case "avg":
		return m.Avg
	case "min":
		return m.Min
	case "med":
		return m.Med
	case "max":
		return m.Max
	case "rate":
		return m.Rate
	case "count":
		return float64(m.Count)
	}
	return m.at(t.percent)
}

// at returns a percentile.
func (m metric) at(percent float64) float64 {
	return map[float64]float64{50: m.Med, 90: m.P90, 95: m.P95, 99: m.P99, 99.9: m.P999}[percent]
}

// thresholds is a flag that may be repeated.
type thresholds []threshold

func (t *thresholds) String() string {
	var all []string
	for _, one := range *t {
		all = append(all, one.text)
	}
	return strings.Join(all, ", ")
}

func (t *thresholds) Set(text string) error {
	one, err := parseThreshold(text)
	*t = append(*t, one)
	return err
}
