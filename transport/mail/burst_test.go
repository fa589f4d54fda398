package mail_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport/mail"
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

// A goroutine that has something to send while a burst is handled waits for the
// present frame, and not for the burst.
func TestBurstHoldsUpNobody(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two, link := p.pair()
		before := link.sent.Load()
		var by []int64 // how many frames were sent by the time that each arrives
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

// A goroutine that is sending to a peer while a frame of it comes in does not
// acknowledge that before its answers are there: the peer would believe that there
// is none.
func TestNoAcknowledgementBeforeTheAnswer(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two, link := p.pair()
		stall := make(chan struct{})
		one.answer = func(from dmutex.NodeID, seq uint64, _ []byte) {
			one.say(from, "first")
			close(stall)
			synctest.Wait() // the sender has come back from Send
			one.say(from, "second")
		}
		link.dam()
		link.stall.Store(&stall)
		var busy sync.WaitGroup
		busy.Go(func() {
			one.say(2, "stalled")
			one.Flush()
		})
		synctest.Wait()
		two.say(1, "question")
		two.Flush()
		synctest.Wait()
		frames := link.take()
		require.Len(t, frames, 1)
		link.deliver(2, frames)
		link.burst(2)
		busy.Wait()
		synctest.Wait()
		require.Equal(t, []string{"1.1: stalled", "1.2: first", "1.3: second", "1 has 1"}, two.take())
		closeAll(t, one, two)
	})
}

// While one goroutine sends to a peer, others leave what they have to it and do not
// wait. It goes out in one frame.
func TestOneSendsForAll(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two, link := p.pair()
		before := link.sent.Load()
		stall := make(chan struct{})
		link.stall.Store(&stall)
		var busy sync.WaitGroup
		busy.Go(func() {
			one.say(2, "stalled")
			one.Flush()
		})
		synctest.Wait()
		for range 100 {
			one.say(2, "more")
			one.Flush()
		}
		stalled := link.sent.Load() - before
		close(stall)
		busy.Wait()
		require.EqualValues(t, 1, stalled)
		require.EqualValues(t, 2, link.sent.Load()-before)
		synctest.Wait()
		require.Equal(t, 101, count(two.take(), "1."))
		closeAll(t, one, two)
	})
}

// A silent Handler answers questions and counts the answers.
type silent struct {
	*mail.Mail
	t        *testing.T
	answered chan struct{}
}

func (s *silent) Message(from dmutex.NodeID, _ uint64, message []byte) {
	if message[0] != '?' {
		s.answered <- struct{}{}
	} else if _, err := s.Send(from, text("!")); err != nil {
		s.t.Error(err)
	}
}

func (s *silent) Met(dmutex.NodeID, uint64)        {}
func (s *silent) Left(dmutex.NodeID)               {}
func (s *silent) Handled(dmutex.NodeID, uint64)    {}
func (s *silent) Taken(dmutex.NodeID)              {}
func (s *silent) Refused(_ dmutex.NodeID, _ error) {}
func (s *silent) Closed(error)                     {}
func (s *silent) Tick(int64) int64                 { return never }

// A message and its answer allocate nothing.
func TestAllocations(t *testing.T) {
	if race {
		t.Skip("the detector allocates")
	}
	run(t, memlink.Config{}, 3, func(t *testing.T, p *post) {
		answered := make(chan struct{}, 2)
		var all []*silent
		for _, id := range p.members {
			s := &silent{t: t, answered: answered}
			cfg := p.config(id, uint64(id))
			cfg.Handler = s
			var err error
			s.Mail, err = mail.New(cfg)
			require.NoError(t, err)
			require.NoError(t, s.Open())
			all = append(all, s)
		}
		one := all[0]
		time.Sleep(time.Minute)
		ask := func() {
			for _, to := range []dmutex.NodeID{2, 3} {
				if _, err := one.Send(to, text("?")); err != nil {
					t.Error(err)
				}
			}
			one.Flush()
			<-answered
			<-answered
		}
		ask()
		require.Zero(t, testing.AllocsPerRun(1000, ask))
		var closing sync.WaitGroup
		for _, s := range all {
			closing.Go(func() {
				if err := s.Close(t.Context()); err != nil {
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
		before := link.sent.Load()
		stall := make(chan struct{})
		link.stall.Store(&stall)
		var busy sync.WaitGroup
		busy.Go(func() {
			if err := one.Rename(11); err != nil {
				t.Errorf("Rename: %v", err)
			}
		})
		synctest.Wait()
		one.say(2, "of the next life")
		one.Flush()
		stalled := link.sent.Load() - before
		close(stall)
		busy.Wait()
		require.EqualValues(t, 1, stalled)
		time.Sleep(time.Second)
		require.Equal(t, []string{"1 left", "1 has 0", "met 1 as 11", "1 has 0", "1.1: of the next life"}, two.take())
		closeAll(t, one, two)
	})
}
