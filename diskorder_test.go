package fileproc

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// boundListedAhead sets maxListedAhead until the test has ended.
func boundListedAhead(t *testing.T, bytes int) {
	was := maxListedAhead
	maxListedAhead = bytes
	t.Cleanup(func() { maxListedAhead = was })
}

// sortChunks sets chunkSize until the test has ended.
func sortChunks(t *testing.T, size int) {
	was := chunkSize
	chunkSize = size
	t.Cleanup(func() { chunkSize = was })
}

// An orderModel says what a diskOrder must do, from sorted slices and plain sums.
type orderModel struct {
	q      *diskOrder
	max    int // listings
	stack  []*job
	ahead  []*job         // of directories listed ahead
	last   uint64         // inode of the directory of ahead that was taken last
	files  []listedFile   // to be read
	toStat [][]listedFile // in the chunks in which they were sorted
	fresh  []listedFile   // to stat, and not sorted
	bytes  int            // of files, since there were none
	full   bool

	partly []*job // taken and not listed to the end
	given  map[string]int
	made   int
}

// jobFor returns a job of which a queue is told no more than the directory's name and inode number.
func jobFor(name string, inode uint64) *job {
	return newJob(node{name: names.New(name), inode: inode}, alwaysReady{})
}

func newOrderModel(window int) *orderModel {
	root := jobFor("root", 0)
	m := &orderModel{max: 3, stack: []*job{root}, given: map[string]int{}}
	m.q = &diskOrder{cold: new(coldMode), stack: []*job{root}}
	m.q.cold.pace.Init(window)
	m.q.cold.fillWindows(window)
	return m
}

func (m *orderModel) cold() bool { return m.q.cold.isOn() }

func (m *orderModel) dirBytes() (n int) {
	for _, d := range m.ahead {
		n += dirCost + len(d.node.name.String())
	}
	return n
}

func (m *orderModel) left() int { return len(m.files) + len(slices.Concat(m.toStat...)) + len(m.fresh) }

// mayGiveAll reports whether take must give a window if there are files.
func (m *orderModel) mayGiveAll() bool {
	return m.full || !m.cold() || len(m.partly) == 0 && len(m.stack)+len(m.ahead) == 0
}

// mayLook reports whether take must give a window of files to be looked at.
func (m *orderModel) mayLook() bool {
	return m.mayGiveAll() && len(m.toStat)+len(m.fresh) > 0 || len(m.partly) > 0 && len(m.toStat) >= statFrom
}

// nextDir takes the directory that take must give out of the model, or returns nil.
func (m *orderModel) nextDir() *job {
	if k := len(m.stack); k > 0 {
		j := m.stack[k-1]
		m.stack = m.stack[:k-1]
		return j
	}
	if len(m.ahead) == 0 {
		return nil
	}
	// The lowest number from last on, or else the lowest of all.
	slices.SortStableFunc(m.ahead, func(a, b *job) int { return cmp.Compare(a.node.inode, b.node.inode) })
	i := slices.IndexFunc(m.ahead, func(j *job) bool { return j.node.inode >= m.last })
	j := m.ahead[max(i, 0)]
	m.last = j.node.inode
	m.ahead = slices.Delete(m.ahead, max(i, 0), max(i, 0)+1)
	return j
}

func (m *orderModel) take(t *testing.T) {
	pending := m.q.pending(len(m.partly), m.max)
	b, j := m.q.take(len(m.partly), m.max)
	require.Equal(t, pending > 0, b != nil || j != nil, "pending says %d", pending)
	switch {
	case m.mayLook():
		require.Nil(t, j)
		m.requireLooks(t, b, pending)
	case m.mayGiveAll() && len(m.files) > 0:
		require.Nil(t, j)
		m.requireWindow(t, b, pending)
	case len(m.partly) < m.max:
		require.Nil(t, b, "files of directories that may have neighbours elsewhere")
		require.LessOrEqual(t, pending, min(len(m.stack)+len(m.ahead), m.max-len(m.partly)))
		want := m.nextDir()
		if j != want { // of equal numbers either may come first
			require.NotNil(t, j)
			require.NotNil(t, want)
			require.Equal(t, want.node.inode, j.node.inode)
			m.ahead[slices.Index(m.ahead, j)] = want
		}
		if j != nil {
			m.give(t, j.node.name.String())
			m.partly = append(m.partly, j)
		}
	default:
		require.Nil(t, b)
		require.Nil(t, j)
	}
}

