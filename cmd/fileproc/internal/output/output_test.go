package output

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc"
)

// A message takes the place of the progress, which reappears below it until the end.
func TestProgressGivesWay(t *testing.T) {
	var screen bytes.Buffer
	out := &Output{stdout: &screen, stderr: &screen, TTY: true, progress: progress{enabled: true, width: func() int { return 40 }}}
	show := func(files, bytes int64) {
		out.files.Store(files)
		out.bytes.Store(bytes)
		out.ShowProgress()
	}
	show(1, 0)
	show(2, 4096)
	out.Write([]byte("a line\n"))
	out.Warn("a message")
	show(3, 8192)
	out.Warn("another")
	show(4, 8192)
	at := screen.Len()
	out.mu.Lock()
	out.LastFlush() // while another holds the output
	out.mu.Unlock()
	require.Equal(t, at, screen.Len())
	out.LastFlush()
	out.mu.Unlock()
	show(5, 8192)
	out.EndProgress()
	out.Write([]byte("the end\n"))
	show(5, 8192)
	require.Equal(t, "\r⠋ 1 files, 0 files/s\x1b[0K"+"\r⠙ 2 files, 0 files/s, 4.0K bytes\x1b[0K"+eraseLine+"a line\n"+
		"fileproc: a message\n"+"\r⠹ 3 files, 0 files/s, 8.0K bytes\x1b[0K"+eraseLine+"fileproc: another\n"+
		"\r⠸ 4 files, 0 files/s, 8.0K bytes\x1b[0K"+eraseLine+"\r⠼ 5 files, 0 files/s, 8.0K bytes\x1b[0K"+eraseLine+"the end\n", screen.String())
}

// Progress counts what each directory reports, and what is counted beside that. It is drawn again after a tenth of a second, in a line
// that the terminal can hold.
func TestProgressCounts(t *testing.T) {
	require.Nil(t, new(Output).OnProgress(), "no progress is shown")
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		columns := 40
		out := &Output{stderr: &screen, progress: progress{enabled: true, Start: time.Now(), width: func() int { return columns }}}
		shows := func(want string) {
			t.Helper()
			require.Equal(t, want, screen.String())
			screen.Reset()
		}
		time.Sleep(ProgressDelay - 1)
		out.Count(1, 0)
		shows("")
		time.Sleep(time.Nanosecond)
		out.Count(1, 0)
		shows("\r⠋ 2 files, 2 files/s\x1b[0K")
		time.Sleep(100 * time.Millisecond)
		out.Count(1, 1024)
		shows("")
		time.Sleep(time.Nanosecond)
		out.Count(0, 0)
		shows("\r⠙ 3 files, 3 files/s, 1.0K bytes\x1b[0K")
		for range 2 { // runs
			each := out.OnProgress()
			each(fileproc.Report{Found: 9, Processed: 1, Bytes: 1024})
			screen.Reset()
			each(fileproc.Report{Found: 9, Processed: 2, Unchanged: 3, Bytes: 4096})
		}
		shows("\r⠴ 13 files, 12 files/s, 9.0K bytes\x1b[0K")
		each, skipped := out.OnProgress(), map[fileproc.SkipReason]int64{fileproc.SkippedHidden: 4, fileproc.SkippedBinary: 1}
		each(fileproc.Report{Found: 16, Processed: 1, Unchanged: 1, Failed: 2, Skipped: skipped})
		shows("\r⠦ 15 files, 14 files/s, 9.0K bytes\x1b[0K")
		each(fileproc.Report{Found: 16, Processed: 1, Unchanged: 1, Failed: 2, Skipped: skipped, Listed: true})
		shows("\r⠧ 15 of 22 files, 14 files/s, 9.0K byte\x1b[0K")
		each(fileproc.Report{Found: 16, Processed: 7, Unchanged: 2, Failed: 2, Skipped: skipped, Listed: true})
		shows("\r⠇ 22 files, 20 files/s, 9.0K bytes\x1b[0K")
		for columns = range 6 {
			out.ShowProgress()
		}
		shows("\r⠏ 2\x1b[0K\r⠋ 22\x1b[0K")
		var stdout bytes.Buffer
		out.stdout = &stdout
		out.Write([]byte("x\n"))
		require.NoError(t, out.Flush())
		require.Equal(t, "x\n", stdout.String())
		shows("") // standard output is no terminal
		out.mu.Lock()
		time.Sleep(time.Second)
		out.Count(1, 0) // by a worker whose output is long
		out.mu.Unlock()
		shows("")
	})
}

// Values in JSON are as they are, and what is not UTF-8 is in base64.
func TestJSON(t *testing.T) {
	require.Equal(t, `"<a> & \"é\"\n"`, Path("<a> & \"é\"\n"))
	require.Equal(t, `{"bytes":"Yf8="}`, Path("a\xff"))
	require.Equal(t, `{"text":"<a>"}`, Text("<a>"))
	require.Equal(t, `{"bytes":"Yf8="}`, Text("a\xff"))
}

