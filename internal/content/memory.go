package content

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fileproc/fileproc/internal/sys"
)

// heapBuffers are kept from file to file and from run to run: those for files of up
// to 64 KiB, of up to 128 KiB and so on, and the byte that shows the end of each. A
// new one would have to be cleared, and collected.
var heapBuffers [5]sync.Pool

// heapClass returns the pool for buffers of size bytes, if there is one.
func heapClass(size int) (class int, ok bool) {
	class = max(bits.Len(uint(max(size-2, 0)))-16, 0)
	return class, class < len(heapBuffers)
}

// skew is where in a page the memory begins. Copies of 64 KiB and more to the beginning of a page take
// 8 % longer on an Intel Xeon.
const skew = 16

// allocLarge is sys.AllocLarge, unless a test replaces it.
var allocLarge = sys.AllocLarge

// A Memory is what the readers of a run have for files of more than MaxFree bytes:
// mappings of their own, since the garbage collector would free such a buffer only after
// the next is made. What no reader uses is kept for the next file, because the kernel
// clears each page of a new mapping, which takes longer than to copy a cached file. So
// there are never more than readers had at the same time. The methods may be called by
// several goroutines. On a nil Memory, take and put work, and nothing is kept.
type Memory struct {
	mu    sync.Mutex // guards what follows
	kept  []keptMemory
	count atomic.Int32 // of kept, to be read without mu
}

type keptMemory struct {
	p   []byte
	age int // calls of Age since it was used
}

// take returns size bytes.
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
	// The address space of a quarter more, for the next file that is a little larger.
	if q, err := allocLarge(max(size, int64(cap(p))/4*5)); err == nil {
		return q[:size], nil
	}
	return allocLarge(size)
}

// unkeep returns the smallest that is kept of size bytes or more, else the largest.
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
		q := p // which is allocated, unlike p
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

// perAge is how many bytes may be kept unused for one call of Age: the kernel takes
// about as long to clear them as a worker for the files between two calls.
const perAge = 8 << 20

// Age is called by each worker after a number of files. It frees what has long not been used.
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
