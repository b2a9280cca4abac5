package watch

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/watch/internal/events"
	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
)

// TestHistories lets a tree change at random while a loop follows it. At rest, the loop has the results of a full run.
// FILEPROC_WATCHED is the number of rounds, of 10 to 100 changes each; FILEPROC_SEED repeats one history that has failed.
// FILEPROC_FEW_WATCHES tells the test that most directories are polled.
func TestHistories(t *testing.T) {
	rounds := testtree.Rounds(t, "FILEPROC_WATCHED", 60)
	seed, only := uint64(time.Now().UnixNano()), os.Getenv("FILEPROC_SEED")
	if only != "" {
		_, err := fmt.Sscan(only, &seed)
		require.NoError(t, err)
		rounds = min(rounds, roundsOfHistory)
	}
	total := 0
	for done := 0; done < rounds && !t.Failed(); done += roundsOfHistory {
		t.Run(fmt.Sprint("FILEPROC_SEED=", seed), func(t *testing.T) {
			total += runHistory(t, seed, min(roundsOfHistory, rounds-done))
		})
		seed++
	}
	t.Logf("%d rounds, %d changes of %d kinds", rounds, total, len(changes))
}

const roundsOfHistory = 20

var (
	historyDirs  = []string{"d", "d/e", "d/e/f", "g", "g/.h", "i", "i/j/k", ""}
	historyNames = []string{"a", "b", "c.txt", ".d", "odd \xff\n*[", "e", "f"}
)

type history struct {
	*rand.Rand
	dir, root string // root is behind a link, "now", that leads to a link, that leads to a directory
	serial    int
	held      []*os.File // directories that were removed or moved, and are still used
	rooted    bool       // root stays what it is
	links     bool       // hard links are made: only a look at all files finds each write by another name
	log       []string
}

func runHistory(t *testing.T, seed uint64, rounds int) (count int) {
	dir := t.TempDir()
	testtree.Removable(t, dir)
	h := newHistory(t, seed, dir)
	if h.IntN(2) == 0 {
		t.Chdir(dir)
		h.root = filepath.Join("now", "root")
	}
	for range 10 + h.IntN(30) {
		h.write(h.file())
	}
	opts := h.options(t)
	file := filepath.Join(dir, "cache")
	kind := h.IntN(6)
	if kind == 0 { // the cache file is in the tree
		file = h.path("own.cache")
	}
	h.links = kind == 1 || opts.Symlinks != fileproc.SymlinksSkip
	f := h.start(t, kind, file, opts)
	defer func() {
		if t.Failed() {
			t.Logf("kind %d, %+v\n%s", kind, opts, strings.Join(h.log, "\n"))
		}
	}()
	for range rounds {
		h.log = h.log[:0]
		if h.IntN(15) == 0 { // what changes meanwhile comes with the first burst
			f.stop()
			count += h.change(1 + h.IntN(30))
			f = h.startAgain(t, kind, file, opts)
		}
		if l := flock.New(file + ".lock"); kind != 0 && h.IntN(15) == 0 { // another process may save for long: no change waits for that
			_, _ = l.TryLock()
			defer l.Unlock()
		}
		if h.IntN(2) == 0 { // so that the look at what has settled does not find what a burst has missed
			time.Sleep(2 * fsinfo.Settled)
			f.sync()
			count += h.change(1 + h.IntN(3))
			os.MkdirAll(h.root, 0o755)
			f.sync()
			if h.compare(t, f, opts); t.Failed() {
				return count
			}
		}
		count += h.change(10 + h.IntN(90))
		os.MkdirAll(h.root, 0o755)
		f.sync()
		h.compare(t, f, opts)
		if t.Failed() {
			return count
		}
	}
	if kind == 1 || kind == 3 || os.Getenv("FILEPROC_FEW_WATCHES") != "" || opts.Symlinks != fileproc.SymlinksSkip || !hasEvents(h.root) {
		return count // after a look that took long, polling waits long
	}
	// Without Sync: still for the quiet time.
	count += h.change(50)
	os.MkdirAll(h.root, 0o755)
	h.compareAtRest(t, f, opts)
	return count
}

