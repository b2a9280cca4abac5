package fileproc_test

import (
	"bytes"
	"encoding/binary"
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
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// reaches has the patterns of Options.Include to try, and the directories below which they can match.
var reaches = map[string]func(dir string) bool{
	"**/*.md":         func(string) bool { return true },
	"*.txt":           func(string) bool { return false },
	"d*/*/f*":         func(dir string) bool { return dir[0] == 'd' && strings.Count(dir, "/") < 2 },
	"e/**":            func(dir string) bool { return dir == "e" || strings.HasPrefix(dir, "e/") },
	"{d1,e/deep}/*.b": func(dir string) bool { return dir == "d1" || dir == "e" || dir == "e/deep" },
}

// A setting is one value of one option.
type setting struct {
	name string
	set  func(*asked)
}

type asked struct {
	entry, selectBy string
	fsys, progress  bool
	asksDirs        bool
	asksSkipped     bool
	asksOld         bool
	opts            fileproc.Options
}

// dimensions are all options, each with the values to try.
var dimensions = [][]setting{
	{{"Process", func(a *asked) { a.entry = "Process" }}, {"ForEach", func(a *asked) { a.entry = "ForEach" }}, {"Stream", func(a *asked) { a.entry = "Stream" }}, {"Walk", func(a *asked) { a.entry = "Walk" }}},
	option("MaxDepth", func(o *fileproc.Options) *int { return &o.MaxDepth }, 0, 1, 3),
	option("Suffixes", func(o *fileproc.Options) *[]string { return &o.Suffixes }, nil, []string{".md", "t"}),
	option("Include", func(o *fileproc.Options) *[]string { return &o.Include }, nil, []string{"**/*.md", "*.txt"}, []string{"d*/*/f*", "e/**"}, []string{"{d1,e/deep}/*.b"}),
	option("Exclude", func(o *fileproc.Options) *[]string { return &o.Exclude }, nil, []string{"**/d1"}, []string{"e/**", "**/*.b"}),
	option("IgnoreCase", func(o *fileproc.Options) *bool { return &o.IgnoreCase }, false, true),
	option("IgnoreFiles", func(o *fileproc.Options) *[]string { return &o.IgnoreFiles }, nil, []string{".gitignore"}, []string{".ignore", ".gitignore"}),
	option("GitIgnore", func(o *fileproc.Options) *bool { return &o.GitIgnore }, false, true),
	option("GitTracked", func(o *fileproc.Options) *bool { return &o.GitTracked }, false, true),
	option("SkipHidden", func(o *fileproc.Options) *bool { return &o.SkipHidden }, false, true),
	option("OneFilesystem", func(o *fileproc.Options) *bool { return &o.OneFilesystem }, false, true),
	option("AllTypes", func(o *fileproc.Options) *bool { return &o.AllTypes }, false, true),
	option("Symlinks", func(o *fileproc.Options) *fileproc.Symlinks { return &o.Symlinks }, fileproc.SymlinksSkip, fileproc.SymlinksFiles, fileproc.SymlinksFollow),
	option("SymlinksOutside", func(o *fileproc.Options) *bool { return &o.SymlinksOutside }, false, true),
	option("ReadSize", func(o *fileproc.Options) *int { return &o.ReadSize }, 0, 1, 100, 9000, fileproc.NoRead),
	option("MaxFileSize", func(o *fileproc.Options) *int64 { return &o.MaxFileSize }, 0, -1, 600),
	option("SkipLarger", func(o *fileproc.Options) *int64 { return &o.SkipLarger }, 0, 1, 600, 40_000),
	option("SkipBinary", func(o *fileproc.Options) *bool { return &o.SkipBinary }, false, true),
	option("Download", func(o *fileproc.Options) *bool { return &o.Download }, false, true),
	option("Durable", func(o *fileproc.Options) *bool { return &o.Durable }, false, true),
	option("Stat", func(o *fileproc.Options) *bool { return &o.Stat }, false, true),
	option("Workers", func(o *fileproc.Options) *int { return &o.Workers }, 0, 1, 4, 17),
	option("Ordered", func(o *fileproc.Options) *bool { return &o.Ordered }, false, true),
	option("DisableURing", func(o *fileproc.Options) *bool { return &o.DisableURing }, false, true),
	{{"Shards 0", func(*asked) {}}, {"Shards 3", func(a *asked) { a.opts.Shards, a.opts.Shard = 3, 1 }}},
	{{"Select none", func(*asked) {}}, {"Select name", func(a *asked) { a.selectBy = "name" }}, {"Select size", func(a *asked) { a.selectBy = "size" }}},
	{{"Unchanged none", func(*asked) {}}, {"Unchanged name", func(a *asked) {
		a.asksOld, core.Hooks(&a.opts).Unchanged = true, func(*fileproc.File) bool { return true } // verify sets the one that is asked
	}}},
	{{"SelectDir none", func(*asked) {}}, {"SelectDir name", func(a *asked) {
		a.asksDirs, a.opts.SelectDir = true, func(fileproc.Entry) bool { return true } // verify sets the one that is asked
	}}},
	{{"Files nil", func(*asked) {}}, {"Files", func(a *asked) {
		a.opts.Files = slices.Values([]string{}) // verify sets those that the tree has
	}}},
	{{"Roots none", func(*asked) {}}, {"Roots two", func(a *asked) {
		a.opts.Roots = []string{".", "."} // verify sets those that the tree has
	}}},
	option("SkipMarked", func(o *fileproc.Options) *[]string { return &o.SkipMarked }, nil, []string{"CACHEDIR.TAG", ".nobackup"}, []string{"CACHEDIR.TAG", "*/.ignore"}),
	{{"OnSkip false", func(*asked) {}}, {"OnSkip true", func(a *asked) { a.asksSkipped = true }}},
	{{"OnProgress false", func(*asked) {}}, {"OnProgress true", func(a *asked) { a.progress = true }}},
	{{"FS false", func(*asked) {}}, {"FS true", func(a *asked) { a.fsys = true }}},
}

func option[T any](name string, field func(*fileproc.Options) *T, values ...T) (all []setting) {
	for _, v := range values {
		all = append(all, setting{fmt.Sprintf("%s %.20v", name, v), func(a *asked) { *field(&a.opts) = v }})
	}
	return all
}

// whyRefused returns the option that the error for a names, or "" if a is valid.
func whyRefused(a asked) string {
	o := a.opts
	switch {
	case o.SkipBinary && o.ReadSize == fileproc.NoRead && a.entry != "Walk":
		return "SkipBinary"
	case o.Symlinks != fileproc.SymlinksSkip && a.fsys:
		return "Symlinks"
	case o.SymlinksOutside && o.Symlinks == fileproc.SymlinksSkip:
		return "SymlinksOutside"
	case o.AllTypes && (o.Symlinks != fileproc.SymlinksSkip || o.Files != nil || a.asksOld):
		return "AllTypes"
	case o.Durable && a.fsys:
		return "Durable"
	case o.OneFilesystem && a.fsys:
		return "OneFilesystem"
	case o.Roots != nil && o.Files != nil:
		return "Roots"
	case o.Files == nil:
	case o.MaxDepth != 0:
		return "MaxDepth"
	case o.OneFilesystem:
		return "OneFilesystem"
	case o.Symlinks == fileproc.SymlinksFollow:
		return "Symlinks"
	}
	if o.Ordered && o.Symlinks == fileproc.SymlinksFollow && a.entry != "Process" {
		return "Ordered"
	}
	return ""
}

// A choice is the index of a setting in each dimension.
type choice []int

func (c choice) asked() (a asked, names []string) {
	for d, i := range c {
		dimensions[d][i].set(&a)
		names = append(names, dimensions[d][i].name)
	}
	return a, names
}

type pair struct{ d1, i1, d2, i2 int }

func (c choice) pairs() (all []pair) {
	for d1 := range c {
		for d2 := d1 + 1; d2 < len(c); d2++ {
			all = append(all, pair{d1, c[d1], d2, c[d2]})
		}
	}
	return all
}

// everyPair returns valid choices such that each two settings that can be combined are, in at least one choice.
func everyPair(r *rand.Rand) (all []choice) {
	random := func(p pair) choice {
		c := make(choice, len(dimensions))
		for d := range c {
			c[d] = r.IntN(len(dimensions[d]))
		}
		c[p.d1], c[p.d2] = p.i1, p.i2
		return c
	}
	missing := map[pair]bool{}
	for d1 := range dimensions {
		for d2 := d1 + 1; d2 < len(dimensions); d2++ {
			for i1 := range dimensions[d1] {
				for i2 := range dimensions[d2] {
					missing[pair{d1, i1, d2, i2}] = true
				}
			}
		}
	}
	for len(missing) > 0 {
		var next pair
		for next = range missing {
			break
		}
		var best choice
		most := 0
		for try := 0; try < 500 && (try < 30 || best == nil); try++ {
			c, n := random(next), 0
			if a, _ := c.asked(); whyRefused(a) != "" {
				continue
			}
			for _, p := range c.pairs() {
				if missing[p] {
					n++
				}
			}
			if n > most {
				best, most = c, n
			}
		}
		if best == nil { // the two cannot be combined
			delete(missing, next)
			continue
		}
		for _, p := range best.pairs() {
			delete(missing, p)
		}
		all = append(all, best)
	}
	return all
}

// gitFile returns what a file .git says in a submodule.
func gitFile(t testing.TB) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "HEAD"), nil, 0o666))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "objects"), 0o777))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "refs"), 0o777))
	return "gitdir: " + filepath.ToSlash(dir) + "\n"
}

