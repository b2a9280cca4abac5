package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
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

func TestMetric(t *testing.T) {
	m := newMetric(sample{latencies: []time.Duration{3e6, 1e6, 2e6}, failed: 1, bytes: 5e6}, 2*time.Second)
	require.Equal(t, metric{"count": 4, "rate": 0.75, "ops/s": 1.5, "MB/s": 2.5, "avg": 2, "min": 1, "med": 2, "p(50)": 2, "p(90)": 3,
		"p(95)": 3, "p(99)": 3, "p(99.9)": 3, "max": 3}, m)
	require.Equal(t, metric{"count": 2, "rate": 0}, newMetric(sample{failed: 2}, time.Second))
	require.Equal(t, metric{"count": 0, "rate": 1}, newMetric(sample{}, time.Second))
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
	rng := rand.New(rand.NewPCG(1, 1))
	const n = 100_000
	for _, shares := range [][]int{mix, sizeShares} {
		picked, total := map[int]int{}, 0
		for range n {
			picked[pick(rng, shares)]++
		}
		for i, percent := range shares {
			require.InDelta(t, percent*n/100, picked[i], n/200, i)
			total += percent
		}
		require.Equal(t, 100, total)
	}
	require.Len(t, mix, operations)
	require.Len(t, sizeShares, len(sizes))
}

func TestParseStages(t *testing.T) {
	want := []stage{{25, 20 * time.Second}, {100, time.Minute}}
	got, err := parseStages("25:20s,100:1m")
	require.NoError(t, err)
	require.Equal(t, want, got)
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

// made returns what a run could have left, with all times of a side in a pair of slices equal to value(pair, side).
func made(pairs int, value func(pair, side int) float64) *outcome {
	r := &outcome{About: "m, l", Sides: [2]string{ours, "io/fs"}}
	for i := range pairs {
		p := level{VUs: 25}
		for s := range p.Sides {
			p.Sides[s] = map[string]metric{}
			for _, op := range opNames {
				m := metric{"count": 100, "rate": 1, "ops/s": 100}
				for _, stat := range []string{"avg", "min", "med", "p(50)", "p(90)", "p(95)", "p(99)", "p(99.9)", "max"} {
					m[stat] = value(i, s)
				}
				p.Sides[s][op] = m
			}
		}
		r.Pairs = append(r.Pairs, p)
	}
	r.Levels = []level{{0, r.Pairs[0].Sides}, {25, r.Pairs[0].Sides}}
	return r
}

func TestThresholds(t *testing.T) {
	r := made(1, func(_, side int) float64 { return 3 - float64(side) }) // 3 ms through fileproc, 2 ms through os
	read := r.Levels[0].Sides[0]["read"]
	read["rate"] = 0.99
	for text, want := range map[string]bool{
		"read:p(95)<500": true, "read:p(95)<3": false, "read:p(95)<=3": true, "read:p(99.9)<3.001": true, "read:p(50)<2.9": false,
		"read:avg>3": false, "read:min>=3": true, "read:max==3": true,
		"read:p(95)<=1.5x": true, "read:p(95)<=1.49x": false, "list:avg<1.15x": false,
		"read:rate==1": false, "read:rate>0.98": true, "create:rate==1": true, "checks:rate==1": false, "checks:rate>=0.998": true,
		"read:count>=100": true, "read:count>100": false,
	} {
		one, err := parseThreshold(text)
		require.NoError(t, err)
		_, ok := one.judge(r)
		require.Equal(t, want, ok, text)
	}
	for _, text := range []string{
		"", "p(95)<5", "read:p(94)<5", "read:p(95)", "read:p(95)<", "read:p(95)<x", "read:p(95)<5ms", "read:p95<5", "write:p(95)<5", "checks:p(95)<5",
		"read:p(95)<5..5", "read:p(95)=5", "read:p(95)<5 and more",
	} {
		_, err := parseThreshold(text)
		require.Error(t, err, text)
	}
	r.Levels[0].Sides[0]["read"] = newMetric(sample{failed: 100}, time.Second)
	one, err := parseThreshold("read:p(95)<500")
	require.NoError(t, err)
	_, ok := one.judge(r)
	require.False(t, ok, "nothing succeeded")
}

// A record is read as it was written, also where nothing succeeded.
func TestRecord(t *testing.T) {
	want := made(3, func(pair, side int) float64 { return float64(1 + pair + side) })
	want.Pairs[1].Sides[1]["list"] = metric{"count": 2, "rate": 0}
	want.Pairs = append(want.Pairs, level{100, want.Pairs[0].Sides})
	want.Levels = append(want.Levels, level{100, want.Pairs[0].Sides})
	name := filepath.Join(t.TempDir(), "a")
	require.NoError(t, want.save(name))
	got, err := loadOutcome(name)
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, text := range []string{"", "{}", "BenchmarkOther 1 2 ns/op\n"} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		_, err := loadOutcome(name)
		require.Error(t, err, text)
	}
}

