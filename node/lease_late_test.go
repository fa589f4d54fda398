package node_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
)

// Err and Release know that the lease has ended even if no timer has fired yet, as after a pause of
// the process.
func TestLeaseLateTimer(t *testing.T) {
	for name, ask := range map[string]func(lock.Held) error{"Err": (lock.Held).Err, "Release": (lock.Held).Release} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
				s := g.open(3)[0]
				held, stuck := s.acquire("x"), make(chan struct{})
				s.store.Outage(true)
				s.stuck.Store(&stuck) // and with Send the goroutine that watches the time
				ends := time.Now().Add(s.Status().Lease.Remains)
				require.True(t, ends.Equal(held.Until()))
				time.Sleep(time.Until(ends) - time.Nanosecond)
				before := held.Err()
				time.Sleep(time.Nanosecond)
				after := ask(held)
				s.stuck.Store(nil)
				close(stuck)
				synctest.Wait() // Send returns
				s.store.Outage(false)
				require.NoError(t, before)
				require.ErrorIs(t, after, node.ErrLease)
				require.ErrorIs(t, held.Err(), node.ErrLease)
				require.NoError(t, s.acquire("x").Release())
				require.ErrorIs(t, held.Release(), node.ErrLease) // it stays lost
			})
		})
	}
}

// mumLink is a link that does not say in time what its trouble is.
type mumLink struct {
	transport.DynamicLink
	mum   *atomic.Bool
	speak chan struct{}
}

func (l mumLink) Trouble(to dmutex.NodeID) error {
	if l.mum.Load() {
		<-l.speak
	}
	return l.DynamicLink.Trouble(to)
}

// A hold ends with the lease also while a link keeps those waiting who ask for its trouble, which the log
// does when members are missing.
func TestLeaseEndsWhileLinkIsMum(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		var mum atomic.Bool
		speak := make(chan struct{})
		var log nodetest.Journal
		g.log = log.Logger()
		g.wrapLink = func(l transport.DynamicLink) transport.DynamicLink { return mumLink{l, &mum, speak} }
		s := g.join()
		g.log, g.wrapLink = nil, nil
		g.open(2)
		held := s.acquire("x")
		mum.Store(true)
		s.cut.Store(true)
		g.join() // a member more, which s does not hear
		time.Sleep(leaseOf / 4)
		s.store.Outage(true)
		ends := held.Until()
		time.Sleep(time.Until(ends))
		synctest.Wait()
		over := held.Context().Err()
		mum.Store(false)
		close(speak)
		s.isolate(false)
		time.Sleep(2 * leaseOf)
		require.Contains(t, log.String(), "waiting for members")
		require.ErrorIs(t, over, context.Canceled)
	})
}

// A handle says that its lease has ended even at the moment when the node closes or stops, before
// another goroutine has ended the hold.
func TestLeaseLateClose(t *testing.T) {
	for name, end := range map[string]func(s *member){
		"Close": func(s *member) { _ = s.Close(context.Background()) },
		"stop":  func(s *member) { s.LinkClosed() },
	} {
		t.Run(name, func(t *testing.T) {
			var busy atomic.Bool
			gate := make(chan bool)
			algorithm := func(s dmutex.Start) (dmutex.Machine, error) {
				if busy.Swap(false) {
					<-gate // under the mutex of the locks
				}
				return ricart.New(s)
			}
			bubbleLease(t, algorithm, func(t *testing.T, g *group) {
				s := g.open(1)[0]
				held := s.acquire("x")
				gate = make(chan bool)
				busy.Store(true)
				go func() { _, _ = s.Mutex("y").Acquire(t.Context()) }()
				synctest.Wait()
				ended := make(chan bool)
				go func() { end(s); close(ended) }()
				for !s.Ended() {
					runtime.Gosched()
				}
				s.StepWall(int64(2 * leaseOf))
				err := make(chan error, 1)
				go func() { err <- held.Err() }()
				for range 100_000 { // enough time for a wrong answer
					runtime.Gosched()
				}
				close(gate)
				require.ErrorIs(t, <-err, node.ErrLost)
				<-ended
				s.cut.Store(true) // it cannot say farewell
			})
		})
	}
}