// manifold is a tree in which every option makes a difference.
func manifold(t *testing.T) string {
	dir := t.TempDir()
	root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
	require.NoError(t, os.Mkdir(root, 0o755))
	require.NoError(t, os.Mkdir(outside, 0o755))
	binary := "text\x00more"
	require.True(t, testtree.Make(t, root,
		"a.md=a", "b.txt=b", "c=", "d.b="+binary, "zeros="+strings.Repeat("\x00", 700), "late.b="+strings.Repeat("x", 8192)+"\x00",
		"early.b="+strings.Repeat("x", 8191)+"\x00", "big.md="+testtree.Content(40_000), "n512.txt="+testtree.Content(512), ".hidden.md=h",
		".gitignore=*.b\nignored/\nf3.md\n", ".ignore=!f3.md\n*.txt\n",
		"a-b/f.md=between", "a/f.md=under", "a.d/f.md=dot",
		"d1/f1.md=1", "d1/f2.txt=2", "d1/x.b=x", "d1/sub/f3.md=3", "d1/sub/f4.md=4", "d1/sub/deep/f5.md="+testtree.Content(601),
		"d2/.gitignore=!*.b\nf[1-6]*\n", "d2/.git="+gitFile(t), "d2/sub/.git="+gitFile(t), "d2/sub/f1.b=fb", "d2/f1.md=11", "d2/y.b=y", "d2/sub/f6.txt=6", "d2/d1/f7.md=7",
		"e/f8.md=8", "e/deep/er/f9.md=9", "e/deep/z.b=zz", "ignored/f.md=i", ".git/config=c", ".h/f.md=h", "empty/",
		"bak/.nobackup=", "bak/f.md=b", "bak/sub/g.md=b", "d1/tag/CACHEDIR.TAG="+cacheSignature+"\nt", "d1/tag/f.md=t", "d1/untag/CACHEDIR.TAG=t", "d1/untag/f.md=t", "unmarked/.nobackup/f.md=u",
	))
	require.True(t, testtree.Make(t, outside, "out.md=o", "sub/s.md=s"))
	testtree.Make(t, root,
		"l.md -> a.md", "l -> d1/f1.md", "ldir -> d1/sub", "lhidden -> .h", "lh.md -> .h/f.md", "lexcluded -> e/deep", "loop -> .", "d1/up -> ..",
		"self -> self", "dangling.md -> nowhere", "lout.md -> ../outside/out.md", "loutdir -> ../outside", "a/lsub -> ../../outside/sub", "d2/again -> ../../outside")
	return root
}