// options returns random options, and writes the files that they need.
func (h *history) options(t *testing.T) fileproc.Options {
	opts := fileproc.Options{Workers: 1 + h.IntN(3), Ordered: h.IntN(3) == 0, DisableURing: h.IntN(2) == 0}
	switch h.IntN(10) {
	case 0:
		opts.IgnoreFiles = []string{".ignore"}
	case 1:
		opts.SkipHidden, opts.MaxDepth = true, 3
	case 2:
		opts.Symlinks, opts.Ordered = fileproc.SymlinksFollow, false
	case 3:
		opts.Symlinks, opts.Exclude = fileproc.SymlinksFiles, []string{"d/e/f"}
	case 5:
		opts.SkipMarked, opts.SelectDir = []string{".nobackup"}, func(e fileproc.Entry) bool { return e.Name() != "i" }
	case 6:
		opts.GitIgnore = true
		require.NoError(t, os.WriteFile(h.path(".gitignore"), []byte("e/\n"), 0o644))
	case 7:
		opts.IgnoreFiles = []string{".ignore", ".far/rules"}
	case 8:
		opts.MaxFileSize = 1000 // larger files fail
	case 9:
		opts.ReadSize = 3
	case 4:
		opts.IgnoreFiles, opts.SkipMarked = []string{".ignore"}, []string{".nobackup"}
	}
	return opts
}

// start starts a loop. The kind says which events it gets.
func (h *history) start(t *testing.T, kind int, file string, opts fileproc.Options) *follower {
	return follow(t, h.root, file, opts, func(w *Watcher[string]) {
		w.Quiet, w.MaxWait, w.Poll = []time.Duration{-1, time.Millisecond, 20 * time.Millisecond}[h.IntN(3)], 50*time.Millisecond, 5*time.Millisecond
		switch kind {
		case 1:
			w.open = noEvents
		case 2: // as after an overflow
			alter(w, nil, func(hints []events.Hint) []events.Hint {
				if len(hints) > 3 {
					return []events.Hint{{Rel: ".", Tree: true}}
				}
				return hints
			})
		case 3:
			alter(w, func(rel string) error {
				if strings.HasPrefix(rel, "g") {
					return events.ErrLimit
				}
				return nil
			}, nil)
		}
	})
}

// startAgain is start, but root may come late unless the cache file is in it.
func (h *history) startAgain(t *testing.T, kind int, file string, opts fileproc.Options) *follower {
	aside := h.aside()
	rootComesLate := kind != 0 && !h.rooted && h.IntN(3) == 0 && os.Rename(h.root, aside) == nil
	f := h.start(t, kind, file, opts)
	if rootComesLate {
		require.NoError(t, os.Rename(aside, h.root))
	}
	return f
}

// compareAtRest is compare as soon as the loop has the results of a full run, or after a long time.
func (h *history) compareAtRest(t *testing.T, f *follower, opts fileproc.Options) {
	want := h.full(t, opts)
	isAtRest := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(want.differences(f.results)) == 0
	}
	for end := time.Now().Add(20 * time.Second); !isAtRest() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if h.compare(t, f, opts); t.Failed() {
		f.sync()
		t.Log("that is right after Sync: ", isAtRest())
	}
}

var releaseMounts = func(string) {}

// newHistory makes the directories of a history.
func newHistory(t *testing.T, seed uint64, dir string) *history {
	h := &history{Rand: rand.New(rand.NewPCG(seed, 0)), dir: dir, root: filepath.Join(dir, "now", "root")}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "aside"), 0o755))
	require.NoError(t, h.release())
	testtree.Symlink(t, "release", filepath.Join(dir, "now"))
	for _, d := range historyDirs {
		require.NoError(t, os.MkdirAll(h.path(d), 0o755))
	}
	t.Cleanup(func() { h.letGo(); releaseMounts(dir) })
	return h
}

// release makes a new directory with a root, to which the link "release" leads from now on.
func (h *history) release() error {
	h.serial++
	to, link := fmt.Sprint("release", h.serial), filepath.Join(h.dir, "release")
	return errors.Join(h.write(filepath.Join(h.dir, to, "root", "d", "a")), os.Symlink(to, link+".new"), os.Rename(link+".new", link))
}

// hold keeps root open, as a process does that has it as its working directory.
func (h *history) hold() error {
	f, err := os.Open(h.root)
	h.held = append(h.held, f)
	return err
}

func (h *history) letGo() {
	for _, f := range h.held {
		f.Close()
	}
	h.held = nil
}

// What a full run finds: results by path, and directories that it cannot read, whose results stand.
type found struct {
	results map[string]string
	unread  []string
}

