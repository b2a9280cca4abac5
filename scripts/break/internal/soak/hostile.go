//go:build linux

package soak

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"golang.org/x/sys/unix"
)

// A hostileTree is a directory with root, what runs read; outside, which they must not read; and aside, where the racer keeps
// what it swaps into root.
type hostileTree struct {
	base   string
	calm   map[string]bool // files that no swap moves or hides, by path relative to root
	bodies map[string]bool // the contents of all files that began in root
	names  []string        // what the racer swaps, by path relative to root: directories, files and links at every depth
}

func (t *hostileTree) root() string { return filepath.Join(t.base, "root") }

const (
	secret     = "SECRET: this file is outside root\n"
	fifoSecret = "SECRET: these bytes are in a FIFO\n"
	hostileFan = 3 // directories in each
	hostileLow = 4 // levels of directories
)

// writeHostile makes a tree. Outside has the same names as root, so that a link in a directory's place finds something.
func writeHostile(base string) (*hostileTree, error) {
	t := &hostileTree{base: base, calm: map[string]bool{}, bodies: map[string]bool{}}
	write := func(rel string, calm bool) error {
		body := testtree.BytesOf(rel)
		t.bodies[string(body)] = true
		if calm {
			t.calm[rel] = true
		} else {
			t.names = append(t.names, rel)
		}
		return errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(base, "outside", rel)), 0o755),
			os.MkdirAll(filepath.Dir(filepath.Join(t.root(), rel)), 0o755),
			os.WriteFile(filepath.Join(base, "outside", rel), []byte(secret), 0o644),
			os.WriteFile(filepath.Join(t.root(), rel), body, 0o644))
	}
	var fill func(rel string, depth int) error
	fill = func(rel string, depth int) error {
		for i := range 4 {
			if err := write(fmt.Sprintf("%sf%d", rel, i), false); err != nil {
				return err
			}
		}
		for i := range hostileFan {
			if depth == hostileLow {
				break
			}
			sub := fmt.Sprintf("%sd%d", rel, i)
			if err := fill(sub+"/", depth+1); err != nil {
				return err
			}
			t.names = append(t.names, sub)
		}
		// Links to follow: to a file and to directories of the tree, through directories that the racer swaps.
		for i, to := range []string{"f0", "d1/d2/f1", "d1/d2"} {
			link := fmt.Sprintf("%sl%d", rel, i)
			if err := os.Symlink(filepath.Join(t.root(), to), filepath.Join(t.root(), link)); err != nil {
				return err
			}
			t.names = append(t.names, link)
		}
		return nil
	}
	err := fill("", 1)
	for i := range 300 {
		err = errors.Join(err, write(fmt.Sprintf("calm%d/f%03d", i%4, i), true))
	}
	return t, err
}

// standIns makes in base/aside what the racer swaps into root, and returns the paths and the kinds left out.
func standIns(base string) (paths, leftOut []string, fifo *os.File, err error) {
	aside, outside := filepath.Join(base, "aside"), filepath.Join(base, "outside")
	if err = os.Mkdir(aside, 0o755); err != nil {
		return nil, nil, nil, err
	}
	n := 0
	put := func(kind string, do func(path string) error) {
		path := filepath.Join(aside, fmt.Sprintf("%02d", n))
		n++
		if e := do(path); e != nil {
			leftOut = append(leftOut, fmt.Sprintf("%s: %v", kind, e))
			return
		}
		paths = append(paths, path)
	}
	link := func(to string) func(string) error { return func(path string) error { return os.Symlink(to, path) } }
	for _, to := range []string{outside, outside + "/d0", outside + "/d1/d2", outside + "/f0", outside + "/calm0/f000", "/etc", "/etc/passwd",
		"../outside", "../../outside", "../../../outside/d1", "..", ".", "nowhere", base} {
		put("link", link(to))
	}
	written := filepath.Join(base, "fifo")
	if err = unix.Mkfifo(written, 0o644); err == nil {
		if fifo, err = os.OpenFile(written, os.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
			_, err = fifo.WriteString(fifoSecret)
		}
	}
	if err != nil {
		return nil, nil, nil, err
	}
	for range 6 { // as many as links, since a run must come at the one moment between listing and opening
		put("FIFO with a writer", func(path string) error { return os.Link(written, path) })
		put("FIFO", func(path string) error { return unix.Mkfifo(path, 0o644) })
	}
	put("socket", func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o644, 0) })
	for name, number := range map[string]uint64{"zero": unix.Mkdev(1, 5), "null": unix.Mkdev(1, 3), "full": unix.Mkdev(1, 7), "random": unix.Mkdev(1, 9), "kernel log": unix.Mkdev(1, 11)} {
		put("device "+name, func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(number)) })
	}
	put("block device", func(path string) error { return unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 99))) })
	put("directory", func(path string) error { return os.Mkdir(path, 0o755) })
	put("directory full of links", func(path string) error {
		e := os.Mkdir(path, 0o755)
		for _, name := range []string{"d0", "d1", "d2", "f0", "f1", "l0"} {
			e = errors.Join(e, os.Symlink(filepath.Join(outside, name), filepath.Join(path, name)))
		}
		return e
	})
	return paths, leftOut, fifo, nil
}

