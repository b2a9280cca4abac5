package fileproc_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
)

// The benchmarks read .data/tickets_{layout}_{files}, which scripts/tickets
// makes, and check what they read against the manifest beside it. Sets of up to
// 5,000 files are made here if they are missing, simpler ones of the same size;
// larger ones are left out with a hint.

var (
	layouts = []string{"flat", "nested1", "nested3"}
	sizes   = []string{"1k", "5k", "100k", "1m"}
	// Sets of few files, and of larger ones, in one directory.
	fewOrLarge = []string{"1", "10", "100", "64x16KiB", "4x16MiB"}
)

var modes = []struct {
	name string
	opts fileproc.Options
}{
	{"frontmatter", fileproc.Options{ReadSize: 2048}},
	{"whole", fileproc.Options{}},
	{"stat", fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}},
	{"names", fileproc.Options{ReadSize: fileproc.NoRead}},
}

func BenchmarkProcess(b *testing.B) {
	for _, layout := range layouts {
		for _, size := range slices.Concat(sizes, fewOrLarge) {
			if layout != "flat" && slices.Contains(fewOrLarge, size) {
				continue
			}
			set, ok := openDataset(b, layout, size)
			if !ok {
				continue
			}
			for _, m := range modes {
				b.Run(fmt.Sprintf("layout=%s/files=%s/mode=%s", layout, size, m.name), func(b *testing.B) {
					opts, read := m.opts, set
					opts.Workers = runtime.GOMAXPROCS(0)
					if n := int64(opts.ReadSize); n > 0 { // no ticket is longer; the larger files of a set have one size
						read.bytes = min(set.bytes, n*set.files)
					}
					got := make([]tally, opts.Workers)
					m := startMeter(b)
					for b.Loop() {
						clear(got)
						_, err := fileproc.Process(b.Context(), set.dir, opts, func(f *fileproc.File) (struct{}, error) {
							return struct{}{}, got[f.Worker()].add(f, &opts)
						})
						if err != nil {
							b.Fatal(err)
						}
						read.check(b, opts.ReadSize != fileproc.NoRead || opts.Stat, got)
					}
					m.perFile(set.files, set.bytes)
				})
			}
		}
	}
}

// A tally is what one worker saw, a cache line apart from its neighbours.
type tally struct {
	files, bytes int64
	_            [112]byte
}

func (t *tally) add(f *fileproc.File, opts *fileproc.Options) error {
	t.files++
	if opts.Stat {
		st, err := f.Stat()
		t.bytes += st.Size
		return err
	}
	if opts.ReadSize > 0 {
		frontmatter(f.Data())
	}
	t.bytes += int64(len(f.Data()))
	return nil
}

// streamed counts the results of a loop over Stream.
func streamed(ctx context.Context, dir string, opts fileproc.Options) (t tally, err error) {
	for n, err := range fileproc.Stream(ctx, dir, opts, func(f *fileproc.File) (int, error) { return len(f.Data()), nil }) {
		if err != nil {
			return t, err
		}
		t.files++
		t.bytes += int64(n)
	}
	return t, nil
}

// BenchmarkStream compares a loop over results as they come with one in order.
func BenchmarkStream(b *testing.B) {
	for _, layout := range layouts[:2] {
		set, ok := openDataset(b, layout, "100k")
		if !ok {
			continue
		}
		for _, ordered := range []bool{false, true} {
			b.Run(fmt.Sprintf("layout=%s/files=100k/ordered=%t", layout, ordered), func(b *testing.B) {
				m := startMeter(b)
				for b.Loop() {
					got, err := streamed(b.Context(), set.dir, fileproc.Options{Ordered: ordered})
					if err != nil {
						b.Fatal(err)
					}
					set.check(b, true, []tally{got})
				}
				m.perFile(set.files, set.bytes)
			})
		}
	}
}

