package node_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/internal/membership/lease"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
)

// A member is excluded at once when the link reports its death. Its locks are free when its lease
// has ended, a third and an eighth of a lease sooner than without the report.
func TestLeaseDeath(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		one, two := g.join(), g.join()
		require.Equal(t, leaseOf/50, one.host.Apart)
		two.acquire("x")
		waiting := one.acquireLater(t.Context(), "x")
		began := time.Now()
		two.crash()
		one.host.Died(two.Self())
		time.Sleep(leaseOf / 100)
		require.Len(t, one.Status().View.Members, 1)
		require.NoError(t, granted(t, waiting).Release())
		require.Less(t, time.Since(began), leaseOf*103/100)
	})
}

// All processes die, and others come, one after the other, to whom the links say at once that those in
// the record are dead. The first lock is granted when the leases have ended.
func TestLeaseDeathOfAll(t *testing.T) {
	for _, apart := range []time.Duration{0, leaseOf / 10, leaseOf / 3} {
		bubbleLease(t, central.Witnessed, func(t *testing.T, g *group) {
			former := slices.Clone(g.open(3))
			var numbers []dmutex.NodeID
			for _, s := range former {
				s.acquire(fmt.Sprint(s.Self()))
				numbers = append(numbers, s.Self())
			}
			for _, s := range former {
				s.crash()
			}
			began := time.Now()
			for i := range 3 {
				time.Sleep(time.Duration(i) * apart)
				s := g.join()
				time.Sleep(leaseOf / 40)
				for _, number := range numbers {
					s.host.Died(number)
				}
				require.NotZero(t, s.Self())
			}
			for _, s := range g.all {
				for _, number := range numbers {
					require.NoError(t, s.acquire(fmt.Sprint(number)).Release())
				}
			}
			require.Less(t, time.Since(began), leaseOf*115/100)
		})
	}
}

// A reported death counts even if the store does not answer and the member was heard a moment
// before: the member is excluded when the store is back.
func TestLeaseDeathWithoutStore(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		one, two := g.join(), g.join()
		two.acquire("x")
		one.store.Outage(true)
		two.crash()
		time.Sleep(leaseOf / 100) // frames are in flight
		one.host.Died(two.Self())
		time.Sleep(leaseOf / 10)
		one.store.Outage(false)
		began := time.Now()
		for len(one.Status().View.Members) > 1 {
			time.Sleep(leaseOf / 100)
		}
		require.Less(t, time.Since(began), leaseOf/4) // operations from the outage have timed out by then
		require.Len(t, one.Status().View.Members, 1)
	})
}

// The link may be wrong or late: the member is excluded, and rejoins. A report about a former
// number, about a member that has left, or about no member has no effect.
func TestLeaseDeathIsWrong(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		one, two := g.join(), g.join()
		require.NoError(t, two.acquire("x").Release())
		number := two.Self()
		one.host.Died(9) // no member
		one.host.Died(number)
		ctx := nodetest.ContextFor(t, 3*leaseOf)
		for two.Self() == number || !two.Status().View.Acts {
			require.NoError(t, ctx.Err())
			time.Sleep(leaseOf / 100)
		}
		require.Equal(t, 1, two.Status().Lease.Exclusions)
		one.host.Died(number) // again
		require.NoError(t, two.acquire("x").Release())
		require.NoError(t, one.acquire("x").Release())

		before := one.Status().View.Epoch
		number = two.Self()
		two.close()
		one.host.Died(number)
		began := time.Now()
		require.NoError(t, one.acquire("x").Release())
		require.Less(t, time.Since(began), leaseOf/10, "nobody was excluded")
		require.Greater(t, one.Status().View.Epoch, before)
	})
}

// A member that was reported dead stays a member if it is heard before the store can be told.
func TestLeaseDeathIsDenied(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		one, two := g.join(), g.join()
		require.NoError(t, two.acquire("x").Release())
		time.Sleep(leaseOf) // until frames are rare
		one.store.Outage(true)
		one.host.Died(two.Self())
		time.Sleep(leaseOf / 10 * 3)
		one.store.Outage(false)
		time.Sleep(leaseOf / 2)
		require.Zero(t, two.Status().Lease.Exclusions)
		require.Len(t, one.Status().View.Members, 2)
	})
}