// manifoldNames are the files of manifold, in the order of paths. Some lie below a directory that is named.
var manifoldNames = []string{
	".git/config", ".gitignore", ".h/", ".hidden.md", ".ignore", "a/f.md", "a-b/", "a.d/f.md", "a.md", "b.txt", "bak/", "big.md", "c",
	"d.b", "d1/f1.md", "d1/f2.txt", "d1/sub/", "d1/tag/.", "d1/x.b", "d2/.git", "d2/d1/f7.md", "d2/f1.md", "d2/sub/f6.txt", "d2/y.b",
	"e/", "early.b", "empty/", "ignored/f.md", "late.b", "n512.txt", "unmarked/.nobackup/f.md", "zeros",
}

// TestOptionsPairwise tries the options in combinations in which each value of each option meets each value of each
// other one, and compares with the reference. To repeat a failure, put its seed into FILEPROC_SEED.
func TestOptionsPairwise(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("FILEPROC_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		require.NoError(t, err, "FILEPROC_SEED")
	}
	dir := manifold(t)
	choices := everyPair(rand.New(rand.NewPCG(seed, 0)))
	if slow {
		choices = choices[:10]
	}
	for _, c := range choices {
		a, names := c.asked()
		if err := a.verify(t, dir, manifoldNames); err != nil {
			t.Fatalf("FILEPROC_SEED=%d\n%s\n%v", seed, strings.Join(names, ", "), err)
		}
	}
	t.Logf("%d combinations", len(choices))
}

