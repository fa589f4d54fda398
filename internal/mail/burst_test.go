package mail_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/transport/memlink"
)

// Messages that arrive together are answered together, in one frame.
func TestBurstIsAnsweredOnce(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two, link := p.pair()
		one.answer = func(from dmutex.NodeID, seq uint64, _ []byte) { one.say(from, fmt.Sprint(seq)) }
		const questions = 10
		link.dam()
		for range questions {
			two.say(1, "question")
			two.Flush()
			synctest.Wait() // each goes in a frame of its own
		}
		frames, sent := link.burst(2)
		require.Equal(t, questions, frames)
		require.EqualValues(t, 1, sent, "frames for %d answers", questions)
		synctest.Wait()
		require.Equal(t, questions, count(two.take(), "1."))
		closeAll(t, one, two)
	})
}

// FlushSoon does not wait for the link. The goroutine that sends for it does not wait for Tick.
func TestFlushSoon(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two, link := p.pair()
		busy := make(chan bool)
		one.tick = func(int64) int64 { <-busy; return due.Never }
		one.Wake(0)
		synctest.Wait() // the goroutine that keeps time is in Tick
		flushed := false
		resume := link.hold(func() {
			one.say(2, "release")
			one.FlushSoon()
			flushed = true
		})
		require.True(t, flushed)
		before, all := resume()
		require.EqualValues(t, 1, before)
		require.EqualValues(t, 1, all)
		require.Equal(t, 1, count(two.take(), "1."))
		close(busy)
		closeAll(t, one, two)
	})
}

// A goroutine that has something to send while a burst is handled waits for the
// present frame, and not for the burst.
func TestBurstHoldsUpNobody(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two, link := p.pair()
		before := link.sent.Load()
		var by []int64 // how many frames were sent when each message arrives
		one.answer = func(from dmutex.NodeID, _ uint64, _ []byte) {
			if by = append(by, link.sent.Load()-before); len(by) > 1 {
				return
			}
			var busy sync.WaitGroup
			busy.Go(func() {
				one.say(2, "something else")
				one.Flush()
			})
			busy.Wait()
		}
		link.dam()
		for range 3 {
			two.say(1, "x")
			two.Flush()
			synctest.Wait()
		}
		frames, sent := link.burst(2)
		require.Equal(t, 3, frames)
		require.Equal(t, []int64{0, 1, 1}, by)
		require.EqualValues(t, 1, sent)
		closeAll(t, one, two)
	})
}

// A goroutine that is sending to a peer does not acknowledge an incoming frame before the
// answers to it are there. Otherwise the peer would believe that there are none.
func TestNoAcknowledgementBeforeTheAnswer(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two, link := p.pair()
		link.dam()
		resume := one.sayStalled(link)
		one.answer = func(from dmutex.NodeID, seq uint64, _ []byte) {
			one.say(from, "first")
			resume()
			one.say(from, "second")
		}
		two.say(1, "question")
		two.Flush()
		synctest.Wait()
		frames := link.take()
		require.Len(t, frames, 1)
		link.deliver(2, frames)
		link.burst(2)
		synctest.Wait()
		require.Equal(t, []string{"1.1: stalled", "1.2: first", "1.3: second"}, two.take())
		closeAll(t, one, two)
	})
}

// While one goroutine sends to a peer, others leave their messages to it and do not wait.
// All these messages go out in one frame.
func TestOneSendsForAll(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two, link := p.pair()
		resume := one.sayStalled(link)
		for range 100 {
			one.say(2, "more")
			one.Flush()
		}
		before, all := resume()
		require.EqualValues(t, 1, before)
		require.EqualValues(t, 2, all)
		synctest.Wait()
		require.Equal(t, 101, count(two.take(), "1."))
		closeAll(t, one, two)
	})
}

// An asker is a Handler that answers questions and counts the answers.
type asker struct {
	*mail.Mail
	fail     func(args ...any)
	answered chan struct{}
}

// ask sends a question to each of the peers and waits for the answers.
func (a *asker) ask(peers ...dmutex.NodeID) {
	for _, to := range peers {
		if _, err := a.Send(to, []byte("?")); err != nil {
			a.fail(err)
			return
		}
	}
	a.Flush()
	for range peers {
		<-a.answered
	}
}

func (a *asker) Message(from dmutex.NodeID, _ uint64, message []byte) {
	if message[0] != '?' {
		a.answered <- struct{}{}
	} else if _, err := a.Send(from, []byte("!")); err != nil {
		a.fail(err)
	}
}

func (a *asker) Met(dmutex.NodeID, uint64)        {}
func (a *asker) Left(dmutex.NodeID)               {}
func (a *asker) Taken(dmutex.NodeID, uint64)      {}
func (a *asker) Refused(_ dmutex.NodeID, _ error) {}
func (a *asker) Stranger(dmutex.NodeID)           {}
func (a *asker) Closed(error)                     {}
func (a *asker) Tick(int64) int64                 { return due.Never }

// A message and its answer allocate nothing.
func TestAllocations(t *testing.T) {
	if racetest.On {
		t.Skip("the detector allocates")
	}
	run(t, memlink.Config{}, 3, func(t *testing.T, p *post) {
		answered := make(chan struct{}, 2)
		var all []*asker
		for _, id := range p.members {
			a := &asker{fail: t.Error, answered: answered}
			cfg := p.config(id, uint64(id))
			cfg.Handler = a
			var err error
			a.Mail, err = mail.New(cfg)
			require.NoError(t, err)
			require.NoError(t, a.Open())
			all = append(all, a)
		}
		one := all[0]
		time.Sleep(time.Minute)
		ask := func() { one.ask(2, 3) }
		ask()
		require.Zero(t, testing.AllocsPerRun(1000, ask))
		var closing sync.WaitGroup
		for _, a := range all {
			closing.Go(func() {
				if err := a.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		closing.Wait()
	})
}

// The farewell of a node that renames itself goes before anything of the next life.
func TestFarewellGoesFirst(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two, link := p.pair()
		resume := link.hold(func() {
			one.Rename(11)
		})
		one.say(2, "of the next life")
		one.Flush()
		before, _ := resume()
		require.EqualValues(t, 1, before)
		time.Sleep(time.Second)
		require.Equal(t, []string{"1 left", "met 1 as 11", "1.1: of the next life"}, two.take())
		closeAll(t, one, two)
	})
}
