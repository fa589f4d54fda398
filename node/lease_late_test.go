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
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
)

// stuckLink is a link whose Send blocks, and with it the goroutine that watches the time.
type stuckLink struct {
	transport.DynamicLink
	stuck    *atomic.Bool
	released chan struct{}
}

func (l stuckLink) Send(to dmutex.NodeID, frame []byte) error {
	if l.stuck.Load() {
		<-l.released
	}
	return l.DynamicLink.Send(to, frame)
}

// Err and Release know that the lease has ended even if no timer has fired yet, as after a pause of
// the process.
func TestLeaseLateTimer(t *testing.T) {
	for name, ask := range map[string]func(lock.Held) error{"Err": (lock.Held).Err, "Release": (lock.Held).Release} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
				var stuck atomic.Bool
				released := make(chan struct{})
				s := &member{group: g, store: outagetest.New(t, &g.store, outagetest.Faults{})}
				var err error
				s.Node, err = node.Open(t.Context(), s.store, stuckLink{s.newLink(), &stuck, released}, g.config(s))
				require.NoError(t, err)
				g.all = append(g.all, s)
				g.open(2)
				held := s.acquire("x")
				s.store.Outage(true)
				stuck.Store(true)
				ends := time.Now().Add(s.Status().Lease.Remains)
				require.True(t, ends.Equal(held.Until()))
				time.Sleep(time.Until(ends) - time.Nanosecond)
				before := held.Err()
				time.Sleep(time.Nanosecond)
				after := ask(held)
				stuck.Store(false)
				close(released)
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
		s := &member{group: g, store: outagetest.New(t, &g.store, outagetest.Faults{})}
		var log nodetest.Journal
		g.log = log.Logger()
		var err error
		s.Node, err = node.Open(t.Context(), s.store, mumLink{s.newLink(), &mum, speak}, g.config(s))
		require.NoError(t, err)
		g.log = nil
		g.all = append(g.all, s)
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
