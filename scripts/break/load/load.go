package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/fileproc/fileproc/scripts/internal/fail"
)

const (
	opCreate = iota
	opRead
	opList
	opDelete
	operations
)

var opNames = [operations]string{"create", "read", "list", "delete"}

// What is done, and how large files are. The shares are in percent.
var (
	mix        = []int{opCreate: 40, opRead: 50, opList: 7, opDelete: 3}
	sizes      = []int{1 << 10, 10 << 10, 50 << 10, 100 << 10, 512 << 10, 1 << 20} // bytes
	sizeShares = []int{40, 30, 20, 7, 2, 1}
)

// pick returns an index at random, each as often as its share says.
func pick(rng *rand.Rand, shares []int) int {
	n := rng.IntN(100)
	for i, percent := range shares {
		if n -= percent; n < 0 {
			return i
		}
	}
	panic("the shares are less than 100 %")
}

// A stage keeps a number of VUs, virtual users, for a time. Both sides share the time.
type stage struct {
	VUs      int
	Duration time.Duration
}

// A load says what is done. Two runs can be compared if theirs is the same.
type load struct {
	Stages []stage
	Slice  time.Duration // about how long one side runs before the other does
	Seed   uint64
	Files  int // that all VUs read
	Own    int // files of each VU's own at the beginning of a slice
}

// slices returns how many slices a stage has, a multiple of 4: the sides run in the order A B B A, so that neither a trend nor
// a moment of the machine is in one of them alone.
func (l *load) slices(s stage) int {
	return max(1, int((s.Duration+2*l.Slice)/(4*l.Slice))) * 4
}

type sample struct {
	latencies []time.Duration // of all that did not fail
	failed    int
	bytes     int64
}

type slice struct {
	elapsed time.Duration
	ops     [operations]sample
}

func (s *slice) add(elapsed time.Duration, ops *[operations]sample) {
	s.elapsed += elapsed
	for op, more := range ops {
		to := &s.ops[op]
		to.latencies = append(to.latencies, more.latencies...)
		to.failed += more.failed
		to.bytes += more.bytes
	}
}

const maxFailures = 20

type runner struct {
	*load
	*store
	library *library
	seeds   []file
	dirs    map[string][]string // of the seeds: the names in each, sorted
	vus     [2][]*vu            // of each side

	mu       sync.Mutex // guards failures
	failures []string
}

// newRunner makes the files that all VUs read, 100 to a directory, and the VUs with their directories.
func newRunner(ctx context.Context, l *load, s *store) *runner {
	r := &runner{load: l, store: s, library: newLibrary(l.Seed, slices.Max(sizes)), dirs: map[string][]string{}}
	rng := rand.New(rand.NewPCG(r.Seed, 0))
	var buf []byte
	for i := range r.Files {
		f := file{dir: seedDir(i), name: fmt.Sprintf("f%06d", i), size: sizes[pick(rng, sizeShares)]}
		r.dirs[f.dir] = append(r.dirs[f.dir], f.name)
		r.seeds = append(r.seeds, f)
		buf = r.library.make(buf, f)
		fail.On(errors.Join(ctx.Err(), r.mkdir(f.dir), r.create(f.path(), buf)))
	}
	for s := range r.vus {
		for id := range slices.MaxFunc(l.Stages, func(a, b stage) int { return a.VUs - b.VUs }).VUs {
			v := &vu{runner: r, id: id, side: &r.sides[s], dir: fmt.Sprintf("%c/vu%04d", 'a'+s, id)}
			fail.On(r.mkdir(v.dir))
			r.vus[s] = append(r.vus[s], v)
		}
	}
	return r
}

func seedDir(i int) string { return fmt.Sprintf("seed/d%03d", i/100) }

// run runs all stages, and adds what it measures to rec. It reports each slice to progress.
func (r *runner) run(ctx context.Context, progress io.Writer, rec *outcome) {
	sums := map[int]*[2]slice{0: {}} // by the number of VUs, 0 for all
	for i, st := range r.Stages {
		if sums[st.VUs] == nil {
			sums[st.VUs] = &[2]slice{}
		}
		n := r.slices(st)
		for k := range n / 2 {
			var pair [2]slice // neighbours that did the same operations
			for turn := range 2 {
				side := (k + turn) % 2
				fmt.Fprintf(progress, "stage %d of %d, %d VUs, slice %d of %d: %s\n", i+1, len(r.Stages), st.VUs, 2*k+turn+1, n, r.sides[side].name)
				s := r.slice(ctx, r.vus[side][:st.VUs], len(rec.Pairs), st.Duration/time.Duration(n))
				sums[0][side].add(s.elapsed, &s.ops)
				sums[st.VUs][side].add(s.elapsed, &s.ops)
				pair[side] = s
			}
			rec.Pairs = append(rec.Pairs, summarize(st.VUs, pair))
		}
	}
	for _, vus := range slices.Sorted(maps.Keys(sums)) {
		rec.Levels = append(rec.Levels, summarize(vus, *sums[vus]))
	}
}

