package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/watch/internal/events"
	"github.com/stretchr/testify/require"
)

// TestModelBeginning: the first burst yields all results, and ends with Settled even if there is no result.
func TestModelBeginning(t *testing.T) {
	inModel(t, func(m *model) {
		m.old("a=1", "d/b=2", "d/x=!", "d/s=?")
		m.start()
		m.want("a=1 new, d/b=2 new, d/x fails, settled")
		m.after(time.Hour)
		m.stop()
		m.want(errTestEnds.Error())

		m.start()
		m.want("a=1 unchanged, d/b=2 unchanged, d/x fails, settled")
		m.sync()
	})
	inModel(t, func(m *model) {
		m.start()
		m.want("settled")
	})
}

// TestModelQuiet: the loop looks at a change when nothing has changed for the quiet time, which is 50 ms by default.
func TestModelQuiet(t *testing.T) {
	for _, tc := range []struct{ set, is time.Duration }{{0, 50 * time.Millisecond}, {300 * time.Millisecond, 300 * time.Millisecond}} {
		inModel(t, func(m *model) {
			m.w.Quiet = tc.set
			m.start()
			m.take()
			for range 2 {
				m.write("a", "half")
				m.after(tc.is - 1)
			}
			m.write("a", "whole")
			m.after(tc.is, "a=whole new, settled")
			m.write("a", "again")
			m.after(tc.is, "a=again changed, settled")
		})
	}
	inModel(t, func(m *model) {
		m.w.Quiet = -1
		m.start()
		m.take()
		m.write("a", "1")
		m.want("a=1 new, settled")
	})
}

// TestModelMaxWait: the loop looks at a file that is written all the time after each MaxWait, which is one second by default.
func TestModelMaxWait(t *testing.T) {
	for _, tc := range []struct{ set, is time.Duration }{{0, time.Second}, {200 * time.Millisecond, 200 * time.Millisecond}} {
		inModel(t, func(m *model) {
			m.w.MaxWait = tc.set
			m.start()
			m.take()
			for burst := range 3 {
				m.write("a", "new")
				for range int(tc.is/(20*time.Millisecond)) - 1 {
					m.after(20 * time.Millisecond)
					m.write("a", fmt.Sprint(burst))
				}
				m.after(20*time.Millisecond, fmt.Sprintf("a=%d %v, settled", burst, []incremental.Kind{incremental.New, incremental.Changed}[min(burst, 1)]))
			}
		})
	}
}

// TestModelOneBurst: all changes within the quiet time come in one burst, which has each file once, however many events tell of it.
func TestModelOneBurst(t *testing.T) {
	inModel(t, func(m *model) {
		m.tell = func(hints []events.Hint) []events.Hint { return slices.Repeat(hints, 3) }
		m.old("a=1", "b=2", "d/c=3")
		m.start()
		m.take()
		m.calls, m.bursts = 0, 0
		m.rename("a", "a~") // an editor's save
		m.write("a", "one")
		m.remove("a~")
		m.write(".b.tmp", "two") // and another's
		m.rename(".b.tmp", "b")
		m.rename("d", "e")
		m.after(50*time.Millisecond, "a=one changed, b=two changed, d/c deleted, e/c=3 new, settled")
		require.Equal(m, 3, m.calls)
		require.Equal(m, 2, m.bursts, "looks at the processor time, each of which is a system call: none for each result")
	})
}

// TestModelNothingNew: a burst in which no result has changed yields nothing and does not call fn.
func TestModelNothingNew(t *testing.T) {
	inModel(t, func(m *model) {
		m.write("a", "1")
		m.start()
		m.take()
		m.takeLooks()
		time.Sleep(time.Second) // it has not settled
		m.write("a", "1")
		m.write("d/e/", "")
		m.after(50 * time.Millisecond)
		require.Equal(m, 1, m.takeLooks())
		m.rest()
		require.Equal(m, 1, m.calls)
	})
}

// TestModelStillDay: while nothing happens and events cover the tree, a loop looks at no file. After a write it looks at the file once
// more, when the file has settled.
func TestModelStillDay(t *testing.T) {
	inModel(t, func(m *model) {
		m.old("a=1", "d/b=2")
		m.start()
		m.want("a=1 new, d/b=2 new, settled")
		m.takeLooks()
		m.after(24 * time.Hour)
		require.Zero(m, m.takeLooks())
		m.write("a", "one")
		m.after(50*time.Millisecond, "a=one changed, settled")
		require.Equal(m, 1, m.takeLooks())
		m.after(settles - 50*time.Millisecond - 1)
		require.Zero(m, m.takeLooks())
		m.after(1)
		require.Equal(m, 1, m.takeLooks())
		m.after(24 * time.Hour)
		require.Zero(m, m.takeLooks())
		require.Equal(m, 3, m.calls)
	})
}

// TestModelSettling: if several files settle soon after each other, one burst looks at all. No burst is for a file whose time is far in
// the future. When a file has settled, the loop finds a write that neither its time nor an event has shown.
func TestModelSettling(t *testing.T) {
	inModel(t, func(m *model) {
		m.old("a=1", "b=2", "far=3")
		m.start()
		m.take()
		m.takeLooks()
		m.world.putAt(modelRoot+"/far", "three", time.Now().Add(time.Hour))
		m.hint(events.Hint{Rel: "far"})
		m.write("a", "one")
		m.after(50*time.Millisecond, "a=one changed, far=three changed, settled")
		m.write("b", "two")
		m.after(50*time.Millisecond, "b=two changed, settled")
		require.Equal(m, 3, m.takeLooks())
		m.world.putAt(modelRoot+"/a", "ONE", time.Now().Add(-100*time.Millisecond)) // with the same time, and no event
		m.after(settles-50*time.Millisecond, "a=ONE changed, settled")
		require.Equal(m, 2, m.takeLooks())
		m.rest()
		m.takeLooks()
		m.after(30 * time.Minute)
		require.Zero(m, m.takeLooks())
	})
}

// TestModelUnsettledForEver: the metadata of a file differs at each look, although its times are old. It does not keep the loop busy.
func TestModelUnsettledForEver(t *testing.T) {
	inModel(t, func(m *model) {
		m.old("a=1")
		old := time.Now().Add(-time.Hour)
		n := 0
		m.world.onStat = func(name string) {
			if name == modelRoot+"/a" {
				n++
				m.world.putAt(name, strings.Repeat("x", n), old)
			}
		}
		m.start()
		m.take()
		m.takeLooks()
		time.Sleep(10 * time.Second)
		looks := m.takeLooks()
		require.Positive(m, looks)
		require.LessOrEqual(m, looks, 200, "each 50 ms")
	})
}

// TestModelSync: Sync does not wait for the quiet time, delivers also changes whose events are late, and none if nothing has changed.
func TestModelSync(t *testing.T) {
	inModel(t, func(m *model) {
		m.w.Quiet, m.w.MaxWait = time.Hour, time.Hour
		m.late = func(events.Hint) time.Duration { return time.Minute }
		m.old("a=1")
		m.start()
		m.take()
		m.write("a", "one")
		m.write("b", "2")
		m.sync("a=one changed, b=2 new, settled")
		m.sync()
		m.rest()
		m.takeLooks()
		m.sync()
		require.Zero(m, m.takeLooks(), "nothing is looked at")
		m.source.ready <- struct{}{} // as after a Sync that has taken all
		m.isIdle(time.Hour)
		m.syncing = func() error { return errors.New("nobody knows") }
		m.world.put(modelRoot+"/a", "unnoticed")
		m.sync("a=unnoticed changed, settled")
	})
}

