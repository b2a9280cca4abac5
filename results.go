package fileproc

import (
	"context"
	"runtime"
	"sync"
)

// A collector keeps Process's results, each worker its own.
type collector[T any] struct {
	workers []*[]T
}

func newCollector[T any](workers int) *collector[T] {
	return &collector[T]{make([]*[]T, workers)}
}

// add is called by the worker w.
func (c *collector[T]) add(w int, v T) {
	s := c.workers[w]
	if s == nil {
		// Behind a pointer, so that workers do not write to one cache line.
		s = &new(padded[T]).results
		c.workers[w] = s
	}
	*s = append(*s, v)
}

type padded[T any] struct {
	results []T
	_       [128]byte
}

// all returns the results of all workers.
func (c *collector[T]) all() []T {
	var all []T
	n := 0
	for _, s := range c.workers {
		if s == nil {
			continue
		}
		if all = *s; n == 0 {
			n = len(*s)
			continue
		}
		n += len(*s)
	}
	if n == len(all) {
		return all
	}
	all = make([]T, 0, n)
	for _, s := range c.workers {
		if s != nil {
			all = append(all, *s...)
		}
	}
	return all
}

// mailboxSize is how many results a worker can be ahead of the loop that takes
// them, for each worker there is: enough that neither waits for the other at
// every file, and few enough that memory stays flat.
const mailboxSize = 64

// A mailbox hands results from the workers to the loop over Stream or Walk.
type mailbox[T any] struct {
	limit int

	mu       sync.Mutex // guards what follows
	arrived  sync.Cond
	room     sync.Cond
	mail     []letter[T]
	waiting  bool // the loop waits for mail
	blocked  int  // senders that wait for room
	complete bool // no more mail comes
	left     bool // the loop was left: mail is dropped
}

type letter[T any] struct {
	v   T
	err error
}

func newMailbox[T any](workers int) *mailbox[T] {
	m := &mailbox[T]{limit: mailboxSize * workers}
	m.arrived.L, m.room.L = &m.mu, &m.mu
	return m
}

// An outlet hands results from the workers to the loop over Stream or Walk.
type outlet[T any] interface {
	// send takes a result or a failure of what l is at.
	send(l *local, v T, err error)
	// receive waits for mail and returns all there is, or nothing at the end.
	// What it returned before is used again.
	receive(old []letter[T]) []letter[T]
	// close says that no more is sent.
	close()
	// leave says that the loop was left: what is sent is dropped.
	leave()
}

// newOutlet returns what r's results go through.
func newOutlet[T any](r *run, opts *Options) outlet[T] {
	if !opts.Ordered {
		return newMailbox[T](opts.Workers)
	}
	r.order = newSequence(opts.Workers)
	return &sequencer[T]{sequence: r.order}
}

// send waits while the mailbox is full, unless l has others wait for it.
func (m *mailbox[T]) send(l *local, v T, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.mail) >= m.limit && !m.left && !l.yields {
		m.blocked++
		m.room.Wait()
		m.blocked--
	}
	if m.left {
		return
	}
	m.mail = append(m.mail, letter[T]{v, err})
	if m.waiting {
		m.waiting = false
		m.arrived.Signal()
	}
}

func (m *mailbox[T]) receive(old []letter[T]) []letter[T] {
	clear(old)
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.mail) == 0 && !m.complete {
		m.waiting = true
		m.arrived.Wait()
	}
	mail := m.mail
	m.mail = old[:0]
	if m.blocked > 0 {
		m.room.Broadcast()
	}
	return mail
}

func (m *mailbox[T]) close() {
	m.mu.Lock()
	m.complete = true
	m.arrived.Signal()
	m.mu.Unlock()
}

func (m *mailbox[T]) leave() {
	m.mu.Lock()
	m.left = true
	m.room.Broadcast()
	m.mu.Unlock()
}

// stream executes r on goroutines of its own, and yields on the caller's what
// fn and the failures send. It returns when all of r has ended.
func stream[T any](ctx context.Context, r *run, root string, opts *Options, m outlet[T], yield func(T, error) bool) {
	var zero T
	r.failures.yield = func(l *local, err error) { m.send(l, zero, err) }
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var err error
	var panicked any
	exited := true
	go func() {
		defer m.close()
		defer func() { panicked = recover() }()
		err = r.execute(ctx, root, opts)
		exited = false
	}()
	leave := func() {
		cancel(errEnough)
		m.leave()
		for mail := m.receive(nil); len(mail) > 0; mail = m.receive(mail) {
		}
	}
	defer leave() // also when the loop's body panics or ends its goroutine
	left := false
loop:
	for mail := m.receive(nil); len(mail) > 0; mail = m.receive(mail) {
		for _, l := range mail {
			if left = !yield(l.v, l.err); left {
				leave() // until when fn may still panic
				break loop
			}
		}
	}
	switch {
	case panicked != nil:
		panic(panicked)
	case exited:
		runtime.Goexit()
	case err != nil && !left:
		yield(zero, err)
	}
}
