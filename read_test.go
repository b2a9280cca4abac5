package fileproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
)

func newReader(limit int64, whole bool) *content.Reader {
	r := &content.Reader{Want: content.Want{Limit: limit, Truncate: !whole}, Stopped: func() bool { return false }}
	r.TakeBuffer()
	return r
}

// TestReader compares the outcome for files of every size around every boundary with the expected one.
func TestReader(t *testing.T) {
	const b = content.FirstBuffer
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

func checkRead(t *testing.T, r *content.Reader, o *object) {
	w := &world{}
	h := &worldFile{w: w, o: o}
	limit, whole := r.Limit, !r.Truncate
	defer r.Release()
	var c content.Content
	err := r.Read(h, &c)
	size := int64(len(o.content))
	fail := func(what string) {
		t.Fatalf("%s: size %d, reported %d, chunk %d, cached %d (%v): %v, %d bytes", what, size, o.stat().Size, o.chunk, o.hand, o.handAll, err, len(c.Data))
	}
	// A file that claims to be too large is not read to check that.
	told := o.stat().Size > limit && !(o.handAll && o.hand >= len(o.content) && size < content.FirstBuffer && size <= limit)
	switch {
	case whole && limit >= 0 && (size > limit || told):
		if err == nil || !errors.Is(err, ErrTooLarge) {
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
	case string(c.Data) != want:
		fail("content")
	case c.Truncated != (limit >= 0 && size > limit):
		fail("truncated")
	case cap(c.Data) != len(c.Data):
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
		{"a file of many buffers is sized by its metadata", file("f", strings.Repeat("x", 10*content.FirstBuffer)), false, 4},
	} {
		w := &world{}
		r := newReader(-1, true)
		r.Want.Stat = test.stat
		var c content.Content
		require.NoError(t, r.Read(&worldFile{w: w, o: test.o}, &c), test.name)
		require.Equal(t, test.calls+1, w.calls, test.name) // and the close
		require.Equal(t, test.stat, c.HasStat, test.name)
		r.Release()
	}
}

func TestReaderWantsRegularFiles(t *testing.T) {
	for _, mode := range []fs.FileMode{fs.ModeDir, fs.ModeNamedPipe, fs.ModeSocket, fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice, fs.ModeIrregular} {
		for _, hand := range []int{0, 3, content.FirstBuffer} {
			w := &world{}
			var c content.Content
			err := newReader(-1, true).Read(&worldFile{w: w, o: file("f", "content of twenty", becomes(mode), atHand(hand))}, &c)
			require.ErrorIs(t, err, ErrChanged)
			require.Empty(t, w.wrong)
			require.Empty(t, c.Data)
		}
	}
}

// A large file's memory is released, even if the file grows while it is read.
func TestReaderLargeBuffers(t *testing.T) {
	r := newReader(-1, true)
	text := strings.Repeat("large ", 1<<18)
	for _, told := range []int64{0, 1 << 20, int64(len(text)), 4 << 20} {
		w := &world{}
		var c content.Content
		require.NoError(t, r.Read(&worldFile{w: w, o: file("f", text, sized(told))}, &c))
		require.True(t, text == string(c.Data))
		require.LessOrEqual(t, w.maxAsk, content.MaxRead)
		require.GreaterOrEqual(t, r.Held(), len(text))
		r.Release()
		require.Zero(t, r.Held())
		require.ErrorIs(t, r.Read(&worldFile{w: w, o: file("f", text, sized(told), readFails(len(text)-1, errBroken))}, &c), errBroken)
		require.Zero(t, r.Held(), "a file that cannot be read may be tried again for long")
	}
}

func TestReaderStops(t *testing.T) {
	for k := range 6 {
		w := &world{}
		r := newReader(-1, true)
		asked := 0
		r.Stopped = func() bool { asked++; return asked > k }
		var c content.Content
		err := r.Read(&worldFile{w: w, o: file("f", "content", chunks(1))}, &c)
		require.Equal(t, errStopped, err)
		require.Equal(t, 3+k, w.calls, "cached, fstat, as many reads as were allowed, and close")
		require.Empty(t, c.Data)
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
			require.Equal(t, content.Patience, time.Since(start))
			require.Equal(t, map[string]string{"a": "alpha", "late": "late"}, out.got)
			require.Len(t, out.failed, 1)
			require.ErrorIs(t, out.failed["/never"], os.ErrDeadlineExceeded)
			w.requireSound(t, out)

			w.find("never").stalls = 1 << 30
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(content.Patience/2, func() { cancel(errBroken) })
			start = time.Now()
			out = w.process(ctx, opts, nil)
			require.ErrorIs(t, out.err, errBroken)
			require.LessOrEqual(t, time.Since(start), content.Patience/2+content.WaitSlice)
			w.requireSound(t, out)
		})
	}
}

