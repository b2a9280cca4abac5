package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
)

// The operations, in the order of tables.
const (
	opCreate = iota
	opRead
	opList
	opDelete
	operations
)

var opNames = [operations]string{"create", "read", "list", "delete"}

// mix is the share of each operation, in percent.
var mix = [operations]int{opCreate: 40, opRead: 50, opList: 7, opDelete: 3}

// A sizeShare is a size of files in bytes, and the share of the files that have it, in percent.
type sizeShare struct{ Size, Percent int }

var sizes = []sizeShare{{1 << 10, 40}, {10 << 10, 30}, {50 << 10, 20}, {100 << 10, 7}, {512 << 10, 2}, {1 << 20, 1}}

// A stage keeps a number of VUs, virtual users, for a time. Both sides share the time.
type stage struct {
	VUs      int
	Duration time.Duration
}

// A load says what is done. Two runs can be compared if theirs is the same.
type load struct {
	Stages  []stage
	Slice   time.Duration // about how long one side runs before the other does
	Seed    uint64
	Seeds   int // files that all VUs read
	SeedDir int // files in a directory of these
	Own     int // files of each VU's own at the beginning of a slice
	Mix     [operations]int
	Sizes   []sizeShare
}

// size returns the size of a file that is made.
func (l *load) size(rng *rand.Rand) int {
	n := rng.IntN(100)
	for _, s := range l.Sizes {
		if n -= s.Percent; n < 0 {
			return s.Size
		}
	}
	panic("the shares of the sizes are less than 100 %")
}

func (l *load) operation(rng *rand.Rand) int {
	n := rng.IntN(100)
	for op, percent := range l.Mix {
		if n -= percent; n < 0 {
			return op
		}
	}
	panic("the shares of the operations are less than 100 %")
}

func (l *load) maxVUs() int {
	most := 0
	for _, s := range l.Stages {
		most = max(most, s.VUs)
	}
	return most
}

// slices returns how many slices a stage has, a multiple of 4: the sides run in the order A B B A, so that neither a trend nor
// a moment of the machine is in one of them alone.
func (l *load) slices(s stage) int {
	return max(1, int((s.Duration+2*l.Slice)/(4*l.Slice))) * 4
}

// A sample is what was measured of one operation in one slice.
type sample struct {
	latencies []time.Duration // of all that did not fail
	failed    int
	bytes     int64
}

// A sliceRun is what was measured in one slice.
type sliceRun struct {
	stage, vus, side int
	pair             int // the slices of both sides with this number are neighbours and did the same operations
	elapsed          time.Duration
	ops              [operations]sample
}

// maxFailures is how many failures are kept in words.
const maxFailures = 20

// A runner runs a load on a store.
type runner struct {
	load     *load
	store    *store
	library  *library
	seeds    []file
	seedDirs map[string][]string // the names in each directory, sorted
	dirs     []string
	vus      [2][]*vu // of each side

	mu       sync.Mutex
	failures []string
}

func newRunner(l *load, s *store) *runner {
	largest := 0
	for _, s := range l.Sizes {
		largest = max(largest, s.Size)
	}
	return &runner{load: l, store: s, library: newLibrary(l.Seed, largest), seedDirs: map[string][]string{}}
}

// prepare makes the files that all VUs read, and the VUs with their directories.
func (r *runner) prepare(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(r.load.Seed, 0))
	var buf []byte
	for i := range r.load.Seeds {
		f := file{dir: fmt.Sprintf("seed/d%03d", i/r.load.SeedDir), name: fmt.Sprintf("f%06d", i), size: r.load.size(rng)}
		if _, ok := r.seedDirs[f.dir]; !ok {
			r.dirs = append(r.dirs, f.dir)
			if err := r.store.mkdir(f.dir); err != nil {
				return err
			}
		}
		r.seedDirs[f.dir] = append(r.seedDirs[f.dir], f.name)
		r.seeds = append(r.seeds, f)
		buf = r.library.make(buf, f)
		if err := errors.Join(ctx.Err(), r.store.create(f.path(), buf)); err != nil {
			return err
		}
	}
	for s := range r.vus {
		for id := range r.load.maxVUs() {
			v := &vu{runner: r, id: id, side: &r.store.sides[s], dir: fmt.Sprintf("%c/vu%04d", 'a'+s, id)}
			if err := r.store.mkdir(v.dir); err != nil {
				return err
			}
			r.vus[s] = append(r.vus[s], v)
		}
	}
	return nil
}