// TestModelSyncs: calls of Sync during a burst all return after it. A call that its context ends does not block the others.
func TestModelSyncs(t *testing.T) {
	inModel(t, func(m *model) {
		m.w.Quiet = -1
		block, blocked := make(chan struct{}), false
		m.onYield = func(c Change[string], err error) bool {
			if blocked && c.Settled {
				<-block
			}
			return true
		}
		m.start()
		m.take()
		blocked = true
		m.write("a", "1")
		synctest.Wait()
		var done atomic.Int32
		for range 5 {
			go func() {
				if m.w.Sync(context.Background()) == nil {
					done.Add(1)
				}
			}()
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		gone := make(chan error, 1)
		go func() { gone <- m.w.Sync(ctx) }()
		synctest.Wait()
		require.Zero(m, done.Load())
		cancel(errTestEnds)
		require.ErrorIs(m, <-gone, errTestEnds)
		blocked = false
		close(block)
		synctest.Wait()
		require.EqualValues(m, 5, done.Load())
		m.want("a=1 new, settled")
	})
}

// TestModelSyncEnds: when the loop ends, for whatever reason, a Sync that it has taken fails, and so does a later call.
func TestModelSyncEnds(t *testing.T) {
	breaks := func(m *model) { m.onYield = func(Change[string], error) bool { return false } }
	for name, set := range map[string]func(m *model){
		"break": func(m *model) {
			breaks(m)
			m.world.put(modelRoot+"/a", "one")
		},
		"break at a failure of root": func(m *model) {
			breaks(m)
			m.world.fails(".", fs.ErrPermission)
		},
		"break at the limit": func(m *model) {
			breaks(m)
			m.add = func(string) error { return events.ErrLimit }
		},
		"cancel": func(m *model) { m.end(errTestEnds) },
	} {
		t.Run(name, func(t *testing.T) {
			inModel(t, func(m *model) {
				m.old("a=1")
				if name == "break at a failure of root" { // which has not been listed
					m.world.fails(".", fs.ErrInvalid)
				}
				m.start()
				m.take()
				m.syncing = func() error {
					set(m)
					return errTestEnds // all is looked at
				}
				require.ErrorIs(m, m.w.Sync(context.Background()), errEnded)
				<-m.ended
				require.ErrorIs(m, m.w.Sync(context.Background()), errEnded)
			})
		})
	}
}

// TestModelSyncBeforeTheLoop: Sync waits for the first loop of a Watcher. After a loop has ended, Sync fails until the next one has begun.
func TestModelSyncBeforeTheLoop(t *testing.T) {
	inModel(t, func(m *model) {
		m.old("a=1")
		for range 2 {
			done := make(chan error, 1)
			if m.end == nil {
				go func() { done <- m.w.Sync(context.Background()) }()
				time.Sleep(time.Hour)
				require.Empty(m, done)
			} else {
				m.stop()
				require.ErrorIs(m, m.w.Sync(context.Background()), errEnded)
			}
			m.take()
			m.start()
			if len(m.take()) != 1 {
				t.Error("one burst")
			}
			if m.opened == 1 {
				require.NoError(m, <-done)
			}
			for range 30 { // a call that takes the loop for ended may still find it ready
				m.sync()
			}
		}
	})
}

// TestModelOverflow: a hint about root covers all that is below root.
func TestModelOverflow(t *testing.T) {
	inModel(t, func(m *model) {
		m.tell = func([]events.Hint) []events.Hint { return []events.Hint{{Rel: ".", Tree: true}} }
		m.old("a=1", "d/b=2", "d/c=3")
		m.start()
		m.take()
		m.write("d/b", "two")
		m.world.put(modelRoot+"/e/f/g", "4")
		m.world.move(modelRoot+"/a", "")
		m.after(50*time.Millisecond, "a deleted, d/b=two changed, e/f/g=4 new, settled")
		require.Equal(m, 1, m.opened)
	})
}

// TestModelNewDirectories: a new directory, and each one below it, gets its watch before it is listed, so that the loop misses no file in it.
func TestModelNewDirectories(t *testing.T) {
	inModel(t, func(m *model) {
		m.w.Quiet = -1
		m.add = func(rel string) error {
			if strings.HasPrefix(rel, "d") { // as soon as a directory is watched, something comes there
				m.world.put(modelRoot+"/"+rel+"/early", "1")
			}
			return nil
		}
		m.start()
		m.take()
		m.takeWatched()
		m.write("d/e/f/", "")
		m.want("d/e/early=1 new, d/e/f/early=1 new, d/early=1 new, settled")
		require.Equal(m, []string{"d", "d/e", "d/e/f"}, m.takeWatched())
		m.add = nil
		m.write("d/e/f/g", "2")
		m.want("d/e/f/g=2 new, settled")
		m.remove("d")
		m.want("d/e/early deleted, d/e/f/early deleted, d/e/f/g deleted, d/early deleted, settled")
	})
}

// TestModelFilters: directories that the options leave out get no watch. After an edit of an ignore file, deletions and new files come, and
// directories that are no longer left out get a watch.
func TestModelFilters(t *testing.T) {
	inModel(t, func(m *model) {
		m.w.opts.IgnoreFiles, m.w.opts.SkipHidden, m.w.opts.Exclude, m.w.opts.MaxDepth = []string{".ignore"}, true, []string{"out"}, 2
		m.old(".ignore=node_modules\n", "src/a=1", "node_modules/x/y/z=2", ".git/objects/00/x=3", "out/b=4", "deep/er/c=5")
		m.start()
		m.want("src/a=1 new, settled")
		require.Equal(m, []string{".", "deep", "src"}, m.takeWatched())
		m.write(".ignore", "src\n")
		m.write("node_modules/n", "6")
		m.after(50*time.Millisecond, "node_modules/n=6 new, src/a deleted, settled")
		require.Equal(m, []string{".", "deep", "node_modules"}, m.takeWatched())
	})
}

// TestModelFailuresPass: a file that cannot be read yields one failure. The loop tries again after pauses that grow from Poll to a minute. A
// new failure makes the next pause short.
func TestModelFailuresPass(t *testing.T) {
	for name, onError := range map[string]func(error) error{"yielded": nil, "OnError": func(error) error { return nil }} {
		t.Run(name, func(t *testing.T) {
			inModel(t, func(m *model) {
				m.w.opts.OnError = onError
				fails := func(rel string) []string {
					if onError != nil {
						return nil
					}
					return []string{rel + " fails, settled"}
				}
				m.old("a=1", "b=2", "d/c=3")
				m.start()
				m.take()
				m.world.fails("d/c", fs.ErrPermission)
				m.write("d/c", "three")
				m.after(50*time.Millisecond, fails("d/c")...)
				m.takeLooks()
				for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
					m.after(pause*time.Second - 1)
					require.Zero(m, m.takeLooks(), "%d", pause)
					m.after(1)
					require.Equal(m, 1, m.takeLooks(), "%d", pause)
				}
				m.world.fails("b", fs.ErrPermission)
				m.write("b", "two")
				m.after(50*time.Millisecond, fails("b")...)
				m.takeLooks()
				m.after(time.Second - 1)
				require.Zero(m, m.takeLooks())
				m.after(1)
				require.Equal(m, 2, m.takeLooks(), "both")
				m.world.fails("d/c", nil)
				m.after(2*time.Second, "d/c=three changed, settled")
				m.world.fails("b", nil)
				m.sync("b=two changed, settled")
				m.rest()
				m.isIdle(time.Hour)
				m.world.fails("a", fs.ErrPermission)
				m.write("a", "one")
				m.after(50*time.Millisecond, fails("a")...)
				m.world.fails("a", nil)
				m.write("a", "ONE")
				m.after(50*time.Millisecond, "a=ONE changed, settled")
				m.rest()
				m.isIdle(time.Hour)
			})
		})
	}
}

// TestModelRetriesAreKept: neither other bursts nor failures of fn change the time at which the loop tries again to read a file.
func TestModelRetriesAreKept(t *testing.T) {
	inModel(t, func(m *model) {
		m.w.Poll = 10 * time.Second
		m.old("a=1", "b=2")
		m.world.fails("a", fs.ErrPermission)
		m.start()
		m.want("a fails, b=2 new, settled")
		time.Sleep(5 * time.Second)
		m.write("b", "!")
		m.after(50*time.Millisecond, "b fails, settled")
		m.rest()
		m.takeLooks()
		m.after(m.w.Poll - 5*time.Second - 50*time.Millisecond - 2*settles - 1)
		require.Zero(m, m.takeLooks())
		m.after(1)
		require.Equal(m, 1, m.takeLooks())
	})
}

