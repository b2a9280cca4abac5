package content

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
)

func taken(t *testing.T, m *Memory, size int64) []byte {
	p, err := m.take(size)
	require.NoError(t, err)
	require.Equal(t, int(size), len(p))
	p[0], p[size-1] = 1, 1
	return p
}

func TestMemoryIsUsedAgain(t *testing.T) {
	const mib = 1 << 20
	m := new(Memory)
	defer m.Close()
	at := func(p []byte) *byte { return unsafe.SliceData(p) }
	small, large := taken(t, m, 2*mib), taken(t, m, 9*mib)
	m.put(small)
	m.put(large)
	require.Same(t, at(small), at(taken(t, m, 2*mib)), "the smallest that is large enough")
	require.Same(t, at(large), at(taken(t, m, 2*mib)), "or any other")
	require.Zero(t, len(m.kept))
	m.put(large[:1])
	m.put(small[:1])
	require.Same(t, at(large), at(taken(t, m, 3*mib)))
	m.put(large)
	larger := taken(t, m, 10*mib) // in place of the largest
	require.Equal(t, 1, len(m.kept))
	require.Equal(t, 2*mib, cap(m.kept[0].p))
	require.Equal(t, 9*mib/4*5, cap(larger), "with room for a file that is a little larger")
	m.put(larger)
	require.EqualValues(t, 2, m.count.Load())
}

// What is not used for long is given back: the larger it is, the later, since to have it again takes longer.
func TestMemoryAges(t *testing.T) {
	m := new(Memory)
	small, large := taken(t, m, 2<<20), taken(t, m, 3*perAge)
	m.put(small)
	m.put(large)
	for range 3 {
		m.put(taken(t, m, 2<<20))
		m.put(taken(t, m, 3*perAge))
		m.Age()
		require.Equal(t, 2, len(m.kept), "it has been used meanwhile")
	}
	m.Age()
	require.Equal(t, 1, len(m.kept))
	require.Equal(t, 3*perAge, cap(m.kept[0].p))
	for range 3 {
		require.EqualValues(t, 1, m.count.Load())
		m.Age()
	}
	require.Zero(t, len(m.kept))
	require.Zero(t, m.count.Load())
	m.Age()
	m.put(taken(t, m, 2<<20))
	m.Close()
	require.Zero(t, len(m.kept))
	require.Zero(t, m.count.Load())
}

// There is never more memory than the readers had at the same time.
func TestMemoryIsBounded(t *testing.T) {
	const readers = 4
	m := new(Memory)
	defer m.Close()
	var most atomic.Int32
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			for k := range 200 {
				m.put(taken(t, m, int64(2+(i*7+k*5)%11)<<20))
				most.Store(max(most.Load(), m.count.Load()))
				if k%50 == 0 {
					m.Age()
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, len(m.kept), readers)
	require.LessOrEqual(t, most.Load(), int32(readers))
	require.Positive(t, most.Load())
}

// A recorder is a regular file that notes how it is read.
type recorder struct {
	*bytes.Reader
	size     int64 // as the metadata says
	cached   int   // bytes that Cached gives at most
	trueSize bool
	log      []string
	asked    int
}

func recorded(size int) *recorder {
	return &recorder{Reader: bytes.NewReader(bytes.Repeat([]byte{'x'}, size)), size: int64(size), cached: size}
}

func (f *recorder) Cached(p []byte) (int, bool) {
	f.log = append(f.log, "cached")
	f.asked = len(p)
	n, _ := f.Reader.Read(p[:min(len(p), f.cached)])
	return n, n < len(p) && n%512 != 0
}

func (f *recorder) Stat() (sys.Stat, error) {
	f.log = append(f.log, "stat")
	return sys.Stat{Size: f.size}, nil
}

func (f *recorder) Read(p []byte) (int, error) {
	f.log = append(f.log, "read")
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		err = nil
	}
	return n, err
}

func (f *recorder) Close() {}

func (f *recorder) HasTrueSize(s sys.Stat) bool { return f.trueSize }

// A Reader knows how large files are from those that it has read: then a file of up to 1 MiB takes one read, and the size
// of a larger one is asked for before its memory is chosen. It forgets that over some small files.
func TestReaderExpectsTheSameSize(t *testing.T) {
	m := new(Memory)
	r := Reader{Want: Want{Limit: -1}, Stopped: goesOn, Memory: m}
	r.TakeBuffer()
	read := func(f *recorder, log ...string) {
		t.Helper()
		var c Content
		require.NoError(t, r.Read(f, &c))
		require.Equal(t, int(f.Reader.Size()), len(c.Data))
		require.Equal(t, log, f.log)
		r.Release()
	}
	read(recorded(411), "cached")
	read(recorded(65_701), "cached", "stat", "read", "read")
	for _, size := range []int{65_701, 65_701, 60_001, 411, 65_701} {
		read(recorded(size), "cached")
		require.LessOrEqual(t, r.Held(), 256<<10+1)
	}
	read(recorded(MaxRead+100), "cached", "stat", "read", "read")
	require.Zero(t, r.Held(), "more than the heap has")
	for range 3 {
		f := recorded(MaxRead + 100)
		read(f, "stat", "cached", "read", "read")
		require.Equal(t, MaxRead, f.asked)
		require.Equal(t, 1, len(m.kept))
	}
	read(recorded(411), "stat", "cached")
	read(recorded(411), "cached")
	read(recorded(900_001), "cached")
	require.Positive(t, r.Held())
	for range 30 {
		r.Release() // of files that others have read
	}
	require.Zero(t, r.Held())
	f := recorded(65_701)
	read(f, "cached", "stat", "read", "read")
	require.Equal(t, FirstBuffer, f.asked)
	r.GiveBuffer()
	require.Zero(t, r.expected)
	m.Close()
}

