//go:build linux

package fileproc_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

func TestInvariant1ManyFilesAreExact(t *testing.T) {
	watchdog(t)
	root, rels := plantMany(t, 4, 700)
	for _, workers := range []int{1, 2, 8} {
		for _, opts := range []fileproc.Options{
			{}, {DisableURing: true}, {ReadSize: 1}, {ReadSize: 511}, {ReadSize: 512}, {ReadSize: 513}, {ReadSize: 4096},
			{ReadSize: 16<<10 - 1}, {ReadSize: 16 << 10}, {ReadSize: 1 << 20}, {Stat: true}, {MaxFileSize: -1}, {MaxFileSize: 1 << 20},
			{Select: func(*fileproc.File) bool { return true }},
		} {
			opts.Workers = workers
			leavesNoRing(t, func() { requireExact(t, root, opts, rels) })
		}
	}
}

func TestInvariant1ManyFilesAreExactWithAColdCache(t *testing.T) {
	watchdog(t)
	root, rels := plantMany(t, 3, 1000)
	for _, opts := range []fileproc.Options{{}, {Workers: 1}, {Workers: 8}, {Workers: 2, ReadSize: 4096}} {
		if err := dropCaches(); err != nil {
			t.Logf("left out: cold caches: %v", err)
			return
		}
		leavesNoRing(t, func() { requireExact(t, root, opts, rels) })
	}
}

// unreadableAmongMany runs as a user who may not read every third file: its open fails, and with it the requests that a ring
// has linked to that open.
func unreadableAmongMany(t *testing.T, root string) {
	shut := map[string]bool{}
	rels := relsOf(t, root)
	for i, rel := range rels {
		shut[rel] = i%3 == 0
	}
	for _, workers := range []int{1, 2, 8} {
		var report fileproc.Report
		leavesNoRing(t, func() {
			got, err := fileproc.Process(t.Context(), root, fileproc.Options{Workers: workers, Report: &report},
				func(f *fileproc.File) (int, error) {
					if shut[filepath.ToSlash(f.Rel())] {
						return 0, errors.New("opened although it is unreadable")
					}
					return 0, exact(f, 0)
				})
			require.ErrorIs(t, err, fs.ErrPermission)
			require.NotContains(t, err.Error(), "unreadable")
			require.NotContains(t, err.Error(), "wrong")
			require.Len(t, got, len(rels)-(len(rels)+2)/3)
		})
		require.EqualValues(t, (len(rels)+2)/3, report.Failed)
		requireBalanced(t, report)
	}
}

func TestInvariant1UnreadableAmongMany(t *testing.T) {
	root, rels := plantMany(t, 2, 1000)
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	for i, rel := range rels {
		if i%3 == 0 {
			require.NoError(t, os.Chmod(filepath.Join(root, rel), 0))
		}
	}
	runTask(t, "unreadable", root, asNobody(t))
}

// A file is replaced just before it is read, while those around it are being read.
func TestInvariant3ReplacedAmongMany(t *testing.T) {
	for what, replace := range replacements(t) {
		for _, workers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/workers=%d", what, workers), func(t *testing.T) {
				watchdog(t)
				root, rels := plantMany(t, 1, 800)
				dir := filepath.Join(root, "d00")
				entries, err := fileproc.ReadDir(dir)
				require.NoError(t, err)
				var (
					mu       sync.Mutex
					next     int // the entry that is called next
					replaced = map[string]bool{}
				)
				var report fileproc.Report
				opts := fileproc.Options{Workers: workers, Report: &report, MaxDepth: 2}
				got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					if next++; next%4 == 0 && next+200 < len(entries) {
						name := entries[next+1+next*7%190].Name()
						path := filepath.Join(dir, name)
						if rel := "d00/" + name; !replaced[rel] && os.Remove(path) == nil {
							replaced[rel] = true
							if err := replace(path); err != nil {
								return "", err
							}
						}
					}
					return filepath.ToSlash(f.Rel()), exact(f, 0)
				})
				require.NotEmpty(t, replaced)
				require.ErrorIs(t, err, fileproc.ErrChanged)
				require.NotContains(t, err.Error(), "wrong")
				require.NotContains(t, err.Error(), "process")
				seen := map[string]bool{}
				for _, rel := range got {
					require.False(t, seen[rel], "%s twice", rel)
					seen[rel] = true
				}
				for _, rel := range rels {
					require.True(t, seen[rel] || replaced[rel], "%s was not delivered", rel)
				}
				require.LessOrEqual(t, report.Failed, int64(len(replaced)))
				requireBalanced(t, report)
			})
		}
	}
}

