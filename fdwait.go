package fileproc

import (
	"context"
	"time"

	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/sys"
)

const (
	// descriptorPatience is how long one operation waits for a descriptor, once
	// it is its turn.
	descriptorPatience = 30 * time.Second
	// turnPause is how often those that wait for their turn give up descriptors.
	turnPause = 50 * time.Millisecond
	// leasePatience is how long an operation waits for a lease to be released.
	// Linux breaks it after fs.lease-break-time, 45 s by default.
	leasePatience = time.Minute
)

// fdTurn is held by the one worker of all runs that goes on while there are no
// descriptors left. If several went on, each could hold a descriptor and wait for
// those of the others.
var fdTurn = make(chan struct{}, 1) // buffered: a mutex that a select can wait for

// beginTurns are held by the one run of each level that waits to open its root. They
// are not fdTurn, which the runs need that must end first; nor may a run wait for
// the turn of one that it is nested in or beside.
var beginTurns [descriptors.Levels]chan struct{}

func init() {
	for i := range beginTurns {
		beginTurns[i] = make(chan struct{}, 1) // buffered: a mutex that a select can wait for
	}
}

// withDir calls do with n's directory, and again while there is no descriptor for
// it, or a lease is held on its file.
func (w *worker) withDir(n *node, do func(directory) error) error {
	return w.retryOnResource(func() error {
		d, err := w.pin.use(&w.dirs, n)
		if err != nil {
			return err
		}
		if err = do(d); err != nil && sys.IsScarce(err) {
			w.dirs.pinForRetry(n)
		}
		w.pin.idle()
		return err
	})
}

// retryOnResource calls try. If a lease is held on the file it waits until that is
// released. If there are no descriptors left it gives up all that the run can do
// without, and retries.
func (w *worker) retryOnResource(try func() error) error {
	for err := try(); ; {
		switch {
		case sys.IsLeased(err):
			err = retry(w.ctx, leasePatience, sys.IsLeased, try)
			if sys.IsLeased(err) {
				return err
			}
		case sys.IsScarce(err):
			err = w.waitForDescriptor(try)
			w.addDeferred()
			if sys.IsScarce(err) {
				return err
			}
		default:
			return err
		}
	}
}

func (w *worker) waitForDescriptor(try func() error) error {
	w.pool.disableGrowth()
	w.dirs.addWaiters(1)
	defer w.dirs.addWaiters(-1)
	w.giveUpDescriptors()
	for waits := true; waits; {
		select {
		case fdTurn <- struct{}{}:
			waits = false
		case <-w.ctx.Done():
			return errStopped
		case <-time.After(turnPause):
			w.giveUpDescriptors() // those of workers that wait for w's slot
		}
	}
	w.dirs.setRetrying(true)
	defer func() {
		w.dirs.setRetrying(false)
		<-fdTurn
	}()
	return retry(w.ctx, descriptorPatience, sys.IsScarce, func() error {
		for depth := w.dirs.retryDepth(); ; {
			w.giveUpDescriptors()
			evictAllRuns()
			err, was := try(), depth
			if depth = w.dirs.retryDepth(); !sys.IsScarce(err) || depth <= was {
				return err
			}
		}
	})
}

// retry calls try until its error is no reason to wait, the run is stopped, or
// patience is over.
func retry(ctx context.Context, patience time.Duration, waits func(error) bool, try func() error) error {
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := try()
		if !waits(err) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errStopped
		}
	}
}

// giveUpDescriptors closes every directory that the run does not use now. It waits
// neither for the loop over a Stream or Walk nor for OnError: w may have fdTurn,
// and either may have begun a run that waits for it.
func (w *worker) giveUpDescriptors() {
	w.draining = true
	w.pool.drain(w)
	w.draining = false
	w.dirs.evictAll()
}
