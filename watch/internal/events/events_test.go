package events

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// open returns a source for a new directory in which each directory of dirs is made and watched.
func open(t *testing.T, dirs ...string) (*Source, string) {
	t.Helper()
	root := t.TempDir()
	s, err := Open(root)
	if errors.Is(err, ErrUnsupported) {
		t.Skip("this system or its temporary directory has no events: ", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Add("."))
	for _, dir := range dirs {
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
		require.NoError(t, s.Add(dir))
	}
	require.NoError(t, s.Sync(t.Context()))
	s.Take()
	return s, root
}

// take returns the hints about all that has happened, as paths, with a slash if all below is meant.
func take(t *testing.T, s *Source) []string {
	t.Helper()
	require.NoError(t, s.Sync(t.Context()))
	var got []string
	for _, h := range s.Take() {
		if h.Tree {
			h.Rel += "/"
		}
		got = append(got, h.Rel)
	}
	slices.Sort(got)
	return got
}

// names returns the paths of hints without the mark of Tree, in which systems differ for files.
func names(hints []string) []string {
	for i := range hints {
		hints[i] = strings.TrimSuffix(hints[i], "/")
	}
	return hints
}

// TestHints: each operation on an entry gives a hint about it, and Sync waits for it.
func TestHints(t *testing.T) {
	s, root := open(t, "d", "d/e")
	file, other := filepath.Join(root, "d", "f"), filepath.Join(root, "d", "e", "g")
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"create", func() error { return os.WriteFile(file, nil, 0o644) }, []string{"d/f"}},
		{"write", func() error { return os.WriteFile(file, []byte("1"), 0o644) }, []string{"d/f"}},
		{"truncate", func() error { return os.Truncate(file, 0) }, []string{"d/f"}},
		{"rename", func() error { return os.Rename(file, other) }, []string{"d/e/g", "d/f"}},
		{"remove", func() error { return os.Remove(other) }, []string{"d/e/g"}},
		{"nothing", func() error { return nil }, nil},
	} {
		require.NoError(t, step.do(), step.name)
		got := names(take(t, s))
		got = slices.DeleteFunc(got, func(rel string) bool { return rel == "d" || rel == "d/e" }) // Windows also tells of their times
		require.Equal(t, step.want, got, step.name)
	}
}

// TestDirectoriesComeWithTheirContents: the hint about a directory that comes or goes covers all that is in it.
func TestDirectoriesComeWithTheirContents(t *testing.T) {
	s, root := open(t, "d", "d/e")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "a", "b", "c"), 0o755))
	require.Contains(t, take(t, s), "a/")
	require.NoError(t, os.Rename(filepath.Join(root, "d", "e"), filepath.Join(root, "x")))
	got := take(t, s)
	require.Contains(t, got, "d/e/")
	require.Contains(t, got, "x/")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "d")))
	require.Contains(t, take(t, s), "d/")
}

// TestPending: maxHints hints wait for Take, which gives each once. Ready has a value once there are some, however many are added.
func TestPending(t *testing.T) {
	s := &Source{pending: newPending()}
	isReady := func() bool {
		select {
		case <-s.Ready():
			return true
		default:
			return false
		}
	}
	require.False(t, isReady())
	for i := range maxHints {
		s.pending.add(strconv.Itoa(i), false)
	}
	require.True(t, isReady())
	require.False(t, isReady())
	require.Len(t, s.Take(), maxHints)
	require.Empty(t, s.Take())
	s.pending.add("d", false)
	require.True(t, isReady())
	for range 2 {
		s.pending.add("d", true)
		s.pending.add("d", false)
	}
	require.Equal(t, []Hint{{"d", true}}, s.Take())
}

// TestManyHintsAreOne: at most maxHints hints wait for Take. One about root replaces more.
func TestManyHintsAreOne(t *testing.T) {
	p := newPending()
	for i := range maxHints + 1 {
		p.add(strconv.Itoa(i), false)
	}
	require.Equal(t, map[string]bool{".": true}, p.hints)
	p.add("d", false)
	p.add("d/e", true)
	p.add("d/e/f", true)
	p.add("d/e", false) // Tree stays set
	require.True(t, isBelowTree(p.hints, "d/e/f"))
	require.False(t, isBelowTree(map[string]bool{"d": false, "e": true}, "d/e/f"))
	require.False(t, isBelowTree(map[string]bool{"d/e": true}, "d/e"))
}
