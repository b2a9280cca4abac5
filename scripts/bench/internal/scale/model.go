package scale

import (
	"cmp"
	"slices"
)

// costs are the constants of the model, in nanoseconds.
type costs struct {
	List, Dir               float64 // listing an entry; opening, listing and closing a directory
	Content, ContentAlone   float64 // a file's content: with io_uring; with three calls
	Metadata, MetadataAlone float64 // a file's metadata: with calls in a row; with one call
	Pool, Cache, CacheUses  float64 // how long pool.mu and dirCache.mu are held; how often dirCache.mu is, for a directory
	Wake                    float64 // until a waiting worker begins new work
	Table, Move             float64 // how long a call holds the lock of the descriptor table; moving a cache line to another core
}

// A load is a tree, and what a run does with it.
type load struct {
	name        string
	dirs, files int // dirs is 0 if root has the files
	metadata    bool
	parts       int  // descriptors that list root at the same time; 0: one for each core
	apart       bool // each file is opened through the descriptor that has listed it
}

// What the package does with names of 17 bytes and files of 411 bytes: see linuxDir.list and content.Groups.
const (
	scanSize              = 510       // entries
	smallest, rows, group = 8, 16, 64 // files of a group: the fewest; without io_uring; with it
	ringFrom, ringShare   = 240, 8
	leastHalved           = 16
	lockLines             = 3 // cache lines that move with a lock: its own, and those of the data that it guards
)

// A listing lists a directory, or a part of root.
type listing struct {
	left      int
	isRoot    bool
	by, count *line // by: the worker that lists; count: the reference count of the descriptor
}

type batch struct {
	size, next   int
	taken, count *line // taken: the index of the next file
	joined       bool
}

// A model is a simulated run. Its workers do what those of pool.go do.
type model struct {
	clock
	costs
	load
	opened                   []*line // the lines that the open of a file uses
	pool, cache, cred, table *line
	root                     *listing
	paused                   []*listing
	active                   []*batch
	todo, busy, read         int // directories not begun; workers that do not wait; files that were read
}

// simulate returns how long a run takes on so many cores, the line that is in use for most of that time, and how many files were read.
func simulate(c costs, l load, cores int) (ns float64, busiest *line, read int) {
	m := &model{costs: c, load: l, busy: cores}
	m.pool, m.cache = &line{name: "`pool.mu`", move: lockLines * c.Move, hold: c.Pool}, &line{name: "`dirCache.mu`", move: lockLines * c.Move, hold: c.Cache}
	m.cred, m.table = &line{name: "the count of the credentials", move: c.Move}, &line{name: "the descriptor table", move: lockLines * c.Move, hold: c.Table}
	lines := []*line{m.pool, m.cache, m.cred, m.table}
	if m.opened = []*line{m.cred, m.table}; l.metadata {
		m.opened, m.Content, m.ContentAlone = nil, c.Metadata, c.MetadataAlone
	}
	entries := cmp.Or(l.dirs, l.files)
	for i := range l.parts {
		part := &listing{entries*(i+1)/l.parts - entries*i/l.parts, true, &line{name: "the listing"}, &line{name: "the count of the directory", move: c.Move}}
		if i > 0 && !l.apart {
			part.count = m.root.count
		}
		m.root, m.paused, lines = part, append(m.paused, part), append(lines, part.by, part.count)
	}
	for i := range cores {
		m.start(float64(i)*c.Wake, m.worker) // each worker starts the next
	}
	m.run()
	return m.now, slices.MaxFunc(lines, func(a, b *line) int { return cmp.Compare(a.busy, b.busy) }), m.read
}

func (m *model) worker(p *process) {
	for grouped := 0; ; p.use(m.pool, 0) { // counts the files that the worker has read in groups
		p.use(m.pool, 0)
		from, b := m.pick()
		for ; from == nil && b == nil; from, b = m.pick() { // it waits
			if m.busy--; m.busy == 0 {
				return
			}
			p.work(m.Wake)
			m.busy++
		}
		if from != nil {
			b = m.scan(p, from)
		}
		if b != nil {
			m.visit(p, b, &grouped)
		}
	}
}

func (m *model) pick() (from *listing, b *batch) {
	if k := len(m.paused); k > 0 {
		from, m.paused = m.paused[k-1], m.paused[:k-1]
		return from, nil
	}
	if m.todo > 0 {
		m.todo--
		return &listing{m.files / m.dirs, false, &line{}, &line{move: m.Move}}, nil
	}
	m.active = slices.DeleteFunc(m.active, func(b *batch) bool { return b.next == b.size })
	if len(m.active) == 0 {
		return nil, nil
	}
	b = slices.MaxFunc(m.active, func(a, b *batch) int { return a.size - a.next - b.size + b.next })
	if left := b.size - b.next; left >= leastHalved {
		half := &batch{size: left / 2, count: b.count, taken: &line{move: m.Move}}
		b.size -= half.size
		m.active = append(m.active, half)
		return nil, half
	}
	b.joined = true
	return nil, b
}

func (m *model) scan(p *process, from *listing) (b *batch) {
	if !from.isRoot { // opened by its name in root
		m.fetch(p, m.root.count, m.Dir, m.cred, m.table)
	}
	n := min(from.left, scanSize)
	p.use(from.by, m.List*float64(n))
	for range int(m.CacheUses) {
		p.use(m.cache, 0)
	}
	p.use(m.pool, 0)
	if from.left -= n; from.left > 0 {
		m.paused = append(m.paused, from)
	}
	if from.isRoot && m.dirs > 0 {
		m.todo += n
		return nil
	}
	b = &batch{size: n, count: from.count, taken: &line{move: m.Move}}
	m.active = append(m.active, b)
	return b
}

func (m *model) visit(p *process, b *batch, grouped *int) {
	for ahead := 0; ; {
		if b.joined {
			p.use(b.taken, 0)
		}
		i := b.next
		if i == b.size {
			return
		}
		if b.next, m.read = i+1, m.read+1; i < ahead {
			continue
		}
		k, opened := rows, m.opened
		if !m.metadata && *grouped >= ringFrom {
			k, opened = min(*grouped/ringShare, group), opened[:1]
		}
		if k = min(k, b.size-i); b.joined || k < smallest {
			m.fetch(p, b.count, m.ContentAlone, m.opened...)
			continue
		}
		for range k {
			m.fetch(p, b.count, m.Content, opened...)
		}
		ahead = i + k
		*grouped += k
	}
}

// fetch does what the kernel does for an entry of a directory. The kernel takes a reference to the open directory and gives it back. An
// open file has a reference to the credentials of the process until it is closed, and with a descriptor it uses their table twice.
func (m *model) fetch(p *process, dir *line, cost float64, opened ...*line) {
	for range 2 {
		p.use(dir, 0)
		for _, l := range opened {
			p.use(l, 0)
		}
		p.work(cost / 2)
	}
}
