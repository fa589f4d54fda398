package node_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
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

// A leader that returns in the last sixteenth of its lease leads alone.
func TestLeaseLeaderMargin(t *testing.T) {
	for name, end := range map[string]func(s *member){
		"outage":    func(s *member) { s.store.Outage(true) },
		"clock set": func(s *member) { s.StepWall(int64(2 * leaseOf)) },
		"clock set twice": func(s *member) {
			for range 2 {
				s.StepWall(int64(2 * leaseOf))
				time.Sleep(leaseOf / 100)
				s.Status() // reads the clock
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
				all := slices.Clone(g.open(2))
				var leads, most atomic.Int32
				lead := func(ctx context.Context, epoch uint64) error {
					most.Store(max(most.Load(), leads.Add(1)))
					<-ctx.Done()
					time.Sleep(leaseOf / 17) // nearly all of the time that it has
					leads.Add(-1)
					return nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 2)
				for _, s := range all {
					go func() { done <- s.Election("e").Campaign(ctx, lead) }()
					time.Sleep(leaseOf / 100)
					require.EqualValues(t, 1, leads.Load())
				}
				end(all[0])
				time.Sleep(leaseOf)
				all[0].store.Outage(false)
				cancel()
				<-done
				<-done
				require.EqualValues(t, 1, most.Load(), "leaders at the same instant")
			})
		})
	}
}

// If a transaction is released during an Acquire, the Acquire goes on when the lease ends.
func TestLeaseTransactionReleased(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(2))
		b := all[1].acquire("b")
		txn := all[0].Txn()
		_, err := txn.Acquire(t.Context(), "a")
		require.NoError(t, err)
		out := make(chan outcome, 1)
		go func() {
			h, err := txn.Acquire(t.Context(), "b")
			out <- outcome{h, err}
		}()
		synctest.Wait()
		require.NoError(t, txn.Release())
		all[0].store.Outage(true)
		time.Sleep(leaseOf)
		select {
		case o := <-out:
			require.NoError(t, b.Err())
			t.Errorf("two holders: Acquire returned %v, %v", o.held, o.err)
		default:
		}
		all[0].store.Outage(false)
		require.NoError(t, b.Release())
	})
}

// If a transaction loses a lock before or during an Acquire, the Acquire does not wait for another
// lock.
func TestLeaseTransactionLoses(t *testing.T) {
	for _, during := range []bool{false, true} {
		bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
			all := slices.Clone(g.open(2))
			b := all[1].acquire("b")
			txn := all[0].Txn()
			_, err := txn.Acquire(t.Context(), "a")
			require.NoError(t, err)
			lose := func() {
				all[0].StepWall(int64(2 * leaseOf))
				all[0].Status() // ends what is held
			}
			ctx := nodetest.ContextFor(t, leaseOf/2)
			if during {
				ctx = &askedContext{ctx, sync.OnceFunc(lose)}
			} else {
				lose()
			}
			_, err = txn.Acquire(ctx, "b")
			require.ErrorIs(t, err, node.ErrLease)
			require.NoError(t, b.Release())
		})
	}
}

// askedContext is a context that calls ask at each Err.
type askedContext struct {
	context.Context
	ask func()
}

func (c *askedContext) Err() error {
	c.ask()
	return c.Context.Err()
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

// Close waits for the function of a leader that has lost its lease.
func TestLeaseCloseLeader(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(1))
		running := false
		done := make(chan bool)
		go func() {
			_ = all[0].Election("e").Campaign(t.Context(), func(ctx context.Context, epoch uint64) error {
				running = true
				<-ctx.Done()
				time.Sleep(leaseOf)
				running = false
				return nil
			})
			done <- true
		}()
		synctest.Wait()
		all[0].store.Outage(true)
		time.Sleep(leaseOf * 3 / 2)
		all[0].store.Outage(false)
		all[0].close()
		was := running
		<-done
		require.False(t, was, "Close has returned, and the function of Campaign still runs")
	})
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
		counting := &countingStore{Store: &g.store}
		g.wrapStore = func(store.Store) store.Store { return counting }
		s := g.join()
		time.Sleep(2 * leaseOf)
		before := counting.loads.Load()
		for range 10000 {
			s.Stranger(77)
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, counting.loads.Load()-before, int64(10*50))
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

// A leader that is gone leads no more, even at a node that was in no active view with it. Such a
// node has heard of the leader before its own view acted, and then that view was replaced.
func TestLeaseUnknownLeader(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		s := g.open(1)[0]
		s.Hear("boss", 77, epochs.First(s.Status().View.Epoch))
		g.open(2)
		for who := range s.Election("boss").Observe(nodetest.ContextFor(t, leaseOf)) {
			require.Equal(t, dmutex.None, who)
		}
	})
}
