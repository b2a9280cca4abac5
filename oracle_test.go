package fileproc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// A snapshot is a tree as filepath.WalkDir and os.ReadFile see it.
type snapshot struct {
	types map[string]fs.FileMode // every entry by slash-separated path, root left out
	files map[string][]byte      // the regular ones
}

func take(t testing.TB, dir string) snapshot {
	return snapshot{testtree.List(t, dir), testtree.Snapshot(t, dir)}
}

// An expectation is what a run has to give.
type expectation struct {
	files  map[string]content
	dirs   map[string]bool // what Walk yields beside the files
	report fileproc.Report
}

type content struct {
	data      string
	truncated bool
}

// expect works out, entry by entry and from the path alone, what opts mean for the tree. selected stands for
// Options.Select and may be nil.
func expect(tree snapshot, opts fileproc.Options, selected func(rel string) bool) expectation {
	e := expectation{
		files:  map[string]content{},
		dirs:   map[string]bool{},
		report: fileproc.Report{Directories: 1, Skipped: map[fileproc.SkipReason]int64{}},
	}
	for rel, typ := range tree.types {
		parts := strings.Split(rel, "/")
		name, parents := parts[len(parts)-1], parts[:len(parts)-1]
		hidden := func(name string) bool { return opts.SkipHidden && strings.HasPrefix(name, ".") }
		if slices.ContainsFunc(parents, hidden) || (opts.MaxDepth > 0 && len(parts) > opts.MaxDepth) {
			continue
		}
		if typ.IsDir() {
			if !hidden(name) {
				e.dirs[rel] = true
				if opts.MaxDepth == 0 || len(parts) < opts.MaxDepth {
					e.report.Directories++
				}
			}
			continue
		}
		e.report.Found++
		switch {
		case opts.Suffixes != nil && !slices.ContainsFunc(opts.Suffixes, func(s string) bool { return strings.HasSuffix(name, s) }):
			e.report.Skipped[fileproc.SkippedSuffix]++
		case hidden(name):
			e.report.Skipped[fileproc.SkippedHidden]++
		case !typ.IsRegular():
			e.report.Skipped[fileproc.SkippedNotRegular]++
		case selected != nil && !selected(rel):
			e.report.Skipped[fileproc.SkippedSelect]++
		default:
			e.report.Processed++
			c := content{data: string(tree.files[rel])}
			switch n := opts.ReadSize; {
			case n == fileproc.NoRead:
				c = content{}
			case n > 0 && len(c.data) > n:
				c = content{c.data[:n], true}
			}
			e.files[rel] = c
			e.report.Bytes += int64(len(c.data))
		}
	}
	return e
}

// A delivery is what fn saw of one file.
type delivery struct {
	rel string
	content
}

// look takes in all that a File says and checks what holds for every file.
func look(p place, opts fileproc.Options, f *fileproc.File) (delivery, error) {
	rel := filepath.ToSlash(f.Rel())
	switch want := p.path(rel); {
	case f.Name() != path.Base(rel):
		return delivery{}, fmt.Errorf("Name is %.80q where Rel is %.300q", f.Name(), rel)
	case f.Path() != want:
		return delivery{}, fmt.Errorf("Path is %.300q, want %.300q", f.Path(), want)
	case len(f.Data()) != cap(f.Data()):
		return delivery{}, fmt.Errorf("len(Data) is %d, cap is %d", len(f.Data()), cap(f.Data()))
	case f.Worker() < 0 || opts.Workers > 0 && f.Worker() >= opts.Workers:
		return delivery{}, fmt.Errorf("Worker is %d of %d", f.Worker(), opts.Workers)
	}
	return delivery{rel, content{string(f.Data()), f.Truncated()}}, nil
}

// path returns what File.Path is for rel.
func (p place) path(rel string) string {
	if p.fsys != nil {
		return path.Join(p.root, rel)
	}
	return filepath.Join(p.root, filepath.FromSlash(rel))
}