// A process that starts right after a crash joins before the dead member is excluded. The dead
// member has sent nothing in that view, so nobody has reported to it, and the others know which
// locks are free. It does not matter whether the links see deaths.
func TestLeaseRestartAfterDeath(t *testing.T) {
	for _, deaths := range []bool{true, false} {
		t.Run(fmt.Sprintf("deaths %v", deaths), func(t *testing.T) {
			bubbleLease(t, central.New, func(t *testing.T, g *group) {
				all, members := slices.Clone(g.open(3)), g.members
				one, two, three := all[0], all[1], all[2]
				free, theirs := nameAt(two.Self(), members), "x"
				three.acquire(theirs)
				dead := three.Self()
				began := time.Now()
				three.crash()
				four := g.join()
				time.Sleep(leaseOf / 50)
				require.Len(t, one.Status().View.Members, 4, "four has joined")
				require.False(t, one.Status().View.Acts)
				most := leaseOf / 2 // until the others notice
				if deaths {
					one.host.Died(dead)
					two.host.Died(dead)
					most = leaseOf / 10
				}
				for _, s := range []*member{one, two, four} {
					require.NoError(t, s.acquire(free).Release())
				}
				require.Less(t, time.Since(began), most)
				require.NoError(t, four.acquire(theirs).Release())
				require.Greater(t, time.Since(began), leaseOf)
			})
		})
	}
}

// A crash delays only locks that the dead member may hold. The algorithm decides which locks wait
// for its lease. The other locks go on at once, and so do those that survivors hold.
func TestLeasePast(t *testing.T) {
	for _, a := range append(slices.Clone(algorithms.All), algorithms.Algorithm{Name: "default"}) {
		t.Run(a.Name, func(t *testing.T) {
			bubbleLease(t, a.Algorithm, func(t *testing.T, g *group) {
				all, members := slices.Clone(g.open(3)), g.members
				one, two, three := all[0], all[1], all[2]
				at := func(home *member, k int) string { return namesAt(home.Self(), members, k+1)[k] }
				theirs := at(one, 0)
				three.acquire(theirs)
				ours := two.acquire(at(three, 0))
				require.NoError(t, two.acquire(at(three, 1)).Release())
				time.Sleep(leaseOf / 10)

				began := time.Now()
				three.crash()
				one.host.Died(members[2])
				two.host.Died(members[2])
				time.Sleep(leaseOf / 1000) // a token in flight to a survivor would be lost now, and its lock would wait
				taken := func(s *member, name string, waits bool) {
					require.NoError(t, granted(t, s.acquireLater(t.Context(), name)).Release())
					if took := time.Since(began); waits {
						require.Greater(t, took, leaseOf)
						require.Less(t, took, leaseOf*104/100)
					} else {
						require.Less(t, took, leaseOf/20)
					}
				}
				if !a.Waits.Any {
					taken(one, at(two, 0), false)
					taken(two, at(one, 1), false)
				}
				if !a.Waits.Taken {
					taken(one, at(three, 1), false)
				}
				if !a.Waits.Begun {
					taken(one, at(three, 2), false)
				}
				time.Sleep(leaseOf / 50)
				require.NoError(t, one.Ready(nodetest.ContextFor(t, time.Millisecond)))
				require.NoError(t, ours.Err())
				later := one.acquireLater(t.Context(), at(three, 0))
				time.Sleep(leaseOf / 100)
				require.NoError(t, ours.Release())
				require.NoError(t, (<-later).held.Release(), "a lock that a survivor held")

				st := one.Mutex(theirs).Status()
				who := fmt.Sprintf("%s (node %v)", three.Status().Name, members[2])
				require.Equal(t, members[2:], st.Former)
				require.Equal(t, []string{who}, st.FormerNames)
				require.InDelta(t, leaseOf, st.Drains, float64(leaseOf/10))
				_, err := one.Mutex(theirs).TryAcquire(t.Context())
				require.ErrorIs(t, err, node.ErrBusy)
				require.ErrorContains(t, err, "waiting for the leases of former members "+who+", which may hold it: at most 9.")
				_, err = one.Mutex(theirs).Acquire(nodetest.ContextFor(t, leaseOf/10))
				require.ErrorContains(t, err, "waiting for the leases of former members "+who+", which may hold it: at most 8.")

				taken(one, theirs, true)
				taken(two, at(three, 2), true)
				require.Empty(t, one.Mutex(theirs).Status().Former)
			})
		})
	}
}

