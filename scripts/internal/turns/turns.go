//go:build linux

// Package turns measures several ways to do the same work in turn, so that a drift of the machine favours none of them.
package turns

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Do calls do for each side in each round. A different side goes first in each round.
func Do(rounds, sides int, do func(round, side int) error) error {
	for round := range rounds {
		if err := turn(round, sides, func(side int) error { return do(round, side) }); err != nil {
			return err
		}
	}
	return nil
}

func turn(round, sides int, do func(side int) error) error {
	for i := range sides {
		if err := do((i + round) % sides); err != nil {
			return err
		}
	}
	return nil
}

// Work processes some files, all in the same way, and counts them.
type Work func() (files int, bytes int64, err error)

// Times returns the work of n calls of w.
func (w Work) Times(n int) Work {
	return func() (files int, bytes int64, err error) {
		for range n {
			f, b, err := w()
			if err != nil {
				return files, bytes, err
			}
			files += f
			bytes += b
		}
		return files, bytes, nil
	}
}

// A Pass is one measured run over a tree.
type Pass struct {
	Wall, CPU float64 // nanoseconds; CPU is the user and system time of the process, and of the children that it has waited for
	Files     int
	Bytes     int64
}

// Timed measures work. It collects garbage before it starts the clock, so that no side pays for another's.
func Timed(work Work) (p Pass, err error) {
	runtime.GC()
	start, used := time.Now(), cpuTime()
	p.Files, p.Bytes, err = work()
	p.Wall, p.CPU = float64(time.Since(start)), float64(cpuTime()-used)
	return p, err
}

// Same returns an error if p did not do the same work as want.
func (p Pass) Same(want Pass) error {
	if p.Files != want.Files || p.Bytes != want.Bytes {
		return fmt.Errorf("it saw %d files, %d bytes; right is %d files, %d bytes", p.Files, p.Bytes, want.Files, want.Bytes)
	}
	return nil
}

func cpuTime() (total time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			panic(err) // the arguments are constants
		}
		total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return total
}