// TestModelLimit: the loop polls the topmost directories without a watch, with all that is below, and nothing else. It says once that the
// limit is reached; it does not say other reasons.
func TestModelLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		first string
	}{
		"limit":       {events.ErrLimit, "a/x=1 new, b/c/x=3 new, b/x=2 new, limit, settled"},
		"unsupported": {events.ErrUnsupported, "a/x=1 new, b/c/x=3 new, b/x=2 new, settled"},
		"other":       {fs.ErrPermission, "a/x=1 new, b/c/x=3 new, b/x=2 new, settled"},
	} {
		t.Run(name, func(t *testing.T) {
			inModel(t, func(m *model) {
				m.w.Poll = 7 * time.Second
				m.add = func(rel string) error {
					if strings.HasPrefix(rel, "b") {
						return fmt.Errorf("%s: %w", rel, tc.err)
					}
					return nil
				}
				m.old("a/x=1", "b/x=2", "b/c/x=3")
				m.start()
				m.want(tc.first)
				m.takeLooks()
				for range 3 {
					m.after(7*time.Second - 1)
					require.Zero(m, m.takeLooks())
					m.after(1)
					require.Equal(m, 2, m.takeLooks(), "two files below b")
				}
				m.write("b/c/x", "three")
				m.write("b/d/e/x", "4")
				m.after(7*time.Second, "b/c/x=three changed, b/d/e/x=4 new, settled")
				m.write("a/x", "one")
				m.after(50*time.Millisecond, "a/x=one changed, settled")
				m.write("b/x", "two")
				m.sync("b/x=two changed, settled")
				m.remove("b")
				m.after(50*time.Millisecond, "b/c/x deleted, b/d/e/x deleted, b/x deleted, settled")
				m.rest()
				m.isIdle(time.Hour)
			})
		})
	}
}

// TestModelLimitEnds: a directory is no longer polled once it has got its watch in a run over all of it. A directory that is gone before it
// gets its watch is no reason to poll.
func TestModelLimitEnds(t *testing.T) {
	inModel(t, func(m *model) {
		refuses := true
		m.add = func(rel string) error {
			switch {
			case rel == "b" && refuses:
				return events.ErrLimit
			case rel == "a":
				return fs.ErrNotExist
			}
			return nil
		}
		m.old("a/x=1", "b/x=2", "b/c/x=3")
		m.start()
		m.want("a/x=1 new, b/c/x=3 new, b/x=2 new, limit, settled")
		m.after(time.Second)
		refuses = false
		m.takeLooks()
		m.after(time.Second)
		require.Equal(m, 2, m.takeLooks())
		m.isIdle(time.Hour)
		refuses = true
		m.write("b/y/", "")
		m.write("b/y/x", "5")
		m.after(50*time.Millisecond, "b/y/x=5 new, settled")
		m.hint(events.Hint{Rel: "b", Tree: true})
		m.after(50 * time.Millisecond)
		m.takeLooks()
		m.after(settles)
		require.Positive(m, m.takeLooks(), "it is polled again, and that is not said again")
	})
}

// TestModelWatchTooLate: if a polled directory gets its watch in a run over a part of it, the loop still looks at the rest.
func TestModelWatchTooLate(t *testing.T) {
	inModel(t, func(m *model) {
		m.w.opts.MaxDepth = 3 // d is listed, and so watched, for the sake of d/e/x
		refuses := true
		m.add = func(rel string) error {
			if rel == "d" && refuses {
				return events.ErrLimit
			}
			return nil
		}
		m.old("d/x=1", "d/e/x=2")
		m.start()
		m.want("d/e/x=2 new, d/x=1 new, limit, settled")
		m.write("d/x", "one")
		refuses = false
		m.write("d/e/x", "two")
		m.after(50*time.Millisecond, "d/e/x=two changed, settled")
		m.after(950*time.Millisecond, "d/x=one changed, settled")
		m.rest()
		m.write("d/x", "ONE")
		m.after(50*time.Millisecond, "d/x=ONE changed, settled")
	})
}

// TestModelInstances: if no source can be opened for lack of watches, the loop says so, and polls all until it can open one.
func TestModelInstances(t *testing.T) {
	inModel(t, func(m *model) {
		m.opening = func() error { return fmt.Errorf("%w: inotify_add_watch", events.ErrLimit) }
		m.old("a=1")
		m.start()
		m.want("a=1 new, limit, settled")
		m.write("a", "one")
		m.after(time.Second, "a=one changed, settled")
		m.tax = 50 * time.Millisecond
		m.after(time.Minute)
		m.sync()
		m.write("a", "ONE")
		m.after(5*time.Second, "a=ONE changed, settled") // a hundred times what the look took
		m.tax, m.opening = 0, nil
		m.after(time.Minute)
		require.Equal(m, 1, m.opened)
		m.rest()
		m.takeLooks()
		m.after(time.Hour)
		require.Zero(m, m.takeLooks())
	})
}

// polls is an opening that fails, as where there are no events.
func polls() error { return events.ErrUnsupported }

// TestModelPolling: without events the loop looks at all files each second, or at the interval Poll, and also when Sync asks for it.
func TestModelPolling(t *testing.T) {
	for _, tc := range []struct{ set, is time.Duration }{
		{0, time.Second}, {time.Minute, time.Minute}, {time.Millisecond, time.Millisecond}, {1, time.Millisecond}, {-time.Hour, time.Millisecond},
	} {
		inModel(t, func(m *model) {
			m.opening = polls
			m.w.Poll = tc.set
			m.old("a=1", "b=2")
			m.start()
			m.take()
			m.takeLooks()
			for range 3 {
				m.after(tc.is - 1)
				require.Zero(m, m.takeLooks())
				m.after(1)
				require.Equal(m, 2, m.takeLooks())
			}
			m.write("d/c", "3")
			m.after(tc.is, "d/c=3 new, settled")
			m.remove("a")
			m.after(tc.is, "a deleted, settled")
			m.write("b", "two")
			m.sync("b=two changed, settled")
		})
	}
}

// TestModelPollingTakesItsShare: polls are so rare that they use a hundredth of one processor, but are at most an hour apart. The cost of the
// first burst, which reads all files, does not count, nor does the cost of the loop's body and of fn.
func TestModelPollingTakesItsShare(t *testing.T) {
	inModel(t, func(m *model) {
		m.opening = polls
		m.old("a=1")
		cost := 20 * time.Millisecond
		m.w.opts.Select = func(*fileproc.File) bool { m.use(cost); return true }
		m.start()
		m.take()
		m.takeLooks()
		for _, look := range []struct{ cost, pause time.Duration }{
			{50 * time.Millisecond, time.Second},     // after the first burst
			{time.Millisecond, 5 * time.Second},      // after one that took 50 ms
			{20 * time.Millisecond, time.Second},     // 100 ms would do
			{time.Hour, 2 * time.Second},             //
			{36*time.Second - 1, time.Hour},          // not 100 hours
			{30 * time.Millisecond, time.Hour - 100}, //
			{20 * time.Millisecond, 3 * time.Second}, //
			{20 * time.Millisecond, 2 * time.Second}, //
		} {
			cost = look.cost
			m.after(look.pause - 1)
			require.Zero(m, m.takeLooks(), "%v", look)
			m.after(1)
			require.Equal(m, 1, m.takeLooks(), "%v", look)
		}
		m.onYield = func(Change[string], error) bool { m.use(time.Minute); return true }
		m.write("a", "one")
		m.after(2*time.Second, "a=one changed, settled")
		m.after(2 * time.Second)
		m.rest()
		takes := time.Minute
		m.w.fn = func(f *fileproc.File) (string, error) {
			m.use(takes)
			time.Sleep(takes)
			return content(f)
		}
		m.write("a", "two")
		m.sync("a=two changed, settled")
		m.after(2*time.Second - 1)
		m.takeLooks()
		m.after(1)
		require.Equal(m, 1, m.takeLooks())
		takes, cost = time.Millisecond, time.Second // what was certainly not in fn, however many processors there are
		m.write("a", "three")
		m.sync("a=three changed, settled")
		m.after(settles)
		m.takeLooks()
		m.after(100*(time.Second-takes*time.Duration(runtime.GOMAXPROCS(0)-1)) - settles - 1)
		require.Zero(m, m.takeLooks())
		m.after(1)
		require.Equal(m, 1, m.takeLooks())
	})
}

