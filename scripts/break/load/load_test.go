package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentile(t *testing.T) {
	var values []time.Duration
	for i := range 100 {
		values = append(values, time.Duration(i+1))
	}
	for p, want := range map[float64]time.Duration{0: 1, 50: 50, 90: 90, 95: 95, 99: 99, 99.9: 100, 100: 100} {
		require.Equal(t, want, percentile(values, p), p)
	}
	require.Equal(t, time.Duration(7), percentile([]time.Duration{7}, 95))
	require.Equal(t, time.Duration(1), percentile([]time.Duration{1, 2}, 50))
}

func TestSummarize(t *testing.T) {
	m := summarize(sample{latencies: []time.Duration{3e6, 1e6, 2e6}, failed: 1, bytes: 5e6}, 2*time.Second)
	require.Equal(t, metric{Count: 4, Failed: 1, Rate: 0.75, Bytes: 5e6, Seconds: 2, Avg: 2, Min: 1, Med: 2, P90: 3, P95: 3, P99: 3, P999: 3, Max: 3}, m)
	require.Equal(t, 1.5, m.perSecond())
	require.Equal(t, 2.5, m.mbPerSecond())
	require.Equal(t, metric{Count: 2, Failed: 2, Seconds: 1}, summarize(sample{failed: 2}, time.Second))
}

func TestContent(t *testing.T) {
	l := newLibrary(1, 1<<20)
	other := newLibrary(2, 1<<20)
	for _, size := range []int{0, 1, 20, 1 << 10, 1 << 20} {
		f := file{dir: "d", name: "f", generation: 3, size: size}
		data := l.make(nil, f)
		require.NoError(t, l.check(f, data))
		require.Len(t, data, size)
		require.Error(t, l.check(f, append(slices.Clone(data), 0)))
		for _, i := range []int{0, size / 2, size - 1} {
			if size > 0 {
				broken := slices.Clone(data)
				broken[i] ^= 1
				require.Error(t, l.check(f, broken), "%d of %d", i, size)
				require.Error(t, l.check(f, data[:i]))
			}
		}
		if size >= 1<<10 {
			old, elsewhere := f, f
			old.generation, elsewhere.name = 2, "g"
			require.ErrorContains(t, l.check(f, l.make(nil, old)), `begins with "d/f 2 `)
			require.Error(t, l.check(f, l.make(nil, elsewhere)))
			require.Error(t, l.check(f, other.make(nil, f)))
			torn := append(slices.Clone(data[:size/2]), l.make(nil, old)[size/2:]...)
			require.Error(t, l.check(f, torn))
		}
	}
}

func TestSharesOfOperationsAndSizes(t *testing.T) {
	l := &load{Mix: mix, Sizes: sizes}
	rng := rand.New(rand.NewPCG(1, 1))
	const n = 100_000
	ops, bySize := [operations]int{}, map[int]int{}
	for range n {
		ops[l.operation(rng)]++
		bySize[l.size(rng)]++
	}
	for op, percent := range mix {
		require.InDelta(t, percent*n/100, ops[op], n/200, opNames[op])
	}
	total := 0
	for _, s := range sizes {
		require.InDelta(t, s.Percent*n/100, bySize[s.Size], n/200, s.Size)
		total += s.Percent
	}
	require.Equal(t, 100, total)
}

