package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// LESSONS L11, L22, L59, L61, L66, L67, L68: a crashed member rejoins when it restarts. The locks
// that it held are free at once, the others keep theirs, and fences rise.
func TestRestart(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		kept, lost := g.acquire(1, "kept"), g.acquire(2, "lost")
		waiting := g.acquireLater(t.Context(), 3, "lost")
		g.crash(2)
		time.Sleep(time.Minute)
		require.Empty(t, waiting, "the lock of a process that may be alive was granted")
		g.start(2)
		h := granted(t, waiting)
		require.Greater(t, h.Fence(), lost.Fence())
		require.NoError(t, kept.Err())
		later := g.acquireLater(t.Context(), 2, "kept")
		time.Sleep(time.Second)
		require.Empty(t, later, "two holders")
		require.NoError(t, kept.Release())
		again := <-later
		require.NoError(t, again.err)
		require.Greater(t, again.held.Fence(), kept.Fence())
		require.NoError(t, again.held.Release())
		require.NoError(t, h.Release())
	})
}

// A lock that is released during a view change is free after it.
func TestReleaseWhileTheGroupChanges(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(1, "x")
		waiting := g.acquireLater(t.Context(), 3, "x")
		g.crash(2)
		g.net.Cut(2, 3) // 3 does not hear 2's report, and does not act
		g.start(2)
		time.Sleep(time.Second)
		require.NoError(t, held.Release())
		time.Sleep(time.Second)
		g.net.Heal()
		require.NoError(t, granted(t, waiting).Release())
	})
}

// LESSONS L19, L53: Close takes a few round trips, whatever the others do, and the others go on.
func TestLeave(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(4)
		held := g.acquire(3, "x")
		mine := g.acquire(1, "y")
		quitting, cancel := context.WithCancel(t.Context())
		withdrawn := g.acquireLater(quitting, 1, "x")
		cancel()
		require.ErrorIs(t, (<-withdrawn).err, context.Canceled)
		waiting, next := g.acquireLater(t.Context(), 2, "x"), g.acquireLater(t.Context(), 4, "y")
		begun := time.Now()
		require.NoError(t, g.node(1).Close(t.Context()))
		require.Less(t, time.Since(begun), 100*time.Millisecond)
		require.ErrorIs(t, mine.Err(), node.ErrLost)
		h := granted(t, next)
		require.Greater(t, h.Fence(), mine.Fence())
		require.NoError(t, h.Release())
		require.NoError(t, held.Err())
		require.NoError(t, held.Release())
		h = granted(t, waiting)
		require.Greater(t, h.Fence(), held.Fence())
		require.NoError(t, h.Release())
		g.start(1) // and it comes back
		require.NoError(t, g.acquire(1, "x").Release())
		require.Equal(t, []dmutex.NodeID{1, 2, 3, 4}, g.node(3).Status().View.Members)
	})
}

// LESSONS L70: all may leave, at once or one after another; the last needs nobody.
func TestAllLeave(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(4)
		require.NoError(t, g.acquire(2, "x").Release())
		begun := time.Now()
		require.NoError(t, g.node(1).Close(t.Context()))
		errs := make(chan error)
		for _, id := range []dmutex.NodeID{2, 3} {
			go func() { errs <- g.node(id).Close(t.Context()) }()
		}
		require.NoError(t, <-errs)
		require.NoError(t, <-errs)
		require.Less(t, time.Since(begun), time.Second)
		require.NoError(t, g.acquire(4, "x").Release())
		begun = time.Now()
		require.NoError(t, g.node(4).Close(t.Context()))
		require.Less(t, time.Since(begun), time.Second)
	})
}

// LESSONS L59: fences rise even if all members were killed and started again.
func TestRestartOfAll(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		nodetest.Today()
		g.open(3)
		last := g.acquire(1, "x").Fence()
		for range 3 {
			for _, id := range g.members {
				g.crash(id)
			}
			time.Sleep(100 * time.Millisecond)
			for _, id := range g.members {
				g.start(id)
			}
			h := g.acquire(2, "x")
			require.Greater(t, h.Fence(), last)
			last = h.Fence()
		}
	})
}

