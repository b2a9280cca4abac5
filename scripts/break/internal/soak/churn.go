//go:build linux

package soak

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/testtree"
)

// In a tree that writers churn, the first letter of a file's name says what they do with it:
//
//	s  nothing: it comes exactly once with exactly its bytes
//	r  it is replaced atomically: it comes whole, and is never older than what was there when the run began
//	n  it is renamed within the tree: it comes whole under any of its names, perhaps twice or not at all
//	w  it is rewritten in place: any of its bytes, or zeros
//	c  it is created and removed: its first bytes
//	t  it is a temporary file of an r: its first bytes
const churnDirs = 12

// A churnTree is a tree and what its writers have done.
type churnTree struct {
	root     string
	stable   []string                        // rels of s files
	replaced map[string]*[2]atomic.Int64     // by rel of an r file: the generation that it has for certain, and the highest begun
	sum      [len(churnActions)]atomic.Int64 // how many times the writers did each
	writers  sync.WaitGroup
	stop     atomic.Bool
	holding  sync.RWMutex // a writer holds it for reading while it changes something
}

var churnActions = [...]string{"replaced", "renamed", "rewritten", "created", "deleted", "directories moved", "directories made", "directories removed"}

// generation returns the content of generation gen of a file: a header, and bytes that follow from it.
func generation(id string, gen int64) []byte {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", id, gen)
	state := h.Sum64() | 1
	size := int(state % 6000)
	if state>>16%50 == 0 {
		size = 40_000 + int(state%200_000) // more than one read
	}
	p := fmt.Appendf(nil, "%s %d %d\n", id, gen, size)
	for len(p) < size {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		p = binary.LittleEndian.AppendUint64(p, state)
	}
	return p
}

// parseGeneration returns the file and the generation of content, which must be whole, or the beginning of one if prefix is set.
func parseGeneration(content []byte, prefix bool) (id string, gen int64, err error) {
	line, _, ok := bytes.Cut(content, []byte("\n"))
	var size int
	if _, err := fmt.Sscanf(string(line), "%s %d %d", &id, &gen, &size); !ok || err != nil {
		if prefix && len(content) < 60 {
			return "", -1, nil
		}
		return "", 0, fmt.Errorf("torn: %d bytes that begin with %.40q", len(content), content)
	}
	want := generation(id, gen)
	if !bytes.Equal(want, content) && !(prefix && bytes.HasPrefix(want, content)) {
		return "", 0, fmt.Errorf("torn: %d bytes that are not the %d of generation %d of %s", len(content), len(want), gen, id)
	}
	return id, gen, nil
}

func churnDir(i int) string {
	if i%3 == 0 {
		return fmt.Sprintf("d%02d", i)
	}
	return fmt.Sprintf("d%02d/e%02d", i-i%3, i)
}

// writeChurn makes the tree that writers number writers will churn.
func writeChurn(root string, writers int) (*churnTree, error) {
	t := &churnTree{root: root, replaced: map[string]*[2]atomic.Int64{}}
	var err error
	put := func(rel string, content []byte) {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, rel), content, 0o644))
	}
	for i := range churnDirs {
		dir := churnDir(i)
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, dir), 0o755))
		for j := range 150 {
			rel := fmt.Sprintf("%s/s%03d", dir, j)
			put(rel, testtree.BytesOf(rel))
			t.stable = append(t.stable, rel)
		}
		for j := range 40 {
			rel := fmt.Sprintf("%s/r%03d", dir, j)
			put(rel, generation(rel, 0))
			t.replaced[rel] = new([2]atomic.Int64)
		}
		for w := range writers {
			for j := range 6 {
				rel := fmt.Sprintf("%s/n%d-%d", dir, w, j)
				put(rel, generation(rel, 0))
				put(fmt.Sprintf("%s/w%d-%d", dir, w, j), []byte("www"))
			}
		}
	}
	for w := range writers {
		for j := range 3 {
			dir := fmt.Sprintf("m%d-%d", w, j)
			err = errors.Join(err, os.Mkdir(filepath.Join(root, dir), 0o755))
			for k := range 20 {
				put(fmt.Sprintf("%s/n%d", dir, k), generation(fmt.Sprintf("%s/n%d", dir, k), 0))
			}
		}
	}
	return t, err
}

