package incremental_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestHistories lets trees change at random, with incremental runs in between. Each run's results, failures and counts must
// be those of a full run. What the cache file holds before and after a run decides for which files fn and Deleted must have
// been called. FILEPROC_HISTORIES is the number of trees; FILEPROC_SEED repeats one that has failed.
func TestHistories(t *testing.T) {
	t.Parallel()
	count, first := testtree.Rounds(t, "FILEPROC_HISTORIES", 40), seeded(t)
	if os.Getenv("FILEPROC_SEED") != "" {
		count = 1
	}
	metadata := comparesMetadata(t)
	var totals historyTotals
	t.Run("", func(t *testing.T) {
		for i := range count {
			t.Run(fmt.Sprint("FILEPROC_SEED=", first+uint64(i)), func(t *testing.T) {
				t.Parallel()
				runHistory(t, first+uint64(i), metadata, &totals)
			})
		}
	})
	t.Logf("%d histories: %d changes, %d runs, %d results from the cache, %d from fn, %d deleted", count,
		totals.changes.Load(), totals.runs.Load(), totals.taken.Load(), totals.called.Load(), totals.deleted.Load())
	require.True(t, count < 30 || totals.taken.Load() > 0 && totals.called.Load() > 0 && totals.deleted.Load() > 0)
}

type historyTotals struct{ changes, runs, taken, called, deleted atomic.Int64 }

// comparesMetadata reports whether CompareAuto compares metadata here.
func comparesMetadata(t *testing.T) bool {
	p := newProject(t, "a=1")
	p.opts.ReadSize = fileproc.NoRead
	p.run()
	p.run()
	return len(p.calls) == 0
}

// A history is a tree that changes at random.
type history struct {
	*rand.Rand
	*testing.T
	dir, root string
	metadata  bool // what CompareAuto compares
	users     []*user
	backups   map[string][]byte // of cache files
	totals    *historyTotals
	serial    atomic.Int64 // of contents: no two are the same

	mu   sync.Mutex
	log  []string
	seen map[string]bool // what fn was called for, by key and result
}

// A user is a program that uses a cache file.
type user struct {
	name, entry string // entry is Process, Stream or ForEach
	own         string // the cache file's path below root
	key         string // what makes its entries differ from those of other users
	content     bool   // what it compares
	inc         incremental.Options[string]
	opts        fileproc.Options
}

func runHistory(t *testing.T, seed uint64, metadata bool, totals *historyTotals) {
	dir := t.TempDir()
	testtree.Removable(t, dir)
	h := &history{Rand: rand.New(rand.NewPCG(seed, 0)), T: t, dir: dir, root: filepath.Join(dir, "root"), metadata: metadata,
		backups: map[string][]byte{}, totals: totals, seen: map[string]bool{}}
	defer func() {
		if t.Failed() {
			head := min(len(h.users), len(h.log))
			t.Log("\n" + strings.Join(slices.Concat(h.log[:head], h.log[max(head, len(h.log)-80):]), "\n"))
		}
	}()
	h.plant()
	settled := incremental.Settled + 20*time.Millisecond
	for range 8 + h.IntN(16) {
		for range 1 + h.IntN(5) {
			h.change(h.Rand)
		}
		time.Sleep(choose(h.Rand, settled, settled, settled, settled/2, 0, 0))
		h.oneRun()
		for h.IntN(3) == 0 {
			h.disturbCache()
		}
	}
	time.Sleep(settled) // now all can be kept
	for _, u := range h.users {
		h.quiet(u)
		h.quiet(u)
	}
}

func (h *history) require(ok bool, format string, args ...any) {
	if !ok {
		h.Fatalf(format, args...)
	}
}

func (h *history) note(format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), longName, "l…")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, time.Now().Format("04:05.000  ")+text)
}

var (
	longName     = strings.Repeat("l", 250)
	historyDirs  = []string{"d", "d/e", "g", "g/.h", "i", ""}
	historyNames = []string{"a.md", "b.md", "c.txt", "d.b", "e", ".f.md", "odd \xff\n*[", longName + ".md", "z.md"}
)