// Where the size is the end, nothing is read to see that. Where it is not, or not yet, or has been passed, there is more to read.
func TestReaderTrustsATrueSize(t *testing.T) {
	for _, stat := range []bool{false, true} {
		for name, c := range map[string]struct {
			told, cached int
			trueSize     bool
			reads        int
		}{
			"cached":            {8192, 8192, true, 0},
			"not cached":        {8192, 0, true, 1},
			"in part":           {8192, 4096, true, 1},
			"not known":         {8192, 8192, false, 1},
			"longer by now":     {4096, 8192, true, 1},
			"shorter by now":    {9000, 8192, true, 1},
			"none, not cached":  {0, 0, true, 2},
			"longer, in part":   {4096, 4096, true, 0}, // the content is that of the moment of the size
			"longer, not asked": {4096, 0, true, 2},
		} {
			f := recorded(8192)
			f.size, f.cached, f.trueSize = int64(c.told), c.cached, c.trueSize
			r := Reader{Want: Want{Limit: -1, Stat: stat}, Stopped: goesOn}
			r.TakeBuffer()
			var got Content
			require.NoError(t, r.Read(f, &got))
			want := 8192
			if name == "longer, in part" {
				want = 4096
			}
			require.Equal(t, want, len(got.Data), name)
			reads := 0
			for _, l := range f.log {
				if l == "read" {
					reads++
				}
			}
			require.Equal(t, c.reads, reads, name)
			r.GiveBuffer()
		}
	}
}

// No memory is taken for a file that is too large, and a binary file is not read to its end, however large the files before were.
func TestReaderDoesNotExpectInVain(t *testing.T) {
	r := Reader{Want: Want{Limit: 5 << 20}, Stopped: goesOn}
	r.TakeBuffer()
	defer r.GiveBuffer()
	var c Content
	require.NoError(t, r.Read(recorded(5<<20), &c))
	r.Release()
	f := recorded(5<<20 + 1)
	require.ErrorIs(t, r.Read(f, &c), ErrTooLarge)
	require.Equal(t, FirstBuffer, f.asked)
	require.Zero(t, r.Held())

	b := Reader{Want: Want{Limit: -1, SkipBinary: true}, Stopped: goesOn}
	b.TakeBuffer()
	defer b.GiveBuffer()
	for _, size := range []int{100_001, 3 << 20} {
		require.NoError(t, b.Read(recorded(size), &c))
		b.Release()
		f := recorded(size)
		f.Reader = bytes.NewReader(make([]byte, size))
		require.Equal(t, ErrBinary, b.Read(f, &c))
		require.Equal(t, FirstBuffer, f.asked)
		require.NotContains(t, f.log, "read")
	}
}

// Where there is no memory for what the metadata claims, a file is read into memory that no other reader gets.
func TestReaderWithoutMemory(t *testing.T) {
	t.Cleanup(func() { allocLarge = sys.AllocLarge })
	allocLarge = func(int64) ([]byte, error) { return nil, io.ErrShortBuffer }
	for _, size := range []int{5000, FirstBuffer, 500_000} {
		r := Reader{Want: Want{Limit: -1}, Stopped: goesOn}
		r.TakeBuffer()
		var c Content
		require.NoError(t, r.Read(recorded(100_001), &c))
		r.Release()
		f := recorded(size)
		f.size, f.cached = 3<<30, 0
		require.NoError(t, r.Read(f, &c))
		require.Len(t, c.Data, size)
		if p := r.large; p != nil {
			require.Same(t, unsafe.SliceData(p), unsafe.SliceData(c.Data))
		} else {
			require.Same(t, &r.buf[0], unsafe.SliceData(c.Data))
		}
		r.GiveBuffer()
	}
}

// A file that cannot be read may be tried again for long: it keeps no memory meanwhile, nor does one that is left out.
func TestReaderKeepsNothingForAFailure(t *testing.T) {
	r := Reader{Want: Want{Limit: -1, SkipLarger: 300_000}, Stopped: goesOn}
	r.TakeBuffer()
	defer r.GiveBuffer()
	var c Content
	require.NoError(t, r.Read(recorded(200_001), &c))
	r.Release()
	require.Positive(t, r.Held())
	require.Equal(t, ErrLarger, r.Read(recorded(300_001), &c))
	require.Zero(t, r.Held())
}