func (m *orderModel) requireWindow(t *testing.T, b *batch, pending int) {
	size := min(len(m.files), m.q.cold.together())
	m.files = m.requireFirst(t, b, m.files, size, pending)
	m.forget()
}

// requireLooks wants a window of the sorted files, or of all. It ends between two parts of the table of inodes.
func (m *orderModel) requireLooks(t *testing.T, b *batch, pending int) {
	if m.mayGiveAll() && len(m.fresh) > 0 {
		m.toStat, m.fresh = append(m.toStat, m.fresh), nil
	}
	all := slices.Concat(m.toStat...)
	slices.SortStableFunc(all, compareOnDisk)
	size := 0
	for size < min(len(all), maxToStat) && (size < content.WindowMax || all[size].shares(all[size-1])) {
		size++
	}
	all = m.requireFirst(t, b, all, size, pending)
	for i, chunk := range m.toStat {
		m.toStat[i] = slices.DeleteFunc(chunk, func(f listedFile) bool { return !slices.Contains(all, f) })
	}
	m.toStat = slices.DeleteFunc(m.toStat, func(chunk []listedFile) bool { return len(chunk) == 0 })
	m.forget()
}

// requireFirst wants b to have the first size of files, in order. It returns the others.
func (m *orderModel) requireFirst(t *testing.T, b *batch, files []listedFile, size, pending int) []listedFile {
	require.NotNil(t, b)
	require.LessOrEqual(t, pending, (len(files)+size-1)/size)
	require.Nil(t, b.node)
	require.Len(t, b.entries, size)
	require.Len(t, b.nodes, size)
	slices.SortStableFunc(files, compareOnDisk)
	for i, name := range b.entries {
		at := slices.IndexFunc(files[i:], func(f listedFile) bool { return f.name == name && f.node == b.nodes[i] })
		require.GreaterOrEqual(t, at, 0, "%s does not lie ahead", name)
		require.Zero(t, compareOnDisk(files[i], files[i+at]), "%s is not the next", name)
		files[i], files[i+at] = files[i+at], files[i]
		m.give(t, b.nodes[i].name.String()+"/"+name.String())
	}
	return files[size:]
}

// forget says that the memory of files is free once none is left.
func (m *orderModel) forget() {
	if m.left() == 0 {
		m.bytes, m.full = 0, false
	}
}

func compareOnDisk(a, b listedFile) int {
	if a.node.device != b.node.device {
		return cmp.Compare(a.node.device, b.node.device)
	}
	return cmp.Compare(a.inode, b.inode)
}

// list lists a part of a directory that is partly listed.
func (m *orderModel) list(t *testing.T, r *rand.Rand) {
	if len(m.partly) == 0 {
		return
	}
	i := r.IntN(len(m.partly))
	j := m.partly[i]
	var res scanResult
	for range r.IntN(4) {
		m.made++
		res.subs = append(res.subs, jobFor(fmt.Sprint("d", m.made), r.Uint64()>>(r.IntN(2)*58)))
	}
	var files []names.Name
	var inodes []uint64
	for range r.IntN(12) {
		m.made++
		inode := uint64(r.IntN(1000))
		files = append(files, names.New(fmt.Sprintf("f%d-%d", inode, m.made)))
		inodes = append(inodes, inode)
	}
	if len(files) > 0 {
		m.addFiles(t, j.node, r.IntN(2) == 0, files, inodes)
	}
	res.state = scanState(r.IntN(3))
	if res.state != scanMore {
		m.partly = slices.Delete(m.partly, i, i+1)
	}
	for _, sub := range res.subs {
		m.addJob(sub)
	}
	if res.state == scanAgain {
		m.given[j.node.name.String()]--
		m.addJob(j)
	}
	m.q.add(j, res)
}

