package fileproc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/stretchr/testify/require"
)

// An outcome is the outcome of a run over a world.
type outcome struct {
	got    map[string]string
	failed map[string]error
	report Report
	err    error
	*trace
}

// A trace shows whether a run has given back its directories before it was over.
type trace struct {
	report *Report        // filled in when the workers are done
	late   []string       // directories that were open then
	nodes  map[*node]bool // that led to files
	run    *shared        // nil if fn has not been called
	told   int64          // failures
}

// trace makes opts those of a run over w, whose trace and Report are in out.
func (w *world) trace(out *outcome, opts *Options) {
	out.trace = &trace{report: &out.report, nodes: map[*node]bool{}}
	opts.Report = &out.report
	opts.openRoot = func(root string) (backend.Directory, error) {
		d, err := w.openRoot(root)
		if err == nil {
			d.(*worldDir).run = out.trace
		}
		return d, err
	}
}

// workerOf returns the worker that visits f.
func workerOf(f *File) *worker { return f.w.self.(*worker) }

// called adds what fn sees of the run.
func (r *trace) called(w *world, f *File) {
	if f.w.pin.state.Load() == pinInUse {
		w.objectTo("a directory that cannot be closed while fn runs")
	}
	r.saw(w, f.node)
	w.mu.Lock()
	r.run = workerOf(f).shared
	w.mu.Unlock()
}

// saw adds n, and what is above it but root, which is open for the whole run.
func (r *trace) saw(w *world, n *node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; n.parent != nil; n = n.parent {
		r.nodes[n] = true
	}
}

