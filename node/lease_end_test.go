package node_test

import (
	"context"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/servetest"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
)

// A member waits as long as ever for the lease of another, even if its own wall clock is set
// forward.
func TestLeaseClockSetForward(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(2))
		for all[0].Status().Lease.Remains < leaseOf*15/16-5*time.Millisecond { // just renewed
			time.Sleep(time.Millisecond)
		}
		held := all[0].acquire("x")
		all[0].isolate(true)
		next := all[1].acquireLater(t.Context(), "x")
		all[1].sees(1)
		require.NoError(t, held.Err())
		all[1].StepWall(int64(2 * leaseOf))
		granted(t, next)
		require.Error(t, held.Err(), "two holders")
		all[0].cut.Store(true)
	})
}

// In the last sixteenth of its lease a holder stops, and nobody gets its locks, even if it has lost
// only the store and not the other members.
func TestLeaseMarginIsKept(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(2))
		held := all[0].acquire("x")
		next := all[1].acquireLater(t.Context(), "x")
		all[0].store.Outage(true) // it still reaches the others
		<-held.Context().Done()
		lost := time.Now()
		granted(t, next)
		all[0].store.Outage(false)
		require.GreaterOrEqual(t, time.Since(lost), leaseOf/16)
	})
}

// When the last sixteenth of the lease is over, the lock is given back at once, at whatever time
// the lease ended.
func TestLeaseGivenBack(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := g.open(2)
		for range 5 {
			held := all[0].acquire("x")
			next := all[1].acquireLater(t.Context(), "x")
			time.Sleep(leaseOf / 45)
			all[0].StepWall(int64(all[0].Status().Lease.Remains))
			<-held.Context().Done()
			lost := time.Now()
			o := <-next
			require.Less(t, time.Since(lost), leaseOf/16+10*time.Millisecond)
			require.NoError(t, o.err)
			require.NoError(t, o.held.Release())
		}
	})
}

// Right after a sleep of the computer, a handle says that its lock is lost, and Status that the lease has ended.
func TestLeaseErrAfterSleep(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		s := g.open(1)[0]
		held := s.acquire("x")
		s.StepWall(int64(time.Hour))
		require.ErrorIs(t, held.Err(), node.ErrLost)
		s.StepWall(int64(time.Hour))
		st := s.Status()
		require.Equal(t, node.LeaseEnded, st.Lease.State)
		require.False(t, st.View.Acts)
	})
}

// Close does not wait if the record is bad, and returns ErrRecord.
func TestLeaseCloseBadRecord(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := g.open(2)
		g.put("nonsense")
		require.ErrorIs(t, all[0].Close(context.Background()), node.ErrRecord)
	})
}

// A computer that has slept for longer than the lease loses its locks within a second, and then
// renews its lease in time again.
func TestLeaseAfterSleep(t *testing.T) {
	for _, lease := range []time.Duration{leaseOf, time.Hour} {
		bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
			s := g.join(func(c *node.Config) { c.Lease = lease })
			held := s.acquire("x")
			s.StepWall(int64(lease))
			woke := time.Now()
			<-held.Context().Done()
			require.LessOrEqual(t, time.Since(woke), min(lease/20, time.Second))
			require.ErrorIs(t, held.Err(), node.ErrLease)
			held = s.acquire("x")
			time.Sleep(2 * lease)
			require.NoError(t, held.Release())
		})
	}
}

// An Observer is told why a hold was lost, even if Close comes in the last sixteenth of the lease.
func TestLeaseClosedInItsMargin(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		s := g.open(2)[0]
		held := s.acquire("x")
		s.StepWall(int64(s.Status().Lease.Remains))
		require.ErrorIs(t, held.Err(), node.ErrLease)
		s.close()
		require.Len(t, s.holds, 1)
		require.ErrorIs(t, s.holds[0].Err, node.ErrLease)
	})
}

// A closed node tells its Observer nothing.
func TestLeaseNothingAfterClose(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(2))
		all[0].acquire("x")
		require.NoError(t, all[0].link.Close())
		_, err := all[0].Mutex("y").Acquire(t.Context())
		_ = err
		time.Sleep(time.Second)
		all[0].cut.Store(true)
		_ = all[0].Close(t.Context())
		g.all = g.all[1:]
		all[0].mu.Lock()
		before := len(all[0].holds)
		all[0].mu.Unlock()
		time.Sleep(2 * leaseOf)
		all[0].Status()
		synctest.Wait()
		all[0].mu.Lock()
		defer all[0].mu.Unlock()
		require.Len(t, all[0].holds, before)
	})
}

// Strangers make a member load the record, but not more often than 50 times a second.
func TestLeaseStrangers(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		loads, _ := g.counted()
		s := g.join()
		time.Sleep(2 * leaseOf)
		before := loads.Load()
		for range 10000 {
			s.Stranger(77)
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, loads.Load()-before, int64(10*50))
	})
}

// The renewal of a lease in its last sixteenth brings back no lost lock, and ends no lock that was
// acquired since.
func TestLeaseRenewedInItsMargin(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		all := g.open(2)
		lost := all[0].acquire("x")
		all[0].StepWall(int64(all[0].Status().Lease.Remains))
		require.ErrorIs(t, lost.Err(), node.ErrLease)
		all[0].Stranger(77) // makes the node load the record
		time.Sleep(leaseOf / 100)
		held := all[0].acquire("y")
		time.Sleep(leaseOf / 8)
		require.NoError(t, held.Err())
		require.ErrorIs(t, lost.Err(), node.ErrLease)
		require.NoError(t, all[1].acquire("x").Release()) // x was given back
		require.NoError(t, held.Release())
	})
}

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

