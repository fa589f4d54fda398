package mail_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/stream"
	"github.com/dmutex/dmutex/transport/memlink"
)

// alone opens a box without peers.
func (p *post) alone(self dmutex.NodeID) *box {
	cfg := p.config(self, 10*uint64(self))
	cfg.Peers = nil
	b := p.new(cfg)
	require.NoError(p.t, b.Open())
	return b
}

// Peers that are added meet and talk.
func TestAdd(t *testing.T) {
	run(t, memlink.Config{}, 3, func(t *testing.T, p *post) {
		one, two, three := p.alone(1), p.alone(2), p.alone(3)
		time.Sleep(time.Minute)
		one.peers = []dmutex.NodeID{2, 2} // twice is once
		one.SetPeers(anyLife(one.peers))
		one.say(2, "early")
		time.Sleep(time.Millisecond)
		require.Equal(t, []string{"stranger 1"}, two.take(), "the stream begins at once")
		time.Sleep(time.Minute)
		require.Empty(t, one.take())
		strange := two.take()
		require.NotEmpty(t, strange)
		require.Equal(t, len(strange), count(strange, "stranger 1"))

		two.Add(1)
		one.Add(3)
		two.Add(3)
		three.Add(2)
		three.Add(1) // before one that is there
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, []string{"met 2 as 20", "met 3 as 30"}, sorted(without(one.take(), "stranger 3")))
		require.Contains(t, two.take(), "1.1: early")
		one.say(3, "hello")
		three.say(2, "hello")
		one.Flush()
		three.Flush()
		time.Sleep(100 * time.Millisecond)
		require.Contains(t, three.take(), "1.1: hello")
		require.Contains(t, two.take(), "3.1: hello")

		settle(one, two, three)
		require.Zero(t, one.Status(2).Backlog)
		closeAll(t, one, two, three)
		one.Add(4)
		require.ErrorIs(t, sendErr(one, 4), dmutex.ErrMisuse, "it is no peer")
	})
}

// Of a peer that has one life, no process with another is met, also after a Rename, and the right one is.
func TestOnlyThatLife(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one := p.alone(1)
		one.SetPeers(map[dmutex.NodeID]uint64{2: 21})
		other := p.open(2)
		for range 2 {
			time.Sleep(time.Minute)
			require.Equal(t, []string{"2: " + stream.ErrOther.Error()}, slices.Compact(one.take()))
			require.Zero(t, one.Status(2).Life)
			one.Rename(11)
		}
		closeAll(t, other)
		two := p.openAs(2, 21)
		time.Sleep(time.Minute)
		require.Contains(t, one.take(), "met 2 as 21")
		closeAll(t, one, two)
	})
}

func without(log []string, line string) (rest []string) {
	for _, l := range log {
		if l != line {
			rest = append(rest, l)
		}
	}
	return rest
}

// A Handler may add a stranger.
func TestAddStranger(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two := p.alone(1), p.alone(2)
		two.greet = func(from dmutex.NodeID) {
			two.Add(from)
		}
		one.Add(2)
		one.say(2, "hello")
		time.Sleep(time.Second)
		require.Equal(t, []string{"stranger 1", "met 1 as 10", "1.1: hello"}, two.take())
		settle(one)
		closeAll(t, one, two)
	})
}

