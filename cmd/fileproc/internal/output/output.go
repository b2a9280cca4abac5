// Package output writes standard output and standard error: whole lines, messages, colours and progress.
package output

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fatih/color"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/mattn/go-isatty"
	"golang.org/x/term"
)

const (
	flushSize  = 64 << 10 // bytes
	flushAfter = 50 * time.Millisecond
	SpillSize  = 1 << 20 // bytes of one file's output that a worker buffers before it locks the output
)

// An Output is standard output and standard error. The bytes of one write stay together.
type Output struct {
	TTY            bool   // standard output is a terminal
	Between        []byte // separates the outputs of two files
	stdout, stderr io.Writer
	colors         bool
	onError        func(error)
	mu             sync.Mutex // guards the fields below and the terminal
	buf            []byte
	timer          *time.Timer // set while buf waits to be flushed
	err            error
	any            bool // a file's output has been written
	progress            // some of its fields
}

// New returns an Output. It calls onError if standard output cannot be written.
func New(stdout, stderr *os.File, onError func(error)) *Output {
	o := &Output{stdout: stdout, stderr: stderr, onError: onError, TTY: isTerminal(stdout)}
	o.progress = progress{Start: time.Now(), width: func() int {
		n, _, _ := term.GetSize(int(stderr.Fd()))
		return cmp.Or(max(n, 0), 80) // it is unknown on a serial line
	}}
	if isTerminal(stderr) && (o.TTY || !isPipe(stdout)) && os.Getenv("TERM") != "dumb" {
		o.enabled = true
		o.stderr = color.Error // translates escape sequences for a Windows console
	}
	return o
}

// isPipe reports whether another program reads f. That program may write to the terminal too, as less does.
func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

func isTerminal(f *os.File) bool { return isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()) }

// SetColor sets whether Style returns colours: auto, always or never.
func (o *Output) SetColor(when string) {
	o.colors = when == "always" || when == "auto" && o.TTY && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if o.colors && o.TTY {
		o.stdout = color.Output // translates escape sequences for a Windows console
	}
}

// A Style holds the escape sequences before and after a coloured text. Both are empty without colours.
type Style struct{ On, Off string }

// The codes of ECMA-48 for the parts of a line, as in rg.
const PathColor, NumberColor, MatchColor = "35", "32", "31;1"

// Style returns the style with the given code.
func (o *Output) Style(code string) Style {
	if !o.colors {
		return Style{}
	}
	return Style{"\x1b[" + code + "m", "\x1b[0m"}
}

// Append appends text in the style.
func (s Style) Append(b []byte, text string) []byte {
	return append(append(append(b, s.On...), text...), s.Off...)
}

// Write writes p, which is whole lines. Its error is that of Flush, at the end.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writeLocked(p)
	return len(p), nil
}

func (o *Output) writeLocked(p []byte) {
	o.buf = append(o.buf, p...)
	switch {
	case o.TTY || len(o.buf) >= flushSize:
		o.flushLocked()
	case o.timer == nil:
		o.timer = time.AfterFunc(flushAfter, func() { o.Flush() })
	}
}

// Flush writes the buffered output and returns the first error of any write.
func (o *Output) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.flushLocked()
}

// LastFlush is Flush for the end of the process, when a stuck worker may hold the lock. It leaves the output locked, so
// nothing is written after it.
func (o *Output) LastFlush() {
	if o.mu.TryLock() {
		o.hide()
		o.flushLocked()
	}
}

func (o *Output) flushLocked() error {
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	if len(o.buf) > 0 && o.err == nil {
		if o.TTY {
			o.hide()
		}
		if _, o.err = o.stdout.Write(o.buf); o.err != nil {
			o.onError(o.err)
		}
	}
	o.buf = o.buf[:0]
	return o.err
}

// Shown returns path as it is printed: a name on a terminal could move the cursor, change the title or reverse the text.
func (o *Output) Shown(path string) string {
	if o.TTY {
		return Printable(path)
	}
	return path
}

// Warn prints a message on standard error. It escapes each of the lines, because names may be in them: on a terminal as Shown
// does, and in a file so that no name looks like another message.
func (o *Output) Warn(lines ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hide()
	for i, line := range lines {
		if i == 0 {
			line = "fileproc: " + line
		}
		fmt.Fprintln(o.stderr, Printable(line))
	}
}

