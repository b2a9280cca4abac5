package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
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
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// percentiles are those in outcomes.
var percentiles = []float64{50, 90, 95, 99, 99.9}

var columns = []string{"count", "ops/s", "MB/s", "avg", "med", "p(90)", "p(95)", "p(99)", "max", "rate"}

// A metric summarises one operation of one side, with the names that k6 has: count, rate (the share that succeeded) and, of those
// that succeeded, avg, min, med, max and p(N) in milliseconds, ops/s and MB/s (millions of bytes). What has no value is missing.
type metric map[string]float64

// A level summarises slices of both sides with this number of VUs.
type level struct {
	VUs   int                  // 0: any number
	Sides [2]map[string]metric // by operation
}

type outcome struct {
	About    string // the machine and the load
	Sides    [2]string
	Failures []string // the first of them
	Levels   []level  // the first is of all slices
	Pairs    []level  // of slices that are neighbours
}

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
	for _, p := range percentiles {
		m[percentName(p)] = float64(percentile(s.latencies, p)) / 1e6
	}
	m["min"], m["med"], m["max"] = float64(s.latencies[0])/1e6, m["p(50)"], float64(s.latencies[len(s.latencies)-1])/1e6
	return m
}

func percentName(p float64) string { return fmt.Sprintf("p(%v)", p) }

