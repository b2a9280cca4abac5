//go:build linux

// Package regress guards the speed of fileproc: the commands behind bench_regress.sh and bench_compare.sh.
package regress

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

var (
	Run     = entryPoint("regress", measure)
	Compare = entryPoint("compare", compare)
)

var (
	errSlower     = commands.Status{Text: "slower than allowed", Code: 1} // the slower cases are printed already
	errMore       = commands.Status{Text: "more than allowed", Code: 1}
	errCannotTell = commands.Status{Text: "cannot be judged here", Code: 3}
)

// A clone is the repository in which a command works until ctx ends. The files in tmp are removed at the end of the command.
type clone struct {
	ctx       context.Context
	root, tmp string
}

func (c clone) data() string            { return filepath.Join(c.root, ".data") }
func (c clone) made(name string) string { return filepath.Join(c.tmp, name) }

// A command defines its flags, and returns the function to call when they are parsed.
type command func(*flag.FlagSet) (do func(clone))

var purposes = map[string]string{
	"bench_regress.sh": "measures the working tree; --update-baseline makes that the baseline",
	"bench_compare.sh": "compares the working tree with the baseline or a revision; it fails if that is slower or takes more",
}

func entryPoint(name string, cmd command) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		return fail.Try(func() {
			tmp := fail.Must(os.MkdirTemp("", "regress-"))
			defer os.RemoveAll(tmp)
			clone{ctx, fail.Must(filepath.Abs("..")), tmp}.run(name, cmd, args)
		})
	}
}

func (c clone) run(name string, cmd command, args []string) {
	name = "bench_" + name + ".sh"
	f := commands.Flags(name, name+" "+purposes[name]+
		".\nThe exit status is 1 if something is slower or takes more than allowed, 2 after an error, and 3 if this machine cannot tell.\n")
	do := cmd(f)
	fail.On(f.Parse(args))
	fail.If(f.NArg() > 0, "unexpected argument %q", f.Arg(0))
	do(c)
}

func (c clone) output(dir, name string, args ...string) string {
	return fail.Must(commands.Output(c.ctx, dir, name, args...))
}

// A benchCase is one of BenchmarkProcess.
type benchCase struct {
	set                tickets.Set
	layout, size, mode string
}

const (
	layouts  = "flat,nested1,nested3"
	allSizes = "1k,5k,100k,1m," + fewOrLarge
	// Few files, which show the cost of a run, and larger files. They are in one directory, and read whole.
	fewOrLarge = "1,10,100,64x16KiB,4x16MiB"
	allModes   = "frontmatter,whole,stat,names"
	madeHere   = 5_000 // files: up to this size, a missing set is made without asking, in a second
	minRuns    = 5     // with fewer, the test can find no difference significant
)

func has(list, one string) bool { return slices.Contains(strings.Split(list, ","), one) }

func newCase(name, mode string) benchCase {
	layout, size, _ := strings.Cut(name, "_")
	fail.If(!has(layouts, layout) || !has(allSizes, size),
		"unknown case %q: want one of %s, then _, then one of %s", name, layouts, allSizes)
	fail.If(!has(allModes, mode), "unknown mode %q: want one of %s", mode, allModes)
	const seed = 1
	return benchCase{fail.Must(tickets.ParseSet(layout, size, seed)), layout, size, mode}
}

// work returns how many small files take about as long as a run of the case.
func (bc benchCase) work() int { return (bc.set.Count + 5) * (1 + bc.set.Size>>13) }

func (bc benchCase) String() string { return bc.layout + "_" + bc.size + "/" + bc.mode }

func (bc benchCase) pattern() string {
	return fmt.Sprintf("^BenchmarkProcess$/^layout=%s$/^files=%s$/^mode=%s$", bc.layout, bc.size, bc.mode)
}

// missing reports whether the data must be made, and takes too long to be made without asking.
func (bc benchCase) missing(c clone) bool {
	_, err := bc.set.ReadManifest(c.data())
	return errors.Is(err, fs.ErrNotExist) && bc.set.Count > madeHere
}

func (bc benchCase) ensure(c clone) {
	fail.If(bc.missing(c), "%s is missing; make it: cd scripts && go run ./tickets -out ../.data -layout %s -count %d",
		bc.set.Name(), bc.set.Layout, bc.set.Count)
	fail.Must(bc.set.Generate(c.ctx, c.data()))
}

// A selection says which cases a command measures, and how often.
type selection struct {
	sizes, modes string
	runs         int
}

func (s *selection) flags(f *flag.FlagSet) {
	f.StringVar(&s.sizes, "sizes", "", "`sizes` of the sets: some of "+allSizes+" (default: all, but 100k and 1m only if they exist)")
	f.StringVar(&s.modes, "modes", allModes, "`modes`: what is read of each file")
	f.IntVar(&s.runs, "runs", s.runs, "`samples` of each case")
}

