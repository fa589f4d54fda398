package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/internal/kit/storm"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// caller is a caller of this process.
func (s *member) caller(names int) storm.Caller {
	return storm.Caller{
		Who: fmt.Sprintf("%s (%p)", s.Status().Name, s), Names: names,
		Lock: func(name string) lock.Mutex { return s.Mutex(name) },
	}
}

// upTo draws a duration below the given one, in one of so many calls, and else returns the other.
func upTo(most time.Duration, of int, other time.Duration) func(*rand.Rand) time.Duration {
	return func(luck *rand.Rand) time.Duration {
		if luck.IntN(of) > 0 {
			return other
		}
		return nodetest.UpTo(luck, most)
	}
}

// LESSONS L19, L25, L80: many callers over a bad network. Holds do not overlap, fences rise, every
// caller that does not cancel is served, and nothing is left behind. It lasts a second of the bubble's time, half of
// one under the race detector or where CI is not set, and with DMUTEX_LONG=1 three minutes.
func TestSoak(t *testing.T) {
	length := time.Second
	switch {
	case os.Getenv("DMUTEX_LONG") != "":
		length = 3 * time.Minute
	case racetest.On || quicktest.On():
		length = time.Second / 2
	}
	cfg := memlink.Config{Seed: 1, Loss: 0.1, Duplicate: 0.1, MaxDelay: 5 * time.Millisecond}
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) {
			bubble(t, strict, a.Algorithm, cfg, func(t *testing.T, g *group) {
				soak(g, storm.New(t, 1), func() { time.Sleep(length) })
			})
		})
	}
}

// LESSONS L12: the same while nodes are paused and routes are cut in one direction, again and again.
func TestSoakPausesAndCuts(t *testing.T) {
	n := 12
	switch {
	case os.Getenv("DMUTEX_LONG") != "":
		n = 200
	case racetest.On || quicktest.On() || testing.Short():
		n = 4
	}
	cfg := memlink.Config{Seed: 2, Loss: 0.05, MaxDelay: time.Millisecond}
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) {
			bubble(t, strict, a.Algorithm, cfg, func(t *testing.T, g *group) {
				s := storm.New(t, 0)
				some := func() dmutex.NodeID { return dmutex.NodeID(1 + s.Luck.IntN(5)) }
				heal := func() {
					for _, id := range g.members {
						g.net.Resume(id)
					}
					g.net.Heal()
				}
				soak(g, s, func() {
					s.Blow(n, func() time.Duration { return s.UpTo(time.Second / 2) },
						storm.Fault{Name: "a process is paused", Rate: 2, Do: func() { g.net.Pause(some()) }},
						storm.Fault{Name: "a route is cut", Rate: 4, Do: func() { g.net.Cut(some(), some()) }},
						storm.Fault{Name: "all is well", Rate: 3, Do: heal})
					heal()
				})
			})
		})
	}
}

// soak lets callers of five members take locks while f runs, and until each member is served once more. Under the
// race detector, to which a grant costs ten times as much, they are fewer.
func soak(g *group, s *storm.Storm, f func()) {
	const names = 100
	callers := 20
	if racetest.On {
		callers = 5
	}
	ctx, stop := context.WithCancel(g.t.Context())
	var who []string
	for _, m := range g.open(5) {
		c := m.caller(names)
		c.Patience, c.Hold = upTo(20*time.Millisecond, 4, time.Hour), upTo(time.Millisecond, 1, 0)
		for range callers {
			s.Go(ctx, c)
		}
		who = append(who, c.Who)
	}
	f()
	s.Goes(time.Minute, who...)
	stop()
	s.Wait()
	g.t.Logf("%d grants", s.Count())
	time.Sleep(time.Minute) // withdrawn requests run their course
	for _, m := range g.all {
		require.NoError(g.t, m.Status().Err)
		for k := range names {
			require.Equal(g.t, node.MutexStatus{}, m.Mutex(fmt.Sprint("lock ", k)).Status())
		}
	}
}

