//go:build linux

// Package turns measures several ways to do the same work in turn, so that a drift of the machine favours none of them.
package turns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"golang.org/x/sys/unix"
)

// Do calls do for each side in each round. A different side goes first in each round.
func Do(rounds, sides int, do func(round, side int)) {
	for round := range rounds {
		for i := range sides {
			do(round, (i+round)%sides)
		}
	}
}

// Work processes files, the same ones in each call, and counts them.
type Work func() (files int, bytes int64, err error)

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

// Side returns a side whose passes are timed.
func (w Work) Side() Side { return Side{Pass: func() (Pass, error) { return Timed(w) }} }

type Pass struct {
	Wall, CPU float64 // nanoseconds; CPU is the user and system time of the process, and of the children that it has waited for
	Files     int
	Bytes     int64
}

// Timed measures work. It collects garbage before it starts the clock, so that no side pays for another side's garbage.
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

// A Side is one of several ways to do the same work.
type Side struct {
	Name, Version string
	Pass          func() (Pass, error)
}

// After returns a side that calls prepare before each pass. The call is not timed.
func (s Side) After(prepare func() error) Side {
	pass := s.Pass
	s.Pass = func() (Pass, error) {
		if err := prepare(); err != nil {
			return Pass{}, err
		}
		return pass()
	}
	return s
}

// A Comparison compares its first side with the others.
type Comparison []Side

func Against(name string, ours, theirs Side) Comparison {
	ours.Name, theirs.Name = name+record.Ours, name+record.Theirs
	return Comparison{ours, theirs}
}

// A Measurement says how sides are compared.
type Measurement struct {
	Table, Data    string       // of the records
	Rounds, Passes int          // the median of a side's passes in a round counts
	Before         func() error // if not nil, it is called before each pass, and not timed
}

// Compare measures all comparisons in each round, so that their figures are from the same moments. Before the rounds, each side warms
// up with one pass. If this pass fails, or does other work than that of the first side, Compare prints a message and leaves the side
// out. The first side's pass must not fail, and all later passes must do the same work.
func (m Measurement) Compare(ctx context.Context, list ...Comparison) (records []record.Record, err error) {
	err = fail.Try(func() {
		want := make([]Pass, len(list))
		for k := range list {
			list[k], want[k] = m.warmUp(ctx, list[k])
		}
		for round := range m.Rounds {
			for k, sides := range list {
				got := make([]record.Record, len(sides))
				for i := range sides {
					i = (i + round) % len(sides)
					got[i] = m.median(ctx, sides[i], want[k])
				}
				records = append(records, got...)
			}
		}
	})
	return records, err
}

// warmUp returns the sides that can be compared, and the pass of the first side.
func (m Measurement) warmUp(ctx context.Context, all Comparison) (sides Comparison, want Pass) {
	for i, s := range all {
		p, err := m.one(ctx, s)
		if i == 0 {
			want = p
		}
		if err = cmp.Or(err, p.Same(want)); err == nil {
			sides = append(sides, s)
			continue
		}
		fail.If(i == 0 || ctx.Err() != nil, "%s: %w", s.Name, err)
		fmt.Fprintf(os.Stderr, "%s: %s: %s is left out: %v\n", m.Table, m.Data, s.Name, err)
	}
	return sides, want
}

func (m Measurement) one(ctx context.Context, s Side) (p Pass, err error) {
	if err = context.Cause(ctx); err == nil && m.Before != nil {
		err = m.Before()
	}
	if err == nil {
		p, err = s.Pass()
	}
	if err == nil && p.Files == 0 {
		err = errors.New("it saw no files")
	}
	return p, err
}

func (m Measurement) median(ctx context.Context, s Side, want Pass) record.Record {
	var wall, cpu []float64
	for range m.Passes {
		p, err := m.one(ctx, s)
		err = cmp.Or(err, p.Same(want))
		fail.If(err != nil, "%s: %w", s.Name, err)
		wall, cpu = append(wall, p.Wall/float64(p.Files)), append(cpu, p.CPU/float64(p.Files))
	}
	return record.Record{Table: m.Table, Data: m.Data, Who: s.Name, Version: s.Version, Files: want.Files,
		Values: map[string]float64{record.Wall: record.Median(wall), record.CPU: record.Median(cpu)}}
}