// slice lets these VUs, which are of one side, work for a time.
func (r *runner) slice(ctx context.Context, vus []*vu, pair int, d time.Duration) (s slice) {
	errs := make([]error, len(vus))
	each(vus, func(v *vu) {
		seed := uint64(1+v.id)<<32 | uint64(pair)
		v.rng = rand.New(rand.NewPCG(r.Seed, seed))
		errs[v.id] = v.restore()
		v.rng = rand.New(rand.NewPCG(^r.Seed, seed)) // the same for both sides, whatever restore had to do
	})
	err := errors.Join(errs...)
	fail.If(err != nil, "between slices: %w", err)
	runtime.GC() // what the other side left is not this one's to collect

	start := time.Now()
	each(vus, func(v *vu) {
		for time.Since(start) < d && ctx.Err() == nil {
			v.step(ctx)
		}
	})
	s.elapsed = time.Since(start)
	for _, v := range vus {
		s.add(0, &v.samples)
		v.samples = [operations]sample{}
	}
	fail.On(context.Cause(ctx))
	return s
}

func each(all []*vu, fn func(*vu)) {
	var wg sync.WaitGroup
	for _, v := range all {
		wg.Go(func() { fn(v) })
	}
	wg.Wait()
}

// A vu is a virtual user: it does one operation after the other, without a pause, and alone writes its directory.
type vu struct {
	*runner
	id         int
	side       *side
	dir        string
	living     []file
	free       []string // names of files that were deleted
	generation int

	rng     *rand.Rand
	samples [operations]sample
	buf     []byte
}

// restore makes the number of living files what it was at the beginning. So directories do not grow from slice to slice.
func (v *vu) restore() (err error) {
	for err == nil && len(v.living) > v.Own {
		err = v.delete(len(v.living) - 1)
	}
	for err == nil && len(v.living) < v.Own {
		_, _, err = v.createNext()
	}
	return err
}

// createNext creates a file, whose name may be one that was deleted.
func (v *vu) createNext() (took time.Duration, size int, err error) {
	v.generation++
	f := file{dir: v.dir, name: fmt.Sprintf("f%06d", len(v.living)), generation: v.generation, size: sizes[pick(v.rng, sizeShares)]}
	if last := len(v.free) - 1; last >= 0 { // otherwise the names up to this one are in use
		f.name, v.free = v.free[last], v.free[:last]
	}
	v.buf = v.library.make(v.buf, f)
	start := time.Now()
	err = v.create(f.path(), v.buf)
	took = time.Since(start)
	if err != nil {
		v.store.remove(f.path()) // a part of it may be there
		v.free = append(v.free, f.name)
		return took, f.size, err
	}
	v.living = append(v.living, f)
	return took, f.size, nil
}

func (v *vu) delete(i int) error {
	f := v.living[i]
	if err := v.remove(f.path()); err != nil {
		return err
	}
	v.living = slices.Delete(v.living, i, i+1)
	v.free = append(v.free, f.name)
	return nil
}

func (v *vu) step(ctx context.Context) {
	op := pick(v.rng, mix)
	if op == opDelete && len(v.living) == 0 {
		op = opCreate
	}
	var took time.Duration
	var size int
	var err error
	switch op {
	case opCreate:
		took, size, err = v.createNext()
	case opRead:
		took, size, err = v.read(ctx)
	case opList:
		took, err = v.list(ctx)
	case opDelete:
		i := v.rng.IntN(len(v.living))
		start := time.Now()
		err = v.delete(i)
		took = time.Since(start)
	}
	switch s := &v.samples[op]; {
	case err == nil:
		s.latencies = append(s.latencies, took)
		s.bytes += int64(size)
	case ctx.Err() == nil: // otherwise the run was interrupted
		s.failed++
		v.note(fmt.Sprintf("%s, %s: %v", v.side.name, opNames[op], err))
	}
}

// read reads one of the files that all read, or one of the VU's own. Both exist, since nobody else deletes them. It returns how
// long the read took, without the check.
func (v *vu) read(ctx context.Context) (took time.Duration, size int, err error) {
	files := v.seeds
	if v.rng.IntN(2) == 0 && len(v.living) > 0 {
		files = v.living
	}
	f := files[v.rng.IntN(len(files))]
	checks := 0
	start := time.Now()
	err = v.side.read(ctx, f.dir, f.name, func(data []byte) error {
		begun := time.Now()
		err := v.library.check(f, data)
		start = start.Add(time.Since(begun))
		checks++
		return err
	})
	took = time.Since(start)
	if err == nil && checks != 1 {
		err = fmt.Errorf("%s was delivered %d times", f.path(), checks)
	}
	return took, f.size, err
}

// list lists one of the directories that all read, or the VU's own, and checks the names.
func (v *vu) list(ctx context.Context) (took time.Duration, err error) {
	dir, want := v.dir, []string(nil)
	if v.rng.IntN(2) == 0 && len(v.living) > 0 {
		for _, f := range v.living {
			want = append(want, f.name)
		}
		slices.Sort(want)
	} else {
		dir = seedDir(v.rng.IntN(v.Files))
		want = v.dirs[dir]
	}
	start := time.Now()
	listed, err := v.side.list(ctx, dir)
	took = time.Since(start)
	slices.Sort(listed)
	if err == nil && !slices.Equal(listed, want) {
		err = fmt.Errorf("the listing of %s has %d names, not the %d that are there", dir, len(listed), len(want))
	}
	return took, err
}

func (r *runner) note(failure string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failures) < maxFailures {
		r.failures = append(r.failures, failure)
	}
}