// writeIndex makes dir a git repository whose index has some of the files and links there. It returns them, and
// the directories that they are in. The function remove undoes what it did.
func writeIndex(t *testing.T, dir string) (tracked map[string]bool, remove func()) {
	tracked = map[string]bool{}
	var names []string
	for rel, typ := range testtree.List(t, dir) {
		if typ != fs.ModeDir && len(rel)%3 != 1 && !strings.Contains("/"+rel+"/", "/.git/") {
			names = append(names, rel)
			tracked[rel] = true
			for up := path.Dir(rel); up != "."; up = path.Dir(up) {
				tracked[up+"/"] = true
			}
		}
	}
	slices.Sort(names)
	index := binary.BigEndian.AppendUint32([]byte("DIRC\x00\x00\x00\x02"), uint32(len(names)))
	for _, name := range names {
		entry := make([]byte, (62+len(name)+8)&^7)
		binary.BigEndian.PutUint32(entry[24:], 0o100644)
		binary.BigEndian.PutUint16(entry[60:], uint16(min(len(name), 0xfff)))
		copy(entry[62:], name)
		index = append(index, entry...)
	}
	git := filepath.Join(dir, ".git")
	info, err := os.Lstat(git)
	made := []string{git}
	if err == nil && !info.IsDir() { // it names a repository without an index
		return nil, func() {}
	}
	if err == nil {
		made = []string{filepath.Join(git, "HEAD"), filepath.Join(git, "objects"), filepath.Join(git, "refs"), filepath.Join(git, "index")}
	}
	require.True(t, testtree.Make(t, dir, ".git/HEAD=ref: refs/heads/main\n", ".git/objects/", ".git/refs/", ".git/index="+string(append(index, make([]byte, 20)...))))
	return tracked, func() {
		for _, name := range made {
			require.NoError(t, os.RemoveAll(name))
		}
	}
}

