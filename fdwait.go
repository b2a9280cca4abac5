package fileproc

import (
	"context"
	"time"

	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// leasePatience is how long an operation waits for a lease to be released.
// Linux breaks it after fs.lease-break-time, 45 s by default.
const leasePatience = time.Minute

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
			var isOwn bool
			err = w.retryAside(descriptorPatience, func(error) bool { return isOwn }, func() (err error) {
				isOwn, err = w.waitForDescriptor(try)
				return err
			})
			if sys.IsScarce(err) {
				return err
			}
		default:
			return err
		}
	}
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
		if w.mayStepAside && w.short == nil && again(err) {
			w.stepAside()
		}
		return err
	})
}

// aside calls do, and lets w step aside meanwhile. W is in no callback, unless it is short:
// then it may be in one, and does not step aside.
func (w *worker) aside(do func() error) error {
	if w.mayStepAside || w.short != nil {
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
	if w.root == nil {
		return descriptors.IsFree()
	}
	if w.root.dir == nil {
		return false
	}
	d, err := openDirToSearch(w.root.dir, names.Dot)
	if err == nil {
		d.close()
	}
	return err == nil
}

// waitForDescriptor retries try in a shortage, and says whether that was the file's own.
func (w *worker) waitForDescriptor(try func() error) (isOwn bool, err error) {
	w.pool.disableGrowth()
	s := w.dirs.newShortage()
	err = w.retryInTurn(s, try)
	s.callDeferred()
	return s.isOwn, err
}

// retryInTurn waits for fdTurn, retries try for descriptorPatience at most, and ends s.
func (w *worker) retryInTurn(s *shortage, try func() error) error {
	w.short = s
	defer func() {
		w.short = nil
		s.end()
	}()
	if !s.acquireTurn(w.ctx, w.giveUpDescriptors) {
		return errStopped
	}
	isShort := func(err error) bool { return sys.IsScarce(err) && !s.isOwn }
	return retry(w.ctx, descriptorPatience, isShort, func() error { return w.tryInTurn(s, try) })
}

// tryInTurn calls try, and again at once as long as each call gets further.
func (w *worker) tryInTurn(s *shortage, try func() error) error {
	for {
		depth := s.depth()
		w.giveUpDescriptors()
		descriptors.Holders.GiveUp()
		err := try()
		if !sys.IsScarce(err) || s.depth() <= depth {
			s.isOwn = sys.IsScarce(err) && w.hasDescriptor()
			return err
		}
	}
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

// giveUpDescriptors closes every directory that the run does not use now. W is short.
func (w *worker) giveUpDescriptors() {
	w.pool.drain(w)
	w.dirs.evictAll()
}
