//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package faults

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/fileproc/fileproc/internal/testtree"
)

// largeSize is the size of the largest file. The package takes a mapping of one byte more for it, a length for which nobody
// else asks.
const largeSize = 1_500_001

// contentOf returns the content of a file, which its path determines.
func contentOf(rel string) []byte {
	switch path.Base(rel) {
	case "large":
		return bytes.Repeat([]byte("0123456789abcdef\n"), largeSize/17+1)[:largeSize]
	case "middle":
		return bytes.Repeat([]byte("fileproc "), 8000)
	case ".ignore":
		return []byte("ignored*\n")
	case "CACHEDIR.TAG":
		return nil
	case "to-file":
		rel = "a/three"
	}
	return testtree.BytesOf(rel)
}

// links are those of the tree links, with their targets.
var links = map[string]string{"c/to-file": "../a/three", "c/to-dir": "../a/b", "c/up": "..", "dangling": "nothing"}

// canonical returns the path of a file of the tree links without its links to directories. Which of two paths a run takes depends
// on what failed.
func canonical(rel string) string {
	if below, ok := strings.CutPrefix(rel, "c/to-dir/"); ok {
		return "a/b/" + below
	}
	return strings.TrimPrefix(rel, "c/up/")
}

// treeAll returns the files of a tree.
func treeAll(name string) map[string]bool {
	all := map[string]bool{}
	add := func(n int, stem string) {
		for i := range n {
			all[fmt.Sprint(stem, i)] = true
		}
	}
	names := "large middle z"
	switch name {
	case "small":
		for _, dir := range strings.Fields("a a/b a/b/c a/b/c/d e f/g h") {
			add(5, dir+"/file")
		}
		add(30, "h/more")
	case "many":
		names = ""
		add(1400, "file")
		add(400, "sub/file")
	case "links":
		names = `one two .ignore ignored1 a/one a/ignored2 a/three a/b/two a/b/.ignore a/b/ignored3 c/one c/to-file
			marked/one marked/CACHEDIR.TAG`
	}
	for _, rel := range strings.Fields(names) {
		all[rel] = true
	}
	return all
}

// treeOf returns those files that a run delivers.
func treeOf(name string) map[string]bool {
	want := treeAll(name)
	maps.DeleteFunc(want, func(rel string, _ bool) bool {
		return strings.HasPrefix(path.Base(rel), "ignored") || strings.HasPrefix(rel, "marked/")
	})
	return want
}

// plant writes the tree below root.
func plant(name, root string) error {
	for rel := range treeAll(name) {
		at := filepath.Join(root, rel)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if links[rel] == "" {
			if err := os.WriteFile(at, contentOf(rel), 0o644); err != nil {
				return err
			}
		}
	}
	if name != "links" {
		return os.Mkdir(filepath.Join(root, "empty"), 0o755)
	}
	for link, target := range links {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			return err
		}
	}
	return nil
}