// A Chunk buffers the output of one file at a time.
type Chunk struct {
	B      []byte
	Out    *Output  // nil if the output waits for its turn
	Dir    string   // without Out: of temporary files for what is too long to wait in memory
	file   *os.File // in Dir
	locked bool     // the chunk holds Out.mu until the end of the file
	_      [64]byte // keeps the chunks of two workers on different cache lines
}

// LineDone is called after each line, and within a long one. It bounds the memory of a file with much output.
func (c *Chunk) LineDone() {
	switch {
	case c.Out != nil && len(c.B) >= SpillSize:
		c.spill()
	case c.Out == nil && len(c.B) >= flushSize:
		if c.file == nil {
			c.file, _ = os.CreateTemp(c.Dir, "")
		}
		n, _ := c.file.Write(c.B) // what cannot be written waits in memory
		c.B = append(c.B[:0], c.B[n:]...)
	}
}

// Take returns the output of a chunk without Out, for Print: the name of a temporary file, if any, a NUL byte, and the rest.
func (c *Chunk) Take() []byte {
	name := ""
	if c.file != nil {
		name = c.file.Name()
		c.file.Close()
	}
	b := append([]byte(name+"\x00"), c.B...)
	c.B, c.file = c.B[:0], nil
	return b
}

// Print appends what Take has returned.
func (c *Chunk) Print(b []byte) (err error) {
	name, rest, _ := bytes.Cut(b, []byte{0})
	if len(name) > 0 {
		var f *os.File
		if f, err = os.Open(string(name)); err == nil {
			_, err = io.Copy(c, f)
			f.Close()
			os.Remove(f.Name())
		}
	}
	c.B = append(c.B, rest...)
	return err
}

func (c *Chunk) Write(p []byte) (int, error) {
	c.B = append(c.B, p...)
	c.LineDone()
	return len(p), nil
}

// spill writes the buffer and keeps the output locked.
func (c *Chunk) spill() {
	if !c.locked {
		c.Out.mu.Lock()
		c.locked = true
		if c.Out.any {
			c.Out.writeLocked(c.Out.Between)
		}
		c.Out.any = true
	}
	c.Out.writeLocked(c.B)
	c.B = c.B[:0]
}

// FileDone writes the rest of a file's output and unlocks the output.
func (c *Chunk) FileDone() {
	if len(c.B) > 0 {
		c.spill()
	}
	if c.locked {
		c.Out.mu.Unlock()
		c.locked = false
	}
}

// printed undoes the escapes of strconv.Quote for characters that can be printed.
var printed = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// Printable escapes a text that could break a table or a terminal.
func Printable(s string) string {
	q := strconv.Quote(s)
	return printed.Replace(q[1 : len(q)-1])
}

// JSON returns v, which JSON can represent, in JSON.
func JSON(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n")
}

// Text returns a text that may not be UTF-8 in JSON: {"text": s} or {"bytes": base64}, as in rg.
func Text(s string) string {
	if utf8.ValidString(s) {
		return `{"text":` + JSON(s) + "}"
	}
	return JSON(map[string][]byte{"bytes": []byte(s)})
}

// Path returns a path in JSON: a string, or {"bytes": base64} if it is not UTF-8.
func Path(path string) string {
	if utf8.ValidString(path) {
		return JSON(path)
	}
	return Text(path)
}

// Count returns n and what is counted.
func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + many
}

// Size formats a size in bytes in full, or for humans with a binary unit, as du -h does: rounded up, with one decimal below 10.
func Size(n int64, human bool) string {
	unit, size := -1, float64(n)
	for ; human && size > 1023; unit++ { // a size that rounds up to 1024 is 1.0 of the next unit
		size /= 1024
	}
	tenths := math.Ceil(10 * size)
	switch {
	case unit < 0:
		return strconv.FormatInt(n, 10)
	case tenths < 100:
		return fmt.Sprintf("%.1f%c", tenths/10, "KMGTPE"[unit])
	}
	return fmt.Sprintf("%.0f%c", math.Ceil(size), "KMGTPE"[unit])
}

// NewTable returns a table without lines between its cells.
func NewTable(header table.Row) table.Writer {
	t := table.NewWriter()
	style := t.Style()
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SuppressTrailingSpaces()
	t.AppendHeader(header)
	return t
}
