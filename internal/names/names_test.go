package names

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestBelow(t *testing.T) {
	dir, err := filepath.Abs(".")
	require.NoError(t, err)
	abs := filepath.ToSlash(dir)
	for root, want := range map[string]map[string]string{
		".": {
			"a": "a", "./a": "a", "././a/": "a/", "./d/.": "d/.", "": "", ".": ".", "./": "./", "./..": "..", "../a": "../a", ".a": ".a", ".//a": "/a", "d/./a": "d/./a",
			abs + "/a": "a", abs + "/d/": "d/", abs + "/./a": "a", abs: abs, abs + "/": abs + "/", abs + "x/a": abs + "x/a", "/elsewhere": "/elsewhere",
		},
		dir:       {abs + "/a": "a", "./a": "a"},
		dir + "/": {abs + "/a": "a"},
		"d":       {abs + "/d/a": "a", abs + "/a": abs + "/a", abs + "/d": abs + "/d"},
		"d/../d":  {abs + "/d/a": abs + "/d/a", "./a": "a"}, // d may be a link
		"/":       {"/a/b": "a/b", "/": "/"},
	} {
		if root == "/" && filepath.VolumeName(dir) != "" {
			continue
		}
		below := Below(root, false)
		for name, rel := range want {
			require.Equal(t, rel, below(name), "%q, %q", root, name)
		}
	}
	inFS := Below(".", true)
	require.Equal(t, "a", inFS("./a"))
	require.Equal(t, abs+"/a", inFS(abs+"/a"))
}

func TestHasDotDot(t *testing.T) {
	for path, has := range map[string]bool{
		"": false, ".": false, "..": true, "a/..": true, "a/../b": true, "../a": true, "/..": true, "a..": false, "..a": false, "a/...": false, "a/b..c/d": false,
		filepath.FromSlash("a/../b"): true,
	} {
		require.Equal(t, has, HasDotDot(path), "%q", path)
	}
}

func TestArenaKeepsNames(t *testing.T) {
	var a Arena
	type kept struct {
		name Name
		want string
	}
	var all []kept
	buf := make([]byte, 0, 100<<10) // one for all names, as a backend has it
	for _, size := range []int{0, 1, 255, 254, minBlock - 2, minBlock - 1, minBlock, minBlock + 1, maxBlock - 1, maxBlock, maxBlock + 1, 3} {
		for i := range 300 {
			if size > minBlock && i > 3 {
				break
			}
			buf = append(buf[:0], strings.Repeat(fmt.Sprintf("%d ", i), size)[:size]...)
			all = append(all, kept{a.Add(buf), string(buf)})
			clear(buf)
		}
	}
	for _, k := range all {
		require.Equal(t, k.want, k.name.String())
		require.Equal(t, k.want, string(k.name.Bytes()))
		require.Zero(t, unsafe.Slice((*byte)(k.name.Pointer()), len(k.want)+1)[len(k.want)], "the byte behind %.20q", k.want)
	}
}

// A small run takes little memory, and a large one few blocks.
func TestArenaBlocksGrow(t *testing.T) {
	var a Arena
	blocks, last := 0, (*byte)(nil)
	for i := range 100_000 {
		a.Add([]byte("a name of thirty-two bytes, or so"))
		if p := unsafe.SliceData(a.block); p != last {
			blocks, last = blocks+1, p
		}
		if i == 0 {
			require.LessOrEqual(t, cap(a.block), minBlock)
		}
		require.LessOrEqual(t, cap(a.block), maxBlock)
	}
	require.LessOrEqual(t, blocks, 100_000*34/maxBlock+12)

	a = Arena{}
	a.Add(bytes.Repeat([]byte("x"), minBlock-11))
	a.Add([]byte("ten bytes."))
	require.Len(t, a.block, 11, "where there is room for the name but not for the zero, a block is not copied but left")

	a = Arena{}
	a.Add(bytes.Repeat([]byte("x"), 2*maxBlock))
	require.LessOrEqual(t, cap(a.block), 2*maxBlock+1, "a name that is longer than a block takes what it needs")
}

func TestValid(t *testing.T) {
	for name, want := range map[string]bool{"": false, ".": false, "..": false, "...": true, ".a": true, "a/b": false, "/": false, "a": true} {
		require.Equal(t, want, Valid([]byte(name)), "%q", name)
	}
}