// plant makes the tree, its cache files and their users.
func (h *history) plant() {
	for _, d := range append(historyDirs, "own", "../aside") {
		os.MkdirAll(h.path(d), 0o755)
	}
	for range 5 + h.IntN(20) {
		h.write(h.file(h.Rand), h.content(h.Rand, -1))
	}
	if h.IntN(10) == 0 { // enough for files to be read together
		for i := range 150 {
			h.write(h.path(fmt.Sprintf("d/many/%03d.md", i)), h.content(h.Rand, 30))
		}
	}
	links := choose(h.Rand, fileproc.SymlinksSkip, fileproc.SymlinksFiles, fileproc.SymlinksFollow)
	for i := range 1 + h.IntN(2) {
		own, file := "", filepath.Join(h.dir, fmt.Sprint("cache", i))
		if h.IntN(3) == 0 {
			own = fmt.Sprint("own/cache", i)
			file = h.path(own)
		}
		first := h.newUser(file, own, links)
		h.users = append(h.users, first)
		for range h.IntN(3) {
			u := h.newUser(file, own, links)
			if h.IntN(4) > 0 && (u.entry == "ForEach") == (first.entry == "ForEach") {
				u.inc, u.content = first.inc, first.content
				if h.IntN(4) > 0 { // shares the entries
					u.opts.ReadSize, u.opts.SkipBinary, u.opts.MaxFileSize = first.opts.ReadSize, first.opts.SkipBinary, first.opts.MaxFileSize
				}
			}
			h.users = append(h.users, u)
		}
	}
	for i, u := range h.users {
		u.name = fmt.Sprint("user", i)
		u.key = fmt.Sprintf("%s %T %d %v %d %v", u.inc.Version, u.inc.Codec, u.opts.ReadSize, u.opts.SkipBinary, u.opts.MaxFileSize, u.entry == "ForEach")
		h.note("%s: %s, %s, content %v, %+v, %+v", u.name, u.entry, u.key, u.content, u.inc, u.opts)
	}
}

func (h *history) newUser(file, own string, links fileproc.Symlinks) *user {
	r := h.Rand
	u := &user{own: own, entry: choose(r, "Process", "Process", "Stream", "ForEach")}
	u.inc.File, u.inc.Version = file, choose(r, "1", "1", "2")
	u.inc.Compare = choose(r, incremental.CompareAuto, incremental.CompareGit, incremental.CompareMetadata, incremental.CompareContent)
	if u.inc.Compare == incremental.CompareMetadata && !h.metadata {
		u.inc.Compare = incremental.CompareAuto // nobody promises anything here
	}
	if u.content = u.inc.Compare == incremental.CompareContent || !h.metadata; u.content {
		u.inc.Version += " of content" // its fn leaves metadata out
	}
	if u.entry != "ForEach" {
		u.inc.Codec = choose(r, nil, nil, incremental.Gob[string](), incremental.Raw[string]())
	}
	o := &u.opts
	o.Workers, o.Symlinks = choose(r, 0, 1, 3), links
	o.Ordered = r.IntN(3) == 0 && !(u.entry == "Stream" && links == fileproc.SymlinksFollow)
	o.DisableURing, o.Stat, o.SkipHidden = r.IntN(3) == 0, r.IntN(4) == 0, r.IntN(4) == 0
	o.ReadSize = choose(r, 0, 0, 0, 0, 3, 300, fileproc.NoRead)
	o.SkipBinary = r.IntN(4) == 0 && o.ReadSize != fileproc.NoRead
	o.MaxFileSize = choose[int64](r, 0, 0, 0, 1000)
	o.MaxDepth = choose(r, 0, 0, 0, 2)
	o.Suffixes = choose(r, nil, nil, nil, []string{".md"}, []string{".md", ".txt"})
	o.Include = choose(r, nil, nil, nil, nil, []string{"d/**"}, []string{"**/*.md", "e"})
	o.Exclude = choose(r, nil, nil, nil, nil, []string{"**/e"}, []string{"g/**", "**/*.txt"})
	o.IgnoreFiles = choose(r, nil, nil, []string{".ignore"})
	o.SkipMarked = choose(r, nil, nil, nil, []string{".nobackup"})
	o.Shards = choose(r, 0, 0, 0, 0, 2, 3)
	o.Shard = r.IntN(max(o.Shards, 1))
	if r.IntN(5) == 0 {
		o.SelectDir = func(e fileproc.Entry) bool { return e.Name() != "i" }
	}
	return u
}

func (h *history) path(rel string) string { return filepath.Join(h.root, filepath.FromSlash(rel)) }

func (h *history) file(r *rand.Rand) string {
	return h.path(path.Join(choose(r, historyDirs...), choose(r, historyNames...)))
}

func (h *history) subdir(r *rand.Rand) string { return h.path(choose(r, historyDirs[:5]...)) }

