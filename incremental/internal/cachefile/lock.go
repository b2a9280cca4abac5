package cachefile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"
)

const (
	lockSuffix = ".lock"
	tempSuffix = ".fileproc-tmp"
)

var errNotRegular = errors.New("not a regular file")

// lockWait bounds how long a save waits for another writer. A save takes less
// than a second, so a longer wait means that the other writer hangs. Tests set it.
var lockWait = 30 * time.Second

// unlockTries is how often an unlock is tried. On a network file system a signal may
// interrupt it, and the file would then stay locked until the garbage collector
// closes it.
const unlockTries = 3

// lock takes the writers' lock of file. It returns false, without an error, where
// there are no locks: on Plan 9, js and WASI, and on network file systems without
// a lock service. Writers that save at the same moment can lose each other's
// records there, and nothing else: frames that they mix up are invalid. It waits
// for another writer until ctx ends, but not longer than lockWait.
func lock(ctx context.Context, file string) (unlock func(), locked bool, err error) {
	name := file + lockSuffix
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
		// Opening a FIFO would wait, and opening a dangling link would create its target.
		return nil, false, &fs.PathError{Op: "lock", Path: name, Err: errNotRegular}
	}
	l := flock.New(name)
	locked, err = l.TryLock() // also if ctx has ended
	if !locked && err == nil {
		ctx, cancel := context.WithTimeout(ctx, lockWait)
		defer cancel()
		_, err = l.TryLockContext(ctx, 5*time.Millisecond)
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported) || errors.Is(err, errNoLocks):
		return func() {}, false, nil
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return nil, false, errors.New("another process holds " + name)
	case err != nil:
		return nil, false, err
	}
	// The lock file stays: removing it would let two writers lock different files.
	return func() {
		for range unlockTries {
			if l.Unlock() == nil {
				return
			}
		}
	}, true, nil
}