// LESSONS L19, L25, L64, L66, L68, L80: many callers in a group whose members crash, restart, close
// and come back, over a network that loses, repeats and reorders frames. In the end everybody is served and
// nothing is left behind. DMUTEX_LONG=1 takes ten seeds of three minutes each, by the bubble's clock.
func TestSoakChanges(t *testing.T) {
	seeds, n := 1, 20
	switch {
	case os.Getenv("DMUTEX_LONG") != "":
		seeds, n = 10, 120
	case racetest.On || quicktest.On():
		seeds, n = 1, 7
	}
	for _, a := range algorithms.Some() {
		for _, size := range []int{3, 5} {
			t.Run(fmt.Sprint(a.Name, "/", size), func(t *testing.T) {
				for _, seed := range storm.Seeds(t, seeds) {
					bad := memlink.Config{Seed: seed, Loss: 0.05, Duplicate: 0.05, MaxDelay: 3 * time.Millisecond}
					bubble(t, strict, a.Algorithm, bad, func(t *testing.T, g *group) {
						nodetest.Today()
						soakChanges(g, storm.New(t, seed), dmutex.NodeID(size), n)
					})
				}
			})
		}
	}
}

func soakChanges(g *group, s *storm.Storm, size dmutex.NodeID, n int) {
	const names = 3
	stops := make(map[dmutex.NodeID]func()) // of the processes that are there
	who := make(map[dmutex.NodeID]string)
	begin := func(id dmutex.NodeID) {
		if stops[id] != nil {
			return
		}
		m := g.start(id)
		ctx, stop := context.WithCancel(g.t.Context())
		c := m.caller(names)
		c.Patience, c.Hold, c.Tries = upTo(50*time.Millisecond, 4, time.Hour), upTo(5*time.Millisecond, 1, 0), 4
		c.Ends = func(err error) bool { return errors.Is(err, node.ErrClosed) }
		c.Loses = c.Ends
		c.Also = []func(context.Context, *rand.Rand) error{
			func(ctx context.Context, luck *rand.Rand) error {
				txn, err := m.AcquireAll(ctx, "lock 0", "lock 1", "lock 2")
				if err != nil {
					return err
				}
				name := fmt.Sprint("lock ", luck.IntN(names))
				h, long := txn.Held(name), c.Hold(luck)
				s.Judge(storm.Stay{Who: c.Who, Lock: name, Fence: h.Fence(), Hold: h}, func() { time.Sleep(long) })
				return txn.Release()
			},
			func(ctx context.Context, luck *rand.Rand) error {
				long := c.Hold(luck)
				return m.Election("x").Campaign(ctx, func(leads context.Context, epoch uint64) error {
					s.Judge(storm.Stay{Who: c.Who, Lock: "election/x", Fence: epoch, Hold: leads}, func() { time.Sleep(long) })
					return nil
				})
			},
		}
		for range 4 {
			s.Go(ctx, c)
		}
		stops[id], who[id] = stop, c.Who
	}
	end := func(id dmutex.NodeID) *member {
		m := g.node(id)
		stops[id]()
		delete(stops, id)
		return m
	}
	for id := range size {
		g.members = append(g.members, id+1)
	}
	for _, id := range g.members {
		begin(id)
	}
	some := func() dmutex.NodeID { return g.members[s.Luck.IntN(len(g.members))] }
	s.Blow(n, func() time.Duration { return s.UpTo(3 * time.Second) },
		storm.Fault{Name: "a process is killed", Rate: 2, Do: func() {
			if id := some(); stops[id] != nil {
				end(id).crash()
				time.Sleep(s.UpTo(300 * time.Millisecond))
			}
			begin(some())
		}},
		storm.Fault{Name: "a process leaves", Rate: 2, Do: func() {
			if id := some(); stops[id] != nil {
				m, patience := end(id), 1+s.UpTo(2*time.Second)
				synctest.Wait() // its callers have ended
				m.forget()
				if err := m.Close(nodetest.ContextFor(g.t, patience)); err != nil {
					require.ErrorIs(g.t, err, context.DeadlineExceeded)
					require.True(g.t, len(stops) < int(size)-1 || patience < time.Second, "%v", err)
				}
				time.Sleep(s.UpTo(300 * time.Millisecond))
			}
			begin(some())
		}},
		storm.Fault{Name: "all processes are there", Rate: 1, Do: func() {
			for _, id := range g.members {
				begin(id)
			}
		}})
	for _, id := range g.members {
		begin(id)
	}
	var all []string
	for _, id := range g.members {
		require.NoError(g.t, g.node(id).Ready(g.t.Context()))
		all = append(all, who[id])
	}
	s.Goes(time.Minute, all...)
	for _, id := range g.members {
		stops[id]()
	}
	s.Wait()
	time.Sleep(2 * time.Minute) // the last view change may take long
	for _, m := range g.all {
		st := m.Status()
		require.NoError(g.t, st.Err)
		require.True(g.t, st.View.Acts)
		require.Equal(g.t, g.members, st.View.Members)
		require.Zero(g.t, st.Refused, "node %d", m.id)
		for name, lock := range m.Locks() {
			require.Fail(g.t, "a lock is in use", "%s at %d: %+v", name, m.id, lock)
		}
	}
	for _, id := range g.members { // and free
		for _, name := range []string{"lock 0", "lock 1", "lock 2", "election/x"} {
			require.NoError(g.t, g.acquire(id, name).Release())
		}
	}
	g.t.Logf("%d grants, %d views", s.Count(), g.node(1).Status().View.Changes)
}

