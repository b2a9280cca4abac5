package fileproc

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestResultBufferIsBounded(t *testing.T) {
	for _, workers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			b := newResultBuffer[int](workers)
			sent := make([]int, workers)
			for w := range workers {
				go func() {
					for i := range 1000 {
						b.send(nil, true, i, nil)
						sent[w]++
					}
				}()
			}
			synctest.Wait()
			total := 0
			for _, n := range sent {
				total += n
			}
			require.Equal(t, bufferPerWorker*workers, total)
			require.Equal(t, workers, b.blocked)

			got := 0
			var results []result[int]
			for got < 1000*workers {
				results = b.receive(results)
				require.LessOrEqual(t, len(results), bufferPerWorker*workers)
				got += len(results)
				synctest.Wait()
			}
			require.Equal(t, 1000*workers, got)
			require.Zero(t, b.blocked)
			b.close()
			require.Empty(t, b.receive(results))
		})
	}
}

func TestResultBufferOrderOfOneSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResultBuffer[int](1)
		go func() {
			for i := range 500 {
				b.send(nil, true, i, nil)
			}
			b.close()
		}()
		next := 0
		for results := b.receive(nil); len(results) > 0; results = b.receive(results) {
			for _, r := range results {
				require.Equal(t, next, r.v)
				next++
			}
		}
		require.Equal(t, 500, next)
	})
}

func TestResultBufferReceiverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResultBuffer[string](1)
		var got []result[string]
		received := make(chan struct{})
		go func() {
			got = b.receive(nil)
			close(received)
		}()
		synctest.Wait()
		require.True(t, b.waiting)
		b.send(nil, true, "", errBroken)
		<-received
		require.Equal(t, []result[string]{{"", errBroken}}, got)
	})
}

func TestResultBufferDiscards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResultBuffer[int](1)
		var returned atomic.Int64
		for range 3 {
			go func() {
				for range bufferPerWorker {
					b.send(nil, true, 1, nil)
				}
				returned.Add(1)
			}()
		}
		synctest.Wait()
		require.LessOrEqual(t, returned.Load(), int64(1))
		b.discard()
		synctest.Wait()
		require.EqualValues(t, 3, returned.Load(), "senders return although there is no receiver")
		require.Len(t, b.results, bufferPerWorker, "later results are dropped")
		b.close()
		require.Len(t, b.receive(nil), bufferPerWorker)
		require.Empty(t, b.receive(nil))
	})
}

func TestResultBufferCloseWakesTheReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResultBuffer[int](1)
		ended := false
		go func() {
			ended = len(b.receive(nil)) == 0
		}()
		synctest.Wait()
		require.False(t, ended)
		b.close()
		synctest.Wait()
		require.True(t, ended)
	})
}

// A received slice is reused, so it must not keep values alive.
func TestResultBufferClearsWhatItReuses(t *testing.T) {
	b := newResultBuffer[*int](1)
	b.send(nil, true, new(int), nil)
	b.send(nil, true, new(int), nil)
	first := b.receive(nil)
	b.send(nil, true, new(int), nil)
	b.receive(first)
	require.Nil(t, first[0].v)
	require.Nil(t, first[1].v)
	q := &orderedOutlet[*int]{ordered: newOrdered(1), closed: true}
	first[0].v = new(int)
	q.receive(first)
	require.Nil(t, first[0].v)
}

func TestCollector(t *testing.T) {
	for _, test := range []struct {
		name string
		adds [][]int // by slot
		want []int
	}{
		{"nobody", [][]int{nil, nil, nil}, nil},
		{"the first", [][]int{{1, 2, 3}, nil}, []int{1, 2, 3}},
		{"the last", [][]int{nil, nil, {1, 2}}, []int{1, 2}},
		{"two", [][]int{{1}, nil, {2, 3}}, []int{1, 2, 3}},
		{"all", [][]int{{1, 2, 3}, {4}, {5, 6}}, []int{1, 2, 3, 4, 5, 6}},
		{"as many in each", [][]int{{1}, {2}, {3}}, []int{1, 2, 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCollector[int](len(test.adds))
			for w, values := range test.adds {
				for _, v := range values {
					c.add(w, v)
				}
			}
			require.Equal(t, test.want, c.all())
		})
	}
}
