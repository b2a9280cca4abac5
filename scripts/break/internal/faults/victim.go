//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/callfaults"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"golang.org/x/sys/unix"
)

// A mode is one way to use the package. Its run is what calls fail in.
type mode struct {
	name, tree string
	backends   []string // those that the mode is run on; nil: all. What it is for, the others do not do.
	opts       fileproc.Options
	run        func(v *victim)
}

var (
	linuxOnly = []string{"linux", "nouring"}
	modes     = []mode{
		{"process", "small", nil, fileproc.Options{Workers: 2}, (*victim).process},
		{"many", "many", linuxOnly, fileproc.Options{Workers: 1}, (*victim).process},
		{"ordered", "small", nil, fileproc.Options{Workers: 2, Ordered: true}, (*victim).stream},
		{"walk", "small", nil, fileproc.Options{Workers: 2, Stat: true}, (*victim).walk},
		{"open", "small", nil, fileproc.Options{Workers: 2, ReadSize: 100, Stat: true}, (*victim).process},
		{"links", "links", nil, fileproc.Options{Workers: 2, Symlinks: fileproc.SymlinksFollow, IgnoreFiles: []string{".ignore"},
			OneFilesystem: true, SkipMarked: []string{"CACHEDIR.TAG"}}, (*victim).process},
		{"files", "small", nil, fileproc.Options{Workers: 2}, (*victim).namedFiles},
		{"again", "small", nil, fileproc.Options{Workers: 2}, (*victim).again},
		{"stat", "many", linuxOnly, fileproc.Options{Workers: 1, ReadSize: fileproc.NoRead, Stat: true}, (*victim).process},
		{"cold", "many", linuxOnly, fileproc.Options{Workers: 2}, (*victim).process},
		{"coldordered", "many", linuxOnly, fileproc.Options{Workers: 2, Ordered: true}, (*victim).stream},
		{"readdir", "many", nil, fileproc.Options{}, (*victim).readDir},
	}
)

// A victim is a process whose calls fail. It checks what the run in it delivers.
type victim struct {
	job
	root, cache string
	files       map[string]bool // as filesOf returns them

	mu       sync.Mutex // guards what follows
	got      map[string]bool
	failed   map[string]error // by path; "" is root
	extra    int              // failures of a path that has one already
	wrong    []string
	reports  []*fileproc.Report
	err      error
	mayExtra bool // an ignore file failed, or was gone, so what it names may come
}

func (v *victim) object(format string, args ...any) {
	v.mu.Lock()
	v.wrong = append(v.wrong, fmt.Sprintf(format, args...))
	v.mu.Unlock()
}

// runVictim runs the mode of j, and prints what was wrong and then a line of counts. It returns an error if something was lost.
func runVictim(j job, root, cache string) error {
	v := &victim{job: j, root: root, cache: cache, files: filesOf(j.mode.tree), got: map[string]bool{}, failed: map[string]error{}}
	if strings.HasPrefix(j.mode.name, "cold") {
		v.forgetCached()
	}
	time.AfterFunc(time.Hour, func() {}).Stop() // the runtime's poller, whose descriptors stay
	switch j.t.call {
	case seccompRuns:
		if err := filters[j.fault].install(); err != nil {
			return err
		}
	case shortRuns:
		if err := giveShortCounts(j.fault); err != nil {
			fmt.Println("no short counts here:", err)
		}
	}
	before, goroutines := descriptors(), runtime.NumGoroutine()
	j.mode.run(v)
	v.judge()
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		v.object("%d goroutines are left", n-goroutines)
	}
	leaked := descriptors() - before
	for _, s := range v.wrong {
		fmt.Println("LOSS:", s)
	}
	for rel, err := range v.failed {
		fmt.Printf("failed %q: %v\n", rel, err)
	}
	fmt.Printf("delivered=%d failed=%d leaked=%d\n", len(v.got), len(v.failed)+v.extra, leaked)
	if len(v.wrong) > 0 {
		return fmt.Errorf("%d losses", len(v.wrong))
	}
	return nil
}

