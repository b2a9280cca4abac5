package incremental

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestRulesNoteAllThatLeadsToAFile: of the path of a file, the rules have each name below root that its lookup meets, also those in the
// targets of links, and none outside root. They tell of the directories among them.
func TestRulesNoteAllThatLeadsToAFile(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), t.TempDir()
	require.True(t, testtree.Make(t, root, ".git/config=x", "d/e/f=x", "file=x"))
	require.True(t, testtree.Make(t, outside, "o=x"))
	for name, to := range map[string]string{"link": "d/./e//f", "d/up": "../file", "d/e/top": "../../../" + filepath.Base(root) + "/file", "in": filepath.Join(root, "d"),
		"out": filepath.Join(outside, "o"), "back": filepath.Join(outside, "in", "e"), "loop": "loop", "gone": "x/y", "up": "x/../link"} {
		testtree.Symlink(t, to, filepath.Join(root, name))
	}
	testtree.Symlink(t, filepath.Join(root, "d"), filepath.Join(outside, "in"))
	for i := range maxLinks + 1 {
		testtree.Symlink(t, fmt.Sprint("l", i), filepath.Join(root, fmt.Sprint("l", i+1)))
	}
	long := strings.Repeat("x", 300)
	for _, c := range []struct{ file, names, dirs string }{
		{".git/config", ".git .git/config", ".git"},
		{"d/e/f", "d d/e d/e/f", "d d/e"},
		{"d/x/y", "d d/x d/x/y", "d"},
		{"x/y/z", "x x/y x/y/z", ""},
		{"file/x", "file file/x", ""},
		{".", "", ""},
		{"../" + filepath.Base(outside) + "/o", "", ""},
		{"link", "d d/e d/e/f link", "d d/e"},
		{"d/up", "d d/up file", "d"},
		{"d/e/top", "d d/e d/e/top file", "d d/e"},
		{"in/e/f", "d d/e d/e/f in", "d d/e"},
		{"out", "out", ""},
		{"back/f", "back d d/e d/e/f", "d d/e"},
		{"gone", "gone x x/y", ""},
		{"up", "link up x", ""}, // the system would find no x
		{"loop/x", "loop", ""},
		{long + "/x", long + " " + long + "/x", long}, // which may be there by another path
	} {
		if c.dirs == long && runtime.GOOS == "windows" {
			continue
		}
		var dirs []string
		r := newRules(root, func(rel string) { dirs = append(dirs, rel) })
		r.note(filepath.Join(root, c.file))
		require.Equal(t, strings.Fields(c.names), append([]string{}, slices.Sorted(maps.Keys(r.names))...), c.file)
		require.Equal(t, strings.Fields(c.dirs), append([]string{}, dirs...), c.file)
		r = newRules(root, nil)
		r.note(filepath.Join(root, c.file))
		require.Equal(t, strings.Fields(c.names), append([]string{}, slices.Sorted(maps.Keys(r.names))...), c.file)
	}

	r := newRules(root, nil)
	r.note(filepath.Join(root, fmt.Sprint("l", maxLinks)))
	require.Contains(t, r.names, "l0", "the system follows as many links")
	r = newRules(root, nil)
	r.note(filepath.Join(root, fmt.Sprint("l", maxLinks+1)))
	require.NotContains(t, r.names, "l0", "it may be a loop")

	r = newRules(root, nil)
	r.root = filepath.Join(outside, "other") // another path of root that no link makes, as a mount does
	r.note(filepath.Join(root, ".git", "config"))
	require.Equal(t, map[string]bool{".git": true, ".git/config": true}, r.names)

	r = newRules(root, nil)
	r.is = nil // as if root's inode were another one at each look
	r.note(filepath.Join(root, ".git", "config"))
	require.Equal(t, map[string]bool{".git": true, ".git/config": true}, r.names)

	r = newRules(filepath.Join(root, "none"), nil)
	r.note(filepath.Join(root, "none", "x"))
	require.Empty(t, r.names, "there is no root")
}

// TestRulesSplitPaths: the names of a path are looked up from the directory of a link, or from the top of the file system.
func TestRulesSplitPaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	top := filepath.VolumeName(dir) + string(filepath.Separator)
	for path, want := range map[string]struct {
		from  string
		names string
	}{"": {dir, ""}, "a": {dir, "a"}, "./a//b/.": {dir, "a b"}, "../a": {dir, ".. a"}, "/": {top, ""}, "/a/./b": {top, "a b"}, "//a": {top, "a"}, "...": {dir, "..."}} {
		if strings.HasPrefix(path, "//") && runtime.GOOS == "windows" {
			continue
		}
		from, names := split(dir, path)
		require.Equal(t, want.from, from, path)
		require.Equal(t, strings.Fields(want.names), append([]string{}, names...), path)
	}
}

// TestRulesOfNoDirectory: a path relative to a directory that is gone leads to no file.
func TestRulesOfNoDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Chdir(dir)
	_ = os.Remove(dir)
	if _, err := os.Getwd(); err == nil {
		t.Skip("this system does not remove a directory that a process works in")
	}
	r := newRules(string(filepath.Separator), nil)
	r.note("x")
	require.Empty(t, r.names)
}

// TestFiltersIn: the patterns of an attributes file that name a conversion, or a macro that may name one.
func TestFiltersIn(t *testing.T) {
	t.Parallel()
	for attributes, want := range map[string]string{
		"":                             "",
		"* text=auto eol=lf\n":         "",
		"\ufeffa ident\nd/* -filter\n": "a d/a d/b",
		"# a ident\n*.c diff\n\ta  working-tree-encoding=UTF-16": "a d/a",
		"[attr]x filter=y\n":       "a b d/a d/b",
		"\"b\" filter=lfs -text\n": "a b d/a d/b",
		"filter text\nident\n":     "",
		"a filter\n!a filter=x\n":  "a d/a", // git takes no line with !
		"a\u00a0filter -text\n":    "",
		"a\tident\r\nB filter\n":   "a d/a",
	} {
		got := ""
		for _, dir := range []string{"", "d/"} {
			for _, name := range []string{"a", "b"} {
				if list := filtersIn(attributes, false); list != nil && list.Match(dir, name, false) == gitignore.Ignored {
					got += " " + dir + name
				}
			}
		}
		require.Equal(t, want, strings.TrimSpace(got), attributes)
	}
	require.Equal(t, gitignore.Ignored, filtersIn("B filter\n", true).Match("", "b", false))
}
