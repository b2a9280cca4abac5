package fileproc_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// reference is the slow, obvious way to do what Options say: one directory after another, by paths.
type reference struct {
	dir      string
	opts     fileproc.Options
	selected func(rel string, size int) bool
	asksDirs bool // selectsDir is Options.SelectDir
	walks    bool // directories that are not opened, too, are yielded

	want    expectation
	visited []fs.FileInfo
	pending []string // links to directories, to be gone into at the end
}

// An ignoreLine is a line of an ignore file that says "*.x", "name", "name/" or one of these with a "!" in front.
type ignoreLine struct{ dir, line string }

func (r *reference) run() expectation {
	r.want = expectation{
		files: map[string]content{}, dirs: map[string]bool{},
		report: fileproc.Report{Skipped: map[fileproc.SkipReason]int64{}},
	}
	r.directory("", false, nil)
	for len(r.pending) > 0 {
		links := r.pending
		r.pending = nil
		slices.SortFunc(links, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
		links = slices.DeleteFunc(links, func(rel string) bool {
			info, err := os.Stat(r.path(rel))
			return err != nil || !r.claim(info)
		})
		for _, rel := range links {
			if r.declines(rel) {
				continue
			}
			r.want.dirs[rel] = true
			r.directory(rel, true, r.rulesAbove(rel))
		}
	}
	return r.want
}

func (r *reference) path(rel string) string { return filepath.Join(r.dir, filepath.FromSlash(rel)) }

func (r *reference) claim(info fs.FileInfo) bool {
	if slices.ContainsFunc(r.visited, func(other fs.FileInfo) bool { return os.SameFile(info, other) }) {
		r.skip(fileproc.SkippedDuplicate)
		return false
	}
	r.visited = append(r.visited, info)
	return true
}

func selectsDir(rel string) bool { return path.Base(rel) != "sub" }

func (r *reference) declines(dir string) bool {
	if r.asksDirs && !selectsDir(dir) {
		r.skip(fileproc.SkippedSelectDir)
		return true
	}
	return false
}

func (r *reference) skip(why fileproc.SkipReason) {
	r.want.report.Found++
	r.want.report.Skipped[why]++
}

func (r *reference) rulesAbove(rel string) (rules []ignoreLine) {
	for dir := path.Dir(rel); ; dir = path.Dir(dir) {
		rules = append(r.rulesOf(strings.TrimPrefix(dir, ".")), rules...)
		if dir == "." {
			return rules
		}
	}
}

func (r *reference) rulesOf(dir string) (rules []ignoreLine) {
	for _, name := range r.opts.IgnoreFiles {
		p := filepath.Join(r.path(dir), name)
		if info, err := os.Lstat(p); err != nil || !info.Mode().IsRegular() {
			continue
		}
		text, err := os.ReadFile(p)
		if err != nil {
			panic(err)
		}
		for line := range strings.Lines(string(text)) {
			rules = append(rules, ignoreLine{dir, strings.TrimSpace(line)})
		}
	}
	return rules
}

func ignored(rules []ignoreLine, name string, isDir bool) (yes bool) {
	for _, rule := range rules {
		pattern, included := strings.CutPrefix(rule.line, "!")
		pattern, dirOnly := strings.CutSuffix(pattern, "/")
		if ok, _ := path.Match(pattern, name); ok && (isDir || !dirOnly) {
			yes = !included
		}
	}
	return yes
}

func (r *reference) directory(rel string, claimed bool, rules []ignoreLine) {
	if r.opts.Symlinks == fileproc.SymlinksFollow && !claimed {
		info, err := os.Stat(r.path(rel))
		if err != nil {
			panic(err)
		}
		if !r.claim(info) {
			return
		}
	}
	entries, err := os.ReadDir(r.path(rel))
	if err != nil {
		panic(err)
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Type() == 0 && slices.Contains(r.opts.SkipMarked, e.Name()) }) {
		r.skip(fileproc.SkippedMarked)
		return
	}
	r.want.report.Directories++
	rules = append(slices.Clone(rules), r.rulesOf(rel)...)
	for _, e := range entries {
		p := path.Join(rel, e.Name())
		typ := e.Type()
		if typ == fs.ModeSymlink && r.opts.Symlinks != fileproc.SymlinksSkip {
			r.link(p, rules)
			continue
		}
		if typ.IsDir() {
			if r.prunes(p, rules) || (r.descends(p) || r.walks) && r.declines(p) {
				continue
			}
			r.want.dirs[p] = true
			if r.descends(p) {
				r.directory(p, false, rules)
			}
			continue
		}
		r.file(p, typ, rules)
	}
}

