package fileproc

import (
	"context"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

const (
	// descriptorPatience is how long one operation waits for a descriptor, once
	// it is its turn.
	descriptorPatience = 30 * time.Second
	// turnPause is how long a worker waits for its turn before it gives up descriptors
	// again.
	turnPause = 50 * time.Millisecond
	// leasePatience is how long an operation waits for a lease to be released.
	// Linux breaks it after fs.lease-break-time, 45 s by default.
	leasePatience = time.Minute
)

// fdTurn is held by the one worker, of all runs, that goes on while no descriptors are
// left. If several workers went on, each could hold a descriptor and wait for those of
// the others.
var fdTurn = make(chan struct{}, 1) // buffered: a mutex that a select can wait for

// beginTurns has a turn for each level: the one run of the level that retries to open
// its root holds it. These runs do not use fdTurn, because the runs that must end first
// need fdTurn. Each level has its own turn, because a run must not wait for the turn of
// a run that it is nested in, or of one beside that.
var beginTurns [descriptors.Levels]chan struct{}

func init() {
	for i := range beginTurns {
		beginTurns[i] = make(chan struct{}, 1) // buffered: a mutex that a select can wait for
	}
}

// withDir calls do with n's directory. It retries while there is no descriptor, or
// while a lease is held on the file that do opens.
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

// withDirAside is withDir, but w may step aside. W is in no callback.
func (w *worker) withDirAside(n *node, do func(directory) error) error {
	return w.aside(func() error { return w.withDir(n, do) })
}

// retryOnInterrupt calls try, and retries while a signal interrupts it, for
// leasePatience at most. W is in no callback.
func (w *worker) retryOnInterrupt(try func() error) error {
	err := try()
	if sys.IsInterrupted(err) {
		err = w.aside(func() error { return w.retryAside(leasePatience, sys.IsInterrupted, try) })
	}
	return err
}

// statDir is d.stat, and retries while that is interrupted.
func (w *worker) statDir(d directory, name names.Name) (s sys.Stat, err error) {
	err = w.retryOnInterrupt(func() error {
		s, err = d.stat(name)
		return err
	})
	return s, err
}

// retryOnResource calls try. If a lease is held on the file, it waits for the release.
// If a call was interrupted, it retries. If no descriptors are left, it gives up all
// that the run can do without, and retries.
func (w *worker) retryOnResource(try func() error) error {
	for err := try(); ; {
		switch {
		case sys.MayPass(err):
			err = w.retryAside(leasePatience, sys.MayPass, try)
			if sys.MayPass(err) {
				return err
			}
		case sys.IsScarce(err):
			err = w.retryAside(descriptorPatience, isOwnScarcity, func() error {
				err := w.waitForDescriptor(try)
				w.addDeferred()
				return err
			})
			if own, ok := err.(ownScarcity); ok {
				return own.error
			}
			if sys.IsScarce(err) {
				return err
			}
		default:
			return err
		}
	}
}

// An ownScarcity is the error of a file whose open reports a lack of descriptors
// although some are left, as a FUSE server may.
type ownScarcity struct{ error }

func (o ownScarcity) Unwrap() error { return o.error }

func isOwnScarcity(err error) bool {
	_, own := err.(ownScarcity)
	return own
}

// retryAside is retry, but if w may step aside, another worker runs in w's place while w
// waits. So files that are never ready do not keep workers from other files. A worker
// that is aside has no slot; each try takes a slot if one is free.
func (w *worker) retryAside(patience time.Duration, waits func(error) bool, try func() error) error {
	if w.isAside { // it has waited before
		patience -= time.Since(w.asideSince)
	}
	again := func(err error) bool { return waits(err) || w.isAside && err == content.ErrNeedsSlot }
	return retry(w.ctx, patience, again, func() error {
		err := try()
		if w.mayStepAside && again(err) {
			w.stepAside()
		}
		return err
	})
}

// aside calls do, and lets w step aside meanwhile. W is in no callback, unless it drains
// directories: then it may be in one, and does not step aside.
func (w *worker) aside(do func() error) error {
	if w.mayStepAside || w.draining {
		return do()
	}
	w.mayStepAside = true
	defer func() {
		w.mayStepAside = false
		if w.isAside {
			w.isAside = false
			w.pool.stepBack()
		}
	}()
	return do()
}

// stepAside lets another worker run in w's place, and gives up the slot and the pin
// that w has, also if the last try has taken them.
func (w *worker) stepAside() {
	if !w.isAside {
		if !w.pool.stepAside() {
			return
		}
		w.isAside, w.asideSince = true, time.Now()
	}
	if w.slot != noSlot {
		w.slots <- w.slot
		w.slot = noSlot
	}
	w.pin.drop(&w.dirs)
}

// hasDescriptor reports whether a descriptor is free. It opens root's directory to find
// out.
func (w *worker) hasDescriptor() bool {
	if w.root.dir == nil {
		return false
	}
	d, err := openDirToSearch(w.root.dir, names.Dot)
	if err == nil {
		d.close()
	}
	return err == nil
}

// waitForDescriptor waits for fdTurn and then retries try, for descriptorPatience at
// most. Before each try it closes all directories that no run uses. If try fails for
// lack of a descriptor although one is free, the error is an ownScarcity.
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
			w.giveUpDescriptors() // also those of workers that have come to wait for w's slot
		}
	}
	w.dirs.setRetrying(true)
	defer func() {
		w.dirs.setRetrying(false)
		<-fdTurn
	}()
	isShort := func(err error) bool { return sys.IsScarce(err) && !isOwnScarcity(err) }
	return retry(w.ctx, descriptorPatience, isShort, func() error {
		for depth := w.dirs.retryDepth(); ; {
			w.giveUpDescriptors()
			evictAllRuns()
			err, was := try(), depth
			switch depth = w.dirs.retryDepth(); {
			case !sys.IsScarce(err):
				return err
			case depth <= was && w.hasDescriptor():
				return ownScarcity{err}
			case depth <= was:
				return err
			}
		}
	})
}

// retry calls try until waits returns false for its error, the run is stopped, or
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

// giveUpDescriptors closes every directory that the run does not use now. It does not
// wait for the loop over a Stream or Walk, nor for OnError: w may hold fdTurn, and the
// loop or OnError may have begun a run that waits for fdTurn.
func (w *worker) giveUpDescriptors() {
	may := w.mayStepAside
	w.draining, w.mayStepAside = true, false
	w.pool.drain(w)
	w.draining, w.mayStepAside = false, may
	w.dirs.evictAll()
}
