// Command report runs the measurements of the commands peers and floor, keeps them in a file of JSON lines, and makes
// tables and plots of what is in that file. scripts/bench_report.sh builds what it needs and runs it.
package main

import (
	"bufio"
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

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

var tableNames = []string{"peers", "programs", "backends", "floor", "sizes", "workers", "cold", "warm", "ablation"}

func run() error {
	var m measurer
	flag.StringVar(&m.bins, "bins", "", "`directory` with the built commands: peers, peers-unix, peers-generic, count and, on Linux, floor")
	flag.StringVar(&m.data, "data", "", "`directory` of the sets")
	flag.BoolVar(&m.quick, "quick", false, "sets of 5,000 files and few rounds")
	out := flag.String("out", "", "`directory` for benchmarks.md and img/")
	raw := flag.String("raw", "", "`file` with the measurements")
	only := flag.String("only", strings.Join(tableNames, ","), "`tables` to measure; the others, or all with none, are drawn as they are in the file")
	flag.Parse()
	if m.bins == "" || m.data == "" || *out == "" || *raw == "" || flag.NArg() > 0 {
		return errors.New("usage: report -bins DIR -data DIR -out DIR -raw FILE [-only TABLE,...] [-quick]")
	}

	records, err := load(*raw)
	if err != nil {
		return err
	}
	if *only != "none" {
		for _, table := range strings.Split(*only, ",") {
			if !slices.Contains(tableNames, table) {
				return fmt.Errorf("unknown table %q: want some of %v", table, tableNames)
			}
			fmt.Fprintln(os.Stderr, "measuring", table)
			fresh, err := m.measure(table)
			if err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
			records = slices.DeleteFunc(records, func(r record.Record) bool { return r.Table == table || r.Table == "machine" })
			records = append(append(records, fresh...), machine(m.data)...)
			if err := save(*raw, records); err != nil { // now, so that a later failure loses nothing
				return err
			}
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

func decode(text string) (records []record.Record, err error) {
	for line := range strings.Lines(text) {
		var r record.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
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
}

func (m measurer) measure(table string) ([]record.Record, error) {
	large := []string{"flat_100k", "nested1_100k"}
	sizes := []string{"flat_1", "flat_10", "flat_100", "flat_1k", "flat_10k", "flat_100k", "flat_1m"}
	backends := []string{"flat_1k", "nested1_1k", "flat_5k", "nested1_5k", "flat_100k", "nested1_100k", "flat_1m", "nested1_1m"}
	rounds := 9
	if m.quick {
		large = []string{"flat_5k", "nested1_5k"}
		sizes = []string{"flat_1", "flat_10", "flat_100", "flat_1k", "flat_5k"}
		backends = large
		rounds = 3
	}
	switch table {
	case "floor":
		return m.floor(large, rounds)
	case "backends":
		return m.peers(table, rounds, backends, "peers", "peers-unix", "peers-generic")
	case "sizes":
		return m.peers(table, rounds, sizes, "peers")
	case "cold":
		if !canDropCaches() {
			return left(table, "measuring with cold caches takes Linux and root"), nil
		}
		return m.peers(table, 3, large[:1], "peers") // each pass takes seconds
	case "workers", "warm", "ablation":
		return m.peers(table, rounds, large[:1], "peers")
	default:
		return m.peers(table, rounds, large, "peers")
	}
}

func left(table, reason string) []record.Record {
	fmt.Fprintf(os.Stderr, "report: %s is left out: %s\n", table, reason)
	return []record.Record{{Table: table, Text: reason}}
}

// peers runs the programs. Several, which are one program built with different tags, take turns in each round.
func (m measurer) peers(table string, rounds int, sets []string, programs ...string) (records []record.Record, err error) {
	for _, set := range sets {
		dir := filepath.Join(m.data, "tickets_"+set)
		if _, err := os.Stat(dir + ".json"); errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(set, "_1m") {
			fmt.Fprintf(os.Stderr, "report: %s: no %s here, going on without\n", table, set)
			continue
		}
		rounds := rounds
		if strings.HasSuffix(set, "_1m") {
			rounds = 3 // each pass takes seconds
		}
		turns, perTurn := 1, rounds
		if len(programs) > 1 {
			turns, perTurn = rounds, 1
		}
		for range turns {
			for _, p := range programs {
				got, err := output(filepath.Join(m.bins, p), "-table", table, "-rounds", fmt.Sprint(perTurn), "-count", filepath.Join(m.bins, "count"), dir)
				if err != nil {
					return nil, err
				}
				fresh, err := decode(got)
				if err != nil {
					return nil, err
				}
				records = append(records, fresh...)
			}
		}
	}
	return records, nil
}

func (m measurer) floor(sets []string, pairs int) (records []record.Record, err error) {
	program := filepath.Join(m.bins, "floor")
	if _, err := os.Stat(program); err != nil {
		return left("floor", "the command floor takes Linux"), nil
	}
	for _, set := range sets {
		for _, c := range []string{"whole", "prefix", "stat", "names"} {
			if c == "names" && !strings.HasPrefix(set, "flat") {
				continue // it lists one directory
			}
			got, err := output(program, "-dir", filepath.Join(m.data, "tickets_"+set), "-case", c, "-pairs", fmt.Sprint(pairs), "-passes", "3")
			if err != nil {
				return nil, err
			}
			for line := range strings.Lines(got) {
				records = append(records, record.Record{Table: "floor", Data: set, Text: strings.TrimRight(line, "\n")})
			}
		}
	}
	return records, nil
}

func output(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	return string(out), nil
}
