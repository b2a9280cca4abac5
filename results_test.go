package fileproc

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestCollector(t *testing.T) {
	for _, test := range []struct {
		name string
		adds [][]int // by worker
		want []int
	}{
		{"nobody", [][]int{nil, nil, nil}, nil},
		{"no worker", nil, nil},
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

func TestMailboxIsBounded(t *testing.T) {
	for _, workers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			m := newMailbox[int](workers)
			sent := make([]int, workers)
			for w := range workers {
				go func() {
					for i := range 1000 {
						m.send(new(local), i, nil)
						sent[w]++
					}
				}()
			}
			synctest.Wait()
			total := 0
			for _, n := range sent {
				total += n
			}
			require.Equal(t, mailboxSize*workers, total)
			require.Equal(t, workers, m.blocked)

			got := 0
			var mail []letter[int]
			for got < 1000*workers {
				mail = m.receive(mail)
				require.LessOrEqual(t, len(mail), mailboxSize*workers)
				got += len(mail)
				synctest.Wait()
			}
			require.Equal(t, 1000*workers, got)
			require.Zero(t, m.blocked)
			m.close()
			require.Empty(t, m.receive(mail))
		})
	}
}

func TestMailboxOrderOfOneSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMailbox[int](1)
		go func() {
			for i := range 500 {
				m.send(new(local), i, nil)
			}
			m.close()
		}()
		next := 0
		for mail := m.receive(nil); len(mail) > 0; mail = m.receive(mail) {
			for _, l := range mail {
				require.Equal(t, next, l.v)
				next++
			}
		}
		require.Equal(t, 500, next)
	})
}

func TestMailboxReceiverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMailbox[string](1)
		var got []letter[string]
		received := make(chan struct{})
		go func() {
			got = m.receive(nil)
			close(received)
		}()
		synctest.Wait()
		require.True(t, m.waiting)
		m.send(new(local), "", errBroken)
		<-received
		require.Equal(t, []letter[string]{{"", errBroken}}, got)
	})
}

func TestMailboxLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMailbox[int](1)
		var returned atomic.Int64
		for range 3 {
			go func() {
				for range mailboxSize {
					m.send(new(local), 1, nil)
				}
				returned.Add(1)
			}()
		}
		synctest.Wait()
		require.LessOrEqual(t, returned.Load(), int64(1))
		m.leave()
		synctest.Wait()
		require.EqualValues(t, 3, returned.Load(), "senders that nobody waits for any more")
		require.Len(t, m.mail, mailboxSize, "what comes later is dropped")
		m.close()
		require.Len(t, m.receive(nil), mailboxSize)
		require.Empty(t, m.receive(nil))
	})
}

func TestMailboxCompleteWakesTheReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMailbox[int](1)
		ended := false
		go func() {
			ended = len(m.receive(nil)) == 0
		}()
		synctest.Wait()
		require.False(t, ended)
		m.close()
		synctest.Wait()
		require.True(t, ended)
	})
}

// What was received before is used again, so it must not keep values alive.
func TestMailboxClearsWhatItUsesAgain(t *testing.T) {
	m := newMailbox[*int](1)
	m.send(new(local), new(int), nil)
	m.send(new(local), new(int), nil)
	first := m.receive(nil)
	m.send(new(local), new(int), nil)
	m.receive(first)
	require.Nil(t, first[0].v)
	require.Nil(t, first[1].v)
}