// run runs all stages. It reports each slice to progress.
func (r *runner) run(ctx context.Context, progress func(string)) ([]sliceRun, error) {
	var runs []sliceRun
	pair := 0
	for i, st := range r.load.Stages {
		n := r.load.slices(st)
		for k := range n {
			side := []int{0, 1, 1, 0}[k%4]
			progress(fmt.Sprintf("stage %d of %d, %d VUs, slice %d of %d: %s", i+1, len(r.load.Stages), st.VUs, k+1, n, r.store.sides[side].name))
			s, err := r.slice(ctx, st.VUs, side, pair+k/2, st.Duration/time.Duration(n))
			if err != nil {
				return runs, err
			}
			s.stage = i
			runs = append(runs, s)
		}
		pair += n / 2
	}
	return runs, nil
}

// slice lets the VUs of one side work for a time.
func (r *runner) slice(ctx context.Context, vus, side, pair int, d time.Duration) (sliceRun, error) {
	all := r.vus[side][:vus]
	errs := make([]error, vus)
	each(all, func(v *vu) {
		seed := uint64(1+v.id)<<32 | uint64(pair)
		v.rng = rand.New(rand.NewPCG(r.load.Seed, seed))
		errs[v.id] = v.restore()
		v.rng = rand.New(rand.NewPCG(^r.load.Seed, seed)) // the same for both sides, whatever restore had to do
	})
	if err := errors.Join(errs...); err != nil {
		return sliceRun{}, fmt.Errorf("between slices: %w", err)
	}
	runtime.GC() // what the other side left is not this one's to collect

	start := time.Now()
	each(all, func(v *vu) {
		for time.Since(start) < d && ctx.Err() == nil {
			v.step(ctx)
		}
	})
	run := sliceRun{vus: vus, side: side, pair: pair, elapsed: time.Since(start)}
	for _, v := range all {
		for op := range v.samples {
			from, to := &v.samples[op], &run.ops[op]
			to.latencies = append(to.latencies, from.latencies...)
			to.failed += from.failed
			to.bytes += from.bytes
			*from = sample{latencies: from.latencies[:0]}
		}
	}
	return run, context.Cause(ctx)
}

// each calls fn for all at the same time.
func each(all []*vu, fn func(*vu)) {
	var wg sync.WaitGroup
	for _, v := range all {
		wg.Go(func() { fn(v) })
	}
	wg.Wait()
}

// A vu is a virtual user: it does one operation after the other, without a pause, and alone writes its directory.
type vu struct {
	runner     *runner
	id         int
	side       *side
	dir        string
	living     []file
	free       []string // names of files that were deleted
	names      int      // given out so far
	generation int

	rng     *rand.Rand
	samples [operations]sample
	buf     []byte
	listed  []string
	checked time.Duration // in the current operation, on checking content
	checks  int           // in the current operation
}

// restore makes the number of living files what it was at the beginning. So directories do not grow from slice to slice.
func (v *vu) restore() error {
	for len(v.living) > v.runner.load.Own {
		if err := v.remove(len(v.living) - 1); err != nil {
			return err
		}
	}
	for len(v.living) < v.runner.load.Own {
		f := v.next()
		v.buf = v.runner.library.make(v.buf, f)
		if err := v.runner.store.create(f.path(), v.buf); err != nil {
			return err
		}
		v.living = append(v.living, f)
	}
	return nil
}