// A process that crashes again and again, and is excluded each time, does not delay locks that it
// never held. The lock of an earlier crash is free when the lease of that holder has ended.
func TestLeaseCrashLoop(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		one, two := g.join(), g.join()
		for _, s := range g.all {
			require.NoError(t, s.Ready(t.Context()))
		}
		name, k := "x0", 0
		for i := dmutex.NodeID(1); i < 20; i++ { // the home of the lock is the first member in all views
			if locks.Home(name, []dmutex.NodeID{one.Self(), one.Self() + i}) != one.Self() {
				k++
				name, i = "x"+strconv.Itoa(k), 0
			}
		}
		two.acquire(name)
		crash := func(s *member) {
			number := s.Self()
			s.crash()
			one.host.Died(number)
		}
		crash(two)
		waiting := one.acquireLater(t.Context(), name)
		for range 10 {
			s := g.join()
			time.Sleep(leaseOf / 8)
			crash(s)
			time.Sleep(leaseOf / 8)
		}
		require.NotEmpty(t, waiting)
		require.NoError(t, granted(t, waiting).Release())
	})
}

// A crash of one of three delays the others by at most these times, with each way to learn of it.
// A lock that the crashed member did not hold waits for its exclusion at most, and not for its lease.
// docs/performance.md has the table.
func TestLeaseCrashBounds(t *testing.T) {
	if racetest.On || os.Getenv("CI") == "" {
		t.Skip("it is about times, and takes seconds; set CI=1")
	}
	const change = 50 * time.Millisecond
	for name, tt := range map[string]struct {
		death, proof bool // the link tells of a death; the store proves it
		free, held   time.Duration
		home         time.Duration // if it is the coordinator or the witness of the lock
	}{
		"TCP":    {true, false, change, leaseOf * 11 / 10, change},
		"NATS":   {false, false, change, leaseOf * 31 / 20, leaseOf * 11 / 20},
		"a file": {false, true, change, 2 * change, 2 * change},
	} {
		for _, holds := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, holding %v", name, holds), func(t *testing.T) {
				bubbleLease(t, nil, func(t *testing.T, g *group) {
					if tt.proof {
						g.proving()
					}
					all, members := slices.Clone(g.open(3)), g.members
					dead := all[2]
					witness := func(home dmutex.NodeID) dmutex.NodeID { return members[(slices.Index(members, home)+1)%3] }
					of := make(map[dmutex.NodeID][]string) // locks, by their homes
					for _, home := range members {
						of[home] = namesAt(home, members, 3)
					}
					theirs := of[members[0]][0]
					ctx, stop := context.WithCancel(t.Context())
					var taking sync.WaitGroup
					var mu sync.Mutex
					var crashed time.Time
					longest := make(map[string]time.Duration)
					working, rest := context.WithCancel(ctx)
					for i, s := range all {
						ctx := ctx
						if i == 2 {
							ctx = working
						}
						for _, names := range of {
							for _, name := range names {
								taking.Go(func() {
									for ctx.Err() == nil {
										called := time.Now()
										h, err := s.Mutex(name).Acquire(ctx)
										if err != nil {
											return
										}
										mu.Lock()
										if !crashed.IsZero() {
											longest[name] = max(longest[name], min(time.Since(called), time.Since(crashed)))
										}
										mu.Unlock()
										require.NoError(t, h.Release())
										time.Sleep(10 * time.Millisecond)
									}
								})
							}
						}
					}
					time.Sleep(leaseOf / 10)
					rest()
					time.Sleep(leaseOf / 100) // until its last messages have arrived
					if holds {
						dead.acquire(theirs)
					}
					mu.Lock()
					crashed = time.Now()
					mu.Unlock()
					dead.crash()
					if tt.death {
						all[0].host.Died(members[2])
						all[1].host.Died(members[2])
					}
					time.Sleep(2 * leaseOf)
					stop()
					taking.Wait()
					for home, names := range of {
						for _, name := range names {
							bound := tt.free
							switch {
							case holds && name == theirs:
								bound = tt.held
							case home == members[2] || witness(home) == members[2]:
								bound = tt.home
							}
							require.NotZero(t, longest[name], name)
							require.LessOrEqual(t, longest[name], bound, "%s of %v", name, home)
						}
					}
				})
			})
		}
	}
}

