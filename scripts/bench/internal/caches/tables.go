//go:build linux

package caches

import (
	"fmt"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/measure"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// The sides of the cases.
const (
	ours       = "fileproc"
	checked    = "fileproc, checked"
	theirs     = "cachefs"
	theirOther = "corfs"
	bare       = "no cache"
)

var sides = []string{ours, checked, theirs, theirOther, bare}

// Tables are those of docs/cache.md, by the names of the benchmarks.
var Tables = map[string]func(record.Results) string{
	// A row for each case. A ratio is the median of the ratios to fileproc, round by round.
	"cases": func(r record.Results) string {
		columns := append(bySet(r, "ns", sides), column{Head: "cachefs / fileproc", Cell: times(r, theirs)},
			column{Head: "corfs / fileproc", Cell: times(r, theirOther)}, column{Head: "allocations", Cell: func(set string) string {
				var all []string
				for _, side := range sides {
					all = append(all, cell(r.Find(set, side), "%.3g", "mallocs/op"))
				}
				return strings.Join(all, ", ")
			}})
		return record.Table(r.Sets(), columns...)
	},
	// A miss with an eviction, LFU, the same 1,000 files in turn.
	"eviction": func(r record.Results) string {
		return record.Table(r.Sets(), bySet(r, "entries", []string{ours, theirs})...)
	},
	// Zipf with a scan, in which four fifths of the operations are outside of the scan.
	"policies": func(r record.Results) string {
		type column = record.Column[*record.Series]
		hits := func(unit string, of float64) func(*record.Series) string {
			return func(s *record.Series) string { return fmt.Sprintf("%.1f", 100-100*s.Median(unit)/of) }
		}
		return record.Table(r, column{Head: "", Cell: func(s *record.Series) string { return s.Who }},
			column{Head: "hits, %", Cell: hits("reads/op", 1)}, column{Head: "hits outside of the scan, %", Cell: hits("hot/op", 0.8)},
			column{Head: "ns", Cell: func(s *record.Series) string { return cell(s, "%.0f", record.Wall) }})
	},
}

type column = record.Column[string]

// bySet returns the columns of the times of sides.
func bySet(r record.Results, head string, sides []string) []column {
	columns := []column{{Head: head, Cell: func(set string) string { return set }}}
	for _, side := range sides {
		columns = append(columns, column{Head: strings.TrimPrefix(side, "fileproc, "), Cell: func(set string) string {
			return cell(r.Find(set, side), "%.0f", record.Wall)
		}})
	}
	return columns
}

func times(r record.Results, side string) func(set string) string {
	return func(set string) string {
		if ratio, ok := r.Find(set, side).Over(r.Find(set, ours), record.Wall); ok {
			return fmt.Sprintf("%.2f", ratio.Median)
		}
		return "–"
	}
}

// cell is a dash if there is no such side.
func cell(s *record.Series, format, unit string) string {
	if s == nil {
		return "–"
	}
	return measure.English.Sprintf(format, s.Median(unit))
}