// A removed peer is a stranger. Messages queued for it are gone, and other peers notice
// nothing.
func TestRemove(t *testing.T) {
	run(t, memlink.Config{}, 3, func(t *testing.T, p *post) {
		boxes := p.meet()
		one, two, three := boxes[0], boxes[1], boxes[2]
		p.network.Cut(1, 2)
		large := []byte(strings.Repeat("x", one.MaxMessage()))
		for one.Backlog(2) < stream.Buffer/2 {
			_, err := one.Send(2, large)
			require.NoError(t, err)
		}
		one.Flush()
		queued := heap()
		one.Remove(2)
		one.Remove(2)
		one.Remove(9)
		require.Less(t, heap(), queued-2<<20)
		require.Zero(t, one.Backlog(2))
		require.Zero(t, one.Status(2))
		_, err := one.Send(2, []byte("x"))
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		one.Challenge(2)

		p.network.Heal()
		require.Empty(t, one.take())
		two.say(1, "are you there?")
		two.Flush()
		one.say(3, "I am")
		one.Flush()
		three.say(1, "so am I")
		three.Flush()
		time.Sleep(time.Minute)
		log := one.take()
		require.Contains(t, log, "3.1: so am I")
		require.Greater(t, count(log, "stranger 2"), 1)
		require.Zero(t, count(log, "2"))
		require.Empty(t, two.take(), "a removed peer gets no farewell")
		require.Contains(t, three.take(), "1.1: I am")
		settle(one, three)
		closeAll(t, one, three)

		require.ErrorContains(t, two.Close(nodetest.ContextFor(t, time.Minute)), "by [1]")
	})
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A node that was removed is met again if it is added in another life, and nothing of
// the former stream is left.
func TestAddAgain(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		boxes := p.meet()
		one, two := boxes[0], boxes[1]
		one.say(2, "first")
		settle(one)
		one.take()
		p.crash(two, 2)
		one.say(2, "lost")
		one.Flush()
		one.Remove(2)
		one.Add(2)
		require.Equal(t, mail.Status{}, one.Status(2))
		seq, err := one.Send(2, []byte("again"))
		require.NoError(t, err)
		require.EqualValues(t, 1, seq)
		two = p.openAs(2, 21)
		settle(one)
		require.Equal(t, []string{"met 2 as 21"}, one.take())
		require.Contains(t, two.take(), "1.1: again")
		closeAll(t, one, two)
	})
}

// A Handler may remove the peer that it is called for. It still gets the rest of the
// frame, but not the frames behind it.
func TestRemoveInMessage(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two, link := p.pair()
		one.answer = func(from dmutex.NodeID, seq uint64, _ []byte) {
			if seq == 2 {
				one.say(from, "dropped")
				one.Remove(from)
			}
		}
		link.dam()
		for i, together := range []int{1, 2, 1, 1} {
			for range together {
				two.say(1, fmt.Sprint("frame ", i))
			}
			two.Flush()
			synctest.Wait()
		}
		frames, sent := link.burst(2)
		require.Equal(t, 4, frames)
		require.Zero(t, sent)
		require.Equal(t, []string{"2.1: frame 0", "2.2: frame 1", "2.3: frame 1", "stranger 2", "stranger 2"}, one.take())
		require.Empty(t, two.take())
		closeAll(t, one)
		require.Error(t, two.Close(nodetest.ContextFor(t, time.Second)))
	})
}

// A goroutine that is sending to a peer stops when the peer is removed.
func TestRemoveWhileSending(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two, link := p.pair()
		resume := one.sayStalled(link)
		one.say(2, "dropped")
		one.Remove(2)
		_, all := resume()
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, all)
		require.Equal(t, []string{"1.1: stalled"}, two.take())
		closeAll(t, one)
		require.Error(t, two.Close(nodetest.ContextFor(t, time.Second)))
	})
}

// SetPeers and Challenge do not wait for a Handler, nor for a Rename that does. A
// peer that is added meanwhile sees the new life, and a removed one sees no farewell.
func TestPeersDuringRename(t *testing.T) {
	run(t, memlink.Config{}, 4, func(t *testing.T, p *post) {
		boxes := p.meet()
		one, two, three, four := boxes[0], boxes[1], boxes[2], boxes[3]
		one.Remove(4)
		p.network.Partition([]dmutex.NodeID{2})
		var renaming sync.WaitGroup
		one.answer = func(from dmutex.NodeID, _ uint64, _ []byte) {
			renaming.Go(func() {
				one.Rename(11)
			})
			for one.Status(2).Life != 0 { // until Rename is about to wait for us
				runtime.Gosched()
			}
			one.Add(4)
			one.Challenge(2)
			one.Challenge(3)
			one.Remove(3)
		}
		three.say(1, "go")
		three.Flush()
		time.Sleep(time.Second)
		renaming.Wait()
		p.network.Heal()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"met 1 as 11"}, two.take())
		require.Empty(t, three.take())
		require.Equal(t, []string{"met 1 as 11"}, four.take())

		one.Add(3)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"met 1 as 11"}, three.take())
		one.Rename(12)
		time.Sleep(time.Minute)
		for _, b := range boxes[1:] {
			require.Equal(t, []string{"1 left", "met 1 as 12"}, b.take())
		}
		closeAll(t, boxes...)
	})
}

