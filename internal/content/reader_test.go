package content

import (
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
)

func TestReaderUsesBuffersAgain(t *testing.T) {
	for size, want := range map[int64]int{1: 1<<16 + 1, 1<<16 + 1: 1<<16 + 1, 1<<16 + 2: 1<<17 + 1, 1<<20 + 1: 1<<20 + 1, 1<<20 + 2: 1<<20 + 2} {
		p, err := (*Memory)(nil).take(size)
		require.NoError(t, err)
		require.Len(t, p, int(size))
		require.Equal(t, want, cap(p))
		(*Memory)(nil).put(p)
	}
	if sys.Race {
		t.Skip("under the race detector a sync.Pool forgets some of what it gets")
	}
	const size, rounds = 100 << 10, 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		p, err := (*Memory)(nil).take(size)
		require.NoError(t, err)
		(*Memory)(nil).put(p)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(rounds*size/4))
	runtime.ReadMemStats(&before)
	for range rounds {
		var r Reader
		r.TakeBuffer()
		r.GiveBuffer()
		require.Nil(t, r.buf)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(rounds*FirstBuffer/4))
}

// endless is a file that grows faster than it is read.
type endless struct {
	t     *testing.T
	read  int
	until int
	full  bool // until bytes have been read, and the buffer is full
}

func (f *endless) Cached([]byte) (int, bool) { return 0, false }
func (f *endless) Stat() (sys.Stat, error)   { return sys.Stat{}, nil }
func (f *endless) Close()                    {}
func (f *endless) Read(p []byte) (int, error) {
	require.False(f.t, f.full, "it is read on")
	f.read += len(p)
	f.full = f.read >= f.until && len(p) < MaxRead // which is the end of a buffer
	return len(p), nil
}

// A stop ends the copy of a large file's content to a larger buffer.
func TestStopWhileABufferGrows(t *testing.T) {
	const size = 64 << 20
	for _, asked := range []int{2, 5, 30} {
		after := 0
		f := &endless{t: t, until: size}
		r := Reader{Want: Want{Limit: -1}, Stopped: func() bool {
			if f.full {
				after++
			}
			return after >= asked
		}}
		r.TakeBuffer()
		var c Content
		require.ErrorIs(t, r.Read(f, &c), ErrStopped)
		require.Equal(t, asked, after)
		r.GiveBuffer()
		require.Nil(t, r.large)
	}
}

// A fileAtHand has its first bytes at hand, and knows whether that is all.
type fileAtHand struct {
	*textFile
	hand  int
	whole bool
}

func (f fileAtHand) Cached(p []byte) (int, bool) {
	n, _ := f.Reader.Read(p[:min(len(p), f.hand)])
	return n, f.whole
}

