package fileproc_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

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

// randomSpecs gives a tree for testtree.Make. Names of files, directories and links never collide.
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

// ask makes the tree and returns how the answer to q is wrong.
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

// shrink removes from specs, in ever smaller pieces, all that the failure does not need.
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

// describe shows a tree that a test has failed with.
func describe(specs []string) string {
	text := "tree:"
	for _, s := range specs {
		text += fmt.Sprintf("\n%.100q (%d bytes)", s, len(s))
	}
	return text
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
		t.Fatalf("FILEPROC_SEED=%d\n%v\n%s\n\n%v", seed, q, describe(small), err)
	}
}
