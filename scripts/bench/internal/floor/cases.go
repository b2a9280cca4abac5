//go:build linux

package floor

import (
	"bytes"
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

	"github.com/goccy/go-yaml"
	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/host"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

// How many bytes a side reads of a file at a time.
const (
	cReadSize    = 4096 // the C loop
	prefixSize   = 2048
	onceReadSize = 64 << 10 // the C loop in -case once, where all sides read whole files
)

var whole, metadata = fileproc.Options{}, fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}

func (r *run) fileproc(opts fileproc.Options) turns.Side { return read(r.ctx, r.dir, opts).Side() }

func (r *run) c(mode string, size int) turns.Side { return r.cLoop(r.dir, mode, size, r.threads) }

var cases = map[string]func(*run) []record.Record{
	"whole":  againstC("whole / C loop", whole, "read", cReadSize),
	"prefix": againstC("prefix / C loop", fileproc.Options{ReadSize: prefixSize}, "read", prefixSize),
	"stat":   againstC("stat / C loop with fstatat", metadata, "stat", 0),
	"names": func(r *run) []record.Record {
		ours := entries(fileproc.ReadDir, r.dir).Side()
		return r.compare(turns.Against("ReadDir / bare getdents64", ours, r.c("names", 0)),
			turns.Against("ReadDir / os.ReadDir", ours, entries(os.ReadDir, r.dir).Side()))
	},
	"walkdir": func(r *run) []record.Record {
		return r.compare(turns.Against("whole / WalkDir + ReadFile", r.fileproc(whole), walkDir(r.dir).Side()),
			turns.Against("whole, Workers 1 / WalkDir + ReadFile", r.fileproc(fileproc.Options{Workers: 1}), walkDir(r.dir).Side()))
	},
	"sizes": (*run).sizes, "peers": (*run).peers, "programs": (*run).programs, "trees": (*run).trees, "files": (*run).files, "again": (*run).again,
	"replace": (*run).replace,
	"sweep":   (*run).sweep, "uring": (*run).uring, "once": (*run).once, "git": (*run).git, "allocs": (*run).allocs, "peak": (*run).peak,
}

func againstC(name string, opts fileproc.Options, mode string, size int) func(*run) []record.Record {
	return func(r *run) []record.Record { return r.compare(turns.Against(name, r.fileproc(opts), r.c(mode, size))) }
}

func (r *run) files() []record.Record {
	listed := r.list()
	named := func(order string, names []string) turns.Comparison {
		return turns.Against("names "+order+" / a run that lists them",
			r.fileproc(fileproc.Options{Files: slices.Values(names)}), r.fileproc(whole))
	}
	shuffled := slices.Clone(listed)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	return r.compare(named("as listed", listed), named("sorted", slices.Sorted(slices.Values(listed))), named("shuffled", shuffled))
}

func (r *run) list() (names []string) {
	for e, err := range fileproc.Walk(r.ctx, r.dir, fileproc.Options{}) {
		fail.On(err)
		if e.Type().IsRegular() {
			names = append(names, e.Rel())
		}
	}
	return names
}

func (r *run) sweep() []record.Record {
	var list []turns.Comparison
	for text := range strings.SplitSeq(r.workers, ",") {
		n, err := strconv.Atoi(text)
		fail.If(err != nil, "-workers: %w", err)
		list = append(list, turns.Against("default / Workers "+text, r.fileproc(whole), r.fileproc(fileproc.Options{Workers: n})))
	}
	return r.compare(list...)
}

// uring compares runs with io_uring and without. The build must have io_uring. A pass repeats the run until it has read some 20,000
// files: in small sets the cost of making a ring matters, and their passes should not be shorter than others.
func (r *run) uring() []record.Record {
	with, without := read(r.ctx, r.dir, whole), read(r.ctx, r.dir, fileproc.Options{DisableURing: true})
	files, _, err := with()
	fail.On(err)
	calls := max(1, 20_000/max(1, files))
	return r.compare(turns.Against("whole / the same without io_uring", with.Times(calls).Side(), without.Times(calls).Side()))
}

