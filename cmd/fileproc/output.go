package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fatih/color"
	"github.com/mattn/go-isatty"
)

const (
	flushSize  = 64 << 10 // bytes
	flushAfter = 50 * time.Millisecond
	// spillSize is how many bytes of one file's output a worker buffers before it locks the output.
	spillSize = 1 << 20

	units = "BKMGTPE" // of sizes, each 1024 times the one before
)

// An output is standard output and standard error. The bytes of one write stay together.
type output struct {
	stdout, stderr io.Writer
	tty            bool // standard output is a terminal
	errTTY         bool // standard error is one
	progress       bool // a progress bar may be shown on standard error
	colors         bool
	onError        func(error)

	mu    sync.Mutex // guards the fields below and the terminal
	buf   []byte
	timer *time.Timer // set while buf waits to be flushed
	err   error
	clear func() // erases the progress bar; nil until one is shown

	between []byte // separates the outputs of two files
	any     bool   // a file's output has been written
}

func newOutput(stdout, stderr *os.File, onError func(error)) *output {
	o := &output{stdout: stdout, stderr: stderr, onError: onError, tty: isTerminal(stdout), errTTY: isTerminal(stderr)}
	o.progress = o.errTTY && (o.tty || !isPipe(stdout)) && os.Getenv("TERM") != "dumb"
	if o.progress {
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

var colorNames = []string{"auto", "always", "never"}

func (o *output) setColor(when string) error {
	if !slices.Contains(colorNames, when) {
		return fmt.Errorf("--color is %q: want auto, always or never", when)
	}
	o.colors = when == "always" || when == "auto" && o.tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if o.colors && o.tty {
		o.stdout = color.Output // translates escape sequences for a Windows console
	}
	return nil
}

// A style holds the escape sequences before and after a coloured text. Both are empty without colours.
type style struct{ on, off string }

// style returns the style with the given code of ECMA-48, such as 31;1.
func (o *output) style(code string) style {
	if !o.colors {
		return style{}
	}
	return style{"\x1b[" + code + "m", "\x1b[0m"}
}

func (s style) append(b []byte, text string) []byte {
	b = append(b, s.on...)
	b = append(b, text...)
	return append(b, s.off...)
}

// Write writes p, which is whole lines. Its error is that of flush, at the end.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writeLocked(p)
	return len(p), nil
}

func (o *output) writeLocked(p []byte) {
	o.buf = append(o.buf, p...)
	switch {
	case o.tty || len(o.buf) >= flushSize:
		o.flushLocked()
	case o.timer == nil:
		o.timer = time.AfterFunc(flushAfter, func() { o.flush() })
	}
}

// flush writes the buffered output and returns the first error of any write.
func (o *output) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.flushLocked()
}

// lastFlush is flush for the end of the process, when a stuck worker may hold the lock. It leaves the output locked, so
// nothing is written after it.
func (o *output) lastFlush() {
	if o.mu.TryLock() {
		if o.clear != nil {
			o.clear()
		}
		o.flushLocked()
	}
}

func (o *output) flushLocked() error {
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	if len(o.buf) > 0 && o.err == nil {
		if o.clear != nil && o.tty {
			o.clear()
		}
		if _, o.err = o.stdout.Write(o.buf); o.err != nil {
			o.onError(o.err)
		}
	}
	o.buf = o.buf[:0]
	return o.err
}

// shown returns path as it is printed: a name on a terminal could move the cursor, change the title or reverse the text.
func (o *output) shown(path string) string {
	if o.tty {
		return printable(path)
	}
	return path
}

// warn prints a message on standard error.
func (o *output) warn(msg string) {
	if o.errTTY { // it may have a name in it; the newline is between messages
		lines := strings.Split(msg, "\n")
		for i := range lines {
			lines[i] = printable(lines[i])
		}
		msg = strings.Join(lines, "\n")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.clear != nil {
		o.clear()
	}
	if o.tty {
		o.flushLocked()
	}
	fmt.Fprintln(o.stderr, "fileproc: "+msg)
}

// A chunk buffers the output of one file at a time.
type chunk struct {
	b      []byte
	out    *output // nil if the chunk must keep all of its output
	wait   func()  // waits for the file's turn; nil if files have none
	locked bool    // the chunk holds out.mu until the end of the file
	enc    *json.Encoder
	_      [64]byte // keeps the chunks of two workers on different cache lines
}

// lineDone is called after each line, and within a long one. It bounds the memory of a file with much output.
func (c *chunk) lineDone() {
	if len(c.b) >= spillSize && c.out != nil {
		c.spill()
	}
}

// spill writes the buffer and keeps the output locked.
func (c *chunk) spill() {
	if !c.locked {
		if c.wait != nil {
			c.wait()
		}
		c.out.mu.Lock()
		c.locked = true
		if c.out.any {
			c.out.writeLocked(c.out.between)
		}
		c.out.any = true
	}
	c.out.writeLocked(c.b)
	c.b = c.b[:0]
}

// fileDone writes the rest of a file's output and unlocks the output.
func (c *chunk) fileDone() {
	if len(c.b) > 0 {
		c.spill()
	}
	if c.locked {
		c.out.mu.Unlock()
		c.locked = false
	}
}

// json appends v as a line.
func (c *chunk) json(v any) error {
	if c.enc == nil {
		c.enc = json.NewEncoder(c)
		c.enc.SetEscapeHTML(false)
	}
	return c.enc.Encode(v)
}

// Write appends p.
func (c *chunk) Write(p []byte) (int, error) {
	c.b = append(c.b, p...)
	return len(p), nil
}

// rawText returns the JSON value of a text that may not be UTF-8: {"text": s} or {"bytes": base64}, as in rg.
func rawText(s []byte) any {
	if utf8.Valid(s) {
		return map[string]string{"text": string(s)}
	}
	return map[string][]byte{"bytes": s}
}

// jsonPath returns the JSON value of a path: a string, or {"bytes": base64} if it is not UTF-8.
func jsonPath(path string) any {
	if utf8.ValidString(path) {
		return path
	}
	return rawText([]byte(path))
}

// humanSize formats a size in bytes with a binary unit, as du -h does: rounded up, with one decimal below 10.
func humanSize(n int64) string {
	unit, size := 0, int64(1)
	for unit < len(units)-1 && n > 1023*size { // a size that rounds up to 1024 is 1.0 of the next unit
		unit, size = unit+1, size*1024
	}
	switch tenths := math.Ceil(10 * float64(n) / float64(size)); {
	case unit == 0:
		return strconv.FormatInt(n, 10)
	case tenths < 100:
		return fmt.Sprintf("%.1f%c", tenths/10, units[unit])
	}
	return fmt.Sprintf("%.0f%c", math.Ceil(float64(n)/float64(size)), units[unit])
}