// next returns a file to make. Its name may be one that was deleted.
func (v *vu) next() file {
	v.generation++
	f := file{dir: v.dir, generation: v.generation, size: v.runner.load.size(v.rng)}
	if last := len(v.free) - 1; last >= 0 {
		f.name, v.free = v.free[last], v.free[:last]
	} else {
		f.name = fmt.Sprintf("f%06d", v.names)
		v.names++
	}
	return f
}

func (v *vu) remove(i int) error {
	f := v.living[i]
	if err := v.runner.store.remove(f.path()); err != nil {
		return err
	}
	v.living[i] = v.living[len(v.living)-1]
	v.living = v.living[:len(v.living)-1]
	v.free = append(v.free, f.name)
	return nil
}

// step does one operation and records it.
func (v *vu) step(ctx context.Context) {
	op := v.runner.load.operation(v.rng)
	if op == opDelete && len(v.living) == 0 {
		op = opCreate
	}
	var took time.Duration
	var size int
	var err error
	switch op {
	case opCreate:
		f := v.next()
		v.buf = v.runner.library.make(v.buf, f)
		start := time.Now()
		err = v.runner.store.create(f.path(), v.buf)
		took, size = time.Since(start), f.size
		if err == nil {
			v.living = append(v.living, f)
		} else {
			v.runner.store.remove(f.path()) // a part of it may be there
		}
	case opRead:
		f := v.anyFile()
		took, err = v.read(ctx, f)
		size = f.size
	case opList:
		took, err = v.list(ctx)
	case opDelete:
		i := v.rng.IntN(len(v.living))
		start := time.Now()
		err = v.remove(i)
		took = time.Since(start)
	}
	switch s := &v.samples[op]; {
	case err == nil:
		s.latencies = append(s.latencies, took)
		s.bytes += int64(size)
	case ctx.Err() == nil: // otherwise the run was interrupted
		s.failed++
		v.runner.note(fmt.Sprintf("%s, %s: %v", v.side.name, opNames[op], err))
	}
}

// anyFile returns one of the files that all read, or one of the VU's own. Both exist, since nobody else deletes them.
func (v *vu) anyFile() file {
	if v.rng.IntN(2) == 0 && len(v.living) > 0 {
		return v.living[v.rng.IntN(len(v.living))]
	}
	return v.runner.seeds[v.rng.IntN(len(v.runner.seeds))]
}

// read returns how long the read took, without the check.
func (v *vu) read(ctx context.Context, f file) (time.Duration, error) {
	v.checked, v.checks = 0, 0
	start := time.Now()
	err := v.side.read(ctx, f.dir, f.name, func(data []byte) error {
		start := time.Now()
		err := v.runner.library.check(f, data)
		v.checked += time.Since(start)
		v.checks++
		return err
	})
	took := time.Since(start) - v.checked
	if err == nil && v.checks != 1 {
		err = fmt.Errorf("%s was delivered %d times", f.path(), v.checks)
	}
	return took, err
}

// list lists one of the directories that all read, or the VU's own, and checks the names.
func (v *vu) list(ctx context.Context) (time.Duration, error) {
	var dir string
	var want []string
	if v.rng.IntN(2) == 0 && len(v.living) > 0 {
		dir = v.dir
	} else {
		dir = v.runner.dirs[v.rng.IntN(len(v.runner.dirs))]
		want = v.runner.seedDirs[dir]
	}
	start := time.Now()
	got, err := v.side.list(ctx, dir, v.listed[:0])
	took := time.Since(start)
	v.listed = got
	if err != nil {
		return took, err
	}
	if want == nil {
		for _, f := range v.living {
			want = append(want, f.name)
		}
		slices.Sort(want)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		err = fmt.Errorf("the listing of %s has %d names, not the %d that are there", dir, len(got), len(want))
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
