//go:build linux

package regress

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/host"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// schema is increased when older entries can no longer be compared.
const schema = 2

// An entry of the baseline has a commit, which is built again to compare times, and its counts. It names no host, no user and no path.
type entry struct {
	Schema     int                `json:"schema"`
	Time       string             `json:"time"` // UTC
	Commit     string             `json:"commit"`
	BuildTags  tags               `json:"build_tags,omitempty"`
	Machine    string             `json:"machine"`
	Platform   string             `json:"platform"`
	Filesystem string             `json:"filesystem"`
	IOUring    bool               `json:"io_uring"` // whether the kernel allows it
	Counts     map[string]counts  `json:"counts"`
	NS         map[string]float64 `json:"ns_a_file"` // medians, only for the reader
}

// entry returns an entry for the working tree, without counts and times.
func (c clone) entry(with tags) entry {
	// Containers often forbid io_uring. The kernel refuses it before it reads the arguments, which are invalid here.
	_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
	commit, _ := c.revision()
	return entry{schema, time.Now().UTC().Format(time.RFC3339), commit, with, host.Machine(c.data()), runtime.GOOS + "/" + runtime.GOARCH,
		host.FileSystem(c.data()), errno == unix.EFAULT, nil, map[string]float64{}}
}

// sameCalls reports whether the same code makes the same system calls on both machines. Processor and cores do not matter.
func (e entry) sameCalls(o entry) bool {
	return e.Platform == o.Platform && e.Filesystem == o.Filesystem && e.IOUring == o.IOUring
}

func (e entry) String() string { return fmt.Sprintf("%.12s of %s (%s)", e.Commit, e.Time, e.Machine) }

func (c clone) baseline() string { return filepath.Join(c.root, ".benchmarks", "baseline.jsonl") }

// readEntries returns the entries of the baseline, the newest last.
func (c clone) readEntries() (entries []entry) {
	data, err := os.ReadFile(c.baseline())
	fail.If(err != nil && !errors.Is(err, fs.ErrNotExist), "%w", err)
	for text := range bytes.Lines(data) {
		var e entry
		err := json.Unmarshal(text, &e)
		fail.If(err != nil, "baseline.jsonl, line %d: %w", len(entries)+1, err)
		fail.If(e.Schema != schema, "baseline.jsonl, line %d, has schema version %d, and this command compares version %d: "+
			"remove the file and measure again", len(entries)+1, e.Schema, schema)
		entries = append(entries, e)
	}
	return entries
}

// appendEntry adds an entry. It replaces the entry with the same build tags from a machine where the same calls are made.
func (c clone) appendEntry(e entry) {
	entries := slices.DeleteFunc(c.readEntries(), func(old entry) bool { return old.BuildTags == e.BuildTags && old.sameCalls(e) })
	var text []byte
	for _, e := range append(entries, e) {
		text = append(append(text, fail.Must(json.Marshal(e))...), '\n')
	}
	fail.On(os.WriteFile(c.baseline()+".tmp", text, 0o644))
	fail.On(os.Rename(c.baseline()+".tmp", c.baseline()))
}

// entriesWith returns the entries that were built with these tags. Other builds are not comparable.
func (c clone) entriesWith(want tags) []entry {
	entries := c.readEntries()
	fail.If(len(entries) == 0, "there is no .benchmarks/baseline.jsonl to compare with: scripts/bench_regress.sh --update-baseline makes it")
	newest := entries[len(entries)-1].BuildTags
	entries = slices.DeleteFunc(entries, func(e entry) bool { return e.BuildTags != want })
	fail.If(len(entries) == 0, "the working tree is built with %v, but no entry of the baseline is; the newest was built with %v", want, newest)
	return entries
}

func measure(f *flag.FlagSet) func(clone) {
	sel := selection{runs: 20}
	sel.flags(f)
	update := f.Bool("update-baseline", false, "write it into .benchmarks/baseline.jsonl, which is committed")
	return func(c clone) {
		_, dirty := c.revision()
		fail.If(dirty && *update, "a dirty tree cannot be the baseline: commit first (git status says what)")
		src := c.workingTree()
		c.readEntries() // an error should come before minutes are spent
		cases, new := sel.cases(c), newSide("new")
		c.build(src, c.made("new.test"))
		c.measureAll(cases, sel.runs, new)
		e := c.entry(src.tags)
		for bc, ns := range new.samples {
			e.NS[bc.String()] = math.Round(record.Median(ns))
		}
		fmt.Printf("%v\n%s\n", e, c.benchstat(new))
		e.Counts = c.count(src, cases)
		for _, name := range slices.Sorted(maps.Keys(e.Counts)) {
			fmt.Printf("%s a run or a file: %v\n", name, e.Counts[name])
		}
		if *update {
			c.appendEntry(e)
		}
	}
}
