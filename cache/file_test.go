package cache

import (
	"bytes"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFileIsAReader compares an open file with a bytes.Reader, over random operations.
func TestFileIsAReader(t *testing.T) {
	const text = "0123456789abcdef"
	c := newFS(t, newMemFS(map[string]string{"f": text}), Options{})
	rnd := rand.New(rand.NewPCG(7, 15))
	for range 200 {
		f, err := c.Open("f")
		require.NoError(t, err)
		r := bytes.NewReader([]byte(text))
		for range 30 {
			got, want := make([]byte, rnd.IntN(20)), make([]byte, 20)
			want = want[:len(got)]
			off := int64(rnd.IntN(40) - 10)
			var n, m int64
			var wantErr error
			switch whence := rnd.IntN(5) - 1; rnd.IntN(4) {
			case 0:
				n, err = f.(io.Seeker).Seek(off, whence)
				m, wantErr = r.Seek(off, whence)
			case 1:
				a, e := f.(io.ReaderAt).ReadAt(got, off)
				b, e2 := r.ReadAt(want, off)
				n, err, m, wantErr = int64(a), e, int64(b), e2
			case 2:
				a, e := f.Read(got)
				b, e2 := r.Read(want)
				n, err, m, wantErr = int64(a), e, int64(b), e2
			default:
				var a, b bytes.Buffer
				n, err = f.(io.WriterTo).WriteTo(&a)
				m, wantErr = r.WriteTo(&b)
				require.Equal(t, b.String(), a.String())
			}
			require.Equal(t, m, n)
			require.Equal(t, want, got)
			require.Equal(t, wantErr == nil, err == nil, "%v, want %v", err, wantErr)
			require.Equal(t, wantErr == io.EOF, err == io.EOF)
		}
		require.NoError(t, f.Close())
	}
}

// TestFirstFileIsOpenedOnce: the open file that comes with the content serves one caller. After its Close it stays closed. When
// the entry has left the cache, the file keeps its content.
func TestFirstFileIsOpenedOnce(t *testing.T) {
	m := newMemFS(map[string]string{"f": "old"})
	c := newFS(t, m, Options{Trust: Forever})
	first, err := c.Open("f")
	require.NoError(t, err)
	h, ok := c.data.find("f")
	require.True(t, ok)
	require.Same(t, &h.value.first, first)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				f, err := c.Open("f")
				if err == nil {
					var data []byte
					data, err = io.ReadAll(f)
					if err == nil && string(data) != "old" {
						err = io.ErrUnexpectedEOF
					}
				}
				if err != nil {
					t.Error(err)
				}
				f.Close()
			}
		})
	}
	wg.Wait()
	held, err := c.Open("f")
	require.NoError(t, err)
	m.put("f", "new")
	c.Clear()
	for _, f := range []fs.File{first, held} {
		data, err := io.ReadAll(f)
		require.NoError(t, err)
		require.Equal(t, "old", string(data))
		require.NoError(t, f.Close())
	}
	after, err := c.Open("f")
	require.NoError(t, err)
	data, err := io.ReadAll(after)
	require.NoError(t, err)
	require.Equal(t, "new", string(data))
	_, err = first.Read(make([]byte, 1))
	require.ErrorIs(t, err, fs.ErrClosed)
}

// TestClosedHandles: each method of a file or directory that is closed fails, and says what was called on what.
func TestClosedHandles(t *testing.T) {
	c := newFS(t, newMemFS(map[string]string{"f": "text", "d/a": "", "d/b": ""}), Options{})
	f, err := c.Open("f")
	require.NoError(t, err)
	d, err := c.Open("d")
	require.NoError(t, err)
	dir := d.(fs.ReadDirFile)
	n, err := dir.Read(make([]byte, 1))
	require.Zero(t, n)
	require.Equal(t, &fs.PathError{Op: "read", Path: "d", Err: syscall.EISDIR}, err)
	_, err = f.(io.ReaderAt).ReadAt(make([]byte, 1), -1)
	require.Equal(t, &fs.PathError{Op: "read", Path: "f", Err: fs.ErrInvalid}, err)
	_, err = f.(io.Seeker).Seek(-1, io.SeekStart)
	require.Equal(t, &fs.PathError{Op: "seek", Path: "f", Err: fs.ErrInvalid}, err)
	entries, err := dir.ReadDir(1)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	entries, err = dir.ReadDir(2)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	_, err = dir.ReadDir(1)
	require.Equal(t, io.EOF, err)
	entries, err = dir.ReadDir(0)
	require.NoError(t, err)
	require.Empty(t, entries)
	for _, h := range []fs.File{f, d} {
		require.NoError(t, h.Close())
	}
	for what, do := range map[string]func() error{
		"close f": f.Close, "close d": d.Close,
		"stat f":    func() error { _, err := f.Stat(); return err },
		"stat d":    func() error { _, err := d.Stat(); return err },
		"read f":    func() error { _, err := f.Read(make([]byte, 1)); return err },
		"read f,":   func() error { _, err := f.(io.ReaderAt).ReadAt(make([]byte, 1), 0); return err },
		"read f,,":  func() error { _, err := f.(io.WriterTo).WriteTo(io.Discard); return err },
		"seek f":    func() error { _, err := f.(io.Seeker).Seek(0, io.SeekStart); return err },
		"read d":    func() error { _, err := d.Read(make([]byte, 1)); return err },
		"readdir d": func() error { _, err := dir.ReadDir(-1); return err },
	} {
		op, name, _ := strings.Cut(strings.TrimRight(what, ","), " ")
		require.Equal(t, &fs.PathError{Op: op, Path: name, Err: fs.ErrClosed}, do(), what)
	}
}
