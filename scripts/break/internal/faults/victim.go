//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/callfaults"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"golang.org/x/sys/unix"
)

// A mode is one way to use the package. Calls fail in its run.
type mode struct {
	name, tree, entry string
	backends          []string // the backends that do what the mode is about; nil: all
	opts              fileproc.Options
}

var (
	linuxOnly = []string{"linux", "nouring"}
	modes     = []mode{
		{"process", "small", "Process", nil, fileproc.Options{Workers: 2}},
		{"many", "many", "Process", linuxOnly, fileproc.Options{Workers: 1}},
		{"ordered", "small", "Stream", nil, fileproc.Options{Workers: 2, Ordered: true}},
		{"walk", "small", "Walk", nil, fileproc.Options{Workers: 2, Stat: true}},
		{"open", "small", "Process", nil, fileproc.Options{Workers: 2, ReadSize: 100, Stat: true}},
		{"links", "links", "Process", nil, fileproc.Options{Workers: 2, Symlinks: fileproc.SymlinksFollow, IgnoreFiles: []string{".ignore"},
			OneFilesystem: true, SkipMarked: []string{"CACHEDIR.TAG"}}},
		{"files", "small", "Process", nil, fileproc.Options{Workers: 2, Files: slices.Values(slices.Sorted(maps.Keys(filesOf("small"))))}},
		{"again", "small", "incremental", nil, fileproc.Options{Workers: 2}},
		{"stat", "many", "Process", linuxOnly, fileproc.Options{Workers: 1, ReadSize: fileproc.NoRead, Stat: true}},
		{"cold", "many", "Process", linuxOnly, fileproc.Options{Workers: 2}},
		{"coldordered", "many", "Stream", linuxOnly, fileproc.Options{Workers: 2, Ordered: true}},
		{"readdir", "many", "ReadDir", nil, fileproc.Options{}},
	}
)

// runVictim runs the mode of j in this process, whose calls fail. It prints the failures, the losses, and then a line of counts.
func runVictim(j job, root, cache string) {
	if strings.HasPrefix(j.mode.name, "cold") {
		forgetCached(j.mode.tree, root)
	}
	trial.Open() // opens the descriptors of the runtime's poller
	switch j.t.call {
	case seccompRuns:
		fail.On(filters[j.fault].install())
	case shortRuns:
		if err := giveShortCounts(j.fault); err != nil {
			fmt.Println("no short counts here:", err)
		}
	}
	runs := 1
	if j.mode.entry == "incremental" {
		runs = 2 // the second run is of files that are not in the page cache
	}
	var lost error
	var delivered, failed int
	before := trial.Open()
	for range runs {
		r, failures := j.newRun(root, cache)
		lost = errors.Join(lost, r.Deliver(context.Background()))
		delivered, failed = len(r.Seen), failed+*failures
	}
	left := trial.Left(before)
	if left[0] > 0 {
		lost = errors.Join(lost, fmt.Errorf("%d goroutines are left", left[0]))
	}
	if lost != nil {
		fmt.Println("LOSS:", lost)
	}
	fmt.Printf("delivered=%d failed=%d leaked=%d\n", delivered, failed, left[1])
	fail.On(lost)
}

