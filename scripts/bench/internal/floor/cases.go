//go:build linux

package floor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/bench/internal/readers"
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

func (r *run) whole() error {
	return r.compare(turns.Against("whole / C loop", r.fileproc(fileproc.Options{}), r.cLoop(r.dir, "read", cReadSize, r.threads)))
}

func (r *run) prefix() error {
	return r.compare(turns.Against("prefix / C loop", r.fileproc(fileproc.Options{ReadSize: prefixSize}), r.cLoop(r.dir, "read", prefixSize, r.threads)))
}

func (r *run) stat() error {
	return r.compare(turns.Against("stat / C loop with fstatat", r.fileproc(metadata), r.cLoop(r.dir, "stat", 0, r.threads)))
}

func (r *run) names() error {
	ours := readers.Entries(fileproc.ReadDir, r.dir).Side("")
	return r.compare(
		turns.Against("ReadDir / bare getdents64", ours, r.cLoop(r.dir, "names", 0, r.threads)),
		turns.Against("ReadDir / os.ReadDir", ours, readers.Entries(os.ReadDir, r.dir).Side("")))
}

func (r *run) walkDir() error {
	return r.compare(turns.Against("whole / WalkDir + ReadFile", r.fileproc(fileproc.Options{}), readers.WalkDir(r.dir).Side("")))
}

func (r *run) files() (err error) {
	var listed []string
	for e, err := range fileproc.Walk(r.ctx, r.dir, fileproc.Options{}) {
		if err == nil && !e.IsDir() { // a run over names that are missing fails
			listed = append(listed, e.Rel())
		}
	}
	shuffled := slices.Clone(listed)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	var list []turns.Comparison
	for _, names := range []struct {
		order string
		list  []string
	}{{"as listed", listed}, {"sorted", slices.Sorted(slices.Values(listed))}, {"shuffled", shuffled}} {
		list = append(list, turns.Against("names "+names.order+" / a run that lists them",
			r.fileproc(fileproc.Options{Files: slices.Values(names.list)}), r.fileproc(fileproc.Options{})))
	}
	return r.compare(list...)
}

// sweep compares the default with other numbers of workers.
func (r *run) sweep() error {
	var list []turns.Comparison
	for text := range strings.SplitSeq(r.workers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-workers: %w", err)
		}
		list = append(list, turns.Against("default / Workers "+text, r.fileproc(fileproc.Options{}), r.fileproc(fileproc.Options{Workers: n})))
	}
	return r.compare(list...)
}

// uring compares runs with io_uring and without, in a build that has it. A pass repeats the run until it has read some 20,000
// files, so that passes over small sets, where it matters what a ring costs to make, are no shorter than others.
func (r *run) uring() error {
	with, without := readers.Fileproc(r.ctx, r.dir, fileproc.Options{}), readers.Fileproc(r.ctx, r.dir, fileproc.Options{DisableURing: true})
	files, _, err := with()
	if err != nil {
		return err
	}
	calls := max(1, 20_000/max(1, files))
	return r.compare(turns.Against(r.Data+", whole / the same without io_uring", with.Times(calls).Side(""), without.Times(calls).Side("")))
}

// coldCaches compares with the C loop in the order of the listing, in more and more threads, and in the order of the disk.
func (r *run) coldCaches() error {
	r.cold, r.Passes = true, 1
	r.LeaveOut = true // the order of the disk needs io_uring
	var list []turns.Comparison
	for _, threads := range []int{2, 8, 32, 64} {
		list = append(list, turns.Against(fmt.Sprintf("cold / C loop of %d threads", threads),
			r.fileproc(fileproc.Options{}), r.cLoop(r.dir, "read", cReadSize, threads)))
	}
	return r.compare(append(list, turns.Against("cold / loop in the disk's order", r.fileproc(fileproc.Options{}), r.inOrder(cReadSize, 2)))...)
}

// small compares the cost of a call in small directories, where the set-up matters.
func (r *run) small() error {
	small, _, err := r.makeTrees()
	if err != nil {
		return err
	}
	var list []turns.Comparison
	for _, t := range small {
		list = append(list, turns.Against(t.name+" / ReadDir + ReadFile",
			readers.Fileproc(r.ctx, t.dir, fileproc.Options{}).Times(t.calls).Side(""), readers.ReadDir(t.dir).Times(t.calls).Side("")))
	}
	return r.compare(list...)
}

// shapes compares trees of many small directories.
func (r *run) shapes() error {
	_, shapes, err := r.makeTrees()
	if err != nil {
		return err
	}
	var list []turns.Comparison
	for _, t := range shapes[1:] {
		list = append(list, turns.Against(t.name+" / C loop",
			readers.Fileproc(r.ctx, t.dir, fileproc.Options{}).Side(""), r.cLoop(t.dir, "read", cReadSize, r.threads)))
	}
	return r.compare(list...)
}

