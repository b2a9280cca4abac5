package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/host"
)

// format is the version of the record. It changes with what a field means.
const format = 2

// percentiles are those in records.
var percentiles = []float64{50, 90, 95, 99, 99.9}

// A metric summarises one operation of one side, with the names that k6 has: count, rate (the share that succeeded) and, of those
// that succeeded, avg, min, med, max and p(N) in milliseconds, ops/s and MB/s (millions of bytes). What has no value is missing.
type metric map[string]float64

// A level summarises slices of both sides with this number of VUs.
type level struct {
	VUs   int                  // 0: any number
	Sides [2]map[string]metric // by operation
}

// A record is what a run leaves.
type record struct {
	Format     int
	Machine    string
	Load       load
	Sides      [2]string
	Thresholds []verdict
	Failures   []string // the first of them
	Levels     []level  // the first is of all slices
	Pairs      []level  // of slices that are neighbours
}

// summarize summarises a slice of each side.
func summarize(vus int, of [2]slice) level {
	l := level{VUs: vus}
	for side, s := range of {
		l.Sides[side] = map[string]metric{}
		for op, name := range opNames {
			l.Sides[side][name] = newMetric(s.ops[op], s.elapsed)
		}
	}
	return l
}

// newMetric sorts the latencies.
func newMetric(s sample, elapsed time.Duration) metric {
	n := float64(len(s.latencies))
	m := metric{"count": n + float64(s.failed), "rate": 1}
	if s.failed > 0 {
		m["rate"] = n / m["count"]
	}
	if n == 0 {
		return m
	}
	slices.Sort(s.latencies)
	var sum time.Duration
	for _, d := range s.latencies {
		sum += d
	}
	m["ops/s"], m["MB/s"], m["avg"] = n/elapsed.Seconds(), float64(s.bytes)/1e6/elapsed.Seconds(), float64(sum)/1e6/n
	for _, p := range append([]float64{0, 100}, percentiles...) {
		m[percentName(p)] = float64(percentile(s.latencies, p)) / 1e6
	}
	m["med"] = m[percentName(50)]
	return m
}

func percentName(p float64) string {
	switch p {
	case 0:
		return "min"
	case 100:
		return "max"
	}
	return fmt.Sprintf("p(%v)", p)
}

// percentile returns the p-th percentile of sorted values, of which there is at least one: the least value that at least p
// percent of the values do not exceed.
func percentile(sorted []time.Duration, p float64) time.Duration {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func (r *record) save(name string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	return errors.Join(err, os.WriteFile(name, append(text, '\n'), 0o644))
}

func loadRecord(name string) (*record, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil || r.Format != format || len(r.Pairs) == 0 {
		return nil, fmt.Errorf("%s: not a record of this version of the command: %v", name, err)
	}
	return r, nil
}

// describeMachine says what a run is measured on, without names of hosts and users, and without paths.
func describeMachine(s *store, dir, revision string) string {
	backend := "io/fs"
	if s.kind == "files" {
		backend = fileproc.Backend()
	}
	text := fmt.Sprintf("%s, GOMAXPROCS=%d, backend %s, %s", host.Machine(dir), runtime.GOMAXPROCS(0), backend, s.kind)
	if revision != "" {
		text += ", revision " + revision
	}
	return text
}

func (l *load) String() string {
	var stages []string
	for _, s := range l.Stages {
		stages = append(stages, fmt.Sprint(s.VUs, ":", s.Duration))
	}
	return fmt.Sprintf("stages %s in slices of about %v, seed %d, %d files shared, %d of each VU",
		strings.Join(stages, ","), l.Slice, l.Seed, l.Files, l.Own)
}

// A threshold is a condition on a metric in the words of k6, such as "read:p(95)<500". In place of a time, a threshold may
// have a ratio to the other side: "read:p(95)<=1.15x".
type threshold struct {
	text     string
	metric   string // an operation, or "checks" for all operations of both sides
	stat     string // in metric
	operator string
	limit    float64 // times are in milliseconds
	relative bool
}

var thresholdPattern = regexp.MustCompile(`^\s*(checks|create|read|list|delete):\s*(avg|min|med|max|rate|count|p\((?:50|90|95|99|99\.9)\))` +
	`\s*(<=|>=|==|!=|<|>)\s*([0-9.]+)(x|us|µs|ms|s)?\s*$`)

// units are how many milliseconds a unit is; k6 has none and means milliseconds.
var units = map[string]float64{"us": 1e-3, "µs": 1e-3, "s": 1e3}

func parseThreshold(text string) (threshold, error) {
	m := thresholdPattern.FindStringSubmatch(text)
	if m == nil || m[1] == "checks" && m[2] != "rate" || (m[2] == "rate" || m[2] == "count") && m[5] != "" {
		return threshold{}, errors.New("want METRIC:STATISTIC OPERATOR LIMIT, such as read:p(95)<500 (milliseconds), read:p(95)<=1.15x or " +
			"checks:rate==1; checks have a rate only, and a rate or count has no unit")
	}
	limit, err := strconv.ParseFloat(m[4], 64)
	return threshold{text, m[1], m[2], m[3], limit * cmp.Or(units[m[5]], 1), m[5] == "x"}, err
}

// A verdict is what became of a threshold.
type verdict struct {
	Threshold string
	Value     float64 // in milliseconds, or a ratio, a share or a count
	OK        bool
}

func (t threshold) judge(r *record) verdict {
	v := verdict{Threshold: t.text}
	all := r.Levels[0].Sides
	var known bool
	if t.metric == "checks" {
		succeeded, count := 0.0, 0.0
		for _, side := range all {
			for _, m := range side {
				succeeded, count = succeeded+m["count"]*m["rate"], count+m["count"]
			}
		}
		v.Value, known = succeeded/max(count, 1), true
	} else if v.Value, known = all[0][t.metric][t.stat]; t.relative {
		other, ok := all[1][t.metric][t.stat]
		v.Value, known = v.Value/other, known && ok
	}
	if !known { // nothing succeeded that could be within the limit
		return verdict{Threshold: t.text}
	}
	c := cmp.Compare(v.Value, t.limit)
	v.OK = t.operator == "!=" && c != 0 ||
		t.operator != "!=" && strings.Contains(t.operator, map[int]string{-1: "<", 0: "=", 1: ">"}[c])
	return v
}

// ok reports whether all thresholds are met.
func (r *record) ok() bool {
	return !slices.ContainsFunc(r.Thresholds, func(v verdict) bool { return !v.OK })
}