// content returns content that no file has had before, as far as the size allows; -1 is a random size. The last byte
// decides what fn returns.
func (h *history) content(r *rand.Rand, size int64) []byte {
	if size < 0 {
		size = choose[int64](r, 0, 1, 12, 12, 12, 12, 30, 400, 5000, 40_000)
	}
	b := []byte(fmt.Sprintf("%010d", h.serial.Add(1)) + strings.Repeat("x", max(0, int(size)-10)))
	b = b[len(b)-int(size):]
	if size == 1 {
		b[0] = byte('A' + r.IntN(26))
	} else if size > 1 {
		b[size-1] = choose(r, byte('.'), '.', '.', '.', '.', 's', 'f', 0)
	}
	return b
}

func (h *history) write(name string, content []byte) error {
	os.MkdirAll(filepath.Dir(name), 0o755)
	return os.WriteFile(name, content, 0o644)
}

// overwrite replaces the content of a file by as many other bytes.
func (h *history) overwrite(r *rand.Rand, name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	return writeTo(name, 0, h.content(r, info.Size()))
}

func writeTo(name string, flags int, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|flags, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

func (h *history) aside() string { return filepath.Join(h.dir, "aside", fmt.Sprint(h.serial.Add(1))) }

// keepTime gives q the time that p has before the change.
func keepTime(p, q string, change func() error) error {
	info, err := os.Stat(p)
	if err != nil {
		return err
	}
	return errors.Join(change(), os.Chtimes(q, info.ModTime(), info.ModTime()))
}

func swap(p, q, aside string) error {
	return errors.Join(os.Rename(p, aside), os.Rename(q, p), os.Rename(aside, q))
}

// A change gets the paths of two files. One that fails half way is a change too.
var historyChanges = map[string]func(h *history, r *rand.Rand, p, q string) error{
	"write":     func(h *history, r *rand.Rand, p, _ string) error { return h.write(p, h.content(r, -1)) },
	"overwrite": func(h *history, r *rand.Rand, p, _ string) error { return h.overwrite(r, p) },
	"append":    func(h *history, r *rand.Rand, p, _ string) error { return writeTo(p, os.O_APPEND, h.content(r, 12)) },
	"truncate":  func(h *history, r *rand.Rand, p, _ string) error { return os.Truncate(p, r.Int64N(30)) },
	"rename":    func(h *history, r *rand.Rand, p, q string) error { return os.Rename(p, q) },
	"swap":      func(h *history, r *rand.Rand, p, q string) error { return swap(p, q, h.aside()) },
	"delete":    func(h *history, r *rand.Rand, p, _ string) error { return os.RemoveAll(p) },
	"cp -p": func(h *history, r *rand.Rand, p, q string) error {
		content, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return keepTime(p, q, func() error { return os.WriteFile(q, content, 0o644) })
	},
	"overwrite, mtime set back": func(h *history, r *rand.Rand, p, _ string) error {
		return keepTime(p, p, func() error { return h.overwrite(r, p) })
	},
	"set mtime": func(h *history, r *rand.Rand, p, _ string) error {
		now := time.Now()
		to := choose(r, now.Add(time.Hour), now.Add(2*incremental.Settled), now.Add(-incremental.Settled), time.Unix(0, 0), time.Unix(1, 0),
			time.Unix(-100, 0), time.Unix(1_500_000_000, 0), time.Unix(1<<34, 0))
		return os.Chtimes(p, to, to)
	},
	"remove and create": func(h *history, r *rand.Rand, p, _ string) error { // often with the same inode number
		info, err := os.Lstat(p)
		if err != nil {
			return err
		}
		again := func() error {
			return errors.Join(os.Remove(p), writeTo(p, os.O_CREATE|os.O_EXCL, h.content(r, min(info.Size(), 4096))))
		}
		if r.IntN(2) == 0 {
			return again()
		}
		return keepTime(p, p, again)
	},
	"replace": func(h *history, r *rand.Rand, p, _ string) error {
		aside := h.aside()
		if info, err := os.Stat(p); err != nil || r.IntN(2) == 0 {
			os.WriteFile(aside, h.content(r, 12), 0o644)
		} else {
			keepTime(p, aside, func() error { return os.WriteFile(aside, h.content(r, info.Size()), 0o644) })
		}
		return os.Rename(aside, p)
	},
	"hard link": func(h *history, r *rand.Rand, p, q string) error {
		os.Remove(q)
		return os.Link(p, q)
	},
	"hard link over": func(h *history, r *rand.Rand, p, q string) error { // in one step, with the inode and the times of p
		aside := h.aside()
		return errors.Join(os.Link(p, aside), os.Rename(aside, q))
	},
	"move out and back": func(h *history, r *rand.Rand, p, _ string) error {
		aside := h.aside()
		return errors.Join(os.Rename(p, aside), os.Rename(aside, p))
	},
	"chmod": func(h *history, r *rand.Rand, p, _ string) error {
		mode := choose[fs.FileMode](r, 0o644, 0o644, 0o600, 0o755, 0o444, 0)
		if info, err := os.Stat(p); err == nil && info.IsDir() { // also behind a link, where it may be root
			mode |= 0o700
		}
		return os.Chmod(p, mode)
	},
	"shut or open a directory": func(h *history, r *rand.Rand, _, _ string) error {
		dir := h.subdir(r)
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			return err
		}
		return os.Chmod(dir, choose[fs.FileMode](r, 0o755, 0o755, 0))
	},
	"link": func(h *history, r *rand.Rand, p, q string) error {
		os.Remove(p)
		// A relative target is beside the link: it must not lead out of root when the link moves.
		return os.Symlink(choose(r, filepath.Base(q), q, filepath.Dir(q)), p)
	},
	"directory": func(h *history, r *rand.Rand, p, _ string) error {
		os.Remove(p)
		return errors.Join(os.Mkdir(p, 0o755), h.write(filepath.Join(p, choose(r, historyNames...)), h.content(r, 12)))
	},
	"swap directories": func(h *history, r *rand.Rand, _, _ string) error { return swap(h.subdir(r), h.subdir(r), h.aside()) },
	"move a directory": func(h *history, r *rand.Rand, _, _ string) error {
		from, to := h.subdir(r), h.subdir(r)
		if r.IntN(2) == 0 {
			os.Rename(to, h.aside())
		}
		return os.Rename(from, to)
	},
	"another directory": func(h *history, r *rand.Rand, _, _ string) error { // with files of the same names, sizes and times
		dir, other := h.subdir(r), h.aside()
		entries, err := os.ReadDir(dir)
		err = errors.Join(err, os.Mkdir(other, 0o755))
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				name := filepath.Join(other, e.Name())
				os.WriteFile(name, h.content(r, info.Size()), info.Mode())
				os.Chtimes(name, info.ModTime(), info.ModTime())
			}
		}
		return errors.Join(err, os.Rename(dir, h.aside()), os.Rename(other, dir))
	},
	"link to a directory": func(h *history, r *rand.Rand, _, _ string) error {
		dir := h.subdir(r)
		return errors.Join(os.Rename(dir, h.aside()), os.Symlink(h.path(choose(r, historyDirs...)), dir))
	},
	"delete a directory": func(h *history, r *rand.Rand, _, _ string) error { return os.RemoveAll(h.subdir(r)) },
	"file for a directory": func(h *history, r *rand.Rand, _, _ string) error {
		dir := h.subdir(r)
		return errors.Join(os.RemoveAll(dir), h.write(dir, h.content(r, 12)))
	},
	"special": func(h *history, r *rand.Rand, p, _ string) error { // a file that filters look at
		name := filepath.Join(filepath.Dir(p), choose(r, ".ignore", ".nobackup"))
		if r.IntN(4) == 0 {
			return os.Remove(name)
		}
		return h.write(name, []byte(choose(r, "a.md\n", "*.md\n!a.md\n", "e\n", "d/\n", "*\n!.ignore\n")))
	},
}