// LESSONS L66: Evict lets the others go on without a crashed member, and the member may come back.
func TestEvict(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		lost := g.acquire(1, "x")
		g.crash(1)
		waiting := g.acquireLater(t.Context(), 2, "x")
		time.Sleep(time.Minute)
		began := time.Now()
		require.NoError(t, g.node(3).Evict(t.Context(), 1))
		require.Less(t, time.Since(began), time.Second, "Evict needs no second try")
		h := granted(t, waiting)
		require.Greater(t, h.Fence(), lost.Fence())
		require.NoError(t, h.Release())
		g.start(1)
		require.NoError(t, g.acquire(1, "x").Release())
		require.ErrorIs(t, g.node(2).Evict(t.Context(), 2), dmutex.ErrMisuse)
		require.ErrorIs(t, g.node(2).Evict(t.Context(), 7), dmutex.ErrMisuse)
	})
}

// The duration of a view change counts from the last grant, even if a member crashed during the
// change and another view had to follow.
func TestTookOfAnInterruptedChange(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		time.Sleep(time.Minute)
		g.freeze()
		g.crash(3)
		time.Sleep(time.Minute)
		g.net.Heal()
		g.start(3)
		require.NoError(t, g.acquire(3, "x").Release())
		require.Greater(t, g.node(1).Status().View.Took, time.Minute)
	})
}

// The time in which a process waits for the first members is no part of a view change.
func TestTookOfTheFirstView(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		g.start(1)
		time.Sleep(time.Minute)
		g.start(2)
		require.NoError(t, g.acquire(1, "x").Release())
		require.Less(t, g.node(1).Status().View.Took, time.Second)
	})
}

// Evict is about the process that the operator saw. If that member restarts while Evict waits for
// another, its new process is not evicted.
func TestEvictThoughRestarted(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		g.crash(1)
		g.crash(3)
		evicted := make(chan error)
		go func() { evicted <- g.node(2).Evict(t.Context(), 1) }()
		time.Sleep(5 * time.Second)
		g.start(1)
		err := <-evicted
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, "member 1 has restarted")
		g.start(3)
		require.NoError(t, g.acquire(1, "x").Release())
		require.Equal(t, []dmutex.NodeID{1, 2, 3}, g.node(2).Status().View.Members)
	})
}

// A member that answers is not dead: Evict says so, and the group goes on with it.
func TestEvictTheLiving(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(4)
		held := g.acquire(4, "x")
		g.net.Pause(2)
		evicted := make(chan error)
		go func() { evicted <- g.node(1).Evict(t.Context(), 4) }()
		synctest.Wait()
		g.net.Resume(2) // 4 has answered before it
		err := <-evicted
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, "member 4 has answered, so its process is not dead: end it first")
		require.NoError(t, held.Release())
		require.NoError(t, g.acquire(1, "x").Release())
		require.Equal(t, []dmutex.NodeID{1, 2, 3, 4}, g.node(1).Status().View.Members)
	})
}

// Two crashed members are evicted together, because each eviction alone would wait for the other
// member. Evict also works in a group that does not act because a member crashed during a view
// change.
func TestEvictTwo(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(4)
		lost := g.acquire(4, "x")
		waiting := g.acquireLater(t.Context(), 1, "x")
		g.crash(3)
		g.net.Cut(4, 1)
		g.net.Cut(4, 2)
		g.start(3) // 1 and 2 wait for a view with 4
		time.Sleep(time.Second)
		g.crash(4)
		g.crash(3)
		time.Sleep(time.Second)
		require.NoError(t, g.node(2).Evict(t.Context(), 3, 4))
		h := granted(t, waiting)
		require.Greater(t, h.Fence(), lost.Fence())
		require.NoError(t, h.Release())
		require.Equal(t, []dmutex.NodeID{1, 2}, g.node(1).Status().View.Members)
	})
}

// If the algorithm refuses a view, nothing is granted, and errors say why, until the other members
// are back.
func TestViewThatTheAlgorithmRefuses(t *testing.T) {
	all := func(dmutex.NodeID) []dmutex.NodeID { return []dmutex.NodeID{1, 2, 3} }
	bubble(t, strict, maekawa.With(all), memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(1, "x")
		require.NoError(t, g.node(3).Close(t.Context()))
		_, err := g.mutex(2, "x").Acquire(nodetest.ContextFor(t, time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, "[1 2]")
		require.NoError(t, held.Err())
		require.NoError(t, held.Release())
		g.start(3)
		require.NoError(t, g.acquire(2, "x").Release())
	})
}