// BenchmarkCost measures the cost of an option: runs with it and without in turn, and
// the median of the ratios of their times, with over without.
func BenchmarkCost(b *testing.B) {
	type read func(context.Context, string, fileproc.Options) (tally, error)
	process := func(ctx context.Context, dir string, opts fileproc.Options) (tally, error) {
		var report fileproc.Report
		opts.Report = &report
		_, err := fileproc.Process(ctx, dir, opts, func(*fileproc.File) (struct{}, error) { return struct{}{}, nil })
		return tally{files: report.Processed, bytes: report.Bytes}, err
	}
	for _, layout := range layouts[:2] {
		set, ok := openDataset(b, layout, "100k")
		if !ok {
			continue
		}
		for _, of := range []struct {
			name string
			read read
			opts fileproc.Options
		}{
			{"nothing", process, fileproc.Options{}},
			{"OnProgress", process, fileproc.Options{OnProgress: func(fileproc.Report) {}}},
			{"SkipBinary", process, fileproc.Options{SkipBinary: true}},
			{"Ordered", streamed, fileproc.Options{Ordered: true}},
		} {
			b.Run(fmt.Sprintf("layout=%s/files=100k/of=%s", layout, of.name), func(b *testing.B) {
				var ratios []float64
				for b.Loop() {
					var took [2]time.Duration // without, with
					for i := range took {
						i ^= len(ratios) & 1 // the order alternates
						opts := fileproc.Options{}
						if i == 1 {
							opts = of.opts
						}
						start := time.Now()
						got, err := of.read(b.Context(), set.dir, opts)
						took[i] = time.Since(start)
						if err != nil {
							b.Fatal(err)
						}
						set.check(b, true, []tally{got})
					}
					ratios = append(ratios, took[1].Seconds()/took[0].Seconds())
				}
				slices.Sort(ratios)
				b.ReportMetric(ratios[len(ratios)/2], "with/without")
				b.ReportMetric(ratios[len(ratios)/4], "quartile1")
				b.ReportMetric(ratios[len(ratios)*3/4], "quartile3")
			})
		}
	}
}

// BenchmarkCold drops the caches for pages, dentries and inodes before each
// pass. That slows down whatever else runs on the machine, so it must be asked
// for by name.
func BenchmarkCold(b *testing.B) {
	if !strings.Contains(flag.Lookup("test.bench").Value.String(), "Cold") {
		fmt.Println("# cold cache is left out: it needs root, and -bench Cold")
		return
	}
	if err := dropCaches(); err != nil {
		fmt.Printf("# cold cache is left out: it needs root on Linux: %v\n", err)
		return
	}
	for _, layout := range layouts[:2] {
		for _, size := range []string{"5k", "100k"} {
			set, ok := openDataset(b, layout, size)
			if !ok {
				continue
			}
			b.Run(fmt.Sprintf("layout=%s/files=%s/mode=whole", layout, size), func(b *testing.B) {
				m := startMeter(b)
				for b.Loop() {
					b.StopTimer()
					if err := dropCaches(); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
					var report fileproc.Report
					_, err := fileproc.Process(b.Context(), set.dir, fileproc.Options{Report: &report}, func(f *fileproc.File) (struct{}, error) {
						return struct{}{}, nil
					})
					if err != nil {
						b.Fatal(err)
					}
					set.check(b, true, []tally{{files: report.Processed, bytes: report.Bytes}})
				}
				m.perFile(set.files, set.bytes)
			})
		}
	}
}

func dropCaches() error {
	if err := exec.Command("sync").Run(); err != nil { // dirty pages cannot be dropped
		return err
	}
	const pagesDentriesInodes = "3"
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte(pagesDentriesInodes), 0)
}

// BenchmarkSmall compares with the loop that people write for one directory.
func BenchmarkSmall(b *testing.B) {
	for _, files := range []int{1, 2, 10, 100, 1000} {
		dir := b.TempDir()
		fill(b, dir, files)
		set := dataset{dir, int64(files), int64(files * len(ticket))}
		for _, by := range []struct {
			name string
			read func(dir string) ([]int, error)
		}{{"fileproc", lengths}, {"loop", lengthsByHand}} {
			b.Run(fmt.Sprintf("files=%d/by=%s", files, by.name), func(b *testing.B) {
				m := startMeter(b)
				for b.Loop() {
					got, err := by.read(dir)
					if err != nil {
						b.Fatal(err)
					}
					t := tally{files: int64(len(got))}
					for _, n := range got {
						t.bytes += int64(n)
					}
					set.check(b, true, []tally{t})
				}
				m.perFile(set.files, set.bytes)
			})
		}
	}
}

func lengths(dir string) ([]int, error) {
	return fileproc.Process(context.Background(), dir, fileproc.Options{}, func(f *fileproc.File) (int, error) {
		return len(f.Data()), nil
	})
}

func lengthsByHand(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	got := make([]int, 0, len(entries))
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		got = append(got, len(data))
	}
	return got, nil
}

