package pace

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// newDisk returns a Disk whose windows and calls have these paces.
func newDisk(windows, calls pace) *Disk {
	d := new(Disk)
	d.Init(mostInWindow)
	d.windows.pace, d.calls.pace = windows, calls
	d.resize()
	return d
}

// A device serves requests in virtual time: as many at the same time as it has heads, the others in the order in which they come.
// One without heads serves any number.
type device struct {
	mu     sync.Mutex
	heads  []time.Time   // when each has served all that it was asked for
	cost   time.Duration // of a request
	served int
	last   int           // the goroutine that made the last request
	seek   time.Duration // to where the requests of another goroutine are
}

// serve returns when k requests of a goroutine, made together, have been served.
func (d *device) serve(who, k int) {
	d.mu.Lock()
	d.served += k
	var done time.Time
	if len(d.heads) == 0 {
		done, k = time.Now().Add(d.cost), 0
	}
	for range k {
		first := &d.heads[0]
		for i := range d.heads {
			if d.heads[i].Before(*first) {
				first = &d.heads[i]
			}
		}
		if now := time.Now(); first.Before(now) {
			*first = now
		}
		*first = first.Add(d.cost)
		if who != d.last {
			*first = first.Add(d.seek)
		}
		d.last = who
		if done.Before(*first) {
			done = *first
		}
	}
	d.mu.Unlock()
	time.Sleep(time.Until(done))
}

// newDevice returns a device that serves so many requests at the same time.
func newDevice(atATime int, cost time.Duration) *device {
	return &device{heads: make([]time.Time, atATime), cost: cost}
}

// during lets workers do their work again and again, and cancels after the time until. It returns how long they then took to end.
func during(until time.Duration, workers int, work func(ctx context.Context, id int)) (last time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for id := range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(100 * time.Microsecond) // opens
				work(ctx, id)
			}
		})
	}
	time.Sleep(until)
	cancelled := time.Now()
	cancel()
	all.Wait()
	return time.Since(cancelled)
}

// readWindows reads windows from dev with workers, as during does.
func readWindows(dev *device, workers int, until time.Duration) (d *Disk, last time.Duration) {
	d = new(Disk)
	d.Init(mostInWindow)
	last = during(until, workers, func(ctx context.Context, id int) {
		turn := d.AcquireWindow(ctx, mostInWindow)
		if turn.Requests == 0 {
			return
		}
		start := time.Now()
		dev.serve(id, turn.Requests)
		d.ReleaseWindow(turn, time.Since(start))
	})
	return d, last
}

// makeCalls makes calls of two requests each, as during does.
func makeCalls(dev *device, workers int, until time.Duration) (d *Disk, last time.Duration) {
	d = new(Disk)
	d.Init(mostInWindow)
	last = during(until, workers, func(ctx context.Context, id int) {
		turn := d.AcquireCall(ctx)
		if turn.Requests == 0 {
			return
		}
		start := time.Now()
		dev.serve(id, 2)
		d.ReleaseCall(turn, time.Since(start))
	})
	return d, last
}

// TestInvariant8CancelOnADiskWithOneHead: what is asked of a disk that serves one request after the other, 4 ms each, is
// done within 100 ms, however many workers there are, and the disk is never idle for long.
func TestInvariant8CancelOnADiskWithOneHead(t *testing.T) {
	const cost = 4 * time.Millisecond
	for _, workers := range []int{1, 2, 8, 64} {
		for seed := range uint64(100) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 8))
				until := time.Duration(r.IntN(3000)) * time.Millisecond
				dev := newDevice(1, cost)
				d, last := readWindows(dev, workers, until)
				require.LessOrEqual(t, last, 100*time.Millisecond)
				require.GreaterOrEqual(t, time.Duration(dev.served)*cost, (until+last)*95/100-time.Millisecond, "what the disk did")
				require.LessOrEqual(t, d.windows.pace.most, 2*leastPending)
			})
		}
	}
}

// A disk that serves many requests at the same time is soon kept busy, by however many workers, and none waits for long after a cancel.
// So is a store far away, which serves any number at the same time. One of which each request takes longer than a window may is
// asked for the least.
func TestPaceOfDevices(t *testing.T) {
	for _, c := range []struct {
		name        string
		atATime     int
		cost        time.Duration
		least, most int           // of the pace after some time
		busy        int           // percent of what the device can do
		last        time.Duration // after a cancel
	}{
		{"SSD", 8, 200 * time.Microsecond, mostPending, mostPending, 90, 30 * time.Millisecond},
		{"slow SSD", 4, time.Millisecond, 128, 256, 95, 100 * time.Millisecond},
		{"far away", 0, 20 * time.Millisecond, mostPending, mostPending, 0, 20 * time.Millisecond},
		{"very far away", 0, 50 * time.Millisecond, leastPending, leastPending, 0, 50 * time.Millisecond},
	} {
		for _, workers := range []int{4, 16} {
			synctest.Test(t, func(t *testing.T) {
				const until = 2 * time.Second
				dev := newDevice(c.atATime, c.cost)
				d, last := readWindows(dev, workers, until)
				require.LessOrEqual(t, last, c.last, c.name)
				require.GreaterOrEqual(t, d.windows.pace.most, c.least, "%s, %d workers", c.name, workers)
				require.LessOrEqual(t, d.windows.pace.most, c.most, "%s, %d workers", c.name, workers)
				require.GreaterOrEqual(t, time.Duration(dev.served)*c.cost*100, until*time.Duration(c.atATime*c.busy), "%s, %d workers", c.name, workers)
			})
		}
	}
}

