package output

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
)

// ProgressDelay is how long work takes before its progress is shown. Tests change it.
var ProgressDelay = time.Second

// Escape sequences. The libraries for progress bars bring goroutines of their own, or a web server, which takes a seventh of
// the start-up time.
const (
	eraseRest = "\x1b[0K"   // of the line
	eraseLine = "\x1b[2K\r" // and go to its beginning
)

var spinners = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// A progress is one line on standard error, which is erased before anything else is written to the terminal.
type progress struct {
	Start        time.Time
	enabled      bool
	width        func() int   // of the terminal, in columns
	files, bytes atomic.Int64 // processed so far
	total        atomic.Int64 // the files that there are, 0 until all are listed
	// guarded by the output's mutex
	frames int       // how often the line was drawn
	shown  bool      // the line is on the terminal
	next   time.Time // when the line is to be drawn again
	done   bool
}

// OnProgress returns a function for the Options.OnProgress of one run, or nil if no progress is shown.
func (o *Output) OnProgress() func(fileproc.Report) {
	if !o.enabled {
		return nil
	}
	files, bytes := o.files.Load(), o.bytes.Load() // of earlier runs
	return func(r fileproc.Report) {
		total := int64(0)
		if r.Listed {
			total = files + r.Found - r.Failed
			for _, n := range r.Skipped {
				total -= n
			}
		}
		o.files.Store(files + r.Processed + r.Unchanged)
		o.bytes.Store(bytes + r.Bytes)
		o.total.Store(total)
		o.ShowProgress()
	}
}

// Count counts files and bytes that no Report counts, and draws the line about ten times a second. If the output is locked,
// perhaps by the calling worker, the line stays as it is.
func (o *Output) Count(files, bytes int64) {
	o.files.Add(files)
	o.bytes.Add(bytes)
	if o.enabled && o.mu.TryLock() {
		defer o.mu.Unlock()
		if time.Now().After(o.next) {
			o.draw()
		}
	}
}

// ShowProgress draws the line.
func (o *Output) ShowProgress() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.draw()
}

func (o *Output) draw() {
	// The spinner and the space take two columns. One more stays free: a line that fills the terminal may wrap, and could
	// then not be erased.
	if o.done || !o.enabled || time.Since(o.Start) < ProgressDelay || o.width() <= 3 {
		return
	}
	o.next = time.Now().Add(100 * time.Millisecond)
	files, bytes := o.files.Load(), o.bytes.Load()
	of := ""
	if total := o.total.Load(); total > files {
		of = fmt.Sprintf(" of %d", total)
	}
	text := fmt.Sprintf("%d%s files, %.0f files/s", files, of, float64(files)/time.Since(o.Start).Seconds())
	if bytes > 0 { // ls, du and stats read none
		text += fmt.Sprintf(", %s bytes", Size(bytes, true))
	}
	fmt.Fprintf(o.stderr, "\r%c %.*s%s", spinners[o.frames%len(spinners)], o.width()-3, text, eraseRest)
	o.frames++
	o.shown = true
}

// hide erases the line until it is drawn again.
func (o *Output) hide() {
	if o.shown {
		o.shown = false
		fmt.Fprint(o.stderr, eraseLine)
	}
}

// EndProgress erases the line for good.
func (o *Output) EndProgress() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	o.hide()
}