// BenchmarkTimesWalkDir reports how many times as long as the usual loop over 5,000 files fileproc takes, the median of turns.
// It needs nothing of the operating system. -benchtime=61x makes 61 turns.
func BenchmarkTimesWalkDir(b *testing.B) {
	dir := b.TempDir()
	fill(b, dir, 5000)
	for _, mode := range []struct {
		name           string
		fileproc, loop func(dir string) (int64, error)
	}{
		{"stat", sizesByWalk, func(dir string) (int64, error) {
			return walkDir(dir, func(_ string, e fs.DirEntry) (int64, error) {
				info, err := e.Info()
				if err != nil {
					return 0, err
				}
				return info.Size(), nil
			})
		}},
		{"whole", func(dir string) (int64, error) {
			got, err := streamed(context.Background(), dir, fileproc.Options{})
			return got.bytes, err
		}, func(dir string) (int64, error) {
			return walkDir(dir, func(name string, _ fs.DirEntry) (int64, error) {
				data, err := os.ReadFile(name)
				return int64(len(data)), err
			})
		}},
	} {
		b.Run("mode="+mode.name, func(b *testing.B) {
			var ratios []float64
			for b.Loop() {
				var took [2]time.Duration
				for i, pass := range []func(string) (int64, error){mode.fileproc, mode.loop} {
					start := time.Now()
					bytes, err := pass(dir)
					took[i] = time.Since(start)
					if want := int64(5000 * len(ticket)); err != nil || bytes != want {
						b.Fatalf("%d bytes, want %d: %v", bytes, want, err)
					}
				}
				ratios = append(ratios, float64(took[0])/float64(took[1]))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "times-WalkDir")
		})
	}
}

func sizesByWalk(dir string) (sum int64, err error) {
	for e, err := range fileproc.Walk(context.Background(), dir, fileproc.Options{Stat: true}) {
		if err != nil {
			return 0, err
		}
		if !e.IsDir() {
			s, err := e.Stat()
			if err != nil {
				return 0, err
			}
			sum += s.Size
		}
	}
	return sum, nil
}

func walkDir(dir string, size func(name string, e fs.DirEntry) (int64, error)) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		n, err := size(name, e)
		sum += n
		return err
	})
	return sum, err
}

// BenchmarkReadDir lists one directory, and lists it and stats every file, as
// Readdir always does. In /proc a process that ends meanwhile is no error.
func BenchmarkReadDir(b *testing.B) {
	sets := map[string]dataset{"proc": {dir: "/proc"}}
	names := []string{"proc"}
	for _, size := range sizes {
		if set, ok := openDataset(b, "flat", size); ok {
			sets["flat_"+size] = set
			names = append(names, "flat_"+size)
		}
	}
	for _, name := range names {
		set := sets[name]
		if _, err := os.Stat(set.dir); err != nil {
			fmt.Printf("# dir=%s is left out: %v\n", name, err)
			continue
		}
		for _, by := range []struct {
			name string
			stat bool
			list func(dir string) (tally, error)
		}{
			{"stat=no/by=fileproc", false, func(dir string) (tally, error) { return entries(fileproc.ReadDir(dir)) }},
			{"stat=no/by=os.ReadDir", false, func(dir string) (tally, error) { return entries(os.ReadDir(dir)) }},
			{"stat=yes/by=fileproc", true, func(dir string) (tally, error) { return infos(fileproc.ReadDir(dir)) }},
			{"stat=yes/by=os.ReadDir", true, func(dir string) (tally, error) { return infos(os.ReadDir(dir)) }},
			{"stat=yes/by=Readdir", true, readdir},
		} {
			b.Run("dir="+name+"/"+by.name, func(b *testing.B) {
				var got tally
				m := startMeter(b)
				for b.Loop() {
					var err error
					if got, err = by.list(set.dir); err != nil {
						b.Fatal(err)
					}
					if set.files > 0 {
						set.check(b, by.stat, []tally{got})
					} else if got.files == 0 {
						b.Fatal("it is empty")
					}
				}
				m.perFile(got.files, set.bytes)
			})
		}
	}
}

func entries(list []fs.DirEntry, err error) (tally, error) {
	return tally{files: int64(len(list))}, err
}

func infos(list []fs.DirEntry, err error) (tally, error) {
	t := tally{files: int64(len(list))}
	for _, e := range list {
		info, err := e.Info()
		if err == nil {
			t.bytes += info.Size()
		} else if !errors.Is(err, fs.ErrNotExist) {
			return t, err
		}
	}
	return t, err
}

func readdir(dir string) (tally, error) {
	f, err := os.Open(dir)
	if err != nil {
		return tally{}, err
	}
	defer f.Close()
	list, err := f.Readdir(-1)
	t := tally{files: int64(len(list))}
	for _, info := range list {
		t.bytes += info.Size()
	}
	return t, err
}

// A meter reports what one file costs.
type meter struct {
	b      *testing.B
	before runtime.MemStats
	faults int64
}

// pageFaults returns those of the process so far where the system counts them.
var pageFaults = func() int64 { return 0 }

