package fileproc

import (
	"fmt"
	"testing"

	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/stretchr/testify/require"
)

func TestOneFilesystemOfADevice(t *testing.T) {
	tree := func() *object {
		mounted := folder("m", file("f", "f"), folder("n", file("g", "g")))
		mounted.device = 2
		return folder("", file("a", "a"), folder("d", file("b", "b"), mounted))
	}
	everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
		out := w.process(t.Context(), Options{Workers: workers, OneFilesystem: true}, nil)
		require.NoError(t, out.err)
		w.requireSound(t, out)
		require.Equal(t, map[string]string{"a": "a", "d/b": "b"}, out.got)
		require.Equal(t, map[SkipReason]int64{SkippedOtherFilesystem: 1}, out.report.Skipped)
		require.EqualValues(t, 2, out.report.Directories)
	})
}

// TestOneFilesystemOfAnUnknownDevice: a run whose root shows no device fails, since it could not tell what is mounted below.
func TestOneFilesystemOfAnUnknownDevice(t *testing.T) {
	w := &world{root: folder("", file("a", "a"))}
	w.root.statErr = errBroken
	out := w.process(t.Context(), Options{OneFilesystem: true}, nil)
	require.NoError(t, out.err)
	require.ErrorIs(t, out.failed[""], errBroken)
	require.Empty(t, out.got)
	w.requireSound(t, out)
}

// TestIgnoreCaseAllocatesNothing for each name, once the buffers have grown.
func TestIgnoreCaseAllocatesNothing(t *testing.T) {
	c := config{suffixes: []string{".MD"}, include: []string{"**/É*.md"}, exclude: []string{"**/old"}, ignoreCase: true}
	all := newFilter(&c)
	f := entryFilter{filter: &all, cfg: &c}
	dir := (&node{}).child(names.New("Dir"), 0)
	n := &dir
	keep, skip, old := []byte("éTÉ.Md"), []byte("a.md"), []byte("Old")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		oldDir, _ := f.dir(n, old)
		keptDir, _ := f.dir(n, keep)
		if f.file(n, keep, 0) != notSkipped || f.file(n, skip, 0) != SkippedPattern || oldDir != SkippedPattern || keptDir != notSkipped {
			panic("wrong reason")
		}
	}))
}

func TestShardsAreOfOneSize(t *testing.T) {
	const shards, paths = 8, 100_000
	var parts [shards]int
	for i := range paths {
		parts[names.ShardOf(fmt.Sprintf("d%03d/file%06d.md", i/100, i), shards)]++
	}
	for i, n := range parts {
		require.InEpsilon(t, paths/shards, n, 0.05, "part %d", i)
	}
}

// The names of ignore files have ranks only if the caller asks for that, and .gitignore is read above root without being named.
func TestRanksOfIgnoreFiles(t *testing.T) {
	c := config{ignoreNames: []string{".ignore", ".gitignore", ".rgignore"}}
	require.Empty(t, c.ignoredAbove())
	require.Zero(t, c.ignoreRank(".rgignore"))
	c.ignoreByName = true
	require.Equal(t, []string{".ignore", ".rgignore"}, c.ignoredAbove())
	require.Equal(t, 3, c.ignoreRank(".rgignore"))
	require.Equal(t, 0, c.ignoreRank(""), "less than each")
}

// Patterns of another place apply to paths relative to it.
func TestPatternsOfAnotherDirectory(t *testing.T) {
	for above, want := range map[string]map[string]string{"": {"x/b": ""}, "x/": {"b": "", "x/b": ""}} {
		w := &world{root: folder("", file("a", ""), file("b", ""), folder("x", file("a", ""), file("b", "")))}
		opts := Options{hooks: hooks{Ignore: []*gitignore.List{gitignore.Parse([]byte("a\n/b\n"))}, IgnoreAbove: func(string) string { return above }}}
		out := w.process(t.Context(), opts, nil)
		require.NoError(t, out.err)
		require.Equal(t, want, out.got, above)
		w.requireSound(t, out)
	}
}
