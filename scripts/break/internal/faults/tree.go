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
	if rel == "c/to-file" {
		rel = "a/three"
	}
	switch path.Base(rel) {
	case "large":
		return bytes.Repeat([]byte("0123456789abcdef\n"), largeSize/17+1)[:largeSize]
	case "middle":
		return bytes.Repeat([]byte("fileproc "), 8000)
	case ".ignore":
		return []byte("ignored*\n")
	case "CACHEDIR.TAG":
		return nil
	}
	return testtree.BytesOf(rel)
}

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
	add := func(dir string, names ...string) {
		for _, n := range names {
			all[path.Join(dir, n)] = true
		}
	}
	switch name {
	case "small":
		add("", "large", "middle", "z")
		for _, dir := range []string{"a", "a/b", "a/b/c", "a/b/c/d", "e", "f/g", "h"} {
			for i := range 5 {
				add(dir, fmt.Sprint("file", i))
			}
		}
		for i := range 30 {
			add("h", fmt.Sprint("more", i))
		}
	case "many":
		for i := range 1400 {
			add("", fmt.Sprintf("file%04d", i))
		}
		for i := range 400 {
			add("sub", fmt.Sprintf("file%04d", i))
		}
	case "links":
		add("", "one", "two", ".ignore", "ignored1")
		add("a", "one", "ignored2", "three")
		add("a/b", "two", ".ignore", "ignored3")
		add("c", "one", "to-file") // a link to a/three
		add("marked", "one", "CACHEDIR.TAG")
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
		if path.Base(rel) == "to-file" {
			continue
		}
		if err := os.WriteFile(at, contentOf(rel), 0o644); err != nil {
			return err
		}
	}
	if name != "links" {
		return os.MkdirAll(filepath.Join(root, "empty"), 0o755)
	}
	for link, target := range map[string]string{"c/to-file": "../a/three", "c/to-dir": "../a/b", "c/up": "..", "dangling": "nothing"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			return err
		}
	}
	return nil
}