// verify runs a over dir and returns how the outcome is wrong. The names are for Options.Files.
func (a asked) verify(t *testing.T, dir string, names []string) error {
	if a.opts.GitIgnore {
		newHome(t) // without an ignore file of the user's
	}
	if a.opts.Roots != nil { // the other root, in which nothing can be found
		if err := os.Mkdir(filepath.Join(dir, "nothing"), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if a.opts.GitTracked {
		a.opts.IgnoreFiles = slices.DeleteFunc(slices.Clone(a.opts.IgnoreFiles), func(name string) bool { return name == ".gitignore" }) // git's rules say nothing of what it tracks
		a.opts.GitIgnore = false
	}
	r := reference{dir: dir, opts: a.opts, asksDirs: a.asksDirs, asksOld: a.asksOld, walks: a.entry == "Walk"}
	if a.opts.GitTracked {
		var remove func()
		r.tracked, remove = writeIndex(t, dir)
		defer remove()
	}
	if a.entry == "Walk" {
		r.opts.ReadSize, r.opts.SkipBinary = fileproc.NoRead, false
	}
	a.setFunctions(&r)
	var last fileproc.Report
	if a.progress {
		a.opts.OnProgress = func(r fileproc.Report) { last = r }
	}
	p := place{name: "os", root: dir}
	if a.fsys {
		p = place{name: "fs", root: ".", fsys: os.DirFS(dir)}
	}
	want := r.run()
	if a.opts.Files != nil {
		if a.opts.Symlinks != fileproc.SymlinksSkip {
			names = withLinks(dir, names)
		}
		want, a.opts.Files = r.runNames(names), slices.Values(names)
	}
	switch {
	case a.opts.Roots == nil:
	case a.opts.AllTypes: // the other root would be an entry: see TestAllTypesOfRoots
		a.opts.Roots = []string{p.root}
	default:
		a.opts.Roots = []string{p.path("nothing"), p.root}
		want.report.Directories++
	}
	var skipped []string // without a lock: the race detector sees calls that overlap
	if a.asksSkipped {
		a.opts.OnSkip = func(e fileproc.Entry, why fileproc.SkipReason) {
			skipped = append(skipped, fmt.Sprint(why, " ", filepath.ToSlash(e.Rel())))
		}
	}
	err := verifiers[a.entry](t.Context(), p, a.opts, want)
	slices.Sort(skipped)
	slices.Sort(want.skipped)
	if a.asksSkipped && err == nil && !slices.Equal(skipped, want.skipped) {
		err = fmt.Errorf("OnSkip got\n%q, want\n%q", skipped, want.skipped)
	}
	if a.progress && err == nil {
		err = want.compareReport(last, a.entry == "Walk")
	}
	return err
}

// setFunctions sets the functions of the options, and what r says in their place.
func (a *asked) setFunctions(r *reference) {
	if a.asksDirs {
		a.opts.SelectDir = func(e fileproc.Entry) bool {
			if !e.IsDir() || e.Name() != path.Base(filepath.ToSlash(e.Rel())) {
				return false
			}
			return selectsDir(filepath.ToSlash(e.Rel()))
		}
	}
	switch a.selectBy {
	case "name":
		r.selected = func(rel string, _ int) bool { return len(rel)%3 != 0 }
		a.opts.Select = func(f *fileproc.File) bool { return r.selected(filepath.ToSlash(f.Rel()), 0) }
	case "size":
		r.selected = func(_ string, size int) bool { return size < 300 }
		a.opts.Select = func(f *fileproc.File) bool {
			s, err := f.Stat()
			return err == nil && r.selected("", int(s.Size))
		}
	}
	if a.asksOld {
		core.Hooks(&a.opts).Unchanged = func(f *fileproc.File) bool { return isOld(filepath.ToSlash(f.Rel())) }
	}
	a.opts.OnError = func(err error) error {
		if !errors.Is(err, fileproc.ErrTooLarge) {
			return err
		}
		return nil
	}
}

// withLinks adds the links that are in dir itself to names, in the order of paths.
func withLinks(dir string, names []string) []string {
	names = slices.Clone(names)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Type() == fs.ModeSymlink {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
	return names
}

// FuzzOptions takes from the input a tree and a valid choice of options, and compares with the reference.
func FuzzOptions(f *testing.F) {
	f.Add([]byte{})
	for d := range dimensions {
		f.Add(append(make([]byte, d), bytes.Repeat([]byte{byte(d), 17, 99, 200, 250}, 12)...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := testtree.Script(data)
		c := make(choice, len(dimensions))
		for d := range c {
			c[d] = r.IntN(len(dimensions[d]))
		}
		a, names := c.asked()
		for why := whyRefused(a); why != ""; why = whyRefused(a) {
			d := slices.IndexFunc(dimensions, func(d []setting) bool { return strings.HasPrefix(d[0].name, why+" ") })
			c[d] = 0
			a, names = c.asked()
		}
		if r.IntN(2) == 0 && a.opts.ReadSize > 0 {
			a.opts.ReadSize = r.IntN(9000) + 1
		}
		specs := variedSpecs(t, r)
		ask := func(specs []string) error {
			dir, err := os.MkdirTemp(t.TempDir(), "")
			require.NoError(t, err)
			defer os.RemoveAll(dir)
			root := filepath.Join(dir, "root")
			require.NoError(t, os.Mkdir(root, 0o755))
			if !testtree.Make(t, dir, "outside/out.md=o", "outside/sub/s.md=s") || !testtree.Make(t, root, specs...) {
				return nil // what this platform lacks; Make has logged it
			}
			return a.verify(t, root, someNames(take(t, root), len(specs)))
		}
		if err := ask(specs); err != nil {
			small := shrink(specs, func(less []string) bool { return ask(less) != nil })
			t.Fatalf("%s, ReadSize %d\n%s\n%v", strings.Join(names, ", "), a.opts.ReadSize, describe(small), err)
		}
	})
}

// variedSpecs gives a tree in which most options make a difference.
func variedSpecs(t testing.TB, r *rand.Rand) (specs []string) {
	dirs := []string{""}
	for range r.IntN(9) {
		parent := pick(r, dirs...)
		dir := parent + pick(r, "a", "a-b", "a.d", "d1", "D1", "d2", "e", "E", "sub", "deep", ".h", "ignored", ".ignore") + "/"
		if !slices.ContainsFunc(dirs, func(other string) bool { return strings.EqualFold(dir, other) }) { // file systems may ignore case
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	specs = slices.Clone(dirs[1:])
	used := map[string]bool{}
	for _, dir := range dirs {
		used[strings.ToLower(strings.TrimSuffix(dir, "/"))] = true
	}
	for range r.IntN(24) {
		name := pick(r, dirs...) + pick(r, "f", "f1", "f3", "l", "late", ".hidden", "x") + pick(r, ".md", ".Md", ".txt", ".TXT", ".b", "")
		if r.IntN(6) == 0 {
			name = pick(r, dirs...) + pick(r, ".gitignore", ".gitignore", ".ignore", "CACHEDIR.TAG", ".nobackup", ".git")
		}
		if used[strings.ToLower(name)] {
			continue
		}
		used[strings.ToLower(name)] = true
		content := testtree.Content(pick(r, 0, 1, 99, 100, 101, 511, 512, 513, 600, 601, 8192, 9000, 9001, 40_000))
		switch kind := r.IntN(8); {
		case strings.HasSuffix(name, ".git"):
			content = gitFile(t)
		case strings.HasSuffix(name, "TAG") && kind > 1:
			content = cacheSignature + content
		case strings.HasSuffix(name, "ignore"):
			content = ""
			for range 1 + r.IntN(4) {
				content += pick(r, "", "!") + pick(r, "*.b", "f*", "f3.md", "d1/", "ignored/", "sub", "*.txt", "l*") + "\n"
			}
		case kind == 0:
			above := strings.Repeat("../", strings.Count(name, "/"))
			target := pick(r, "nowhere", ".", "..", path.Base(name), above+pick(r, dirs...), above+"f1.md", "f3", above+"../outside", above+"../outside/out.md", above+"../outside/sub")
			specs = append(specs, name+" -> "+target)
			continue
		case kind < 3 && content != "":
			at := r.IntN(len(content))
			content = content[:at] + "\x00" + content[at+1:]
		}
		specs = append(specs, name+"="+content)
	}
	return specs
}

// someNames returns names for Options.Files, in the order of paths: files, and for one directory in three all that is below.
func someNames(tree snapshot, seed int) (names []string) {
	var below string
	for _, rel := range slices.SortedFunc(maps.Keys(tree.types), func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }) {
		switch typ := tree.types[rel]; {
		case below != "" && strings.HasPrefix(rel, below):
		case typ.IsDir() && (len(rel)+seed)%3 == 0:
			below = rel + "/"
			names = append(names, below)
		case typ.IsRegular():
			names = append(names, rel)
		}
	}
	return names
}

// TestOptionsRefused: options that cannot be combined are an error that names one, before anything is read.
func TestOptionsRefused(t *testing.T) {
	dir := manifold(t)
	seen := map[string]bool{}
	for d1 := range dimensions {
		for d2 := range d1 {
			for i1 := range dimensions[d1] {
				for i2 := range dimensions[d2] {
					a := asked{entry: "Stream"}
					dimensions[d1][i1].set(&a)
					dimensions[d2][i2].set(&a)
					why := whyRefused(a)
					if why == "" {
						continue
					}
					seen[why] = true
					p := place{root: dir}
					if a.fsys {
						p = place{root: ".", fsys: os.DirFS(dir)}
					}
					a.opts.Report = new(fileproc.Report)
					if a.asksOld {
						core.Hooks(&a.opts).Unchanged = func(*fileproc.File) bool { return false }
					}
					a.opts.OnError = func(err error) error { return err }
					err := verifiers[a.entry](t.Context(), p, a.opts, expectation{})
					require.ErrorContains(t, err, "fileproc: ")
					require.ErrorContains(t, err, why, "%s, %s", dimensions[d1][i1].name, dimensions[d2][i2].name)
				}
			}
		}
	}
	require.Len(t, seen, 9, "each reason of whyRefused")
}
