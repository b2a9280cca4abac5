package run

import (
	"context"
	"iter"
	"slices"

	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
)

// maxAhead is how many of the files named as arguments may be visited before their turn to be printed. It is large enough
// that one large file does not block the other workers. Each file keeps at most output.SpillSize of output.
const maxAhead = 256

// eachNamed visits the arguments that are not directories, and prints their output in the order of the arguments.
func (r *Run) eachNamed(j *Job, items []Item) {
	InTurn(r, slices.Values(items), func(it Item, worker int, wait func()) (emit func()) {
		it.Worker = worker
		c := &output.Chunk{Out: r.Out, Wait: wait}
		if it.path == Stdin {
			wait() // if it is named twice, the first one reads it to the end
		}
		if it.err == nil {
			it.err = j.Visit(&it, c)
		}
		return func() {
			c.Wait = nil // it is this file's turn
			c.FileDone()
			r.Totals.Found++
			switch {
			case it.err == nil || it.err == ErrEnough:
				r.Totals.Processed++
				r.Out.Count(1, 0)
			case r.Ctx.Err() == nil:
				r.Totals.Failed++
				r.failOf(it.path, it.err)
			default:
				r.Totals.Abandoned++
			}
			if it.err == ErrEnough {
				r.Stop(ErrEnough)
			}
		}
	})
}

// InTurn calls work for each item, on all workers, and then the emit functions that work returned, one at a time in the
// order of the items. work may wait for its item's turn. After ErrEnough InTurn does not wait for work, which may hang.
func InTurn[T any](r *Run, items iter.Seq[T], work func(x T, worker int, wait func()) (emit func())) {
	type task struct {
		turn chan struct{} // closed when it is the item's turn
		emit chan func()
	}
	// The buffer is for performance. Of maxAhead items, one blocks in the send to ahead and one has its turn.
	ahead, workers := make(chan task, maxAhead-2), make(chan int, r.Opts.Workers)
	for w := range cap(workers) {
		workers <- w
	}
	go func() {
		defer close(ahead)
		for x := range items {
			t, w := task{make(chan struct{}), make(chan func(), 1)}, <-workers
			if r.Ctx.Err() != nil { // a cancelled run starts no more work
				return
			}
			ahead <- t
			go func() {
				t.emit <- work(x, w, func() { <-t.turn })
				workers <- w
			}()
		}
	}()
	for t := range ahead {
		close(t.turn)
		emit := <-t.emit
		if emit(); context.Cause(r.Ctx) == ErrEnough {
			break
		}
	}
	r.Out.ShowProgress()
}
