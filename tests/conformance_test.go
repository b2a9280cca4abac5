package fileproc_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// bufferSizes are the sizes in bytes at which some layer, ours or the kernel's, ends one buffer and begins another.
var bufferSizes = []int{512, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 1 << 20}

// A tree is one case of the conformance suite.
type tree struct {
	name string
	make func(t *testing.T, dir string) bool
	// deep means that paths are longer than the system accepts.
	deep bool
	// big means that one run with each entry point and each number of workers is enough.
	big bool
}

func specs(s ...string) func(*testing.T, string) bool {
	return func(t *testing.T, dir string) bool { return testtree.Make(t, dir, s...) }
}

func numbered(n int) tree {
	return tree{name: fmt.Sprintf("%d entries", n), make: specs(testtree.Numbered("f", n)...), big: n > 200 || slow && n > 2}
}

// trees gives the suite. Small means that its largest trees are smaller, but take several lists, and more directories and
// levels than may be open at once.
func trees(small bool) []tree {
	many, dirs, levels := 5000, 3000, 100
	if small {
		many, dirs, levels = 3000, 500, 40
	}
	switch {
	case slow:
		many, dirs = 200, 50
	case testing.Short():
		many, dirs = 500, 300
	}
	wide := make([]string, dirs)
	for i := range wide {
		wide[i] = fmt.Sprintf("d%04d/f.md=%d", i, i)
	}
	var sizes []string
	for _, size := range bufferSizes {
		for _, n := range []int{size - 1, size, size + 1} {
			sizes = append(sizes, fmt.Sprintf("f%d=%s", n, testtree.Content(n)))
		}
	}
	all := []tree{
		{name: "empty", make: specs()},
		numbered(1),
		numbered(2),
		numbered(127),
		numbered(128),
		numbered(129),
		numbered(many),
		{name: fmt.Sprintf("%d directories", dirs), make: specs(wide...), big: true},
		{
			name: fmt.Sprintf("%d levels of 250 bytes", levels), deep: true,
			make: func(t *testing.T, dir string) bool {
				return testtree.Deep(t, dir, levels, strings.Repeat("n", 250), "f.md=deep", ".hidden=too")
			},
		},
		{name: "buffer sizes", make: specs(sizes...)},
		{name: "empty files", make: specs("a.md", "d/b.md", "d/c", "e.md=not empty")},
		{name: "empty directories", make: specs("a/", "b/c/d/", ".h/", "f.md=x")},
		{name: "nested", make: specs("a.md=1", "d/a.md=2", "d/d/a.md=3", "d/d/d/a.md=4", "d-d/a.md=5", "d.md/a.md=6", "e/f/g/h=7")},
		{name: "hidden", make: specs(".a.md=1", ".d/b.md=2", "d/.c=3", "d/.e/.f=4", "..g=5", "...=6", "h.md=7")},
		{name: "suffixes", make: specs("a.md=1", "b.MD=2", "c.mdx=3", ".md=4", "md=5", "d.md/e=6", "d.md/f.md=7")},
		{name: "not UTF-8", make: specs("\xff.md=1", "a\xc3=2", "d\xfe/\x80.md=3", "é.md=4")},
		{name: "newlines", make: specs("a\nb.md=1", "\n=2", "d\n/\n\n.md=3")},
		{name: "control characters", make: specs("\x01=1", "a\tb=2", "c\rd=3", "\x1b[31m.md=4", "\x7f=5")},
		{name: "255 bytes", make: specs(strings.Repeat("a", 255)+"=1", strings.Repeat("b", 252)+".md=2", strings.Repeat("d", 255)+"/"+strings.Repeat("e", 255)+"=3")},
		{name: "backslashes", make: specs(`a\b.md=1`, `\=2`, `d\d/e\=3`, `..\up=4`)},
		{name: "spaces and dots", make: specs(" =1", "a .md=2", "b.=3", "....md=4", "- -x=5", "* ?=6")},
		{name: "FIFOs", make: specs("a.md=1", "p|", "q.md|", "d/p|")},
		{name: "sockets", make: specs("a.md=1", "s@", "d/s.md@")},
		{name: "links", make: specs("a.md=1", "d/b.md=2",
			"file.md -> a.md", "directory -> d", "self -> self", "loop -> .", "d/up -> ..", "dangling.md -> nowhere", "d/.hidden -> b.md", "out -> ../..")},
	}
	return all
}

