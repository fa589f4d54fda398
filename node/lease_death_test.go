package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/outagetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/transport"
)

// A mortal is a link on which a test sees peers die.
type mortal struct {
	transport.DynamicLink
	apart *time.Duration
	died  *func(peer dmutex.NodeID)
}

func (l mortal) WatchDeaths(apart time.Duration, died func(peer dmutex.NodeID)) {
	*l.apart, *l.died = apart, died
}

// openMortal starts a process with such a link.
func (g *leaseGroup) openMortal() (s *member, died func(peer dmutex.NodeID)) {
	s = &member{group: g, store: outagetest.New(g.t, &g.store, outagetest.Faults{})}
	apart := time.Duration(0)
	var err error
	s.Node, err = node.Open(g.t.Context(), s.store, mortal{s.newLink(), &apart, &died}, g.config(s))
	require.NoError(g.t, err)
	require.Equal(g.t, leaseOf/50, apart)
	g.all = append(g.all, s)
	return s, died
}

// A member that dies by the word of the link is excluded at once, and its locks are free
// when its lease has ended: a third and an eighth of a lease sooner.
func TestLeaseDeath(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *leaseGroup) {
		one, died := g.openMortal()
		two := g.start()
		two.acquire("x")
		waiting := one.acquireLater(t.Context(), "x")
		began := time.Now()
		two.crash()
		died(two.Self())
		time.Sleep(leaseOf / 100)
		require.Len(t, one.Status().View.Members, 1)
		o := <-waiting
		require.NoError(t, o.err)
		require.Less(t, time.Since(began), leaseOf*103/100)
		require.NoError(t, o.held.Release())
	})
}

// While the store does not answer, the member stays dead, though it spoke a moment ago.
func TestLeaseDeathWithoutStore(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *leaseGroup) {
		one, died := g.openMortal()
		two := g.start()
		two.acquire("x")
		one.store.Outage(true)
		two.crash()
		time.Sleep(leaseOf / 100) // frames are in flight
		died(two.Self())
		time.Sleep(leaseOf / 10)
		one.store.Outage(false)
		began := time.Now()
		for len(one.Status().View.Members) > 1 {
			time.Sleep(leaseOf / 100)
		}
		require.Less(t, time.Since(began), leaseOf/4) // what was asked before is given up by then
		require.Len(t, one.Status().View.Members, 1)
	})
}

// The word may be wrong, or come late: exclusion holds, and the member joins again. It
// counts for nothing against a member that has left, or was met since.
func TestLeaseDeathIsWrong(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *leaseGroup) {
		one, died := g.openMortal()
		two := g.start()
		require.NoError(t, two.acquire("x").Release())
		number := two.Self()
		died(9) // no member
		died(number)
		ctx, cancel := context.WithTimeout(t.Context(), 3*leaseOf)
		defer cancel()
		for two.Self() == number || !two.Status().View.Acts {
			require.NoError(t, ctx.Err())
			time.Sleep(leaseOf / 100)
		}
		require.Equal(t, 1, two.Status().Lease.Exclusions)
		died(number) // again
		require.NoError(t, two.acquire("x").Release())
		require.NoError(t, one.acquire("x").Release())

		before := one.Status().View.Epoch
		number = two.Self()
		two.close()
		died(number)
		began := time.Now()
		require.NoError(t, one.acquire("x").Release())
		require.Less(t, time.Since(began), leaseOf/10, "nobody was excluded")
		require.Greater(t, one.Status().View.Epoch, before)
	})
}

// A member that was taken for dead, and speaks before the store can be told so, is a member
// like the others.
func TestLeaseDeathIsDenied(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *leaseGroup) {
		one, died := g.openMortal()
		two := g.start()
		require.NoError(t, two.acquire("x").Release())
		time.Sleep(leaseOf) // until there is little to say
		one.store.Outage(true)
		died(two.Self())
		time.Sleep(leaseOf / 10 * 3)
		one.store.Outage(false)
		time.Sleep(leaseOf / 2)
		require.Zero(t, two.Status().Lease.Exclusions)
		require.Len(t, one.Status().View.Members, 2)
	})
}

// A process that starts right after another has died joins before the dead one is excluded. The
// dead one has said nothing of that view, so nobody has reported to it, and those that are left
// know which locks are free. It is the same with links that see deaths and those that do not.
func TestLeaseRestartAfterDeath(t *testing.T) {
	for _, deaths := range []bool{true, false} {
		t.Run(fmt.Sprintf("deaths %v", deaths), func(t *testing.T) {
			bubbleLease(t, central.New, func(t *testing.T, g *leaseGroup) {
				one, died := g.openMortal()
				two, diedToo := g.openMortal()
				three := g.start()
				var members []dmutex.NodeID
				for _, s := range []*member{one, two, three} {
					require.NoError(t, s.Ready(t.Context()))
					members = append(members, s.Self())
				}
				free, theirs := "", "x"
				for i := 0; free == ""; i++ {
					if name := fmt.Sprint("lock ", i); locks.Home(name, members) == two.Self() {
						free = name
					}
				}
				three.acquire(theirs)
				dead := three.Self()
				began := time.Now()
				three.crash()
				four := g.start()
				time.Sleep(leaseOf / 50)
				require.Len(t, one.Status().View.Members, 4, "it has joined")
				require.False(t, one.Status().View.Acts)
				most := leaseOf / 2 // until the others notice
				if deaths {
					died(dead)
					diedToo(dead)
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