// A member that restarts costs the group few epochs, and not one for each member that asks for the
// view. Epochs must not overtake the clock.
func TestRestartTakesFewEpochs(t *testing.T) {
	for _, delay := range []time.Duration{0, 50 * time.Microsecond, 200 * time.Microsecond, time.Millisecond} {
		for killed := dmutex.NodeID(1); killed <= 5; killed++ {
			cfg := memlink.Config{Seed: uint64(killed), MinDelay: delay, MaxDelay: delay * 3 / 2}
			bubble(t, strict, ricart.New, cfg, func(t *testing.T, g *group) {
				g.open(5)
				time.Sleep(10 * time.Second)
				before := g.node(killed).Status().View.Epoch
				g.crash(killed)
				time.Sleep(20 * time.Millisecond)
				began := time.Now()
				n := g.start(killed)
				require.NoError(t, n.Ready(t.Context()))
				require.LessOrEqual(t, n.Status().View.Epoch, before+5, "member %v, %v one way", killed, delay)
				require.Less(t, time.Since(began), time.Second)
			})
		}
	}
}

// freeze leaves node 1 with an installed but inactive view: the report of node 3, just
// restarted, never reaches it.
func (g *group) freeze() {
	g.crash(3)
	g.net.Cut(3, 1)
	g.start(3)
	time.Sleep(2 * time.Second)
	require.False(g.t, g.node(1).Status().View.Acts, "%+v", g.node(1).Status())
}

// A call made during a view change completes after it. A call canceled during the change
// leaves nothing behind.
func TestUseWhileTheGroupChanges(t *testing.T) {
	for _, use := range []struct {
		name string
		do   func(ctx context.Context, g *group) error // at node 1, which knows that 2 holds "held"
	}{
		{"Acquire", func(ctx context.Context, g *group) error {
			h, err := g.mutex(1, "x").Acquire(ctx)
			if err != nil {
				return err
			}
			return h.Release()
		}},
		{"TryAcquire", func(ctx context.Context, g *group) error {
			h, err := g.mutex(1, "x").TryAcquire(ctx)
			if err != nil {
				return err
			}
			return h.Release()
		}},
		{"TryAcquire, busy", func(ctx context.Context, g *group) error {
			if _, err := g.mutex(1, "held").TryAcquire(ctx); !errors.Is(err, node.ErrBusy) {
				return fmt.Errorf("not busy: %w", err)
			}
			return nil
		}},
		{"Txn", func(ctx context.Context, g *group) error {
			txn, err := g.node(1).AcquireAll(ctx, "x", "y")
			if err != nil {
				return err
			}
			return txn.Release()
		}},
		{"Campaign", func(ctx context.Context, g *group) error {
			return g.node(1).Election("x").Campaign(ctx, func(context.Context, uint64) error { return nil })
		}},
		{"Ask", func(ctx context.Context, g *group) error { return g.mutex(1, "held").Ask(ctx) }},
	} {
		t.Run(use.name, func(t *testing.T) {
			each(t, strict, func(t *testing.T, g *group) {
				g.open(3)
				held := g.acquire(2, "held")
				kept := g.acquire(1, "kept")
				g.freeze()
				begin := func(ctx context.Context) <-chan error {
					done := make(chan error, 1)
					go func() { done <- use.do(ctx, g) }()
					synctest.Wait()
					return done
				}
				quit, cancel := context.WithCancel(t.Context())
				canceled, first, second := begin(quit), begin(t.Context()), begin(t.Context())
				cancel()
				err := <-canceled
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorContains(t, err, "waiting for members 3 (web-3, silent for ")
				require.NoError(t, kept.Release())
				time.Sleep(time.Second)
				require.Empty(t, first)
				require.NoError(t, held.Err())

				last := nodetest.ContextFor(t, time.Hour)
				acts := make(chan error, 1)
				go func() { // exactly when the view becomes active
					err := g.node(1).Ready(last)
					if err == nil {
						err = use.do(last, g)
					}
					acts <- err
				}()
				g.net.Heal()
				for _, done := range []<-chan error{first, second, acts} {
					if err := <-done; err != nil { // concurrent tries may all find the lock busy
						require.Equal(t, "TryAcquire", use.name)
						require.ErrorIs(t, err, node.ErrBusy)
					}
				}
				synctest.Wait()
				require.Equal(t, use.name == "Ask", isAsked(held))
				require.NoError(t, held.Release())
				require.NoError(t, g.acquire(3, "kept").Release())
				require.NoError(t, g.acquire(3, "held").Release())
				time.Sleep(time.Minute)
				for _, name := range []string{"x", "y", "held", "kept", "election/x"} {
					require.Equal(t, node.MutexStatus{}, g.mutex(1, name).Status())
				}
			})
		})
	}
}

