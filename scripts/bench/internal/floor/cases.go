//go:build linux

package floor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/scripts/bench/internal/readers"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

// Bytes that a side reads of each file at a time.
const (
	cReadSize    = 4096 // the C loop
	prefixSize   = 2048
	onceReadSize = 64 << 10 // the C loop in -case once, which reads whole files, as fileproc does
)

var metadata = fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}

func (r *run) fileproc(opts fileproc.Options) turns.Side {
	return readers.Fileproc(r.ctx, r.dir, opts).Side("")
}

func (r *run) c(mode string, size int) turns.Side { return r.cLoop(r.dir, mode, size, r.threads) }

// cases are the values of -case.
var cases = map[string]func(*run){
	"whole": func(r *run) {
		r.compare(turns.Against("whole / C loop", r.fileproc(fileproc.Options{}), r.c("read", cReadSize)))
	},
	"prefix": func(r *run) {
		r.compare(turns.Against("prefix / C loop", r.fileproc(fileproc.Options{ReadSize: prefixSize}), r.c("read", prefixSize)))
	},
	"stat": func(r *run) {
		r.compare(turns.Against("stat / C loop with fstatat", r.fileproc(metadata), r.c("stat", 0)))
	},
	"names": func(r *run) {
		ours := readers.Entries(fileproc.ReadDir, r.dir).Side("")
		r.compare(turns.Against("ReadDir / bare getdents64", ours, r.c("names", 0)),
			turns.Against("ReadDir / os.ReadDir", ours, readers.Entries(os.ReadDir, r.dir).Side("")))
	},
	"walkdir": func(r *run) {
		r.compare(turns.Against("whole / WalkDir + ReadFile", r.fileproc(fileproc.Options{}), readers.WalkDir(r.dir).Side("")))
	},
	"plain": (*run).plain, "small": (*run).small, "shapes": (*run).shapes, "files": (*run).files, "again": (*run).again,
	"sweep": (*run).sweep, "uring": (*run).uring, "once": (*run).once, "allocs": (*run).allocs,
	"peak": (*run).peak, "bare": (*run).bare, "fio": (*run).fio,
}

func (r *run) files() {
	var listed []string
	for e, err := range fileproc.Walk(r.ctx, r.dir, fileproc.Options{}) {
		if err == nil && !e.IsDir() { // a run over names that are missing fails
			listed = append(listed, e.Rel())
		}
	}
	named := func(order string, names []string) turns.Comparison {
		return turns.Against("names "+order+" / a run that lists them",
			r.fileproc(fileproc.Options{Files: slices.Values(names)}), r.fileproc(fileproc.Options{}))
	}
	shuffled := slices.Clone(listed)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	r.compare(named("as listed", listed), named("sorted", slices.Sorted(slices.Values(listed))), named("shuffled", shuffled))
}

// sweep compares the default with other numbers of workers.
func (r *run) sweep() {
	var list []turns.Comparison
	for text := range strings.SplitSeq(r.workers, ",") {
		n, err := strconv.Atoi(text)
		fail.If(err != nil, "-workers: %w", err)
		list = append(list, turns.Against("default / Workers "+text,
			r.fileproc(fileproc.Options{}), r.fileproc(fileproc.Options{Workers: n})))
	}
	r.compare(list...)
}

// uring compares runs with io_uring and without, in a build that has it. A pass repeats the run until it has read some 20,000
// files, so that passes over small sets, where it matters what a ring costs to make, are no shorter than others.
func (r *run) uring() {
	with := readers.Fileproc(r.ctx, r.dir, fileproc.Options{})
	without := readers.Fileproc(r.ctx, r.dir, fileproc.Options{DisableURing: true})
	files, _, err := with()
	fail.On(err)
	calls := max(1, 20_000/max(1, files))
	r.compare(turns.Against(r.Data+", whole / the same without io_uring",
		with.Times(calls).Side(""), without.Times(calls).Side("")))
}

// small compares the cost of a call in small directories, where the set-up matters.
func (r *run) small() {
	r.overTrees(func(t tree) []turns.Comparison {
		if t.calls == 1 {
			return nil
		}
		return []turns.Comparison{turns.Against(t.name+" / ReadDir + ReadFile",
			r.timesOf(t, 0), readers.ReadDir(t.dir).Times(t.calls).Side(""))}
	})
}

// shapes compares trees of many small directories.
func (r *run) shapes() {
	r.overTrees(func(t tree) []turns.Comparison {
		if t.calls > 1 || t.files == 1 {
			return nil
		}
		return []turns.Comparison{turns.Against(t.name+" / C loop", r.timesOf(t, 0), r.cLoop(t.dir, "read", cReadSize, r.threads))}
	})
}

// plain compares with a plain WalkDir loop, also with one worker, on the set or, without one, on small trees.
func (r *run) plain() {
	compare := func(t tree) (list []turns.Comparison) {
		for _, workers := range []int{1, runtime.GOMAXPROCS(0)} {
			list = append(list, turns.Against(fmt.Sprintf("%s, Workers %d / WalkDir + ReadFile", t.name, workers),
				r.timesOf(t, workers), readers.WalkDir(t.dir).Times(t.calls).Side("")))
		}
		return list
	}
	if r.dir != "" {
		r.compare(compare(tree{name: r.Data, dir: r.dir, calls: 1})...)
	} else {
		r.overTrees(compare)
	}
}