func (h *history) full(t *testing.T, opts fileproc.Options) (all found) {
	opts.OnError = func(err error) error {
		var f *fileproc.Failure
		if errors.As(err, &f) && f.Kind == fileproc.FailedDir {
			rel, err := filepath.Rel(h.root, f.Path)
			require.NoError(t, err)
			all.unread = append(all.unread, filepath.ToSlash(rel)+"/")
		}
		return nil
	}
	type result struct{ rel, text string }
	results, err := fileproc.Process(t.Context(), h.root, opts, func(f *fileproc.File) (result, error) {
		text, err := content(f)
		if strings.HasPrefix(f.Rel(), "own.cache") {
			err = fileproc.ErrSkip
		}
		return result{f.Rel(), text}, err
	})
	require.NoError(t, err)
	all.results = map[string]string{}
	for _, r := range results {
		all.results[r.rel] = r.text
	}
	return all
}

// differences returns what is wrong with the results that a loop has delivered.
func (want found) differences(got map[string]string) (all []string) {
	for rel, text := range want.results {
		if now, ok := got[rel]; !ok || now != text {
			all = append(all, fmt.Sprintf("%q: got %q %v, want %q", rel, now, ok, text))
		}
	}
	for rel, text := range got {
		stands := slices.ContainsFunc(want.unread, func(dir string) bool { return strings.HasPrefix(rel, dir) })
		if _, ok := want.results[rel]; !ok && !stands {
			all = append(all, fmt.Sprintf("%q: got %q, want nothing", rel, text))
		}
	}
	return all
}

func (h *history) compare(t *testing.T, f *follower, opts fileproc.Options) {
	want := h.full(t, opts)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, text := range want.differences(f.results) {
		t.Error(text)
	}
	f.got = nil
}

func (h *history) path(rel string) string { return filepath.Join(h.root, filepath.FromSlash(rel)) }
func (h *history) subdir() string         { return h.path(historyDirs[h.IntN(len(historyDirs)-1)]) }
func (h *history) file() string {
	return h.path(path.Join(historyDirs[h.IntN(len(historyDirs))], historyNames[h.IntN(len(historyNames))]))
}
func (h *history) aside() string {
	h.serial++
	return filepath.Join(h.dir, "aside", fmt.Sprint(h.serial))
}

// movesRoot reports whether a change of root takes place: one in eight does.
func (h *history) movesRoot() bool { return !h.rooted && h.IntN(8) == 0 }

// settle lets, now and then, all files become so old that the loop has no reason of its own to look at them again.
func (h *history) settle() {
	if h.IntN(4) == 0 {
		time.Sleep(3 * fsinfo.Settled)
	}
}

func (h *history) content() []byte {
	h.serial++
	return []byte(fmt.Sprint(h.serial) + []string{"", "", "", "", "", "!", "?", strings.Repeat("x", h.IntN(20_000))}[h.IntN(8)])
}

func (h *history) write(name string) error {
	os.MkdirAll(filepath.Dir(name), 0o755)
	return os.WriteFile(name, h.content(), 0o644)
}