// Names in a table are escaped where they are not printable UTF-8.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"é\ufffd": "é\ufffd", "a\xffb": `a\xffb`, "\x1b[31m": `\x1b[31m`, "a\nb": `a\nb`,
	} {
		require.Equal(t, want, Printable(in))
	}
}

// A size that rounds up to 1024 is printed as 1.0 of the next unit.
func TestSize(t *testing.T) {
	for size, want := range map[int64]string{
		0: "0", 1023: "1023", 1024: "1.0K", 1025: "1.1K", 9 << 10: "9.0K", 10189: "10K", 10241: "11K", 1023 << 10: "1023K",
		1023<<10 + 1: "1.0M", 3 << 29: "1.5G", 1<<40 + 1: "1.1T", 1<<61 - 1: "2.0E", math.MaxInt64: "8.0E",
	} {
		require.Equal(t, want, Size(size, true), size)
	}
}

// A failing writer fails after so many writes.
type failing struct {
	left  int
	calls int
	err   error
}

func (f *failing) Write(p []byte) (int, error) {
	if f.calls++; f.calls > f.left {
		return 0, f.err
	}
	return len(p), nil
}

// After standard output could not be written, nothing more is, as a reader would take what follows for the rest. The error is reported
// once, and each Flush returns it.
func TestNothingIsWrittenAfterAnError(t *testing.T) {
	for left := range 3 {
		stdout := &failing{left: left, err: errors.New("no space left")}
		reported := 0
		out := &Output{stdout: stdout, stderr: io.Discard, onError: func(err error) {
			require.Equal(t, stdout.err, err)
			reported++
		}}
		for i := range 6 {
			n, err := out.Write([]byte("a line\n"))
			require.NoError(t, err)
			require.Equal(t, 7, n)
			if err = out.Flush(); i < left {
				require.NoError(t, err)
			} else {
				require.Equal(t, stdout.err, err)
			}
			_ = out.Flush() // of nothing
			require.Equal(t, min(i, left)+1, stdout.calls)
		}
		require.Equal(t, 1, reported)
		out.Write(bytes.Repeat([]byte("a line\n"), flushSize))
		out.LastFlush()
		require.Equal(t, left+1, stdout.calls)
	}
}

// What is written goes out at the end of 50 ms, or at once if it is much; the outputs of two files are separated; and one that is long
// goes out in parts, between which no other comes.
func TestOutputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stdout bytes.Buffer
		out := &Output{stdout: &stdout, stderr: io.Discard, Between: []byte("--\n"), onError: func(err error) { t.Error(err) }}
		out.Write([]byte("1\n"))
		time.Sleep(flushAfter - 1)
		out.Write([]byte("2\n"))
		require.Empty(t, stdout.String())
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		require.Equal(t, "1\n2\n", stdout.String())
		out.Write(bytes.Repeat([]byte{'\n'}, flushSize-2))
		time.Sleep(flushAfter / 4)
		out.Write([]byte{'\n'})
		require.Len(t, stdout.String(), 4)
		time.Sleep(flushAfter / 4)
		out.Write([]byte{'\n'})
		require.Len(t, stdout.String(), 4+flushSize)
		out.Write([]byte("late\n"))
		time.Sleep(flushAfter - 1)
		require.Len(t, stdout.String(), 4+flushSize, "the time begins anew")
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		require.Len(t, stdout.String(), 4+flushSize+5)

		stdout.Reset()
		first, second, none := Chunk{Out: out, B: []byte("first\n")}, Chunk{Out: out}, Chunk{Out: out}
		first.LineDone()
		first.FileDone()
		none.FileDone()
		second.B = bytes.Repeat([]byte{'x'}, SpillSize-1)
		second.LineDone()
		require.Len(t, second.B, SpillSize-1)
		second.B = append(second.B, 'x')
		second.LineDone()
		require.Empty(t, second.B)
		third := Chunk{Out: out, B: []byte("third\n")}
		done := make(chan bool)
		go func() { third.FileDone(); close(done) }()
		second.B = append(second.B, "end\n"...)
		second.FileDone()
		<-done
		require.NoError(t, out.Flush())
		require.Equal(t, "first\n--\n"+strings.Repeat("x", SpillSize)+"end\n--\nthird\n", stdout.String())
		for _, dir := range []string{t.TempDir(), "/no/such/directory"} {
			waits := Chunk{Dir: dir}
			for i := range 5 {
				waits.Write(bytes.Repeat([]byte{'a' + byte(i)}, flushSize/2))
			}
			kept := waits.Take()
			if dir != "/no/such/directory" {
				require.Less(t, len(kept), flushSize, "not all of it waits in memory")
			}
			require.Empty(t, waits.B)
			stdout.Reset()
			turn := Chunk{Out: out}
			require.NoError(t, turn.Print(kept))
			turn.FileDone()
			require.NoError(t, out.Flush())
			want := "--\n"
			for _, c := range "abcde" {
				want += strings.Repeat(string(c), flushSize/2)
			}
			require.Equal(t, want, stdout.String())
			left, _ := os.ReadDir(dir)
			require.Empty(t, left)
		}
	})
}
