package fileproc

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/descriptors"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
)

// leasePatience is how long an operation waits for a lease to be released.
// Linux breaks it after fs.lease-break-time, 45 s by default.
const leasePatience = time.Minute

// resources are what the workers of a run take, and where they look for more.
type resources struct {
	cfg  *config
	dirs dirCache
	pool *pool
	ctx  context.Context // cancelled when the run is stopped
	// slots are the free ones, in which callbacks may run; nil: each worker keeps its own.
	slots chan int
	// replaced is nil until the run replaces a file.
	replaced atomic.Pointer[replace.Done[*node]]
	root     *node // open before any worker starts, and until the run ends; nil: Options.Roots has several
}

func (r *resources) stopped() bool { return r.ctx.Err() != nil }

// An access is the part of a worker that knows nothing of its work. The worker and the File
// that it visits reach directories through it, wait for descriptors and leases, and keep here
// what both change.
type access struct {
	run  *resources
	self work // the worker
	slot int  // in which it runs callbacks, or noSlot
	pin  dirPin

	counts    counts
	read      atomic.Int64 // bytes that the running callback has read through File.Reader, for OnProgress; counts gets them when the callback returns
	pos       position
	reading   interface{ end() } // what File.Reader has returned to the callback that runs, or nil
	withError any                // the result that fn returned with the failure that yieldError gets next

	mayStepAside bool      // is in no callback: see aside
	isAside      bool      // another worker may run in its place
	asideSince   time.Time // while isAside
	short        *shortage // while the worker waits for a descriptor
}

// noSlot is the slot of a worker that may not run callbacks.
const noSlot = -1

// endReading ends the use of what File.Reader has returned to a callback.
func (a *access) endReading() {
	if r := a.reading; r != nil {
		a.reading = nil
		r.end()
	}
}

// withDir calls do with n's directory. It retries while there is no descriptor, or
// while a lease is held on the file that do opens.
func (a *access) withDir(n *node, do func(backend.Directory) error) error {
	return a.retryOnResource(func() error {
		d, err := a.pin.use(&a.run.dirs, n)
		if err != nil {
			return err
		}
		if err = do(d); err != nil && sys.IsScarce(err) {
			a.run.dirs.pinForRetry(n)
		}
		a.pin.idle()
		return err
	})
}

// withDirAside is withDir, but the worker may step aside. It is in no callback.
func (a *access) withDirAside(n *node, do func(backend.Directory) error) error {
	return a.aside(func() error { return a.withDir(n, do) })
}

// retryOnInterrupt calls try, and retries while a signal interrupts it, for
// leasePatience at most. The worker is in no callback.
func (a *access) retryOnInterrupt(try func() error) error {
	err := try()
	if sys.IsInterrupted(err) {
		err = a.aside(func() error { return a.retryAside(leasePatience, sys.IsInterrupted, try) })
	}
	return err
}

// statDir is d.stat, and retries while that is interrupted.
func (a *access) statDir(d backend.Directory, name names.Name) (s sys.Stat, err error) {
	err = a.retryOnInterrupt(func() error {
		s, err = d.Stat(name)
		return err
	})
	return s, err
}

// retryOnResource calls try. If a lease is held on the file, it waits for the release.
// If a call was interrupted, it retries. If no descriptors are left, it gives up all
// that the run can do without, and retries.
func (a *access) retryOnResource(try func() error) error {
	for err := try(); ; {
		switch {
		case sys.MayPass(err):
			err = a.retryAside(leasePatience, sys.MayPass, try)
			if sys.MayPass(err) {
				return err
			}
		case sys.IsScarce(err):
			var isOwn bool
			err = a.retryAside(descriptorPatience, func(error) bool { return isOwn }, func() (err error) {
				isOwn, err = a.waitForDescriptor(try)
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

// retryAside is retry, but if the worker may step aside, another runs in its place while it
// waits. So files that are never ready do not keep workers from other files. A worker
// that is aside has no slot; each try takes a slot if one is free.
func (a *access) retryAside(patience time.Duration, waits func(error) bool, try func() error) error {
	if a.isAside { // it has waited before
		patience -= time.Since(a.asideSince)
	}
	again := func(err error) bool { return waits(err) || a.isAside && err == content.ErrNeedsSlot }
	return retry(a.run.ctx, patience, again, func() error {
		err := try()
		if a.mayStepAside && a.short == nil && again(err) {
			a.stepAside()
		}
		return err
	})
}

// aside calls do, and lets the worker step aside meanwhile. It is in no callback, unless it is short:
// then it may be in one, and does not step aside.
func (a *access) aside(do func() error) error {
	if a.mayStepAside || a.short != nil {
		return do()
	}
	a.mayStepAside = true
	defer func() {
		a.mayStepAside = false
		if a.isAside {
			a.isAside = false
			a.run.pool.stepBack()
		}
	}()
	return do()
}

// stepAside lets another worker run in the place of a's, and gives up the slot and the pin,
// also if the last try has taken them.
func (a *access) stepAside() {
	if !a.isAside {
		if !a.run.pool.stepAside() {
			return
		}
		a.isAside, a.asideSince = true, time.Now()
	}
	if a.slot != noSlot {
		a.run.slots <- a.slot
		a.slot = noSlot
	}
	a.pin.drop(&a.run.dirs)
}

// hasDescriptor reports whether a descriptor is free. It opens root's directory to find
// out.
func (a *access) hasDescriptor() bool {
	if a.run.root == nil {
		return descriptors.IsFree()
	}
	if a.run.root.dir == nil {
		return false
	}
	d, err := backend.OpenDirToSearch(a.run.root.dir, names.Dot)
	if err == nil {
		d.Close()
	}
	return err == nil
}

// waitForDescriptor retries try in a shortage, and says whether that was the file's own.
func (a *access) waitForDescriptor(try func() error) (isOwn bool, err error) {
	a.run.pool.disableGrowth()
	s := a.run.dirs.newShortage()
	err = a.retryInTurn(s, try)
	s.callDeferred()
	return s.isOwn, err
}

// retryInTurn waits for fdTurn, retries try for descriptorPatience at most, and ends s.
func (a *access) retryInTurn(s *shortage, try func() error) error {
	a.short = s
	defer func() {
		a.short = nil
		s.end()
	}()
	if !s.acquireTurn(a.run.ctx, a.giveUpDescriptors) {
		return errStopped
	}
	isShort := func(err error) bool { return sys.IsScarce(err) && !s.isOwn }
	return retry(a.run.ctx, descriptorPatience, isShort, func() error { return a.tryInTurn(s, try) })
}

// tryInTurn calls try, and again at once as long as each call gets further.
func (a *access) tryInTurn(s *shortage, try func() error) error {
	for {
		depth := s.depth()
		a.giveUpDescriptors()
		descriptors.Holders.GiveUp()
		err := try()
		if !sys.IsScarce(err) || s.depth() <= depth {
			s.isOwn = sys.IsScarce(err) && a.hasDescriptor()
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

// giveUpDescriptors closes every directory that the run does not use now. The worker is short.
func (a *access) giveUpDescriptors() {
	a.run.pool.drain(a.self)
	a.run.dirs.evictAll()
}