// fail adds a failure.
func (out *outcome) fail(err error) {
	var p *fs.PathError
	if errors.As(err, &p) {
		out.failed[strings.ReplaceAll(strings.TrimPrefix(p.Path, "root"), `\`, "/")] = err
	}
}

// process runs Process. fn may be nil.
func (w *world) process(ctx context.Context, opts Options, fn func(*File) error) outcome {
	out := outcome{got: map[string]string{}, failed: map[string]error{}}
	var mu sync.Mutex
	w.trace(&out, &opts)
	if opts.OnError == nil {
		opts.OnError = func(err error) error {
			out.told++
			out.fail(err)
			return nil
		}
	}
	_, out.err = Process(ctx, "root", opts, func(f *File) (struct{}, error) {
		rel, data := f.Rel(), string(f.Data())
		out.called(w, f)
		if fn != nil {
			if err := fn(f); err != nil {
				return struct{}{}, err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if _, ok := out.got[rel]; ok {
			w.objectTo("%s is delivered twice", rel)
		}
		out.got[rel] = data
		return struct{}{}, nil
	})
	return out
}

// requireSound checks what must hold after every end of a run, and that a complete run, whatever failed in it, had given back
// each directory before it was over.
func (w *world) requireSound(t *testing.T, out outcome) {
	t.Helper()
	require.Empty(t, w.wrong)
	require.Zero(t, w.open, "handles left open")
	requireLedger(t, out.report)
	whole := w.contents()
	for rel, data := range out.got {
		require.Equal(t, whole[rel], data, rel)
	}
	if out.trace == nil || out.err != nil || out.report.Abandoned > 0 || out.report.Skipped[SkippedByFunc] > 0 {
		return
	}
	require.Empty(t, out.late, "directories that stayed open to the end")
	for n := range out.nodes {
		require.Zero(t, n.refs, "references to %q", n.name.String())
		require.Zero(t, n.pins, "pins of %q", n.name.String())
	}
	if s := out.run; s != nil {
		require.Empty(t, s.dirs.short)
		require.True(t, s.cold.pace.IsIdle())
		require.True(t, s.order == nil || s.order.begun == 0, "results that were begun and are not delivered")
		for _, p := range s.dirs.pins {
			require.EqualValues(t, pinNone, p.state.Load())
		}
	}
	if out.told > 0 {
		require.Equal(t, out.report.Failed, out.told, "failures against calls of OnError")
	}
}

func requireLedger(t *testing.T, r Report) {
	t.Helper()
	sum := r.Processed + r.Unchanged + r.Failed + r.Abandoned
	for _, n := range r.Skipped {
		sum += n
	}
	require.Equal(t, r.Found, sum, "the ledger: %+v", r)
}

// halfOld is hooks.Unchanged for half of the files.
func halfOld(f *File) bool { return len(f.Rel())%2 == 0 }

// requireHonest is requireSound for runs that may have read prefixes, or nothing of halfOld.
func (w *world) requireHonest(t *testing.T, out outcome, opts Options) {
	t.Helper()
	if opts.ReadSize > 0 {
		whole := w.contents()
		for rel, data := range out.got {
			require.Equal(t, whole[rel][:min(opts.ReadSize, len(whole[rel]))], data, rel)
		}
		out.got = nil
	}
	if opts.hooks.Unchanged != nil {
		out.got = maps.Clone(out.got)
		for rel, data := range out.got {
			if len(rel)%2 == 0 {
				require.Empty(t, data, rel)
				delete(out.got, rel)
			}
		}
	}
	w.requireSound(t, out)
}

// inBubble runs test in fake time. No goroutine may be left when it returns: synctest fails then.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Time in the bubble advances only if goroutines wait for the bubble's own channels.
		outside := fdTurn
		fdTurn = make(chan struct{}, 1)
		defer func() { fdTurn = outside }()
		test(t)
	})
}

// everyWorld runs test with each way to list and some numbers of workers.
func everyWorld(t *testing.T, tree func() *object, test func(t *testing.T, w *world, workers int)) {
	t.Helper()
	for _, workers := range []int{1, 2, 7} {
		for _, perList := range []int{1, 3, 100} {
			for _, eager := range []bool{false, true} {
				inBubble(t, func(t *testing.T) {
					test(t, &world{root: tree(), perList: perList, eager: eager}, workers)
				})
			}
		}
	}
}

// everyCall interferes with each call of the backend in turn, and with those that fn makes through f.Stat. Test gets
// the number of the call and a function that stops there; it returns false if the run ended before.
func everyCall(t *testing.T, test func(t *testing.T, w *world, opts Options, k int) (reached bool)) {
	for _, workers := range []int{1, 3} {
		for _, opts := range []Options{{}, {Stat: true, ReadSize: 3}, {hooks: hooks{Unchanged: halfOld}}} {
			t.Run(fmt.Sprintf("workers=%d/ReadSize=%d/Unchanged=%v", workers, opts.ReadSize, opts.hooks.Unchanged != nil), func(t *testing.T) {
				opts.Workers = workers
				for k := 0; ; k++ {
					reached := false
					inBubble(t, func(t *testing.T) { reached = test(t, &world{root: small()}, opts, k) })
					if !reached {
						require.Greater(t, k, 20, "this tests nothing if the run makes few calls")
						return
					}
				}
			})
		}
	}
}

// forest is a tree with more directories than may stay open.
func forest() *object {
	root := folder("", file("top", "top"))
	for i := range 9 {
		d := folder(fmt.Sprint("d", i))
		for j := range 4 {
			sub := folder(fmt.Sprint("s", j))
			for k := range 3 {
				sub.kids = append(sub.kids, file(fmt.Sprint("f", k), fmt.Sprint("content of ", i, j, k)))
			}
			d.kids = append(d.kids, file(fmt.Sprint("f", j), fmt.Sprint("content of ", i, j)), sub)
		}
		root.kids = append(root.kids, d)
	}
	at := root
	for i := range 40 {
		// Pending siblings on the way down keep a reference to each level, even if another worker enters some of them.
		next := folder(fmt.Sprint("deep", i), file("f", fmt.Sprint("depth ", i)))
		for j := range max(1, 3-i/10) {
			next.kids = append(next.kids, folder(fmt.Sprint("beside", j), file("g", fmt.Sprint("beside ", i, j))))
		}
		at.kids = append(at.kids, next)
		at = next
	}
	return root
}

// small is a tree for tests that interfere with each step of a run.
func small() *object {
	return folder("",
		file("a", "alpha"),
		folder("d", file("b", "beta", chunks(1)), folder("e", file("c", "gamma", atHand(2)), file("u", "upsilon", unknown))),
		file("long", strings.Repeat("long ", content.FirstBuffer/4)),
		file("x", "x", vanished),
		folder("gone").with(vanished),
		file("few", "few", opening(scarceErrors[0], scarceErrors[0])),
		folder("empty"),
	)
}