// An observation continues through a view change, and reports the leader that was elected
// meanwhile.
func TestObserveWhileTheGroupChanges(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		seen := g.observe(1, "x")
		g.freeze()
		late := g.observe(1, "x")
		leader := g.campaignLater(t.Context(), 2, "x")
		require.Empty(t, *seen)
		g.net.Heal()
		pass(time.Minute)
		require.NotNil(t, leader.ctx)
		require.Equal(t, []sight{{2, leader.epoch}}, *seen)
		require.Equal(t, *seen, *late)
		leader.returns(t)
	})
}

// LESSONS L54: the error of a call that ends while a member is missing names that member, and says
// what is known about it.
func TestErrorsNameTheMissing(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		g.crash(3)
		g.net.Cut(3, 1)
		g.net.Cut(3, 2)
		time.Sleep(time.Minute)
		left := g.node(2)
		g.node(2).forget()
		err := left.Close(nodetest.ContextFor(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "node: close: members [3")

		g.start(3)
		g.start(2) // the view waits for 3
		time.Sleep(time.Minute)
		m := g.mutex(1, "x")
		_, err = m.Acquire(nodetest.ContextFor(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `lock "x"`)
		require.ErrorContains(t, err, "waiting for")
		require.ErrorContains(t, err, "3 (web-3, silent for")
		err = g.node(1).Evict(nodetest.ContextFor(t, time.Second/2), 2)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "3 (web-3, silent for")
		g.net.Heal()
		require.NoError(t, g.acquire(1, "x").Release())
	})
}

// Many holds are carried over in reports of many parts, even if the parts exceed what may be in
// flight to a peer.
func TestManyHoldsAreCarriedOver(t *testing.T) {
	count := 20_000
	if racetest.On || testing.Short() {
		count = 5_000
	}
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		name := func(i int) string { return fmt.Sprintf("%0240d", i) } // together more than a send buffer
		var held []lock.Held
		for i := range count {
			held = append(held, g.acquire(1, name(i)))
		}
		g.crash(3)
		g.net.Cut(1, 2) // 1 keeps reporting what it holds, and gets no acknowledgment
		g.start(3)
		time.Sleep(time.Minute)
		g.net.Heal()
		require.NoError(t, g.node(3).Ready(t.Context()))
		for i := 0; i < count; i += count / 50 {
			require.NoError(t, held[i].Err())
			_, err := g.mutex(3, name(i)).TryAcquire(t.Context())
			require.ErrorIs(t, err, node.ErrBusy)
		}
		waiting := g.acquireLater(t.Context(), 2, name(count-1))
		for _, h := range held {
			require.NoError(t, h.Release())
		}
		got := granted(t, waiting)
		require.Greater(t, got.Fence(), held[count-1].Fence())
		require.NoError(t, got.Release())
		for _, n := range g.all {
			require.NoError(t, n.Status().Err)
			require.Zero(t, n.Status().Refused)
			require.EqualValues(t, 2, n.Status().View.Changes+map[bool]uint64{true: 1}[n.Self() == 3])
		}
	})
}

// Messages for a view that is not active yet are buffered.
func TestEarly(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		g.freeze()
		require.NoError(t, g.node(2).Ready(t.Context()))
		waiting := g.acquireLater(t.Context(), 2, "x")
		g.net.Heal()
		require.NoError(t, granted(t, waiting).Release())
	})
}

