// Package report runs the measurements of the commands peers and floor, saves them in a file of JSON lines, and makes tables
// and plots from that file. scripts/bench_report.sh builds the commands and runs it.
package report

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/record"
)

var tableNames = []string{"peers", "programs", "backends", "readdir", "floor", "bare", "fio", "sizes", "workers", "cold", "warm", "ablation"}

// Main runs the command report.
func Main(_ context.Context, args []string) error {
	var m measurer
	flag := flag.NewFlagSet("report", flag.ContinueOnError)
	flag.StringVar(&m.bins, "bins", "", "`directory` with the built commands: peers, peers-nouring, peers-unix, peers-generic, count and, on Linux, floor")
	flag.StringVar(&m.data, "data", "", "`directory` of the sets")
	flag.BoolVar(&m.quick, "quick", false, "use sets of 5,000 files and few rounds")
	out := flag.String("out", "", "`directory` for benchmarks.md and img/")
	raw := flag.String("raw", "", "`file` with the measurements")
	only := flag.String("only", strings.Join(tableNames, ","), "`tables` to measure, or none; the others are drawn from the file")
	sets := flag.String("sets", "", "the tables' `sets` to measure, such as flat_1m (default: all)")
	check := flag.Bool("check", false, "check the arguments and stop")
	coldTable := flag.String("cold", "", "draw -out/img/cold.png from this `file`, the output of scripts/bench_cold.sh, and stop")
	if err := flag.Parse(args); err != nil {
		return err
	}
	if *coldTable != "" && *out != "" && flag.NArg() == 0 {
		return plotCold(*coldTable, *out)
	}
	if m.bins == "" || m.data == "" || *out == "" || *raw == "" || flag.NArg() > 0 {
		return errors.New("usage: report -bins DIR -data DIR -out DIR -raw FILE [-only TABLE,...] [-quick]")
	}

	var tables []string
	if *only != "none" {
		tables = strings.Split(*only, ",")
	}
	for _, table := range tables {
		if !slices.Contains(tableNames, table) {
			return fmt.Errorf("unknown table %q: want some of %v", table, tableNames)
		}
	}
	if *sets != "" {
		m.only = strings.Split(*sets, ",")
	}
	for _, set := range m.only {
		if !slices.ContainsFunc(tables, func(table string) bool { return slices.Contains(m.plan(table).sets, set) }) {
			return fmt.Errorf("none of these tables measures a set %q", set)
		}
	}
	records, err := load(*raw)
	if err != nil || *check {
		return err
	}
	for _, table := range tables {
		fmt.Fprintln(os.Stderr, "measuring", table)
		fresh, err := m.measure(table)
		if err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
		records = slices.DeleteFunc(records, func(r record.Record) bool {
			return r.Table == table && (m.only == nil || slices.Contains(m.only, r.Data)) || r.Table == "machine"
		})
		records = append(append(records, fresh...), machine(m.data)...)
		if err := save(*raw, records); err != nil { // after each table, so that a later failure loses nothing
			return err
		}
	}
	return write(*out, records)
}

func load(name string) (records []record.Record, err error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if records, err = decode(string(text)); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return records, nil
}

// decode returns an error if a command has printed anything but records.
func decode(text string) (records []record.Record, err error) {
	for line := range strings.Lines(text) {
		var r record.Record
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		err := dec.Decode(&r)
		if err == nil && r.Table == "" {
			err = errors.New("not a record")
		}
		if err != nil {
			return nil, fmt.Errorf("%w in %q", err, line)
		}
		records = append(records, r)
	}
	return records, nil
}

func save(name string, records []record.Record) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, r := range records {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return errors.Join(w.Flush(), f.Close())
}

type measurer struct {
	bins, data string
	quick      bool
	only       []string // sets; nil: all
}

// A plan lists the measurements of a table.
type plan struct {
	sets   []string
	rounds int
	cases  []string // of the command floor; nil: the command peers
}