var historyChangeNames = slices.Sorted(maps.Keys(historyChanges))

func (h *history) change(r *rand.Rand) {
	name := choose(r, historyChangeNames...)
	p, q := h.file(r), h.file(r)
	if r.IntN(3) > 0 { // a file that is there
		if all, _ := filepath.Glob(filepath.Join(h.root, choose(r, "*", "*/*", "*/*/*"))); len(all) > 0 {
			if there := choose(r, all...); !strings.Contains(h.rel(there), "own") { // also through links
				p = there
			}
		}
	}
	err := historyChanges[name](h, r, p, q)
	if err == nil {
		h.totals.changes.Add(1)
	}
	h.note("%s %q %q %.40v", name, h.rel(p), h.rel(q), err)
}

func (h *history) rel(name string) string {
	rel, _ := filepath.Rel(h.root, name)
	return filepath.ToSlash(rel)
}

// disturbCache does something to a cache file.
func (h *history) disturbCache() {
	file := choose(h.Rand, h.users...).inc.File
	data, err := os.ReadFile(file)
	if err != nil {
		return
	}
	what := choose(h.Rand, "remove", "copy", "restore", "restore", "truncate", "flip")
	switch what {
	case "remove":
		os.Remove(file)
	case "copy":
		h.backups[file] = data
	case "restore": // an entry is right for ever
		if b := h.backups[file]; b != nil {
			os.WriteFile(file, b, 0o600)
		}
	case "truncate":
		os.Truncate(file, h.Int64N(int64(len(data))+1))
	case "flip":
		const magic = 16 // without it, this may be what was never a cache, which is left alone
		for range min(1+h.IntN(3), len(data)-magic) {
			data[magic+h.IntN(len(data)-magic)] ^= 1 << h.IntN(8)
		}
		os.WriteFile(file, data, 0o600)
	}
	h.note("%s %s", what, filepath.Base(file))
}

