// Package pace finds out how many requests a disk serves well at the same time, and lets
// the goroutines that make them wait for their turns.
//
// A goroutine that is to stop waits for the requests that it has made. So they may take
// some 40 ms together, however slow the disk is. A disk that serves one request after the
// other is slow because of all that are pending, whoever makes them. So all goroutines
// share one Disk.
//
// Requests are made in two ways, and each has a pace of its own. A window is many
// requests that one goroutine makes together. A call is what one goroutine waits for
// alone, and may stand for several requests, one after the other. A Disk measures nothing:
// it is told how long each window and each call took.
package pace

import (
	"time"

	"github.com/fileproc/fileproc/internal/knobs"
)

const (
	// mostInWindow is how many requests a window has at most.
	mostInWindow = 256
	// firstPending, leastPending and mostPending are how many requests of windows may be
	// pending: at first, at least (however slow the disk is), and at most.
	firstPending = 16
	leastPending = 8
	mostPending  = 4 * mostInWindow
	// fewPending is the highest pace at which a window is judged by its own requests alone,
	// so that a slow disk is noticed before it is asked for more.
	fewPending = 64
	// One call counts as perCall requests. It reads several blocks, one after the other.
	perCall = 4
	// slowWindow is how long a window may take before the disk is asked for less.
	slowWindow = 40 * time.Millisecond
	// slowCall is the time above which a call is slow. A disk is asked for more only if
	// a call would stay within slowCall with as many calls at a time as the pace allows.
	// Later calls may read more blocks.
	slowCall = 5 * time.Millisecond
	// slowInARow is how many calls in a row must be slow for a disk to be asked for one call
	// at a time. The next time, slowAgain calls are enough. A single call may have waited
	// for a processor.
	slowInARow = 4
	slowAgain  = 2
	// quickInARow is how many windows must be quick, once one was slow, before the disk is
	// asked for more, and how many calls must be.
	quickInARow = 32
)

// A pace says how many requests may be pending, and remembers what it was told since that
// number changed.
type pace struct {
	most   int  // pending requests
	slowed bool // a window was slow, or several calls were
	quick  int  // windows in a row, or calls, that were quick
	slow   int  // calls in a row that were slow
	alone  bool // one window at a time has all the requests
}

// afterWindow returns the pace after a window that took the time d while pending requests
// were made, those of the window among them. Many disks are fast where files lie side by
// side and slow elsewhere, so one slow window counts for long.
func (p pace) afterWindow(pending int, d time.Duration) pace {
	switch {
	case d > slowWindow:
		return pace{most: max(leastPending, p.most/2), slowed: true, alone: p.alone}
	case pending < p.window() || d*time.Duration(p.most) > slowWindow*time.Duration(pending):
		return p // that was little to ask for
	}
	if p.quick++; !p.slowed || p.quick == quickInARow {
		// A window whose files are large has more requests than its turn was for.
		return pace{most: min(2*max(p.most, pending), mostPending), slowed: p.slowed, alone: p.alone}
	}
	return p
}

// afterCall returns the pace after a call that took the time d, while calls that count as
// pending requests were made. If several calls in a row are slow, the disk has one head,
// which moves from one call's place to another's. A call that is alone finds the head
// where the last call left it.
func (p pace) afterCall(pending int, d time.Duration) pace {
	switch {
	case d > slowCall:
		if p.slow++; p.slow == slowInARow || p.slowed && p.slow == slowAgain {
			return pace{most: perCall, slowed: true}
		}
		return p
	case d <= knobs.SlowCall || d*time.Duration(p.most) > slowCall*time.Duration(pending):
		return p // no reason for more
	}
	p.slow = 0
	if p.quick++; p.quick == quickInARow {
		return pace{most: min(2*p.most, mostPending), slowed: p.slowed}
	}
	return p
}

// window returns how many requests a window has. Two windows are pending, so that the disk
// has work while the next window is prepared. Where the disk has one head, one window
// alone is pending: the head then goes on behind the last request.
func (p pace) window() int {
	if p.alone {
		return min(max(leastPending, p.most), mostInWindow)
	}
	return min(max(leastPending, p.most/2), mostInWindow)
}