func (m measurer) plan(table string) plan {
	large, huge := []string{"flat_100k", "nested1_100k"}, []string{"flat_1m", "nested1_1m"}
	small := []string{"flat_1k", "nested1_1k", "flat_5k", "nested1_5k"}
	sizes := []string{"flat_1", "flat_10", "flat_100", "flat_1k", "flat_10k", "flat_100k", "flat_1m"}
	readdir := []string{"proc", "flat_1k", "flat_5k", "flat_100k", "flat_1m"}
	rounds := 9
	if m.quick {
		large, huge, small = []string{"flat_5k", "nested1_5k"}, nil, []string{"flat_1k"}
		sizes = []string{"flat_1", "flat_10", "flat_100", "flat_1k", "flat_5k"}
		readdir = []string{"proc", "flat_1k", "flat_5k"}
		rounds = 3
	}
	switch table {
	case "backends":
		return plan{sets: slices.Concat(small, large, huge), rounds: rounds}
	case "readdir":
		return plan{sets: readdir, rounds: rounds}
	case "floor":
		return plan{slices.Concat(large, huge), rounds, []string{"whole", "prefix", "stat", "names"}}
	case "bare":
		return plan{large[:1], (rounds + 1) / 2, []string{"bare"}}
	case "fio":
		return plan{large[:1], (rounds + 1) / 2, []string{"fio"}}
	case "sizes":
		return plan{sets: sizes, rounds: rounds}
	case "cold":
		return plan{sets: large[:1], rounds: 3} // each pass takes seconds
	case "workers", "warm", "ablation":
		return plan{sets: large[:1], rounds: rounds}
	}
	return plan{sets: large, rounds: rounds}
}

func (m measurer) measure(table string) (records []record.Record, err error) {
	p := m.plan(table)
	if table == "cold" && !canDropCaches() {
		return leftOutRecord(table, "measuring with cold caches needs Linux and root"), nil
	}
	for _, set := range p.sets {
		if m.only != nil && !slices.Contains(m.only, set) {
			continue
		}
		rounds, dir := p.rounds, filepath.Join(m.data, "tickets_"+set)
		if set == "proc" {
			dir = "/proc"
			if _, err := os.Stat(dir); err != nil {
				continue
			}
		} else if _, err := os.Stat(dir + ".json"); errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(set, "_1m") {
			fmt.Fprintf(os.Stderr, "report: %s: skipping %s, which scripts/tickets has not made\n", table, set)
			continue
		}
		if strings.HasSuffix(set, "_1m") {
			rounds = 3 // each pass takes seconds
		}
		fresh, err := m.measureSet(table, dir, rounds, p.cases)
		if err != nil {
			return nil, err
		}
		records = append(records, fresh...)
	}
	return records, nil
}

func leftOutRecord(table, reason string) []record.Record {
	fmt.Fprintf(os.Stderr, "report: %s is left out: %s\n", table, reason)
	return []record.Record{{Table: table, Text: "left out: " + reason}}
}

// measureSet runs the table's program on a set. The backends are one program built with different tags; the builds take turns
// in each round.
func (m measurer) measureSet(table, dir string, rounds int, cases []string) (records []record.Record, err error) {
	run := func(program string, args ...string) error {
		text, err := output(filepath.Join(m.bins, program), args...)
		if err != nil {
			return err
		}
		fresh, err := decode(text)
		for i := range fresh {
			fresh[i].Table = table
		}
		records = append(records, fresh...)
		return err
	}
	switch {
	case cases != nil:
		if _, err := os.Stat(filepath.Join(m.bins, "floor")); err != nil {
			return leftOutRecord(table, "the command floor needs Linux"), nil
		}
		for _, c := range cases {
			if c == "names" && !strings.Contains(dir, "_flat_") {
				continue // the case lists a single directory
			}
			if err := run("floor", "floor", "-json", "-dir", dir, "-case", c, "-pairs", fmt.Sprint(rounds), "-passes", "3"); err != nil {
				return nil, err
			}
		}
	case table == "backends":
		for round := range rounds {
			for i := range builds {
				build := builds[(i+round)%len(builds)] // a different build goes first in each round
				program := "peers"
				if build != builds[0] {
					program += "-" + build
				}
				if err := run(program, "peers", "-table", table, "-rounds", "1", "-build", build, dir); err != nil {
					return nil, err
				}
			}
		}
	default:
		err = run("peers", "peers", "-table", table, "-rounds", fmt.Sprint(rounds), "-count", filepath.Join(m.bins, "count"), dir)
	}
	return records, err
}

// builds are the programs of the table backends, named by their build tags. The first one is built without a tag.
var builds = []string{"linux", "nouring", "unix", "generic"}

func output(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	return string(out), nil
}
