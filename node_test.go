package fileproc

import (
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/stretchr/testify/require"
)

// randomNodes returns the directories of a random tree, root first, and the path of each with a slash behind each name.
// Some list the targets of links.
func randomNodes(r *rand.Rand) (nodes []*node, paths []string) {
	nodes, paths = []*node{{tree: new(tree)}}, []string{""}
	for range 30 {
		i := r.IntN(len(nodes))
		if r.IntN(5) == 0 {
			links := nodes[i].by(new(linkSet))
			nodes, paths = append(nodes, &links), append(paths, paths[i])
			continue
		}
		name := []string{"a", "a-", "a.b", "b", "\xff", "\x01"}[r.IntN(6)]
		// A listing may give a name twice.
		sub := nodes[i].child(names.New(name), 0)
		nodes, paths = append(nodes, &sub), append(paths, paths[i]+name+"/")
	}
	return nodes, paths
}

func TestNodePaths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		nodes, paths := randomNodes(r)
		of := nodes[0].tree
		var buffer pathBuffer
		for range 100 {
			i := r.IntN(len(nodes))
			n, p := nodes[i], paths[i]
			require.Equal(t, len(p), n.pathLen())
			require.Equal(t, "x/"+p, string(n.appendPath([]byte("x/"))))
			require.Equal(t, p+"f", n.relPath("f"))
			of.paths = pathBase{root: "top", fsys: fstest.MapFS{}}
			require.Equal(t, path.Join("top", p, "f"), n.path("f"))
			require.Equal(t, path.Join("top", p), n.path(""))
			of.paths = pathBase{root: "../x/.."}
			require.Equal(t, "../x/../"+p+"f", strings.ReplaceAll(n.path("f"), `\`, "/"))
			require.Equal(t, p, buffer.dir(n))
			if r.IntN(2) == 0 {
				require.Equal(t, p+"long name", buffer.rel(n, []byte("long name")))
			}
		}
	}
}

func TestComparePaths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		nodes, paths := randomNodes(r)
		for range 100 {
			i, j := r.IntN(len(nodes)), r.IntN(len(nodes))
			name, other := []string{"a", "a-", "f"}[r.IntN(3)], []string{"a", "b", "f"}[r.IntN(3)]
			a, b := paths[i]+name, paths[j]+other
			want := slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
			require.Equal(t, want, comparePaths(nodes[i], name, nodes[j], other), "%q %q", a, b)
			require.Equal(t, want, ComparePaths(a, b), "%q %q", a, b)
			later := newTree(&config{}, "root", 1).root
			require.Equal(t, -1, comparePaths(nodes[i], name, &later, other))
			require.Equal(t, 1, comparePaths(&later, other, nodes[i], name))
		}
	}
}

// Memory grows with the depth and not with its square, however paths are built.
func TestInvariant5MemoryIsLinearInDepth(t *testing.T) {
	const levels, name = 1000, 250
	for what, opts := range map[string]Options{
		"Rel":     {},
		"Exclude": {Exclude: []string{"**/nothing"}},
		"Include": {Include: []string{"**/f", "**/g"}},
		"ignored": {IgnoreFiles: []string{".ignore"}},
		"Ordered": {Ordered: true},
	} {
		kids := []*object{file("f", "content"), file("g", "", opening(errBroken)), file(".ignore", "h\n")}
		for range levels {
			kids = []*object{folder(strings.Repeat("n", name), kids...)}
		}
		w := &world{root: folder("", append(kids, file(".ignore", "/x/y\n"))...)}
		opts.openRoot, opts.Workers = w.openRoot, 2 // each worker builds paths of its own
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rels, err := Process(t.Context(), "root", opts, func(f *File) (string, error) { return f.Rel(), nil })
		entries := 0
		for _, err := range Walk(t.Context(), "root", opts) {
			require.NoError(t, err)
			entries++
		}
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, errBroken, what)
		require.Greater(t, len(slices.MaxFunc(rels, func(a, b string) int { return len(a) - len(b) })), levels*name, what)
		require.Greater(t, entries, levels, what)
		// With a path in each node it would be some 125 MB.
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(40*levels*name), what)
	}
}

// TestTargetOnAShare: what a link leads to on another machine keeps the two separators before the machine's name.
func TestTargetOnAShare(t *testing.T) {
	if runtime.GOOS != "windows" {
		t.Skip("there are no paths of shares here")
	}
	linked := (&newTree(&config{followFiles: true}, `C:\root`, 0).root).child(names.New("l"), 0)
	way := &linkedDir{to: target{path: `\\host\share\d`, outside: true}}
	linked.way = way
	sub := linked.child(names.New("e"), 0)
	require.Equal(t, `\\host\share\d\e\f`, linkTarget(&sub, "f"))
	way.to = target{path: "d"}
	require.Equal(t, `C:\root\d\f`, linkTarget(&linked, "f"))
}

// The path of a file that is root itself is root as it was given, but for separators behind it.
func TestPathOfARootThatIsAFile(t *testing.T) {
	for root, want := range map[string]string{"f": "f", "d/f": "d/f", "d/f/": "d/f", "../f//": "../f", "/f": "/f", "/d//f": "/d//f"} {
		of := newTree(&config{}, root, 0)
		of.paths.setFile("f")
		require.Equal(t, want, of.root.path("f"), root)
	}
}