func TestParseStages(t *testing.T) {
	want := []stage{{25, 20 * time.Second}, {100, time.Minute}}
	for _, text := range []string{"25:20s,100:1m", "20s:25,1m:100"} { // k6 has the duration first
		got, err := parseStages(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "25", "25:", "0:1s", "-1:1s", "5:0s", "a:b", "25:20s,"} {
		_, err := parseStages(text)
		require.Error(t, err, text)
	}
}

func TestSlicesAreTakenInTurn(t *testing.T) {
	l := &load{Slice: time.Second}
	for d, want := range map[time.Duration]int{time.Millisecond: 4, 4 * time.Second: 4, 20 * time.Second: 20, 22 * time.Second: 24} {
		require.Equal(t, want, l.slices(stage{1, d}), d)
	}
}

// made returns what a run could have left, with all statistics of a side in a slice equal to value(slice, side).
func made(slices int, value func(slice, side int) float64) *record {
	r := &record{Format: format, Sides: [2]string{ours, "os"}, Load: load{Stages: []stage{{25, time.Second}}}, Total: map[string]map[string]metric{}}
	r.Levels = []level{{VUs: 25}}
	for s, name := range r.Sides {
		r.Total[name] = map[string]metric{}
		for i := range slices {
			metrics := map[string]metric{}
			for _, op := range opNames {
				v := value(i, s)
				metrics[op] = metric{Count: 100, Rate: 1, Seconds: 1, Avg: v, Min: v, Med: v, P90: v, P95: v, P99: v, P999: v, Max: v}
				r.Total[name][op] = metrics[op]
			}
			r.Slices = append(r.Slices, sliceRecord{VUs: 25, Pair: i, Side: name, Metrics: metrics})
		}
	}
	r.Levels[0].Metrics = r.Total
	return r
}

func TestThresholds(t *testing.T) {
	r := made(1, func(_, side int) float64 { return 3 - float64(side) }) // 3 ms through fileproc, 2 ms through os
	read := r.Total[ours]["read"]
	read.Count, read.Failed, read.Rate = 100, 1, 0.99
	r.Total[ours]["read"] = read
	for text, want := range map[string]bool{
		"read:p(95)<500": true, "read:p(95)<3": false, "read:p(95)<=3": true, "read: p(99.9) < 3001us": true, "read:p(50)<2.9ms": false,
		"read:med<1s": true, "read:avg>3": false, "read:min>=3": true, "read:max!=3": false, "read:max==3": true,
		"read:p(95)<=1.5x": true, "read:p(95)<=1.49x": false, "list:avg<1.15x": false,
		"read:rate==1": false, "read:rate>0.98": true, "create:rate==1": true, "checks:rate==1": false, "checks:rate>=0.998": true,
		"read:count>=100": true, "read:count>100": false,
	} {
		one, err := parseThreshold(text)
		require.NoError(t, err)
		require.Equal(t, want, one.judge(r).OK, text)
	}
	for _, text := range []string{
		"", "p(95)<5", "read:p(94)<5", "read:p(95)", "read:p(95)<", "read:p(95)<x", "read:p(95)<5m", "read:p95<5", "write:p(95)<5", "checks:p(95)<5",
		"read:rate<5ms", "read:count>1x", "read:p(95)<5..5", "read:p(95)=5", "read:p(95)<5 and more",
	} {
		_, err := parseThreshold(text)
		require.Error(t, err, text)
	}
	read.Failed = read.Count
	r.Total[ours]["read"] = read
	one, err := parseThreshold("read:p(95)<500")
	require.NoError(t, err)
	require.False(t, one.judge(r).OK, "nothing succeeded")
}

func TestCompare(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func() float64 { return 1 + rng.Float64()/10 }
	base := made(30, func(int, int) float64 { return noise() })
	significant := func(b *record) (found [3]int, all []difference) {
		all, err := compareRecords(base, b)
		require.NoError(t, err)
		require.Len(t, all, len(opNames)*len(compared))
		for _, d := range all {
			for i, yes := range d.significant {
				if yes {
					found[i]++
				}
			}
		}
		return found, all
	}
	found, _ := significant(made(30, func(int, int) float64 { return noise() }))
	require.Equal(t, [3]int{}, found, "the same")

	found, all := significant(made(30, func(_, side int) float64 { return noise() * (1.2 - 0.2*float64(side)) }))
	const times = 4 * 3 // medians and percentiles; the throughput is the same
	require.Equal(t, [3]int{times, 0, times}, found, "fileproc is slower")
	require.InDelta(t, 0.2, all[0].changes[ofOurs].Estimate, 0.03)

	found, _ = significant(made(30, func(int, int) float64 { return 1.5 * noise() }))
	require.Equal(t, [3]int{times, times, 0}, found, "the machine is slower")

	_, err := compareRecords(base, made(3, func(int, int) float64 { return 1 }))
	require.ErrorContains(t, err, "too few slices")
	other := made(30, func(int, int) float64 { return 1 })
	other.Load.Seed = 2
	_, err = compareRecords(base, other)
	require.ErrorContains(t, err, "loads differ")

	var out bytes.Buffer
	writeComparison(&out, base, other, all)
	require.Contains(t, out.String(), "24 of 48 changes are significant")
}

func TestHolm(t *testing.T) {
	require.Equal(t, []bool{false, true, false, true}, holm([]float64{0.04, 0.001, 0.9, 0.016}))
	require.Equal(t, []bool{false, false}, holm([]float64{0.03, 0.06}))
	require.Empty(t, holm(nil))
}

// brief is a load of two seconds.
func brief(backend, dir string, more ...string) []string {
	return append([]string{"-backend", backend, "-dir", dir, "-stages", "2:500ms,8:1s,2:500ms", "-slice", "50ms", "-files", "60", "-own", "5", "-quiet"}, more...)
}

func TestRun(t *testing.T) {
	for _, backend := range []string{"os", "s3"} {
		t.Run(backend, func(t *testing.T) {
			dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
			var stdout, stderr bytes.Buffer
			status := run(t.Context(), brief(backend, dir, "-out", out, "-plot", out, "-threshold", "checks:rate==1", "-threshold", "read:p(95)<60s"), &stdout, &stderr)
			require.Zero(t, status, "%s%s", &stdout, &stderr)
			r, err := loadRecord(out)
			require.NoError(t, err)
			require.Empty(t, r.Failures)
			for _, side := range r.Sides {
				for _, op := range opNames {
					m := r.Total[side][op]
					require.Positive(t, m.Count, "%s %s", side, op)
					require.Equal(t, 1.0, m.Rate, "%s %s", side, op)
				}
			}
			require.Len(t, r.Levels, 2)
			require.Equal(t, backend == "s3", r.Machine.Backend == "io/fs")
			for _, format := range []string{".svg", ".png"} {
				info, err := os.Stat(out + format)
				require.NoError(t, err)
				require.Positive(t, info.Size())
			}
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
			for _, op := range opNames {
				require.Contains(t, stdout.String(), "| "+op+" |")
			}

			stdout.Reset()
			require.Zero(t, run(t.Context(), []string{"-from", out}, &stdout, &stderr))
			require.Contains(t, stdout.String(), "✓ read:p(95)<60s")
			stdout.Reset()
			require.Zero(t, run(t.Context(), []string{"-compare", out, out}, &stdout, &stderr), &stderr)
			require.Contains(t, stdout.String(), "\n0 of ")
		})
	}
}

// breaking puts a fault into one of n reads of fileproc's side.
func breaking(n int64, fault func(data []byte) ([]byte, error)) func(*store) {
	return func(s *store) {
		read := s.sides[0].read
		var reads atomic.Int64
		s.sides[0].read = func(ctx context.Context, dir, name string, check func([]byte) error) error {
			if reads.Add(1)%n != 0 {
				return read(ctx, dir, name, check)
			}
			return read(ctx, dir, name, func(data []byte) error {
				data, err := fault(slices.Clone(data))
				if err != nil {
					return err
				}
				return check(data)
			})
		}
	}
}

// A load in which nothing can go wrong proves nothing: what is planted must be found, and change the exit status.
func TestRunFindsWhatIsPlanted(t *testing.T) {
	read := func(plant func(*store), more ...string) (int, *record, string) {
		var stdout, stderr bytes.Buffer
		out := filepath.Join(t.TempDir(), "out")
		status := runWith(t.Context(), brief("os", t.TempDir(), append([]string{"-out", out, "-vus", "4", "-duration", "400ms"}, more...)...), &stdout, &stderr, plant)
		r, err := loadRecord(out)
		require.NoError(t, err, &stderr)
		return status, r, stdout.String()
	}
	for _, tt := range []struct {
		name, says string
		plant      func(*store)
	}{
		{"a bit flipped", "wrong content", breaking(50, func(data []byte) ([]byte, error) { data[len(data)-1] ^= 1; return data, nil })},
		{"a torn file", "bytes of", breaking(50, func(data []byte) ([]byte, error) { return data[:len(data)-1], nil })},
		{"a read that fails", "planted", breaking(50, func([]byte) ([]byte, error) { return nil, fmt.Errorf("planted") })},
	} {
		status, r, _ := read(tt.plant, "-threshold", "checks:rate==1")
		require.Equal(t, exitThresholds, status, tt.name)
		require.Less(t, r.Total[ours]["read"].Rate, 1.0, tt.name)
		require.InDelta(t, 0.98, r.Total[ours]["read"].Rate, 0.01, tt.name)
		require.Equal(t, 1.0, r.Total["os"]["read"].Rate, tt.name)
		require.Equal(t, 1.0, r.Total[ours]["create"].Rate, tt.name)
		require.Contains(t, strings.Join(r.Failures, "\n"), tt.says, tt.name)
	}

	status, r, _ := read(func(s *store) {
		list := s.sides[0].list
		s.sides[0].list = func(ctx context.Context, dir string, names []string) ([]string, error) {
			names, err := list(ctx, dir, names)
			return names[:len(names)-1], err
		}
	}, "-threshold", "list:rate==1")
	require.Equal(t, exitThresholds, status)
	require.Zero(t, r.Total[ours]["list"].Rate, "a name lost")

	status, r, _ = read(func(s *store) {
		list := s.sides[0].list
		s.sides[0].list = func(ctx context.Context, dir string, names []string) ([]string, error) {
			time.Sleep(20 * time.Millisecond)
			return list(ctx, dir, names)
		}
	}, "-threshold", "list:med<=1.15x")
	require.Equal(t, exitThresholds, status, "slow")
	require.Equal(t, 1.0, r.Total[ours]["list"].Rate)
}

func TestUsage(t *testing.T) {
	var stdout, stderr bytes.Buffer
	for _, args := range [][]string{
		{"-compare", "one"}, {"-compare", "none", "none"}, {"more"}, {"-stages", "x"}, {"-backend", "gcs"}, {"-threshold", "read"}, {"-no"}, {"-own", "0"}, {"-from", "none"},
	} {
		stderr.Reset()
		require.Equal(t, exitUsage, run(t.Context(), args, &stdout, &stderr), args)
		require.NotEmpty(t, stderr.String())
	}
	require.Zero(t, run(t.Context(), []string{"-help"}, &stdout, &stderr))
}

func TestRunIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitFailed, run(ctx, []string{"-dir", dir, "-stages", "4:1m", "-files", "20", "-quiet"}, &stdout, &stderr))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
