package report

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/measure"
)

// A coldCase is a row of the table that scripts/bench_cold.sh prints, as percentages of the usual loop.
type coldCase struct {
	name           string
	requests, time float64
}

var coldRow = regexp.MustCompile(`^\| ([^|]+) \| (\d+) \| [0-9.]+ s \(([0-9.]+)\) \| (\d+) \|`)

// readCold returns the rows of a table that have figures.
func readCold(table string) (cases []coldCase) {
	for line := range strings.Lines(table) {
		m := coldRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		ours, _ := strconv.ParseFloat(m[2], 64) // the expression allows nothing that fails
		ratio, _ := strconv.ParseFloat(m[3], 64)
		theirs, _ := strconv.ParseFloat(m[4], 64)
		cases = append(cases, coldCase{m[1], 100 * ours / theirs, 100 * ratio})
	}
	return cases
}

// plotCold draws the table in file to out/img/cold.png.
func plotCold(file, out string) error {
	table, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	cases := readCold(string(table))
	if len(cases) == 0 {
		return errors.New(file + " has no rows of scripts/bench_cold.sh with figures")
	}
	var names []string
	values := map[string]coldCase{}
	for _, c := range cases {
		names = append(names, c.name)
		values[c.name] = c
	}
	return barChart{
		title: "Cold trees: requests to the disk, and time (shorter is better)", unit: "percent of the usual loop's", names: names,
		kinds: []string{"requests", "time"},
		value: func(name, kind string) (measure.Spread, bool) {
			v := values[name].requests
			if kind == "time" {
				v = values[name].time
			}
			return measure.Spread{Median: v, Min: v, Max: v}, true
		},
		label:   "%.1f",
		caption: "The usual loop lists and then opens, reads and closes each file, with 32 threads.\nMedians; where no disk is named, an emulated one that only counts.",
	}.save(filepath.Join(out, "img", "cold.png"))
}
