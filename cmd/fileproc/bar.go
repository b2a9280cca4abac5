package main

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/fileproc/fileproc"
)

// barAfter is how long work takes before its progress is shown.
const barAfter = time.Second

// A bar shows progress on standard error, if that is a terminal. Its fields are guarded by the output's mutex.
type bar struct {
	out   *output
	start time.Time
	p     *progressbar.ProgressBar
	done  bool

	files, bytes int64 // of the roots that are done
}

func newBar(out *output) *bar { return &bar{out: out, start: time.Now()} }

// onProgress returns a function for Options.OnProgress, or nil if no progress is to be shown. It is to be called once for
// each root.
func (b *bar) onProgress() func(fileproc.Report) {
	if !b.out.stderrTTY {
		return nil
	}
	files, bytes := b.files, b.bytes
	return func(r fileproc.Report) {
		if time.Since(b.start) >= barAfter {
			b.show(files+r.Found, bytes+r.Bytes)
		}
		b.files, b.bytes = files+r.Found, bytes+r.Bytes
	}
}

func (b *bar) show(files, bytes int64) {
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	if b.done {
		return
	}
	if b.p == nil {
		b.p = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(b.out.stderr), progressbar.OptionSpinnerType(14),
			progressbar.OptionSetElapsedTime(false), progressbar.OptionClearOnFinish())
		b.out.clear = func() { b.p.Clear() }
	}
	seconds := time.Since(b.start).Seconds()
	b.p.Describe(fmt.Sprintf("%d files, %s, %.0f files/s", files, humanSize(bytes), float64(files)/seconds))
	b.p.Set64(files)
}

// clear takes the bar away for good.
func (b *bar) clear() {
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	b.done = true
	if b.p != nil {
		b.p.Clear()
		b.out.clear = nil
	}
}
