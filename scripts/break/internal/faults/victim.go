//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/callfaults"
	"golang.org/x/sys/unix"
)

// A mode is one way to use the package. Its run is what calls fail in.
type mode struct {
	name string
	tree string
	// backends are those that the mode is run on; nil: all. What it is for, the others do not do.
	backends []string
	run      func(v *victim)
}

var (
	linuxOnly = []string{"linux", "nouring"}
	modes     = []mode{
		{"process", "small", nil, func(v *victim) { v.process(fileproc.Options{Workers: 2}) }},
		{"many", "many", linuxOnly, func(v *victim) { v.process(fileproc.Options{Workers: 1}) }},
		{"ordered", "small", nil, func(v *victim) { v.stream(fileproc.Options{Workers: 2, Ordered: true}) }},
		{"walk", "small", nil, (*victim).walk},
		{"open", "small", nil, (*victim).openEach},
		{"links", "links", nil, (*victim).links},
		{"files", "small", nil, (*victim).namedFiles},
		{"again", "small", nil, (*victim).again},
		{"stat", "many", linuxOnly, func(v *victim) {
			v.process(fileproc.Options{Workers: 1, ReadSize: fileproc.NoRead, Stat: true})
		}},
		{"cold", "many", linuxOnly, (*victim).cold},
		{"coldordered", "many", linuxOnly, func(v *victim) {
			v.forgetCached()
			v.stream(fileproc.Options{Workers: 2, Ordered: true})
		}},
		{"readdir", "many", nil, (*victim).readDir},
	}
)

// A victim is a process whose calls fail. It checks what the run in it delivers.
type victim struct {
	root, cache string
	want        map[string]bool // the files, by path

	mu       sync.Mutex // guards what follows
	got      map[string]bool
	failed   map[string]error // by path; "" is root
	extra    int              // failures of a path that has one already
	wrong    []string
	reports  []fileproc.Report
	err      error
	mayExtra bool // an ignore file failed, or was gone, so what it names may come
}

func (v *victim) object(format string, args ...any) {
	v.mu.Lock()
	v.wrong = append(v.wrong, fmt.Sprintf(format, args...))
	v.mu.Unlock()
}

// runVictim runs the mode, and prints what was wrong and then a line of counts. It returns the exit status: 0 if nothing was
// lost, 1 if something was.
func runVictim(name, root, cache string, short int64) int {
	i := slices.IndexFunc(modes, func(m mode) bool { return m.name == name })
	if i < 0 {
		fmt.Println("no mode", name)
		return 2
	}
	v := &victim{root: root, cache: cache, want: treeOf(modes[i].tree), got: map[string]bool{}, failed: map[string]error{}}
	time.AfterFunc(time.Hour, func() {}).Stop() // the runtime's poller, whose descriptors stay
	if short > 0 {
		if err := giveShortCounts(short); err != nil {
			fmt.Println("no short counts here:", err)
		}
	}
	before := descriptors()
	goroutines := runtime.NumGoroutine()
	modes[i].run(v)
	v.judge(modes[i].tree)
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
		return 1
	}
	return 0
}