// verifiers run opts over a place and say how the outcome differs from want, for each entry point.
var verifiers = map[string]func(ctx context.Context, p place, opts fileproc.Options, want expectation) error{
	"Process": func(ctx context.Context, p place, opts fileproc.Options, want expectation) error {
		opts.Report, opts.FS = new(fileproc.Report), p.fsys
		got, err := fileproc.Process(ctx, p.root, opts, func(f *fileproc.File) (delivery, error) { return look(p, opts, f) })
		if err != nil {
			return err
		}
		return errors.Join(inOrder(opts, got), want.compare(got), want.compareReport(*opts.Report, false))
	},
	"ForEach": func(ctx context.Context, p place, opts fileproc.Options, want expectation) error {
		opts.Report, opts.FS = new(fileproc.Report), p.fsys
		var mu sync.Mutex
		var got []delivery
		err := fileproc.ForEach(ctx, p.root, opts, func(f *fileproc.File) error {
			d, err := look(p, opts, f)
			mu.Lock()
			defer mu.Unlock()
			got = append(got, d)
			return err
		})
		if err != nil {
			return err
		}
		return errors.Join(want.compare(got), want.compareReport(*opts.Report, false))
	},
	"Stream": func(ctx context.Context, p place, opts fileproc.Options, want expectation) error {
		opts.Report, opts.FS = new(fileproc.Report), p.fsys
		var got []delivery
		for d, err := range fileproc.Stream(ctx, p.root, opts, func(f *fileproc.File) (delivery, error) { return look(p, opts, f) }) {
			if err != nil {
				return err
			}
			got = append(got, d)
		}
		return errors.Join(inOrder(opts, got), want.compare(got), want.compareReport(*opts.Report, false))
	},
	"Walk": func(ctx context.Context, p place, opts fileproc.Options, want expectation) error {
		opts.Report, opts.FS = new(fileproc.Report), p.fsys
		files, dirs := map[string]bool{}, map[string]bool{}
		var got []delivery
		for e, err := range fileproc.Walk(ctx, p.root, opts) {
			if err != nil {
				return err
			}
			rel := filepath.ToSlash(e.Rel())
			set := files
			if e.IsDir() {
				set = dirs
			}
			_, err := e.Stat()
			switch want := p.path(rel); {
			case set[rel]:
				return fmt.Errorf("%.300q twice", rel)
			case e.Name() != path.Base(rel) || e.Path() != want:
				return fmt.Errorf("Name is %.80q, Path is %.300q, want %.300q", e.Name(), e.Path(), want)
			case e.Type() != e.Type().Type() || e.IsDir() != e.Type().IsDir() || !e.IsDir() && !e.Type().IsRegular():
				return fmt.Errorf("Type of %.300q is %v, IsDir %t", rel, e.Type(), e.IsDir())
			case opts.Stat && !e.IsDir() && err != nil:
				return fmt.Errorf("no Stat of %.300q: %w", rel, err)
			}
			set[rel] = true
			got = append(got, delivery{rel: rel})
		}
		wantFiles := map[string]bool{}
		for rel := range want.files {
			wantFiles[rel] = true
		}
		return errors.Join(
			inOrder(opts, got),
			differ("files", files, wantFiles),
			differ("directories", dirs, want.dirs),
			want.compareReport(*opts.Report, true),
		)
	},
}

// inOrder says where got is not in the order of Options.Ordered, if that is set.
func inOrder(opts fileproc.Options, got []delivery) error {
	for i := 1; opts.Ordered && i < len(got); i++ {
		if slices.Compare(strings.Split(got[i-1].rel, "/"), strings.Split(got[i].rel, "/")) > 0 {
			return fmt.Errorf("%.200q comes before %.200q", got[i-1].rel, got[i].rel)
		}
	}
	return nil
}

func (e expectation) compare(got []delivery) error {
	files := map[string]content{}
	for _, d := range got {
		if _, ok := files[d.rel]; ok {
			return fmt.Errorf("%.300q was delivered twice", d.rel)
		}
		files[d.rel] = d.content
	}
	return differ("files", files, e.files)
}

// differ names a few differences: a diff of thousands of files helps nobody.
func differ[V comparable](what string, got, want map[string]V) error {
	if maps.Equal(got, want) {
		return nil
	}
	var some []string
	for rel, w := range want {
		if g, ok := got[rel]; !ok {
			some = append(some, fmt.Sprintf("%.200q is missing", rel))
		} else if g != w {
			some = append(some, fmt.Sprintf("%.200q is %.100q, want %.100q", rel, fmt.Sprint(g), fmt.Sprint(w)))
		}
	}
	for rel := range got {
		if _, ok := want[rel]; !ok {
			some = append(some, fmt.Sprintf("%.200q should not be there", rel))
		}
	}
	slices.Sort(some)
	return fmt.Errorf("%d %s, want %d; %d differ, such as:\n%s", len(got), what, len(want), len(some), strings.Join(some[:min(5, len(some))], "\n"))
}

func (e expectation) compareReport(got fileproc.Report, walk bool) error {
	want := e.report
	want.Elapsed = got.Elapsed
	if walk {
		want.Bytes = 0
	}
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		return fmt.Errorf("report\n%s, want\n%s", g, w)
	}
	return nil
}

// A question is one run over a random tree.
type question struct {
	entry string
	fsys  bool
	opts  fileproc.Options
	// selectBy is what Options.Select does: "" for none.
	selectBy string
}