func (r *reference) descends(rel string) bool {
	return r.opts.MaxDepth == 0 || strings.Count(rel, "/")+2 <= r.opts.MaxDepth
}

func (r *reference) excluded(rel string) bool {
	return slices.ContainsFunc(r.opts.Exclude, func(p string) bool { return doublestar.MatchUnvalidated(p, rel) })
}

func (r *reference) prunes(rel string, rules []ignoreLine) bool {
	name := path.Base(rel)
	reached := r.opts.Include == nil
	for _, p := range r.opts.Include {
		reached = reached || reaches[p](rel)
	}
	return r.opts.SkipHidden && name[0] == '.' || r.excluded(rel) || !reached || ignored(rules, name, true)
}

func (r *reference) link(rel string, rules []ignoreLine) {
	root, err := filepath.EvalSymlinks(r.dir)
	if err != nil {
		panic(err)
	}
	target, err := filepath.EvalSymlinks(r.path(rel))
	if err != nil { // nowhere, or a loop
		r.file(rel, fs.ModeSymlink, rules)
		return
	}
	inside, err := filepath.Rel(root, target)
	if err != nil || inside == ".." || strings.HasPrefix(filepath.ToSlash(inside), "../") {
		if inside = "."; !r.opts.SymlinksOutside {
			r.skip(fileproc.SkippedOutside)
			return
		}
	}
	info, err := os.Stat(target)
	if err != nil {
		panic(err)
	}
	if info.IsDir() && r.opts.Symlinks == fileproc.SymlinksFiles {
		r.file(rel, fs.ModeSymlink, rules)
		return
	}
	var why fileproc.SkipReason
	for parts := strings.Split(filepath.ToSlash(inside), "/"); len(parts) > 0 && inside != "."; parts = parts[:len(parts)-1] {
		if r.excluded(strings.Join(parts, "/")) {
			why = fileproc.SkippedPattern
		}
		if r.opts.SkipHidden && parts[len(parts)-1][0] == '.' {
			why = fileproc.SkippedHidden
		}
	}
	switch {
	case info.IsDir():
		if why == "" && !r.prunes(rel, rules) && r.descends(rel) {
			r.pending = append(r.pending, rel)
		}
	case why != "":
		r.skip(why)
	default:
		r.file(rel, info.Mode().Type(), rules)
	}
}

func (r *reference) file(rel string, typ fs.FileMode, rules []ignoreLine) {
	o, name := r.opts, path.Base(rel)
	var data []byte
	if typ == 0 {
		var err error
		if data, err = os.ReadFile(r.path(rel)); err != nil {
			panic(err)
		}
	}
	included := o.Include == nil || slices.ContainsFunc(o.Include, func(p string) bool { return doublestar.MatchUnvalidated(p, rel) })
	switch {
	case o.Suffixes != nil && !slices.ContainsFunc(o.Suffixes, func(s string) bool { return strings.HasSuffix(name, s) }):
		r.skip(fileproc.SkippedSuffix)
	case o.SkipHidden && name[0] == '.':
		r.skip(fileproc.SkippedHidden)
	case r.excluded(rel) || !included:
		r.skip(fileproc.SkippedPattern)
	case o.Shards > 1 && shardOf(rel, o.Shards) != o.Shard:
		r.skip(fileproc.SkippedShard)
	case ignored(rules, name, false):
		r.skip(fileproc.SkippedIgnored)
	case typ != 0:
		r.skip(fileproc.SkippedNotRegular)
	case r.selected != nil && !r.selected(rel, len(data)):
		r.skip(fileproc.SkippedSelect)
	case o.SkipBinary && slices.Contains(data[:min(len(data), 8192)], 0):
		r.skip(fileproc.SkippedBinary)
	case o.ReadSize == 0 && o.MaxFileSize > 0 && int64(len(data)) > o.MaxFileSize:
		r.want.report.Found++
		r.want.report.Failed++
	default:
		r.want.report.Found++
		r.want.report.Processed++
		c := content{data: string(data)}
		switch {
		case o.ReadSize == fileproc.NoRead:
			c = content{}
		case o.ReadSize > 0 && len(data) > o.ReadSize:
			c = content{string(data[:o.ReadSize]), true}
		}
		r.want.files[rel] = c
		r.want.report.Bytes += int64(len(c.data))
	}
}

