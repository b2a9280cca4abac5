//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A drive is how the emulated disk behaves. Its zero value, with any number in flight, is as fast as the machine.
type drive struct {
	rate     float64       // requests a second at most; 0: any number
	latency  time.Duration // of each request
	inflight int           // requests at the same time at most
	seek     time.Duration // of the one head, to a request that does not begin where the last one ended

	slots chan struct{}

	mu   sync.Mutex
	free time.Time // when the next request may begin; guarded by mu
	end  int64     // where the last request ended; guarded by mu
}

func (d *drive) flags(f *flag.FlagSet) {
	f.Float64Var(&d.rate, "rate", 0, "requests a `second` at most; 0: any number")
	f.DurationVar(&d.latency, "latency", 0, "`time` that each request takes")
	f.IntVar(&d.inflight, "inflight", 128, "`requests` in flight at most")
	f.DurationVar(&d.seek, "seek", 0, "`time` that the one head takes to a request that does not follow the last one")
}

func (d *drive) check() error {
	switch {
	case d.rate < 0 || d.latency < 0 || d.seek < 0:
		return errors.New("-rate, -latency and -seek must not be negative")
	case d.inflight < 1:
		return fmt.Errorf("-inflight %d: must be at least 1", d.inflight)
	}
	d.slots = make(chan struct{}, d.inflight)
	return nil
}

// wait returns when the drive has done a request for the bytes from off to end.
func (d *drive) wait(off, end int64) {
	d.slots <- struct{}{}
	defer func() { <-d.slots }()
	sleepUntil(d.schedule(time.Now(), off, end))
}

// schedule returns when a request that arrives now will be done. Requests begin in the order in which they arrive.
func (d *drive) schedule(now time.Time, off, end int64) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	start := now
	if d.free.After(now) {
		start = d.free
	}
	if off != d.end {
		start = start.Add(d.seek)
	}
	d.end, d.free = end, start
	if d.rate > 0 {
		d.free = start.Add(time.Duration(float64(time.Second) / d.rate))
	}
	return start.Add(d.latency)
}

// sleepUntil is a system call, because an idle Go program rounds its timers up to a millisecond.
func sleepUntil(t time.Time) {
	for left := time.Until(t); left > 0; left = time.Until(t) {
		ts := unix.NsecToTimespec(int64(left))
		unix.Nanosleep(&ts, nil) // after a signal, the loop goes on
	}
}
