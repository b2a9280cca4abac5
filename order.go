package fileproc

import (
	"context"
	"slices"
	"sync"
)

// located is a result and where its file is.
type located[T any] struct {
	node *node
	name string
	v    T
}

// processInOrder is process for Options.Ordered.
func processInOrder[T any](ctx context.Context, root string, opts *Options, fn func(*File) (T, error)) ([]T, error) {
	all, err := process(ctx, root, opts, func(f *File) (located[T], error) {
		v, err := fn(f)
		return located[T]{f.node, f.name, v}, err
	})
	slices.SortFunc(all, func(a, b located[T]) int { return comparePaths(a.node, a.name, b.node, b.name) })
	values := slices.Grow([]T(nil), len(all))
	for i := range all {
		values = append(values, all[i].v)
	}
	return values, err
}

// A sequence keeps the work of a run in the order of paths, for Stream and Walk
// with Options.Ordered. Its segments are listed, visited and delivered; work is
// begun in their order, and not too far ahead of what has been delivered, but
// what is to be delivered next can always be begun, so that nothing waits for
// ever. It replaces the pool's own choice of what comes next.
type sequence struct {
	limit int // the most results that are begun and not delivered, but for the next

	mu      sync.Mutex // guards what follows; it may be taken while the pool's is held
	pool    *pool
	head    *segment // what is to be delivered next
	todo    *segment // the segments that are not begun, and directories at hand
	begun   int      // results that are begun and not delivered
	arrived sync.Cond
	waiting bool // the loop waits for head
}

// sequenceAhead is how many results a worker may be ahead of the loop that takes
// them, and sequenceLeast the least for all: some windows of files that are read
// ahead for each.
const (
	sequenceAhead = 4 * chunkSize
	sequenceLeast = 8 * chunkSize
	chunkSize     = 64
)

// A segment is a directory, of which nothing or its name and its failures is
// delivered before what is in it, or up to chunkSize files of one.
type segment struct {
	next           *segment // in order
	before, behind *segment // in todo
	node           *node    // of a directory
	batch          *batch   // of files
	files          int
	listing        bool // the directory is at hand
	spread         bool // the directory has been listed, or is not to be

	letters    any    // of type *[]letter[T]
	at         int    // the letter to be delivered next
	done, sent uint64 // of the files, by bit, which have been visited, and which have a letter
}

func newSequence(workers int) *sequence {
	q := &sequence{limit: sequenceLeast + sequenceAhead*workers}
	q.arrived.L = &q.mu
	return q
}

// begin gives the sequence its first directory.
func (q *sequence) begin(p *pool, root *node) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pool = p
	root.segment = &segment{node: root}
	q.head, q.todo = root.segment, root.segment
}

// pick begins the first segment that may be begun.
func (q *sequence) pick() (*batch, *node) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.due()
	if s == nil {
		return nil, nil
	}
	q.begun += s.weight()
	if s.node != nil {
		s.listing = true
		return nil, s.node
	}
	q.remove(s)
	return s.batch, nil
}

// due returns what pick would begin.
func (q *sequence) due() *segment {
	s := q.todo
	for s != nil && s.listing {
		s = s.behind
	}
	if s == nil || s != q.head && q.begun+s.weight() > q.limit {
		return nil
	}
	return s
}

func (q *sequence) available() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.due() == nil {
		return 0
	}
	return 1
}

// over reports whether all has been begun.
func (q *sequence) over() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.todo == nil
}

// weight is what a segment counts for that is begun.
func (s *segment) weight() int {
	if s.node != nil {
		return 1
	}
	return s.files
}

// abandon takes all the files that are not begun and returns how many they were.
func (q *sequence) abandon() (n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := q.todo; s != nil; s = s.behind {
		if s.batch != nil {
			n += s.batch.abandon()
		}
	}
	return n
}

// spread puts what is in the directory n, which has been listed, behind it.
func (q *sequence) spread(n *node) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := n.segment
	d.listing, d.spread = false, true
	at, place, next := d, d, d.next
	for _, s := range n.segments {
		at.next, at = s, s
		if s.weight() > 0 {
			s.before, s.behind = place, place.behind
			if place.behind != nil {
				place.behind.before = s
			}
			place.behind, place = s, s
		}
	}
	at.next, n.segments = next, nil
	q.remove(d)
	q.tell(d)
}