// File.Reader opens the file again if a look at it was interrupted.
func TestFaultsReaderIsInterrupted(t *testing.T) {
	for _, err := range leasedErrors {
		inBubble(t, func(t *testing.T) {
			w := &world{root: folder("", file("f", "content"))}
			failed := false
			out := w.process(t.Context(), Options{Workers: 1, ReadSize: 2}, func(f *File) error {
				w.fails = func(_ int, what string) error {
					if failed || what != "fstat" {
						return nil
					}
					failed = true
					return err
				}
				all, err := io.ReadAll(f.Reader())
				require.Equal(t, "content", string(all))
				return err
			})
			require.NoError(t, out.err)
			require.Empty(t, out.failed)
			require.True(t, failed)
			require.Empty(t, w.wrong)
			require.Zero(t, w.open, "handles left open")
		})
	}
}

// File.Reader closes the file at its end, or when a read fails, not only when the callback returns, which may take long.
func TestFaultsReaderClosesAtTheEnd(t *testing.T) {
	for _, opts := range []Options{{ReadSize: 2}, {ReadSize: NoRead}} {
		for _, fault := range []func(*object){nil, readFails(5, errBroken), becomes(fs.ModeNamedPipe)} {
			inBubble(t, func(t *testing.T) {
				w := &world{root: folder("", file("f", "content", chunks(1)))}
				opts.Workers = 1
				out := w.process(t.Context(), opts, func(f *File) error {
					before := w.open
					if fault != nil {
						w.find("f").with(fault)
					}
					_, err := io.ReadAll(f.Reader())
					require.Equal(t, fault == nil, err == nil)
					require.LessOrEqual(t, w.open, max(before, 1), "with root, which is the file's directory")

					clear(w.root.kids)
					w.root.kids[0] = file("f", "content", chunks(1))
					r := f.Reader()
					p := make([]byte, 3)
					_, err = io.ReadFull(r, p)
					require.NoError(t, err)
					require.Equal(t, 2, w.open)
					again := f.Reader() // which ends the one before
					require.Equal(t, 1, w.open)
					_, err = r.Read(p)
					require.ErrorIs(t, err, fs.ErrClosed)
					_, err = io.ReadFull(again, p)
					require.NoError(t, err)
					return nil // and leaves it
				})
				require.NoError(t, out.err)
				require.Zero(t, w.open, "handles left open")
				require.Empty(t, w.wrong)
			})
		}
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
		r.Want.Stat = true
		var c content.Content
		require.NoError(t, r.Read(&worldFile{w: w, o: o}, &c))
		require.Equal(t, "content", string(c.Data))
		require.True(t, c.HasStat)
		require.Equal(t, []string{"fstat", "cached"}, calls[:2])
		require.NotContains(t, calls[2:], "fstat")
	}
}

// TestSkipBinaryReadsOn: short reads end neither the search for a NUL byte nor the content.
func TestSkipBinaryReadsOn(t *testing.T) {
	text := strings.Repeat("text", content.BinaryPrefix)
	for _, binary := range []bool{false, true} {
		data := []byte(text)
		if binary {
			data[content.BinaryPrefix-1] = 0
		}
		r := newReader(-1, true)
		r.SkipBinary = true
		var c content.Content
		err := r.Read(&worldFile{w: &world{}, o: file("f", string(data), chunks(1000))}, &c)
		if binary {
			require.Equal(t, content.ErrBinary, err)
			continue
		}
		require.NoError(t, err)
		require.True(t, text == string(c.Data), "%d bytes", len(c.Data))
	}
}