// Racer is a process of its own: it swaps entries of root with stand-ins, and with each other, until its input ends. It swaps
// most back at once, and a few dozen later. Then it prints how many swaps there were.
func Racer(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("racer", flag.ContinueOnError)
	base := flags.String("base", "", "directory of the tree")
	seed := flags.Int64("seed", 1, "seed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var names []string
	input := bufio.NewReader(os.Stdin)
	for {
		line, err := input.ReadString('\n')
		if line = strings.TrimSpace(line); err != nil || line == "" {
			break
		}
		names = append(names, filepath.Join(*base, "root", line))
	}
	stands, leftOut, fifo, err := standIns(*base)
	if err != nil {
		return err
	}
	var stop atomic.Bool
	go func() {
		input.ReadString('\n')
		stop.Store(true)
	}()
	random := rand.New(rand.NewSource(*seed))
	swaps, refused := 0, 0
	exchange := func(a, b string) bool {
		// Through a link the racer itself would move files of outside into root.
		from, e1 := unix.Openat2(unix.AT_FDCWD, filepath.Dir(a), &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
		to, e2 := unix.Openat2(unix.AT_FDCWD, filepath.Dir(b), &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
		err := cmp.Or(e1, e2)
		if err == nil {
			err = unix.Renameat2(from, filepath.Base(a), to, filepath.Base(b), unix.RENAME_EXCHANGE)
		}
		for fd, err := range map[int]error{from: e1, to: e2} {
			if err == nil {
				unix.Close(fd)
			}
		}
		if err != nil {
			refused++
			return false
		}
		swaps++
		return true
	}
	wait := func(most int) {
		for range random.Intn(most) {
			if stop.Load() {
				return
			}
		}
	}
	type pair struct{ a, b string }
	var standing []pair
	fmt.Println("racing")
	for !stop.Load() {
		p := pair{names[random.Intn(len(names))], stands[random.Intn(len(stands))]}
		if random.Intn(4) == 0 {
			p.b = names[random.Intn(len(names))]
		}
		if !exchange(p.a, p.b) {
			continue
		}
		wait([]int{100, 3000, 100_000}[random.Intn(3)])
		if random.Intn(4) > 0 {
			exchange(p.a, p.b)
		} else if standing = append(standing, p); len(standing) > 40 {
			for _, p := range slices.Backward(standing) { // the last first, so that all is in its place again
				exchange(p.a, p.b)
			}
			standing = standing[:0]
		}
	}
	content := make([]byte, 2*len(fifoSecret))
	n, _ := fifo.Read(content)
	fmt.Printf("swaps %d refused %d fifo %v\n", swaps, refused, string(content[:n]) == fifoSecret)
	for _, what := range leftOut {
		fmt.Println("left out:", what)
	}
	return nil
}

// A hostileTrial is one run over a tree that is being swapped.
type hostileTrial struct {
	entry string // Process, Stream or Walk
	opts  fileproc.Options
	open  bool // fn opens the file once more
}

func newHostileTrial(random *rand.Rand) hostileTrial {
	c := hostileTrial{entry: []string{"Process", "Process", "Stream", "Walk"}[random.Intn(4)], open: random.Intn(4) == 0}
	c.opts.Workers = 1 + random.Intn(8)
	c.opts.MaxFileSize = 1 << 20 // a device that is read has no end
	c.opts.Ordered = random.Intn(3) == 0
	c.opts.DisableURing = random.Intn(2) == 0
	c.opts.Symlinks = []fileproc.Symlinks{fileproc.SymlinksSkip, fileproc.SymlinksSkip, fileproc.SymlinksFiles, fileproc.SymlinksFollow}[random.Intn(4)]
	c.opts.SymlinksOutside = c.opts.Symlinks != fileproc.SymlinksSkip && random.Intn(8) == 0
	if c.entry != "Process" && c.opts.Symlinks == fileproc.SymlinksFollow {
		c.opts.Ordered = false // the targets of links come last
	}
	c.opts.ReadSize = []int{0, 0, 0, 100, 4096}[random.Intn(5)]
	c.opts.Stat = random.Intn(4) == 0
	c.opts.OneFilesystem = random.Intn(8) == 0
	if random.Intn(8) == 0 {
		c.opts.IgnoreFiles = []string{".gitignore", "f9"}
	}
	if c.opts.SymlinksOutside { // one of the links is to /etc and one to the directory of the test
		c.opts.MaxDepth = 3
	}
	return c
}

func (c hostileTrial) String() string {
	o := c.opts
	return fmt.Sprintf("%s: Workers %d, Ordered %v, DisableURing %v, Symlinks %v, SymlinksOutside %v, ReadSize %d, Stat %v, OneFilesystem %v, MaxDepth %d, Open %v",
		c.entry, o.Workers, o.Ordered, o.DisableURing, o.Symlinks, o.SymlinksOutside, o.ReadSize, o.Stat, o.OneFilesystem, o.MaxDepth, c.open)
}

// check returns what is wrong with data, the content of a file or its first bytes.
func (c hostileTrial) check(t *hostileTree, rel string, data []byte, all bool) error {
	switch {
	case bytes.Contains(data, []byte(fifoSecret)):
		return fmt.Errorf("%s: bytes of a FIFO", rel)
	case c.opts.SymlinksOutside:
		return nil // outside may be read
	case bytes.Contains(data, []byte("SECRET")) || bytes.Contains(data, []byte("root:")):
		return fmt.Errorf("%s: LEAKED from outside root: %.60q", rel, data)
	case t.calm[rel]:
		want := testtree.BytesOf(rel)
		if all && !bytes.Equal(data, want) || !bytes.HasPrefix(want, data) {
			return fmt.Errorf("%s: %d bytes that differ from the file's %d", rel, len(data), len(want))
		}
	case all:
		if !t.bodies[string(data)] {
			return fmt.Errorf("%s: %d bytes that no file of root has: %.60q", rel, len(data), data)
		}
	default:
		for body := range t.bodies {
			if strings.HasPrefix(body, string(data)) {
				return nil
			}
		}
		return fmt.Errorf("%s: %d bytes with which no file of root begins: %.60q", rel, len(data), data)
	}
	return nil
}

// run runs c and returns the number of files whose content it has checked.
func (c hostileTrial) run(t *hostileTree) (files int64, err error) {
	var mu sync.Mutex // guards the fields below
	var wrong error
	seen := map[string]int{}
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		wrong = errors.Join(wrong, err)
	}
	see := func(rel string) {
		mu.Lock()
		defer mu.Unlock()
		seen[rel]++
	}
	fn := func(f *fileproc.File) (int, error) {
		see(f.Rel())
		if err := c.check(t, f.Rel(), f.Data(), !f.Truncated()); err != nil {
			fail(err)
		}
		if s, err := f.Stat(); c.opts.Stat && (err != nil || !s.Mode.IsRegular()) {
			fail(fmt.Errorf("%s: Stat returns %v, %v", f.Rel(), s.Mode, err))
		}
		if c.open {
			if file, err := f.Open(); err == nil {
				data, err := io.ReadAll(file)
				file.Close()
				if err == nil {
					err = c.check(t, f.Rel(), data, true)
				}
				if err != nil {
					fail(fmt.Errorf("through Open: %w", err))
				}
			} else if t.calm[f.Rel()] {
				fail(fmt.Errorf("open: %w", err))
			}
		}
		return 0, nil
	}
	var report fileproc.Report
	opts := c.opts
	opts.Report = &report
	opts.OnError = func(err error) error {
		var p *fs.PathError
		if !errors.As(err, &p) {
			fail(fmt.Errorf("an error without a path: %w", err))
		} else if rel, _ := filepath.Rel(t.root(), p.Path); t.calm[rel] || strings.HasPrefix(rel, "calm") && !strings.Contains(rel, "/") {
			fail(fmt.Errorf("a calm file failed: %w", err))
		} else if !errors.Is(err, fileproc.ErrChanged) && c.opts.Symlinks == fileproc.SymlinksSkip {
			fail(fmt.Errorf("a failure that no swap explains: %w", err))
		}
		return nil
	}
	err = within(30*time.Second, func() error {
		switch c.entry {
		case "Process":
			_, err := fileproc.Process(context.Background(), t.root(), opts, fn)
			return err
		case "Stream":
			for _, err := range fileproc.Stream(context.Background(), t.root(), opts, fn) {
				if err != nil {
					fail(err)
				}
			}
		case "Walk":
			for e, err := range fileproc.Walk(context.Background(), t.root(), opts) {
				switch {
				case err != nil:
					fail(err)
				case !e.IsDir():
					see(e.Rel())
				}
			}
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if err = errors.Join(wrong, err); err != nil {
		return 0, err
	}
	if err := balances(true, &report); err != nil {
		return 0, err
	}
	for rel, n := range seen {
		if t.calm[rel] && n != 1 {
			return 0, fmt.Errorf("%s was delivered %d times", rel, n)
		}
	}
	for rel := range t.calm {
		if seen[rel] == 0 {
			return 0, fmt.Errorf("%s was not delivered", rel)
		}
	}
	if c.entry != "Walk" {
		files = report.Processed
	}
	return files, nil
}

// Hostile is the command hostile.
func Hostile(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("hostile", flag.ContinueOnError)
	duration := flags.Duration("for", time.Minute, "how long to run")
	seed := flags.Int64("seed", 1, "seed of the swaps and the options")
	dir := flags.String("dir", "", "parent of the tree (default: the temporary directory)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	base, err := os.MkdirTemp(*dir, "hostile")
	if err != nil {
		return err
	}
	if base, err = filepath.EvalSymlinks(base); err != nil {
		return err
	}
	defer os.RemoveAll(base)
	t, err := writeHostile(base)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "racer", "-base", base, "-seed", fmt.Sprint(*seed))
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Wait()
	defer stdin.Close()
	fmt.Fprintf(stdin, "%s\n\n", strings.Join(t.names, "\n"))
	output := bufio.NewReader(stdout)
	if line, err := output.ReadString('\n'); line != "racing\n" {
		return fmt.Errorf("the racer says %q, %v", line, err)
	}
	random := rand.New(rand.NewSource(*seed))
	runs, files := 0, int64(0)
	for start := time.Now(); time.Since(start) < *duration; runs++ {
		c := newHostileTrial(random)
		before := currentResources()
		n, err := c.run(t)
		if err == nil {
			err = leaked(before)
		}
		if err != nil {
			return fmt.Errorf("%w\nin run %d, %v\nto repeat: break hostile -seed %d", err, runs, c, *seed)
		}
		files += n
	}
	fmt.Fprintln(stdin, "stop")
	rest, err := io.ReadAll(output)
	if err != nil {
		return err
	}
	var swaps, refused int
	var whole bool
	if _, err := fmt.Sscanf(string(rest), "swaps %d refused %d fifo %v", &swaps, &refused, &whole); err != nil {
		return fmt.Errorf("the racer says %q: %w", rest, err)
	}
	if !whole {
		return errors.New("somebody has read from the FIFO")
	}
	fmt.Printf("backend %s: %d swaps (%d refused), %d runs, %d contents checked\n", fileproc.Backend(), swaps, refused, runs, files)
	for line := range strings.Lines(string(rest)) {
		if strings.HasPrefix(line, "left out") {
			fmt.Print("   ", line)
		}
	}
	fmt.Println("losses: 0")
	return nil
}