// TestModelWaitingIsNoWork: if a poll waits, as for another program or a disk, the next one is not later for it.
func TestModelWaitingIsNoWork(t *testing.T) {
	inModel(t, func(m *model) {
		m.opening = polls
		m.old("a=1")
		m.w.opts.Select = func(*fileproc.File) bool { time.Sleep(300 * time.Millisecond); return true }
		m.start()
		time.Sleep(300 * time.Millisecond)
		m.take()
		for range 3 {
			m.takeLooks()
			m.after(time.Second)
			require.Equal(m, 1, m.takeLooks())
			m.after(300 * time.Millisecond)
		}
	})
}

// TestModelLooksCoincide: if settling, polling and a retry are due at the same time, one burst does all.
func TestModelLooksCoincide(t *testing.T) {
	inModel(t, func(m *model) {
		m.opening = polls
		m.w.Poll = settles
		m.old("a=1", "b=2", "c=3")
		m.start()
		m.take()
		m.write("a", "one")
		m.write("b", "two")
		m.world.fails("b", fs.ErrPermission)
		m.sync("a=one changed, b fails, settled")
		m.takeLooks()
		m.write("c", "three")
		m.world.fails("b", nil)
		m.after(settles, "b=two changed, c=three changed, settled")
	})
}

// TestModelRootIsAway: while root is away, its results remain, and the loop polls each second, however much a poll costs. When root is back,
// the loop opens a new source and yields what has changed.
func TestModelRootIsAway(t *testing.T) {
	inModel(t, func(m *model) {
		m.tax = time.Minute
		m.old("a=1", "d/b=2")
		m.start()
		m.take()
		for range 2 {
			m.moveRoot(modelRoot, "aside")
			m.after(50*time.Millisecond, ". fails, settled")
			require.Equal(m, map[string]string{"a": "1", "d/b": "2"}, without(m.results, "."))
			require.Zero(m, m.sources)
			m.after(time.Minute)
			m.world.put("aside/a", "one")
			m.moveRoot("aside", modelRoot)
			m.after(time.Second, "a=one changed, settled")
			require.Equal(m, 1, m.sources)
			m.write("a", "1")
			m.after(50*time.Millisecond, "a=1 changed, settled")
		}
		require.Equal(m, 3, m.opened)
		m.moveRoot(modelRoot, "aside")
		m.moveRoot("other", modelRoot)
		m.write("d/c", "3")
		m.sync("a deleted, d/b deleted, d/c=3 new, settled")
		require.Equal(m, 1, m.sources)
		require.Equal(m, 4, m.opened)
		m.write("d/c", "three")
		m.after(50*time.Millisecond, "d/c=three changed, settled")
		require.Equal(m, 4, m.opened)
	})
}

func without[V any](of map[string]V, name string) map[string]V {
	delete(of, name)
	return of
}

// TestModelRootComesLate: no Settled comes before root can be listed. Then all its results come, also those of the cache file.
func TestModelRootComesLate(t *testing.T) {
	inModel(t, func(m *model) {
		m.old("a=1", "b=2")
		m.start()
		m.take()
		m.stop()
		m.moveRoot(modelRoot, "aside")
		m.take()
		m.start()
		m.want(". fails")
		m.after(time.Hour)
		m.moveRoot("aside", modelRoot)
		m.after(time.Second, "a=1 unchanged, b=2 unchanged, settled")
		m.after(time.Hour)
		require.Equal(m, 2, m.opened)
	})
}

// TestModelRootGoesDuringOpen: root may go away before a source is opened, or between the opening and root's watch.
func TestModelRootGoesDuringOpen(t *testing.T) {
	inModel(t, func(m *model) { // without an event that tells of the move
		m.tax = time.Minute
		m.old("a=1")
		m.start()
		m.take()
		m.world.move(modelRoot, "aside")
		m.source.tell(events.Hint{Rel: ".", Tree: true})
		m.after(50*time.Millisecond, ". fails, settled")
		require.Zero(m, m.sources)
		m.world.move("aside", modelRoot)
		m.after(time.Second)
		require.Equal(m, 1, m.sources)
	})
	for name, set := range map[string]func(m *model, do func()){
		"before": func(m *model, do func()) { m.opening = func() error { do(); return nil } },
		"after":  func(m *model, do func()) { m.add = func(string) error { do(); return nil } },
	} {
		t.Run(name, func(t *testing.T) {
			inModel(t, func(m *model) {
				m.old("a=1")
				done := false
				set(m, func() {
					if !done {
						m.world.move(modelRoot, "aside")
					}
					done = true
				})
				m.start()
				m.want(". fails")
				require.Zero(m, m.sources)
				m.world.move("aside", modelRoot)
				m.after(time.Second, "a=1 new, settled")
				require.Equal(m, 1, m.sources)
			})
		})
	}
}

// TestModelSaves: the loop saves once, 30 seconds after a change, and not without a change.
func TestModelSaves(t *testing.T) {
	inModel(t, func(m *model) {
		file := m.w.inc.File
		written := func() time.Time {
			info, err := os.Stat(file)
			if err != nil {
				return time.Time{}
			}
			return info.ModTime()
		}
		m.old("a=1")
		m.start()
		m.take()
		m.after(30*time.Second - 1)
		require.Zero(m, written())
		m.after(1)
		require.NotZero(m, written())
		require.NoError(m, os.Remove(file))
		for _, wait := range []time.Duration{0, time.Hour} {
			time.Sleep(wait)
			m.write("a", fmt.Sprint(wait))
			m.after(50*time.Millisecond, fmt.Sprintf("a=%v changed, settled", wait))
			m.after(10 * time.Second)
			m.write("b", fmt.Sprint(wait)) // does not put it off
			require.Len(m, m.take(), 0)
			m.sync(fmt.Sprintf("b=%v %v, settled", wait, []incremental.Kind{incremental.New, incremental.Changed}[min(wait, 1)]))
			m.after(20*time.Second - 1)
			require.Zero(m, written())
			m.after(1)
			require.NotZero(m, written())
			require.NoError(m, os.Remove(file))
			m.after(time.Hour)
			require.Zero(m, written())
		}
		m.write("c", "3")
		m.after(50*time.Millisecond, "c=3 new, settled")
		m.stop()
		require.NotZero(m, written(), "at the end")
	})
}

// TestModelSaveWaitsForTheBurst: a save that is due waits for a burst that is planned, and does not keep the loop busy.
func TestModelSaveWaitsForTheBurst(t *testing.T) {
	inModel(t, func(m *model) {
		m.w.Quiet, m.w.MaxWait = time.Minute, 2*time.Minute
		m.old("a=1")
		m.start()
		m.take()
		time.Sleep(20 * time.Second)
		m.write("a", "one")
		m.after(59 * time.Second)
		require.NoFileExists(m, m.w.inc.File)
		unlock := lock(t, m.w.inc.File)
		m.after(time.Second, "a=one changed, settled")
		unlock()
		time.Sleep(saveWait)
		require.FileExists(m, m.w.inc.File)
	})
}

// TestModelLockedCache: while another process holds the cache file's lock, changes come as always. The loop tries to save every 30 seconds and
// yields the error once. At its end it waits a second.
func TestModelLockedCache(t *testing.T) {
	inModel(t, func(m *model) {
		unlock := lock(t, m.w.inc.File)
		m.start()
		m.take()
		m.write("a", "1")
		m.after(50*time.Millisecond, "a=1 new, settled")
		time.Sleep(29 * time.Second)
		m.want()
		time.Sleep(time.Second + saveWait)
		m.want("not saved")
		m.write("a", "one")
		time.Sleep(50 * time.Millisecond)
		m.want("a=one changed, settled")
		time.Sleep(time.Minute)
		require.NoFileExists(m, m.w.inc.File)
		m.want()
		unlock()
		time.Sleep(30*time.Second + saveWait)
		require.FileExists(m, m.w.inc.File)
		require.NoError(m, os.Remove(m.w.inc.File))
		m.want()

		m.write("a", "again")
		m.after(50*time.Millisecond, "a=again changed, settled")
		m.rest() // else there is nothing to save
		lock(t, m.w.inc.File)
		start := time.Now()
		m.end(errTestEnds)
		synctest.Wait()
		require.ErrorIs(m, m.w.Sync(m.Context()), errEnded, "Sync does not wait for the save")
		require.Zero(m, time.Since(start))
		m.stop()
		require.Equal(m, lastWait, time.Since(start))
		m.want("not saved, the test has ended")
		require.ErrorIs(m, m.last, incremental.ErrNotSaved)
	})
}