// shardOf is what makes the parts of a job stable: 64-bit FNV-1a with MurmurHash3's finalizer.
func shardOf(rel string, n int) int {
	sum := fnv.New64a()
	sum.Write([]byte(rel))
	h := sum.Sum64()
	for _, factor := range []uint64{0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53, 1} {
		h = (h ^ h>>33) * factor
	}
	return int(h % uint64(n))
}

// reaches are the patterns of Options.Include that are tried, and the directories below which they can match.
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
	opts            fileproc.Options
}

// dimensions are all options, each with the values that are tried.
var dimensions = [][]setting{
	{{"Process", func(a *asked) { a.entry = "Process" }}, {"ForEach", func(a *asked) { a.entry = "ForEach" }}, {"Stream", func(a *asked) { a.entry = "Stream" }}, {"Walk", func(a *asked) { a.entry = "Walk" }}},
	option("MaxDepth", func(o *fileproc.Options) *int { return &o.MaxDepth }, 0, 1, 3),
	option("Suffixes", func(o *fileproc.Options) *[]string { return &o.Suffixes }, nil, []string{".md", "t"}),
	option("Include", func(o *fileproc.Options) *[]string { return &o.Include }, nil, []string{"**/*.md", "*.txt"}, []string{"d*/*/f*", "e/**"}, []string{"{d1,e/deep}/*.b"}),
	option("Exclude", func(o *fileproc.Options) *[]string { return &o.Exclude }, nil, []string{"**/d1"}, []string{"e/**", "**/*.b"}),
	option("IgnoreFiles", func(o *fileproc.Options) *[]string { return &o.IgnoreFiles }, nil, []string{".gitignore"}, []string{".ignore", ".gitignore"}),
	option("SkipHidden", func(o *fileproc.Options) *bool { return &o.SkipHidden }, false, true),
	option("OneFilesystem", func(o *fileproc.Options) *bool { return &o.OneFilesystem }, false, true),
	option("Symlinks", func(o *fileproc.Options) *fileproc.Symlinks { return &o.Symlinks }, fileproc.SymlinksSkip, fileproc.SymlinksFiles, fileproc.SymlinksFollow),
	option("SymlinksOutside", func(o *fileproc.Options) *bool { return &o.SymlinksOutside }, false, true),
	option("ReadSize", func(o *fileproc.Options) *int { return &o.ReadSize }, 0, 1, 100, 9000, fileproc.NoRead),
	option("MaxFileSize", func(o *fileproc.Options) *int64 { return &o.MaxFileSize }, 0, -1, 600),
	option("SkipBinary", func(o *fileproc.Options) *bool { return &o.SkipBinary }, false, true),
	option("Stat", func(o *fileproc.Options) *bool { return &o.Stat }, false, true),
	option("Workers", func(o *fileproc.Options) *int { return &o.Workers }, 0, 1, 4, 17),
	option("Ordered", func(o *fileproc.Options) *bool { return &o.Ordered }, false, true),
	option("DisableURing", func(o *fileproc.Options) *bool { return &o.DisableURing }, false, true),
	{{"Shards 0", func(*asked) {}}, {"Shards 3", func(a *asked) { a.opts.Shards, a.opts.Shard = 3, 1 }}},
	{{"Select none", func(*asked) {}}, {"Select name", func(a *asked) { a.selectBy = "name" }}, {"Select size", func(a *asked) { a.selectBy = "size" }}},
	{{"SelectDir none", func(*asked) {}}, {"SelectDir name", func(a *asked) { a.asksDirs = true }}},
	option("SkipMarked", func(o *fileproc.Options) *[]string { return &o.SkipMarked }, nil, []string{"CACHEDIR.TAG", ".nobackup"}),
	{{"OnProgress false", func(*asked) {}}, {"OnProgress true", func(a *asked) { a.progress = true }}},
	{{"FS false", func(*asked) {}}, {"FS true", func(a *asked) { a.fsys = true }}},
}