// LESSONS L64, L66: an evicted process that is alive notices when it hears from the others. It has
// lost what it held.
func TestEvictedAlive(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		lost := g.acquire(1, "x")
		g.net.Partition([]dmutex.NodeID{1}, []dmutex.NodeID{2, 3})
		require.NoError(t, g.node(2).Evict(t.Context(), 1))
		next := g.acquire(2, "x")
		require.Greater(t, next.Fence(), lost.Fence())
		require.NoError(t, lost.Err(), "it cannot know yet")
		g.net.Heal()
		time.Sleep(10 * time.Second)
		require.ErrorIs(t, lost.Err(), node.ErrEvicted)
		require.ErrorIs(t, lost.Err(), node.ErrLost)
		require.ErrorIs(t, lost.Err(), node.ErrStopped)
		require.ErrorIs(t, g.node(1).Status().Err, node.ErrEvicted)
		require.ErrorIs(t, g.node(1).Status().Err, node.ErrStopped)
		_, err := g.mutex(1, "x").Acquire(t.Context())
		require.ErrorIs(t, err, node.ErrEvicted)
		require.NoError(t, next.Release())
		require.NoError(t, g.acquire(3, "x").Release())
	})
}

// Members on different continents are restarted one after the other, as in a rolling deploy. Each is
// back within twenty round trips and some seconds. See also TestReturnFromFar of package membership.
func TestRollingRestartFar(t *testing.T) {
	for _, trip := range []time.Duration{0, 250, 1000, 3000, 5000} { // in milliseconds
		for _, jitter := range []time.Duration{0, 30} { // percent
			for n := 2; n <= 3; n++ {
				trip := trip * time.Millisecond
				cfg := memlink.Config{MinDelay: trip / 200 * (100 - jitter), MaxDelay: trip / 200 * (100 + jitter)}
				t.Run(fmt.Sprintf("%d members, %v, jitter %d %%", n, trip, jitter), func(t *testing.T) {
					bubble(t, strict, central.New, cfg, func(t *testing.T, g *group) {
						g.open(n)
						for _, id := range g.members {
							require.NoError(t, g.node(id).Close(t.Context()))

							g.start(id)
							require.NoError(t, g.node(id).Ready(nodetest.ContextFor(t, 5*time.Second+20*trip)))
							require.NoError(t, g.acquire(id, "x").Release())
							for _, other := range g.members {
								require.Len(t, g.node(other).Status().View.Members, n)
							}
						}
					})
				})
			}
		}
	}
}

// A lock that uses up the fences of its epoch asks for another view by itself, and its
// callers notice nothing: every fence is higher than the last.
func TestFencesUsedUp(t *testing.T) {
	for _, a := range algorithms.All {
		t.Run(a.Name, func(t *testing.T) {
			nearTheEnd := func(s dmutex.Start) (dmutex.Machine, error) {
				if s.Limit > 0 {
					s.Known = max(s.Known, s.Limit-20)
				}
				return a.Algorithm(s)
			}
			bubble(t, strict, nearTheEnd, memlink.Config{}, func(t *testing.T, g *group) {
				nodetest.Today()
				g.open(3)
				before, last := g.node(1).Status().View.Changes, uint64(0)
				for i := range 60 {
					held := g.acquire(dmutex.NodeID(i%3+1), "x")
					require.Greater(t, held.Fence(), last)
					last = held.Fence()
					require.NoError(t, held.Release())
				}
				require.GreaterOrEqual(t, g.node(1).Status().View.Changes, before+3)
			})
		})
	}
}

