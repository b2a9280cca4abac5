package output

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
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
	out.EndProgress()
	out.Write([]byte("the end\n"))
	show(5, 8192)
	require.Equal(t, "\r⠋ 1 files, 0 files/s\x1b[0K"+"\r⠙ 2 files, 0 files/s, 4.0K bytes\x1b[0K"+eraseLine+"a line\n"+
		"fileproc: a message\n"+"\r⠹ 3 files, 0 files/s, 8.0K bytes\x1b[0K"+eraseLine+"fileproc: another\n"+
		"\r⠸ 4 files, 0 files/s, 8.0K bytes\x1b[0K"+eraseLine+"the end\n", screen.String())
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
