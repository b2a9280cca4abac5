//go:build linux

package regress

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/fail"
)

func TestChangeOf(t *testing.T) {
	old := []float64{100, 101, 99, 102, 98, 100.5, 99.5, 101.5}
	slower := make([]float64, len(old))
	for i, v := range old {
		slower[i] = 1.1 * v * (1 + 0.002*float64(i%3-1))
	}
	c := changeOf(old, slower)
	assert.InDelta(t, 0.10, c.Estimate, 0.005)
	assert.Less(t, c.Lo, 0.10)
	assert.Greater(t, c.Hi, 0.10)
	assert.Greater(t, c.Lo, 0.0)
	assert.Less(t, c.P, 0.01)
	assert.True(t, c.above(0.05))
	assert.False(t, c.above(0.15), "significant, but not above the limit")

	assert.True(t, c.decides(0.05))
	assert.False(t, change{Estimate: 0.1, Lo: 0.08, Hi: 0.12, P: 0.06}.decides(0.05), "not significant yet")
	assert.False(t, change{Estimate: 0.1, Lo: 0.02, Hi: 0.2}.decides(0.05), "a noisy slowdown")
	assert.False(t, change{Estimate: 0.01, Lo: -0.05, Hi: 0.07}.decides(0.05), "a noisy nothing")

	same := changeOf(old, old)
	assert.InDelta(t, 0, same.Estimate, 0.001)
	assert.Greater(t, same.P, 0.9)
	assert.False(t, same.above(-1), "above the limit, but not significant")
	assert.Equal(t, []float64{100, 101, 99, 102, 98, 100.5, 99.5, 101.5}, old, "an argument was sorted in place")
}

func TestChangeOfDrift(t *testing.T) {
	var of, to []float64
	for i := range 20 { // both sides follow the machine
		to = append(to, 1+float64(i))
		of = append(of, 1.5*(1+float64(i)))
	}
	c := changeOf(to, of)
	assert.InDeltaSlice(t, []float64{0.5, 0.5, 0.5}, []float64{c.Estimate, c.Lo, c.Hi}, 1e-9)
}

// A slowdown that is smaller than the drift of the machine is found if the samples were taken in turn.
func TestPairedChange(t *testing.T) {
	var old, new []float64
	for i := range 30 {
		mood := 1 + 0.5*float64(i%10)/10
		noise := 1 + 0.01*float64(i%3-1)
		old, new = append(old, 1000*mood), append(new, 1100*mood*noise)
	}
	c := changeOf(old, new)
	assert.InDelta(t, 0.10, c.Estimate, 0.005)
	assert.Greater(t, c.Lo, 0.09)
	assert.Less(t, c.Hi, 0.11)
}

func TestEntries(t *testing.T) {
	c := newClone(t, t.TempDir())
	require.NoError(t, os.Mkdir(filepath.Dir(c.baseline()), 0o755))
	assert.Empty(t, c.readEntries())
	for _, e := range []entry{{Commit: "1"}, {Commit: "2", BuildTags: "fileproc_unix"}, {Commit: "3", Filesystem: "xfs"}, {Commit: "4"}} {
		e.Schema = schema
		c.appendEntry(e)
	}
	var commits []string
	for _, e := range c.entriesWith("") {
		commits = append(commits, e.Commit)
	}
	assert.Equal(t, []string{"3", "4"}, commits, "4 is in place of 1")
	assert.Len(t, c.entriesWith("fileproc_unix"), 1)
	assert.ErrorContains(t, fail.Try(func() { c.entriesWith("fileproc_generic") }),
		"built with -tags fileproc_generic, but no entry of the baseline is; the newest was built with no build tags")

	for text, want := range map[string]string{
		`{"schema":99}`: "line 1, has schema version 99, and this command compares version 2",
		"{":             "line 1: unexpected end of JSON input",
	} {
		require.NoError(t, os.WriteFile(c.baseline(), []byte(text), 0o644))
		assert.ErrorContains(t, fail.Try(func() { c.readEntries() }), want)
	}
}

// The committed baseline is one that this version reads.
func TestCommittedBaseline(t *testing.T) {
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	entries := newClone(t, root).readEntries()
	require.NotEmpty(t, entries)
	for _, name := range countedCases {
		assert.NotEmpty(t, entries[0].Counts[name], name)
		assert.NotZero(t, entries[0].NS[name], name)
	}

	c := newClone(t, t.TempDir())
	require.NoError(t, os.Mkdir(filepath.Dir(c.baseline()), 0o755))
	for _, e := range entries {
		c.appendEntry(e)
	}
	got, err := os.ReadFile(c.baseline())
	require.NoError(t, err)
	want, err := os.ReadFile(newClone(t, root).baseline())
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got), "an entry is written as it was read")
}