// TestRemote: a file whose content would be fetched is not read, unless Options.Download asks for it.
func TestRemote(t *testing.T) {
	remote := func(o *object) { o.remote = true }
	for _, c := range []struct {
		opts    Options
		skipped int64
	}{{Options{}, 1}, {Options{Stat: true, SkipBinary: true}, 1}, {Options{ReadSize: 1}, 1}, {Options{Download: true}, 0}, {Options{ReadSize: NoRead}, 0}} {
		w := &world{root: folder("root", file("here", "1"), file("there", "2", remote))}
		var report Report
		c.opts.openRoot, c.opts.Report = w.openRoot, &report
		got, err := Process(t.Context(), "root", c.opts, func(f *File) (string, error) { return f.Rel(), nil })
		require.NoError(t, err)
		require.Len(t, got, 2-int(c.skipped))
		require.Equal(t, c.skipped, report.Skipped[SkippedRemote])
		require.EqualValues(t, 2-c.skipped, report.Processed)

		c.opts.openRoot = func(root string) (backend.Directory, error) {
			f := &worldFile{w: w, o: file("there", "2", remote)}
			return backend.NewSoleFile(root, f, f.o.stat(), nil)
		}
		got, err = Process(t.Context(), "root", c.opts, func(f *File) (string, error) { return f.Rel(), nil })
		require.NoError(t, err)
		require.Len(t, got, 1-int(c.skipped))
		require.Equal(t, c.skipped, report.Skipped[SkippedRemote])
	}
}

// listedDir is a directory whose listing has metadata, of the file a alone.
type listedDir struct{ backend.Directory }

func (listedDir) ListedStat(name names.Name) (sys.Stat, bool) {
	return sys.Stat{Size: 42}, name.String() == "a"
}

// Metadata of the listing are those of a File, unless what is true now is wanted. A later look finds that or says why not.
func TestMetadataOfTheListing(t *testing.T) {
	for _, isAsked := range []bool{false, true} {
		w := &world{root: folder("", file("a", "alpha"), file("b", "beta"))}
		opts := Options{openRoot: func(root string) (backend.Directory, error) {
			d, err := w.openRoot(root)
			return listedDir{d}, err
		}}
		if isAsked {
			opts.hooks.Unchanged = func(*File) bool { return false }
		}
		require.NoError(t, ForEach(t.Context(), "root", opts, func(f *File) error {
			s, err := f.Stat()
			require.NoError(t, err)
			require.Equal(t, map[string]int64{"a": 42, "b": 4}[f.Name()] == s.Size, !isAsked || f.Name() == "b")
			now, err := f.restat()
			require.NoError(t, err)
			require.EqualValues(t, len(f.Data()), now.Size)
			w.find(f.Name()).statErr = errBroken
			_, err = f.restat()
			require.Equal(t, &fs.PathError{Op: "fstatat", Path: f.Path(), Err: errBroken}, err)
			return nil
		}))
	}
}

// A root that is a file has one handle. Others are opened by its path, and whatever is no regular file is closed.
func TestHandlesOfARootThatIsAFile(t *testing.T) {
	w := &world{root: folder("", file("f", ""))}
	open := func() *worldFile { w.open++; return &worldFile{w: w, o: w.root.kids[0]} }
	_, err := backend.NewSoleFile("f", open(), sys.Stat{Mode: fs.ModeDevice}, nil)
	require.ErrorContains(t, err, "neither a directory nor a regular file")
	require.Zero(t, w.open)
	d, err := backend.NewSoleFile("f", open(), sys.Stat{}, func() (fs.File, error) { return nil, errBroken })
	require.NoError(t, err)
	_, err = d.OpenDir(names.New("f"))
	require.ErrorContains(t, err, "not a directory")
	_, err = d.OpenDir(names.Dot)
	require.ErrorIs(t, err, errBroken)
	h, err := d.Open(names.New("f"), nil)
	require.NoError(t, err)
	h.Close()
	require.Equal(t, 1, w.open, "the handle stays open")
	_, err = d.Open(names.New("f"), nil)
	require.ErrorIs(t, err, errBroken)
	d.Close()
	require.Zero(t, w.open)
}
