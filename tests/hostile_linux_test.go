//go:build linux

package fileproc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	outsideSecret = "SECRET: this file is outside root\n"
	fifoSecret    = "SECRET: these bytes are in a FIFO\n"
)

// A hostileTree is a directory with root, what runs read; outside, which they must not read; and aside, where the racer keeps what
// it swaps into root.
type hostileTree struct {
	dir, root string
	calm      map[string]bool // files that no swap moves or hides, by path relative to root
	bodies    map[string]bool // the contents of all files that began in root
	swapped   []string        // paths of directories, files and links at every depth
	checked   atomic.Int64    // contents
}

// plantHostile makes a tree. Outside has the same names as root, so that a link in a directory's place finds something.
func plantHostile(t *testing.T) *hostileTree {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	h := &hostileTree{dir: dir, root: filepath.Join(dir, "root"), calm: map[string]bool{}, bodies: map[string]bool{}}
	var rels []string
	links := map[string]string{}
	var fill func(rel string, depth int)
	fill = func(rel string, depth int) {
		for i := range 4 {
			rels = append(rels, fmt.Sprintf("%sf%d", rel, i))
		}
		for i := 0; i < 3 && depth < 4; i++ {
			sub := fmt.Sprintf("%sd%d/", rel, i)
			fill(sub, depth+1)
			h.swapped = append(h.swapped, filepath.Join(h.root, sub))
		}
		// Links to follow: to a file and to directories of the tree, through directories that the racer swaps.
		for i, to := range []string{"f0", "d1/d2/f1", "d1/d2"} {
			links[filepath.Join(h.root, fmt.Sprintf("%sl%d", rel, i))] = filepath.Join(h.root, to)
		}
	}
	fill("", 1)
	for _, rel := range rels {
		h.swapped = append(h.swapped, filepath.Join(h.root, rel))
	}
	for i := range 300 {
		rel := fmt.Sprintf("calm%d/f%03d", i%4, i)
		rels, h.calm[rel] = append(rels, rel), true
	}
	for _, rel := range rels {
		h.bodies[string(testtree.BytesOf(rel))] = true
		for at, content := range map[string][]byte{h.root: testtree.BytesOf(rel), filepath.Join(dir, "outside"): []byte(outsideSecret)} {
			name := filepath.Join(at, rel)
			require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, content, 0o644)))
		}
	}
	h.swapped = slices.AppendSeq(h.swapped, maps.Keys(links))
	for link, to := range links {
		require.NoError(t, os.Symlink(to, link))
	}
	slices.Sort(h.swapped)
	return h
}

// TestInvariant3HostileTree makes runs over a tree while a racer swaps its entries, for as many seconds as FILEPROC_HOSTILE says.
func TestInvariant3HostileTree(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, defaultSlowCall) // runs here are as they are elsewhere
	h := plantHostile(t)
	c := newRacer(t, h)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 + runtime.GOMAXPROCS(0))) // the racer never waits
	var still sync.RWMutex                                                  // locked while leaks are looked for
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for random := rand.New(rand.NewPCG(0, 1)); ; {
			select {
			case <-stop:
				return
			default:
				still.RLock()
				c.swap(random)
				still.RUnlock()
			}
		}
	}()
	runs := 0
	end := time.Now().Add(time.Duration(testtree.Rounds(t, "FILEPROC_HOSTILE", 3)) * time.Second)
	for seed := uint64(0); !t.Failed() && time.Now().Before(end); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			watchdog(t)
			random := rand.New(rand.NewPCG(seed, 0))
			still.Lock()
			defer still.Unlock()
			for range 50 {
				runs++
				leavesNoRing(t, func() {
					still.Unlock()
					defer still.Lock()
					h.run(t, random)
				})
			}
		})
	}
	close(stop)
	<-stopped
	t.Logf("%d swaps during %d runs; %d contents checked", c.swaps, runs, h.checked.Load())
	said := make([]byte, 2*len(fifoSecret))
	n, err := c.fifo.Read(said)
	require.Equal(t, fifoSecret, string(said[:n]), "somebody has read from the FIFO or written to it: %v", err)
}