// What a file is read for decides on it alike, whatever of it is at hand and whether its metadata is known before: the limits are
// the last size and the last byte that count.
func TestReaderDecides(t *testing.T) {
	text := strings.Repeat("0123456789", 2000)
	nul := func(at int) string { return text[:at] + "\x00" + text[at+1:] }
	whole, large := Want{Limit: -1}, Want{Limit: -1, SkipLarger: 100}
	binary := Want{Limit: -1, SkipBinary: true}
	for _, c := range []struct {
		want Want
		text string
		data int // bytes
		err  error
	}{
		{whole, text, len(text), nil},
		{whole, "", 0, nil},
		{large, text[:100], 100, nil},
		{large, text[:101], 0, ErrLarger},
		{Want{Limit: 99, SkipLarger: 100}, text[:100], 0, ErrTooLarge},
		{Want{Limit: 99, SkipLarger: 100}, text[:101], 0, ErrLarger},
		{Want{Limit: 100}, text[:100], 100, nil},
		{Want{Limit: 100}, text[:101], 0, ErrTooLarge},
		{Want{}, "", 0, nil},
		{Want{}, "x", 0, ErrTooLarge},
		{Want{Truncate: true}, "x", 0, nil},
		{Want{Truncate: true}, text, 0, nil},
		{Want{Limit: 100, Truncate: true}, text[:101], 100, nil},
		{binary, nul(0), 0, ErrBinary},
		{binary, nul(BinaryPrefix - 1), 0, ErrBinary},
		{binary, nul(BinaryPrefix), len(text), nil},
		{binary, nul(50)[:51], 0, ErrBinary},
		{Want{Limit: 100, SkipBinary: true}, nul(5000), 0, ErrBinary},
		{Want{Limit: 100, SkipBinary: true}, text, 0, ErrTooLarge},
		{Want{Limit: 100, Truncate: true, SkipBinary: true}, nul(5000), 0, ErrBinary},
		{Want{Limit: 100, Truncate: true, SkipBinary: true}, nul(BinaryPrefix), 100, nil},
		{Want{Limit: 9000, Truncate: true, SkipBinary: true}, nul(8999), 9000, nil},
	} {
		for _, stat := range []bool{false, true} {
			for _, lies := range []bool{false, true} {
				if lies && c.err == ErrLarger && c.want.Limit > 0 {
					continue // no more is read than says that it is above the limit
				}
				for _, hand := range []int{0, 7, len(c.text)} {
					f := newTextFile(c.text)
					if lies {
						f.stat.Size = 0
					}
					h := fileAtHand{f, hand, hand == len(c.text) && hand > 0 && hand < 9000}
					r := Reader{Want: c.want, Stopped: goesOn}
					r.Want.Stat = stat
					if h.whole && c.want.Limit >= 0 && hand > int(c.want.Limit) {
						h.whole = false // no more than that is asked for
					}
					r.TakeBuffer()
					var got Content
					err := r.Read(h, &got)
					require.Equal(t, 1, f.closed)
					require.Equal(t, h, r.Spare())
					require.ErrorIs(t, err, c.err, "%+v, %d bytes, %d at hand", c.want, len(c.text), hand)
					if err == nil {
						require.Equal(t, c.text[:c.data], string(got.Data))
						require.Equal(t, c.data < len(c.text), got.Truncated)
						require.Equal(t, stat, got.HasStat)
						require.Equal(t, hand == 0 || len(c.text) == 0, r.Uncached())
					}
					if got.Truncated && err == nil {
						b := got.Beginning
						require.Equal(t, h.whole, b.Whole)
						require.NotEmpty(t, b.Rest)
						require.True(t, strings.HasPrefix(c.text[c.data:], string(b.Rest)))
						require.True(t, h.whole || b.Stat == f.stat)
					}
					r.GiveBuffer()
				}
			}
		}
	}
}

// A file above 1 MiB needs a slot for its memory, and one of just that size none.
func TestReaderNeedsASlotForMuch(t *testing.T) {
	for _, size := range []int{MaxFree - 1, MaxFree} {
		for _, slot := range []bool{false, true} {
			f := newTextFile(strings.Repeat("x", size))
			r := Reader{Want: Want{Limit: -1}, Stopped: goesOn, MayAllocate: func() bool { return slot }}
			r.TakeBuffer()
			var c Content
			err := r.Read(manyBytes{f}, &c)
			if size == MaxFree && !slot {
				require.Equal(t, ErrNeedsSlot, err)
			} else {
				require.NoError(t, err)
				require.Len(t, c.Data, size)
				require.Greater(t, r.Held(), size)
			}
			r.GiveBuffer()
			require.Zero(t, r.Held())
		}
	}
}

// manyBytes gives as much at a time as is asked for.
type manyBytes struct{ *textFile }

func (f manyBytes) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// A Reader that is made for other files has the buffer of the first, and ends with the same run.
func TestReaderLimited(t *testing.T) {
	r := Reader{Want: Want{Limit: -1, SkipBinary: true}, Stopped: func() bool { return true }}
	r.TakeBuffer()
	limited := r.Limited(3)
	require.Same(t, r.buf, limited.buf)
	require.ErrorIs(t, limited.Read(newTextFile("text"), new(Content)), ErrTooLarge)
	require.Equal(t, ErrStopped, limited.Read(newTextFile("x\x00"), new(Content)))
	r.GiveBuffer()
}

// slowly is a file that has size bytes, and nothing to be read for longer than Patience in between.
type slowly struct {
	endless
	size   int
	stream bool
}

func (f *slowly) IsStream() bool { return f.stream }
func (f *slowly) Read(p []byte) (int, error) {
	if f.until++; f.until < 300 {
		time.Sleep(WaitSlice)
		return 0, ErrWouldBlock
	}
	n := min(len(p), f.size-f.read)
	f.read += n
	return n, nil
}

// A stream is waited for as long as the run goes on, and is read once: its reader needs no slot in the middle of it.
func TestReaderOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Reader{Want: Want{Limit: -1}, Stopped: func() bool { return false }, MayAllocate: func() bool { return false }}
		r.TakeBuffer()
		defer r.GiveBuffer()
		var c Content
		require.NoError(t, r.Read(&slowly{size: 3 * MaxFree, stream: true}, &c))
		require.Len(t, c.Data, 3*MaxFree)
		require.Error(t, r.Read(&slowly{size: 1}, &c), "a file that is no stream")
	})
}
