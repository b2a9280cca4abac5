package fileproc

import (
	"sync"
	"sync/atomic"
	"time"
)

// progressPeriod is how often Options.OnProgress is called.
const progressPeriod = 100 * time.Millisecond

// progress adds up what the workers show of their counts. They show them when
// they see that tick has changed, so that it costs them one look.
type progress struct {
	tick atomic.Uint32

	mu     sync.Mutex
	locals []*local
}

func (p *progress) watch(l *local) {
	p.mu.Lock()
	p.locals = append(p.locals, l)
	p.mu.Unlock()
}

// show lets OnProgress know of l's counts, if it is time to.
func (l *local) show() {
	if l.run.opts.OnProgress == nil {
		return
	}
	if t := l.run.progress.tick.Load(); t != l.tick {
		l.tick = t
		c := l.counts
		l.shown.Store(&c)
	}
}

func (p *progress) report(start time.Time) Report {
	total := Report{Skipped: map[SkipReason]int64{}, Elapsed: time.Since(start)}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.locals {
		if c := l.shown.Load(); c != nil {
			total.add(c)
		}
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
			r.progress.tick.Add(1)
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