// trees makes small trees, in which the cost of a run or of a directory matters. It compares a single directory with the loop
// over ReadDir, several directories with the C loop, and each tree with WalkDir, also with one worker. A pass has about 2,000 files.
func (r *run) trees() []record.Record {
	tmp := r.temp()
	const chain = 0 // stands for 1,000 directories, each in the one before
	var list []turns.Comparison
	for _, t := range []struct {
		name        string
		dirs, files int
	}{
		{"1 file", 1, 1}, {"2 files", 1, 2}, {"3 files", 1, 3}, {"5 files", 1, 5}, {"10 files", 1, 10}, {"100 files", 1, 100},
		{"1,000 directories of 1", 1000, 1}, {"1,000 directories of 3", 1000, 3}, {"chain of 1,000", chain, 3},
	} {
		dir := filepath.Join(tmp, t.name)
		for i := range max(1, t.dirs) {
			sub := filepath.Join(dir, strconv.Itoa(i))
			if t.dirs == chain {
				sub = filepath.Join(dir, strings.Repeat("d/", 1000))
			} else if t.dirs == 1 {
				sub = dir
			}
			fail.On(os.MkdirAll(sub, 0o755))
			for k := range t.files {
				fail.On(os.WriteFile(filepath.Join(sub, fmt.Sprintf("ticket-%07d.md", k)), make([]byte, 400), 0o644))
			}
		}
		calls := 1
		if t.dirs == 1 {
			calls = 2000 / t.files
		}
		ours := read(r.ctx, dir, whole).Times(calls).Side()
		if t.dirs == 1 {
			list = append(list, turns.Against(t.name+" / ReadDir + ReadFile", ours, readDir(dir).Times(calls).Side()))
		} else {
			list = append(list, turns.Against(t.name+" / C loop", ours, r.cLoop(dir, "read", cReadSize, r.threads)))
		}
		theirs, one := walkDir(dir).Times(calls).Side(), read(r.ctx, dir, fileproc.Options{Workers: 1}).Times(calls).Side()
		list = append(list, turns.Against(t.name+" / WalkDir + ReadFile", ours, theirs),
			turns.Against(t.name+", Workers 1 / WalkDir + ReadFile", one, theirs))
	}
	return r.compare(list...)
}