// oneRun makes one or two runs.
func (h *history) oneRun() {
	u := choose(h.Rand, h.users...)
	switch h.IntN(8) {
	case 0, 1:
		h.disturbed(u, h.IntN(2) == 0)
	case 2:
		h.early(u)
	case 3:
		h.pair(u)
	default:
		h.quiet(u)
	}
}

// A given is what a run has given for a file.
type given struct {
	result string
	kind   string // result, skip, fail, binary
	id     string // as Kept has it
	newest int64
	keeps  bool // unless it is too new
}

// A trace is what a test sees of a run.
type trace struct {
	mu            sync.Mutex
	calls         map[string]given // of fn and of OnBinary
	results, errs []string
	deleted       []string
	report        fileproc.Report
	err           error
	t0, t1        time.Time // the run has begun between these
	before, after map[string]string
}

var errHistory = errors.New("as the content says")

// give works out what fn returns, and what the model needs to know.
func (u *user) give(f *fileproc.File) (g given, err error) {
	data := f.Data()
	if u.opts.ReadSize == fileproc.NoRead && !u.content {
		file, err := f.Open()
		if err != nil { // fn has been called nevertheless
			return given{kind: "fail", result: fmt.Sprintf("%q cannot be opened", f.Rel())}, nil
		}
		defer file.Close()
		if data, err = io.ReadAll(file); err != nil {
			return g, err
		}
	}
	g.result = fmt.Sprintf("%q %v %d %x %.9q", f.Rel(), f.Truncated(), len(data), sha256.Sum256(data), data)
	g.kind = "result"
	if len(data) > 0 {
		g.kind = cmp.Or(map[byte]string{'s': "skip", 'f': "fail"}[data[len(data)-1]], "result")
	}
	g.keeps = g.kind != "fail"
	s, err := f.Stat()
	g.identify(u, s)
	if u.content {
		g.keeps = g.keeps && u.opts.ReadSize != fileproc.NoRead && !f.Truncated()
		sum := sha256.Sum256(data)
		g.id = fmt.Sprintf("%d %x", len(data), sum[:16])
	}
	return g, err
}

func (g *given) identify(u *user, s fileproc.Stat) {
	if u.content {
		return
	}
	g.result += fmt.Sprintf(" %d %v", s.Size, s.Mode)
	g.id = fmt.Sprint(s.Size, s.ModTime.UnixNano(), s.ChangeTime.UnixNano(), s.Inode, uint32(s.Mode))
	g.newest = max(s.ModTime.UnixNano(), s.ChangeTime.UnixNano())
	g.keeps = g.keeps && s.ModTime.Unix() < 1<<33
}

// fn returns the function for a run that tr sees. before, unless it is nil, is called first in each call.
func (h *history) fn(u *user, tr *trace, before func(*fileproc.File) error) func(*fileproc.File) (string, error) {
	return func(f *fileproc.File) (string, error) {
		if before != nil {
			if err := before(f); err != nil {
				return "", err
			}
		}
		g, err := u.give(f)
		if err != nil {
			return "", err
		}
		tr.mu.Lock()
		tr.calls[f.Rel()] = g
		tr.mu.Unlock()
		switch g.kind {
		case "skip":
			return "", fileproc.ErrSkip
		case "fail":
			return "", errHistory
		}
		return g.result, nil
	}
}

