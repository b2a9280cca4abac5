package content

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/sys"
)

// heapBuffers are kept from file to file and from run to run, since a new buffer would have
// to be cleared and collected. The first pool has buffers for files of up to 64 KiB, the
// second of up to 128 KiB, and so on. Each has one byte more, for the read that finds the end.
var heapBuffers [5]sync.Pool

// heapClass returns the index of the pool for buffers of size bytes, if there is one.
func heapClass(size int) (class int, ok bool) {
	class = max(bits.Len(uint(max(size-2, 0)))-16, 0)
	return class, class < len(heapBuffers)
}

// skew is the offset in a page at which a buffer begins. On an Intel Xeon, copies of 64 KiB and
// more to the beginning of a page take 8 % longer.
const skew = 16

// allocLarge is sys.AllocLarge, unless a test replaces it.
var allocLarge = sys.AllocLarge

// A Memory holds the buffers of a run's readers for files of more than MaxFree bytes. The
// buffers are mappings: the garbage collector would free a large buffer only after the next
// one is made. Memory keeps unused mappings for the next file, because the kernel clears
// each page of a new mapping, which takes longer than to copy a cached file. So there are
// never more mappings than readers have used at the same time. Several goroutines may call
// the methods. On a nil Memory, take and put work, and nothing is kept.
type Memory struct {
	mu    sync.Mutex // guards what follows
	kept  []keptMemory
	count atomic.Int32 // of kept, to be read without mu
}

type keptMemory struct {
	p   []byte
	age int // calls of Age since p was used
}

// take returns a buffer of size bytes.
func (m *Memory) take(size int64) ([]byte, error) {
	if class, ok := heapClass(int(min(size, 2*MaxFree))); ok {
		if p, ok := heapBuffers[class].Get().(*[]byte); ok {
			return (*p)[:size], nil
		}
		return make([]byte, skew+1<<(16+class)+1)[skew:][:size], nil
	}
	p := m.unkeep(size)
	if int64(cap(p)) >= size {
		return p[:size], nil
	}
	sys.FreeLarge(p)
	// A quarter more of address space, for a next file that is a little larger.
	if q, err := allocLarge(max(size, int64(cap(p))/4*5)); err == nil {
		return q[:size], nil
	}
	return allocLarge(size)
}

// unkeep returns the smallest kept buffer of size bytes or more, or if there is none the
// largest.
func (m *Memory) unkeep(size int64) []byte {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	best := -1
	for i, k := range m.kept {
		if best < 0 {
			best = i
			continue
		}
		n, b := int64(cap(k.p)), int64(cap(m.kept[best].p))
		if n >= size && (n < b || b < size) || n < size && n > b {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	p := m.kept[best].p
	m.kept = slices.Delete(m.kept, best, best+1)
	m.count.Store(int32(len(m.kept)))
	return p
}

// put takes back what take has returned.
func (m *Memory) put(p []byte) {
	if p == nil {
		return
	}
	if class, ok := heapClass(cap(p)); ok {
		q := p // only q escapes to the heap
		heapBuffers[class].Put(&q)
		return
	}
	if m == nil {
		sys.FreeLarge(p)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = append(m.kept, keptMemory{p: p})
	m.count.Store(int32(len(m.kept)))
}

// perAge is how many bytes may be kept unused for one call of Age. The kernel clears them in
// about the time in which a worker visits the files between two calls.
const perAge = 8 << 20

// Age frees buffers that have not been used for long. Each worker calls it after a number of
// files.
func (m *Memory) Age() {
	if m.count.Load() > 0 {
		m.free(func(k *keptMemory) bool {
			k.age++
			return k.age > 1+cap(k.p)/perAge
		})
	}
}

// Close frees all that is kept.
func (m *Memory) Close() {
	if m.count.Load() > 0 {
		m.free(func(*keptMemory) bool { return true })
	}
}

func (m *Memory) free(which func(*keptMemory) bool) {
	m.mu.Lock()
	var freed [][]byte
	keep := m.kept[:0]
	for _, k := range m.kept {
		if which(&k) {
			freed = append(freed, k.p)
		} else {
			keep = append(keep, k)
		}
	}
	clear(m.kept[len(keep):])
	m.kept = keep
	m.count.Store(int32(len(keep)))
	m.mu.Unlock()
	for _, p := range freed {
		sys.FreeLarge(p)
	}
}
