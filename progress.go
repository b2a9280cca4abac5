package fileproc

import (
	"sync"
	"time"
)

// progressPeriod is how often Options.OnProgress is called.
const progressPeriod = 100 * time.Millisecond

// progress adds up what the workers show of their counts.
type progress struct {
	mu     sync.Mutex
	locals []*local
}

func (p *progress) watch(l *local) {
	p.mu.Lock()
	p.locals = append(p.locals, l)
	p.mu.Unlock()
}

// shownCounts are a worker's counts as they were before what it does now, which
// may take long: a wait for work, a call of fn, or a call of the system.
type shownCounts struct {
	mu sync.Mutex
	counts
}

// show lets OnProgress see l's counts.
func (l *local) show() {
	if l.run.opts.OnProgress == nil {
		return
	}
	l.shown.mu.Lock()
	l.shown.counts = l.counts
	l.shown.mu.Unlock()
}

func (p *progress) report(start time.Time) Report {
	total := Report{Skipped: map[SkipReason]int64{}, Elapsed: time.Since(start)}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.locals {
		l.shown.mu.Lock()
		total.add(&l.shown.counts)
		l.shown.mu.Unlock()
	}
	total.Abandoned = 0
	return total
}

// startProgress calls Options.OnProgress until end has returned.
func (r *run) startProgress(start time.Time) (end func()) {
	if r.opts.OnProgress == nil {
		return func() {}
	}
	over := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		returned := false
		defer func() {
			if !returned {
				r.pool.mishap(recover())
			}
		}()
		ticker := time.NewTicker(progressPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.opts.OnProgress(r.progress.report(start))
			case <-over:
				returned = true
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(over)
		ended.Wait()
	})
}