// What is wrong with the input is said in one line, before anything is measured.
func TestBadInput(t *testing.T) {
	root := t.TempDir()
	c := newClone(t, root)
	git := func(args ...string) {
		t.Helper()
		c.output(root, "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
	}
	check := func(do command, want string, args ...string) {
		t.Helper()
		err := fail.Try(func() { c.run("x", do, args) })
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "\n")
		assert.NotErrorIs(t, err, errSlower)
		assert.NoDirExists(t, filepath.Join(root, ".data"))
	}
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	write("go.mod", "module x\n\ngo 1.26\n")
	write("any.go", "package x\n")
	check(measure, "dirty tree", "--update-baseline") // no commit is known
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "before the tag")
	write("tagged.go", "//go:build fileproc_unix\n\npackage x\n")
	git("add", ".")
	git("commit", "-q", "-m", "x")
	_, dirty := c.revision()
	assert.False(t, dirty)
	require.NoError(t, os.Mkdir(filepath.Dir(c.baseline()), 0o755))
	write(".benchmarks/baseline.jsonl", `{"schema":99}`)
	_, dirty = c.revision()
	assert.False(t, dirty, "the second entry of a baseline is of the same commit")
	check(compare, "schema version 99", "--against", "baseline", "--short")
	check(measure, "schema version 99", "--update-baseline")
	require.NoError(t, os.Remove(c.baseline()))
	check(compare, "no .benchmarks/baseline.jsonl", "--against", "baseline")
	check(compare, `unknown revision "nosuch"`, "--against", "nosuch")
	write(".benchmarks/baseline.jsonl", `{"schema":2,"build_tags":"fileproc_unix"}`)
	check(compare, "the working tree is built with no build tags, but no entry of the baseline is; the newest was built with -tags fileproc_unix")
	t.Setenv("GOFLAGS", "-buildvcs=false -tags=fileproc_unx")
	check(compare, `no file of the package depends on the build tag "fileproc_unx"`, "--against", "HEAD")
	check(measure, `no file of the package depends on the build tag "fileproc_unx"`)
	t.Setenv("GOFLAGS", "")
	check(compare, "--short chooses", "--short", "--modes", "whole")
	check(compare, "--short chooses", "--short", "--sizes", "5k")
	check(compare, "not defined: -bogus", "--bogus")
	check(compare, `unknown case "flat_7k"`, "--against", "HEAD", "--sizes", "5k,7k")
	check(compare, `unknown mode "half"`, "--against", "HEAD", "--modes", "whole,half")
	check(compare, "tickets_flat_1m is missing; make it: ", "--against", "HEAD", "--sizes", "1m")

	require.NoError(t, os.WriteFile(filepath.Join(root, "new"), nil, 0o644))
	check(measure, "dirty tree", "--update-baseline")
}

// The help says what a command is for, and what its exit status means.
func TestHelp(t *testing.T) {
	for name, cmd := range map[string]command{"regress": measure, "compare": compare} {
		var help bytes.Buffer
		do := func(f *flag.FlagSet) func(clone) {
			f.SetOutput(&help)
			return cmd(f)
		}
		require.ErrorIs(t, fail.Try(func() { clone{}.run(name, do, []string{"--help"}) }), flag.ErrHelp)
		require.Regexp(t, `(?s)^bench_`+name+`\.sh \w+s .*The exit status is 1 if .*  -`, help.String())
	}
}

func TestBuildTags(t *testing.T) {
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	c := newClone(t, root)
	t.Setenv("GOFLAGS", "-buildvcs=false")
	assert.Equal(t, source{dir: root}, c.workingTree())
	for _, tag := range []string{"fileproc_unix", "fileproc_generic", "fileproc_nouring"} {
		t.Setenv("GOFLAGS", "-buildvcs=false --tags="+tag)
		assert.Equal(t, source{dir: root, tags: tags(tag)}, c.workingTree())
	}
	t.Setenv("GOFLAGS", "-tags=fileproc_unix,fileproc_nouring,fileproc_unix")
	assert.Equal(t, tags("fileproc_nouring,fileproc_unix"), c.workingTree().tags)
	binary := c.made("bench.test")
	c.build(source{dir: root, tags: "fileproc_unix"}, binary)
	info, err := buildinfo.ReadFile(binary)
	require.NoError(t, err)
	assert.Contains(t, info.Settings, debug.BuildSetting{Key: "-tags", Value: "fileproc_unix"})
}