// sizes reads whole files, those below -dir or of -bytes each. It compares with the C loop that asks for the size, and with os.ReadFile.
func (r *run) sizes() (list []record.Record) {
	const all = 512 << 20 // bytes of a set, unless these are too few or too many files
	compare := func(name, dir string, largest int64) {
		ours := read(r.ctx, dir, fileproc.Options{MaxFileSize: fileproc.NoLimit}).Side()
		list = append(list, r.compare(turns.Against(name+" / C loop with fstat", ours, r.cLoop(dir, "sized", int(largest), r.threads)),
			turns.Against(name+" / os.ReadFile", ours, pool(runtime.GOMAXPROCS(0), dir).Side()))...)
	}
	if r.dir != "" {
		compare("whole", r.dir, 2<<30)
		return list
	}
	for text := range strings.SplitSeq(r.bytes, ",") {
		size := fail.Must(strconv.ParseInt(text, 10, 64))
		dir := filepath.Join(r.temp(), text)
		fail.On(os.Mkdir(dir, 0o755))
		data := bytes.Repeat([]byte("text and more\n"), int(size/14+1))[:size]
		for i := range min(20_000, max(all/size, 4)) {
			fail.On(os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%05d.txt", i)), data, 0o644))
		}
		compare(text+" bytes", dir, size)
		fail.On(r.end())
	}
	return list
}

// again compares runs of package incremental with full runs. One function does nearly nothing, the other parses the YAML at the
// beginning of a ticket. Before each pass with changes, again touches other files of the set.
func (r *run) again() (records []record.Record) {
	const changedOf, mostYAML = 100, 200_000 // one file in changedOf changes; mostYAML is the most files that are parsed
	r.Passes = 1
	tmp, names, round := r.temp(), r.list(), 0
	touch := func() (err error) {
		now := time.Now()
		for i := round % changedOf; i < len(names); i += changedOf {
			err = errors.Join(err, os.Chtimes(filepath.Join(r.dir, names[i]), now, now))
		}
		round++
		time.Sleep(2100 * time.Millisecond) // until the files are old enough for their results to be kept
		return err
	}
	for _, of := range []struct {
		name string
		fn   func(*fileproc.File) (int, error)
	}{{"the size", size}, {"YAML", parsed}} {
		if of.name == "YAML" && len(names) > mostYAML {
			break
		}
		inc := incremental.Options[int]{File: filepath.Join(tmp, "cache"), Version: of.name}
		full := turns.Work(func() (int, int64, error) { return sum(fileproc.Process(r.ctx, r.dir, whole, of.fn)) }).Side()
		again := turns.Work(func() (int, int64, error) { return sum(incremental.Process(r.ctx, r.dir, inc, whole, of.fn)) }).Side()
		fail.Must(again.Pass())
		records = append(records, r.compare(
			turns.Against(of.name+", metadata alone / a full run", r.fileproc(metadata), full),
			turns.Against(of.name+", nothing changed / metadata alone", again, r.fileproc(metadata)),
			turns.Against(of.name+", 1 % changed / a full run", again.After(touch), full),
			turns.Against(of.name+", nothing changed / a full run", again, full),
			turns.Against(of.name+", the first run / a full run", again.After(func() error { return os.RemoveAll(inc.File) }), full))...)
	}
	return records
}

func size(f *fileproc.File) (int, error) { return len(f.Data()), nil }

// parsed parses the YAML of a ticket and returns the ticket's size.
func parsed(f *fileproc.File) (int, error) {
	var fields map[string]any
	text, err := tickets.Frontmatter(f.Data())
	if err == nil {
		err = yaml.Unmarshal(text, &fields)
	}
	if err == nil && fields["id"] == nil {
		err = fmt.Errorf("no id in %v", fields)
	}
	return len(f.Data()), err
}

func sum(sizes []int, err error) (files int, bytes int64, _ error) {
	for _, n := range sizes {
		bytes += int64(n)
	}
	return len(sizes), bytes, err
}

// once prints one pass of one side as a line of JSON, without a pass before it to warm up. With -cancel, it cancels the run of
// fileproc so long after its beginning. The seconds are then those from the cancel to the end, or 0 if the run has ended before.
func (r *run) once() []record.Record {
	ctx, stop := context.WithCancel(r.ctx)
	defer stop()
	ours := func(opts fileproc.Options) turns.Side {
		work := read(ctx, r.dir, opts)
		return turns.Work(func() (int, int64, error) {
			if r.cancel >= 0 {
				time.AfterFunc(r.cancel, stop)
			}
			return work()
		}).Side()
	}
	var s turns.Side
	switch r.who {
	case "fileproc":
		s = ours(whole)
	case "fileproc-stat":
		s = ours(metadata)
	case "fileproc-again":
		fail.On(os.Chdir(r.dir)) // the cache file is for a root with the name "."
		s = turns.Work(func() (int, int64, error) {
			return sum(incremental.Process(ctx, ".", incremental.Options[int]{File: r.cache}, whole, size))
		}).Side()
	case "cat":
		s = r.cat(128<<10, 0).Side()
	case "direct":
		s = r.cat(4<<20, unix.O_DIRECT).Side()
	case "c":
		s = r.c("whole", onceReadSize)
	case "c-stat":
		s = r.c("stat", 0)
	default:
		fail.If(true, "unknown side %q: -h lists them", r.who)
	}
	if r.Before != nil {
		fail.On(r.Before())
	}
	// The first use of memory that a hypervisor has taken back takes ten times as long, and the sides use different amounts.
	if p, err := unix.Mmap(-1, 0, 2<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err == nil {
		unix.Madvise(p, unix.MADV_HUGEPAGE)
		unix.Madvise(p, unix.MADV_POPULATE_WRITE)
		unix.Munmap(p)
	}
	p, err := s.Pass()
	if r.cancel >= 0 && (err == nil || errors.Is(err, context.Canceled)) {
		p.Wall, err = max(0, p.Wall-float64(r.cancel)), nil
	}
	fail.On(err)
	fail.On(json.NewEncoder(os.Stdout).Encode(map[string]any{"files": p.Files, "bytes": p.Bytes, "seconds": p.Wall / 1e9}))
	return nil
}

func (r *run) value(who, unit string, value float64) []record.Record {
	return []record.Record{{Table: r.Table, Data: r.Data, Who: who + record.Ours, Values: map[string]float64{unit: value}}}
}

func (r *run) allocs() []record.Record {
	var before, after runtime.MemStats
	side := read(r.ctx, r.dir, fileproc.Options{ReadSize: prefixSize}).Side()
	fail.Must(side.Pass()) // makes what later runs reuse
	runtime.ReadMemStats(&before)
	files := fail.Must(side.Pass()).Files
	runtime.ReadMemStats(&after)
	return r.value("prefix", "allocations", float64(after.Mallocs-before.Mallocs)/float64(max(files, 1)))
}

// peak returns how much a run of Stream adds to the peak memory. This program without it has three times what a small one has.
func (r *run) peak() []record.Record {
	who, before := "Stream, warm", func() error { _, err := r.c("read", cReadSize).Pass(); return err }
	if r.Before != nil {
		who, before = "Stream, cold", r.Before
	}
	fail.On(before())
	own := host.MemoryMiB("VmHWM")
	for _, err := range fileproc.Stream(r.ctx, r.dir, whole, size) {
		fail.On(err)
	}
	return r.value(who, "MiB", host.MemoryMiB("VmHWM")-own)
}