// Of a disk whose head moves from one caller's place to another's, one call at a time is asked for, and then one window at a time. If it
// does not have to move, more calls are made.
func TestCallsOfDevices(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	for _, workers := range []int{2, 8} {
		synctest.Test(t, func(t *testing.T) {
			dev := newDevice(1, 50*time.Microsecond)
			dev.seek = 8 * time.Millisecond
			d, last := makeCalls(dev, workers, time.Second)
			require.Equal(t, 1, d.Calls())
			require.Equal(t, firstPending, d.windows.pace.window(), "all that may be pending")
			require.LessOrEqual(t, last, 100*time.Millisecond)
		})
		synctest.Test(t, func(t *testing.T) {
			d, _ := makeCalls(newDevice(64, time.Millisecond), workers, time.Second)
			require.GreaterOrEqual(t, d.Calls(), min(workers, 4))
			require.False(t, d.windows.pace.alone)
		})
	}
}

// What has blocks of the page cache alone says nothing about the disk, and what is quick once may be slow next time.
func TestPaceOfCalls(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	d := new(Disk)
	d.Init(mostInWindow)
	call := func(took time.Duration) int {
		var other Turn
		if d.calls.pace.most > perCall {
			other = d.AcquireCall(t.Context())
		}
		d.ReleaseCall(d.AcquireCall(t.Context()), took)
		d.calls.pending -= other.Requests
		require.Equal(t, d.calls.pace.most/perCall, d.Calls())
		return d.calls.pace.most
	}
	for range 100 {
		require.Equal(t, leastPending, call(50*time.Microsecond), "from the page cache")
	}
	for range slowInARow - 1 {
		require.Equal(t, leastPending, call(slowCall+1))
	}
	require.Equal(t, firstPending/2, d.windows.pace.window())
	require.Equal(t, perCall, call(slowCall+1), "one at a time")
	require.Equal(t, firstPending, d.windows.pace.window(), "so is a window")
	for range quickInARow - 1 {
		require.Equal(t, perCall, call(slowCall))
	}
	require.Equal(t, 2*perCall, call(slowCall))
	for range quickInARow - 1 {
		require.Equal(t, 2*perCall, call(slowCall/2))
	}
	require.Equal(t, 4*perCall, call(slowCall/2))
	require.Equal(t, 4*perCall, call(slowCall+1))
	require.Equal(t, perCall, call(slowCall+1), "it has been slow before")
	require.True(t, d.IsIdle())
}

// Calls that do not reach the disk are not counted, until one does.
func TestCallsAreCached(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	d := new(Disk)
	d.Init(mostInWindow)
	d.CallsAreCached()
	d.ReleaseCall(d.AcquireCall(t.Context()), knobs.SlowCall)
	require.Equal(t, mostPending/perCall, d.Calls())
	d.ReleaseCall(d.AcquireCall(t.Context()), knobs.SlowCall+1)
	require.Equal(t, leastPending/perCall, d.Calls())
}

// A disk that serves all at the same time gets much after a few windows, also where a window in a hundred is delayed.
func TestPaceOfAFastDisk(t *testing.T) {
	d := new(Disk)
	d.Init(mostInWindow)
	for k := range 1000 {
		turn := d.AcquireWindow(t.Context(), mostInWindow)
		require.Equal(t, d.Window(), turn.Requests)
		took := 3 * time.Millisecond
		if k%100 == 99 {
			took = 10 * slowWindow
		}
		d.ReleaseWindow(turn, took)
		require.Equal(t, d.windows.pace.window(), d.Window())
		if k == 10 {
			require.Equal(t, mostPending, d.windows.pace.most)
		}
		require.GreaterOrEqual(t, d.windows.pace.most, firstPending)
	}
	require.GreaterOrEqual(t, d.windows.pace.most, mostPending/2)
}

// Goroutines get their turns in the order in which they come, which is that of the disk, and no more requests than the pace allows.
func TestTurnsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(pace{most: leastPending}, pace{})
		var order []int
		var all sync.WaitGroup
		for k := range 20 {
			all.Go(func() {
				turn := d.AcquireWindow(t.Context(), 5+k%3)
				order = append(order, k) // the pace allows one at a time
				require.Equal(t, 5+k%3, turn.Requests)
				require.LessOrEqual(t, turn.pending, turn.paced)
				time.Sleep(time.Second)
				d.ReleaseWindow(turn, 0)
			})
			synctest.Wait()
		}
		all.Wait()
		for k, got := range order {
			require.Equal(t, k, got)
		}
		require.True(t, d.IsIdle())
	})
}