// SetPeers and Challenge do not wait for a Close that waits for a Handler. No peer can be added
// anymore, and Close does not wait for peers that are removed.
func TestPeersDuringClose(t *testing.T) {
	run(t, memlink.Config{}, 4, func(t *testing.T, p *post) {
		boxes := p.meet()
		one, three := boxes[0], boxes[2]
		p.network.Partition([]dmutex.NodeID{2})
		closed := make(chan error, 1)
		one.answer = func(from dmutex.NodeID, _ uint64, _ []byte) {
			go func() { closed <- one.Close(t.Context()) }()
			for !errors.Is(sendErr(one, 2), stream.ErrClosed) { // until Close is about to wait for us
				runtime.Gosched()
			}
			if one.Add(5); !errors.Is(sendErr(one, 5), dmutex.ErrMisuse) {
				t.Error("5 is a peer")
			}
			one.Challenge(2)
			one.Remove(3)
		}
		three.say(1, "go")
		three.Flush()
		time.Sleep(time.Minute + 300*time.Millisecond) // when keepTime does not wake by itself
		require.Empty(t, closed, "Close waits for 2")
		one.Remove(2)
		synctest.Wait()
		require.Len(t, closed, 1, "Close learns of it at once")
		require.NoError(t, <-closed)
		one.Remove(4)
		one.Challenge(4)
		p.network.Heal()
		require.Empty(t, three.take())
		require.Equal(t, []string{"1 left"}, boxes[3].take())
		for _, b := range boxes[1:3] {
			b.Remove(1)
		}
		closeAll(t, boxes[1:]...)
	})
}

// Close learns at once that the last peer that it waits for is none any more.
func TestLastPeerDuringClose(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		boxes := p.meet()
		p.network.Partition([]dmutex.NodeID{2})
		closed := make(chan error, 1)
		go func() { closed <- boxes[0].Close(t.Context()) }()
		time.Sleep(time.Minute)
		require.Empty(t, closed)
		boxes[0].Remove(2)
		synctest.Wait()
		require.Len(t, closed, 1)
		require.NoError(t, <-closed)
		boxes[1].Remove(1)
		closeAll(t, boxes[1])
	})
}

func sendErr(b *box, to dmutex.NodeID) error {
	_, err := b.Send(to, []byte("x"))
	return err
}

// Peers come and go while everything else goes on, on a bad network. In the end all meet, hear
// each other and close.
func TestComeAndGo(t *testing.T) {
	for seed := range uint64(5) {
		run(t, bad(seed), 4, func(t *testing.T, p *post) {
			var boxes []*box
			for _, id := range p.members {
				boxes = append(boxes, p.open(id))
			}
			one := boxes[0]
			stop := make(chan struct{})
			var busy, chatter sync.WaitGroup
			repeat := func(wg *sync.WaitGroup, do func()) {
				wg.Go(func() {
					for {
						do()
						select {
						case <-stop:
							return
						case <-time.After(time.Millisecond):
						}
					}
				})
			}
			for i, b := range boxes {
				for _, to := range p.members {
					if to == p.members[i] {
						continue
					}
					repeat(&chatter, func() {
						if err := sendErr(b, to); err != nil && !errors.Is(err, stream.ErrClosed) && !errors.Is(err, dmutex.ErrMisuse) {
							t.Error(err)
						}
						b.Flush()
						b.Backlog(to)
					})
				}
			}
			for _, id := range []dmutex.NodeID{2, 3, 4} {
				repeat(&busy, func() {
					one.Remove(id)
					one.Challenge(5 - id%4)
					one.Add(id)
				})
			}
			// Two goroutines add a peer that another removes.
			repeat(&busy, func() { one.Remove(5) })
			for range 2 {
				repeat(&busy, func() { one.Add(5) })
			}
			for life := range uint64(20) {
				time.Sleep(10 * time.Millisecond)
				one.Rename(101 + life)
			}
			close(stop)
			busy.Wait()
			chatter.Wait()
			one.Remove(5)
			one.Rename(200) // because peers were added again in the same life
			for _, id := range []dmutex.NodeID{2, 3, 4} {
				one.say(id, "hello") // without traffic, a peer whose last HELLO was lost does not meet life 200
			}
			one.Flush()
			settle(boxes...)
			for i, b := range boxes {
				b.take()
				for _, to := range p.members {
					if to != p.members[i] {
						b.say(to, "to the end")
					}
				}
				b.Flush()
			}
			settle(boxes...)
			closeAll(t, boxes...)
			for _, b := range boxes {
				require.Equal(t, 3, strings.Count(strings.Join(b.take(), "\n"), "to the end"))
			}
		})
	}
}