// Benchstat finds a difference between two records, of the side that has it and of the ratio.
func TestBenchstatReadsRecords(t *testing.T) {
	names := []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")}
	for i, name := range names {
		require.NoError(t, made(10, func(pair, side int) float64 { return 1 + float64(pair)/1000 + float64(i*(1-side)) }).save(name))
	}
	out, err := exec.Command("go", append(strings.Fields("run golang.org/x/perf/cmd/benchstat -filter .name:Slice -table side -row set -col .file -format csv"),
		names...)...).Output()
	require.NoError(t, err)
	_, ratio, _ := strings.Cut(string(out), "side: ratio")
	require.Contains(t, ratio, "+99.55%,p=0.000 n=10")
	_, other, _ := strings.Cut(string(out), "side: io/fs")
	require.NotContains(t, strings.Split(other, "side: ")[0], "p=0.000")
}

// brief is a load of two seconds.
func brief(backend, dir string, more ...string) []string {
	return append([]string{"-backend", backend, "-dir", dir, "-stages", "2:500ms,8:1s,2:500ms", "-slice", "50ms", "-files", "60", "-own", "5"}, more...)
}

func TestRun(t *testing.T) {
	for _, backend := range []string{"os", "s3"} {
		t.Run(backend, func(t *testing.T) {
			dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
			var stdout, stderr bytes.Buffer
			status := run(t.Context(), brief(backend, dir, "-out", out, "-plot", out, "-threshold", "checks:rate==1", "-threshold", "read:p(95)<60000"), &stdout, &stderr, nil)
			require.Zero(t, status, "%s%s", &stdout, &stderr)
			r, err := loadOutcome(out)
			require.NoError(t, err)
			require.NotContains(t, stdout.String(), "failed:")
			for side := range r.Sides {
				for _, op := range opNames {
					m := r.Levels[0].Sides[side][op]
					require.Positive(t, m["count"], "%d %s", side, op)
					require.Equal(t, 1.0, m["rate"], "%d %s", side, op)
				}
			}
			require.Len(t, r.Levels, 3)
			require.Equal(t, backend == "s3", strings.Contains(r.About, "backend io/fs"))
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
			require.Zero(t, run(t.Context(), []string{"-from", out, "-threshold", "read:p(95)<60000"}, &stdout, &stderr, nil))
			require.Contains(t, stdout.String(), "✓ read:p(95)<60000")
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
	read := func(plant func(*store), more ...string) (int, *outcome, string) {
		var stdout, stderr bytes.Buffer
		out := filepath.Join(t.TempDir(), "out")
		status := run(t.Context(), brief("os", t.TempDir(), append([]string{"-out", out, "-stages", "4:400ms"}, more...)...), &stdout, &stderr, plant)
		r, err := loadOutcome(out)
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
		status, r, says := read(tt.plant, "-threshold", "checks:rate==1")
		require.Equal(t, exitThresholds, status, tt.name)
		require.Less(t, r.Levels[0].Sides[0]["read"]["rate"], 1.0, tt.name)
		require.InDelta(t, 0.98, r.Levels[0].Sides[0]["read"]["rate"], 0.01, tt.name)
		require.Equal(t, 1.0, r.Levels[0].Sides[1]["read"]["rate"], tt.name)
		require.Equal(t, 1.0, r.Levels[0].Sides[0]["create"]["rate"], tt.name)
		require.Contains(t, says, tt.says, tt.name)
	}

	status, r, _ := read(func(s *store) {
		list := s.sides[0].list
		s.sides[0].list = func(ctx context.Context, dir string) ([]string, error) {
			names, err := list(ctx, dir)
			return names[:len(names)-1], err
		}
	}, "-threshold", "list:rate==1")
	require.Equal(t, exitThresholds, status)
	require.Zero(t, r.Levels[0].Sides[0]["list"]["rate"], "a name lost")

	status, r, _ = read(func(s *store) {
		list := s.sides[0].list
		s.sides[0].list = func(ctx context.Context, dir string) ([]string, error) {
			time.Sleep(20 * time.Millisecond)
			return list(ctx, dir)
		}
	}, "-threshold", "list:med<=1.15x")
	require.Equal(t, exitThresholds, status, "slow")
	require.Equal(t, 1.0, r.Levels[0].Sides[0]["list"]["rate"])
}

func TestUsage(t *testing.T) {
	var stdout, stderr bytes.Buffer
	for _, args := range [][]string{
		{"more"}, {"-stages", "x"}, {"-backend", "gcs"}, {"-threshold", "read"}, {"-no"}, {"-own", "0"}, {"-from", "none"},
	} {
		stderr.Reset()
		require.Equal(t, exitUsage, run(t.Context(), args, &stdout, &stderr, nil), args)
		require.NotEmpty(t, stderr.String())
	}
	require.Zero(t, run(t.Context(), []string{"-help"}, &stdout, &stderr, nil))
}

func TestRunIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitFailed, run(ctx, []string{"-dir", dir, "-stages", "4:1m", "-files", "20"}, &stdout, &stderr, nil))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
