package fileproc

import (
	"runtime"
	"slices"
	"sync"
)

// An outlet hands results from the workers to the loop over Stream or Walk.
type outlet[T any] interface {
	// send hands over a result, or a failure, of a worker whose position is pos. If
	// mayWait is set, it waits while the workers are too far ahead of the loop.
	send(pos *position, mayWait bool, v T, err error)
	// receive waits for results and returns all there are, or none at the end.
	// It reuses old, the slice that it returned before.
	receive(old []result[T]) []result[T]
	// close says that nothing more is sent.
	close()
	// discard drops what is sent from now on: the loop has ended.
	discard()
}

// bufferPerWorker is how many results each worker may be ahead of the loop that takes
// them. With too few, all workers wait at once, and a processor without work goes to
// sleep, from which it takes long to wake. With too many, memory use grows.
const bufferPerWorker = 256

// A resultBuffer is the outlet for results in no particular order.
type resultBuffer[T any] struct {
	limit int

	mu        sync.Mutex // guards what follows
	changed   sync.Cond
	room      sync.Cond
	results   []result[T]
	waiting   bool // the loop waits for results
	blocked   int  // senders that wait for room
	closed    bool
	discarded bool
}

func newResultBuffer[T any](workers int) *resultBuffer[T] {
	b := &resultBuffer[T]{limit: bufferPerWorker * workers}
	b.changed.L, b.room.L = &b.mu, &b.mu
	return b
}

func (b *resultBuffer[T]) send(_ *position, mayWait bool, v T, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for mayWait && len(b.results) >= b.limit && !b.discarded {
		b.blocked++
		b.room.Wait()
		b.blocked--
	}
	if b.discarded {
		return
	}
	b.results = append(b.results, result[T]{v, err})
	if b.waiting {
		b.waiting = false
		b.changed.Signal()
	}
}

func (b *resultBuffer[T]) receive(old []result[T]) []result[T] {
	clear(old)
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.results) == 0 && !b.closed {
		b.waiting = true
		b.changed.Wait()
	}
	results := b.results
	b.results = old[:0]
	if b.blocked > 0 {
		b.room.Broadcast()
	}
	return results
}

func (b *resultBuffer[T]) close() {
	b.mu.Lock()
	b.closed = true
	b.changed.Signal()
	b.mu.Unlock()
}

func (b *resultBuffer[T]) discard() {
	b.mu.Lock()
	b.discarded = true
	b.room.Broadcast()
	b.mu.Unlock()
}

// stream calls execute on a goroutine of its own. On the caller's goroutine, it
// yields what execute sends to the outlet. It returns after execute has returned; at
// an early end of the loop it calls stop, so that execute returns soon.
func stream[T any](out outlet[T], execute func() error, stop func(error), yield func(T, error) bool) {
	var zero T
	var err error
	var panicked any
	exited := true
	go func() {
		defer out.close()
		defer func() { panicked = recover() }()
		err = execute()
		exited = false
	}()
	end := func() {
		stop(errEnough)
		out.discard()
		for results := out.receive(nil); len(results) > 0; results = out.receive(results) {
		}
	}
	defer end() // also when the loop's body panics or ends its goroutine
	broken := false
loop:
	for results := out.receive(nil); len(results) > 0; results = out.receive(results) {
		for _, r := range results {
			if broken = !yield(r.v, r.err); broken {
				end() // until it returns, fn may still panic
				break loop
			}
		}
	}
	switch {
	case panicked != nil:
		panic(panicked)
	case exited:
		runtime.Goexit()
	case err != nil && !broken:
		yield(zero, err)
	}
}

// A collector keeps the results of Process, those of each slot apart from the others.
type collector[T any] struct {
	first []T // slot 0
	_     cacheLine
	rest  []*padded[T] // slot 1 and those after it
}

func newCollector[T any](workers int) *collector[T] {
	return &collector[T]{rest: make([]*padded[T], workers-1)}
}

// add keeps v. The worker that calls it has the slot, so no lock is needed.
func (c *collector[T]) add(slot int, v T) {
	if slot == 0 {
		c.first = append(c.first, v)
		return
	}
	s := c.rest[slot-1]
	if s == nil {
		s = new(padded[T])
		c.rest[slot-1] = s
	}
	s.results = append(s.results, v)
}

// later returns a function that adds v.
func (c *collector[T]) later(v T) func(slot int) { return func(slot int) { c.add(slot, v) } }

// padded keeps the results of two slots from sharing a cache line.
type padded[T any] struct {
	results []T
	_       cacheLine
}

type cacheLine [128]byte

// all returns the results of all slots.
func (c *collector[T]) all() []T {
	var all [][]T
	if len(c.first) > 0 {
		all = append(all, c.first)
	}
	for _, s := range c.rest {
		if s != nil {
			all = append(all, s.results)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return slices.Concat(all...)
}

// located is a result and where its file is.
type located[T any] struct {
	node *node
	name string
	v    T
}

// sortByPath returns the results in the order of paths.
func sortByPath[T any](all []located[T]) []T {
	slices.SortFunc(all, func(a, b located[T]) int { return comparePaths(a.node, a.name, b.node, b.name) })
	values := slices.Grow([]T(nil), len(all))
	for i := range all {
		values = append(values, all[i].v)
	}
	return values
}
