package content

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
)

// A textFile has a text, which comes in parts of 10 bytes at most, some of them after a wait.
type textFile struct {
	io.Reader
	stat    sys.Stat
	statErr error
	waits   int // reads that find nothing yet
	reads   int
	ends    int // reads at the end
	skipped []int64
	closed  int
	panics  bool
}

func newTextFile(text string) *textFile {
	return &textFile{Reader: strings.NewReader(text), stat: sys.Stat{Size: int64(len(text))}}
}

func (f *textFile) Cached([]byte) (int, bool) { return 0, false }
func (f *textFile) Close()                    { f.closed++ }

func (f *textFile) Stat() (sys.Stat, error) {
	if f.panics {
		panic("here")
	}
	return f.stat, f.statErr
}

func (f *textFile) Read(p []byte) (int, error) {
	if f.waits > 0 {
		f.waits--
		time.Sleep(WaitSlice)
		return 0, ErrWouldBlock
	}
	f.reads++
	n, err := f.Reader.Read(p[:min(len(p), 10)])
	if err != io.EOF {
		return n, err
	}
	if f.ends++; f.ends > 2 {
		return 0, errors.New("it is read on behind its end")
	}
	return 0, nil
}

// A skippingFile can be read from an offset on, if does is set.
type skippingFile struct {
	*textFile
	does bool
}

func (f skippingFile) Skip(n int64) bool {
	f.skipped = append(f.skipped, n)
	if f.does {
		_, _ = f.Reader.(io.Seeker).Seek(n, io.SeekStart)
	}
	return f.does
}

func goesOn() bool { return false }

// The rest of a file is read only of the file whose beginning was delivered, with nothing that shows a change: each of its
// numbers, sizes and times counts.
func TestRestIsOfTheSameFile(t *testing.T) {
	at := time.Unix(1e9, 5)
	was := sys.Stat{Device: 1, Inode: 2, Size: 3, ModTime: at, ChangeTime: at, BirthTime: at, Mode: 0o600}
	for name, change := range map[string]func(s *sys.Stat){
		"":                func(s *sys.Stat) { s.ModTime = at.UTC() }, // the same moment
		"device":          func(s *sys.Stat) { s.Device++ },
		"inode":           func(s *sys.Stat) { s.Inode++ },
		"size":            func(s *sys.Stat) { s.Size-- },
		"mtime":           func(s *sys.Stat) { s.ModTime = at.Add(-1) },
		"ctime":           func(s *sys.Stat) { s.ChangeTime = at.Add(1) },
		"no regular file": func(s *sys.Stat) { s.Mode |= 1 << 31 },
	} {
		f := newTextFile("abc")
		f.stat = was
		change(&f.stat)
		r, err := NewRest(f, &Beginning{Stat: was}, 1, goesOn)
		if name == "" {
			require.NoError(t, err)
			rest, err := io.ReadAll(io.LimitReader(r, 2))
			require.NoError(t, err)
			require.Equal(t, "bc", string(rest))
			require.Zero(t, f.closed)
			r.Close()
		} else {
			require.ErrorIs(t, err, sys.ErrChanged, name)
			require.Nil(t, r)
		}
		require.Equal(t, 1, f.closed, name)
	}
}

// What was delivered is skipped, however long it is, and no byte more. A file that has become shorter than that is ErrChanged.
func TestRestSkipsWhatWasDelivered(t *testing.T) {
	text := strings.Repeat("0123456789abc", 3*FirstBuffer/13)
	for _, n := range []int{0, 1, 9, 10, 11, FirstBuffer - 1, FirstBuffer, FirstBuffer + 1, len(text) - 1, len(text)} {
		for _, f := range []File{newTextFile(text), skippingFile{newTextFile(text), true}, skippingFile{newTextFile(text), false}} {
			r, err := NewRest(f, nil, int64(n), goesOn)
			require.NoError(t, err)
			require.Nil(t, r.reader.buf, "it is given back")
			if s, ok := f.(skippingFile); ok {
				require.Equal(t, n > 0, len(s.skipped) == 1)
				require.Equal(t, n == 0 || s.does, s.reads == 0, "it is skipped")
			}
			var got []byte
			for {
				p := make([]byte, 100)
				k, err := r.Read(p)
				require.NoError(t, err)
				if k == 0 {
					break
				}
				got = append(got, p[:k]...)
			}
			require.True(t, text[n:] == string(got), "behind %d bytes", n)
		}
	}
	f := newTextFile(text)
	_, err := NewRest(f, nil, int64(len(text))+1, goesOn)
	require.ErrorIs(t, err, sys.ErrChanged)
	require.Equal(t, 1, f.closed)
}

// A file that cannot be read on is closed: a failure, a stop while its beginning is skipped, and a panic of a file of an fs.FS.
func TestRestThatFailsIsClosed(t *testing.T) {
	f := newTextFile("text")
	f.statErr = io.ErrUnexpectedEOF
	_, err := NewRest(f, nil, 2, goesOn)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, 1, f.closed)

	f = newTextFile("text")
	_, err = NewRest(f, nil, 2, func() bool { return true })
	require.Equal(t, ErrStopped, err)
	require.Equal(t, 1, f.closed)

	f = newTextFile("text")
	f.panics = true
	require.Panics(t, func() { _, _ = NewRest(f, nil, 2, goesOn) })
	require.Equal(t, 1, f.closed)
}

// One read asks for no more than a run that is stopped may wait for.
func TestRestReadsAreCapped(t *testing.T) {
	asked := 0
	r := &Rest{Reader{Stopped: goesOn}, fullReads{newTextFile(""), &asked}}
	for _, size := range []int{1, MaxRead, MaxRead + 1} {
		n, err := r.Read(make([]byte, size))
		require.NoError(t, err)
		require.Equal(t, min(size, MaxRead), n)
		require.Equal(t, n, asked)
	}
}

// fullReads has as much as is asked for.
type fullReads struct {
	File
	asked *int
}

func (f fullReads) Read(p []byte) (int, error) {
	*f.asked = len(p)
	return len(p), nil
}

// Each file has the whole patience of a worker, whatever the one before took of it.
func TestPatienceIsOfOneFile(t *testing.T) {
	const most = int(Patience / WaitSlice)
	for limit, want := range map[int64]string{-1: "text", 3: "tex"} {
		synctest.Test(t, func(t *testing.T) {
			r := Reader{Want: Want{Limit: limit, Truncate: limit > 0}, Stopped: goesOn}
			r.TakeBuffer()
			defer r.GiveBuffer()
			for range 3 {
				f := newTextFile("text")
				f.waits = most - 1
				var c Content
				require.NoError(t, r.Read(f, &c))
				require.Equal(t, want, string(c.Data))
			}
			f := newTextFile("text")
			f.waits = most
			require.Error(t, r.Read(f, new(Content)))
		})
	}
}