func (m *orderModel) addJob(j *job) {
	if !m.cold() || m.dirBytes()+m.bytes >= maxListedAhead {
		m.stack = append(m.stack, j)
	} else {
		m.ahead = append(m.ahead, j)
	}
}

func (m *orderModel) addFiles(t *testing.T, n *node, toStat bool, files []names.Name, inodes []uint64) {
	m.bytes += dirCost
	for i, name := range files {
		f := listedFile{inodes[i], name, n}
		if !toStat {
			m.files = append(m.files, f)
		} else if m.fresh = append(m.fresh, f); len(m.fresh) == chunkSize {
			m.toStat, m.fresh = append(m.toStat, m.fresh), nil
		}
		m.bytes += fileCost + len(name.String()) + 1
	}
	m.full = m.full || m.dirBytes()+m.bytes >= maxListedAhead
	m.q.addFiles(n, toStat, files, inodes)
	clear(files) // the caller reuses both
	clear(inodes)
}

func (m *orderModel) requireSame(t *testing.T) {
	require.Equal(t, m.left()+len(m.stack)+len(m.ahead) == 0, m.q.isEmpty())
	require.Equal(t, m.full, m.q.batchesFirst())
	require.Equal(t, m.left(), m.q.toStat.count+m.q.toRead.count)
	require.Equal(t, m.dirBytes(), m.q.dirBytes)
}

func (m *orderModel) give(t *testing.T, name string) {
	m.given[name]++
	require.Equal(t, 1, m.given[name], name)
}

// TestDiskOrderIsItsModel: random histories, in and out of the cold mode, give every file and directory once, in order.
func TestDiskOrderIsItsModel(t *testing.T) {
	boundListedAhead(t, 4000)
	sortChunks(t, 3)
	seed := rand.Uint64()
	filled, abandoned, statted := 0, 0, 0
	for history := range 300 {
		r := rand.New(rand.NewPCG(seed, uint64(history)))
		m := newOrderModel([]int{0, 1, 2, 7, content.WindowMax}[r.IntN(5)])
		m.q.cold.setOn(r.IntN(4) > 0)
		steps := r.IntN(400)
		for range steps {
			switch k := r.IntN(20); {
			case k == 0:
				m.q.cold.setOn(!m.cold())
			case k == 1:
				m.q.cold.fillWindows(r.IntN(content.WindowMax + 1))
			case k < 12:
				m.list(t, r)
			default:
				if m.mayLook() && !m.mayGiveAll() {
					statted++
				}
				m.take(t)
			}
			m.requireSame(t)
			if m.full {
				filled++
			}
			if t.Failed() {
				t.Fatalf("seed %d, history %d", seed, history)
			}
		}
		if history%3 == 0 {
			abandoned += m.left()
			require.EqualValues(t, m.left(), m.q.abandon())
			require.Zero(t, m.q.abandon())
			continue
		}
		for m.partly, m.max = nil, 1<<30; !m.q.isEmpty(); m.partly = nil { // nothing is lost
			m.take(t)
			m.requireSame(t)
		}
		require.Zero(t, m.left())
		require.Zero(t, m.q.pending(0, 1))
	}
	require.Positive(t, filled, "this tests nothing unless the bound is reached")
	require.Positive(t, abandoned)
	require.Positive(t, statted, "none is given to stat while directories are listed")
}

// TestDiskOrderSortsByDeviceAndInode: over several chunks of files, each sorted when it is full.
func TestDiskOrderSortsByDeviceAndInode(t *testing.T) {
	m := newOrderModel(content.WindowMax)
	m.q.cold.setOn(true)
	m.take(t)
	m.partly = nil // root is listed
	r := rand.New(rand.NewPCG(3, 4))
	dirs := []*node{{name: names.New("a"), device: 2}, {name: names.New("b"), device: 1}, {name: names.New("c"), device: 2}}
	for i := range 3 * chunkSize / 50 {
		var files []names.Name
		var inodes []uint64
		for j := range 50 {
			inodes = append(inodes, r.Uint64N(1<<40))
			files = append(files, names.New(fmt.Sprintf("f%d-%d.%d", inodes[j], i, j)))
		}
		m.addFiles(t, dirs[i%3], false, files, inodes)
	}
	require.Greater(t, len(m.q.toRead.chunks), 1)
	total := len(m.files)
	for len(m.files) > 0 {
		m.take(t)
	}
	require.Len(t, m.given, total+1)
	require.Empty(t, m.q.toRead.chunks)
	require.True(t, m.q.isEmpty())
}

