package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fileproc/fileproc/scripts/internal/samples"
)

// write writes the record as Markdown.
func (r *record) write(w io.Writer) {
	fmt.Fprintf(w, "%s, %s\n\n", r.Machine, r.Load.String())
	fmt.Fprintln(w, "| operation | through | count | ops/s | MB/s | avg | med | p(90) | p(95) | p(99) | max | success |")
	fmt.Fprintln(w, "| --- | --- "+strings.Repeat("| ---: ", 10)+"|")
	for _, op := range opNames {
		for _, side := range r.Sides {
			m := r.Total[side][op]
			through := "`" + side + "`"
			if op == opNames[opCreate] || op == opNames[opDelete] {
				through = "both sides alike, beside " + through
			}
			fmt.Fprintf(w, "| %s | %s | %d | %.0f | %.1f | %s | %s | %s | %s | %s | %s | %.6g %% |\n", op, through, m.Count, m.perSecond(), m.mbPerSecond(),
				inWords(m.Avg), inWords(m.Med), inWords(m.P90), inWords(m.P95), inWords(m.P99), inWords(m.Max), 100*m.Rate)
		}
	}
	fmt.Fprintf(w, "\nThe ratio of `%s` to `%s`, of all operations of the run and as the median of pairs of neighbouring slices (95 %% interval):\n\n",
		r.Sides[0], r.Sides[1])
	fmt.Fprint(w, "| operation | VUs | med | p(95) | p(99) | p(95) of slices | med of slices |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, op := range opNames {
		r.writeRatios(w, op, 0, r.Total)
		if len(r.Levels) > 1 {
			for _, l := range r.Levels {
				r.writeRatios(w, op, l.VUs, l.Metrics)
			}
		}
	}
	fmt.Fprintln(w)
	for _, v := range r.Thresholds {
		mark := "✓"
		if !v.OK {
			mark = "✗"
		}
		fmt.Fprintf(w, "%s %s: %.4g\n", mark, v.Threshold, v.Value)
	}
	for _, f := range r.Failures {
		fmt.Fprintln(w, "failed:", f)
	}
}

// writeRatios writes a row of the table of ratios. Vus is 0 for the whole run.
func (r *record) writeRatios(w io.Writer, op string, vus int, metrics map[string]map[string]metric) {
	a, b := metrics[r.Sides[0]][op], metrics[r.Sides[1]][op]
	if a.Count == a.Failed || b.Count == b.Failed {
		return
	}
	at := "all"
	if vus > 0 {
		at = fmt.Sprint(vus)
	}
	fmt.Fprintf(w, "| %s | %s | %.2f | %.2f | %.2f |", op, at, a.Med/b.Med, a.P95/b.P95, a.P99/b.P99)
	for _, value := range []func(metric) float64{func(m metric) float64 { return m.P95 }, func(m metric) float64 { return m.Med }} {
		of, to := r.pairs(op, vus, value)
		ratio, lo, hi := samples.PairedRatio(of, to)
		fmt.Fprintf(w, " %.2f (%.2f to %.2f) |", ratio, lo, hi)
	}
	fmt.Fprintln(w)
}

// pairs returns a value of each pair of slices, of the first side and of the second. A pair in which an operation does not
// occur, or fails each time, is left out.
func (r *record) pairs(op string, vus int, value func(metric) float64) (first, second []float64) {
	byPair := map[int][2]float64{}
	for _, s := range r.Slices {
		m := s.Metrics[op]
		if vus > 0 && s.VUs != vus || m.Count == m.Failed {
			continue
		}
		values := byPair[s.Pair]
		if s.Side == r.Sides[0] {
			values[0] = value(m)
		} else {
			values[1] = value(m)
		}
		byPair[s.Pair] = values
	}
	for pair := range len(r.Slices) {
		if v, ok := byPair[pair]; ok && v[0] > 0 && v[1] > 0 {
			first, second = append(first, v[0]), append(second, v[1])
		}
	}
	return first, second
}

// inWords formats milliseconds as k6 does.
func inWords(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d >= 100*time.Microsecond:
		return d.Round(time.Microsecond).String()
	}
	return d.Round(100 * time.Nanosecond).String()
}

func (m machine) String() string {
	parts := []string{m.Platform}
	if m.CPU != "" {
		parts = append(parts, m.CPU)
	}
	parts = append(parts, fmt.Sprint(m.Cores, " cores"))
	if m.Kernel != "" {
		parts = append(parts, "kernel "+m.Kernel)
	}
	parts = append(parts, m.Go, "backend "+m.Backend, m.Store)
	if m.FileSystem != "" {
		parts = append(parts, m.FileSystem)
	}
	if m.Tags != "" {
		parts = append(parts, "tags "+m.Tags)
	}
	if m.Revision != "" {
		parts = append(parts, "revision "+m.Revision)
	}
	return strings.Join(parts, ", ")
}

func (l *load) String() string {
	var stages []string
	for _, s := range l.Stages {
		stages = append(stages, fmt.Sprint(s.VUs, ":", s.Duration))
	}
	return fmt.Sprintf("stages %s in slices of about %v, seed %d, %d files shared, %d of each VU", strings.Join(stages, ","), l.Slice, l.Seed, l.Seeds, l.Own)
}
