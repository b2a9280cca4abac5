package fileproc_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
)

// A snapshot is a tree as filepath.WalkDir and os.ReadFile see it.
type snapshot struct {
	types map[string]fs.FileMode // every entry by slash-separated path, root left out
	files map[string][]byte      // the regular ones
}

func take(t testing.TB, dir string) snapshot {
	return snapshot{testtree.List(t, dir), testtree.Snapshot(t, dir)}
}

// An expectation is the required outcome of a run.
type expectation struct {
	files  map[string]content
	dirs   map[string]bool // directories that Walk yields
	report fileproc.Report

	skipped []string // reasons and paths, in any order; by the reference alone
}

type content struct {
	data      string
	truncated bool
	whole     string // what File.Reader gives
}

// expect computes, entry by entry and from the path alone, what opts mean for the tree. selected stands for
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
				c = content{data: c.data[:n], truncated: true}
			}
			c.whole = string(tree.files[rel])
			e.files[rel] = c
			e.report.Bytes += int64(len(c.whole))
		}
	}
	return e
}

// A delivery is what fn saw of one file.
type delivery struct {
	rel string
	content
}

// look records all that a File returns and checks what holds for every file.
func look(p place, opts fileproc.Options, f *fileproc.File) (delivery, error) {
	rel := filepath.ToSlash(f.Rel())
	switch want := p.path(rel); {
	case f.Name() != nameIn(rel):
		return delivery{}, fmt.Errorf("Name is %.80q where Rel is %.300q", f.Name(), rel)
	case f.Path() != want:
		return delivery{}, fmt.Errorf("Path is %.300q, want %.300q", f.Path(), want)
	case len(f.Data()) != cap(f.Data()):
		return delivery{}, fmt.Errorf("len(Data) is %d, cap is %d", len(f.Data()), cap(f.Data()))
	case f.Worker() < 0 || opts.Workers > 0 && f.Worker() >= opts.Workers:
		return delivery{}, fmt.Errorf("Worker is %d of %d", f.Worker(), opts.Workers)
	}
	data := string(f.Data())
	whole, err := io.ReadAll(f.Reader())
	if t := f.Type(); t != 0 {
		_, openErr := f.Open()
		if f.Data() != nil || !errors.Is(err, fs.ErrInvalid) || !errors.Is(openErr, fs.ErrInvalid) || f.IsDir() != t.IsDir() {
			return delivery{}, fmt.Errorf("%q of type %v has content %q, Reader gives %v, Open %v", rel, t, data, err, openErr)
		}
		if s, err := f.Stat(); err != nil || s.Mode.Type() != t {
			return delivery{}, fmt.Errorf("Stat of %q, type %v, is %+v, %v", rel, t, s, err)
		}
		return delivery{rel, content{data: entryText(t, f)}}, nil
	}
	return delivery{rel, content{data, f.Truncated(), string(whole)}}, err
}

// entryText stands for the content of an entry that has none.
func entryText(t fs.FileMode, e interface{ ReadLink() (string, error) }) string {
	text, err := e.ReadLink()
	if (err == nil) != (t == fs.ModeSymlink) || err != nil && !errors.Is(err, fs.ErrInvalid) {
		return fmt.Sprint(text, err)
	}
	return t.String() + " " + text
}

// nameIn returns what File.Name is for rel.
func nameIn(rel string) string {
	if rel == "" {
		return ""
	}
	return path.Base(rel)
}

// path returns what File.Path is for rel.
func (p place) path(rel string) string {
	if p.fsys != nil {
		return path.Join(p.root, rel)
	}
	return filepath.Join(p.root, filepath.FromSlash(rel))
}

// verifiers, one for each entry point, run opts over a place and return how the outcome differs from want.
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
		files, dirs, links := map[string]bool{}, map[string]bool{}, want.files
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
			case e.Name() != nameIn(rel) || e.Path() != want:
				return fmt.Errorf("Name is %.80q, Path is %.300q, want %.300q", e.Name(), e.Path(), want)
			case e.Type() != e.Type().Type() || e.IsDir() != e.Type().IsDir() || !e.IsDir() && !e.Type().IsRegular() && !opts.AllTypes:
				return fmt.Errorf("Type of %.300q is %v, IsDir %t", rel, e.Type(), e.IsDir())
			case opts.Stat && !e.IsDir() && err != nil:
				return fmt.Errorf("no Stat of %.300q: %w", rel, err)
			case e.Type() == fs.ModeSymlink && entryText(e.Type(), e) != links[rel].data:
				return fmt.Errorf("the link %q is %q", rel, entryText(e.Type(), e))
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