func startMeter(b *testing.B) *meter {
	m := &meter{b: b}
	b.ReportAllocs()
	runtime.ReadMemStats(&m.before)
	m.faults = pageFaults()
	return m
}

// perFile is called after the loop, each pass of which handled that many files.
func (m *meter) perFile(files, bytes int64) {
	var after runtime.MemStats
	faults := pageFaults() - m.faults
	runtime.ReadMemStats(&after)
	total := float64(files) * float64(m.b.N)
	seconds := m.b.Elapsed().Seconds()
	m.b.ReportMetric(seconds*1e9/total, "ns/file")
	m.b.ReportMetric(total/seconds, "files/s")
	m.b.ReportMetric(float64(after.TotalAlloc-m.before.TotalAlloc)/total, "B/file")
	m.b.ReportMetric(float64(after.Mallocs-m.before.Mallocs)/total, "allocs/file")
	m.b.ReportMetric(float64(faults)/total, "faults/file")
	m.b.ReportMetric(float64(bytes)*float64(m.b.N)/1e6/seconds, "MB/s") // of the files, read or not
}

// frontmatter returns the text between the first two lines of dashes.
func frontmatter(data []byte) []byte {
	const fence = "---\n"
	if !bytes.HasPrefix(data, []byte(fence)) {
		return nil
	}
	body, _, _ := bytes.Cut(data[len(fence):], []byte("\n"+fence))
	return body
}

// A dataset is a directory and its expected contents.
type dataset struct {
	dir          string
	files, bytes int64
}

func (s dataset) check(b *testing.B, content bool, got []tally) {
	var sum tally
	for _, t := range got {
		sum.files += t.files
		sum.bytes += t.bytes
	}
	if sum.files != s.files || content && sum.bytes != s.bytes {
		b.Fatalf("%s: %d files, %d bytes; want %d, %d", s.dir, sum.files, sum.bytes, s.files, s.bytes)
	}
}

func openDataset(b *testing.B, layout, size string) (set dataset, ok bool) {
	name := "tickets_" + layout + "_" + size
	n, small := map[string]int{"1": 1, "10": 10, "100": 100, "64x16KiB": 64, "4x16MiB": 4, "1k": 1000, "5k": 5000}[size]
	each := cmp.Or(map[string]int{"64x16KiB": 16 << 10, "4x16MiB": 16 << 20}[size], len(ticket))
	if !small && testing.Short() {
		fmt.Printf("# %s is left out because of -short\n", name)
		return set, false
	}
	set.dir = filepath.Join(".data", name)
	if data, err := os.ReadFile(set.dir + ".json"); err == nil { // the manifest: the set is complete
		var manifest struct{ Files, Bytes int64 }
		if err := json.Unmarshal(data, &manifest); err != nil {
			b.Fatalf("%s.json: %v", set.dir, err)
		}
		set.files, set.bytes = manifest.Files, manifest.Bytes
		return set, true
	}
	if !small {
		fmt.Printf("# %s is missing: cd scripts && go run ./tickets -out ../.data -layout %s -count %s\n", name, layout, size)
		return set, false
	}
	set = dataset{filepath.Join(".data", "bench_"+layout+"_"+size), int64(n), int64(n * each)}
	if info, err := fs.ReadDir(os.DirFS(".data"), filepath.Base(set.dir)); err == nil && len(info) > 0 {
		return set, true
	}
	tmp, err := os.MkdirTemp(".", ".bench")
	if err == nil {
		err = os.MkdirAll(".data", 0o755)
	}
	if err != nil {
		b.Fatal(err)
	}
	switch layout {
	case "flat":
		fillWith(b, tmp, n, strings.Repeat(ticket, each/len(ticket)+1)[:each])
	case "nested1":
		for month := range 10 {
			fill(b, filepath.Join(tmp, fmt.Sprintf("2025-%02d", month+1)), n/10)
		}
	case "nested3":
		for i := range 100 {
			fill(b, filepath.Join(tmp, fmt.Sprint(i/50), fmt.Sprint(i/5), fmt.Sprint(i)), n/100)
		}
	}
	if err := os.Rename(tmp, set.dir); err != nil {
		b.Fatal(err)
	}
	return set, true
}

var ticket = "---\nid: 1\nstatus: open\ntype: bug\n---\n" + strings.Repeat("Lorem ipsum dolor sit amet. ", 13)

func fill(b *testing.B, dir string, files int) { fillWith(b, dir, files, ticket) }

func fillWith(b *testing.B, dir string, files int, content string) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("ticket-%06d.md", i)), []byte(content), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}
