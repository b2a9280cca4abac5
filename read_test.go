package fileproc

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
)

func newReader(limit int64, whole bool) *reader {
	return &reader{limit: limit, truncate: !whole, stopped: func() bool { return false }, buf: new([firstBuffer]byte)}
}

// TestReader compares the outcome for files of every size around every boundary with the expected one.
func TestReader(t *testing.T) {
	const b = firstBuffer
	text := strings.Repeat("abcdefghijklmnopqrstuvwxyz!", 3*b/27)
	lies := map[string]func(n int64) int64{
		"true": nil,
		"zero": func(int64) int64 { return 0 },
		"less": func(n int64) int64 { return n - 1 },
		"more": func(n int64) int64 { return n + 5 },
	}
	for _, whole := range []bool{true, false} {
		for _, limit := range []int64{-1, 1, 7, b - 2, b - 1, b, b + 1, 2*b + 1, 3 * b} {
			if limit < 0 && !whole {
				continue
			}
			for name, lie := range lies {
				t.Run(fmt.Sprintf("whole=%v/limit=%d/size=%s", whole, limit, name), func(t *testing.T) {
					r := newReader(limit, whole)
					for _, size := range []int{0, 1, 2, 6, 7, 8, b - 2, b - 1, b, b + 1, b + 2, 2*b + 1, 2*b + 2} {
						for _, chunk := range []int{4071, b - 1, 0} {
							for _, hand := range []int{0, 5, size, -size} { // below zero: certain to be the whole file
								o := file("f", text[:size], chunks(chunk), atHand(max(hand, -hand)))
								o.handAll = hand < 0
								if lie != nil {
									o.with(sized(max(0, lie(int64(size)))))
								}
								checkRead(t, r, o)
							}
						}
					}
				})
			}
		}
	}
}

func checkRead(t *testing.T, r *reader, o *object) {
	w := &world{}
	h := &worldFile{w: w, o: o}
	limit, whole := r.limit, !r.truncate
	defer r.release()
	var c content
	err := r.readHandle(h, &c)
	size := int64(len(o.content))
	fail := func(what string) {
		t.Fatalf("%s: size %d, reported %d, chunk %d, cached %d (%v): %v, %d bytes", what, size, o.stat().Size, o.chunk, o.hand, o.handAll, err, len(c.data))
	}
	// A file that claims to be too large is not read to check that.
	told := o.stat().Size > limit && !(o.handAll && o.hand >= len(o.content) && size < firstBuffer && size <= limit)
	switch {
	case whole && limit >= 0 && (size > limit || told):
		if err == nil || err.(*sys.Error).Err != ErrTooLarge {
			fail("want ErrTooLarge")
		}
		return
	case err != nil:
		fail("error")
	}
	want := string(o.content)
	if limit >= 0 && size > limit {
		want = want[:limit]
	}
	switch {
	case string(c.data) != want:
		fail("content")
	case c.truncated != (limit >= 0 && size > limit):
		fail("truncated")
	case cap(c.data) != len(c.data):
		fail("capacity")
	case len(w.wrong) > 0:
		fail(w.wrong[0])
	}
}

// Small files need no metadata, and no read but the one that finds the end.
func TestReaderCalls(t *testing.T) {
	for _, test := range []struct {
		name  string
		o     *object
		stat  bool
		calls int
	}{
		{"known at hand", file("f", "abc", atHand(3), func(o *object) { o.handAll = true }), false, 1},
		{"known at hand, stat wanted", file("f", "abc", atHand(3), func(o *object) { o.handAll = true }), true, 2},
		{"cached, fstat, read, end", file("f", "abc"), false, 4},
		{"a file of many buffers is sized by its metadata", file("f", strings.Repeat("x", 10*firstBuffer)), false, 4},
	} {
		w := &world{}
		r := newReader(-1, true)
		r.stat = test.stat
		var c content
		require.NoError(t, r.readHandle(&worldFile{w: w, o: test.o}, &c), test.name)
		require.Equal(t, test.calls, w.calls, test.name)
		require.Equal(t, test.stat, c.hasStat, test.name)
		r.release()
	}
}

func TestReaderWantsRegularFiles(t *testing.T) {
	for _, mode := range []fs.FileMode{fs.ModeDir, fs.ModeNamedPipe, fs.ModeSocket, fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice, fs.ModeIrregular} {
		for _, hand := range []int{0, 3, firstBuffer} {
			w := &world{}
			var c content
			err := newReader(-1, true).readHandle(&worldFile{w: w, o: file("f", "content of twenty", becomes(mode), atHand(hand))}, &c)
			require.ErrorIs(t, err, ErrChanged)
			require.Empty(t, w.wrong)
			require.Empty(t, c.data)
		}
	}
}

// A large file's memory is released, even if the file grows while it is read.
func TestReaderLargeBuffers(t *testing.T) {
	r := newReader(-1, true)
	text := strings.Repeat("large ", 1<<18)
	for _, told := range []int64{0, 1 << 20, int64(len(text)), 4 << 20} {
		w := &world{}
		var c content
		require.NoError(t, r.readHandle(&worldFile{w: w, o: file("f", text, sized(told))}, &c))
		require.True(t, text == string(c.data))
		require.LessOrEqual(t, w.maxAsk, maxRead)
		require.NotNil(t, r.large)
		r.release()
		require.Nil(t, r.large)
	}
}

