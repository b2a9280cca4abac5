package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/stretchr/testify/require"
)

const benchDirs, benchFiles = 1000, 100 // files in each

// plantBench makes 100,000 files in 1,000 directories, which have settled.
func plantBench(b *testing.B) (root string) {
	root = b.TempDir()
	old := time.Now().Add(-time.Hour)
	for d := range benchDirs {
		dir := filepath.Join(root, fmt.Sprint("d", d%10), fmt.Sprint("e", d))
		require.NoError(b, os.MkdirAll(dir, 0o755))
		for i := range benchFiles {
			name := filepath.Join(dir, fmt.Sprintf("f%02d.md", i))
			require.NoError(b, os.WriteFile(name, []byte(name), 0o644))
			require.NoError(b, os.Chtimes(name, old, old))
		}
	}
	return root
}

func size(f *fileproc.File) (int, error) { return len(f.Data()), nil }

// BenchmarkStart measures the time from the call of Changes to the first Settled, with nothing changed, and the same with incremental.Stream.
func BenchmarkStart(b *testing.B) {
	root := plantBench(b)
	inc := incremental.Options[int]{File: filepath.Join(b.TempDir(), "c"), Version: "1"}
	time.Sleep(2100 * time.Millisecond)
	for range 2 {
		for _, err := range incremental.Stream(b.Context(), root, inc, fileproc.Options{}, size) {
			require.NoError(b, err)
		}
	}
	b.Run("by=incremental", func(b *testing.B) {
		for b.Loop() {
			for _, err := range incremental.Stream(b.Context(), root, inc, fileproc.Options{}, size) {
				if err != nil { // require takes as long as half of the rest
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("by=watch", func(b *testing.B) {
		for b.Loop() {
			for c, err := range Stream(b.Context(), root, inc, fileproc.Options{}, size) {
				if err != nil {
					b.Fatal(err)
				}
				if c.Settled {
					b.StopTimer() // the end takes the kernel up to 17 ms
					break
				}
			}
			b.StartTimer()
		}
	})
}

// watchBench starts a loop. It returns the loop's watcher, and a channel of the changes, which holds a limited number of them.
func watchBench(b *testing.B, root string, most int, set func(*Watcher[int])) (*Watcher[int], <-chan Change[int]) {
	w := New(root, incremental.Options[int]{File: filepath.Join(b.TempDir(), "c"), Version: "1"}, fileproc.Options{}, size)
	w.Quiet = -1
	set(w)
	ctx, cancel := context.WithCancel(context.Background())
	got, ended := make(chan Change[int], most), make(chan bool)
	go func() {
		defer close(ended)
		for c, err := range w.Changes(ctx) {
			if err == nil {
				got <- c
			}
		}
	}()
	b.Cleanup(func() { cancel(); <-ended })
	require.NoError(b, w.Sync(b.Context()))
	time.Sleep(2100 * time.Millisecond)
	require.NoError(b, w.Sync(b.Context()))
	for len(got) > 0 {
		<-got
	}
	return w, got
}

// BenchmarkChange measures the time from close(2) of a written file until the loop has its result, without a quiet time.
func BenchmarkChange(b *testing.B) {
	root := plantBench(b)
	_, got := watchBench(b, root, 1<<20, func(*Watcher[int]) {})
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		name := filepath.Join(root, "d1", "e1", fmt.Sprintf("f%02d.md", n%benchFiles))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
		require.NoError(b, err)
		_, err = fmt.Fprintf(f, "%0*d", 10+n, n)
		require.NoError(b, err)
		require.NoError(b, f.Close())
		start := time.Now()
		for c := range got {
			if c.Value == 10+n {
				break
			}
		}
		took = append(took, time.Since(start))
		time.Sleep(5 * time.Millisecond)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-µs")
}

// BenchmarkSwitch changes 10,000 of 100,000 files, so that the loop processes each of these once. It compares this with runs over
// the same names: a run that keeps nothing, and a run that loads and saves what is known of all files.
func BenchmarkSwitch(b *testing.B) {
	root := plantBench(b)
	var names []string
	for d := range benchDirs / 10 {
		for i := range benchFiles {
			names = append(names, fmt.Sprintf("d%d/e%d/f%02d.md", d%10, d, i))
		}
	}
	n := 0
	change := func() {
		n++
		for _, rel := range names {
			require.NoError(b, os.WriteFile(filepath.Join(root, rel), fmt.Append(nil, n, rel), 0o644))
		}
	}
	inc := incremental.Options[int]{File: filepath.Join(b.TempDir(), "c"), Version: "1"}
	_, err := incremental.Process(b.Context(), root, inc, fileproc.Options{}, size)
	require.NoError(b, err)
	named := fileproc.Options{Files: slices.Values(names)}
	for by, process := range map[string]func() ([]int, error){
		"process":     func() ([]int, error) { return fileproc.Process(b.Context(), root, named, size) },
		"incremental": func() ([]int, error) { return incremental.Process(b.Context(), root, inc, named, size) },
	} {
		b.Run("by="+by, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				change()
				b.StartTimer()
				_, err := process()
				require.NoError(b, err)
			}
		})
	}
	b.Run("by=watch", func(b *testing.B) {
		w, got := watchBench(b, root, 1<<20, func(w *Watcher[int]) { w.Quiet, w.MaxWait = time.Hour, time.Hour })
		for b.Loop() {
			b.StopTimer()
			change()
			b.StartTimer()
			require.NoError(b, w.Sync(b.Context()))
			b.StopTimer()
			require.Len(b, got, len(names)+1, "each once, and that it has settled")
			time.Sleep(2100 * time.Millisecond) // what was processed too soon to be kept is processed again
			require.NoError(b, w.Sync(b.Context()))
			for len(got) > 0 {
				<-got
			}
			b.StartTimer()
		}
	})
}

// BenchmarkMemory measures the memory of a loop over empty directories, per directory.
func BenchmarkMemory(b *testing.B) {
	root := b.TempDir()
	const dirs = 20_000
	for d := range dirs {
		require.NoError(b, os.MkdirAll(filepath.Join(root, fmt.Sprint("d", d%100), fmt.Sprint("e", d)), 0o755))
	}
	memory := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := memory()
		w, _ := watchBench(b, root, 10, func(*Watcher[int]) {})
		b.ReportMetric(float64(memory()-before)/dirs, "B/dir")
		runtime.KeepAlive(w)
	}
}
