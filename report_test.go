package fileproc

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/internal/backend"
)

// There is room to count every SkipReason that report.go declares, in whatever order they are met.
func TestCountsOfEverySkipReason(t *testing.T) {
	if _, err := os.Stat("report.go"); err != nil {
		t.Skip("the tests run without their source: ", err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "report.go", nil, 0)
	require.NoError(t, err)
	var all []SkipReason
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Skipped") {
			all = append(all, SkipReason(v.Values[0].(*ast.BasicLit).Value))
		}
		return true
	})
	require.NotEmpty(t, all)
	var one, other, sum counts
	for i, why := range all {
		one.addSkipped(why, 0)
		one.addSkipped(why, int64(i+1))
		other.addSkipped(all[len(all)-1-i], 100)
		other.addSkipped(all[len(all)-1-i], 0)
	}
	sum.add(&one)
	sum.add(&other)
	want := map[SkipReason]int64{}
	for i, why := range all {
		want[why] = int64(i + 101)
	}
	require.Equal(t, want, newReport(sum, 0).Skipped)
}

// OnProgress sees all work done so far, also while one fn takes long and the other workers wait.
func TestProgressIsWhatHasHappened(t *testing.T) {
	const quick = 1000
	tree := folder("", folder("empty"))
	for i := range quick {
		tree.kids = append(tree.kids, file(fmt.Sprintf("f%04d", i), "text"))
	}
	for _, slow := range []string{"f0000", "f0500", "f0999"} {
		for how, run := range map[string]func(context.Context, Options, func(*File) (int, error)) error{
			"Process": func(ctx context.Context, o Options, fn func(*File) (int, error)) error {
				_, err := Process(ctx, "root", o, fn)
				return err
			},
			"Stream": func(ctx context.Context, o Options, fn func(*File) (int, error)) (err error) {
				for _, err = range Stream(ctx, "root", o, fn) {
				}
				return err
			},
			"Stream in order": func(ctx context.Context, o Options, fn func(*File) (int, error)) (err error) {
				o.Ordered = true
				for _, err = range Stream(ctx, "root", o, fn) {
				}
				return err
			},
		} {
			inBubble(t, func(t *testing.T) {
				w := &world{root: tree, perList: 100}
				var seen []Report
				opts := Options{Workers: 2, openRoot: w.openRoot, OnProgress: func(r Report) { seen = append(seen, r) }}
				require.NoError(t, run(t.Context(), opts, func(f *File) (int, error) {
					if f.Name() == slow {
						time.Sleep(time.Second - progressPeriod/2)
					}
					return 0, nil
				}), how)
				require.Len(t, seen, 10, how)
				for _, r := range seen[:9] {
					require.EqualValues(t, quick-1, r.Processed, "%s, slow is %s", how, slow)
					require.EqualValues(t, quick, r.Found)
					require.EqualValues(t, 2, r.Directories)
				}
				require.EqualValues(t, quick, seen[9].Processed, how)
			})
		}
	}
}

// What nobody has visited is known when all workers have returned, and no sooner.
func TestProgressHasNothingAbandoned(t *testing.T) {
	s := &shared{resources: resources{pool: new(pool)}, workers: []*worker{nil, {}}}
	s.workers[1].shown.counts = counts{found: 3, abandoned: 2}
	require.Equal(t, counts{found: 3}, s.shownCounts())
}

// What a callback reads behind File.Data is shown at once, and once.
func TestShownCountsOfWhatIsRead(t *testing.T) {
	s := &shared{resources: resources{pool: new(pool)}, calls: callbacks{onProgress: func(counts, time.Duration) {}}}
	w := &worker{shared: s}
	s.workers = []*worker{w}
	w.read.Store(5)
	require.EqualValues(t, 5, s.shownCounts().bytes)
	w.counts.bytes = 8
	require.EqualValues(t, 5, s.shownCounts().bytes)
	w.show()
	require.EqualValues(t, 8, s.shownCounts().bytes)
}

// A panic of the last call is a *PanicError too, and does not hide that of fn.
func TestProgressPanicAtTheEnd(t *testing.T) {
	for _, fnPanics := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file("a", ""))}
			opts := Options{openRoot: w.openRoot, OnProgress: func(Report) { panic("of OnProgress") }}
			defer func() {
				p, ok := recover().(*PanicError)
				require.True(t, ok)
				require.Equal(t, map[bool]string{false: "of OnProgress", true: "of fn"}[fnPanics], p.Value)
			}()
			_ = ForEach(t.Context(), "root", opts, func(*File) error {
				if fnPanics {
					panic("of fn")
				}
				return nil
			})
		})
	}
}

// TestProgressIsOneCallAtATime: including the last call, at the end of the run.
func TestProgressIsOneCallAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := &world{root: folder("", file("a", ""))}
		calls, inside := 0, atomic.Int32{}
		opts := Options{openRoot: w.openRoot, OnProgress: func(Report) {
			assert.EqualValues(t, 1, inside.Add(1), "calls at once")
			calls++
			time.Sleep(time.Second)
			inside.Add(-1)
		}}
		_, err := Process(t.Context(), "root", opts, func(*File) (int, error) { time.Sleep(progressPeriod * 3 / 2); return 0, nil })
		require.NoError(t, err)
		require.GreaterOrEqual(t, calls, 2)
		require.Zero(t, inside.Load())
	})
}

// TestProgressPanicIsNotLost: not even if the run fails before it begins.
func TestProgressPanicIsNotLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var once sync.Once
		opts := Options{
			openRoot:   func(string) (backend.Directory, error) { time.Sleep(time.Second); return nil, errBroken },
			OnProgress: func(Report) { once.Do(func() { panic("told") }) },
		}
		require.Panics(t, func() { _, _ = Process(t.Context(), "root", opts, func(*File) (int, error) { return 0, nil }) })
	})
}