// fillUp adds files of n, with names of 20 bytes and some at a time, until q is full. It returns how many.
func fillUp(t *testing.T, q *diskOrder, n *node, some int) (added int) {
	var arena names.Arena // as a listing has, since a name of its own takes 512 bytes
	for !q.batchesFirst() {
		files := make([]names.Name, some)
		for i := range files {
			files[i] = arena.Add(fmt.Appendf(nil, "%020d", added+i))
		}
		added += some
		q.addFiles(n, false, files, make([]uint64, some))
		require.Less(t, added*(fileCost+20), maxListedAhead+some*(fileCost+40), "too much is listed ahead")
	}
	return added
}

// TestDiskOrderIsBounded: what is listed ahead stays below the bound, but for what one more scan finds; and
// directories found beyond it are begun last in, first out.
func TestDiskOrderIsBounded(t *testing.T) {
	boundListedAhead(t, 100_000)
	q := &diskOrder{cold: new(coldMode)}
	q.cold.setOn(true)
	q.cold.pace.Init(64)
	q.cold.fillWindows(64)
	n := &node{name: names.New("n")}
	added := fillUp(t, q, n, 100)
	require.Greater(t, added*(fileCost+20+8), maxListedAhead*9/10, "full too early")
	for i := range 3 {
		q.add(nil, scanResult{subs: []*job{jobFor(fmt.Sprint(i), uint64(i))}})
	}
	require.Empty(t, q.dirs.jobs)
	got := 0
	for q.batchesFirst() {
		b, d := q.take(2, 9) // although directories are partly listed
		require.Nil(t, d)
		got += len(b.entries)
	}
	require.Equal(t, added, got, "it is full until no file is left")
	for _, want := range []string{"2", "1", "0"} {
		b, d := q.take(0, 9)
		require.Nil(t, b)
		require.Equal(t, want, d.node.name.String())
	}
	require.True(t, q.isEmpty())
}

// With little memory less is listed ahead: half of what is left of the limit, since the garbage collector lets the heap grow
// to twice of it. A full megabyte always is.
func TestDiskOrderFitsTheMemory(t *testing.T) {
	for limit, want := range map[int64]int{
		math.MaxInt64: 52 << 20, 144 << 20: 52 << 20, 64 << 20: 12 << 20, 48 << 20: 4 << 20, 40 << 20: 1 << 20, 1 << 20: 1 << 20, 0: 1 << 20,
	} {
		q := &diskOrder{cold: new(coldMode)}
		q.fitMemory(limit)
		require.Equal(t, want, maxListedAhead-q.withheld, "with %d MiB", limit>>20)
		q.cold.setOn(true)
		n := &node{name: names.New("n")}
		added := fillUp(t, q, n, 1000)
		require.InDelta(t, want/(fileCost+21), added, float64(want/(fileCost+21)/10+1000))
		q.add(nil, scanResult{subs: []*job{jobFor("d", 0)}})
		require.Empty(t, q.dirs.jobs)
	}
}

// TestColdModeIsRevocable: in a pool, a run that turns the cold mode on and off again and again visits every entry once.
func TestColdModeIsRevocable(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			c := newCrew(randomPlan(r), 1+r.IntN(6), 1+r.IntN(4))
			c.dirs.cold.pace.Init(r.IntN(9))
			period := 1 + r.IntN(7)
			c.onStep = func(k int) {
				time.Sleep(time.Duration(k*k%5) * time.Millisecond)
				if k%period == 0 {
					was := c.dirs.cold.isOn()
					c.dirs.cold.setOn(!was)
					if was {
						c.pool.wake()
					}
				}
			}
			c.run()
			c.requireComplete(t, c.pool.maxListings)
			require.Zero(t, c.pool.abandoned)
		})
	}
}