// options returns the options of a run that tr sees.
func (u *user) options(tr *trace) fileproc.Options {
	tr.calls = map[string]given{}
	o := u.opts
	o.Report = &tr.report
	o.OnError = func(err error) error { // one at a time
		tr.errs = append(tr.errs, err.Error())
		return nil
	}
	if o.SkipBinary {
		o.OnSkip = func(f fileproc.Entry, why fileproc.SkipReason) {
			if why != fileproc.SkippedBinary {
				return
			}
			g := given{kind: "binary", result: fmt.Sprintf("%q", f.Rel())}
			if s, err := f.Stat(); err == nil && !u.content {
				g.keeps = true
				g.identify(u, s)
			}
			tr.mu.Lock()
			defer tr.mu.Unlock()
			tr.calls[f.Rel()] = g
		}
	}
	return o
}

// full makes a run without a cache file.
func (h *history) full(u *user) *trace {
	tr := &trace{}
	opts := u.options(tr)
	if u.own != "" {
		opts.Exclude = append(slices.Clone(opts.Exclude), u.own, u.own+".lock")
	}
	tr.results, tr.err = fileproc.Process(context.Background(), h.root, opts, h.fn(u, tr, nil))
	h.require(tr.err == nil, "a full run: %v", tr.err)
	return tr
}

// files is inc for ForEach.
func (u *user) files() incremental.Options[struct{}] {
	return incremental.Options[struct{}]{File: u.inc.File, Version: u.inc.Version, Compare: u.inc.Compare}
}

func (h *history) kept(u *user) map[string]string {
	if u.entry == "ForEach" {
		return incremental.Kept(h.root, u.files(), u.opts)
	}
	return incremental.Kept(h.root, u.inc, u.opts)
}

// incremental makes a run with the cache file. A loop over a Stream ends after stopAt results.
func (h *history) incremental(ctx context.Context, u *user, stopAt int, before func(*fileproc.File) error) *trace {
	tr := &trace{before: h.kept(u), t0: time.Now()}
	opts := u.options(tr)
	fn := h.fn(u, tr, before)
	inc, files := u.inc, u.files()
	inc.Deleted = func(rel string) { tr.deleted = append(tr.deleted, rel) }
	files.Deleted = inc.Deleted
	switch u.entry {
	case "Process":
		tr.results, tr.err = incremental.Process(ctx, h.root, inc, opts, fn)
	case "Stream":
		for v, err := range incremental.Stream(ctx, h.root, inc, opts, fn) {
			if err != nil {
				tr.err = errors.Join(tr.err, err)
				continue
			}
			if tr.results = append(tr.results, v); len(tr.results) == stopAt {
				break
			}
		}
	case "ForEach":
		tr.err = incremental.ForEach(ctx, h.root, files, opts, func(f *fileproc.File) error {
			_, err := fn(f)
			return err
		})
	}
	tr.t1 = time.Now()
	tr.after = h.kept(u)
	h.totals.runs.Add(1)
	h.totals.called.Add(int64(len(tr.calls)))
	h.totals.taken.Add(tr.report.Unchanged)
	h.totals.deleted.Add(int64(len(tr.deleted)))
	h.mu.Lock()
	for _, g := range tr.calls {
		h.seen[u.key+g.result] = true
	}
	h.mu.Unlock()
	h.note("%s: fn called for %q, deleted %q, keeps %q", u.name, slices.Sorted(maps.Keys(tr.calls)), tr.deleted, tr.after)
	return tr
}

// quiet makes a run while nothing changes.
func (h *history) quiet(u *user) {
	var full *trace
	first := h.IntN(2) == 0
	if first {
		full = h.full(u)
	}
	tr := h.incremental(context.Background(), u, 0, nil)
	if !first {
		full = h.full(u)
	}
	h.checkResults(u, tr, full)
	h.checkCalls(u, tr, full)
	h.checkDeleted(u, tr.before, tr.deleted)
	h.checkKept(u, tr.before, tr.after, full, tr)
}

// checkResults compares a complete run with a full one.
func (h *history) checkResults(u *user, tr, full *trace) {
	h.require(tr.err == nil, "%s: %v", u.name, tr.err)
	got, want := slices.Clone(tr.results), slices.Clone(full.results)
	if !u.opts.Ordered {
		slices.Sort(got)
		slices.Sort(want)
	}
	h.require(u.entry == "ForEach" || slices.Equal(got, want), "%s: the results are\n%q, want\n%q", u.name, got, want)
	got, want = slices.Sorted(slices.Values(tr.errs)), slices.Sorted(slices.Values(full.errs))
	h.require(slices.Equal(got, want), "%s: the failures are\n%q, want\n%q", u.name, got, want)
	r := tr.report
	sum := r.Processed + r.Failed + r.Abandoned + r.Unchanged
	for _, n := range r.Skipped {
		sum += n
	}
	h.require(sum == r.Found && r.Abandoned == 0, "%s: the counts do not balance: %+v", u.name, r)
	hasOwn := slices.ContainsFunc(h.users, func(u *user) bool { return u.own != "" })
	same := r.Found == full.report.Found && r.Directories == full.report.Directories && r.Failed == full.report.Failed
	h.require(same || hasOwn, "%s: the counts are %+v, those of a full run %+v", u.name, r, full.report)
	for rel, g := range tr.calls {
		h.require(g == full.calls[rel], "%s: for %q fn gave %+v, want %+v", u.name, rel, g, full.calls[rel])
	}
}

