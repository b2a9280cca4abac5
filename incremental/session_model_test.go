package incremental_test

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestSessionIsItsModel lets small trees change at random, with runs of a session in between over what has changed. What the runs have
// yielded, taken together, must be what a full run of a fresh process gives, and each kind, call of fn, deletion and count must be
// what the model says. Sessions end at random: the next one must find what they saved, or nothing if there is no cache file.
func TestSessionIsItsModel(t *testing.T) {
	t.Parallel()
	count := testtree.Rounds(t, "FILEPROC_HISTORIES", 40)
	for i := range count {
		seed := uint64(i)
		inVirtualTime(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			m := &sessionModel{Rand: r, known: map[string]string{}, dirty: map[string]bool{}, failing: map[string]bool{}, told: map[string]bool{}}
			opts := choose(r, fileproc.Options{}, fileproc.Options{MaxDepth: 3}, fileproc.Options{IgnoreFiles: []string{"ignore"}}, fileproc.Options{SkipMarked: []string{"ignore"}})
			if r.IntN(2) == 0 {
				m.mem = newMemory(t, opts)
				m.live = m.mem.live
				m.opts.FS, m.mayFail = shutFS{m.mem.failingFS}, r.IntN(2) == 0
				m.open()
			} else {
				m.live = newLive(t, opts)
			}
			if r.IntN(3) == 0 {
				m.inc.File = ""
				m.open()
			}
			for range 12 {
				m.step(seed)
			}
		})
	}
}

type sessionModel struct {
	*rand.Rand
	*live
	mem     *memory // nil if the tree is on a disk
	mayFail bool    // to open something
	full    bool    // the session has had a run over all files

	known   map[string]string // what the session has yielded, "!" for a failure of fn
	failing map[string]bool   // what cannot be opened
	dirty   map[string]bool   // what has changed since the last run
	told    map[string]bool   // what was deleted, and has not been back
	log     []string
}

// A shutFS fails for all paths below a directory that cannot be opened.
type shutFS struct{ failingFS }

func (f shutFS) shut(name string) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if err := f.fails[dir]; err != nil {
			return &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
	return nil
}

func (f shutFS) Open(name string) (fs.File, error) {
	if err := f.shut(name); err != nil {
		return nil, err
	}
	return f.failingFS.Open(name)
}

func (f shutFS) Lstat(name string) (fs.FileInfo, error) {
	if err := f.shut(name); err != nil {
		return nil, err
	}
	return f.failingFS.Lstat(name)
}

// change makes one random change.
func (m *sessionModel) change() {
	dir := choose(m.Rand, "", "d", "d/e", "d/e/f", "g")
	rel := path.Join(dir, choose(m.Rand, "a", "b", "c", "ignore"))
	text := choose(m.Rand, "1", "2", "22", "b", "a", "x!", "y?")
	what := choose(m.Rand, "write", "write", "write", "old", "remove", "remove all", "directory", "fail")
	m.log = append(m.log, fmt.Sprint(what, " ", rel, " ", text))
	switch what {
	case "write", "old":
		for p := rel; p != "."; p = path.Dir(p) { // no file in the place of a directory
			if m.isFile(p) && p != rel {
				m.remove(p)
			}
		}
		m.remove(rel)
		m.writeAny(rel, text)
		if what == "old" && m.mem == nil {
			long := time.Now().Add(-time.Hour - time.Duration(m.IntN(1e9)))
			require.NoError(m, os.Chtimes(m.path(rel), long, long))
		}
	case "remove":
		m.remove(rel)
	case "remove all":
		m.remove(path.Dir(rel))
	case "directory":
		m.remove(rel)
		m.writeAny(rel+"/in", text)
	case "fail":
		if m.mayFail {
			if p := choose(m.Rand, rel, dir); p != "" && m.mem.fails[p] != nil {
				delete(m.mem.fails, p)
				m.dirty[p] = true
			} else if p != "" {
				m.mem.fails[p] = syscall.EIO
				m.dirty[p] = true
			}
		}
		return
	}
	m.dirty[rel] = true
}

