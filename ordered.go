package fileproc

import (
	"slices"
	"sync"
)

// ordered is the queue of Stream and Walk with Options.Ordered: it keeps the work in the
// order of paths, divided into spans. Workers begin spans in this order, and not too far
// ahead of what has been delivered. The span that is delivered next can always be begun:
// otherwise everything could wait for it for ever.
type ordered struct {
	limit int    // the most results that are begun and not delivered; head may be begun beyond it
	wake  func() // called when there is room for more

	mu      sync.Mutex // guards what follows; it may be taken while the pool's is held
	head    *span      // what is delivered next
	todo    *span      // the first span that is not begun, or of a directory that is being listed
	begun   int        // results that are begun and not delivered
	changed sync.Cond
	waiting bool // the loop waits for head
}

// Workers may be ahead of the loop by orderedAhead results each, and together by orderedMin
// more. So each can read several spans ahead.
const (
	orderedAhead = 4 * spanSize
	orderedMin   = 8 * spanSize
)

func newOrdered(workers int) *ordered {
	q := &ordered{limit: orderedMin + orderedAhead*workers}
	q.changed.L = &q.mu
	return q
}

// begin gives the queue its first jobs and the function that lets a worker look for work.
func (q *ordered) begin(jobs []*job, wake func()) {
	q.wake = wake
	for _, j := range slices.Backward(jobs) {
		j.span = &span{job: j, next: q.head, nextTodo: q.todo}
		if q.todo != nil {
			q.todo.prevTodo = j.span
		}
		q.head, q.todo = j.span, j.span
	}
}

// take begins the first span that may be begun.
func (q *ordered) take(listed, maxListings int) (*batch, *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.ready()
	if s == nil || listed >= maxListings {
		return nil, nil
	}
	q.begun += s.weight()
	if s.job != nil {
		s.job.source.taken(s.job)
		s.begun = true
		return nil, s.job
	}
	q.remove(s)
	return s.batch, nil
}

// ready returns the span that take would begin.
func (q *ordered) ready() *span {
	s := q.todo
	for s != nil && s.begun {
		s = s.nextTodo
	}
	if s == nil || s != q.head && q.begun+s.weight() > q.limit || s.job != nil && !s.job.source.isReady() {
		return nil
	}
	return s
}

func (q *ordered) pending(listed, maxListings int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ready() == nil || listed >= maxListings {
		return 0
	}
	return 1
}

func (q *ordered) batchesFirst() bool { return false }

func (q *ordered) isListed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.todo
	for s != nil && s.job == nil {
		s = s.nextTodo
	}
	return s == nil
}

func (q *ordered) isEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.todo == nil
}

func (q *ordered) abandon() (n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := q.todo; s != nil; s = s.nextTodo {
		if s.batch != nil {
			n += s.batch.abandon()
		}
	}
	return n
}

func (q *ordered) add(j *job, r scanResult) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch r.state {
	case scanDone:
		q.expand(j.span, r.spans)
	case scanAgain:
		j.span.begun = false
		q.begun -= j.span.weight()
	}
}

// expand puts the spans of a job that has been listed behind d, the job's own span.
func (q *ordered) expand(d *span, spans []*span) {
	d.expanded = true
	last, lastTodo, next := d, d, d.next
	for _, s := range spans {
		last.next, last = s, s
		if s.weight() > 0 {
			s.prevTodo, s.nextTodo = lastTodo, lastTodo.nextTodo
			if lastTodo.nextTodo != nil {
				lastTodo.nextTodo.prevTodo = s
			}
			lastTodo.nextTodo, lastTodo = s, s
		}
	}
	last.next = next
	q.remove(d)
	q.signal(d)
}

// remove takes s out of todo.
func (q *ordered) remove(s *span) {
	if s.prevTodo != nil {
		s.prevTodo.nextTodo = s.nextTodo
	} else {
		q.todo = s.nextTodo
	}
	if s.nextTodo != nil {
		s.nextTodo.prevTodo = s.prevTodo
	}
	s.prevTodo, s.nextTodo = nil, nil
}

// visited marks the file at pos as visited.
func (q *ordered) visited(pos *position) {
	if pos.sent { // send has marked it
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	pos.span.done |= 1 << pos.file
	q.signal(pos.span)
}

// signal wakes the loop if it waits for s.
func (q *ordered) signal(s *span) {
	if q.waiting && q.head == s {
		q.waiting = false
		q.changed.Signal()
	}
}

// A result is what the loop over Stream or Walk gets.
type result[T any] struct {
	v   T
	err error
}

// An orderedOutlet hands results from the workers to the loop over Stream or Walk
// in order. Workers do not wait in send: if they are too far ahead of the loop, the
// queue has nothing for them to begin.
type orderedOutlet[T any] struct {
	*ordered
	closed bool // all workers have returned
}

func (q *orderedOutlet[T]) send(pos *position, _ bool, v T, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := pos.span
	results, _ := s.results.(*[]result[T])
	if results == nil {
		results = new(make([]result[T], s.files))
		s.results = results
	}
	if pos.file < 0 {
		*results = append(*results, result[T]{v, err})
	} else {
		(*results)[pos.file] = result[T]{v, err}
		pos.sent = true
		s.sent |= 1 << pos.file
		s.done |= 1 << pos.file
	}
	q.signal(s)
}

func (q *orderedOutlet[T]) receive(old []result[T]) []result[T] {
	clear(old)
	for {
		q.mu.Lock()
		results, advanced := q.collect(old[:0])
		for len(results) == 0 && !advanced && !q.closed {
			q.waiting = true
			q.changed.Wait()
			results, advanced = q.collect(old[:0])
		}
		closed := q.closed
		q.mu.Unlock()
		if advanced {
			q.wake()
		}
		if len(results) > 0 || closed {
			return results
		}
	}
}

// collect appends the results that can be delivered, and reports whether there is
// room for more. It is called with q.mu held.
func (q *orderedOutlet[T]) collect(to []result[T]) (_ []result[T], advanced bool) {
	for q.head != nil {
		s := q.head
		results, _ := s.results.(*[]result[T])
		if s.files == 0 {
			if results != nil {
				to = append(to, (*results)[s.delivered:]...)
				s.delivered = len(*results)
			}
			if !s.expanded && !q.closed {
				break
			}
		}
		for ; s.delivered < s.files && (q.closed || s.done&(1<<s.delivered) != 0); s.delivered++ {
			if s.sent&(1<<s.delivered) != 0 {
				to = append(to, (*results)[s.delivered])
			}
		}
		if s.delivered < s.files {
			break
		}
		q.begun -= s.weight()
		q.head, s.next, advanced = s.next, nil, true // the run keeps root's span, which must not keep all others
	}
	return to, advanced
}

func (q *orderedOutlet[T]) close() {
	q.mu.Lock()
	q.closed = true
	q.changed.Signal()
	q.mu.Unlock()
}

func (q *orderedOutlet[T]) discard() {} // the run is stopped, and workers do not wait
