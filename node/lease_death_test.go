package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
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
				one, two, three := g.join(), g.join(), g.join()
				var members []dmutex.NodeID
				for _, s := range []*member{one, two, three} {
					require.NoError(t, s.Ready(t.Context()))
					members = append(members, s.Self())
				}
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