func (m *sessionModel) writeAny(rel, text string) {
	if m.mem != nil {
		m.mem.write(rel, text)
	} else {
		m.write(rel, text)
	}
	m.dirty[rel] = true
	delete(m.told, rel)
}

func (m *sessionModel) isFile(rel string) bool {
	if m.mem != nil {
		return m.mem.MapFS[rel] != nil
	}
	info, err := os.Lstat(m.path(rel))
	return err == nil && info.Mode().IsRegular()
}

// remove removes rel with what is below.
func (m *sessionModel) remove(rel string) {
	if rel == "." {
		return
	}
	m.dirty[rel] = true
	if m.mem == nil {
		require.NoError(m, os.RemoveAll(m.path(rel)))
		return
	}
	maps.DeleteFunc(m.mem.MapFS, func(name string, _ *fstest.MapFile) bool { return name == rel || strings.HasPrefix(name, rel+"/") })
}

// fullRun returns what a run of a fresh process gives: results, "!" for failures of fn, and what cannot be opened.
func (m *sessionModel) fullRun() (results map[string]string, failing map[string]bool) {
	results, failing = map[string]string{}, map[string]bool{}
	opts := m.opts
	opts.Report = nil
	for f, err := range fileproc.Stream(m.Context(), m.root, opts, func(f *fileproc.File) ([2]string, error) {
		v, err := m.result(f)
		if err != nil && err != fileproc.ErrSkip {
			v, err = "!", nil
		}
		return [2]string{f.Rel(), v}, err
	}) {
		if err != nil {
			var p *fs.PathError
			require.ErrorAs(m, err, &p)
			failing[strings.TrimPrefix(p.Path, "./")] = true
		} else {
			results[f[0]] = f[1]
		}
	}
	return results, failing
}

// step makes changes, lets the session run over them, and compares.
func (m *sessionModel) step(seed uint64) {
	for range 1 + m.IntN(4) {
		m.change()
	}
	time.Sleep(choose(m.Rand, 1, incremental.Settled/2, incremental.Settled, time.Hour))
	names := slices.Sorted(maps.Keys(m.dirty))
	fresh := m.IntN(4) == 0
	if fresh { // another process goes on
		m.log = append(m.log, "close")
		require.NoError(m, m.s.Close(m.Context()))
		m.open()
		names = nil
	} else if m.IntN(4) == 0 {
		names = nil
	}
	where := fmt.Sprintf("seed %d: %q: run %q, fresh %v, known %q, failing %v, %q %q %d", seed, m.log, names, fresh, m.known, m.failing, m.opts.IgnoreFiles, m.opts.SkipMarked, m.opts.MaxDepth)
	before := maps.Clone(m.known)
	m.apply(names, fresh, where)
	full, failing := m.fullRun()
	maps.DeleteFunc(m.failing, func(rel string, _ bool) bool { return !failing[rel] })
	for rel := range failing {
		m.failing[rel] = true
	}
	have := maps.Clone(m.known)
	below := func(rel string) bool { // a directory that cannot be listed
		for rel != "." {
			if rel = path.Dir(rel); failing[rel] {
				return true
			}
		}
		return false
	}
	maps.DeleteFunc(have, func(rel, _ string) bool { return below(rel) || failing[rel] })
	require.Equal(m, full, have, where)
	for rel, v := range m.known {
		require.True(m, !below(rel) || before[rel] == v || fresh || names != nil, "%s: %q counts as it was", where, rel)
	}
	failed := maps.Collect(m.s.Failed())
	maps.DeleteFunc(failed, func(rel string, _ *fileproc.Failure) bool { return below(rel) })
	require.ElementsMatch(m, slices.Collect(maps.Keys(failing)), slices.Collect(maps.Keys(failed)), where)
	for rel, due := range m.s.Unsettled() {
		require.True(m, m.mem == nil && (due.After(time.Now()) || names != nil), "%s: %q has settled, or the content decides", where, rel)
	}
	clear(m.dirty)
	if m.IntN(3) == 0 {
		m.log = append(m.log, "save")
		require.NoError(m, m.s.Save(m.Context()))
		for rel, v := range full {
			_, unsettled := maps.Collect(m.s.Unsettled())[rel]
			entry, ok := incremental.Kept(m.root, m.inc, m.opts)[rel]
			require.Equal(m, m.inc.File != "", ok, "%s: %q", where, rel)
			require.True(m, m.inc.File == "" || unsettled || v == "!" || entry != incremental.Noted, "%s: %q: %s", where, rel, entry)
		}
		for rel := range incremental.Kept(m.root, m.inc, m.opts) {
			require.False(m, m.told[rel], "%s: %q was deleted", where, rel)
		}
	}
	if m.mem == nil && m.IntN(3) == 0 { // all may settle, and fn is called for none
		m.settle()
		due := slices.Collect(maps.Keys(maps.Collect(m.s.Unsettled())))
		if len(due) > 0 {
			for _, res := range m.run(due...) {
				require.True(m, strings.HasSuffix(res, " unchanged"), "%s: then %q: %s", where, due, res)
			}
			require.Empty(m, m.calls, "%s: then %q", where, due)
			require.Empty(m, maps.Collect(m.s.Unsettled()), where)
		}
	}
}

