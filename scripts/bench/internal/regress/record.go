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
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/perf/benchmath"
	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/host"
	"github.com/fileproc/fileproc/scripts/internal/measure"
)

// schema changes when an older entry can no longer be compared: other fields, another floor, another way to sample.
const schema = 1

// A meta says where and of what an entry is. It names no host, no user and no path.
type meta struct {
	Schema     int    `json:"schema"`
	Time       string `json:"time"` // UTC
	Tag        string `json:"tag,omitempty"`
	BuildTags  tags   `json:"build_tags,omitempty"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	Kernel     string `json:"kernel"`
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	Filesystem string `json:"filesystem"`
	IOUring    bool   `json:"io_uring"` // whether it is allowed
	Commit     string `json:"commit"`
	Dirty      bool   `json:"dirty"`
}

type entry struct {
	meta
	Cases  map[string]series `json:"cases"`
	Counts map[string]counts `json:"counts,omitempty"` // of some cases; older entries have none
}

func (c clone) meta(tag string, with tags) meta {
	// A ring is refused before its arguments are read, or not at all: containers often forbid it.
	_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
	m := meta{Schema: schema, Time: time.Now().UTC().Format(time.RFC3339), Tag: tag, BuildTags: with, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Kernel: host.Kernel(), CPU: host.CPU(), Cores: runtime.GOMAXPROCS(0),
		Filesystem: host.FileSystem(c.data()), IOUring: errno == unix.EFAULT}
	m.Commit, m.Dirty = c.revision()
	return m
}

// sameMachine reports whether times of both can be expected to be alike.
func (m meta) sameMachine(o meta) bool { return m.sameCalls(o) && m.CPU == o.CPU && m.Cores == o.Cores }

// sameCalls reports whether the same code makes the same system calls on both: processor and cores do not matter.
func (m meta) sameCalls(o meta) bool {
	return m.Filesystem == o.Filesystem && m.Platform == o.Platform && m.IOUring == o.IOUring
}

func (m meta) String() string {
	say := func(is bool, what string) string { return map[bool]string{true: what}[is] }
	return fmt.Sprintf("%.12s%s of %s (%s%s, %s, %d cores, Linux %s, %s, %sio_uring)",
		m.Commit, say(m.Dirty, " with changes"), m.Time, m.Go, say(m.BuildTags != "", " with "+m.BuildTags.String()),
		m.CPU, m.Cores, m.Kernel, m.Filesystem, say(!m.IOUring, "no "))
}

const baselineKeeps = 5 // entries

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

// appendEntry adds an entry. The file keeps at most so many of those with the same build tags, the newest.
func (c clone) appendEntry(e entry) {
	entries, keep := append(c.readEntries(), e), baselineKeeps
	for i, old := range slices.Backward(entries) {
		if old.BuildTags == e.BuildTags {
			if keep--; keep < 0 {
				entries = slices.Delete(entries, i, i+1)
			}
		}
	}
	var text []byte
	for _, e := range entries {
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

// choose returns the newest entry from a machine like this one, or the newest of all, with the samples of all entries of
// the same commit from the same machine: they are from several hours.
func choose(entries []entry, here meta) entry {
	chosen := entries[len(entries)-1]
	for _, e := range entries {
		if e.sameMachine(here) {
			chosen = e
		}
	}
	chosen.Cases = map[string]series{}
	for _, e := range entries {
		if e.Commit == chosen.Commit && e.sameMachine(chosen.meta) {
			for name, s := range e.Cases {
				chosen.Cases[name] = chosen.Cases[name].and(s)
			}
		}
	}
	return chosen
}

// having returns the cases that the entry has too: all of them if they were asked for.
func (e entry) having(cases []benchCase, asked bool) (both []benchCase) {
	for _, bc := range cases {
		if e.Cases[bc.String()].Ratio != nil {
			both = append(both, bc)
			continue
		}
		fail.If(asked, "the baseline has no case %v: measure it with scripts/bench_regress.sh --sizes …, or choose with --sizes", bc)
		fmt.Println("left out, since the baseline does not have it:", bc)
	}
	fail.If(both == nil, "the baseline has none of these cases: measure them with scripts/bench_regress.sh --sizes …")
	return both
}

// countsLike returns the counts of the newest entry that has some and makes the calls of here, or why there are none.
func countsLike(entries []entry, here meta) (of map[string]counts, why string) {
	why = "the baseline has none; scripts/bench_regress.sh records them"
	for _, e := range slices.Backward(entries) {
		if e.Counts != nil && e.sameCalls(here) {
			return e.Counts, ""
		}
		if e.Counts != nil {
			why = "the baseline has none of a machine with this platform and file system, and io_uring allowed or not as here"
		}
	}
	return nil, why
}

func record(f *flag.FlagSet) func(clone) {
	sel := selection{runs: 20}
	sel.flags(f)
	tag := f.String("tag", "", "a `word` for the entry")
	update := f.Bool("update-baseline", false, "append to .benchmarks/baseline.jsonl, which is committed")
	return func(c clone) {
		_, dirty := c.revision()
		fail.If(dirty && *update, "a dirty tree cannot be the baseline: commit first (git status says what)")
		src := c.workingTree()
		c.readEntries() // before minutes are spent
		cases, new := sel.cases(c), newSide(c.made("bench.test"))
		c.build(src, new.binary)
		c.measureAll(cases, sel.runs, new)
		e := entry{c.meta(*tag, src.tags), new.cases, c.count(src, cases)}
		if *update {
			c.appendEntry(e)
		}
		fmt.Println(e.meta)
		for _, bc := range cases {
			s := e.Cases[bc.String()]
			ratio := benchmath.AssumeNothing.Summary(measure.NewSample(s.Ratio), 0.95)
			fmt.Printf("%24v: %8.0f ns a file, %8.0f of the floor, %.3f times the floor ± %s\n",
				bc, measure.Median(s.Time), measure.Median(s.Floor), ratio.Center, ratio.PctRangeString())
		}
		for _, name := range slices.Sorted(maps.Keys(e.Counts)) {
			fmt.Printf("%s a run or a file: %v\n", name, e.Counts[name])
		}
	}
}