// TestModelErrorsOfSaving: the loop yields an error of saving unless the previous save has failed with the same error.
func TestModelErrorsOfSaving(t *testing.T) {
	inModel(t, func(m *model) {
		file := m.w.inc.File
		dir := filepath.Dir(file)
		again := func() []string {
			m.hint(events.Hint{Rel: "a"})
			m.world.put(modelRoot+"/a", time.Now().String())
			time.Sleep(31 * time.Second)
			return m.take()[1:]
		}
		noDirectory := func() {
			require.NoError(m, os.RemoveAll(dir))
		}
		isFile := func() {
			require.NoError(m, os.RemoveAll(dir))
			require.NoError(m, os.WriteFile(dir, nil, 0o600))
		}
		well := func() {
			require.NoError(m, os.RemoveAll(dir))
			require.NoError(m, os.Mkdir(dir, 0o700))
		}
		m.start()
		m.take()
		require.Empty(m, again())
		for i, step := range []struct {
			do   func()
			want []string
		}{
			{noDirectory, []string{"not saved"}}, {noDirectory, []string{}}, {isFile, []string{"not saved"}}, {isFile, []string{}},
			{noDirectory, []string{"not saved"}}, {well, []string{}}, {noDirectory, []string{"not saved"}}, {well, []string{}},
		} {
			step.do()
			require.Equal(m, step.want, again(), "%d", i)
		}
	})
}

// TestModelLeft: a caller may leave the loop at anything that it yields. The loop then ends and yields nothing more.
func TestModelLeft(t *testing.T) {
	for at, is := range map[string]func(c Change[string], err error) bool{
		"a result":            func(c Change[string], err error) bool { return err == nil && c.Rel == "b" },
		"a failure":           func(c Change[string], err error) bool { return err != nil && c.Rel == "x" },
		"a deletion":          func(c Change[string], err error) bool { return c.Kind == incremental.Deleted },
		"settled":             func(c Change[string], err error) bool { return c.Settled },
		"an error of saving":  func(c Change[string], err error) bool { return errors.Is(err, incremental.ErrNotSaved) },
		"the limit":           func(c Change[string], err error) bool { return errors.Is(err, ErrLimit) },
		"a run without begin": func(c Change[string], err error) bool { return err != nil && c.Rel == "" },
	} {
		t.Run(at, func(t *testing.T) {
			inModel(t, func(m *model) {
				m.w.opts.IgnoreFiles = []string{"conf/rules"}
				m.old("a=1", "x=2", "d/c=3")
				left := 0
				m.onYield = func(c Change[string], err error) bool {
					if left > 0 || is(c, err) {
						left++
					}
					return left == 0
				}
				m.add = func(rel string) error {
					if rel == "d" && at == "the limit" {
						return events.ErrLimit
					}
					return nil
				}
				m.start()
				alone := true // what ends the loop, without another change
				switch at {
				case "an error of saving":
					require.NoError(m, os.RemoveAll(filepath.Dir(m.w.inc.File)))
					time.Sleep(time.Minute)
				case "a run without begin":
					m.write("conf/rules/x", "")
					time.Sleep(time.Second) // no save yet
				default:
					alone = false
				}
				synctest.Wait()
				select {
				case <-m.ended:
				default:
					require.False(m, alone, "the loop goes on")
				}
				m.write("b", "1")
				m.write("x", "!")
				m.remove("a")
				time.Sleep(time.Minute)
				<-m.ended
				require.Equal(m, 1, left)
			})
		})
	}
}

// TestModelPanicInTheLoop: after a panic in the caller's loop, the source is closed, and calls of Sync return.
func TestModelPanicInTheLoop(t *testing.T) {
	inModel(t, func(m *model) {
		m.old("a=1")
		done := make(chan error)
		go func() { done <- m.w.Sync(context.Background()) }()
		synctest.Wait()
		require.PanicsWithValue(m, errTestEnds, func() {
			for range m.w.Changes(context.Background()) {
				panic(errTestEnds)
			}
		})
		require.ErrorIs(m, <-done, errEnded)
		require.Zero(m, m.sources)
	})
}

// TestModelEnds: fs.SkipAll, also wrapped, and an error of OnError end the loop, in the first burst and in a later one.
func TestModelEnds(t *testing.T) {
	errRefused := errors.New("refused")
	skipAll := func(f *fileproc.File) (string, error) {
		if text := string(f.Data()); text != "!" {
			return text, nil
		}
		return "", fmt.Errorf("enough: %w", fs.SkipAll)
	}
	for name, tc := range map[string]struct {
		onError func(error) error
		fn      func(*fileproc.File) (string, error)
		is      error
	}{
		"fs.SkipAll":                        {nil, skipAll, nil},
		"another error":                     {func(error) error { return errRefused }, content, errRefused},
		"the failure itself":                {func(err error) error { return err }, content, errFails},
		"one of the system":                 {func(error) error { return &fs.PathError{Op: "write", Path: "log", Err: errRefused} }, content, errRefused},
		"the failure itself, of the system": {func(err error) error { return fmt.Errorf("%w: %w", fs.ErrPermission, err) }, content, errFails},
	} {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " later=", later), func(t *testing.T) {
				inModel(t, func(m *model) {
					m.w.opts.OnError = tc.onError
					fn := tc.fn
					m.w.fn = func(f *fileproc.File) (string, error) { return fn(f) }
					specs := []string{"a=1"}
					if !later {
						specs = append(specs, "x=!")
					}
					m.old(specs...)
					m.start()
					if later {
						m.want("a=1 new, settled")
						m.write("x", "!")
						time.Sleep(time.Minute)
					}
					<-m.ended
					got := m.take()
					require.NotContains(m, fmt.Sprint(got), "settled")
					if tc.is == nil {
						require.NotContains(m, fmt.Sprint(got), "x")
						require.NoError(m, m.last)
					} else {
						require.ErrorIs(m, m.last, tc.is)
						require.NotContains(m, fmt.Sprint(got), errTestEnds.Error())
					}
				})
			})
		}
	}
}

// TestModelOnErrorGoesOn: if OnError returns nil, it gets each failure once, and the loop goes on, also when a run cannot begin later.
func TestModelOnErrorGoesOn(t *testing.T) {
	inModel(t, func(m *model) {
		var failed []string
		m.w.opts.OnError = func(err error) error {
			var f *fileproc.Failure
			require.ErrorAs(m, err, &f)
			failed = append(failed, f.Path)
			return nil
		}
		m.w.opts.IgnoreFiles, m.w.opts.Exclude = []string{"conf/rules"}, []string{"conf"}
		m.old("a=1", "x=!")
		m.start()
		m.want("a=1 new, settled")
		require.Equal(m, []string{"r/x"}, failed)
		m.write("a", "!")
		m.sync()
		require.Equal(m, []string{"r/x", "r/a"}, failed)
		m.write("conf/rules", "")
		m.world.fails("conf/rules", fs.ErrPermission)
		m.write("a", "2")
		require.NoError(m, m.w.Sync(m.Context()))
		require.Len(m, m.take(), 1)
		m.world.fails("conf/rules", nil)
		m.sync("a=2 changed, settled")
	})
}

