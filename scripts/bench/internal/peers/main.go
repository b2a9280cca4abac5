// Package peers measures fileproc and other ways to read all files of a directory, on the same data and in interleaved
// rounds. It prints a line of JSON for each pass, from which scripts/bench_report.sh makes tables and plots:
//
//	bench peers -table peers -rounds 9 DIR...
//
// DIR is a set made by the command tickets. A side that does not see all of its files and bytes is excluded, and a line gives
// the reason. Built with one of fileproc's tags, bench measures that backend.
package peers

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// Main is the command peers.
func Main(_ context.Context, args []string) error {
	flag := flag.NewFlagSet("peers", flag.ContinueOnError)
	names := slices.Sorted(maps.Keys(tables))
	name := flag.String("table", "peers", "`table` to measure: "+strings.Join(names, ", "))
	rounds := flag.Int("rounds", 9, "interleaved `rounds`")
	minFiles := flag.Int("files", 20_000, "minimum number of `files` of a pass: a small set is processed several times")
	flag.StringVar(&build, "build", fileproc.Backend(), "`name` of this build in the table backends")
	flag.StringVar(&countProgram, "count", "", "`path` of the built command count, for the table programs")
	if err := flag.Parse(args); err != nil {
		return err
	}
	t, known := tables[*name]
	switch {
	case !known:
		return fmt.Errorf("unknown table %q: want one of %v", *name, names)
	case flag.NArg() == 0:
		return fmt.Errorf("want at least one directory made by the command tickets")
	case *rounds < 1 || *minFiles < 1:
		return fmt.Errorf("-rounds and -files must be at least 1")
	}
	for _, dir := range flag.Args() {
		s, err := openSet(dir)
		if err != nil {
			return err
		}
		repeat := max(1, *minFiles/s.Files)
		if t.before != nil {
			repeat = 1 // before must run before every call
		}
		m := measurement{table: *name, set: s, repeat: repeat, before: t.before, out: json.NewEncoder(os.Stdout)}
		sides, err := t.sides(s)
		if err == nil {
			err = m.run(sides, *rounds)
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", *name, s.name, err)
		}
	}
	return nil
}

// A set is a directory and the counts of its manifest.
type set struct {
	dir, name string
	Files     int   `json:"files"`
	Bytes     int64 `json:"bytes"`
}

// proc is the one directory that is not a set. Its entries change during a measurement.
const proc = "/proc"

func openSet(dir string) (s set, err error) {
	if dir == proc {
		list, err := os.ReadDir(dir)
		return set{dir: dir, name: "proc", Files: len(list)}, err
	}
	manifest := filepath.Clean(dir) + ".json"
	text, err := os.ReadFile(manifest)
	if err != nil {
		return s, fmt.Errorf("%w: make the set and its manifest with scripts/tickets", err)
	}
	s = set{name: strings.TrimPrefix(filepath.Base(dir), "tickets_")}
	if s.dir, err = filepath.EvalSymlinks(dir); err != nil { // half of the peers do not walk a symbolic link
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil || s.Files < 1 {
		return s, fmt.Errorf("%s: not a manifest of a set (%v)", manifest, err)
	}
	return s, nil
}

// A tally is the result of one call. Most sides count files and bytes; whole programs count matching files and lines.
type tally struct{ files, bytes int64 }

// A side is one way to process a set.
type side struct {
	who, version string
	missing      string // why the side cannot run here, if it cannot
	call         func() (tally, error)
	want         *tally // if nil, the tally of the table's first side
	changing     bool   // the data changes, so any tally is right
}

type measurement struct {
	table  string
	set    set
	repeat int          // calls in a pass
	before func() error // runs before each pass
	out    *json.Encoder
}

func (m measurement) run(sides []side, rounds int) error {
	sides, err := m.qualify(sides)
	if err != nil {
		return err
	}
	for round := range rounds {
		for i := range sides {
			// A different side goes first in each round, so that drift of the machine favours none.
			s := sides[(i+round)%len(sides)]
			r := record.Record{Table: m.table, Data: m.set.name, Who: s.who, Version: s.version, Files: m.set.Files * m.repeat}
			if r.Wall, r.CPU, err = m.pass(s); err != nil {
				return fmt.Errorf("%s: %w", s.who, err)
			}
			if err := m.out.Encode(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// qualify calls each side once, which also warms the caches, and returns the sides with the right tally.
func (m measurement) qualify(sides []side) (qualified []side, err error) {
	var first *tally
	for i, s := range sides {
		reason := s.missing
		if reason == "" {
			got, err := s.call()
			if first == nil {
				first = &got
			}
			if s.want == nil {
				s.want = first
			}
			if err == nil {
				err = s.check(got)
			}
			if err != nil {
				reason = strings.ReplaceAll(err.Error(), m.set.dir, m.set.name) // the report must not contain paths of the machine
			}
		}
		if reason == "" {
			qualified = append(qualified, s)
			continue
		}
		if i == 0 { // the other sides are compared with it
			return nil, fmt.Errorf("%s: %s", s.who, reason)
		}
		fmt.Fprintf(os.Stderr, "peers: %s: %s: %s is left out: %s\n", m.table, m.set.name, s.who, reason)
		r := record.Record{Table: m.table, Data: m.set.name, Who: s.who, Version: s.version, Text: "left out: " + reason}
		if err := m.out.Encode(r); err != nil {
			return nil, err
		}
	}
	return qualified, nil
}

func (s side) check(got tally) error {
	if got != *s.want && !s.changing {
		return fmt.Errorf("it saw %d files, %d bytes; right is %d files, %d bytes", got.files, got.bytes, s.want.files, s.want.bytes)
	}
	return nil
}

// pass returns nanoseconds. It collects garbage before it starts the clock, so that no side pays for another's.
func (m measurement) pass(s side) (wall, cpu float64, err error) {
	runtime.GC()
	if m.before != nil {
		if err := m.before(); err != nil {
			return 0, 0, err
		}
	}
	start, used := time.Now(), cpuTime()
	for range m.repeat {
		got, err := s.call()
		if err == nil {
			err = s.check(got)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return float64(time.Since(start)), float64(cpuTime() - used), nil
}