// giveShortCounts makes reads and listings return less than they were asked for, which the kernel may do at any time.
func giveShortCounts(seed string) error {
	n, err := strconv.ParseInt(seed, 10, 64)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewSource(n))
	calls := []uintptr{unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_GETDENTS64}
	return callfaults.Start(calls, func(c callfaults.Call) (int, unix.Errno, bool) {
		few := uint64(1 + random.Intn(100_000))
		if c.Number == unix.SYS_GETDENTS64 {
			few = uint64(280 + random.Intn(1000)) // an entry takes 280 bytes at most
		}
		if c.Args[2] <= few || random.Intn(3) == 0 {
			return 0, 0, false
		}
		n, errno := callfaults.Short(c, few)
		return n, errno, true
	})
}

// descriptors counts the open ones without an open.
func descriptors() (n int) {
	for fd := range 1024 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil {
			n++
		}
	}
	return n
}

// judge checks that each file is right, failed, or below a directory that failed, and that the ledgers balance.
func (v *victim) judge() {
	for i, r := range v.reports {
		sum := r.Processed + r.Unchanged + r.Failed + r.Abandoned
		for _, n := range r.Skipped {
			sum += n
		}
		if r.Found != sum || r.Abandoned != 0 {
			v.object("the ledger of run %d does not balance: %+v", i, *r)
		}
	}
	errno := v.errno()
	// With this error a link leads nowhere. It is then skipped, and no failure.
	linkIsGone := slices.Contains([]string{"ENOENT", "ENOTDIR", "ELOOP"}, errno)
	// With this one an entry is gone when the listing looks it up. Package os does not list it then.
	unlisted := fileproc.Backend() == "generic" && v.t.call == "newfstatat" && errno == "ENOENT"
	for rel, wanted := range v.files {
		if wanted && !v.got[rel] && !v.explained(rel) && !unlisted && !(linkIsGone && links[rel] != "") {
			v.object("%s is missing, and no failure says so; the run's error is %v", rel, v.err)
		}
	}
	for rel := range v.got {
		if wanted, ok := v.files[rel]; !wanted && !(ok && (v.mayExtra || errno == "ENOENT")) {
			v.object("%s was delivered", rel)
		}
	}
}

// explained reports whether a failure names rel or a directory above it.
func (v *victim) explained(rel string) bool {
	for ; rel != "."; rel = filepath.Dir(rel) {
		if v.failed[rel] != nil {
			return true
		}
	}
	return v.failed[rel] != nil
}