// checkCalls requires that fn was called for exactly the files whose entries did not fit, and that each other file still has the
// content with which fn was called when its entry was made.
func (h *history) checkCalls(u *user, tr, full *trace) {
	for rel, g := range full.calls {
		if g.kind == "binary" { // Report counts it as unchanged, or OnSkip gets it
			continue
		}
		_, called := tr.calls[rel]
		id, known := tr.before[rel]
		fits := known && id == g.id && g.keeps
		h.require(called != fits, "%s: fn was called for %q: %v; kept: %q, now: %q", u.name, rel, called, id, g.id)
		h.require(h.seen[u.key+g.result], "%s: fn has never been called for %q as it is: %s", u.name, rel, g.result)
	}
}

// checkDeleted requires that a complete run has reported what was kept, has vanished, and would be selected, and nothing else.
func (h *history) checkDeleted(u *user, before map[string]string, deleted []string) {
	h.require(len(slices.Compact(slices.Sorted(slices.Values(deleted)))) == len(deleted), "%s: deleted twice: %q", u.name, deleted)
	for _, rel := range deleted {
		_, known := before[rel]
		h.require(known, "%s: deleted, but was not kept: %q", u.name, rel)
	}
	for rel := range before {
		want := h.isGone(u, rel) && h.selects(u, rel)
		h.require(slices.Contains(deleted, rel) == want, "%s: deleted should be %v: %q", u.name, want, rel)
	}
}

// checkKept requires that runs have kept what they could, and have lost nothing.
func (h *history) checkKept(u *user, before, after map[string]string, full *trace, runs ...*trace) {
	all := slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after)), slices.Collect(maps.Keys(full.calls)))
	for _, rel := range all {
		g := full.calls[rel]
		must, may, deleted, met := g.after(rel, runs)
		old, now := before[rel], after[rel]
		ok := now == old && !must && !deleted && (!met || old != "") || now == g.id && may || now == "" && deleted ||
			now == incremental.Noted && old == "" && met && (!must || len(runs) > 1) // of two runs the later one to save may have met it sooner
		h.require(ok, "%s: %q is kept as %q, was kept as %q; deleted %v, gives %+v", u.name, rel, now, old, deleted, g)
	}
}

// after reports whether runs must have kept g, the result for rel, may have kept it, have deleted rel, and have met it.
func (g given) after(rel string, runs []*trace) (must, may, deleted, met bool) {
	for _, tr := range runs {
		_, called := tr.calls[rel]
		met = met || called
		called = called && g.keeps
		must = must || called && g.newest <= tr.t0.UnixNano()-int64(incremental.Settled)
		may = may || called && g.newest <= tr.t1.UnixNano()-int64(incremental.Settled)
		deleted = deleted || slices.Contains(tr.deleted, rel)
	}
	return must, may, deleted, met
}

// isGone reports whether rel is no file for a run that treats links as u does. It returns false for a file in a directory that may
// not be searched, since nobody knows what is there.
func (h *history) isGone(u *user, rel string) bool {
	stat := os.Lstat
	if u.opts.Symlinks == fileproc.SymlinksFollow {
		stat = os.Stat
	}
	for end, c := range rel {
		if c == '/' {
			if info, err := stat(h.path(rel[:end])); err != nil || !info.IsDir() {
				return !errors.Is(err, fs.ErrPermission)
			}
		}
	}
	if u.opts.Symlinks != fileproc.SymlinksSkip {
		stat = os.Stat
	}
	info, err := stat(h.path(rel))
	return (err != nil || !info.Mode().IsRegular()) && !errors.Is(err, fs.ErrPermission)
}

