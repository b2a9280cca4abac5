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

// withDirAside is withDir, but w may step aside. It is in no callback.
func (w *worker) withDirAside(n *node, do func(directory) error) error {
	return w.aside(func() error { return w.withDir(n, do) })
}

// retryOnInterrupt calls try, and again if it is interrupted. It is in no callback.
func (w *worker) retryOnInterrupt(try func() error) error {
	err := try()
	if sys.IsInterrupted(err) {
		err = w.aside(func() error { return w.retryAside(leasePatience, sys.IsInterrupted, try) })
	}
	return err
}

// statDir is d.stat, and again if that is interrupted.
func (w *worker) statDir(d directory, name names.Name) (s sys.Stat, err error) {
	err = w.retryOnInterrupt(func() error {
		s, err = d.stat(name)
		return err
	})
	return s, err
}

// retryOnResource calls try. If a lease is held on the file it waits until that is
// released, and if a call was interrupted it makes it again. If there are no
// descriptors left it gives up all that the run can do without, and retries.
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

// An ownScarcity is the error of a file that reports scarcity while there are
// descriptors, as a FUSE server may.
type ownScarcity struct{ error }

func (o ownScarcity) Unwrap() error { return o.error }

func isOwnScarcity(err error) bool {
	_, own := err.(ownScarcity)
	return own
}

// retryAside is retry, and lets another worker run in w's place while w waits, if w may
// step aside. So files that are never ready keep nobody from the others. An aside
// worker has no slot, and each try takes one that is free.
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

// aside calls do, during which w may step aside: it is in no callback. While it drains
// directories, it may be in one.
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

// stepAside gives up what others could use, also what the last try has taken.
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

// hasDescriptor reports whether one is free. It asks root's directory for it.
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
	may := w.mayStepAside
	w.draining, w.mayStepAside = true, false
	w.pool.drain(w)
	w.draining, w.mayStepAside = false, may
	w.dirs.evictAll()
}