// inOrder returns where got is not in the order of Options.Ordered, if that is set.
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

// differ names a few differences, since a diff of thousands of files is of no use.
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

// reference is the slow, obvious way to do what Options say: one directory after another, by paths.
type reference struct {
	dir      string
	opts     fileproc.Options
	selected func(rel string, size int) bool
	asksDirs bool            // selectsDir is Options.SelectDir
	asksOld  bool            // isOld is plumbing.Hooks.Unchanged
	walks    bool            // directories that are not opened are yielded too
	tracked  map[string]bool // what git's index has, and directories with a slash behind
	named    bool            // Options.Files names what to process
	flat     bool            // a directory's own files

	want    expectation
	visited []fs.FileInfo
	pending []string // links to directories, entered at the end
}

// An ignoreLine is a line of an ignore file: "*.x", "name", "name/" or one of these with a "!" in front.
type ignoreLine struct {
	dir, line string
	ofRepo    bool // it is of the repository's rules
}

// gitTop is the line of a repository's top, which stands for its rule that .git is ignored.
const gitTop = "/.git"

func (r *reference) run() expectation {
	r.want = expectation{
		files: map[string]content{}, dirs: map[string]bool{},
		report: fileproc.Report{Skipped: map[fileproc.SkipReason]int64{}},
	}
	if r.opts.AllTypes {
		r.entry("", fs.ModeDir)
	}
	r.directory("", false, nil)
	for len(r.pending) > 0 {
		links := r.pending
		r.pending = nil
		slices.SortFunc(links, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
		links = slices.DeleteFunc(links, func(rel string) bool {
			info, err := os.Stat(r.path(rel))
			return err != nil || !r.claim(rel, info)
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

// withoutDots returns name without each "./" in front, unless that is all.
func withoutDots(name string) string {
	if rest, ok := strings.CutPrefix(name, "./"); ok && rest != "" {
		return withoutDots(rest)
	}
	return name
}

// runNames is run for Options.Files.
func (r *reference) runNames(names []string) expectation {
	r.named = true
	r.want = expectation{
		files: map[string]content{}, dirs: map[string]bool{},
		report: fileproc.Report{Skipped: map[fileproc.SkipReason]int64{}},
	}
	for _, name := range names {
		name = withoutDots(name)
		rel, isTree := strings.CutSuffix(name, "/")
		if r.flat = strings.HasSuffix(name, "/."); r.flat {
			rel, isTree = strings.TrimSuffix(name, "/."), true
		}
		if slices.ContainsFunc(strings.Split(rel, "/"), func(part string) bool {
			return slices.Contains([]string{"", ".", ".."}, part) || strings.Contains(part, "\x00")
		}) {
			r.fail()
			continue
		}
		why, rules := r.above(path.Dir(rel))
		suffixes := r.opts.Suffixes
		if !isTree && r.hasFoldedSuffix(rel) {
			r.opts.Suffixes = nil
		}
		switch {
		case isTree:
			r.namedTree(rel, why, rules)
		case why != "" && r.lacksSuffix(rel):
			r.skip(rel, fileproc.SkippedSuffix)
		case why != "":
			r.skip(rel, why)
		case r.isLink(rel):
			r.link(rel, rules)
		default:
			r.file(rel, 0, rules)
		}
		r.opts.Suffixes = suffixes
	}
	return r.want
}

// namedTree is a directory that Options.Files names; why is the reason for which one above it is left out.
func (r *reference) namedTree(rel string, why fileproc.SkipReason, rules []ignoreLine) {
	switch {
	case why == fileproc.SkippedSelectDir || why == fileproc.SkippedMarked:
		r.skip(rel, why)
	case why != "" || r.prunes(rel, rules) || r.declines(rel):
	case r.typeOf(rel) != fs.ModeDir:
		r.fail()
	default:
		r.directory(rel, false, rules)
	}
}

// folded returns rel as the patterns and suffixes of the tests, which are in lower case, match it.
func (r *reference) folded(rel string) string {
	if r.opts.IgnoreCase {
		return strings.ToLower(rel)
	}
	return rel
}

// hasFoldedSuffix reports whether rel has one of the suffixes, if Options.IgnoreCase is set.
func (r *reference) hasFoldedSuffix(rel string) bool {
	return r.opts.IgnoreCase && slices.ContainsFunc(r.opts.Suffixes, func(s string) bool { return strings.HasSuffix(r.folded(rel), s) })
}

// lacksSuffix reports whether Options.Suffixes leaves out rel.
func (r *reference) lacksSuffix(rel string) bool {
	return r.opts.Suffixes != nil && !slices.ContainsFunc(r.opts.Suffixes, func(s string) bool { return strings.HasSuffix(rel, s) })
}

// isMarked reports whether SkipMarked leaves out the directory dir, "" for root.
func (r *reference) isMarked(dir string) bool {
	return slices.ContainsFunc(r.opts.SkipMarked, func(m string) bool {
		name, belowRoot := strings.CutPrefix(m, "*/")
		if belowRoot && dir == "" || r.typeOf(path.Join(dir, name)) != 0 {
			return false
		}
		text, err := os.ReadFile(r.path(path.Join(dir, name)))
		return name != "CACHEDIR.TAG" || err == nil && strings.HasPrefix(string(text), cacheSignature)
	})
}

const cacheSignature = "Signature: 8a477f597d28d172789f06886806bc55"

// typeOf returns the type of what rel leads to without a link, or all bits.
func (r *reference) typeOf(rel string) fs.FileMode {
	if up := path.Dir(rel); up != "." && r.typeOf(up) != fs.ModeDir {
		return ^fs.FileMode(0)
	}
	info, err := os.Lstat(r.path(rel))
	if err != nil {
		return ^fs.FileMode(0)
	}
	return info.Mode().Type()
}

func (r *reference) fail() {
	r.want.report.Found++
	r.want.report.Failed++
}

// above returns why the highest directory of dir that is left out is, or the rules that apply in dir.
func (r *reference) above(dir string) (why fileproc.SkipReason, rules []ignoreLine) {
	if dir != "." {
		if why, rules = r.above(path.Dir(dir)); why != "" {
			return why, nil
		}
		switch {
		case !r.prunes(dir, rules) && r.asksDirs && !selectsDir(dir):
			return fileproc.SkippedSelectDir, nil
		case !r.prunes(dir, rules):
		case r.opts.SkipHidden && path.Base(dir)[0] == '.':
			return fileproc.SkippedHidden, nil
		case r.prunesByPattern(dir):
			return fileproc.SkippedPattern, nil
		default:
			return fileproc.SkippedIgnored, nil
		}
	}
	if dir == "." {
		dir = ""
	}
	if r.isMarked(dir) {
		return fileproc.SkippedMarked, nil
	}
	return "", r.rulesIn(rules, dir)
}

// isLink reports whether Options.Files takes rel for what it leads to.
func (r *reference) isLink(rel string) bool {
	return r.opts.Symlinks != fileproc.SymlinksSkip && r.typeOf(rel) == fs.ModeSymlink
}

func (r *reference) path(rel string) string { return filepath.Join(r.dir, filepath.FromSlash(rel)) }

func (r *reference) claim(rel string, info fs.FileInfo) bool {
	if slices.ContainsFunc(r.visited, func(other fs.FileInfo) bool { return os.SameFile(info, other) }) {
		r.skip(rel, fileproc.SkippedDuplicate)
		return false
	}
	r.visited = append(r.visited, info)
	return true
}

func selectsDir(rel string) bool { return path.Base(rel) != "sub" }

// isOld is plumbing.Hooks.Unchanged in tests.
func isOld(rel string) bool { return len(rel)%2 != 0 }

func (r *reference) declines(dir string) bool {
	if r.asksDirs && !selectsDir(dir) {
		r.skip(dir, fileproc.SkippedSelectDir)
		return true
	}
	return false
}

func (r *reference) skip(rel string, why fileproc.SkipReason) {
	r.want.skipped = append(r.want.skipped, fmt.Sprint(why, " ", rel))
	r.want.report.Found++
	r.want.report.Skipped[why]++
}

func (r *reference) rulesAbove(rel string) (rules []ignoreLine) {
	var above []string
	for dir := path.Dir(rel); ; dir = path.Dir(dir) {
		if dir == "." {
			above = append(above, "")
			break
		}
		above = append(above, dir)
	}
	for _, dir := range slices.Backward(above) {
		rules = r.rulesIn(rules, dir)
	}
	return rules
}

// rulesIn returns what applies in a directory, when above does in its parent.
func (r *reference) rulesIn(above []ignoreLine, dir string) []ignoreLine {
	rules, names := slices.Clone(above), r.opts.IgnoreFiles
	if text, err := os.ReadFile(filepath.Join(r.path(dir), ".git")); r.opts.GitIgnore && err == nil && strings.HasPrefix(string(text), "gitdir: ") {
		rules = slices.DeleteFunc(rules, func(l ignoreLine) bool { return l.ofRepo })
		rules = slices.Insert(rules, 0, ignoreLine{dir, gitTop, true})
	}
	inRepo := len(rules) > 0 && rules[0].line == gitTop
	if inRepo && !slices.Contains(names, ".gitignore") {
		names = append([]string{".gitignore"}, names...)
	}
	for _, name := range names {
		p := filepath.Join(r.path(dir), name)
		if info, err := os.Lstat(p); err != nil || !info.Mode().IsRegular() {
			continue
		}
		text, err := os.ReadFile(p)
		if err != nil {
			panic(err)
		}
		for line := range strings.Lines(string(text)) {
			rules = append(rules, ignoreLine{dir, strings.TrimSpace(line), inRepo && name == ".gitignore"})
		}
	}
	return rules
}

func ignored(rules []ignoreLine, name string, isDir bool) (yes bool) {
	if len(rules) > 0 && rules[0].line == gitTop && name == ".git" {
		return true
	}
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
		if !r.claim(rel, info) {
			return
		}
	}
	entries, err := os.ReadDir(r.path(rel))
	if err != nil {
		panic(err)
	}
	if r.isMarked(rel) {
		r.skip(rel, fileproc.SkippedMarked)
		return
	}
	r.want.report.Directories++
	rules = r.rulesIn(rules, rel)
	for _, e := range entries {
		p := path.Join(rel, e.Name())
		switch typ := e.Type(); {
		case !r.named && r.opts.Symlinks != fileproc.SymlinksFollow && !r.isTracked(p, typ.IsDir()): // is not counted
		case typ == fs.ModeSymlink && r.opts.Symlinks != fileproc.SymlinksSkip:
			r.link(p, rules)
		case typ.IsDir():
			r.subdirectory(p, rules)
		default:
			r.file(p, typ, rules)
		}
	}
}

// subdirectory is a directory that its parent lists.
func (r *reference) subdirectory(rel string, rules []ignoreLine) {
	if r.flat || r.prunes(rel, rules) || (r.descends(rel) || r.walks || r.opts.AllTypes) && r.declines(rel) {
		return
	}
	if r.opts.AllTypes {
		r.entry(rel, fs.ModeDir)
	} else {
		r.want.dirs[rel] = true
	}
	if r.descends(rel) {
		r.directory(rel, false, rules)
	}
}

func (r *reference) descends(rel string) bool {
	return r.opts.MaxDepth == 0 || strings.Count(rel, "/")+2 <= r.opts.MaxDepth
}

func (r *reference) excluded(rel string) bool {
	rel = r.folded(rel)
	return slices.ContainsFunc(r.opts.Exclude, func(p string) bool { return doublestar.MatchUnvalidated(p, rel) })
}

// isTracked reports whether Options.GitTracked lets an entry come.
func (r *reference) isTracked(rel string, isDir bool) bool {
	if isDir {
		rel += "/"
	}
	return !r.opts.GitTracked || r.tracked[rel]
}

func (r *reference) prunes(rel string, rules []ignoreLine) bool {
	return r.prunesByPattern(rel) || ignored(rules, path.Base(rel), true) || !r.isTracked(rel, true)
}

func (r *reference) prunesByPattern(rel string) bool {
	name := path.Base(rel)
	reached := r.opts.Include == nil
	for _, p := range r.opts.Include {
		reached = reached || reaches[p](r.folded(rel))
	}
	return r.opts.SkipHidden && name[0] == '.' || r.excluded(rel) || !reached
}

// dangling is the type of a link that leads nowhere.
const dangling = fs.ModeSymlink | fs.ModeIrregular

func (r *reference) link(rel string, rules []ignoreLine) {
	root, err := filepath.EvalSymlinks(r.dir)
	if err != nil {
		panic(err)
	}
	target, err := filepath.EvalSymlinks(r.path(rel))
	if err != nil { // nowhere, or a loop
		r.file(rel, dangling, rules)
		return
	}
	inside, err := filepath.Rel(root, target)
	if err != nil || inside == ".." || strings.HasPrefix(filepath.ToSlash(inside), "../") {
		if inside = "."; !r.opts.SymlinksOutside {
			r.skip(rel, fileproc.SkippedOutside)
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
		r.skip(rel, why)
	default:
		r.file(rel, info.Mode().Type(), rules)
	}
}

func (r *reference) file(rel string, typ fs.FileMode, rules []ignoreLine) {
	o := r.opts
	var data []byte
	fails := r.named && r.typeOf(rel) != 0 && !r.isLink(rel)
	if typ == 0 && !fails {
		var err error
		if data, err = os.ReadFile(r.path(rel)); err != nil {
			panic(err)
		}
	}
	switch why := r.whyNotSelected(rel, typ, len(data), rules); {
	case why != "":
		r.skip(rel, why)
	case typ != 0:
		r.entry(rel, typ)
	case fails:
		r.fail()
	case o.SkipLarger > 0 && int64(len(data)) > o.SkipLarger:
		r.skip(rel, fileproc.SkippedLarger)
	case r.asksOld && !r.walks && isOld(rel):
		r.want.report.Found++
		r.want.report.Unchanged++
		r.want.files[rel] = content{whole: string(data)}
		r.want.report.Bytes += int64(len(data))
	case o.SkipBinary && slices.Contains(data[:min(len(data), 8192)], 0):
		r.skip(rel, fileproc.SkippedBinary)
	case o.ReadSize == 0 && o.MaxFileSize > 0 && int64(len(data)) > o.MaxFileSize:
		r.fail()
	default:
		r.want.report.Found++
		r.want.report.Processed++
		r.want.files[rel] = contentGiven(data, o.ReadSize)
		r.want.report.Bytes += int64(len(data))
	}
}

// whyNotSelected returns why a file is skipped before it is read, or "".
func (r *reference) whyNotSelected(rel string, typ fs.FileMode, size int, rules []ignoreLine) fileproc.SkipReason {
	o, name := r.opts, path.Base(rel)
	included := o.Include == nil || slices.ContainsFunc(o.Include, func(p string) bool { return doublestar.MatchUnvalidated(p, r.folded(rel)) })
	switch {
	case r.lacksSuffix(name) && !r.hasFoldedSuffix(name):
		return fileproc.SkippedSuffix
	case o.SkipHidden && name[0] == '.':
		return fileproc.SkippedHidden
	case r.excluded(rel) || !included:
		return fileproc.SkippedPattern
	case o.Shards > 1 && shardOf(rel, o.Shards) != o.Shard:
		return fileproc.SkippedShard
	case ignored(rules, name, false), !r.isTracked(rel, false):
		return fileproc.SkippedIgnored
	case typ == dangling:
		return fileproc.SkippedDangling
	case typ != 0 && !o.AllTypes:
		return fileproc.SkippedNotRegular
	case r.selected != nil && !r.selected(rel, size):
		return fileproc.SkippedSelect
	}
	return ""
}

// contentGiven is what a run gives of data with Options.ReadSize.
func contentGiven(data []byte, readSize int) content {
	switch {
	case readSize == fileproc.NoRead:
		return content{whole: string(data)}
	case readSize > 0 && len(data) > readSize:
		return content{data: string(data[:readSize]), truncated: true, whole: string(data)}
	}
	return content{data: string(data), whole: string(data)}
}

// entry is what Options.AllTypes gives beside regular files.
func (r *reference) entry(rel string, typ fs.FileMode) {
	if r.opts.Shards > 1 && shardOf(rel, r.opts.Shards) != r.opts.Shard {
		r.skip(rel, fileproc.SkippedShard)
		return
	}
	r.want.report.Found++
	r.want.report.Processed++
	if r.walks && typ == fs.ModeDir {
		r.want.dirs[rel] = true
		return
	}
	text := ""
	if typ == fs.ModeSymlink {
		var err error
		if text, err = os.Readlink(r.path(rel)); err != nil {
			panic(err)
		}
	}
	r.want.files[rel] = content{data: typ.String() + " " + text}
}

// shardOf is the stable hash that divides a job: 64-bit FNV-1a with MurmurHash3's finalizer.
func shardOf(rel string, n int) int {
	sum := fnv.New64a()
	sum.Write([]byte(rel))
	h := sum.Sum64()
	for _, factor := range []uint64{0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53, 1} {
		h = (h ^ h>>33) * factor
	}
	return int(h % uint64(n))
}