// optionsOf returns the options that every small tree is run with, under every number of workers.
func optionsOf(tr tree) []fileproc.Options {
	switch {
	case tr.big:
		return []fileproc.Options{{}}
	case tr.deep: // slow through an fs.FS, which opens every level again for each entry
		return []fileproc.Options{{}, {SkipHidden: true, Stat: true, MaxDepth: 30}}
	}
	return []fileproc.Options{
		{},
		{Stat: true},
		{ReadSize: 1},
		{ReadSize: 4096},
		{ReadSize: fileproc.NoRead},
		{ReadSize: fileproc.NoRead, Stat: true},
		{Suffixes: []string{".md"}},
		{SkipHidden: true},
		{Suffixes: []string{".md", "e"}, SkipHidden: true, MaxDepth: 2},
		{MaxDepth: 1},
		{MaxDepth: 3, ReadSize: 2},
	}
}

// everyPlace gives the ways to reach dir: through the system, through the fs.FS of the system, as a part of an fs.FS, and
// as an fs.FS in memory.
func everyPlace(t *testing.T, tr tree, dir string, want snapshot) []place {
	if tr.deep {
		root, err := os.OpenRoot(dir)
		require.NoError(t, err)
		t.Cleanup(func() { root.Close() })
		return []place{{"os", dir, nil}, {"fs", ".", root.FS()}}
	}
	for rel := range want.types {
		if !utf8.ValidString(rel) {
			return []place{{"os", dir, nil}} // no fs.ValidPath: see TestFSWithNamesThatAreNotUTF8
		}
	}
	all := places(dir)
	if tr.big {
		return all
	}
	all = append(all, place{"part of fs", filepath.Base(dir), os.DirFS(filepath.Dir(dir))})
	memory := fstest.MapFS{}
	for rel, typ := range want.types {
		memory[rel] = &fstest.MapFile{Mode: typ, Data: want.files[rel]}
		if typ&fs.ModeSymlink != 0 {
			memory[rel].Data = []byte("nowhere")
		}
	}
	return append(all, place{"memory", ".", memory})
}

func TestInvariant9BackendsAgree(t *testing.T) { backendsAgree(t, trees(raceDetector)) }

// smallBackendsAgree is the suite for the modes: large trees in the usual one have no more to show.
func smallBackendsAgree(t *testing.T) { backendsAgree(t, trees(true)) }

func backendsAgree(t *testing.T, trees []tree) {
	for _, tr := range trees {
		t.Run(tr.name, func(t *testing.T) {
			watchdog(t)
			dir := t.TempDir()
			if !tr.make(t, dir) {
				return // testtree has logged which names this platform does not allow
			}
			tree := take(t, dir)
			for _, p := range everyPlace(t, tr, dir, tree) {
				for _, opts := range optionsOf(tr) {
					want := expect(tree, opts, nil)
					for _, opts.Workers = range []int{1, 4, 0} {
						for entry, verify := range verifiers {
							err := verify(t.Context(), p, opts, want)
							require.NoError(t, err, "%s of %s with %+v", entry, p.name, opts)
						}
					}
				}
			}
			if !tr.deep {
				compareReadDir(t, dir, tree)
			}
		})
	}
}

func TestBackend(t *testing.T) {
	require.Contains(t, []string{"linux", "unix", "generic"}, fileproc.Backend())
}

// TestPrefixes reads files of every size around a buffer's with every limit around it.
func TestPrefixes(t *testing.T) {
	dir := t.TempDir()
	var list []string
	for _, size := range append([]int{0, 1, 2, 100}, bufferSizes...) {
		for _, n := range []int{size - 1, size, size + 1} {
			if n >= 0 {
				list = append(list, fmt.Sprintf("f%d=%s", n, testtree.Content(n)))
			}
		}
	}
	require.True(t, testtree.Make(t, dir, list...))
	tree := take(t, dir)
	limits := []int{1, 2, 3, 100}
	for _, size := range bufferSizes {
		limits = append(limits, size-1, size, size+1)
	}
	for i, p := range places(dir) {
		for j, limit := range limits {
			for k, stat := range []bool{false, true} {
				if !testtree.Takes(i + j + 2*k) {
					continue
				}
				opts := fileproc.Options{ReadSize: limit, Stat: stat}
				require.NoError(t, verifiers["Process"](t.Context(), p, opts, expect(tree, opts, nil)), "%s, ReadSize %d", p.name, limit)
			}
		}
	}
}

// The suite also holds if all calls count as slow, so that there are as many workers as possible, and files are
// prefetched.
func TestConformanceWithManyInFlight(t *testing.T) {
	if slow {
		t.Skip("takes minutes here; TestFaultsWithManyInFlight does not")
	}
	testtree.Set(t, &knobs.SlowCall, -time.Hour)
	for name, test := range map[string]func(*testing.T){
		"conformance": smallBackendsAgree,
		"ends":        TestInvariant6NothingIsLeftAfterAnyEnd,
		"bytes":       TestInvariant7NoFileSeesAnothersBytes,
		"links":       TestSymlinks,
		"worker":      TestWorker,
		"Select":      TestSelect,
		"Stat":        TestStat,
	} {
		t.Run(name, test)
	}
}
