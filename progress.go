package fileproc

import (
	"sync"
	"time"
)

// progressPeriod is how often Options.OnProgress is called.
const progressPeriod = 100 * time.Millisecond

// startProgress calls onProgress with what the workers show, until end has returned.
func (r *run) startProgress(start time.Time) (end func()) {
	if r.calls.onProgress == nil {
		return func() {}
	}
	over := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		returned := false
		defer func() {
			if !returned {
				r.pool.recordPanic(recover())
			}
		}()
		ticker := time.NewTicker(progressPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.calls.onProgress(r.shownCounts(), time.Since(start))
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

// shownCounts adds up what the workers show. Abandoned is known only at the end.
func (r *run) shownCounts() (total counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.workers {
		if w != nil {
			w.shown.Lock()
			total.add(&w.shown.counts)
			w.shown.Unlock()
		}
	}
	total.abandoned = 0
	return total
}