// A tree has so many directories, or 1,000 in a chain, of so many files. A pass reads it so often that it sees about 2,000 files.
type tree struct {
	name               string
	dirs, files, calls int
	dir                string
}

func (r *run) timesOf(t tree, workers int) turns.Side {
	return readers.Fileproc(r.ctx, t.dir, fileproc.Options{Workers: workers}).Times(t.calls).Side("")
}

// overTrees makes small trees and compares what compare says.
func (r *run) overTrees(compare func(tree) []turns.Comparison) {
	tmp := r.temp("")
	const chain = 0
	var list []turns.Comparison
	for _, t := range []tree{
		{name: "1 files", dirs: 1, files: 1, calls: 2000}, {name: "2 files", dirs: 1, files: 2, calls: 1000},
		{name: "3 files", dirs: 1, files: 3, calls: 666}, {name: "5 files", dirs: 1, files: 5, calls: 400},
		{name: "10 files", dirs: 1, files: 10, calls: 200}, {name: "100 files", dirs: 1, files: 100, calls: 20},
		{name: "1,000 directories of 1", dirs: 1000, files: 1, calls: 1}, {name: "1,000 directories of 3", dirs: 1000, files: 3, calls: 1},
		{name: "chain of 1,000", dirs: chain, files: 3, calls: 1},
	} {
		t.dir = filepath.Join(tmp, t.name)
		for i := range max(1, t.dirs) {
			sub := ""
			if t.dirs == chain {
				sub = strings.Repeat("d/", 1000)
			} else if t.dirs > 1 {
				sub = strconv.Itoa(i)
			}
			fail.On(os.MkdirAll(filepath.Join(t.dir, sub), 0o755))
			for k := range t.files {
				fail.On(os.WriteFile(filepath.Join(t.dir, sub, fmt.Sprintf("ticket-%07d.md", k)), make([]byte, 400), 0o644))
			}
		}
		list = append(list, compare(t)...)
	}
	r.compare(list...)
}

// once prints one pass of one side as a line of JSON, without a pass before it to warm up. With cancel, a run of fileproc is
// cancelled so long after its beginning, and the seconds are those from there to its end: 0 if it has ended before.
func (r *run) once() {
	ctx, stop := context.WithCancel(r.ctx)
	defer stop()
	ours := func(opts fileproc.Options) turns.Side {
		work := readers.Fileproc(ctx, r.dir, opts)
		return turns.Work(func() (int, int64, error) {
			if r.cancel >= 0 {
				time.AfterFunc(r.cancel, stop)
			}
			return work()
		}).Side("")
	}
	var s turns.Side
	switch r.who {
	case "fileproc":
		s = ours(fileproc.Options{})
	case "fileproc-stat":
		s = ours(metadata)
	case "fileproc-again":
		fail.On(os.Chdir(r.dir)) // the cache file is for a root with the name "."
		s = turns.Work(func() (int, int64, error) {
			sizes, err := incremental.Process(ctx, ".", incremental.Options[int]{File: r.cache}, fileproc.Options{}, size)
			return len(sizes), 0, err
		}).Side("")
	case "c":
		s = r.c("whole", onceReadSize)
	case "c-order":
		s = r.inOrder(onceReadSize, r.threads)
	case "c-stat", "c-stat-order":
		s = r.c(strings.TrimPrefix(r.who, "c-"), 0)
	default:
		fail.If(true, "unknown side %q: -h lists them", r.who)
	}
	fail.If(s.Missing != "", "-side %s: %s", r.who, s.Missing)
	if r.Before != nil {
		s = s.After(r.Before)
	}
	p, err := s.Pass()
	if r.cancel >= 0 && (err == nil || errors.Is(err, context.Canceled)) {
		p.Wall, err = max(0, p.Wall-float64(r.cancel)), nil
	}
	fail.On(err)
	fail.On(json.NewEncoder(r.Out).Encode(struct {
		Files   int     `json:"files"`
		Bytes   int64   `json:"bytes"`
		Seconds float64 `json:"seconds"`
	}{p.Files, p.Bytes, p.Wall / 1e9}))
}

func (r *run) allocs() {
	var before, after runtime.MemStats
	work := readers.Fileproc(r.ctx, r.dir, fileproc.Options{ReadSize: prefixSize})
	runtime.ReadMemStats(&before)
	files, _, err := work()
	fail.On(err)
	runtime.ReadMemStats(&after)
	fmt.Fprintf(r.Out, "%.4f allocations a file, %d files, prefix\n", float64(after.Mallocs-before.Mallocs)/float64(max(files, 1)), files)
}

// peak streams the files and prints the peak memory of the process.
func (r *run) peak() {
	files := 0
	for _, err := range fileproc.Stream(r.ctx, r.dir, fileproc.Options{}, func(f *fileproc.File) (int, error) { return len(f.Data()), nil }) {
		fail.On(err)
		files++
	}
	for line := range strings.Lines(string(fail.Must(os.ReadFile("/proc/self/status")))) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			fmt.Fprintf(r.Out, "%s at most, %d files, Stream\n", strings.TrimSpace(kib), files)
		}
	}
}
