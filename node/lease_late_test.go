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
			bubbleLease(t, ricart.New, func(t *testing.T, g *leaseGroup) {
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
			bubbleLease(t, algorithm, func(t *testing.T, g *leaseGroup) {
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