// newRun returns a run in which each file must be right, failed, or below a directory that failed. It also returns the counter of failures.
func (j job) newRun(root, cache string) (r *trial.Run, failures *int) {
	files, failed := filesOf(j.mode.tree), map[string]bool{}
	failures = new(int)
	mayExtra := false // an ignore file failed, or was gone, so the run may deliver what it ignores
	errno := j.errno()
	// With these errors a link leads nowhere. The run skips it, which is no failure.
	linkIsGone := slices.Contains([]string{"ENOENT", "ENOTDIR", "ELOOP"}, errno)
	// With this error an entry is gone when the listing looks it up. Package os then does not list the entry.
	unlisted := fileproc.Backend() == "generic" && j.t.call == "newfstatat" && errno == "ENOENT"
	r = &trial.Run{Root: root, Entry: j.mode.entry, Opts: j.mode.opts, Cache: cache, Want: maps.Clone(files), Content: contentOf}
	maps.DeleteFunc(r.Want, func(_ string, wanted bool) bool { return !wanted })
	r.May = func(rel string) bool {
		_, known := files[rel]
		return known && (mayExtra || errno == "ENOENT")
	}
	r.Missing = func(rel string) bool {
		explained := failed["."]
		for at := rel; at != "."; at = filepath.Dir(at) {
			explained = explained || failed[at]
		}
		return explained || unlisted || linkIsGone && links[rel] != ""
	}
	r.File = func(f *fileproc.File, a *trial.Answer) error {
		a.ID = canonical(f.Rel())
		if j.mode.name != "open" {
			return nil
		}
		h, err := f.Open()
		if err == nil {
			h.Close()
		}
		return err // err must wrap its cause
	}
	var last []string
	r.Result = func(a trial.Answer) error {
		rel := strings.Split(a.Rel, "/")
		if j.mode.opts.Ordered && slices.Compare(last, rel) >= 0 {
			return fmt.Errorf("%s comes after %s", rel, last)
		}
		last = rel
		return nil
	}
	r.Failure = func(rel string, err error) error {
		fmt.Printf("failed %q: %v\n", rel, err)
		*failures++
		failed[rel] = true
		mayExtra = mayExtra || filepath.Base(rel) == ".ignore"
		var errno syscall.Errno
		if errors.As(err, &errno) || errors.Is(err, fileproc.ErrChanged) || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return err // err does not wrap its cause
	}
	r.Error = func(err error) error { // the failure of root
		if errors.Is(err, incremental.ErrNotSaved) {
			return nil
		}
		r.Failed(err)
		return nil
	}
	return r, failures
}

// giveShortCounts makes reads and listings return less than asked, which the kernel may do at any time.
func giveShortCounts(seed string) error {
	random := rand.New(rand.NewSource(fail.Must(strconv.ParseInt(seed, 10, 64))))
	calls := []uintptr{unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_GETDENTS64}
	return callfaults.Start(calls, func(c callfaults.Call) (int, unix.Errno, bool) {
		few := uint64(1 + random.Intn(100_000))
		if c.Number == unix.SYS_GETDENTS64 {
			few = uint64(280 + random.Intn(1000)) // an entry takes at most 280 bytes
		}
		if c.Args[2] <= few || random.Intn(3) == 0 {
			return 0, 0, false
		}
		n, errno := callfaults.Short(c, few)
		return n, errno, true
	})
}

func forgetCached(tree, root string) {
	for rel := range filesOf(tree) {
		if fd, err := unix.Open(filepath.Join(root, rel), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
			unix.Close(fd)
		}
	}
}

// largeSize is the size of the largest file. The package maps one byte more for it, a length for which no other code asks.
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

// links are the links of the tree "links", with their targets.
var links = map[string]string{"c/to-file": "../a/three", "c/to-dir": "../a/b", "c/up": "..", "dangling": "nothing"}

// canonical returns the path of a file of the tree "links" without links to directories. Which of two paths a run takes depends
// on what failed.
func canonical(rel string) string {
	if below, ok := strings.CutPrefix(rel, "c/to-dir/"); ok {
		return "a/b/" + below
	}
	return strings.TrimPrefix(rel, "c/up/")
}

// trees lists the files of each tree; dir/file*3 stands for dir/file0 to dir/file2.
var trees = map[string]string{
	"small": `large middle z a/file*5 a/b/file*5 a/b/c/file*5 a/b/c/d/file*5 e/file*5 f/g/file*5 h/file*5 h/more*30`,
	"many":  `file*1400 sub/file*400`,
	"links": `one two .ignore ignored1 a/one a/ignored2 a/three a/b/two a/b/.ignore a/b/ignored3 c/one c/to-file
		marked/one marked/CACHEDIR.TAG`,
}

// filesOf returns the files of a tree, and which of them a run delivers.
func filesOf(tree string) map[string]bool {
	files := map[string]bool{}
	for _, name := range strings.Fields(trees[tree]) {
		rel, times, numbered := strings.Cut(name, "*")
		n, _ := strconv.Atoi(times)
		for i := range max(n, 1) {
			if numbered {
				name = rel + strconv.Itoa(i)
			}
			files[name] = !strings.HasPrefix(path.Base(rel), "ignored") && !strings.HasPrefix(rel, "marked/")
		}
	}
	return files
}

func plant(name, root string) error {
	rels := []string{"empty/"}
	for rel := range filesOf(name) {
		if links[rel] == "" {
			rels = append(rels, rel)
		}
	}
	err := trial.Write(root, contentOf, rels...)
	for link, target := range links {
		if name == "links" {
			err = errors.Join(err, os.Symlink(target, filepath.Join(root, link)))
		}
	}
	return err
}