func TestMemoryLimitOfGo(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(50 << 20))
	require.LessOrEqual(t, memoryLimit(), int64(50<<20))
}

// What is pending is never more than take gives, so that no worker is woken for nothing, and nothing only if there is nothing.
func TestDiskOrderPromisesNoMoreThanItGives(t *testing.T) {
	sortChunks(t, maxToStat/statFrom)
	for _, toStat := range []int{0, 1, maxToStat - 1, maxToStat, maxToStat + 1, maxToStat + 2*tableInodes, maxToStat + (statFrom-1)*chunkSize + 1} {
		for _, reads := range []int{0, content.WindowMax, content.WindowMax + 1} {
			for _, dirs := range []int{0, 2, 5} {
				for _, listed := range []int{0, 1, 3} {
					for _, mode := range []string{"warm", "cold", "one directory at a time"} {
						q := &diskOrder{cold: new(coldMode)}
						q.cold.pace.Init(content.WindowMax)
						q.cold.fillWindows(content.WindowMax)
						cold := mode != "warm"
						q.cold.setOn(cold)
						if mode == "one directory at a time" {
							q.cold.happens(&waitsForDisk)
							for q.cold.pace.Calls() > 1 {
								q.cold.pace.ReleaseCall(q.cold.pace.AcquireCall(t.Context()), time.Hour+1) // above knobs.SlowCall
							}
						}
						n := &node{}
						for k, files := range []int{toStat, reads} {
							q.addFiles(n, k == 0, make([]names.Name, files), make([]uint64, files))
						}
						q.add(nil, scanResult{subs: slices.Repeat([]*job{jobFor("", 0)}, dirs)})
						pending, given := q.pending(listed, 4), 0
						for at := listed; ; given++ {
							b, d := q.take(at, 4)
							if d != nil {
								at++
							} else if b == nil {
								break
							}
						}
						require.LessOrEqual(t, pending, given, "%d to stat, %d to read, %d directories, %d listed", toStat, reads, dirs, listed)
						require.Equal(t, given > 0, pending > 0)
						if dirs == 0 && listed == 0 && toStat*reads == 0 || toStat+reads == 0 {
							require.Equal(t, given, pending, "no less, if it is all files or all directories")
						}
					}
				}
			}
		}
	}
}

// Files that were looked at are not looked at again: a window of those to be read is at the stage that follows.
func TestDiskOrderStages(t *testing.T) {
	for _, toStat := range []bool{false, true} {
		q := &diskOrder{cold: new(coldMode), readStage: stageAsked}
		q.addFiles(&node{}, toStat, make([]names.Name, 1), make([]uint64, 1))
		b, _ := q.take(0, 1)
		require.Equal(t, map[bool]stage{false: stageAsked, true: stageListed}[toStat], b.stage)
		q.reuse(b)
		q.addFiles(&node{}, !toStat, make([]names.Name, 1), make([]uint64, 1))
		again, _ := q.take(0, 1)
		require.Same(t, b, again, "its memory is used again")
		require.Len(t, again.entries, 1)
		require.Equal(t, map[bool]stage{true: stageAsked, false: stageListed}[toStat], again.stage)
	}
}

// A window of files to be looked at ends where a part of a table of inodes does, if that is not far.
func TestDiskOrderEndsBetweenTables(t *testing.T) {
	for _, c := range []struct {
		first  uint64 // number of the first file, which others follow
		device uint64 // of those from 300 on
		want   int
	}{
		{0, 0, tableInodes},
		{tableInodes / 2, 0, content.WindowMax},
		{tableInodes/2 + 1, 0, content.WindowMax + tableInodes - 1},
		{0, 1, 300},
	} {
		q, a, b := &diskOrder{cold: new(coldMode)}, &node{}, &node{device: c.device}
		for i := range 2000 {
			n := a
			if i >= 300 {
				n = b
			}
			q.addFiles(n, true, make([]names.Name, 1), []uint64{c.first + uint64(i)})
		}
		w, _ := q.take(0, 1)
		require.Len(t, w.entries, c.want, "%+v", c)
		require.Len(t, w.inodes, c.want)
	}
	q := &diskOrder{cold: new(coldMode)}
	q.addFiles(&node{}, true, make([]names.Name, 2000), make([]uint64, 2000))
	w, _ := q.take(0, 1)
	require.Len(t, w.entries, maxToStat, "of a file system without numbers")
}