// giveShortCounts makes reads and listings return less than they were asked for, which the kernel may do at any time.
func giveShortCounts(seed int64) error {
	random := rand.New(rand.NewSource(seed))
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
func (v *victim) judge(tree string) {
	for i, r := range v.reports {
		sum := r.Processed + r.Unchanged + r.Failed + r.Abandoned
		for _, n := range r.Skipped {
			sum += n
		}
		if r.Found != sum || r.Abandoned != 0 {
			v.object("the ledger of run %d does not balance: %+v", i, r)
		}
	}
	for rel := range v.want {
		if rel == "c/to-file" && linkIsGone() || unlisted() {
			continue
		}
		if !v.got[rel] && !v.explained(rel) {
			v.object("%s is missing, and no failure says so; the run's error is %v", rel, v.err)
		}
	}
	for rel := range v.got {
		if !v.want[rel] && !((v.mayExtra || injected() == "ENOENT") && treeAll(tree)[rel]) {
			v.object("%s was delivered", rel)
		}
	}
}

// injectedVariable is the environment variable with the name of the error that this process's calls are to meet.
const injectedVariable = "FAULTS_INJECTED"

func injected() string { return strings.TrimSuffix(os.Getenv(injectedVariable), "-lookup") }

// unlisted reports whether the fault says that an entry is gone when the listing looks it up. Package os does not list it then.
func unlisted() bool {
	return fileproc.Backend() == "generic" && os.Getenv(injectedVariable) == "ENOENT-lookup"
}

// linkIsGone reports whether the error says that a link leads nowhere. It is then skipped, and no failure.
func linkIsGone() bool { return slices.Contains([]string{"ENOENT", "ENOTDIR", "ELOOP"}, injected()) }

// explained reports whether a failure names rel or a directory above it.
func (v *victim) explained(rel string) bool {
	for at := rel; ; {
		if v.failed[at] != nil {
			return true
		}
		if at == "" {
			return false
		}
		if at = filepath.Dir(at); at == "." {
			at = ""
		}
	}
}

// failure is Options.OnError.
func (v *victim) failure(err error) error {
	var p *fs.PathError
	if !errors.As(err, &p) {
		v.object("a failure without a path: %v", err)
		return nil
	}
	rel, e := filepath.Rel(v.root, p.Path)
	if e != nil {
		v.object("a failure outside root: %v", err)
		return nil
	}
	if rel == "." {
		rel = ""
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
	if filepath.Base(rel) == ".ignore" {
		v.mayExtra = true
	}
	return nil
}

// ended takes the error of a run, which is the failure of root if there is one.
func (v *victim) ended(err error) {
	if v.err = err; err != nil {
		v.failure(err)
	}
}

func (v *victim) deliver(rel string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.got[rel] {
		v.wrong = append(v.wrong, rel+" was delivered twice")
	}
	v.got[rel] = true
}

// file is what each mode's fn does.
func (v *victim) file(f *fileproc.File) (string, error) {
	rel := canonical(filepath.ToSlash(f.Rel()))
	if !bytes.Equal(f.Data(), contentOf(rel)) {
		v.object("%s: %d bytes, and not those of the file", rel, len(f.Data()))
	}
	return rel, nil
}

func (v *victim) options(opts fileproc.Options) fileproc.Options {
	v.reports = append(v.reports, fileproc.Report{})
	opts.Report = &v.reports[len(v.reports)-1]
	opts.OnError = v.failure
	return opts
}

func (v *victim) process(opts fileproc.Options) {
	fn := v.file
	if opts.ReadSize == fileproc.NoRead {
		fn = v.statOf
	}
	results, err := fileproc.Process(context.Background(), v.root, v.options(opts), fn)
	for _, rel := range results {
		v.deliver(rel)
	}
	v.ended(err)
}

func (v *victim) statOf(f *fileproc.File) (string, error) {
	rel := filepath.ToSlash(f.Rel())
	s, err := f.Stat()
	if err != nil || s.Size != int64(len(contentOf(rel))) {
		v.object("%s: Stat returns %+v, %v", rel, s, err)
	}
	return rel, nil
}

func (v *victim) stream(opts fileproc.Options) {
	last := ""
	for rel, err := range fileproc.Stream(context.Background(), v.root, v.options(opts), v.file) {
		if err != nil {
			v.ended(err)
			continue
		}
		if opts.Ordered && slices.Compare(strings.Split(last, "/"), strings.Split(rel, "/")) >= 0 && last != "" {
			v.object("%s comes after %s", rel, last)
		}
		last = rel
		v.deliver(rel)
	}
}

func (v *victim) walk() {
	for e, err := range fileproc.Walk(context.Background(), v.root, v.options(fileproc.Options{Workers: 2, Stat: true})) {
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

// openEach reads a prefix and the metadata of each file, and opens it.
func (v *victim) openEach() {
	opts := v.options(fileproc.Options{Workers: 2, ReadSize: 100, Stat: true})
	v.ended(fileproc.ForEach(context.Background(), v.root, opts, func(f *fileproc.File) error {
		rel := filepath.ToSlash(f.Rel())
		whole := contentOf(rel)
		if !bytes.Equal(f.Data(), whole[:min(100, len(whole))]) || f.Truncated() != (len(whole) > 100) {
			v.object("%s: %d bytes, and not those of the file", rel, len(f.Data()))
		}
		if s, err := f.Stat(); err != nil || s.Size != int64(len(whole)) {
			v.object("%s: Stat returns %+v, %v", rel, s, err)
		}
		h, err := f.Open()
		if err != nil {
			return err // it must have its cause
		}
		h.Close()
		v.deliver(rel)
		return nil
	}))
}

func (v *victim) links() {
	v.process(fileproc.Options{Workers: 2, Symlinks: fileproc.SymlinksFollow, IgnoreFiles: []string{".ignore"}, OneFilesystem: true,
		SkipMarked: []string{"CACHEDIR.TAG"}})
}

func (v *victim) namedFiles() {
	var rels []string
	for rel := range v.want {
		rels = append(rels, rel)
	}
	slices.Sort(rels)
	v.process(fileproc.Options{Workers: 2, Files: slices.Values(rels)})
}

// again processes the files, and then those that are not in the cache.
func (v *victim) again() {
	for i := range 2 {
		v.extra += len(v.failed)
		v.got, v.failed = map[string]bool{}, map[string]error{}
		inc := incremental.Options[string]{File: v.cache, Version: "1"}
		opts := v.options(fileproc.Options{Workers: 2})
		results, err := incremental.Process(context.Background(), v.root, inc, opts, v.file)
		for _, rel := range results {
			v.deliver(rel)
		}
		if err != nil && !errors.Is(err, incremental.ErrNotSaved) {
			v.ended(err)
		}
		if i == 0 {
			v.judge("small")
		}
	}
}

func (v *victim) cold() {
	v.forgetCached()
	v.process(fileproc.Options{Workers: 2})
}

// forgetCached drops the files from the page cache.
func (v *victim) forgetCached() {
	for rel := range v.want {
		if fd, err := unix.Open(filepath.Join(v.root, rel), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
			unix.Close(fd)
		}
	}
}

func (v *victim) readDir() {
	list := func(dir string) {
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
	list("")
	list("sub")
}