// A leaseStorm is a group with leases in which many things happen.
type leaseStorm struct {
	*group
	*storm.Storm
	fewest int // members that are there at any time
	caller storm.Caller
	ctx    context.Context
	ends   map[*member]context.CancelFunc // end the callers of a process
}

// begin starts a process that takes locks.
func (w *leaseStorm) begin(s *member) {
	s.open(w.config(s))
	ctx, end := context.WithCancel(w.ctx)
	w.ends[s] = end
	c := s.caller(w.caller.Names)
	c.Patience, c.Hold, c.Tries = w.caller.Patience, w.caller.Hold, w.caller.Tries
	c.Ends = func(err error) bool { return errors.Is(err, node.ErrClosed) }
	c.TryFails = func(err error) bool { return errors.Is(err, node.ErrStore) }
	c.Loses = func(error) bool { return true }
	c.Margin, c.Gives = leaseOf/16, c.Ends
	for range 2 {
		w.Go(ctx, c)
	}
}

// faults returns what may happen. What is cut off stays so for at most that long, or until all is well.
func (w *leaseStorm) faults(long time.Duration, begin func()) []storm.Fault {
	to := func(do func(s *member)) func() {
		return func() {
			if len(w.all) == 0 {
				begin()
				return
			}
			do(w.all[w.Luck.IntN(len(w.all))])
		}
	}
	goes := func(do func(s *member)) func() {
		return to(func(s *member) {
			if len(w.all) > w.fewest {
				w.ends[s]()
				do(s)
			}
		})
	}
	cut := func(how func(s *member, on bool)) func(s *member) {
		return func(s *member) {
			how(s, true)
			time.AfterFunc(w.UpTo(long), func() { how(s, false) })
		}
	}
	members := func(s *member, on bool) { s.cut.Store(on) }
	record := func(s *member, on bool) { s.store.Outage(on) }
	return []storm.Fault{
		{Name: "a process begins", Rate: 2, Do: func() {
			if len(w.all) < 6 {
				begin()
			}
		}},
		{Name: "a process leaves", Rate: 1, Do: goes(func(s *member) {
			s.isolate(false)
			s.close()
		})},
		{Name: "a process crashes", Rate: 1, Do: goes((*member).crash)},
		{Name: "a process crashes, and is excluded at once", Rate: 1, Do: goes(func(s *member) {
			s.isolate(true)
			w.exclude(s.Self())
			s.crash()
		})},
		{Name: "a member is excluded", Rate: 1, Do: to(func(s *member) { w.exclude(s.Self()) })},
		{Name: "a member without the store is excluded", Rate: 1, Do: to(func(s *member) {
			cut(record)(s)
			w.exclude(s.Self())
		})},
		{Name: "a member that is cut off is excluded", Rate: 1, Do: to(func(s *member) {
			cut((*member).isolate)(s)
			w.exclude(s.Self())
		})},
		{Name: "a member is cut off from the others", Rate: 1, Do: to(cut(members))},
		{Name: "a member is cut off from the store", Rate: 1, Do: to(cut(record))},
		{Name: "a member is cut off", Rate: 1, Do: to(cut((*member).isolate))},
		{Name: "the wall clock of a member is set forward", Rate: 1, Do: to(func(s *member) { s.StepWall(int64(w.UpTo(2 * leaseOf))) })},
		{Name: "all is well", Rate: 1, Do: func() {
			for _, s := range w.all {
				s.isolate(false)
			}
		}},
	}
}

