//go:build linux

package regress

import (
	"context"
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

func TestChangeOf(t *testing.T) {
	old := []float64{100, 101, 99, 102, 98, 100.5, 99.5, 101.5}
	slower := make([]float64, len(old))
	for i, v := range old {
		slower[i] = 1.1 * v
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

// A slowdown that is smaller than the drift of the machine is found if the samples were taken in turn.
func TestPairedChange(t *testing.T) {
	var old, new []float64
	for i := range 30 {
		mood := 1 + 0.5*float64(i%10)/10
		noise := 1 + 0.01*float64(i%3-1)
		old, new = append(old, 1000*mood), append(new, 1100*mood*noise)
	}
	c := pairedChange(old, new)
	assert.InDelta(t, 0.10, c.Estimate, 0.005)
	assert.Greater(t, c.Lo, 0.09)
	assert.Less(t, c.Hi, 0.11)
	assert.Less(t, changeOf(old, new).Lo, 0.05, "without the pairs")
}

func TestEntries(t *testing.T) {
	repo := repository(t.TempDir())
	require.NoError(t, os.Mkdir(repo.records(""), 0o755))
	entries, err := repo.readEntries(baselineFile)
	require.NoError(t, err)
	assert.Empty(t, entries)

	for i := range baselineKeeps + 2 {
		e := entry{meta: meta{Schema: schema, Cores: i}, Cases: map[string]*series{"flat_5k/whole": {Ratio: []float64{1}}}}
		require.NoError(t, repo.appendEntry(baselineFile, e, baselineKeeps))
	}
	entries, err = repo.readEntries(baselineFile)
	require.NoError(t, err)
	require.Len(t, entries, baselineKeeps)
	assert.Equal(t, 2, entries[0].Cores, "the oldest are dropped")
	assert.Equal(t, []float64{1}, entries[0].Cases["flat_5k/whole"].Ratio)

	chosen, err := choose(entries, meta{Cores: 3}, baselineFile)
	require.NoError(t, err)
	assert.Equal(t, 3, chosen.Cores, "the one from a machine like this")
	chosen, err = choose(entries, meta{Cores: 99}, baselineFile)
	require.NoError(t, err)
	assert.Equal(t, baselineKeeps+1, chosen.Cores, "the newest")

	more := entry{meta: meta{Schema: schema, Cores: 3}, Cases: map[string]*series{"flat_5k/whole": {Ratio: []float64{2}}}}
	chosen, err = choose(append(entries, more), meta{Cores: 3}, baselineFile)
	require.NoError(t, err)
	assert.Equal(t, []float64{1, 2}, chosen.Cases["flat_5k/whole"].Ratio, "the entries of one commit and machine are taken together")
	more.Commit = "other"
	chosen, err = choose(append(entries, more), meta{Cores: 3}, baselineFile)
	require.NoError(t, err)
	assert.Equal(t, []float64{2}, chosen.Cases["flat_5k/whole"].Ratio)

	have, lacks := benchCase{tickets.Set{Layout: tickets.Flat, Count: 5000}, "whole"}, benchCase{tickets.Set{Layout: tickets.Flat, Count: 5000}, "stat"}
	both, err := chosen.having([]benchCase{lacks, have}, baselineFile, false)
	require.NoError(t, err)
	assert.Equal(t, []benchCase{have}, both)
	_, err = chosen.having([]benchCase{have, lacks}, baselineFile, true)
	assert.ErrorContains(t, err, "has no case flat_5k/stat")
	_, err = chosen.having([]benchCase{lacks}, baselineFile, false)
	assert.ErrorContains(t, err, "none of these cases")

	entries[len(entries)-1].Dirty = true
	_, err = choose(entries, meta{}, baselineFile)
	assert.ErrorContains(t, err, "dirty tree")
	_, err = choose(entries, meta{}, historyFile)
	assert.NoError(t, err)

	for text, want := range map[string]string{
		`{"schema":99}`: "line 1, has schema version 99, and this command compares version 1",
		"{":             "line 1: unexpected end of JSON input",
	} {
		require.NoError(t, os.WriteFile(repo.records(historyFile), []byte(text), 0o644))
		_, err = repo.readEntries(historyFile)
		assert.ErrorContains(t, err, want)
	}
}

// What is wrong with the input is said in one line, before anything is measured.
func TestBadInput(t *testing.T) {
	root := t.TempDir()
	repo := repository(root)
	git := func(args ...string) {
		t.Helper()
		_, err := output(t.Context(), root, "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
		require.NoError(t, err)
	}
	type command = func(context.Context, repository, []string) error
	check := func(do command, want string, args ...string) {
		t.Helper()
		err := do(t.Context(), repo, args)
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
	check(record, "dirty tree", "--update-baseline") // no commit is known
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "before the tag")
	write("tagged.go", "//go:build fileproc_unix\n\npackage x\n")
	git("add", ".")
	git("commit", "-q", "-m", "x")
	_, dirty := repo.revision(t.Context())
	assert.False(t, dirty)
	require.NoError(t, os.Mkdir(repo.records(""), 0o755))
	require.NoError(t, os.WriteFile(repo.records(baselineFile), []byte(`{"schema":99}`), 0o644))
	_, dirty = repo.revision(t.Context())
	assert.False(t, dirty, "the second entry of a baseline is of the same commit")
	check(compare, "schema version 99", "--against", "baseline", "--short")
	check(prove, "schema version 99", "--baseline")
	check(record, "schema version 99", "--update-baseline")
	require.NoError(t, os.Remove(repo.records(baselineFile)))
	check(compare, "no .benchmarks/baseline.jsonl", "--against", "baseline")
	check(compare, "no .benchmarks/history.jsonl", "--against", "prev")
	check(compare, `unknown revision "nosuch"`, "--against", "nosuch")
	check(compare, `--tags "a b"`, "--against", "HEAD", "--tags", "a b")
	check(compare, `no file of the package depends on the build tag "fileproc_unx"`, "--against", "HEAD", "--tags", "fileproc_unix,fileproc_unx")
	check(record, `no file of the package depends on the build tag "fileproc_unx"`, "--tags", "fileproc_unx")
	write(".benchmarks/history.jsonl", `{"schema":1}`)
	check(compare, "the working tree is built with -tags fileproc_unix, but no entry of .benchmarks/history.jsonl is; the newest was built with no build tags",
		"--against", "prev", "--tags", "fileproc_unix")
	write(".benchmarks/baseline.jsonl", `{"schema":1,"build_tags":"fileproc_unix"}`)
	check(compare, "the working tree is built with no build tags, but no entry of .benchmarks/baseline.jsonl is; the newest was built with -tags fileproc_unix")
	check(prove, "newest was built with -tags fileproc_unix", "--baseline")
	t.Setenv("GOFLAGS", "-buildvcs=false -tags=fileproc_generic,fileproc_unix")
	check(prove, "is built with -tags fileproc_generic,fileproc_unix, but", "--baseline")
	t.Setenv("GOFLAGS", "")
	require.NoError(t, os.RemoveAll(repo.records("")))
	require.NoError(t, os.Mkdir(repo.records(""), 0o755))
	err := repo.buildRevision(t.Context(), "HEAD~", "fileproc_unix", filepath.Join(t.TempDir(), "old.test"), "")
	require.EqualError(t, err, `HEAD~: no file of the package depends on the build tag "fileproc_unix"`)
	check(compare, "--short chooses", "--short", "--modes", "whole")
	check(compare, "--short chooses", "--short", "--sizes", "5k")
	check(compare, "not defined: -bogus", "--bogus")
	check(compare, `unknown case "round_5k"`, "--against", "HEAD", "--sizes", "5k", "--layouts", "flat,round")
	check(profile, `unknown case "flat_7k"`, "--case", "flat_7k")
	check(profile, "tickets_flat_1m is missing; make it: ", "--case", "flat_1m")
	check(prove, `unknown mode "half"`, "--mode", "half")
	check(record, "letters, digits", "--tag", "a/b")

	require.NoError(t, os.WriteFile(filepath.Join(root, "new"), nil, 0o644))
	check(record, "dirty tree", "--update-baseline")
}

func TestBuildTags(t *testing.T) {
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	repo := repository(root)
	t.Setenv("GOFLAGS", "-buildvcs=false")
	for flag, want := range map[string]tags{"": "", "b": "b", "b,a,b": "a,b", "go1.27": "go1.27"} {
		got, err := repo.buildTags(t.Context(), flag)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, flag := range []string{",", "a,", "-race", "!a"} {
		_, err := repo.buildTags(t.Context(), flag)
		assert.ErrorContains(t, err, "want build tags")
	}

	t.Setenv("GOFLAGS", "-tags=a -buildvcs=false --tags=c,b")
	got, err := repo.buildTags(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, tags("b,c"), got)
	got, err = repo.buildTags(t.Context(), "d")
	require.NoError(t, err)
	assert.Equal(t, tags("d"), got, "--tags goes first, as it does for the go command")

	for _, flag := range []string{"fileproc_unix", "fileproc_generic", "fileproc_nouring"} {
		src, err := repo.workingTree(t.Context(), flag)
		require.NoError(t, err)
		assert.Equal(t, source{dir: root, tags: tags(flag)}, src)
	}
	binary := filepath.Join(t.TempDir(), "bench.test")
	require.NoError(t, repo.build(t.Context(), source{dir: root, tags: "fileproc_unix"}, binary))
	info, err := buildinfo.ReadFile(binary)
	require.NoError(t, err)
	assert.Contains(t, info.Settings, debug.BuildSetting{Key: "-tags", Value: "fileproc_unix"})
}

// Entries with other build tags are neither compared nor do they push each other out of the baseline.
func TestEntriesWithBuildTags(t *testing.T) {
	repo := repository(t.TempDir())
	require.NoError(t, os.Mkdir(repo.records(""), 0o755))
	add := func(cores int, with tags) {
		t.Helper()
		require.NoError(t, repo.appendEntry(baselineFile, entry{meta: meta{Schema: schema, Cores: cores, BuildTags: with}}, baselineKeeps))
	}
	add(0, "")
	for i := range baselineKeeps + 2 {
		add(i, "fileproc_unix")
	}
	entries, err := repo.entriesWith("fileproc_unix", baselineFile)
	require.NoError(t, err)
	require.Len(t, entries, baselineKeeps)
	assert.Equal(t, 2, entries[0].Cores, "the oldest are dropped")
	assert.Contains(t, entries[0].String(), "with -tags fileproc_unix")
	entries, err = repo.entriesWith("", baselineFile)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.NotContains(t, entries[0].String(), "tags")
	_, err = repo.entriesWith("fileproc_generic", baselineFile)
	assert.ErrorContains(t, err, "built with -tags fileproc_generic, but no entry of .benchmarks/baseline.jsonl is; the newest was built with -tags fileproc_unix")
}

func TestCases(t *testing.T) {
	c, err := newCase("flat", "5k", "whole")
	require.NoError(t, err)
	assert.Equal(t, "flat_5k/whole", c.String())
	assert.Contains(t, c.pattern(), "|^BenchmarkFloor$/^layout=flat$/^files=5k$/^mode=whole$/^goroutines=max$")
	_, err = newCase("flat", "7k", "whole")
	assert.ErrorContains(t, err, `unknown case "flat_7k"`)
	_, err = newCase("flat", "5k", "half")
	assert.ErrorContains(t, err, `unknown mode "half"`)

	sel := selection{sizes: "1m", layouts: "flat", modes: "whole", runs: minRuns}
	_, err = sel.cases(t.Context(), repository(t.TempDir()))
	assert.ErrorContains(t, err, "tickets_flat_1m is missing; make it: ")
	sel.runs--
	_, err = sel.cases(t.Context(), "")
	assert.ErrorContains(t, err, "too few")
}

func TestBusy(t *testing.T) {
	record, same, slower := &series{Floor: []float64{100, 101}}, &series{Floor: []float64{110}}, &series{Floor: []float64{180}}
	assert.NoError(t, busy([]verdict{{old: record, new: same}}))
	assert.ErrorIs(t, busy([]verdict{{old: record, new: same}, {old: record, new: slower}}), errCannotTell)
}

// The slowdown must find its place in the source as it is.
func TestPlant(t *testing.T) {
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	p := proof{repo: repository(root), tmp: t.TempDir()}
	src, err := p.plant(source{dir: root}, 7)
	require.NoError(t, err)
	require.NoError(t, p.repo.build(t.Context(), src, filepath.Join(p.tmp, "bench.test")))

	_, err = p.plant(source{dir: p.tmp}, 7)
	assert.Error(t, err)
}

func TestReadCounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "strace")
	require.NoError(t, os.WriteFile(file, []byte("    calls syscall\n--------- ------\n    10000 openat\n        3 close\n--------- ------\n    10003 total\n"), 0o644))
	counts, err := readCounts(file)
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{"openat": 10000, "close": 3}, counts)
}
