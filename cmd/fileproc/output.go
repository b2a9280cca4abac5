package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
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
	// spillSize is how many bytes of one file's output a worker keeps before it takes the output for itself.
	spillSize = 1 << 20
)

// An output is standard output and standard error. What one call writes stays together.
type output struct {
	stdout, stderr io.Writer
	tty            bool // standard output is a terminal
	progress       bool // a progress bar may be shown on standard error
	colors         bool
	onError        func(error)

	mu    sync.Mutex // guards what follows, and what is shown on a terminal
	buf   []byte
	timer *time.Timer // set while buf waits to be flushed
	err   error
	clear func() // takes the progress bar away; nil while there is none

	between []byte // stands between the outputs of two files
	any     bool   // a file's output has been written
}

func newOutput(stdout, stderr *os.File, onError func(error)) *output {
	o := &output{stdout: stdout, stderr: stderr, onError: onError, tty: isTerminal(stdout)}
	o.progress = isTerminal(stderr) && (o.tty || !isPipe(stdout)) && os.Getenv("TERM") != "dumb"
	if o.progress {
		o.stderr = color.Error // which a Windows console understands
	}
	return o
}

// isPipe reports whether another program reads f. That one may write to the terminal too, as less does.
func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

func isTerminal(f *os.File) bool { return isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()) }

func (o *output) setColor(when string) error {
	switch when {
	case "always":
		o.colors = true
	case "never":
		o.colors = false
	case "auto":
		o.colors = o.tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	default:
		return fmt.Errorf("--color is %q: want auto, always or never", when)
	}
	if o.colors && o.tty {
		o.stdout = color.Output // which a Windows console understands
	}
	return nil
}

// A style is the escape sequences around a coloured text; both are empty without colours.
type style struct{ on, off string }

func (o *output) style(attrs ...color.Attribute) style {
	if !o.colors {
		return style{}
	}
	c := color.New(attrs...)
	c.EnableColor()
	var on, off strings.Builder
	c.SetWriter(&on)
	c.UnsetWriter(&off)
	return style{on.String(), off.String()}
}

func (s style) append(b []byte, text string) []byte {
	b = append(b, s.on...)
	b = append(b, text...)
	return append(b, s.off...)
}

// write takes p, which is whole lines.
func (o *output) write(p []byte) {
	if len(p) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writeLocked(p)
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

// flush writes what is there and returns the first error of any write.
func (o *output) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.flushLocked()
}

// lastFlush is flush for when a worker may be stuck while it holds the output. Nothing is written after it.
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

// warn prints a message on standard error.
func (o *output) warn(msg string) {
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

// A chunk collects the output of one file at a time.
type chunk struct {
	b    []byte
	out  *output  // nil if the output must wait for its turn
	wait func()   // for the file's turn, if it has one
	held bool     // the output is this chunk's until the file's end
	_    [64]byte // keeps the chunks of two workers on different cache lines
}

// lineDone is called after each line, and within a long one. A file with much output is written as it comes, so that memory is bounded.
func (c *chunk) lineDone() {
	if len(c.b) >= spillSize && c.out != nil {
		c.spill()
	}
}

// spill writes what is there and keeps the output to itself.
func (c *chunk) spill() {
	if !c.held {
		if c.wait != nil {
			c.wait()
		}
		c.out.mu.Lock()
		c.held = true
		if c.out.any {
			c.out.writeLocked(c.out.between)
		}
		c.out.any = true
	}
	c.out.writeLocked(c.b)
	c.b = c.b[:0]
}

// fileDone writes what is there of a file.
func (c *chunk) fileDone() {
	if len(c.b) > 0 {
		c.spill()
	}
	if c.held {
		c.out.mu.Unlock()
		c.held = false
	}
}

// A rawText is a string that JSON may not be able to hold: {"text": s}, or {"bytes": base64} if it is not UTF-8, as rg does.
type rawText []byte

func (t rawText) appendJSON(b []byte) []byte {
	if utf8.Valid(t) {
		b = append(b, `{"text":`...)
		b = appendQuoted(b, t)
	} else {
		b = append(b, `{"bytes":"`...)
		b = base64.StdEncoding.AppendEncode(b, t)
		b = append(b, '"')
	}
	return append(b, '}')
}

// appendQuoted appends s, which is UTF-8, as a JSON string.
func appendQuoted(b, s []byte) []byte {
	var w bytes.Buffer
	enc := json.NewEncoder(&w)
	enc.SetEscapeHTML(false)
	enc.Encode(string(s)) // a string and a bytes.Buffer give no error
	return append(b, bytes.TrimSuffix(w.Bytes(), []byte("\n"))...)
}

// appendPath appends a path as JSON: a string, or {"bytes": base64} if it is not UTF-8.
func appendPath(b, path []byte) []byte {
	if utf8.Valid(path) {
		return appendQuoted(b, path)
	}
	return rawText(path).appendJSON(b)
}

// appendField appends `,"name":n` or, after an opening brace, `"name":n`.
func appendField(b []byte, name string, n int64) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `":`...)
	return strconv.AppendInt(b, n, 10)
}

// humanSize formats a size in bytes with a binary unit, as du -h does: rounded up, with one decimal below 10.
func humanSize(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	unit := 0
	div := int64(1024)
	for n/div >= 1024 && unit < len(units)-1 {
		div *= 1024
		unit++
	}
	tenths := n/div*10 + (n%div*10+div-1)/div
	if tenths < 100 {
		return fmt.Sprintf("%d.%d%c", tenths/10, tenths%10, units[unit])
	}
	whole := n / div
	if n%div > 0 {
		whole++
	}
	if whole == 1024 && unit < len(units)-1 {
		return fmt.Sprintf("1.0%c", units[unit+1])
	}
	return fmt.Sprintf("%d%c", whole, units[unit])
}