func TestCases(t *testing.T) {
	bc := newCase("flat_5k", "whole")
	assert.Equal(t, "flat_5k/whole", bc.String())
	assert.Equal(t, "^BenchmarkProcess$/^layout=flat$/^files=5k$/^mode=whole$", bc.pattern())
	assert.ErrorContains(t, fail.Try(func() { newCase("flat_7k", "whole") }), `unknown case "flat_7k"`)
	assert.ErrorContains(t, fail.Try(func() { newCase("flat_5k", "half") }), `unknown mode "half"`)

	c := newClone(t, t.TempDir())
	var names []string
	for _, bc := range (&selection{sizes: "1k,1,4x16MiB", modes: "whole,stat", runs: minRuns}).cases(c) {
		names = append(names, bc.String())
	}
	assert.Equal(t, []string{"flat_1k/whole", "flat_1k/stat", "nested1_1k/whole", "nested1_1k/stat", "flat_1/whole", "flat_4x16MiB/whole"}, names,
		"few files, and large ones, are in one directory and read whole")
	assert.DirExists(t, filepath.Join(c.data(), "tickets_flat_4x16MiB"))

	sel := selection{sizes: "1m", modes: "whole", runs: minRuns}
	assert.ErrorContains(t, fail.Try(func() { sel.cases(newClone(t, t.TempDir())) }), "tickets_flat_1m is missing; make it: ")
	sel.runs--
	assert.ErrorContains(t, fail.Try(func() { sel.cases(clone{}) }), "too few")
}

// The slowdown must find its place in the source as it is.
func TestPlant(t *testing.T) {
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	c := newClone(t, root)
	c.build(c.plant(source{dir: root}, loop(7), ""), c.made("bench.test"))
	assert.Error(t, fail.Try(func() { c.plant(source{dir: c.tmp}, loop(7), "") }))
}

// What is slower is measured twice, and has a verdict beside what benchstat says.
func TestTimes(t *testing.T) {
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	c := comparison{newClone(t, root), selection{runs: minRuns}, 0.2, 0}
	bench := func(name string, ns int) {
		script := fmt.Sprintf("#!/bin/sh\nfor i in 1 2 3 4 5 6; do echo \"BenchmarkProcess/x 1 $((%d + $$ %% 7))000 ns/op\"; done\n", ns)
		require.NoError(t, os.WriteFile(c.made(name+".test"), []byte(script), 0o755))
	}
	fast, slow := newCase("flat_5k", "whole"), newCase("flat_1k", "whole")
	bench("old", 1000)
	bench("new", 1001)
	assert.NoError(t, fail.Try(func() { c.times([]benchCase{fast, slow}) }))
	bench("new", 2000)
	err = fail.Try(func() { c.times([]benchCase{slow}) })
	assert.ErrorIs(t, err, errSlower)
	assert.ErrorContains(t, err, "twice by more than 20 %: [flat_1k/whole]")
	bench("new", 1100)
	assert.NoError(t, fail.Try(func() { c.times([]benchCase{slow}) }), "within the limit")
}

// Without the commit of the baseline this machine cannot tell: that is no error.
func TestBaselineWithoutItsCommit(t *testing.T) {
	c := newClone(t, t.TempDir())
	for name, text := range map[string]string{"go.mod": "module x\n\ngo 1.26\n", "x.go": "package x\n", "bench_test.go": "package x\n",
		"bench_linux_test.go": "package x\n", ".benchmarks/baseline.jsonl": `{"schema":2,"commit":"0123456789"}`} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(c.root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(c.root, name), []byte(text), 0o644))
	}
	c.output(c.root, "git", "init", "-q")
	err := fail.Try(func() { c.run("compare", compare, []string{"--sizes", "1k", "--modes", "whole"}) })
	assert.ErrorIs(t, err, errCannotTell)
	assert.ErrorContains(t, err, `unknown revision "0123456789"`)
}

// A larger count is status 1, also where this machine cannot tell whether the times are longer.
func TestStatus(t *testing.T) {
	status := func(times, counts error) int {
		c := comparison{clone: newClone(t, "")}
		e := interface{ ExitCode() int }(nil)
		if !errors.As(fail.Try(func() { c.timesAndCounts(func() { fail.On(times) }, func() { fail.On(counts) }) }), &e) {
			return 0
		}
		return e.ExitCode()
	}
	wrapped := func(err error) error { return fmt.Errorf("%w: x", err) }
	assert.Equal(t, 0, status(nil, nil))
	assert.Equal(t, 1, status(wrapped(errSlower), nil))
	assert.Equal(t, 1, status(nil, wrapped(errMore)))
	assert.Equal(t, 1, status(wrapped(errCannotTell), wrapped(errMore)))
	assert.Equal(t, 3, status(wrapped(errCannotTell), nil))
}