// run makes one run with random options.
func (h *hostileTree) run(t *testing.T, random *rand.Rand) {
	var report fileproc.Report
	entry, open := pick(random, "Process", "Process", "Stream", "Walk"), random.IntN(4) == 0
	opts := fileproc.Options{
		Workers: 1 + random.IntN(pick(random, 4, 8, 64)), Ordered: random.IntN(3) == 0, DisableURing: random.IntN(3) == 0, Stat: random.IntN(5) == 0,
		ReadSize: pick(random, 0, 0, 0, fileproc.NoRead, 100, 512, 4096, 16<<10), OneFilesystem: random.IntN(8) == 0,
		MaxFileSize: 1 << 20, // a device that is read has no end
		Symlinks:    pick(random, fileproc.SymlinksSkip, fileproc.SymlinksSkip, fileproc.SymlinksFiles, fileproc.SymlinksFollow),
		Report:      &report,
	}
	if opts.SymlinksOutside = opts.Symlinks != fileproc.SymlinksSkip && random.IntN(8) == 0; opts.SymlinksOutside {
		opts.MaxDepth = 3 // one of the links is to /etc and one to the directory of the test
	}
	if entry != "Process" && opts.Symlinks == fileproc.SymlinksFollow {
		opts.Ordered = false // the targets of links come last
	}
	if random.IntN(8) == 0 {
		opts.IgnoreFiles = []string{".gitignore", "f9"}
	}
	var mu sync.Mutex
	var wrong []error
	fails := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	opts.OnError = func(err error) error {
		if !h.mayFail(&opts, err) {
			fails(fmt.Errorf("a failure that must not be: %w", err))
		}
		return nil
	}
	seen := map[string]int{}
	fn := func(f *fileproc.File) (string, error) {
		h.checked.Add(1)
		fails(h.check(&opts, f, open))
		return f.Rel(), nil
	}
	switch entry {
	case "Process":
		got, err := fileproc.Process(t.Context(), h.root, opts, fn)
		fails(err)
		for _, rel := range got {
			seen[rel]++
		}
	case "Stream":
		for rel, err := range fileproc.Stream(t.Context(), h.root, opts, fn) {
			fails(err)
			seen[rel]++
		}
	default:
		for e, err := range fileproc.Walk(t.Context(), h.root, opts) {
			fails(err)
			seen[e.Rel()]++
		}
	}
	for rel := range h.calm {
		if seen[rel] != 1 {
			fails(fmt.Errorf("%s came %d times", rel, seen[rel]))
		}
	}
	requireBalanced(t, report)
	require.Zero(t, report.Abandoned)
	require.NoError(t, errors.Join(wrong...), "%s, %+v", entry, opts)
}

// mayFail reports whether err is a failure that swaps explain.
func (h *hostileTree) mayFail(opts *fileproc.Options, err error) bool {
	rel, isBelow := "", false
	if f, ok := errors.AsType[*fileproc.Failure](err); ok {
		rel, isBelow = strings.CutPrefix(f.Path, h.root+"/")
	}
	isCalm := strings.HasPrefix(rel, "calm") && (h.calm[rel] || !strings.Contains(rel, "/"))
	return isBelow && !isCalm && (opts.Symlinks != fileproc.SymlinksSkip || errors.Is(err, fileproc.ErrChanged))
}

// check returns what is wrong with f, which it opens once more if open is set.
func (h *hostileTree) check(opts *fileproc.Options, f *fileproc.File, open bool) error {
	calm := h.calm[f.Rel()]
	if s, err := f.Stat(); opts.Stat && (err != nil || !s.Mode.IsRegular()) {
		return fmt.Errorf("%s: Stat returns %v, %w", f.Rel(), s.Mode, err)
	}
	if opts.ReadSize != fileproc.NoRead {
		err := h.content(opts, f.Data(), !f.Truncated())
		if calm && err == nil {
			err = exact(f, opts.ReadSize)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Rel(), err)
		}
	}
	if !open {
		return nil
	}
	file, err := f.Open()
	if err != nil && !calm {
		return nil
	}
	var data []byte
	if err == nil {
		defer file.Close()
		data, err = io.ReadAll(file)
	}
	if err = errors.Join(err, h.content(opts, data, true)); err != nil || calm && !bytes.Equal(data, testtree.BytesOf(f.Rel())) {
		return fmt.Errorf("%s, through Open: %d bytes, %w", f.Rel(), len(data), err)
	}
	return nil
}