// Members come, go, crash, are excluded and cut off, lose the store and have their clocks set
// forward, in any order, over a bad network with a slow store. In the end each member can get each lock. Six seeds; two
// under the race detector, and one with -short.
func TestLeaseStorm(t *testing.T) {
	seeds := 6
	switch {
	case os.Getenv("DMUTEX_LONG") != "":
		seeds = 100
	case testing.Short():
		seeds = 1
	case racetest.On || quicktest.On():
		seeds = 2
	}
	for _, seed := range storm.Seeds(t, seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			loss := float64(seed%2) * 0.03
			bad := memlink.Config{Seed: seed, Loss: loss, Duplicate: loss, MaxDelay: 20 * time.Millisecond}
			run := func(t *testing.T, g *group) { runLeaseStorm(g, storm.New(t, seed)) }
			for _, a := range algorithms.Some() {
				t.Run(a.Name, func(t *testing.T) { bubble(t, leased, a.Algorithm, bad, run) })
			}
			bubble(t, leased, ricart.Carvalho, bad, run)
		})
	}
}

func runLeaseStorm(g *group, s *storm.Storm) {
	ctx, stop := context.WithCancel(g.t.Context())
	w := &leaseStorm{group: g, Storm: s, ctx: ctx, ends: make(map[*member]context.CancelFunc), caller: storm.Caller{
		Names: 2 + s.Luck.IntN(8), Patience: upTo(20*time.Second, 3, 100*time.Millisecond), Tries: 6,
		Hold: func(luck *rand.Rand) time.Duration {
			return upTo(15*time.Second, 20, nodetest.UpTo(luck, 200*time.Millisecond))(luck)
		},
	}}
	begin := func() {
		w.begin(&member{group: g, store: outagetest.New(g.t, &tardyStore{Store: &g.store, random: s.Random()}, outagetest.Faults{})})
	}
	for range 2 + s.Luck.IntN(3) {
		begin()
	}
	time.Sleep(leaseOf + s.UpTo(leaseOf/5)) // a new record makes the first member wait
	s.Blow(10+s.Luck.IntN(10), func() time.Duration {
		return s.UpTo([]time.Duration{20 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}[s.Luck.IntN(3)])
	}, w.faults(leaseOf*3/2, begin)...)
	time.Sleep(2 * leaseOf)
	begin()
	time.Sleep(6 * leaseOf)
	stop()
	s.Wait()
	time.Sleep(leaseOf)
	for _, m := range g.all {
		for i := range w.caller.Names {
			h, err := m.Mutex(fmt.Sprint("lock ", i)).Acquire(nodetest.ContextFor(g.t, leaseOf/10))
			require.NoError(g.t, err, "lock %d at member %v", i, m.Self())
			require.NoError(g.t, h.Release())
		}
	}
}

// LESSONS L28, L53: the same for longer, with callers that wait for as long as it takes, and with proofs of death for every second seed. In
// the end the last member is still served.
func TestLeaseSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	seeds := 2
	switch {
	case os.Getenv("DMUTEX_LONG") != "":
		seeds = 200
	case racetest.On || quicktest.On():
		seeds = 1
	}
	for _, seed := range storm.Seeds(t, seeds) {
		eachLease(t, func(t *testing.T, g *group) { leaseSoak(g, storm.New(t, seed), seed%2 > 0) })
	}
}

func leaseSoak(g *group, s *storm.Storm, proves bool) {
	if proves {
		g.proving()
	}
	ctx, stop := context.WithCancel(g.t.Context())
	w := &leaseStorm{group: g, Storm: s, ctx: ctx, ends: make(map[*member]context.CancelFunc), fewest: 2, caller: storm.Caller{
		Names: 2, Hold: upTo(200*time.Millisecond, 1, 0),
	}}
	begin := func() { w.begin(&member{group: g}) }
	for range 4 {
		begin()
	}
	s.Blow(60, func() time.Duration { return s.UpTo(2 * leaseOf) }, w.faults(8*leaseOf, begin)...)
	for _, m := range g.all {
		m.isolate(false)
	}
	for len(g.all) > 1 {
		w.ends[g.all[0]]()
		g.all[0].close()
	}
	require.Greater(g.t, s.Count(), 100)
	s.Goes(4*time.Minute, g.all[0].caller(2).Who) // at most a minute of pauses, and a few leases
	stop()
	s.Wait()
}
