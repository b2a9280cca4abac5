package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/host"
)

// format is the version of the record. It changes with what a field means.
const format = 1

// A machine is what a run was measured on. It has no names of hosts and users, and no paths.
type machine struct {
	Platform   string // GOOS/GOARCH
	Kernel     string `json:",omitempty"`
	CPU        string `json:",omitempty"`
	Cores      int
	Go         string
	Revision   string `json:",omitempty"` // of fileproc
	Tags       string `json:",omitempty"` // build tags
	Backend    string // of fileproc; "io/fs" if it reads an fs.FS
	Store      string
	FileSystem string `json:",omitempty"`
}

// A sliceRecord is what was measured in a slice.
type sliceRecord struct {
	Stage, VUs, Pair int
	Side             string
	Metrics          map[string]metric
}

// A level summarises the slices with one number of VUs.
type level struct {
	VUs     int
	Metrics map[string]map[string]metric // by side and operation
}

// A record is what a run leaves.
type record struct {
	Format     int
	Machine    machine
	Load       load
	Sides      [2]string
	Thresholds []verdict
	Failures   []string                     // the first of them
	Total      map[string]map[string]metric // by side and operation
	Levels     []level
	Slices     []sliceRecord
}

func newRecord(m machine, l *load, sides [2]side, runs []sliceRun) *record {
	r := &record{Format: format, Machine: m, Load: *l, Sides: [2]string{sides[0].name, sides[1].name}}
	var levels []int
	for _, s := range runs {
		levels = append(levels, s.vus)
		r.Slices = append(r.Slices, sliceRecord{s.stage, s.vus, s.pair, r.Sides[s.side], summarizeAll([]sliceRun{s})})
	}
	slices.Sort(levels)
	for _, vus := range slices.Compact(levels) {
		r.Levels = append(r.Levels, level{vus, r.bySide(runs, func(s sliceRun) bool { return s.vus == vus })})
	}
	r.Total = r.bySide(runs, func(sliceRun) bool { return true })
	return r
}

func (r *record) bySide(runs []sliceRun, in func(sliceRun) bool) map[string]map[string]metric {
	all := map[string]map[string]metric{}
	for i, name := range r.Sides {
		var some []sliceRun
		for _, s := range runs {
			if s.side == i && in(s) {
				some = append(some, s)
			}
		}
		all[name] = summarizeAll(some)
	}
	return all
}

// summarizeAll returns the metrics of all operations in these slices together.
func summarizeAll(runs []sliceRun) map[string]metric {
	metrics := map[string]metric{}
	for op, name := range opNames {
		var all sample
		var elapsed time.Duration
		for _, s := range runs {
			all.latencies = append(all.latencies, s.ops[op].latencies...)
			all.failed += s.ops[op].failed
			all.bytes += s.ops[op].bytes
			elapsed += s.elapsed
		}
		metrics[name] = summarize(all, elapsed)
	}
	return metrics
}

func (r *record) save(name string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

func loadRecord(name string) (*record, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if r.Format != format || len(r.Slices) == 0 {
		return nil, fmt.Errorf("%s: not a record of this version of the command", name)
	}
	return r, nil
}

func describeMachine(s *store, dir, revision, tags string) machine {
	m := machine{
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), Revision: revision,
		Tags: tags, Backend: fileproc.Backend(), Store: s.kind, Kernel: host.Kernel(), CPU: host.CPU(),
	}
	if s.kind == kindFiles {
		m.FileSystem = host.FileSystem(dir)
	} else {
		m.Backend = "io/fs"
	}
	return m
}