// plain compares with a plain WalkDir loop, also with one worker, on the set or, without one, on small trees.
func (r *run) plain() error {
	trees := []tree{{r.Data, r.dir, 1}}
	if r.dir == "" {
		small, shapes, err := r.makeTrees()
		if err != nil {
			return err
		}
		trees = append(small, shapes...)
	}
	var list []turns.Comparison
	for _, t := range trees {
		for _, workers := range []int{1, runtime.GOMAXPROCS(0)} {
			list = append(list, turns.Against(fmt.Sprintf("%s, Workers %d / WalkDir + ReadFile", t.name, workers),
				readers.Fileproc(r.ctx, t.dir, fileproc.Options{Workers: workers}).Times(t.calls).Side(""), readers.WalkDir(t.dir).Times(t.calls).Side("")))
		}
	}
	return r.compare(list...)
}

// A tree is a directory that a pass reads so often that it sees about 2,000 files.
type tree struct {
	name, dir string
	calls     int
}

// makeTrees makes directories of few files, and trees of many such directories.
func (r *run) makeTrees() (small, shapes []tree, err error) {
	tmp, err := r.temp("")
	if err != nil {
		return nil, nil, err
	}
	add := func(to *[]tree, name string, calls, files int, dirs ...string) {
		t := tree{name, filepath.Join(tmp, name), calls}
		for _, dir := range dirs {
			err = errors.Join(err, writeFiles(filepath.Join(t.dir, dir), files))
		}
		*to = append(*to, t)
	}
	for _, n := range []int{1, 2, 3, 5, 10, 100} {
		add(&small, fmt.Sprintf("%d files", n), 2000/n, n, ".")
	}
	many := make([]string, 1000)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	add(&shapes, "1,000 directories of 1", 1, 1, many...)
	add(&shapes, "1,000 directories of 3", 1, 3, many...)
	add(&shapes, "chain of 1,000", 1, 3, strings.Repeat("d/", len(many)))
	return small, shapes, err
}

func writeFiles(dir string, n int) error {
	err := os.MkdirAll(dir, 0o755)
	for i := range n {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("ticket-%07d.md", i)), make([]byte, 400), 0o644))
	}
	return err
}

// once prints one pass of one side as a line of JSON, without a pass before it to warm up. With cancel, a run of fileproc is
// cancelled so long after its beginning, and the seconds are those from there to its end: 0 if it has ended before.
func (r *run) once() error {
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
	c := func(mode string, size int) turns.Side { return r.cLoop(r.dir, mode, size, r.threads) }
	sides := map[string]func() turns.Side{
		"fileproc":       func() turns.Side { return ours(fileproc.Options{}) },
		"fileproc-stat":  func() turns.Side { return ours(metadata) },
		"fileproc-again": r.onceAgain,
		"c":              func() turns.Side { return c("whole", onceReadSize) },
		"c-order":        func() turns.Side { return r.inOrder(onceReadSize, r.threads) },
		"c-stat":         func() turns.Side { return c("stat", 0) },
		"c-stat-order":   func() turns.Side { return c("stat-order", 0) },
	}
	if sides[r.who] == nil {
		return fmt.Errorf("unknown side %q: want one of %v", r.who, slices.Sorted(maps.Keys(sides)))
	}
	s := sides[r.who]()
	if s.Missing != "" {
		return fmt.Errorf("-side %s: %s", r.who, s.Missing)
	}
	if r.cold {
		s = s.After(readers.DropCaches)
	}
	p, err := s.Pass()
	if r.cancel >= 0 && (err == nil || errors.Is(err, context.Canceled)) {
		p.Wall, err = max(0, p.Wall-float64(r.cancel)), nil
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(r.Out).Encode(struct {
		Files   int     `json:"files"`
		Bytes   int64   `json:"bytes"`
		Seconds float64 `json:"seconds"`
	}{p.Files, p.Bytes, p.Wall / 1e9})
}

func (r *run) allocs() error {
	var before, after runtime.MemStats
	work := readers.Fileproc(r.ctx, r.dir, fileproc.Options{ReadSize: prefixSize})
	runtime.ReadMemStats(&before)
	files, _, err := work()
	if err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	fmt.Fprintf(r.Out, "%.4f allocations a file, %d files, prefix\n", float64(after.Mallocs-before.Mallocs)/float64(max(files, 1)), files)
	return nil
}

// peak streams the files and prints the peak memory of the process.
func (r *run) peak() error {
	files := 0
	for _, err := range fileproc.Stream(r.ctx, r.dir, fileproc.Options{}, func(f *fileproc.File) (int, error) { return len(f.Data()), nil }) {
		if err != nil {
			return err
		}
		files++
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			fmt.Fprintf(r.Out, "%s at most, %d files, Stream\n", strings.TrimSpace(kib), files)
		}
	}
	return nil
}