// What a queue has given stays in no memory of the queue: names and directories would be kept for the rest of the run.
func TestQueuesLetGoOfWhatTheyGive(t *testing.T) {
	h := fileHeap{{{inode: 1}}, {{inode: 2}}}
	heap.Pop(&h)
	require.Nil(t, h[:2][1])
	j := jobHeap{jobs: []*job{jobFor("a", 1), jobFor("b", 2)}}
	heap.Pop(&j)
	require.Nil(t, j.jobs[:2][1])
	q := diskOrder{cold: new(coldMode), stack: []*job{jobFor("a", 1), jobFor("b", 2)}}
	_, taken := q.take(0, 1)
	require.Equal(t, "b", taken.node.name.String())
	require.Nil(t, q.stack[:2][1])
	l := backend.Listing{}
	l.Add([]byte("a"), 0, 0)
	l.Reset()
	require.Nil(t, l.Entries[:1][0].Name)
	p := pool{paused: []*job{jobFor("a", 1)}}
	require.NotNil(t, p.popPaused())
	require.Nil(t, p.paused[:1][0])
}

// The memory for many files, and the batches for windows, are made where there are many.
func TestMemoryOfListedFiles(t *testing.T) {
	sortChunks(t, 100)
	var l listedFiles
	n := &node{}
	l.add(listedFile{inode: 1, node: n})
	require.Less(t, cap(l.unsorted), 100, "one file, as in most runs")
	for i := range 100 {
		l.add(listedFile{inode: uint64(i), node: n})
	}
	require.Equal(t, 100, cap(l.unsorted), "there are many")
}

// A window's memory is that of the next.
func TestMemoryOfWindows(t *testing.T) {
	testtree.Set(t, &knobs.AlwaysCold, true)
	w := &world{root: crowd(3*content.WindowMax, 0), perList: 1000}
	out := w.process(t.Context(), Options{Workers: 1}, nil)
	require.NoError(t, out.err)
	require.NotEmpty(t, out.run.disk.spare)
}

// Files that are sorted and may be given are at least one window, however many of each chunk are gone.
func TestDiskOrderPromisesAWindowOfSeveralChunks(t *testing.T) {
	const chunk = 1000
	sortChunks(t, chunk)
	q := &diskOrder{cold: new(coldMode)}
	q.cold.setOn(true)
	inodes := make([]uint64, statFrom*chunk)
	for i := range inodes {
		inodes[i] = uint64(i%chunk*statFrom + i/chunk) // each chunk has some of the first
	}
	q.addFiles(&node{}, true, make([]names.Name, len(inodes)), inodes)
	q.stack = []*job{jobFor("a", 1)}
	_, j := q.take(0, 2)
	require.NotNil(t, j, "a directory is listed meanwhile")
	windows := 0
	for {
		promised := q.pending(1, 2)
		b, _ := q.take(1, 2)
		require.Equal(t, b != nil, promised > 0)
		if b == nil {
			break
		}
		windows++
	}
	require.Greater(t, windows, 2)
}

// The bound is reached, not passed.
func TestDiskOrderDrainsAtTheBound(t *testing.T) {
	testtree.Set(t, &maxListedAhead, dirCost+fileCost+1)
	for _, withheld := range []int{-1, 0} {
		q := &diskOrder{cold: new(coldMode), withheld: withheld}
		q.addFiles(&node{}, false, make([]names.Name, 1), make([]uint64, 1))
		require.Equal(t, withheld == 0, q.batchesFirst())
	}
	q := &diskOrder{cold: new(coldMode)}
	q.cold.setOn(true)
	q.withheld = fileCost // two directories fit
	for range 3 {
		q.addJob(jobFor("", 1))
	}
	require.Len(t, q.stack, 1)
	q.takeJob()
	q.takeJob()
	q.takeJob()
	q.addJob(jobFor("", 1))
	require.Empty(t, q.stack)
}