// failure is Options.OnError.
func (v *victim) failure(err error) error {
	var p *fs.PathError
	rel := ""
	if errors.As(err, &p) {
		rel, _ = filepath.Rel(v.root, p.Path)
	}
	if !filepath.IsLocal(rel) {
		v.object("a failure without a path below root: %v", err)
		return nil
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) && !errors.Is(err, fileproc.ErrChanged) && !errors.Is(err, os.ErrDeadlineExceeded) {
		v.object("a failure without its cause: %v", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.failed[rel] != nil {
		v.extra++
	}
	v.failed[rel] = err
	v.mayExtra = v.mayExtra || filepath.Base(rel) == ".ignore"
	return nil
}

// ended takes the error of a run, which is the failure of root if there is one.
func (v *victim) ended(err error) {
	if v.err = err; err != nil {
		v.failure(err)
	}
}

func (v *victim) deliver(rels ...string) {
	for _, rel := range rels {
		if v.got[rel] {
			v.object("%s was delivered twice", rel)
		}
		v.got[rel] = true
	}
}

// file is the fn of all modes.
func (v *victim) file(f *fileproc.File) (string, error) {
	rel := canonical(filepath.ToSlash(f.Rel()))
	if err := (&trial.Run{Opts: v.mode.opts}).Check(f, contentOf(rel)); err != nil {
		v.object("%v", err)
	}
	if v.mode.name != "open" {
		return rel, nil
	}
	h, err := f.Open()
	if err == nil {
		h.Close()
	}
	return rel, err // which must have its cause
}

// options returns those of the next run.
func (v *victim) options() fileproc.Options {
	opts := v.mode.opts
	opts.Report, opts.OnError = &fileproc.Report{}, v.failure
	v.reports = append(v.reports, opts.Report)
	return opts
}

func (v *victim) process() {
	results, err := fileproc.Process(context.Background(), v.root, v.options(), v.file)
	v.deliver(results...)
	v.ended(err)
}

func (v *victim) stream() {
	last := ""
	for rel, err := range fileproc.Stream(context.Background(), v.root, v.options(), v.file) {
		if err != nil {
			v.ended(err)
			continue
		}
		if slices.Compare(strings.Split(last, "/"), strings.Split(rel, "/")) >= 0 && last != "" {
			v.object("%s comes after %s", rel, last)
		}
		last = rel
		v.deliver(rel)
	}
}

func (v *victim) walk() {
	for e, err := range fileproc.Walk(context.Background(), v.root, v.options()) {
		switch {
		case err != nil:
			v.ended(err)
		case !e.IsDir():
			rel := filepath.ToSlash(e.Rel())
			if s, _ := e.Stat(); s.Size != int64(len(contentOf(rel))) {
				v.object("%s: Stat returns %+v", rel, s)
			}
			v.deliver(rel)
		}
	}
}

func (v *victim) namedFiles() {
	v.mode.opts.Files = slices.Values(slices.Sorted(maps.Keys(v.files)))
	v.process()
}

// again processes the files, and then those that are not in the cache.
func (v *victim) again() {
	for i := range 2 {
		v.extra += len(v.failed)
		v.got, v.failed = map[string]bool{}, map[string]error{}
		inc := incremental.Options[string]{File: v.cache, Version: "1"}
		results, err := incremental.Process(context.Background(), v.root, inc, v.options(), v.file)
		v.deliver(results...)
		if err != nil && !errors.Is(err, incremental.ErrNotSaved) {
			v.ended(err)
		}
		if i == 0 {
			v.judge()
		}
	}
}

// forgetCached drops the files from the page cache.
func (v *victim) forgetCached() {
	for rel := range v.files {
		if fd, err := unix.Open(filepath.Join(v.root, rel), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
			unix.Close(fd)
		}
	}
}

func (v *victim) readDir() {
	for _, dir := range []string{"", "sub"} {
		entries, err := fileproc.ReadDir(filepath.Join(v.root, dir))
		for _, e := range entries {
			if !e.IsDir() {
				v.deliver(filepath.ToSlash(filepath.Join(dir, e.Name())))
			}
		}
		if err != nil {
			v.failure(err)
		}
	}
}

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

// filesOf returns the files of a tree, and which of them a run delivers.
func filesOf(tree string) map[string]bool {
	names := "large middle z"
	numbered := func(n int, stem string) {
		for i := range n {
			names += fmt.Sprint(" ", stem, i)
		}
	}
	switch tree {
	case "small":
		for _, dir := range strings.Fields("a a/b a/b/c a/b/c/d e f/g h") {
			numbered(5, dir+"/file")
		}
		numbered(30, "h/more")
	case "many":
		names = ""
		numbered(1400, "file")
		numbered(400, "sub/file")
	case "links":
		names = `one two .ignore ignored1 a/one a/ignored2 a/three a/b/two a/b/.ignore a/b/ignored3 c/one c/to-file
			marked/one marked/CACHEDIR.TAG`
	}
	files := map[string]bool{}
	for _, rel := range strings.Fields(names) {
		files[rel] = !strings.HasPrefix(path.Base(rel), "ignored") && !strings.HasPrefix(rel, "marked/")
	}
	return files
}

// plant writes the tree below root.
func plant(name, root string) error {
	var rels []string
	for rel := range filesOf(name) {
		if links[rel] == "" {
			rels = append(rels, rel)
		}
	}
	if name != "links" {
		return trial.Write(root, contentOf, append(rels, "empty/")...)
	}
	err := trial.Write(root, contentOf, append(rels, "c/")...)
	for link, target := range links {
		err = errors.Join(err, os.Symlink(target, filepath.Join(root, link)))
	}
	return err
}
