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
		for i := range sides {
			if err := do(round, (i+round)%sides); err != nil {
				return err
			}
		}
	}
	return nil
}

// A Pass is one measured run over a tree.
type Pass struct {
	Wall, CPU float64 // nanoseconds; CPU is the user and system time of the process
	Files     int
	Bytes     int64
}

// Timed measures work. It collects garbage before it starts the clock, so that no side pays for another's.
func Timed(work func() (files int, bytes int64, err error)) (p Pass, err error) {
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

// cpuTime returns the user and system time of the whole process.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are constants
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