func (h *history) writeTo(name string, flags int, b []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|flags, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

func swap(p, q, aside string) error {
	return errors.Join(os.Rename(p, aside), os.Rename(q, p), os.Rename(aside, q))
}

// Each change gets the paths of two files and of two directories. One that fails half way is a change too.
var changes = map[string]func(h *history, p, q, d, e string) error{
	"write":     func(h *history, p, _, _, _ string) error { return h.write(p) },
	"overwrite": func(h *history, p, _, _, _ string) error { return h.writeTo(p, 0, h.content()) },
	"append":    func(h *history, p, _, _, _ string) error { return h.writeTo(p, os.O_APPEND, h.content()) },
	"truncate":  func(h *history, p, _, _, _ string) error { return os.Truncate(p, h.Int64N(5)) },
	"empty":     func(h *history, p, _, _, _ string) error { return h.writeTo(p, os.O_CREATE|os.O_TRUNC, nil) },
	"write in parts": func(h *history, p, _, _, _ string) error {
		return errors.Join(h.writeTo(p, os.O_CREATE|os.O_TRUNC, []byte("half")), h.writeTo(p, os.O_APPEND, h.content()))
	},
	"write again": func(h *history, p, _, _, _ string) error {
		text, err := os.ReadFile(p)
		return errors.Join(err, h.writeTo(p, os.O_TRUNC, text))
	},
	"set mtime back": func(h *history, p, _, _, _ string) error {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		return errors.Join(h.writeTo(p, 0, h.content()), os.Chtimes(p, info.ModTime(), info.ModTime()))
	},
	"future": func(h *history, p, _, _, _ string) error {
		return os.Chtimes(p, time.Time{}, time.Now().Add(time.Hour))
	},
	"chmod":              func(h *history, p, _, _, _ string) error { return os.Chmod(p, 0o600+os.FileMode(h.IntN(2))*0o44) },
	"chmod directory":    func(h *history, _, _, d, _ string) error { return os.Chmod(d, 0o700+os.FileMode(h.IntN(2))*0o55) },
	"rename":             func(h *history, p, q, _, _ string) error { return os.Rename(p, q) },
	"rename there, back": func(h *history, p, q, _, _ string) error { return errors.Join(os.Rename(p, q), os.Rename(q, p)) },
	"swap":               func(h *history, p, q, _, _ string) error { return swap(p, q, h.aside()) },
	"delete":             func(h *history, p, _, _, _ string) error { return os.RemoveAll(p) },
	"delete and write":   func(h *history, p, _, _, _ string) error { return errors.Join(os.Remove(p), h.write(p)) },
	"move out":           func(h *history, p, _, _, _ string) error { return os.Rename(p, h.aside()) },
	"move in": func(h *history, p, _, _, _ string) error {
		aside := h.aside()
		return errors.Join(os.WriteFile(aside, h.content(), 0o644), os.Rename(aside, p))
	},
	"save by backup": func(h *history, p, _, _, _ string) error {
		return errors.Join(os.Rename(p, p+"~"), h.write(p), os.Remove(p+"~"))
	},
	"save by rename": func(h *history, p, _, _, _ string) error {
		return errors.Join(h.write(p+".tmp"), os.Rename(p+".tmp", p))
	},
	"hard link": func(h *history, p, q, _, _ string) error {
		if !h.links {
			return nil
		}
		return errors.Join(os.Remove(q), os.Link(p, q))
	},
	"link": func(h *history, p, q, _, _ string) error {
		os.Remove(p)
		return os.Symlink([]string{filepath.Base(q), q, filepath.Dir(q), "nowhere"}[h.IntN(4)], p)
	},
	"link for a directory": func(h *history, _, q, d, _ string) error {
		return errors.Join(os.Rename(d, h.aside()), os.Symlink(filepath.Dir(q), d))
	},
	"directory for a file": func(h *history, p, _, _, _ string) error { return errors.Join(os.RemoveAll(p), h.write(p+"/a")) },
	"file for a directory": func(h *history, _, _, d, _ string) error { return errors.Join(os.RemoveAll(d), h.write(d)) },
	"mkdir -p": func(h *history, _, _, d, _ string) error {
		return h.write(filepath.Join(d, fmt.Sprint(h.IntN(3)), fmt.Sprint(h.IntN(3)), fmt.Sprint(h.IntN(3)), "a"))
	},
	"many directories": func(h *history, _, _, d, _ string) (err error) {
		for i := range 20 {
			err = errors.Join(err, h.write(filepath.Join(d, fmt.Sprint("many", i), "a")))
		}
		return err
	},
	"many files": func(h *history, _, _, d, _ string) (err error) {
		for i := range 30 {
			err = errors.Join(err, h.write(filepath.Join(d, fmt.Sprint("f", i))))
		}
		return err
	},
	"delete a directory": func(h *history, _, _, d, _ string) error { return os.RemoveAll(d) },
	"move a directory": func(h *history, _, _, d, e string) error {
		return os.Rename(d, filepath.Join(e, fmt.Sprint("moved", h.IntN(3))))
	},
	"replace a directory": func(h *history, _, _, d, e string) error {
		return errors.Join(os.Rename(d, h.aside()), os.Rename(e, d))
	},
	"swap directories": func(h *history, _, _, d, e string) error { return swap(d, e, h.aside()) },
	"storm of renames": func(h *history, _, _, d, _ string) (err error) {
		at := d
		for i := range 10 {
			next := fmt.Sprint(d, "-", i%3)
			err = errors.Join(err, os.Rename(at, next), h.write(filepath.Join(next, "a")))
			at = next
		}
		return errors.Join(err, os.Rename(at, d))
	},
	"directory out, back": func(h *history, _, _, d, _ string) error {
		aside := h.aside()
		return errors.Join(os.Rename(d, aside), h.write(filepath.Join(aside, "a")), os.Rename(aside, d))
	},
	"root out, back": func(h *history, _, _, _, _ string) error {
		if h.IntN(4) > 0 {
			return nil
		}
		aside := h.aside()
		err := os.Rename(h.root, aside)
		time.Sleep(time.Duration(h.IntN(3)) * time.Millisecond)
		return errors.Join(err, h.write(filepath.Join(aside, "a")), os.Rename(aside, h.root))
	},
	"another root": func(h *history, _, _, _, _ string) error {
		if !h.movesRoot() {
			return nil
		}
		return errors.Join(os.Rename(h.root, h.aside()), h.write(h.path("d/a")))
	},
	"root removed, made anew": func(h *history, p, _, _, _ string) error {
		if !h.movesRoot() {
			return nil
		}
		h.settle()
		return errors.Join(h.hold(), os.RemoveAll(h.root), h.write(p))
	},
	"what is above root removed, made anew": func(h *history, p, _, _, _ string) error {
		if !h.movesRoot() {
			return nil
		}
		h.settle()
		to, err := os.Readlink(filepath.Join(h.dir, "release"))
		to = filepath.Join(h.dir, to)
		return errors.Join(err, h.hold(), os.RemoveAll(to), os.Mkdir(to, 0o755), h.write(p))
	},
	"release": func(h *history, _, _, _, _ string) error {
		if !h.movesRoot() {
			return nil
		}
		h.settle()
		return errors.Join(h.hold(), h.release())
	},
	"let go": func(h *history, _, _, _, _ string) error { h.letGo(); return nil },
	"git's rules": func(h *history, _, _, d, _ string) error {
		const rules = "a\n*.txt\n"
		top := []string{h.root, d}[h.IntN(2)]
		at := func(name string) string { return filepath.Join(top, filepath.FromSlash(name)) }
		write := func(name, text string) error {
			return errors.Join(os.MkdirAll(filepath.Dir(at(name)), 0o755), os.WriteFile(at(name), []byte(text), 0o644))
		}
		switch h.IntN(7) {
		case 0:
			return os.RemoveAll(at(".git"))
		case 1:
			return write(".git/info/exclude", rules[h.IntN(len(rules)):])
		case 2:
			return write(".git/config", "[core]\nexcludesFile = .far/rules\n")
		case 3:
			return write(".far/rules", rules[h.IntN(len(rules)):])
		case 4:
			return os.Rename(at(".git"), h.aside())
		}
		return errors.Join(os.MkdirAll(at(".git/objects"), 0o755), os.MkdirAll(at(".git/refs"), 0o755), write(".git/HEAD", "x"))
	},
	"large, small": func(h *history, p, _, _, _ string) error {
		return h.writeTo(p, os.O_CREATE|os.O_TRUNC, []byte(strings.Repeat("x", h.IntN(3)*900+1)))
	},
	"a large file for a directory": func(h *history, _, _, d, _ string) error {
		return errors.Join(os.RemoveAll(d), os.WriteFile(d, make([]byte, 2000), 0o644))
	},
	"rules": func(h *history, p, _, _, _ string) error {
		name := filepath.Join(filepath.Dir(p), []string{".ignore", ".gitignore", ".nobackup"}[h.IntN(3)])
		if h.IntN(3) == 0 {
			return os.Remove(name)
		}
		return os.WriteFile(name, []byte([]string{"a\n", "e\n", "*\n!a\n", "d/\n"}[h.IntN(4)]), 0o644)
	},
}

var changeNames = slices.Sorted(maps.Keys(changes))

func (h *history) change(n int) (done int) {
	for range n {
		name := changeNames[h.IntN(len(changeNames))]
		p, q, d, e := h.file(), h.file(), h.subdir(), h.subdir()
		err := changes[name](h, p, q, d, e)
		if err == nil {
			done++
		}
		h.log = append(h.log, fmt.Sprintf("%s  %s %q %q %q %q %.30v", time.Now().Format("05.000"), name, p[len(h.root):], q[len(h.root):], d[len(h.root):], e[len(h.root):], err))
		switch h.IntN(200) {
		case 0:
			time.Sleep(time.Duration(h.IntN(10)) * time.Millisecond)
		case 1:
			time.Sleep(fsinfo.Settled)
		}
	}
	return done
}