// haunted is a link that keeps frames, and later delivers all of them after each frame that
// arrives, as if other goroutines of the link had delayed them.
type haunted struct {
	transport.DynamicLink
	mu    sync.Mutex
	keeps bool
	kept  []ghostFrame
}

type ghostFrame struct {
	from dmutex.NodeID
	data []byte
}

func (l *haunted) Open(host transport.Host) error {
	deliver := host.Deliver
	host.Deliver = linktest.Each(func(from dmutex.NodeID, frame []byte) {
		l.mu.Lock()
		var late []ghostFrame
		if l.keeps {
			l.kept = append(l.kept, ghostFrame{from, bytes.Clone(frame)})
		} else {
			late = slices.Clone(l.kept)
		}
		l.mu.Unlock()
		deliver(from, [][]byte{frame})
		for _, g := range late {
			deliver(g.from, [][]byte{g.data})
		}
	})
	return l.DynamicLink.Open(host)
}

// exclude takes a member out of the record, even while others change the record.
func (g *group) exclude(id dmutex.NodeID) {
	g.t.Helper()
	for id != dmutex.None {
		value, rev, err := g.store.Load(g.t.Context())
		require.NoError(g.t, err)
		var r lease.Record
		require.NoError(g.t, r.UnmarshalText(value))
		i := slices.IndexFunc(r.Members, func(e lease.Entry) bool { return e.Node == id })
		if i < 0 {
			return
		}
		r.Epoch++
		r.Unclean = r.Epoch
		r.Members = slices.Delete(r.Members, i, i+1)
		value, err = r.MarshalText()
		require.NoError(g.t, err)
		if _, err = g.store.Swap(g.t.Context(), value, rev); err == nil {
			return
		}
	}
}

// A process that rejoins after an exclusion has another life, with new sessions. Frames of its
// first stint that arrive in the second do not replace frames of the second. With one life for
// both, the report of the holder was lost: two nodes held a lock with one fence, or no node ever
// got it.
func TestLeaseStints(t *testing.T) {
	bubbleLease(t, lamport.New, func(t *testing.T, g *group) {
		a := g.open(1)[0]
		link := &haunted{keeps: true}
		g.wrapLink = func(l transport.DynamicLink) transport.DynamicLink { link.DynamicLink = l; return link }
		b := g.join()
		for _, s := range []*member{b, a, b} {
			require.NoError(t, s.acquire("x").Release())
		}
		number, life := b.Self(), b.Status().Life

		g.exclude(number)
		for b.Self() == number {
			time.Sleep(time.Millisecond)
		}
		link.mu.Lock()
		link.keeps = false
		link.mu.Unlock()
		require.NotEmpty(t, link.kept)
		began := time.Now()
		held := a.acquire("x")
		b.sees(2)
		require.Less(t, time.Since(began), leaseOf*3/2) // the wait for the lease of the first stint
		require.Greater(t, b.Self(), number)
		require.NotEqual(t, life, b.Status().Life)
		waiting := b.acquireLater(t.Context(), "x")
		time.Sleep(leaseOf)
		require.Empty(t, waiting, "two holders")
		require.NoError(t, held.Release())
		select {
		case o := <-waiting:
			require.NoError(t, o.err)
			require.Greater(t, o.held.Fence(), held.Fence())
		case <-time.After(leaseOf / 10):
			require.Fail(t, "the lock is stuck")
		}
		for _, s := range []*member{a, b} {
			require.NoError(t, s.Status().Err)
		}
	})
}