func option[T any](name string, field func(*fileproc.Options) *T, values ...T) (all []setting) {
	for _, v := range values {
		all = append(all, setting{fmt.Sprintf("%s %v", name, v), func(a *asked) { *field(&a.opts) = v }})
	}
	return all
}

// whyRefused says which option's name is in the error for a, or "" if a is meaningful.
func whyRefused(a asked) string {
	o := a.opts
	switch {
	case o.SkipBinary && o.ReadSize == fileproc.NoRead && a.entry != "Walk":
		return "SkipBinary"
	case o.Symlinks != fileproc.SymlinksSkip && a.fsys:
		return "Symlinks"
	case o.SymlinksOutside && o.Symlinks == fileproc.SymlinksSkip:
		return "SymlinksOutside"
	case o.OneFilesystem && a.fsys:
		return "OneFilesystem"
	case o.Ordered && o.Symlinks == fileproc.SymlinksFollow && a.entry != "Process":
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

// everyPair gives meaningful choices in which each two settings that can go together do so in one at least.
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
		if best == nil { // the two cannot go together
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
		"d2/.gitignore=!*.b\nf1*\n", "d2/f1.md=11", "d2/y.b=y", "d2/sub/f6.txt=6", "d2/d1/f7.md=7",
		"e/f8.md=8", "e/deep/er/f9.md=9", "e/deep/z.b=zz", "ignored/f.md=i", ".git/config=c", ".h/f.md=h", "empty/",
		"bak/.nobackup=", "bak/f.md=b", "bak/sub/g.md=b", "d1/tag/CACHEDIR.TAG=t", "d1/tag/f.md=t", "unmarked/.nobackup/f.md=u",
	))
	require.True(t, testtree.Make(t, outside, "out.md=o", "sub/s.md=s"))
	testtree.Make(t, root,
		"l.md -> a.md", "l -> d1/f1.md", "ldir -> d1/sub", "lhidden -> .h", "lh.md -> .h/f.md", "lexcluded -> e/deep", "loop -> .", "d1/up -> ..",
		"self -> self", "dangling.md -> nowhere", "lout.md -> ../outside/out.md", "loutdir -> ../outside", "a/lsub -> ../../outside/sub", "d2/again -> ../../outside")
	return root
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
		if err := a.verify(t, dir); err != nil {
			t.Fatalf("FILEPROC_SEED=%d\n%s\n%v", seed, strings.Join(names, ", "), err)
		}
	}
	t.Logf("%d combinations", len(choices))
}

func (a asked) verify(t *testing.T, dir string) error {
	r := reference{dir: dir, opts: a.opts, asksDirs: a.asksDirs, walks: a.entry == "Walk"}
	if a.asksDirs {
		a.opts.SelectDir = func(e fileproc.Entry) bool {
			if !e.IsDir() || e.Name() != path.Base(filepath.ToSlash(e.Rel())) {
				return false
			}
			return selectsDir(filepath.ToSlash(e.Rel()))
		}
	}
	if a.entry == "Walk" {
		r.opts.ReadSize, r.opts.SkipBinary = fileproc.NoRead, false
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
	a.opts.OnError = func(err error) error {
		if !errors.Is(err, fileproc.ErrTooLarge) {
			return err
		}
		return nil
	}
	var last fileproc.Report
	if a.progress {
		a.opts.OnProgress = func(r fileproc.Report) { last = r }
	}
	p := place{name: "os", root: dir}
	if a.fsys {
		p = place{name: "fs", root: ".", fsys: os.DirFS(dir)}
	}
	want := r.run()
	err := verifiers[a.entry](t.Context(), p, a.opts, want)
	if a.progress && err == nil {
		err = want.compareReport(last, a.entry == "Walk")
	}
	return err
}

// TestOptionsRefused: what cannot go together is told, by the option's name, before anything is read.
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
					a.opts.OnError = func(err error) error { return err }
					err := verifiers[a.entry](t.Context(), p, a.opts, expectation{})
					require.ErrorContains(t, err, "fileproc: ")
					require.ErrorContains(t, err, why, "%s, %s", dimensions[d1][i1].name, dimensions[d2][i2].name)
				}
			}
		}
	}
	require.Len(t, seen, 5)
}