// Who wants less than another that waits does not come first. What is more than the pace is asked for alone, not never.
func TestTurnsOvertakeNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(pace{}, pace{most: 16})
		d.calls.size = 100
		got := map[int]Turn{}
		acquire := func(k, wanted int) {
			go func() { got[k] = d.acquire(t.Context(), &d.calls, wanted) }()
			synctest.Wait()
		}
		release := func(k int) {
			d.ReleaseCall(got[k], 0)
			synctest.Wait()
		}
		acquire(0, 100)
		require.Equal(t, 100, got[0].Requests)
		acquire(1, 8)
		require.Len(t, got, 1)
		require.False(t, d.IsIdle())
		release(0)
		require.Equal(t, 8, got[1].Requests)
		acquire(2, 16)
		acquire(3, 4)
		require.Len(t, got, 2, "although there is room for the last")
		release(1)
		require.Len(t, got, 3)
		require.Equal(t, 16, got[2].Requests)
		release(2)
		require.Equal(t, 4, got[3].Requests)
		require.False(t, d.IsIdle())
		release(3)
		require.True(t, d.IsIdle())
	})
}

// Slow windows that began at the same time, before the pace changed, make it slower once.
func TestOneSlowMomentCountsOnce(t *testing.T) {
	d := newDisk(pace{most: mostPending}, pace{})
	var turns []Turn
	for range 4 {
		turns = append(turns, d.AcquireWindow(t.Context(), mostInWindow))
	}
	for _, turn := range turns {
		d.ReleaseWindow(turn, time.Second)
	}
	require.Equal(t, mostPending/2, d.windows.pace.most)
	require.True(t, d.IsIdle())
}

// A limit holds at once, whatever the pace is, and for those who wait already. Windows that have ended do not come back with the end
// of one that was being read.
func TestLimitOfWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(pace{most: 64}, pace{})
		require.Equal(t, 32, d.Window())
		d.LimitWindows(5)
		require.Equal(t, 5, d.Window())
		require.Equal(t, 5, d.AcquireWindow(t.Context(), 9).Requests)
		d.LimitWindows(100)
		require.Equal(t, 32, d.Window())
		held := d.AcquireWindow(t.Context(), 50)
		require.Equal(t, 32, held.Requests)
		require.False(t, d.IsIdle())
		waits := make(chan Turn, 1)
		go func() { waits <- d.AcquireWindow(t.Context(), 32) }()
		synctest.Wait()
		d.LimitWindows(0)
		d.ReleaseWindow(held, 0)
		require.Zero(t, (<-waits).Requests)
		require.Zero(t, d.AcquireWindow(t.Context(), 9).Requests)
		require.Zero(t, d.Window())
	})
}

// Up to a few requests, a window that takes long by itself is a reason not to ask for more; above, what was pending in all counts.
func TestPaceOfFewRequests(t *testing.T) {
	for most, want := range map[int]int{fewPending: fewPending, 2 * fewPending: 4 * fewPending} {
		d := newDisk(pace{most: most}, pace{})
		d.AcquireWindow(t.Context(), most/2)
		d.ReleaseWindow(d.AcquireWindow(t.Context(), most/2), slowWindow*3/4)
		require.Equal(t, want, d.windows.pace.most)
	}
}

// A call that began before the pace changed says nothing of the new one. One window at a time is read as long as calls are made one
// by one, or were just before.
func TestPaceOfOneHead(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	d := new(Disk)
	d.Init(mostInWindow)
	d.ReleaseCall(d.AcquireCall(t.Context()), time.Millisecond)
	require.False(t, d.windows.pace.alone)
	for most, alone := range map[int]bool{perCall: true, 2 * perCall: false, 4 * perCall: false} {
		for _, was := range []bool{false, true} {
			d := newDisk(pace{most: 16, alone: was}, pace{most: most})
			d.ReleaseCall(d.AcquireCall(t.Context()), slowCall)
			require.Equal(t, alone || was && most == 2*perCall, d.windows.pace.alone, most)
		}
	}
	d = newDisk(pace{}, pace{most: 2 * perCall})
	before := d.AcquireCall(t.Context())
	d.calls.pace = pace{most: 4 * perCall}
	d.ReleaseCall(before, time.Hour)
	require.Equal(t, pace{most: 4 * perCall}, d.calls.pace)
	require.True(t, d.IsIdle())
}

// A goroutine that waits for a turn does not wait any more once its context is cancelled.
func TestCancelEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(Disk)
		d.Init(mostInWindow)
		ctx, cancel := context.WithCancel(t.Context())
		for range d.Calls() {
			require.Equal(t, perCall, d.AcquireCall(ctx).Requests)
		}
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		require.Zero(t, d.AcquireCall(ctx))
	})
}