// selects reports whether a full run would select rel if it was there, among the files that filters look at.
func (h *history) selects(u *user, rel string) bool {
	root := h.aside()
	defer os.RemoveAll(root)
	at := func(rel string) string { return filepath.Join(root, filepath.FromSlash(rel)) }
	h.require(errors.Join(os.MkdirAll(at(path.Dir(rel)), 0o755), os.WriteFile(at(rel), nil, 0o644)) == nil, "cannot write %q", at(rel))
	stat := os.Lstat
	if u.opts.Symlinks == fileproc.SymlinksFollow {
		stat = os.Stat
	}
	for end, c := range "/" + rel {
		if c != '/' {
			continue
		}
		dir := rel[:max(0, end-1)]
		if info, err := stat(h.path(dir)); err != nil || !info.IsDir() {
			break
		}
		for _, name := range []string{".ignore", ".nobackup"} {
			name := path.Join(dir, name)
			if info, err := os.Lstat(h.path(name)); err == nil && info.Mode().IsRegular() && name != rel {
				if content, err := os.ReadFile(h.path(name)); err == nil {
					os.WriteFile(at(name), content, 0o644)
				}
			}
		}
	}
	opts := u.opts
	opts.ReadSize, opts.SkipBinary, opts.Symlinks = fileproc.NoRead, false, fileproc.SymlinksSkip
	var found atomic.Bool
	err := fileproc.ForEach(context.Background(), root, opts, func(f *fileproc.File) error {
		if f.Rel() == rel {
			found.Store(true)
		}
		return nil
	})
	h.require(err == nil, "%v", err)
	return found.Load()
}

// disturbed makes a run while fn or a goroutine changes the tree. Its results may be anything; those of the next quiet run
// may not.
func (h *history) disturbed(u *user, byFn bool) {
	h.note("%s runs and files change", u.name)
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(h.Uint64(), 0))
	done := make(chan struct{})
	var wg sync.WaitGroup
	var before func(*fileproc.File) error
	if byFn {
		before = func(f *fileproc.File) error {
			mu.Lock()
			defer mu.Unlock()
			switch r.IntN(8) {
			case 0:
				h.change(r)
			case 1:
				if !strings.Contains(f.Rel(), "own") {
					h.overwrite(r, f.Path())
					h.note("fn overwrites %q", f.Rel())
				}
			}
			return nil
		}
	} else {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					h.change(r)
				}
			}
		})
	}
	tr := h.incremental(context.Background(), u, 0, before)
	close(done)
	wg.Wait()
	h.require(!errors.Is(tr.err, incremental.ErrNotSaved), "%s: %v", u.name, tr.err)
	if h.IntN(2) == 0 {
		h.quiet(u)
	}
}

// early makes a run that ends early.
func (h *history) early(u *user) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	how, n := choose(h.Rand, "cancel", "SkipAll", "break"), 1+h.IntN(5)
	h.note("%s runs up to a %s", u.name, how)
	stopAt := 0
	if how == "break" && u.entry == "Stream" {
		stopAt = n
	}
	var calls atomic.Int64
	tr := h.incremental(ctx, u, stopAt, func(*fileproc.File) error {
		if calls.Add(1) == int64(n) {
			switch how {
			case "cancel":
				cancel()
			case "SkipAll":
				return fs.SkipAll
			}
		}
		return nil
	})
	h.require(!errors.Is(tr.err, incremental.ErrNotSaved), "%s: %v", u.name, tr.err)
	stopped := how != "break" && calls.Load() >= int64(n) || stopAt > 0 && len(tr.results) == stopAt
	h.require(!stopped || len(tr.deleted) == 0, "%s: deleted %q in a run that ended early", u.name, tr.deleted)
	for rel := range tr.before {
		h.require(tr.after[rel] != "" || slices.Contains(tr.deleted, rel), "%s: lost %q", u.name, rel)
	}
}

// pair makes two runs at once that use the same cache file.
func (h *history) pair(u *user) {
	other := choose(h.Rand, h.users...)
	if u == other || u.inc.File != other.inc.File || u.key != other.key {
		return
	}
	h.note("%s and %s run at once", u.name, other.name)
	var wg sync.WaitGroup
	before, full, otherFull := h.kept(u), h.full(u), h.full(other)
	var tr, otherTr *trace
	wg.Go(func() { otherTr = h.incremental(context.Background(), other, 0, nil) })
	tr = h.incremental(context.Background(), u, 0, nil)
	wg.Wait()
	h.checkResults(u, tr, full)
	h.checkResults(other, otherTr, otherFull)
	// Each has loaded the file as it was before or after the other's save. Nothing is lost.
	maps.Copy(full.calls, otherFull.calls)
	h.checkKept(u, before, h.kept(u), full, tr, otherTr)
}