// postpone puts back the directory n, which is to be begun anew.
func (q *sequence) postpone(n *node) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n.segment.listing = false
	q.begun -= n.segment.weight()
}

func (q *sequence) remove(s *segment) {
	if s.before != nil {
		s.before.behind = s.behind
	} else {
		q.todo = s.behind
	}
	if s.behind != nil {
		s.behind.before = s.before
	}
	s.before, s.behind = nil, nil
}

// segments puts what s has taken, in the order of names, into segments.
func (s *sink) segments() []*segment {
	var all []*segment
	taken := 0
	files := func(end int) {
		for taken < end {
			next := min(end, taken+chunkSize)
			b := &batch{node: s.node, entries: s.b.entries[taken:next:next]}
			b.segment = &segment{batch: b, files: len(b.entries)}
			all = append(all, b.segment)
			taken = next
		}
	}
	for _, d := range s.dirs {
		files(d.files)
		all = append(all, d.segment)
	}
	if s.b != nil {
		files(len(s.b.entries))
	}
	return all
}

// A place is where in a sequence the results of a worker go.
type place struct {
	segment *segment
	file    int  // of the segment, or -1: what is told of a directory
	sent    bool // the file has been delivered
}

// A sequencer hands results from the workers to the loop over Stream or Walk in
// the order of a sequence. Workers never wait for it: they find nothing to do.
type sequencer[T any] struct {
	*sequence
	complete bool // all workers have returned
}

func (q *sequencer[T]) send(l *local, v T, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := l.place.segment
	letters, _ := s.letters.(*[]letter[T])
	if letters == nil {
		letters = new(make([]letter[T], s.files))
		s.letters = letters
	}
	if l.place.file < 0 {
		*letters = append(*letters, letter[T]{v, err})
	} else {
		(*letters)[l.place.file] = letter[T]{v, err}
		l.place.sent = true
		s.sent |= 1 << l.place.file
		s.done |= 1 << l.place.file
	}
	q.tell(s)
}

// visited tells that l has visited the file it is at.
func (q *sequence) visited(l *local) {
	if l.place.sent {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l.place.segment.done |= 1 << l.place.file
	q.tell(l.place.segment)
}

// tell wakes the loop if it waits for s. It is called with q.mu held.
func (q *sequence) tell(s *segment) {
	if q.waiting && q.head == s {
		q.waiting = false
		q.arrived.Signal()
	}
}

func (q *sequencer[T]) receive(old []letter[T]) []letter[T] {
	clear(old)
	for {
		q.mu.Lock()
		mail, moved := q.collect(old[:0])
		for len(mail) == 0 && !moved && !q.complete {
			q.waiting = true
			q.arrived.Wait()
			mail, moved = q.collect(old[:0])
		}
		p, over := q.pool, q.complete
		q.mu.Unlock()
		if moved && p != nil {
			p.mu.Lock()
			p.rouse(nil, 0)
			p.mu.Unlock()
		}
		if len(mail) > 0 || over {
			return mail
		}
	}
}

// collect adds to mail what can be delivered, and reports whether that has made
// room. It is called with q.mu held.
func (q *sequencer[T]) collect(mail []letter[T]) (_ []letter[T], moved bool) {
	for q.head != nil {
		s := q.head
		letters, _ := s.letters.(*[]letter[T])
		if s.files == 0 {
			if letters != nil {
				mail = append(mail, (*letters)[s.at:]...)
				s.at = len(*letters)
			}
			if !s.spread && !q.complete {
				break
			}
		}
		for ; s.at < s.files && (q.complete || s.done&(1<<s.at) != 0); s.at++ {
			if s.sent&(1<<s.at) != 0 {
				mail = append(mail, (*letters)[s.at])
			}
		}
		if s.at < s.files {
			break
		}
		q.begun -= s.weight()
		q.head, s.next, moved = s.next, nil, true // or else root's would keep all that come behind it
	}
	return mail, moved
}

func (q *sequencer[T]) close() {
	q.mu.Lock()
	q.complete = true
	q.arrived.Signal()
	q.mu.Unlock()
}

func (q *sequencer[T]) leave() {} // the run is stopped, and workers do not wait