// TestModelInMemory: without a cache file, the loop knows what it has yielded, and a new loop begins with all files.
func TestModelInMemory(t *testing.T) {
	inModel(t, func(m *model) {
		m.w.inc.File = ""
		m.old("a=1", "b=2")
		for range 2 {
			m.start()
			m.want("a=1 new, b=2 new, settled")
			m.write("a", "one")
			m.after(50*time.Millisecond, "a=one changed, settled")
			m.remove("b")
			m.after(50*time.Millisecond, "b deleted, settled")
			m.rest()
			m.after(time.Hour)
			m.write("a", "1")
			m.write("b", "2")
			m.after(50*time.Millisecond, "a=1 changed, b=2 new, settled")
			m.end(errTestEnds)
			<-m.ended
			m.take()
		}
	})
}

// TestModelWrong: a wrong argument ends the loop before it yields anything but the error.
func TestModelWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(w *Watcher[string])
		want string
	}{
		"options":     {func(w *Watcher[string]) { w.opts.MaxDepth = -1 }, "MaxDepth"},
		"file":        {func(w *Watcher[string]) { w.inc.File = "\x00" }, "NUL"},
		"fn":          {func(w *Watcher[string]) { w.fn = nil }, "fn is nil"},
		"names":       {func(w *Watcher[string]) { w.opts.Files = slices.Values([]string{"a"}) }, "Files"},
		"ignore file": {func(w *Watcher[string]) { w.opts.IgnoreFiles = []string{"conf/rules"} }, "conf/rules"},
	} {
		t.Run(name, func(t *testing.T) {
			inModel(t, func(m *model) {
				m.old("a=1", "conf/rules/x=")
				tc.set(m.w)
				m.start()
				<-m.ended
				require.Len(m, m.take(), 1)
				require.ErrorContains(m, m.last, tc.want)
			})
		})
	}
}

// TestModelIgnoreFileFails: while a file of Options.IgnoreFiles cannot be read, all results remain. The loop says so once, and again for another
// reason, and tries again after pauses that grow. When it can read the file, it yields what has changed.
func TestModelIgnoreFileFails(t *testing.T) {
	inModel(t, func(m *model) {
		m.w.opts.IgnoreFiles, m.w.opts.Exclude = []string{"conf/rules"}, []string{"conf"}
		m.old("a=1", "b=2")
		m.start()
		m.take()
		m.write("conf/rules", "b")
		m.world.fails("conf/rules", fs.ErrPermission)
		m.write("a", "one")
		time.Sleep(50 * time.Millisecond)
		got := m.take()
		require.Len(m, got, 1)
		require.Contains(m, got[0], "conf/rules: permission denied")
		m.rest()
		m.takeLooks()
		m.sync()
		require.Zero(m, m.takeLooks())
		require.Equal(m, map[string]string{"a": "1", "b": "2"}, without(m.results, ""))
		time.Sleep(10 * time.Minute)
		m.want()
		m.world.fails("conf/rules", fs.ErrInvalid)
		m.sync(strings.Replace(got[0], "permission denied", "invalid argument", 1))
		m.world.fails("conf/rules", nil)
		m.after(time.Second, "a=one changed, b deleted, settled")
		m.rest()
		m.isIdle(time.Hour)
		m.world.fails("conf/rules", fs.ErrInvalid)
		m.hint(events.Hint{Rel: "a"})
		m.after(50*time.Millisecond, strings.Replace(got[0], "permission denied", "invalid argument", 1))
	})
}

// TestModelOrdered: with Ordered, the results of a burst are in order, and its deletions come after them. Report is that of the last run.
func TestModelOrdered(t *testing.T) {
	inModel(t, func(m *model) {
		var report fileproc.Report
		m.w.opts.Ordered, m.w.opts.Report = true, &report
		var rels []string
		var found []int64
		m.onYield = func(c Change[string], err error) bool {
			if c.Settled {
				found = append(found, report.Found)
			} else if err == nil {
				rels = append(rels, c.Rel)
			}
			return true
		}
		m.old("a=1", "b=2", "c/d=3", "c/e=4", "f=5")
		m.start()
		m.take()
		m.write("c/d", "three")
		m.remove("a")
		m.remove("f")
		m.write("g", "6")
		m.write("b", "two")
		m.sync("a deleted, b=two changed, c/d=three changed, f deleted, g=6 new, settled")
		require.Equal(m, []string{"a", "b", "c/d", "c/e", "f", "b", "c/d", "g", "a", "f"}, rels)
		require.Equal(m, []int64{5, 3}, found)
	})
}

// TestModelOneCallForEachChange: the loop does not call fn again when it looks at a file that has settled, nor after a write of the same content
// before that. Where it does not compare content, events show that nothing has happened. Without events, no result comes twice.
func TestModelOneCallForEachChange(t *testing.T) {
	for _, size := range []int{0, 2, fileproc.NoRead} {
		for _, hasEvents := range []bool{true, false} {
			t.Run(fmt.Sprint("ReadSize=", size, " events=", hasEvents), func(t *testing.T) {
				inModel(t, func(m *model) {
					if !hasEvents {
						m.opening = polls
					}
					m.w.opts.ReadSize = size
					m.write("a", "1")
					m.write("d/b", "long")
					m.start()
					m.rest()
					for _, again := range []string{"two", "twofold"} {
						// Between two polls: of a file that is written while a run reads it, nothing is known.
						time.Sleep(defaultPoll / 4)
						m.write("a", again)
						text := map[int]string{0: again, 2: "tw"}[size]
						m.sync(fmt.Sprintf("a=%s changed, settled", text))
						if size == 0 {
							time.Sleep(defaultPoll * 3 / 2)
							m.write("a", again)
							m.sync()
						}
						time.Sleep(10 * settles)
						m.want()
					}
					if hasEvents || size == 0 {
						require.Equal(m, 4, m.calls)
					}
				})
			})
		}
	}
}

// TestModelNotStill: if a file is written again before it has settled, only an event shows that. The file is passed to fn again, also if the
// event comes just before the loop looks at the file again, or is about a directory above it.
func TestModelNotStill(t *testing.T) {
	for _, hinted := range []string{"d/e/a", "d/e", "d"} {
		inModel(t, func(m *model) {
			m.w.opts.ReadSize = 2
			m.old("d/e/a=long")
			m.start()
			m.rest()
			m.write("d/e/a", "LONG")
			m.after(50*time.Millisecond, "d/e/a=LO changed, settled")
			written := time.Now().Add(-50 * time.Millisecond)
			calls := m.calls
			time.Sleep(settles - 60*time.Millisecond)
			m.world.putAt(modelRoot+"/d/e/a", "long", written)
			m.hint(events.Hint{Rel: hinted, Tree: hinted != "d/e/a"})
			m.after(10*time.Millisecond, "d/e/a=lo changed, settled")
			require.Equal(m, calls+1, m.calls)
			m.after(time.Hour)
		})
	}
}

// TestModelLinks: with Symlinks the loop polls all, although there are events: none tells of a change behind a link.
func TestModelLinks(t *testing.T) {
	root, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.WriteFile(target, []byte("1"), 0o600))
	testtree.Symlink(t, target, filepath.Join(root, "link"))
	inModel(t, func(m *model) {
		m.w.root, m.w.opts.FS, m.w.opts.Symlinks, m.w.opts.SymlinksOutside = root, nil, fileproc.SymlinksFiles, true
		m.start()
		m.want("link=1 new, settled")
		require.Equal(m, 1, m.sources)
		require.NoError(m, os.WriteFile(target, []byte("one"), 0o600))
		m.after(time.Second, "link=one changed, settled")
	})
}

// TestModelLostHint: whichever hint of a history is lost, the results differ. So the loop finds no change that no event tells of, and the
// model notices a lost hint. A hint about root makes up for the lost one, and so does Sync if the source's Sync fails.
func TestModelLostHint(t *testing.T) {
	run := func(lost int) (hints int) {
		inModel(t, func(m *model) {
			m.old("a=1", "b=2", "c=3", "d/e=4", "d/f=5", "g/h=6")
			m.start()
			m.take()
			m.tell = func(all []events.Hint) []events.Hint {
				if hints++; hints == lost {
					return nil
				}
				return all
			}
			m.write("a", "one")
			m.write("d/e", "four")
			m.write("new", "7")
			m.write("i/j/k", "8")
			m.remove("b")
			m.remove("g")
			m.rename("c", "d/c")
			m.rename("d/f", "l")
			time.Sleep(time.Second)
			require.Equal(m, lost == 0, maps.Equal(m.full(), m.results), "%d", lost)
			m.take()
			m.sync()
			require.Equal(m, lost == 0, maps.Equal(m.full(), m.results), "%d", lost)
			if lost%2 == 0 {
				m.hint(events.Hint{Rel: ".", Tree: true})
				time.Sleep(time.Second)
			} else {
				m.syncing = func() error { return errTestEnds }
				require.NoError(m, m.w.Sync(m.Context()))
			}
			require.Equal(m, m.full(), m.results)
		})
		return hints
	}
	hints := run(0)
	require.Equal(t, 11, hints)
	for i := range hints - 1 { // the last one is that of root
		run(i + 1)
	}
}