// content returns an error if no file that began in root has data as its content, or, unless all is set, as its first bytes.
func (h *hostileTree) content(opts *fileproc.Options, data []byte, all bool) error {
	switch {
	case bytes.Contains(data, []byte(fifoSecret)):
		return errors.New("bytes of a FIFO")
	case opts.SymlinksOutside:
		return nil // outside may be read
	case bytes.Contains(data, []byte("SECRET")) || bytes.Contains(data, []byte("root:")):
		return fmt.Errorf("leaked from outside root: %.60q", data)
	case h.bodies[string(data)]:
		return nil
	}
	for body := range h.bodies {
		if !all && strings.HasPrefix(body, string(data)) {
			return nil
		}
	}
	return fmt.Errorf("%d bytes that no file of root has: %.60q", len(data), data)
}

// A racer swaps entries of root with stand-ins, and with each other.
type racer struct {
	names, stands []string
	fifo          *os.File // a stand-in that has bytes
	standing      [][2]string
	swaps         int
}

// newRacer makes the stand-ins in aside.
func newRacer(t *testing.T, h *hostileTree) *racer {
	c := &racer{names: h.swapped}
	outside, aside, written := filepath.Join(h.dir, "outside"), filepath.Join(h.dir, "aside"), filepath.Join(h.dir, "fifo")
	require.NoError(t, errors.Join(os.Mkdir(aside, 0o755), unix.Mkfifo(written, 0o644)))
	fifo, err := os.OpenFile(written, os.O_RDWR|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	t.Cleanup(func() { fifo.Close() })
	_, err = fifo.WriteString(fifoSecret)
	require.NoError(t, err)
	c.fifo = fifo
	put := func(kind string, do func(path string) error) {
		path := filepath.Join(aside, fmt.Sprint(len(c.stands)))
		if err := do(path); err != nil {
			t.Logf("left out: %s: %v", kind, err)
			return
		}
		c.stands = append(c.stands, path)
	}
	node := func(kind string, mode, major, minor uint32) {
		put(kind, func(path string) error { return unix.Mknod(path, mode|0o644, int(unix.Mkdev(major, minor))) })
	}
	for _, to := range []string{outside, outside + "/d0", outside + "/d1/d2", outside + "/f0", outside + "/calm0/f000", "/etc", "/etc/passwd",
		"../outside", "../../outside", "../../../outside/d1", "..", ".", "nowhere", h.dir} {
		put("link", func(path string) error { return os.Symlink(to, path) })
	}
	for range 6 { // as many as links, since a run must come at the one moment between listing and opening
		put("FIFO with a writer", func(path string) error { return os.Link(written, path) })
		node("FIFO", unix.S_IFIFO, 0, 0)
	}
	node("socket", unix.S_IFSOCK, 0, 0)
	for _, minor := range []uint32{3, 5, 7, 9, 11} {
		node("device null, zero, full, random or kernel log", unix.S_IFCHR, 1, minor)
	}
	node("block device", unix.S_IFBLK, 7, 99)
	put("directory", func(path string) error { return os.Mkdir(path, 0o755) })
	put("directory full of links", func(path string) error {
		err := os.Mkdir(path, 0o755)
		for _, name := range []string{"d0", "d1", "d2", "f0", "f1", "l0"} {
			err = errors.Join(err, os.Symlink(filepath.Join(outside, name), filepath.Join(path, name)))
		}
		return err
	})
	return c
}

// exchange swaps two entries. Through a link the racer itself would move files of outside into root.
func exchange(a, b string) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	from, err := unix.Openat2(unix.AT_FDCWD, filepath.Dir(a), &how)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	to, err := unix.Openat2(unix.AT_FDCWD, filepath.Dir(b), &how)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	return unix.Renameat2(from, filepath.Base(a), to, filepath.Base(b), unix.RENAME_EXCHANGE)
}

// swap is what the racer does again and again. It swaps most back at once, and a few dozen later.
func (c *racer) swap(random *rand.Rand) {
	a, b := pick(random, c.names...), pick(random, c.stands...)
	if random.IntN(4) == 0 {
		b = pick(random, c.names...)
	}
	if exchange(a, b) != nil {
		return
	}
	c.swaps++
	for range random.IntN(pick(random, 100, 3000, 100_000)) { // time for a run
	}
	if random.IntN(4) > 0 {
		_ = exchange(a, b)
	} else if c.standing = append(c.standing, [2]string{a, b}); len(c.standing) > 40 {
		for _, p := range slices.Backward(c.standing) { // the last first, so that all is in its place again
			_ = exchange(p[0], p[1])
		}
		c.standing = nil
	}
}