// Close while peers come and go ends, and leaves no goroutine.
func TestCloseWhilePeersComeAndGo(t *testing.T) {
	run(t, memlink.Config{MaxDelay: time.Millisecond}, 3, func(t *testing.T, p *post) {
		for round := range uint64(20) {
			one := p.openAs(1, 10+round)
			two := p.openAs(2, 50+round)
			var busy sync.WaitGroup
			var closed atomic.Bool
			for _, id := range []dmutex.NodeID{2, 3, 4} {
				busy.Go(func() {
					for !closed.Load() {
						one.Remove(id)
						one.Add(id)
						time.Sleep(100 * time.Microsecond)
					}
				})
			}
			time.Sleep(time.Duration(round) * 100 * time.Microsecond)
			require.NoError(t, one.Close(t.Context()))
			closed.Store(true)
			busy.Wait()
			two.Remove(1)
			two.Remove(3)
			closeAll(t, two)
		}
	})
}

// Each frame of a stranger is reported, also an empty one. Messages that the Handler
// sends then are flushed. An empty frame of a peer is ignored.
func TestStranger(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two, link := p.pair()
		one.greet = func(from dmutex.NodeID) { one.say(2, from.String()) }
		for _, tc := range []struct {
			frames [][]byte
			want   int
		}{
			{[][]byte{[]byte("x")}, 1},
			{[][]byte{[]byte("x"), []byte("y")}, 2},
			{[][]byte{{}}, 1},
			{[][]byte{nil, {}}, 2},
			{nil, 1},
		} {
			link.deliver(9, tc.frames)
			require.Equal(t, tc.want, count(one.take(), "stranger 9"))
			synctest.Wait()
			require.Equal(t, tc.want, count(two.take(), "1."))
		}
		settle(one)
		one.take()
		silent := one.Status(2).Silent
		time.Sleep(time.Second)
		for _, frames := range [][][]byte{nil, {{}}, {nil, {}}} {
			link.deliver(2, frames)
		}
		require.Empty(t, one.take())
		require.Greater(t, one.Status(2).Silent, silent)
		closeAll(t, one, two)
	})
}

// A live peer with nothing to say answers a challenge at once, and a dead one does not.
func TestChallenge(t *testing.T) {
	run(t, memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond}, 3, func(t *testing.T, p *post) {
		early := p.new(p.config(3, 30))
		early.Challenge(1)
		require.NoError(t, early.Close(t.Context()))

		one, two := p.open(1), p.open(2)
		time.Sleep(time.Hour)
		require.Greater(t, one.Status(2).Silent, 59*time.Minute)
		one.take()
		two.take()
		for range 3 {
			one.Challenge(2)
			time.Sleep(2*time.Millisecond + 1)
			require.Less(t, one.Status(2).Silent, time.Millisecond)
			time.Sleep(time.Second)
		}
		one.Challenge(3) // has never been there
		one.Challenge(9) // is not a peer
		time.Sleep(time.Second)
		require.Zero(t, one.Status(3).Silent)
		require.Empty(t, one.take())
		require.Empty(t, two.take())

		p.crash(two, 2)
		before := one.Status(2).Silent
		for range 10 {
			one.Challenge(2)
			time.Sleep(time.Second)
		}
		require.Equal(t, before+10*time.Second, one.Status(2).Silent)
		one.Remove(2)
		closeAll(t, one)
	})
}

// After a sleep of its machine, in which no timer runs, a node asks every peer for a sign of life.
func TestSleep(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		boxes := p.meet()
		one := boxes[0]
		require.Greater(t, one.Status(2).Silent, 10*time.Second)
		one.StepWall(time.Hour)
		time.Sleep(2 * time.Second)
		require.Less(t, one.Status(2).Silent, 3*time.Second)
		time.Sleep(15 * time.Second)
		require.Greater(t, one.Status(2).Silent, 10*time.Second, "once")
		closeAll(t, boxes...)
	})
}

// After a pause of its process a node asks every peer for a sign of life.
func TestPause(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		boxes := p.meet()
		one := boxes[0]
		for pause, asks := range map[time.Duration]bool{time.Second: false, 2 * time.Second: true} {
			require.Greater(t, one.Status(2).Silent, time.Second)
			one.tick = func(int64) int64 { time.Sleep(pause); return due.Never } // nobody keeps time meanwhile
			one.Wake(0)
			time.Sleep(pause)
			synctest.Wait()
			require.Equal(t, asks, one.Status(2).Silent < time.Second)
			time.Sleep(10 * time.Second)
		}
		closeAll(t, boxes...)
	})
}