// writer changes the tree until t.stop is set. It alone has its files n, w, c and t, and its share of the r.
func (t *churnTree) writer(random *rand.Rand, w, writers int) error {
	in := func(rel string) string { return filepath.Join(t.root, rel) }
	var replaced, renamed, rewritten, moved, made, created []string
	for i := range churnDirs {
		for j := range 40 {
			if j%writers == w {
				replaced = append(replaced, fmt.Sprintf("%s/r%03d", churnDir(i), j))
			}
		}
		for j := range 6 {
			renamed = append(renamed, fmt.Sprintf("%s/n%d-%d", churnDir(i), w, j))
			rewritten = append(rewritten, fmt.Sprintf("%s/w%d-%d", churnDir(i), w, j))
		}
	}
	for j := range 3 {
		moved = append(moved, fmt.Sprintf("m%d-%d", w, j))
	}
	any := func(of []string) int { return random.Intn(len(of)) }
	step := func(k int) (done int, err error) {
		dir := churnDir(random.Intn(churnDirs))
		switch what := random.Intn(20); {
		case what < 8:
			rel := replaced[any(replaced)]
			gens := t.replaced[rel]
			gen := gens[1].Add(1)
			temp := in(fmt.Sprintf("%s/t%d", filepath.Dir(rel), w))
			if err = os.WriteFile(temp, generation(rel, gen), 0o644); err == nil {
				err = os.Rename(temp, in(rel))
			}
			gens[0].Store(gen)
			return 0, err
		case what < 11:
			i := any(renamed)
			to := fmt.Sprintf("%s/n%d-%d-%d", dir, w, i, k)
			err, renamed[i] = os.Rename(in(renamed[i]), in(to)), to
			return 1, err
		case what < 14:
			flags := []int{os.O_TRUNC, os.O_APPEND, 0}[random.Intn(3)]
			f, err := os.OpenFile(in(rewritten[any(rewritten)]), os.O_WRONLY|flags, 0o644)
			if err != nil {
				return 2, err
			}
			defer f.Close()
			if s, err := f.Stat(); err != nil || s.Size() > 100_000 {
				return 2, errors.Join(err, f.Truncate(0))
			}
			_, err = f.Write(bytes.Repeat([]byte{'w'}, random.Intn(5000)))
			return 2, err
		case what < 17:
			rel := fmt.Sprintf("%s/c%d-%d", dir, w, k)
			created = append(created, rel)
			return 3, os.WriteFile(in(rel), generation(rel, 0), 0o644)
		case what < 19 && len(created) > 0:
			i := any(created)
			if len(created) < 200 && random.Intn(4) == 0 {
				return 4, nil
			}
			rel := created[i]
			created[i] = created[len(created)-1]
			created = created[:len(created)-1]
			return 4, os.Remove(in(rel))
		}
		switch random.Intn(3) {
		case 0:
			i := any(moved)
			to := fmt.Sprintf("%s/m%d-%d-%d", dir, w, i, k)
			err, moved[i] = os.Rename(in(moved[i]), in(to)), to
			return 5, err
		case 1:
			rel := fmt.Sprintf("%s/x%d-%d", dir, w, k)
			made = append(made, rel)
			return 6, errors.Join(os.Mkdir(in(rel), 0o755), os.WriteFile(in(rel+"/c"), generation(rel+"/c", 0), 0o644))
		default:
			if len(made) < 5 {
				return 7, nil
			}
			rel := made[0]
			made = made[1:]
			err := os.RemoveAll(in(rel))
			if errors.Is(err, syscall.ENOTEMPTY) { // NFS keeps a removed file under another name while a reader has it open
				made, err = append(made, rel), nil
			}
			return 7, err
		}
	}
	for k := 0; !t.stop.Load(); k++ {
		t.holding.RLock()
		done, err := step(k)
		t.holding.RUnlock()
		if err != nil {
			return err
		}
		t.sum[done].Add(1)
		if k%16 == 0 {
			time.Sleep(time.Millisecond) // in memory the writers would leave the runs no processor
		}
	}
	return nil
}

// A churnTrial is one run in the middle of it.
type churnTrial struct {
	entry string // Process, ForEach, Stream, Walk or incremental
	opts  fileproc.Options
	inc   string // the cache file of incremental
	quiet bool   // nobody writes: all files must come
}

func (c churnTrial) String() string {
	o := c.opts
	return fmt.Sprintf("%s: Workers %d, Ordered %v, DisableURing %v, ReadSize %d, Stat %v, quiet %v", c.entry, o.Workers, o.Ordered, o.DisableURing, o.ReadSize, o.Stat, c.quiet)
}

// A churnCount is what many runs have seen.
type churnCount struct {
	runs                 map[string]int
	stable, whole, other int64 // contents checked
	twice, missed        int64 // renamed or replaced files
	changed              int64 // failures that the writers explain
}