func (q question) String() string {
	o := q.opts
	return fmt.Sprintf("%s, FS %t, MaxDepth %d, Suffixes %q, SkipHidden %t, ReadSize %d, Stat %t, Workers %d, Select by %q",
		q.entry, q.fsys, o.MaxDepth, o.Suffixes, o.SkipHidden, o.ReadSize, o.Stat, o.Workers, q.selectBy)
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func randomQuestion(r *rand.Rand) question {
	return question{
		entry: pick(r, "Process", "ForEach", "Stream", "Walk"),
		fsys:  pick(r, false, false, true),
		opts: fileproc.Options{
			MaxDepth:   pick(r, 0, 0, 1, 2, 3, 9),
			Suffixes:   pick(r, nil, nil, []string{".md"}, []string{".md", "t"}, []string{"none has it"}),
			SkipHidden: pick(r, false, true),
			ReadSize:   pick(r, 0, 0, 0, 1, 100, 512, 4096, 70_000, fileproc.NoRead),
			Stat:       pick(r, false, true),
			Workers:    pick(r, 0, 1, 2, 4, 17),
		},
		selectBy: pick(r, "", "", "", "name", "size"),
	}
}

// randomSpecs gives a tree for testtree.Make. Files, directories and links have names that cannot meet.
func randomSpecs(r *rand.Rand, links bool) []string {
	dirs := []string{""}
	for range r.IntN(9) {
		parent := pick(r, dirs...)
		dirs = append(dirs, parent+pick(r, "d", ".d", "dé ", "d-d", "d.md")+fmt.Sprint(r.IntN(5))+"/")
	}
	slices.Sort(dirs)
	specs := slices.Compact(dirs)[1:] // without root
	for i := range r.IntN(30) {
		name := pick(r, dirs...) + pick(r, "f", ".f", "fü", "F F") + fmt.Sprint(i) + pick(r, ".md", ".txt", ".MD", "")
		if links && r.IntN(8) == 0 {
			specs = append(specs, name+" -> "+pick(r, "nowhere", ".", "..", "f1.md", path.Base(name)))
			continue
		}
		size := pick(r, 0, 1, r.IntN(600), r.IntN(600), r.IntN(600), 511, 512, 513, 4095, 4096, 4097, r.IntN(20_000), r.IntN(100_000))
		specs = append(specs, name+"="+testtree.Content(size))
	}
	return specs
}

// ask makes the tree and says how the answer to q is wrong.
func ask(t *testing.T, specs []string, q question) error {
	dir, err := os.MkdirTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	if !testtree.Make(t, dir, specs...) {
		return nil // a name that this platform changes; Make has logged it
	}
	return answer(t, dir, take(t, dir), q)
}

func answer(t *testing.T, dir string, tree snapshot, q question) error {
	var selected func(string) bool
	switch q.selectBy {
	case "name":
		selected = func(rel string) bool { return len(rel)%3 != 0 }
		q.opts.Select = func(f *fileproc.File) bool { return selected(filepath.ToSlash(f.Rel())) }
	case "size":
		selected = func(rel string) bool { return len(tree.files[rel]) > 300 }
		q.opts.Select = func(f *fileproc.File) bool {
			s, err := f.Stat()
			return err == nil && s.Size > 300
		}
	}
	p := place{name: "os", root: dir}
	if q.fsys {
		p = place{name: "fs", root: ".", fsys: os.DirFS(dir)}
	}
	return verifiers[q.entry](t.Context(), p, q.opts, expect(tree, q.opts, selected))
}

// shrink removes from specs, in ever smaller pieces, what the failure does without.
func shrink(specs []string, fails func([]string) bool) []string {
	for size := (len(specs) + 1) / 2; size > 0; size /= 2 {
		for at := 0; at < len(specs); {
			less := slices.Delete(slices.Clone(specs), at, min(at+size, len(specs)))
			if fails(less) {
				specs = less
			} else {
				at += size
			}
		}
	}
	return specs
}

func TestShrinkKeepsWhatMatters(t *testing.T) {
	var specs []string
	for i := range 100 {
		specs = append(specs, fmt.Sprint(i))
	}
	require.Equal(t, []string{"17", "80"}, shrink(specs, func(s []string) bool {
		return slices.Contains(s, "17") && slices.Contains(s, "80")
	}))
}

// TestOracle compares random runs over random trees with the slow, obvious way. To repeat a failure, put its seed into
// the environment variable FILEPROC_SEED.
func TestOracle(t *testing.T) {
	seed, trees := rand.Uint64(), 200
	if s := os.Getenv("FILEPROC_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		require.NoError(t, err, "FILEPROC_SEED")
	}
	switch {
	case slow:
		trees = 10
	case testing.Short():
		trees = 30
	}
	links := testtree.Make(t, t.TempDir(), "l -> nowhere")
	r := rand.New(rand.NewPCG(seed, 0))
	for range trees {
		specs := randomSpecs(r, links)
		questions := make([]question, 6)
		for i := range questions {
			questions[i] = randomQuestion(r)
		}
		oracleTree(t, seed, specs, questions)
	}
}

func oracleTree(t *testing.T, seed uint64, specs []string, questions []question) {
	dir, err := os.MkdirTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	if !testtree.Make(t, dir, specs...) {
		return // a name that this platform changes; Make has logged it
	}
	tree := take(t, dir)
	for _, q := range questions {
		err := answer(t, dir, tree, q)
		if err == nil {
			continue
		}
		small := shrink(specs, func(less []string) bool { return ask(t, less, q) != nil })
		if again := ask(t, small, q); again != nil {
			err = again
		}
		for i, s := range small {
			small[i] = fmt.Sprintf("%.100q (%d bytes)", s, len(s))
		}
		t.Fatalf("FILEPROC_SEED=%d\n%v\ntree:\n%s\n\n%v", seed, q, strings.Join(small, "\n"), err)
	}
}