func TestInvariant1FilesBesideOnesThatChange(t *testing.T) {
	watchdog(t)
	root, rels := plantMany(t, 2, 800)
	require.NoError(t, os.WriteFile(filepath.Join(root, "secret"), []byte("secret"), 0o644))
	var moving []string
	for i := range 600 {
		path := filepath.Join(root, fmt.Sprintf("d%02d/moving%03d", i%2, i))
		require.NoError(t, os.WriteFile(path, []byte("mmm"), 0o644))
		moving = append(moving, path)
	}
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 2 {
		random := rand.New(rand.NewSource(int64(w)))
		aside := filepath.Join(t.TempDir(), "aside")
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					testtree.Disturb(random, moving[random.Intn(len(moving))], aside)
				}
			}
		})
	}
	defer writers.Wait()
	defer close(stop)
	runs := 150
	switch {
	case testing.Short():
		runs = 15
	case raceDetector: // it finds accesses that could meet, whether they do or not
		runs = 40
	}
	for i := range runs {
		var report fileproc.Report
		opts := fileproc.Options{Workers: 1 + i%4, Report: &report, ReadSize: []int{0, 0, 700, 4096}[i%4]}
		got, err := fileproc.Process(t.Context(), root, opts, func(f *fileproc.File) (string, error) {
			switch {
			case f.Name() == "secret":
				return "", fileproc.ErrSkip
			case !strings.HasPrefix(f.Name(), "moving"):
				return filepath.ToSlash(f.Rel()), exact(f, opts.ReadSize)
			}
			// A file that is being truncated and extended may read as zeros in between.
			for _, b := range f.Data() {
				if b != 'm' && b != 0 {
					return "", fmt.Errorf("wrong bytes: %q", b)
				}
			}
			return "", fileproc.ErrSkip
		})
		if err != nil {
			require.NotContains(t, err.Error(), "wrong")
		}
		require.Len(t, got, len(rels), "%v", err)
		seen := map[string]bool{}
		for _, rel := range got {
			require.False(t, seen[rel], "%s twice", rel)
			seen[rel] = true
		}
		requireBalanced(t, report)
	}
}

// Entries that stay are given once, however the directory changes meanwhile.
func TestReadDirOfManyEntriesThatChange(t *testing.T) {
	dir, names := t.TempDir(), []string{}
	for i := range 6000 {
		name := fmt.Sprintf("%04d%s", i, strings.Repeat("-", 10+i%60))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		names = append(names, name)
	}
	procs := runtime.GOMAXPROCS(2) // ReadDir takes a second descriptor where it can
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
	var (
		stop atomic.Bool
		wg   sync.WaitGroup
	)
	for c := range 2 {
		wg.Go(func() {
			random := rand.New(rand.NewSource(int64(c)))
			path := func() string {
				i := random.Intn(3000)
				return filepath.Join(dir, fmt.Sprintf("m%d-%d%s", c, i, strings.Repeat("x", i%90)))
			}
			for !stop.Load() {
				switch p := path(); random.Intn(4) {
				case 0, 1:
					os.WriteFile(p, nil, 0o600)
				case 2:
					os.Remove(p)
				case 3:
					os.Rename(p, path())
				}
			}
		})
	}
	defer wg.Wait()
	defer stop.Store(true)
	testtree.Set(t, &knobs.AlwaysCold, true)
	for range 20 {
		entries, err := fileproc.ReadDir(dir)
		require.NoError(t, err)
		seen, run := map[string]int{}, map[string]int{}
		for _, e := range entries {
			seen[e.Name()]++
		}
		for e, err := range fileproc.Walk(t.Context(), dir, fileproc.Options{Workers: 4}) { // in parts
			require.NoError(t, err)
			run[e.Name()]++
		}
		for _, name := range names {
			require.Equal(t, [2]int{1, 1}, [2]int{seen[name], run[name]}, name)
		}
	}
}