// TestModelHistories: unless events are lost, the results at rest are those of a full run, each directory has a watch, and the loop leaves
// nothing behind at its end. Files have settled before they change, so the loop has no other reason to look at them.
func TestModelHistories(t *testing.T) {
	for kind, set := range map[string]func(m *model, r *rand.Rand){
		"exact": func(m *model, r *rand.Rand) {},
		"repeated": func(m *model, r *rand.Rand) {
			m.tell = func(h []events.Hint) []events.Hint { return slices.Repeat(h, 1+r.IntN(3)) }
		},
		"late": func(m *model, r *rand.Rand) {
			m.late = func(events.Hint) time.Duration { return time.Duration(r.IntN(500)) * time.Millisecond }
		},
		"overflows":  func(m *model, r *rand.Rand) { m.tell = func(h []events.Hint) []events.Hint { return overflow(h, r) } },
		"polled":     func(m *model, r *rand.Rand) { m.opening = polls },
		"few":        func(m *model, r *rand.Rand) { m.add = func(rel string) error { return refuse(rel, events.ErrLimit) } },
		"other":      func(m *model, r *rand.Rand) { m.add = func(rel string) error { return refuse(rel, fs.ErrPermission) } },
		"content":    func(m *model, r *rand.Rand) { m.w.inc.Compare = incremental.CompareContent },
		"root moves": func(m *model, r *rand.Rand) {},
		"rules":      func(m *model, r *rand.Rand) { m.w.opts.IgnoreFiles = []string{".ignore"} },
		"depth":      func(m *model, r *rand.Rand) { m.w.opts.MaxDepth = 2 },
	} {
		t.Run(kind, func(t *testing.T) {
			for seed := range uint64(5) {
				inModel(t, func(m *model) {
					r := rand.New(rand.NewPCG(seed, 0))
					set(m, r)
					h := &modelHistory{model: m, Rand: r, rules: kind == "rules"}
					for range 20 {
						h.change()
					}
					time.Sleep(time.Hour)
					m.start()
					for round := range 10 {
						m.rest()
						for range 1 + r.IntN(10) {
							h.change()
							time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
						}
						if kind == "root moves" && r.IntN(3) == 0 {
							m.moveRoot(modelRoot, "aside")
							time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
							m.moveRoot("aside", modelRoot)
						}
						if r.IntN(2) == 0 {
							require.NoError(m, m.w.Sync(m.Context()))
						} else {
							time.Sleep(settles - 250*time.Millisecond) // no file has settled
						}
						require.Equal(m, m.full(), m.results, "seed %d, round %d: %v", seed, round, h.log)
						h.log = nil
					}
					m.rest()
					require.Equal(m, m.full(), m.results)
					if kind == "exact" || kind == "late" || kind == "repeated" {
						require.Equal(m, m.world.dirs(), m.source.dirs)
					}
				})
			}
		})
	}
}

func overflow(hints []events.Hint, r *rand.Rand) []events.Hint {
	if r.IntN(3) == 0 {
		return []events.Hint{{Rel: ".", Tree: true}}
	}
	return hints
}

func refuse(rel string, err error) error {
	if strings.Contains(rel, "e") {
		return err
	}
	return nil
}

type modelHistory struct {
	*model
	*rand.Rand
	rules bool
	log   []string
}

// change makes one change.
func (h *modelHistory) change() {
	file := func() string {
		dir := []string{"", "d/", "d/e/", "f/", "f/e/g/"}[h.IntN(5)]
		if h.rules && h.IntN(4) == 0 {
			return dir + ".ignore"
		}
		return dir + []string{"a", "b", "c"}[h.IntN(3)]
	}
	one, other := file(), file()
	if h.IntN(4) == 0 {
		one, other = []string{"d", "d/e", "f"}[h.IntN(3)], []string{"x", "f/y"}[h.IntN(2)]
	}
	there, isFile := h.world.has(modelRoot+"/"+one), strings.HasSuffix(one, "a") || strings.HasSuffix(one, "b") || strings.HasSuffix(one, "c") || strings.HasSuffix(one, ".ignore")
	kind := h.IntN(6)
	h.log = append(h.log, fmt.Sprint(kind, " ", one, " ", other))
	switch {
	case kind == 0 && there:
		h.remove(one)
	case kind == 1 && there && !h.world.has(modelRoot+"/"+other) && h.world.has(path.Join(modelRoot, path.Dir(other))) && !strings.HasPrefix(other, one+"/"):
		h.rename(one, other)
	case isFile:
		h.write(one, []string{"a", "b\nc", fmt.Sprint(h.IntN(1000)), fmt.Sprint(h.IntN(1000)), fmt.Sprint(h.IntN(1000)), "!", "?"}[h.IntN(7)])
	}
}

// TestModelPollingIsQuiet: a result that cannot be kept in a cache file does not come at each poll, even if the file cannot be compared. If it
// can be compared, fn is not called again.
func TestModelPollingIsQuiet(t *testing.T) {
	for name, set := range map[string]func(w *Watcher[string]){
		"metadata":                 func(*Watcher[string]) {},
		"content":                  func(w *Watcher[string]) { w.inc.Compare = incremental.CompareContent },
		"neither":                  func(w *Watcher[string]) { w.inc.Compare, w.opts.ReadSize = incremental.CompareContent, fileproc.NoRead },
		"neither, by their length": func(w *Watcher[string]) { w.inc.Compare, w.opts.ReadSize = incremental.CompareContent, 3 },
	} {
		t.Run(name, func(t *testing.T) {
			inModel(t, func(m *model) {
				m.opening = polls
				set(m.w)
				m.write("latin1", "caf\xe9")
				m.write("text", "cafe")
				m.write("fails", "caf!")
				m.write("skipped", "caf?")
				m.start()
				require.Len(m, m.take(), 1)
				calls := m.calls
				m.sync()
				m.after(10 * settles)
				require.True(m, strings.HasPrefix(name, "neither") || calls == m.calls, "fn is called again")
				m.remove("latin1")
				m.after(time.Second, "latin1 deleted, settled")
				m.write("latin1", "caf\xe8s")
				time.Sleep(time.Second)
				require.Len(m, m.take(), 1)
			})
		})
	}
}

// TestNewWatcher: a new Watcher measures the processor time of the process, and saves 30 seconds after a change. With Options.FS it has no
// events.
func TestNewWatcher(t *testing.T) {
	w := New("root", incremental.Options[string]{}, fileproc.Options{FS: fstest.MapFS{}}, content)
	before := sys.ProcessorTime()
	used := w.processorTime()
	require.LessOrEqual(t, before, used)
	require.LessOrEqual(t, used, sys.ProcessorTime())
	require.Equal(t, 30*time.Second, w.saveAfter)
	_, err := w.open("root")
	require.ErrorIs(t, err, events.ErrUnsupported)
}

// TestModelIdle: neither a file that is gone before it has settled, nor files that settle one after the other, lead to bursts for nothing.
func TestModelIdle(t *testing.T) {
	inModel(t, func(m *model) {
		m.old("a=1")
		m.start()
		m.rest()
		m.write("b", "2")
		m.after(50*time.Millisecond, "b=2 new, settled")
		m.remove("b")
		m.after(50*time.Millisecond, "b deleted, settled")
		m.isIdle(time.Hour)
		for i := range 20 {
			m.write(fmt.Sprint("f", i), "x")
			time.Sleep(time.Millisecond)
		}
		require.NoError(m, m.w.Sync(m.Context()))
		m.take()
		m.isIdle(settles - 2*time.Millisecond)
		m.after(2 * time.Millisecond)
		m.isIdle(time.Hour)
	})
}