// percentile returns the p-th percentile of sorted values, of which there is at least one: the least value that at least p
// percent of the values do not exceed.
func percentile(sorted []time.Duration, p float64) time.Duration {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// save writes what benchstat reads. A sample of it is a slice of the run, of each side and of the ratio of both; what sums the run up
// is of another table.
func (r *outcome) save(name string) error {
	var all []record.Record
	for table, levels := range [][]level{r.Levels, r.Pairs} {
		for _, l := range levels {
			for _, op := range opNames {
				add := func(side string, m metric) {
					all = append(all, record.Record{Table: tables[table], Data: fmt.Sprintf("%s/%d", op, l.VUs), Who: side,
						Files: max(1, int(m["count"])), Values: m, Machine: r.About})
				}
				ours, other := l.Sides[0][op], l.Sides[1][op]
				add(r.Sides[0], ours)
				add(r.Sides[1], other)
				if ours["med"] > 0 && other["med"] > 0 {
					ratio := metric{}
					for _, stat := range []string{"med", "p(95)", "p(99)", "ops/s"} {
						ratio[stat] = ours[stat] / other[stat]
					}
					add(ratioSide, ratio)
				}
			}
		}
	}
	var text bytes.Buffer
	return errors.Join(record.Write(&text, all...), os.WriteFile(name, text.Bytes(), 0o644))
}

// tables are those in files: of levels and of pairs.
var tables = []string{"whole", "slice"}

const ratioSide = "ratio"

func loadOutcome(name string) (*outcome, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	records, err := record.Read(f)
	r, seen := &outcome{}, map[string]int{} // how many records there were of a table, an operation and a side
	for _, rec := range records {
		op, number, _ := strings.Cut(rec.Data, "/")
		vus, errNumber := strconv.Atoi(number)
		table := slices.Index(tables, rec.Table)
		if errNumber != nil || table < 0 {
			return nil, fmt.Errorf("%s: %s %s is of no load", name, rec.Table, rec.Data)
		} else if rec.Who == ratioSide {
			continue
		}
		side := 1
		if r.About = rec.Machine; rec.Who == ours {
			side = 0
		}
		levels, key := []*[]level{&r.Levels, &r.Pairs}[table], rec.Table+op+rec.Who
		if seen[key] == len(*levels) {
			*levels = append(*levels, level{vus, [2]map[string]metric{{}, {}}})
		}
		r.Sides[side] = rec.Who
		(*levels)[seen[key]].Sides[side][op] = rec.Values
		seen[key]++
	}
	if err == nil && (len(r.Levels) == 0 || len(r.Pairs) == 0) {
		err = errors.New("not a record of this command")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// describe says what is measured and on what, without names of hosts and users, and without paths.
func (l *load) describe(s *store, dir, revision string) string {
	backend := "io/fs"
	if s.kind == "files" {
		backend = fileproc.Backend()
	}
	if revision != "" {
		revision = ", revision " + revision
	}
	var stages []string
	for _, st := range l.Stages {
		stages = append(stages, fmt.Sprint(st.VUs, ":", st.Duration))
	}
	return fmt.Sprintf("%s, GOMAXPROCS=%d, backend %s, %s%s, stages %s in slices of about %v, seed %d, %d files shared, %d of each VU",
		host.Machine(dir), runtime.GOMAXPROCS(0), backend, s.kind, revision, strings.Join(stages, ","), l.Slice, l.Seed, l.Files, l.Own)
}

// A threshold is a condition on a metric in the words of k6, such as "read:p(95)<500", and then its parts. The metric is an operation,
// or "checks" for all operations of both sides. In place of a time in milliseconds, a threshold may have a ratio to the other side:
// "read:p(95)<=1.15x".
type threshold []string

var thresholdPattern = regexp.MustCompile(`^(checks|create|read|list|delete):(avg|min|med|max|rate|count|p\((?:50|90|95|99|99\.9)\))` +
	`(<=|>=|==|<|>)([0-9]+(?:\.[0-9]+)?)(x?)$`)

func parseThreshold(text string) (threshold, error) {
	t := thresholdPattern.FindStringSubmatch(text)
	if t == nil || t[1] == "checks" && t[2] != "rate" {
		return nil, errors.New("want METRIC:STATISTIC OPERATOR LIMIT without spaces, such as read:p(95)<500 (milliseconds), read:p(95)<=1.15x " +
			"or checks:rate==1")
	}
	return t, nil
}

// judge returns the value that the threshold is for, and whether it is within. If nothing succeeded, it is not.
func (t threshold) judge(r *outcome) (value float64, ok bool) {
	all, metric, stat, operator := r.Levels[0].Sides, t[1], t[2], t[3]
	limit, _ := strconv.ParseFloat(t[4], 64)
	if metric == "checks" {
		succeeded, count := 0.0, 0.0
		for _, side := range all {
			for _, m := range side {
				succeeded, count = succeeded+m["count"]*m["rate"], count+m["count"]
			}
		}
		value, ok = succeeded/max(count, 1), true
	} else if value, ok = all[0][metric][stat]; t[5] == "x" {
		other, known := all[1][metric][stat]
		value, ok = value/other, ok && known
	}
	sign := map[int]string{-1: "<", 0: "=", 1: ">"}[cmp.Compare(value, limit)]
	return value, ok && strings.Contains(operator, sign)
}

// inWords formats a statistic; times with four digits.
func inWords(stat string, value float64) string {
	switch stat {
	case "count", "ops/s":
		return fmt.Sprintf("%.0f", value)
	case "MB/s":
		return fmt.Sprintf("%.1f", value)
	case "rate":
		return fmt.Sprintf("%.6g %%", 100*value)
	}
	d, unit := time.Duration(value*1e6), 100*time.Nanosecond
	for d >= 10_000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}

// write writes the outcome as Markdown, and reports whether all thresholds are met.
func (r *outcome) write(w io.Writer, thresholds []threshold) (ok bool) {
	fmt.Fprintf(w, "%s\n\n", r.About)
	names := strings.ReplaceAll(strings.Join(columns, " | "), "rate", "success")
	fmt.Fprintf(w, "| operation | through | %s |\n| --- | --- %s|\n", names, strings.Repeat("| ---: ", len(columns)))
	for _, op := range opNames {
		for i, side := range r.Sides {
			through := "`" + side + "`"
			if op == opNames[opCreate] || op == opNames[opDelete] {
				through = "both sides alike, beside " + through
			}
			fmt.Fprintf(w, "| %s | %s |", op, through)
			for _, stat := range columns {
				fmt.Fprintf(w, " %s |", inWords(stat, r.Levels[0].Sides[i][op][stat]))
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintf(w, "\nThe ratio of `%s` to `%s`, of all operations of the run and as the median of pairs of neighbouring slices (95 %% interval):\n\n",
		r.Sides[0], r.Sides[1])
	fmt.Fprint(w, "| operation | VUs | med | p(95) | p(99) | p(95) of slices | med of slices |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, op := range opNames {
		for i, l := range r.Levels {
			a, b := l.Sides[0][op], l.Sides[1][op]
			if i > 0 && len(r.Levels) == 2 || a["med"] == 0 || b["med"] == 0 {
				continue // the only level, or nothing succeeded
			}
			fmt.Fprintf(w, "| %s | %s |", op, map[bool]string{true: "all", false: fmt.Sprint(l.VUs)}[i == 0])
			for _, stat := range []string{"med", "p(95)", "p(99)"} {
				fmt.Fprintf(w, " %.2f |", a[stat]/b[stat])
			}
			for _, stat := range []string{"p(95)", "med"} {
				ratio, lo, hi := measure.PairedRatio(r.pairs(op, l.VUs, stat))
				fmt.Fprintf(w, " %.2f (%.2f to %.2f) |", ratio, lo, hi)
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintln(w)
	ok = true
	for _, t := range thresholds {
		value, met := t.judge(r)
		ok = ok && met
		fmt.Fprintf(w, "%s %s: %.4g\n", map[bool]string{true: "✓", false: "✗"}[met], t[0], value)
	}
	for _, f := range r.Failures {
		fmt.Fprintln(w, "failed:", f)
	}
	return ok
}

// pairs returns a statistic of each pair of slices with this number of VUs, of the first side and of the second. A pair in which
// an operation does not occur, or fails each time, is left out.
func (r *outcome) pairs(op string, vus int, stat string) (first, second []float64) {
	for _, p := range r.Pairs {
		if a, b := p.Sides[0][op][stat], p.Sides[1][op][stat]; (vus == 0 || vus == p.VUs) && a > 0 && b > 0 {
			first, second = append(first, a), append(second, b)
		}
	}
	return first, second
}