// cases returns the selected cases. It makes their data if it is missing.
func (s *selection) cases(c clone) (cases []benchCase) {
	fail.If(s.runs < minRuns, "--runs %d is too few for a significance test: want at least %d", s.runs, minRuns)
	for size := range strings.SplitSeq(cmp.Or(s.sizes, allSizes), ",") {
		for _, layout := range []string{"flat_", "nested1_"} {
			for mode := range strings.SplitSeq(s.modes, ",") {
				bc := newCase(layout+size, mode)
				only := has(fewOrLarge, size) && bc.pattern() != newCase("flat_"+size, "whole").pattern()
				if !only && (s.sizes != "" || !bc.missing(c)) {
					cases = append(cases, bc)
				}
			}
		}
	}
	for _, bc := range cases { // after all names are checked
		bc.ensure(c)
	}
	return cases
}

// benchFiles are always those of the working tree, so that two revisions are measured by the same benchmark.
var benchFiles = []string{"bench_test.go", "bench_linux_test.go"}

// A source is the package at some revision.
type source struct {
	dir     string
	tags    tags
	planted string // unless empty, a file that takes the place of visit.go
	hooks   bool   // build with its export_test.go, so that a run does not react to slow calls: in a traced process all are slow
}

const plantedFile = "visit.go"

// countable reports whether the source has these hooks. Without them, a traced process reads many files twice.
func (src source) countable() bool {
	_, err := os.Stat(filepath.Join(src.dir, "export_test.go"))
	return err == nil
}

// build makes the benchmark binary of a source. Equal sources give equal binaries, wherever they are.
func (c clone) build(src source, binary string) {
	fail.If(src.hooks && !src.countable(), "there is no export_test.go, which keeps the package from reacting to slow calls")
	replace := map[string]string{}
	for _, name := range fail.Must(filepath.Glob(filepath.Join(src.dir, "*_test.go"))) {
		if !src.hooks || !strings.HasPrefix(filepath.Base(name), "export") {
			replace[name] = "" // builds as if the file did not exist
		}
	}
	for _, name := range benchFiles {
		replace[filepath.Join(src.dir, name)] = filepath.Join(c.root, name)
	}
	if src.planted != "" {
		replace[filepath.Join(src.dir, plantedFile)] = src.planted
	}
	overlay := c.made("overlay.json")
	fail.On(os.WriteFile(overlay, fail.Must(json.Marshal(map[string]any{"Replace": replace})), 0o644))
	c.output(src.dir, "go", "test", "-c", "-o", binary, "-trimpath", "-buildvcs=false", "-overlay", overlay,
		"-tags", string(src.tags))
}

func (c clone) commit(rev string) (commit string) {
	err := fail.Try(func() {
		commit = c.output(c.root, "git", "rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{commit}")
	})
	fail.If(err != nil, "unknown revision %q: want baseline or what git knows", rev)
	return commit
}

func (c clone) buildRevision(rev string, with tags, binary string) source {
	src := source{dir: binary + ".tree", tags: with}
	c.output(c.root, "git", "archive", "-o", src.dir+".tar", c.commit(rev))
	fail.On(os.MkdirAll(src.dir, 0o755))
	c.output(src.dir, "tar", "-xf", src.dir+".tar")
	err := fail.Try(func() { c.build(src, binary) })
	fail.If(err != nil, "%s cannot be measured with the benchmarks of today: %w", rev, err)
	return src
}

// revision returns the commit, and whether the working tree differs from it in more than the files of the baseline. Without git,
// the commit is unknown, and the tree counts as dirty.
func (c clone) revision() (commit string, dirty bool) {
	commit = "unknown"
	err := fail.Try(func() {
		commit = c.commit("HEAD")
		dirty = c.output(c.root, "git", "status", "--porcelain", "--", ".", ":!.benchmarks") != ""
	})
	return commit, dirty || err != nil
}

// tags are Go build tags, sorted, with commas between them.
type tags string

func (t tags) String() string {
	if t == "" {
		return "no build tags"
	}
	return "-tags " + string(t)
}

// workingTree returns the working tree with the tags of GOFLAGS, as the go command builds it. A tag that changes no file is an
// error: the user would not get the build that they asked for.
func (c clone) workingTree() source {
	with := slices.Sorted(strings.SplitSeq(c.output(c.root, "go", "list", "-f", `{{join context.BuildTags ","}}`), ","))
	files := func(tag string) string {
		return c.output(c.root, "go", "list", "-deps", "-tags", tag, "-f", "{{.ImportPath}} {{.GoFiles}} {{.SFiles}}")
	}
	for _, tag := range with {
		fail.If(tag != "" && files(tag) == files(""), "no file of the package depends on the build tag %q", tag)
	}
	return source{dir: c.root, tags: tags(strings.Join(slices.Compact(with), ","))}
}