// TestModelMixedLimits: the loop says that the limit is reached, even if most directories have no watch for another reason. A run over one polled
// directory does not end the polling of others. If root itself gets no watch, the source stays open, and the cost decides how often the
// loop polls.
func TestModelMixedLimits(t *testing.T) {
	inModel(t, func(m *model) {
		m.add = func(rel string) error {
			switch {
			case rel == "limit":
				return events.ErrLimit
			case rel != ".":
				return fs.ErrPermission
			}
			return nil
		}
		for i := range 30 {
			m.old(fmt.Sprintf("d%d/x=1", i))
		}
		m.old("limit/x=1")
		m.start()
		require.Contains(m, m.take()[0], "limit, ")
		m.hint(events.Hint{Rel: "d1", Tree: true})
		m.after(50 * time.Millisecond)
		m.world.put(modelRoot+"/d2/x", "two")
		m.after(950*time.Millisecond, "d2/x=two changed, settled")
	})
	inModel(t, func(m *model) {
		m.add = func(rel string) error {
			if rel == "." {
				return events.ErrLimit
			}
			return nil
		}
		m.tax = 100 * time.Millisecond
		m.old("a=1")
		m.start()
		m.want("a=1 new, limit, settled")
		m.after(time.Second)
		m.world.put(modelRoot+"/a", "one")
		m.after(10*time.Second, "a=one changed, settled")
		require.Equal(m, 1, m.opened)
		require.Equal(m, 1, m.sources)
	})
}

// TestModelMeanwhile: a change while the caller's loop or fn is busy comes afterwards.
func TestModelMeanwhile(t *testing.T) {
	inModel(t, func(m *model) {
		m.old("a=1")
		m.onYield = func(c Change[string], err error) bool {
			if c.Rel == "a" {
				m.onYield = nil
				m.world.put(modelRoot+"/b", "2")
				m.source.tell(events.Hint{Rel: "b"})
				time.Sleep(time.Second)
			}
			return true
		}
		m.start()
		time.Sleep(time.Second)
		m.want("a=1 new, settled")
		m.after(50*time.Millisecond, "b=2 new, settled")
		m.w.fn = func(f *fileproc.File) (string, error) {
			if f.Rel() == "b" {
				m.w.fn = content
				m.world.put(modelRoot+"/c", "3")
				m.source.tell(events.Hint{Rel: "c"})
			}
			return content(f)
		}
		m.write("b", "two")
		m.after(50*time.Millisecond, "b=two changed, settled")
		m.after(50*time.Millisecond, "c=3 new, settled")
	})
}

// TestModelStillIsForgotten: the loop forgets that a file had not changed when it settled.
func TestModelStillIsForgotten(t *testing.T) {
	inModel(t, func(m *model) {
		m.w.opts.ReadSize = 2
		m.old("a=long")
		m.start()
		m.rest()
		for _, text := range []string{"one-", "two-"} {
			m.write("a", text+"1")
			m.after(50*time.Millisecond, fmt.Sprintf("a=%s changed, settled", text[:2]))
			at := time.Now().Add(-50 * time.Millisecond)
			m.world.putAt(modelRoot+"/a", strings.ToUpper(text)+"1", at)
			m.hint(events.Hint{Rel: "a"})
			m.after(50*time.Millisecond, fmt.Sprintf("a=%s changed, settled", strings.ToUpper(text[:2])))
			m.rest()
		}
		m.write("a", "three")
		m.after(50*time.Millisecond, "a=th changed, settled")
		m.world.putAt(modelRoot+"/a", "THREE", time.Now().Add(-50*time.Millisecond))
		m.mu.Lock()
		m.source.hints = append(m.source.hints, events.Hint{Rel: "a"}) // the source is about to say so
		m.mu.Unlock()
		m.after(settles-50*time.Millisecond, "a=TH changed, settled")
	})
}

// TestModelSavesWhatSettles: the next save has the files that have settled since the last one. While there is nothing to save, the loop does not try.
func TestModelSavesWhatSettles(t *testing.T) {
	inModel(t, func(m *model) {
		m.old("a=1")
		m.start()
		m.take()
		time.Sleep(29 * time.Second)
		m.write("b", "2")
		m.after(50*time.Millisecond, "b=2 new, settled")
		time.Sleep(10 * time.Second)
		before, err := os.ReadFile(m.w.inc.File)
		require.NoError(m, err)
		time.Sleep(30 * time.Second)
		after, err := os.ReadFile(m.w.inc.File)
		require.NoError(m, err)
		require.Greater(m, len(after), len(before))
		m.isIdle(time.Hour)
	})
}

// TestModelLeavesTheRest: if the caller leaves at the first result, fn gets only some of the other files.
func TestModelLeavesTheRest(t *testing.T) {
	inModel(t, func(m *model) {
		for i := range 3000 {
			m.world.put(fmt.Sprintf("%s/f%d", modelRoot, i), "x")
		}
		m.onYield = func(Change[string], error) bool { return false }
		m.start()
		<-m.ended
		require.Less(m, m.calls, 2500)
	})
}

// TestModelCancelled: the cause of a cancel comes once, as the last error, whenever the cancel happens.
func TestModelCancelled(t *testing.T) {
	for _, at := range []string{"first", "later", "idle", "running"} {
		inModel(t, func(m *model) {
			causes, cancels := 0, at == "first"
			m.onYield = func(c Change[string], err error) bool {
				if errors.Is(err, errTestEnds) {
					causes++
				}
				if cancels {
					m.end(errTestEnds)
				}
				return true
			}
			m.old("a=1", "b=2")
			m.start()
			switch at {
			case "running": // with a cause that looks like the failure of a run that may pass
				fn := m.w.fn
				m.w.fn = func(f *fileproc.File) (string, error) {
					m.end(&fs.PathError{Op: "open", Path: "x", Err: errTestEnds})
					return fn(f)
				}
				for i := range 100 {
					m.write(fmt.Sprint("f", i), "")
				}
				time.Sleep(time.Second)
			case "later":
				cancels = true
				m.write("a", "one")
				m.write("b", "two")
				time.Sleep(time.Second)
			case "idle":
				m.end(errTestEnds)
			}
			<-m.ended
			require.ErrorIs(m, m.last, errTestEnds)
			require.Equal(m, 1, causes)
		})
	}
}

// TestModelFailureEndsByAnEvent: when an event has led to a look that succeeds, there is no other try.
func TestModelFailureEndsByAnEvent(t *testing.T) {
	inModel(t, func(m *model) {
		m.old("d/a=1")
		m.start()
		m.take()
		m.world.fails("d", fs.ErrPermission)
		m.hint(events.Hint{Rel: "d", Tree: true})
		m.after(50*time.Millisecond, "d fails, settled")
		m.world.fails("d", nil)
		m.hint(events.Hint{Rel: "d", Tree: true})
		m.after(50 * time.Millisecond)
		m.isIdle(time.Hour)
	})
}

// TestPollNames: of the directories without a watch, the loop polls the topmost ones.
func TestPollNames(t *testing.T) {
	l := &loop[string]{w: &Watcher[string]{}, source: &fakeSource{}, polled: map[string]error{"a": errFails, "a/b": errFails, "a/b/c/d": errFails, "ab": errFails, "e/f/g": errFails}}
	require.ElementsMatch(t, []string{"a", "ab", "e/f/g"}, l.pollNames())
	l.polled["."] = errFails
	require.Equal(t, []string{"."}, l.pollNames())
}

// TestModelSyncIsGivenUp: a Sync that the loop has taken returns when its context ends.
func TestModelSyncIsGivenUp(t *testing.T) {
	inModel(t, func(m *model) {
		m.start()
		block := make(chan struct{})
		m.syncing = func() error { <-block; return nil }
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(errFails) })
		require.ErrorIs(m, m.w.Sync(ctx), errFails)
		close(block)
		require.NoError(m, m.w.Sync(m.Context()))
	})
}
