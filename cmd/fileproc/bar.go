package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/fileproc/fileproc"
)

// barDelay is how long work takes before its progress is shown. Tests change it.
var barDelay = time.Second

// Escape sequences. The libraries for progress bars bring goroutines of their own, or a web server, which takes a seventh of
// the start-up time.
const (
	eraseRest = "\x1b[0K"   // of the line
	eraseLine = "\x1b[2K\r" // and go to its beginning
)

var spinners = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// A bar shows progress on standard error: one line, which is erased before anything else is written to the terminal.
type bar struct {
	out   *output
	start time.Time
	width func() int // of the terminal, in columns

	// guarded by the output's mutex
	frames int       // how often the line was drawn
	shown  bool      // the line is on the terminal
	next   time.Time // when the line is to be drawn again
	done   bool

	files, bytes atomic.Int64 // processed so far
}

func newBar(out *output, stderr *os.File) *bar {
	return &bar{out: out, start: time.Now(), width: func() int { return columns(stderr) }}
}

// columns returns the width of a terminal, or 80 if it is unknown, as on a serial line.
func columns(f *os.File) int {
	if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
		return n
	}
	return 80
}

// onProgress returns a function for Options.OnProgress, or nil if no progress is shown. Each root needs a function of its
// own.
func (b *bar) onProgress() func(fileproc.Report) {
	if !b.out.progress {
		return nil
	}
	var last fileproc.Report
	return func(r fileproc.Report) {
		b.files.Add(r.Processed + r.Unchanged - last.Processed - last.Unchanged)
		b.bytes.Add(r.Bytes - last.Bytes)
		last = r
		b.show()
	}
}

// add counts files and bytes that no Report counts, and draws the line about ten times a second. If the output is locked,
// perhaps by the calling worker, the line stays as it is.
func (b *bar) add(files, bytes int64) {
	b.files.Add(files)
	b.bytes.Add(bytes)
	if b.out.progress && b.out.mu.TryLock() {
		defer b.out.mu.Unlock()
		if time.Now().After(b.next) {
			b.draw()
		}
	}
}

func (b *bar) show() {
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	b.draw()
}

// draw shows the line. The caller holds the output's mutex.
func (b *bar) draw() {
	// The spinner and the space take two columns. One more stays free: a line that fills the terminal may wrap, and could
	// then not be erased.
	room := b.width() - 3
	if b.done || room <= 0 || !b.out.progress || time.Since(b.start) < barDelay {
		return
	}
	b.next = time.Now().Add(100 * time.Millisecond)
	b.out.clear = b.hide
	files, bytes := b.files.Load(), b.bytes.Load()
	text := fmt.Sprintf("%d files, %.0f files/s", files, float64(files)/time.Since(b.start).Seconds())
	if bytes > 0 { // ls, du and stats read none
		text += fmt.Sprintf(", %s bytes", humanSize(bytes))
	}
	b.shown = true
	spinner := spinners[b.frames%len(spinners)]
	b.frames++
	fmt.Fprintf(b.out.stderr, "\r%c %s%s", spinner, text[:min(len(text), room)], eraseRest)
}

// hide erases the line until show is called again. The caller holds the output's mutex.
func (b *bar) hide() {
	if b.shown {
		b.shown = false
		fmt.Fprint(b.out.stderr, eraseLine)
	}
}

// clear erases the bar for good.
func (b *bar) clear() {
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	b.done = true
	b.hide()
}