func (c churnTrial) run(t *churnTree, sum *churnCount) error {
	var mu sync.Mutex // guards what follows
	var wrong error
	seen := map[string]int{}     // by rel, or by id for files that are renamed
	newest := map[string]int64{} // generations before the run
	for rel, gens := range t.replaced {
		newest[rel] = gens[0].Load()
	}
	fail := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if wrong == nil {
			wrong = fmt.Errorf(format, args...)
		}
	}
	see := func(key string, counter *int64) {
		mu.Lock()
		defer mu.Unlock()
		seen[key]++
		*counter++
	}
	// replaced checks the generation of an r file.
	replaced := func(rel, id string, gen int64) {
		gens := t.replaced[rel]
		switch {
		case gens == nil || id != rel:
			fail("%s has the content of %s", rel, id)
		case gen < newest[rel]:
			fail("%s: generation %d, but the run began after generation %d was there", rel, gen, newest[rel])
		case gen > gens[1].Load():
			fail("%s: generation %d was never written", rel, gen)
		}
	}
	check := func(rel string, data []byte, truncated bool) (string, int64) {
		if c.opts.ReadSize == fileproc.NoRead {
			see(rel, &sum.other)
			return rel, 0
		}
		switch filepath.Base(rel)[0] {
		case 's':
			want := testtree.BytesOf(rel)
			if !truncated && !bytes.Equal(data, want) || !bytes.HasPrefix(want, data) {
				fail("%s: %d bytes that differ from the file's %d", rel, len(data), len(want))
			}
			see(rel, &sum.stable)
		case 'r', 'n':
			id, gen, err := parseGeneration(data, truncated)
			if err != nil {
				fail("%s: %w", rel, err)
			}
			key := rel
			if filepath.Base(rel)[0] == 'n' {
				key = id
			} else if err == nil {
				replaced(rel, id, gen)
			}
			see(key, &sum.whole)
			return id, gen
		case 'w':
			if i := bytes.IndexFunc(data, func(r rune) bool { return r != 'w' && r != 0 }); i >= 0 {
				fail("%s: byte %d is %q", rel, i, data[i])
			}
			see(rel, &sum.other)
		case 'c', 't':
			if _, _, err := parseGeneration(data, true); err != nil && !(filepath.Base(rel)[0] == 't' && len(data) < 60) && len(data) > 0 {
				fail("%s: %w", rel, err)
			}
			see(rel, &sum.other)
		default:
			fail("%s is no file", rel)
		}
		return rel, 0
	}
	type answer struct {
		Rel, ID string
		Gen     int64
	}
	fn := func(f *fileproc.File) (answer, error) {
		id, gen := check(f.Rel(), f.Data(), f.Truncated())
		return answer{f.Rel(), id, gen}, nil
	}
	var report fileproc.Report
	opts := c.opts
	opts.Report = &report
	opts.OnError = func(err error) error {
		var p *fs.PathError
		if !errors.As(err, &p) {
			fail("an error without a path: %w", err)
			return nil
		}
		rel, _ := filepath.Rel(t.root, p.Path)
		switch base := filepath.Base(rel); {
		case !errors.Is(err, fileproc.ErrChanged):
			fail("a failure that no writer explains: %w", err)
		case c.quiet, base[0] == 's', base[0] == 'r', base[0] == 'd', base[0] == 'e', base[0] == 'w':
			fail("a file that was there all the time failed: %w", err)
		}
		mu.Lock()
		sum.changed++
		mu.Unlock()
		return nil
	}
	err := within(time.Minute, func() (err error) {
		ctx := context.Background()
		switch c.entry {
		case "Process":
			_, err = fileproc.Process(ctx, t.root, opts, fn)
		case "ForEach":
			err = fileproc.ForEach(ctx, t.root, opts, func(f *fileproc.File) error {
				_, err := fn(f)
				return err
			})
		case "Stream":
			for _, e := range fileproc.Stream(ctx, t.root, opts, fn) {
				err = errors.Join(err, e)
			}
		case "Walk":
			for entry, e := range fileproc.Walk(ctx, t.root, opts) {
				if err = errors.Join(err, e); e == nil && !entry.IsDir() {
					see(entry.Rel(), &sum.other)
				}
			}
		case "incremental":
			var answers []answer
			answers, err = incremental.Process(ctx, t.root, incremental.Options[answer]{File: c.inc, Version: "1"}, opts, fn)
			mu.Lock()
			clear(seen) // fn saw only what has changed
			mu.Unlock()
			for _, a := range answers {
				key := a.Rel
				switch filepath.Base(a.Rel)[0] {
				case 'r':
					replaced(a.Rel, a.ID, a.Gen)
				case 'n':
					key = a.ID
				}
				see(key, &sum.other)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	if wrong != nil {
		return wrong
	}
	if err := balances(true, &report); err != nil {
		return err
	}
	for _, rel := range t.stable {
		if seen[rel] != 1 {
			return fmt.Errorf("%s, which stands still, came %d times", rel, seen[rel])
		}
	}
	for rel := range t.replaced {
		if seen[rel] == 0 {
			sum.missed++
		}
	}
	for key, n := range seen {
		switch {
		case n > 1 && c.quiet:
			return fmt.Errorf("%s came %d times, and nobody writes", key, n)
		case n > 1:
			sum.twice++
		}
	}
	sum.runs[c.entry]++
	return nil
}

// quietly checks a run while nobody writes: every file must come once, with the newest content.
func (t *churnTree) quietly(c churnTrial, sum *churnCount) error {
	t.holding.Lock()
	defer t.holding.Unlock()
	c.quiet = true
	want := 0
	err := filepath.WalkDir(t.root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			want++
		}
		return err
	})
	if err != nil {
		return err
	}
	before := sum.stable + sum.whole + sum.other
	if err := c.run(t, sum); err != nil {
		return err
	}
	if got := int(sum.stable + sum.whole + sum.other - before); got != want && c.entry != "incremental" {
		return fmt.Errorf("%d files of %d came, and nobody writes", got, want)
	}
	return nil
}

// Churn is the command churn.
func Churn(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("churn", flag.ContinueOnError)
	duration := flags.Duration("for", time.Minute, "how long to run")
	seed := flags.Int64("seed", 1, "seed of the writers and the options")
	dir := flags.String("dir", "", "parent of the tree (default: the temporary directory)")
	writers := flags.Int("writers", 3, "how many write")
	cold := flags.Bool("cold", false, "drop the machine's caches before some runs (root)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	base, err := os.MkdirTemp(*dir, "churn")
	if err != nil {
		return err
	}
	defer os.RemoveAll(base)
	root := filepath.Join(base, "root")
	t, err := writeChurn(root, *writers)
	if err != nil {
		return err
	}
	failed := make([]error, *writers)
	for w := range *writers {
		t.writers.Go(func() { failed[w] = t.writer(rand.New(rand.NewSource(*seed+int64(w))), w, *writers) })
	}
	random := rand.New(rand.NewSource(*seed))
	sum := &churnCount{runs: map[string]int{}}
	quiet := 0
	var lost error
	for start, k := time.Now(), 1; time.Since(start) < *duration && lost == nil; k++ {
		c := churnTrial{entry: []string{"Process", "Process", "ForEach", "Stream", "Walk", "incremental"}[random.Intn(6)], inc: filepath.Join(base, "cache")}
		c.opts.Workers = 1 + random.Intn(8)
		c.opts.DisableURing = random.Intn(3) == 0
		c.opts.Ordered = random.Intn(2) == 0
		c.opts.Stat = random.Intn(4) == 0
		if c.entry != "incremental" { // the cache serves runs with the same options
			c.opts.ReadSize = []int{0, 0, 0, 0, 200, 4096, fileproc.NoRead}[random.Intn(7)]
		}
		if *cold && random.Intn(40) == 0 {
			dropCaches()
		}
		if k%20 == 0 {
			lost = t.quietly(c, sum)
			quiet++
		} else {
			lost = c.run(t, sum)
		}
		if lost != nil {
			lost = fmt.Errorf("%w\nin run %d, %v\nto repeat: break churn -seed %d", lost, k, c, *seed)
		}
	}
	t.stop.Store(true)
	t.writers.Wait()
	if err := errors.Join(append(failed, lost)...); err != nil {
		return err
	}
	var did, runs []string
	for i, what := range churnActions {
		did = append(did, fmt.Sprintf("%d %s", t.sum[i].Load(), what))
	}
	all := 0
	for _, entry := range []string{"Process", "ForEach", "Stream", "Walk", "incremental"} {
		runs = append(runs, fmt.Sprintf("%d %s", sum.runs[entry], entry))
		all += sum.runs[entry]
	}
	fmt.Printf("backend %s: the writers: %s\n", fileproc.Backend(), strings.Join(did, ", "))
	fmt.Printf("%d runs (%s), %d of them while nobody wrote\n", all, strings.Join(runs, ", "), quiet)
	fmt.Printf("%d contents of files that stand still, %d of files that are replaced or renamed, none torn or stale, %d others\n", sum.stable, sum.whole, sum.other)
	fmt.Printf("%d times a file that was renamed or replaced came twice, %d times one that was replaced did not come; %d failures that the writers explain\n", sum.twice, sum.missed, sum.changed)
	fmt.Println("losses: 0")
	return nil
}