// LESSONS L55. A client holds a lock, and the wall clock of its member is set, once or again and again. The
// member may lose what it holds itself, but nobody is granted what the client still holds. When the clock is
// set no more, the lock is free soon after the client has lost it.
func TestWallClockOfMember(t *testing.T) {
	many := func(by time.Duration) (steps []time.Duration) {
		for range 30 {
			steps = append(steps, by)
		}
		return steps
	}
	for name, steps := range map[string][]time.Duration{ // one every 200 ms
		"a little":     {leaseOf / 20},
		"half a lease": {leaseOf / 2},
		"a margin":     {leaseOf - leaseOf/16},
		"a lease":      {leaseOf},
		"more":         {leaseOf + time.Second},
		"an hour":      {time.Hour},
		"twice":        {leaseOf * 2, leaseOf * 2},
		"back":         {-time.Hour},
		"back between": {leaseOf * 2, -time.Hour, leaseOf * 2},
		"many leases":  many(leaseOf),
		"many":         many(leaseOf / 4),
	} {
		for others := range 2 {
			t.Run(name, func(t *testing.T) {
				bubbleLease(t, central.New, func(t *testing.T, g *group) {
					d := make(servetest.Door)
					g.clients = &node.Clients{Listeners: []net.Listener{d}}
					s := g.join()
					for range others {
						g.clients = &node.Clients{Listeners: []net.Listener{make(servetest.Door)}}
						g.join()
					}
					require.NoError(t, s.Ready(t.Context()))
					c, err := client.New(client.Config{Members: []string{"s"}, Dial: d.Dial})
					require.NoError(t, err)
					defer c.Close()
					time.Sleep(leaseOf / 10)
					h, err := c.Mutex("x").Acquire(t.Context())
					require.NoError(t, err)
					time.Sleep(leaseOf / 10)
					next := g.all[others].acquireLater(t.Context(), "x")
					for _, by := range steps {
						s.StepWall(int64(by))
						time.Sleep(leaseOf / 50)
						synctest.Wait()
						require.True(t, len(next) == 0 || h.Err() != nil, "two hold the lock")
					}
					set := time.Now()
					select {
					case <-h.Context().Done():
					case <-next:
						t.Fatal("two hold the lock")
					case <-time.After(leaseOf * 2):
						require.NoError(t, h.Release())
					}
					lost := time.Now()
					got := granted(t, next)
					require.Error(t, h.Err())
					require.Less(t, time.Since(lost), leaseOf/2)
					require.Less(t, time.Since(set), leaseOf*3)
					require.NoError(t, got.Release())
				})
			})
		}
	}
}

// LESSONS L55. The wall clock of a member is set that holds a lock, or of one that waits for it: nobody is
// granted the lock before the holder has lost it and has had the time to stop that it always has.
func TestWallClockOfHolder(t *testing.T) {
	for name, steps := range map[string][]time.Duration{ // one every 200 ms
		"a lease":      {leaseOf},
		"an hour":      {time.Hour},
		"many":         {leaseOf, leaseOf, leaseOf, leaseOf, leaseOf, leaseOf, leaseOf, leaseOf},
		"back":         {-time.Hour},
		"back between": {leaseOf, -time.Hour, leaseOf},
	} {
		for who, stepped := range map[string]int{"holder": 0, "waiter": 1} {
			t.Run(name+", "+who, func(t *testing.T) {
				bubbleLease(t, central.New, func(t *testing.T, g *group) {
					all := g.open(2)
					held := all[0].acquire("x")
					ended, granted := make(chan time.Time, 1), make(chan time.Time, 1)
					go func() {
						<-held.Context().Done()
						ended <- time.Now()
					}()
					go func() {
						o := <-all[1].acquireLater(t.Context(), "x")
						granted <- time.Now()
						_ = o.held.Release()
					}()
					for _, by := range steps {
						all[stepped].StepWall(int64(by))
						time.Sleep(leaseOf / 50)
					}
					time.Sleep(leaseOf)
					lost, end, next := held.Release(), <-ended, <-granted
					if lost == nil {
						return
					}
					require.Zero(t, stepped, "the clock of a waiter has cost the holder the lock")
					require.GreaterOrEqual(t, next.Sub(end), leaseOf/leases.Margin)
				})
			})
		}
	}
}

// Until of a lost lock is when the lease has ended that covered it, or when the lock was lost if that was
// before, and stays so.
func TestUntilOfLostLock(t *testing.T) {
	for name, tt := range map[string]struct {
		lose func(s *member, held lock.Held)
		late time.Duration // after the end of the lease
	}{
		"lease ended":    {func(s *member, held lock.Held) { s.store.Outage(true); <-held.Context().Done() }, 0},
		"clock set":      {func(s *member, _ lock.Held) { s.StepWall(int64(s.Status().Lease.Remains + 3*time.Second)) }, 3 * time.Second},
		"closed":         {func(s *member, _ lock.Held) { s.close() }, 0},
		"a little later": {func(s *member, _ lock.Held) { s.StepWall(int64(s.Status().Lease.Remains)) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, central.New, func(t *testing.T, g *group) {
				s := g.open(1)[0]
				held := s.acquire("x")
				time.Sleep(leaseOf / 2)
				tt.lose(s, held)
				require.Error(t, held.Err())
				end := time.Now().Add(-tt.late)
				require.Equal(t, end, held.Until())
				s.store.Outage(false)
				time.Sleep(3 * leaseOf)
				require.Equal(t, end, held.Until())
				require.Error(t, held.Release())
				require.Equal(t, end, held.Until())
			})
		})
	}
}