// apply lets the session run, notes what it yields, and checks the kinds. A fresh session knows what the cache file has, and its first
// run over all files yields all files.
func (m *sessionModel) apply(names []string, fresh bool, where string) {
	if fresh {
		m.full = false
		clear(m.known)
	}
	inCache := incremental.Kept(m.root, m.inc, m.opts)
	was := maps.Clone(m.known)
	var deleted []string
	for res, err := range m.s.Run(m.Context(), names) {
		was, isKnown := was[res.Rel]
		if fresh {
			_, isKnown = inCache[res.Rel]
		}
		switch {
		case err != nil && res.Rel == "": // of an ignore file
		case err != nil && m.fails(res.Rel):
			if isKnown && !m.isDirFailing(res.Rel) {
				m.known[res.Rel] = "!" // there is a failure in the place of the result
			}
		case err != nil:
			m.known[res.Rel] = "!"
		case res.Kind == incremental.Deleted:
			_, isCached := inCache[res.Rel] // of which the first run over all files yields what is gone
			require.True(m, isKnown || m.failing[res.Rel] || isCached, "%s: %q deleted", where, res.Rel)
			delete(m.known, res.Rel)
			deleted = append(deleted, res.Rel)
			m.told[res.Rel] = !m.isFile(res.Rel)
			continue
		case res.Kind == incremental.Unchanged:
			require.True(m, fresh && isKnown || was == res.Value, "%s: %q was %q, is %q, unchanged", where, res.Rel, was, res.Value)
			m.known[res.Rel] = res.Value
		default:
			_, isCached := inCache[res.Rel] // of which a session asks until its first run over all files
			require.True(m, isKnown == (res.Kind == incremental.Changed) || m.mayFail || isCached && !m.full, "%s: %q was %q, is %v", where, res.Rel, was, res.Kind)
			m.known[res.Rel] = res.Value
		}
		require.Empty(m, deleted, "%s: deletions come last", where)
	}
	m.full = m.full || names == nil
	require.True(m, slices.IsSortedFunc(deleted, fileproc.ComparePaths), where)
	require.Len(m, slices.Compact(slices.Clone(deleted)), len(deleted), where)
	m.checkCounts()
}

func (m *sessionModel) fails(rel string) bool { return m.mem != nil && m.mem.fails[rel] != nil }

func (m *sessionModel) isDirFailing(rel string) bool {
	info, err := fs.Stat(m.mem.MapFS, rel)
	return err == nil && info.IsDir()
}