func TestReaderStops(t *testing.T) {
	for k := range 6 {
		w := &world{}
		r := newReader(-1, true)
		asked := 0
		r.stopped = func() bool { asked++; return asked > k }
		var c content
		err := r.readHandle(&worldFile{w: w, o: file("f", "content", chunks(1))}, &c)
		require.Equal(t, errStopped, err)
		require.Equal(t, 2+k, w.calls, "cached, fstat, and as many reads as were allowed")
		require.Empty(t, c.data)
	}
}

// A read that finds nothing yet is repeated, but not for ever, and not after the end of the run.
func TestFaultsReadThatWaits(t *testing.T) {
	stalling := func(n int) func(*object) { return func(o *object) { o.stalls = n } }
	for _, opts := range []Options{{}, {SkipBinary: true}, {ReadSize: 10}, {Stat: true}} {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file("a", "alpha"), file("late", "late", stalling(50)), file("never", "x", stalling(1<<30)))}
			opts.Workers = 3
			start := time.Now()
			out := w.process(t.Context(), opts, nil)
			require.Equal(t, readPatience, time.Since(start))
			require.Equal(t, map[string]string{"a": "alpha", "late": "late"}, out.got)
			require.Len(t, out.failed, 1)
			require.ErrorIs(t, out.failed["/never"], os.ErrDeadlineExceeded)
			w.requireSound(t, out)

			w.find("never").stalls = 1 << 30
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(readPatience/2, func() { cancel(errBroken) })
			start = time.Now()
			out = w.process(ctx, opts, nil)
			require.ErrorIs(t, out.err, errBroken)
			require.LessOrEqual(t, time.Since(start), readPatience/2+waitSlice)
			w.requireSound(t, out)
		})
	}
}

func TestFaultsReadsAreCappedAndStopped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		huge := strings.Repeat("0123456789abcdef", 5<<16+1)
		w := &world{root: folder("", file("huge", huge))}
		out := w.process(t.Context(), Options{}, nil)
		w.requireSound(t, out)
		require.Len(t, out.got, 1)
		require.LessOrEqual(t, w.maxAsk, 1<<20, "bytes that one read asks for")

		ctx, cancel := context.WithCancel(t.Context())
		reads := 0
		w.find("huge").chunk = 1000
		w.calls = 0
		w.onCall = func(int) {
			if reads++; reads == 20 {
				cancel()
			}
		}
		out = w.process(ctx, Options{Workers: 1}, nil) // one, since reads has no lock
		require.ErrorIs(t, out.err, context.Canceled)
		w.requireSound(t, out)
		require.EqualValues(t, 1, out.report.Abandoned)
		require.LessOrEqual(t, reads, 24, "no read after the one under way: closes, and calls in between")
	})
}

// TestSkipBinaryIsStopped: the search for a NUL byte ends with the run too.
func TestSkipBinaryIsStopped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &world{root: folder("", file("f", strings.Repeat("x", 9000), chunks(1)))}
		w.onCall = func(k int) {
			if k == 20 {
				cancel()
			}
		}
		out := w.process(ctx, Options{SkipBinary: true, Workers: 1}, nil)
		require.ErrorIs(t, out.err, context.Canceled)
		w.requireSound(t, out)
		require.EqualValues(t, 1, out.report.Abandoned)
		require.Less(t, w.calls, 40)
	})
}

// Metadata that is asked for is from before the content is read, so that a change during the read shows.
func TestReaderFetchesMetadataFirst(t *testing.T) {
	for _, hand := range []int{0, 3, 7} {
		var calls []string
		w := &world{during: func(what, _ string) { calls = append(calls, what) }}
		o := file("f", "content", atHand(hand))
		o.handAll = true
		r := newReader(100, true)
		r.stat = true
		var c content
		require.NoError(t, r.readHandle(&worldFile{w: w, o: o}, &c))
		require.Equal(t, "content", string(c.data))
		require.True(t, c.hasStat)
		require.Equal(t, []string{"fstat", "cached"}, calls[:2])
		require.NotContains(t, calls[2:], "fstat")
	}
}

func TestReaderUsesBuffersAgain(t *testing.T) {
	for size, want := range map[int64]int{1: 1<<16 + 1, 1<<16 + 1: 1<<16 + 1, 1<<16 + 2: 1<<17 + 1, 1<<20 + 1: 1<<20 + 1, 1<<20 + 2: 1<<20 + 2} {
		p, err := takeBuffer(size)
		require.NoError(t, err)
		require.Len(t, p, int(size))
		require.Equal(t, want, cap(p))
		putBuffer(p)
	}
	if sys.Race {
		t.Skip("under the race detector a sync.Pool forgets some of what it gets")
	}
	const size, rounds = 100 << 10, 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		p, err := takeBuffer(size)
		require.NoError(t, err)
		putBuffer(p)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(rounds*size/4))
}