// If epochs are more than a minute ahead of a member's clock, its log and its Status say so.
func TestAhead(t *testing.T) {
	for ahead, says := range map[time.Duration]bool{30 * time.Second: false, 2 * time.Hour: true} {
		bubble(t, strict, algorithms.All[0].Algorithm, memlink.Config{}, func(t *testing.T, g *group) {
			nodetest.Today()
			var log nodetest.Journal
			g.members = []dmutex.NodeID{1, 2}
			g.start(1)
			clock := time.Since(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) + ahead
			g.startWith(2, node.Config{
				Algorithm: g.algorithm, Fence: epochs.First(uint64(clock.Milliseconds())), Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			held := g.acquire(1, "x")
			require.Greater(t, epochs.Of(held.Fence()), uint64(clock.Milliseconds())-1)
			require.NoError(t, held.Release())
			for _, n := range g.all {
				require.InDelta(t, map[bool]time.Duration{true: ahead}[says], n.Status().View.Ahead, float64(time.Second))
			}
			g.close(2)
			require.Equal(t, says, strings.Contains(log.String(), "epochs are ahead of the clock"), &log)
		})
	}
}

// Done is closed by Close, and when the node stops by itself.
func TestDone(t *testing.T) {
	bubble(t, strict, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		for _, n := range g.all {
			select {
			case <-n.Done():
				t.Fatal("the node is done")
			default:
			}
		}
		g.net.Partition([]dmutex.NodeID{1}, []dmutex.NodeID{2, 3})
		require.NoError(t, g.node(2).Evict(t.Context(), 1))
		g.net.Heal()
		held := g.acquire(2, "x") // so that frames are exchanged
		go func() { _, _ = g.mutex(1, "x").Acquire(t.Context()) }()
		<-g.node(1).Done()
		require.ErrorIs(t, g.node(1).Status().Err, node.ErrStopped)
		require.ErrorIs(t, g.node(1).Status().Err, node.ErrEvicted)
		require.NoError(t, held.Release())

		require.NoError(t, g.node(3).Close(t.Context()))
		<-g.node(3).Done()
		require.ErrorIs(t, g.node(3).Status().Err, node.ErrClosed)
	})
}

// LESSONS L12: a holder whose process is paused, as when a computer sleeps, or that is heard but does not hear, or the
// reverse, stays the holder: no other node gets the lock, however long it takes. Afterwards all go on.
func TestPause(t *testing.T) {
	for name, away := range map[string]func(n *memlink.Network, id, other dmutex.NodeID){
		"paused":      func(n *memlink.Network, id, _ dmutex.NodeID) { n.Pause(id) },
		"not heard":   func(n *memlink.Network, id, other dmutex.NodeID) { n.Cut(id, other) },
		"not hearing": func(n *memlink.Network, id, other dmutex.NodeID) { n.Cut(other, id) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, strict, func(t *testing.T, g *group) {
				g.open(3)
				for _, holder := range g.members {
					held := g.acquire(holder, "x")
					var waiting []<-chan outcome
					for _, id := range g.members {
						if id != holder {
							away(g.net, holder, id)
							waiting = append(waiting, g.acquireLater(t.Context(), id, "x"))
						}
					}
					time.Sleep(time.Hour)
					require.Empty(t, waiting[0])
					require.Empty(t, waiting[1])
					g.net.Resume(holder)
					g.net.Heal()
					time.Sleep(time.Minute)
					require.Empty(t, waiting[0])
					require.Empty(t, waiting[1])
					require.NoError(t, held.Err())
					require.NoError(t, held.Release())
					requireTurns(t, held.Fence(), waiting)
				}
			})
		})
	}
}

// When a node notices that its link was closed from outside, waiting calls return and held locks
// are lost. Close does not wait for a farewell that nobody can hear. (L31)
func TestLinkClosedBefore(t *testing.T) {
	bubble(t, strict, nil, memlink.Config{}, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(3))
		held := g.acquire(2, "x")
		for _, s := range all {
			require.NoError(t, s.link.Close())
		}
		_, err := all[1].Mutex("y").Acquire(t.Context())
		require.ErrorIs(t, err, transport.ErrClosed)
		require.ErrorIs(t, all[1].Status().Err, transport.ErrClosed)
		require.ErrorIs(t, all[1].Status().Err, node.ErrStopped)
		require.ErrorIs(t, held.Err(), node.ErrLost, "the others may go on with another process under its number")
		require.ErrorIs(t, held.Release(), transport.ErrClosed)
		begun := time.Now()
		for _, s := range all { // so far only the second has noticed
			require.ErrorIs(t, s.Close(t.Context()), transport.ErrClosed)
		}
		require.Less(t, time.Since(begun), time.Second)
	})
}

// requireTurns requires that the waiters get the lock one after another, with the next fences.
func requireTurns(t *testing.T, fence uint64, waiting []<-chan outcome) {
	t.Helper()
	var fences []uint64
	for range waiting {
		var o outcome
		select { // whichever is first
		case o = <-waiting[0]:
		case o = <-waiting[len(waiting)-1]:
		}
		require.NoError(t, o.err)
		fences = append(fences, o.held.Fence())
		require.NoError(t, o.held.Release())
	}
	for i, f := range fences {
		require.Equal(t, fence+uint64(i)+1, f)
	}
}
