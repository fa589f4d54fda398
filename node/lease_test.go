package node_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/lease"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport"
)

// LESSONS L69: processes without numbers and without a list become a group, and the
// record gives each a number.
func TestLeaseWithoutList(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		all := g.open(3)
		var numbers []dmutex.NodeID
		last := uint64(0)
		for _, s := range all {
			numbers = append(numbers, s.Self())
			h := s.acquire("x")
			require.Greater(t, h.Fence(), last)
			last = h.Fence()
			require.False(t, h.Suspended())
			require.NoError(t, h.Release())
		}
		slices.Sort(numbers)
		require.Equal(t, []dmutex.NodeID{1, 2, 3}, numbers)
		st := all[0].Status()
		require.Equal(t, numbers, st.View.Members)
		require.Len(t, st.Peers, 2)
		require.Equal(t, node.LeaseValid, st.Lease.State)
		require.Greater(t, st.Lease.Remains, leaseOf/2)

		g.join().acquire("x") // a fourth process may join at any time
	})
}

// LESSONS L30: after a clean exit, of the holder or of all members, nobody waits for a lease.
func TestLeaseCleanExit(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		all := g.open(3)
		held := all[1].acquire("x")
		next := all[2].acquireLater(t.Context(), "x")
		began := time.Now()
		all[0].close()
		all[0].close() // the holder
		require.ErrorIs(t, held.Err(), node.ErrClosed)
		got := granted(t, next)
		require.Less(t, time.Since(began), leaseOf/20)
		require.NoError(t, got.Release())
		g.all[0].close()

		began = time.Now()
		h := g.join().acquire("x")
		require.Less(t, time.Since(began), time.Second)
		require.Greater(t, h.Fence(), got.Fence())
	})
}

// LESSONS L37, L44, L66: the lock of a crashed process goes to the next one after the detection and
// a lease. The crash of an idle process costs only a view change.
func TestLeaseCrashedHolder(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(3))
		held := all[0].acquire("x")
		next := all[1].acquireLater(t.Context(), "x")
		began := time.Now()
		all[0].crash()
		h := granted(t, next)
		require.Less(t, time.Since(began), leaseOf*17/10)
		require.Greater(t, h.Fence(), held.Fence())
		all[2].crash()
		time.Sleep(2 * leaseOf)
		require.NoError(t, h.Err())
		require.NoError(t, h.Release())
		require.Equal(t, []dmutex.NodeID{all[1].Self()}, all[1].Status().View.Members)
		require.NoError(t, all[1].acquire("x").Release())
	})
}

// LESSONS L8, L11, L63: a holder that is cut off from everything loses its lock before another
// member gets it. It rejoins by itself, and its waiting callers keep waiting.
func TestLeaseCutOff(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		all := g.open(3)
		held := all[0].acquire("x")
		other := all[1].acquire("y")
		waiting := all[0].acquireLater(t.Context(), "y")
		number := all[0].Self()
		all[0].isolate(true)
		next := all[1].acquireLater(t.Context(), "x")
		<-held.Context().Done()
		lost := time.Now()
		require.ErrorIs(t, held.Err(), node.ErrLost)
		require.ErrorIs(t, held.Err(), node.ErrLease)
		require.ErrorIs(t, held.Release(), node.ErrLost)
		h := granted(t, next)
		require.Greater(t, time.Since(lost), time.Duration(0))
		all[0].isolate(false)
		all[0].rejoins(number)
		require.Equal(t, 1, all[0].Status().Lease.Exclusions)
		require.NoError(t, h.Release())
		require.Empty(t, waiting)
		require.NoError(t, other.Release())
		require.NoError(t, granted(t, waiting).Release())
	})
}

// A holder that the others do not hear is excluded, and learns that from the store before its lease
// has ended.
func TestLeaseExcluded(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		all := g.open(3)
		held := all[0].acquire("x")
		next := all[1].acquireLater(t.Context(), "x")
		all[0].cut.Store(true)
		<-held.Context().Done()
		require.ErrorIs(t, held.Err(), node.ErrExcluded)
		h := granted(t, next)
		all[0].cut.Store(false)
		again := all[0].acquireLater(t.Context(), "x")
		time.Sleep(2 * leaseOf)
		require.Empty(t, again)
		require.NoError(t, h.Release())
		require.NoError(t, granted(t, again).Release())

		last := dmutex.None
		for i, self := range all[0].told.selves { // it had no number before it got each one
			require.Equal(t, i%2 == 0, self == dmutex.None)
			if self != dmutex.None {
				require.Greater(t, self, last)
				last = self
			}
		}
		require.Equal(t, all[0].Self(), last)
		for _, s := range all {
			var peers []dmutex.NodeID
			for _, p := range s.Status().Peers {
				peers = append(peers, p.ID)
			}
			require.Len(t, peers, 2)
			require.ElementsMatch(t, peers, slices.Collect(maps.Keys(s.told.peers)))
		}
	})
}

// A silence that is too short for an exclusion leaves no trace, whether or not another process
// joins during it.
func TestLeaseBriefSilence(t *testing.T) {
	for _, joins := range []bool{false, true} {
		eachLease(t, func(t *testing.T, g *group) {
			all := g.open(2)
			held := all[0].acquire("x")
			all[1].cut.Store(true)
			time.Sleep(leaseOf / 5) // the others notice the silence
			if joins {
				g.join()
				time.Sleep(leaseOf / 20)
			}
			all[1].cut.Store(false)
			if joins {
				time.Sleep(leaseOf / 20)
				require.Len(t, all[0].Status().View.Members, 3)
				require.True(t, all[0].Status().View.Acts)
				require.NoError(t, g.all[2].acquire("y").Release())
			}
			time.Sleep(2 * leaseOf)
			require.NoError(t, held.Release())
			for _, s := range g.all {
				st := s.Status()
				require.Zero(t, st.Lease.Exclusions)
				require.Zero(t, st.Refused)
				require.Len(t, st.View.Members, len(g.all))
			}
		})
	}
}

// LESSONS L8, L9: the locks are lost a sixteenth of the lease before its end. The lease counts from
// the moment when the store was asked.
func TestLeaseMargin(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := g.open(2)
		held := all[0].acquire("x")
		left := time.Duration(0)
		for range 5000 {
			time.Sleep(time.Millisecond)
			left = max(left, all[0].Status().Lease.Remains)
		}
		require.LessOrEqual(t, left, leaseOf*15/16)
		require.Greater(t, left, leaseOf*15/16-10*time.Millisecond)
		left = all[0].Status().Lease.Remains
		all[0].isolate(true)
		isolated := time.Now()
		<-held.Context().Done()
		require.Equal(t, left, time.Since(isolated))
		all[0].isolate(false)
	})
}

// LESSONS L6, L39: an outage of the store that ends before the lease does costs nothing.
// The handle says that it is suspended.
func TestLeaseShortOutage(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := g.open(2)
		held := all[0].acquire("x")
		all[0].store.Outage(true)
		all[1].store.Outage(true)
		time.Sleep(leaseOf * 8 / 10)
		require.True(t, held.Suspended())
		require.Equal(t, node.LeaseLate, all[0].Status().Lease.State)
		require.Error(t, all[0].Status().Lease.Err)
		other := all[1].acquire("y") // locks are still granted
		all[0].store.Outage(false)
		all[1].store.Outage(false)
		time.Sleep(leaseOf)
		require.False(t, held.Suspended())
		require.NoError(t, held.Release())
		require.NoError(t, other.Release())
		require.Zero(t, all[0].Status().Lease.Exclusions)
		all[0].mu.Lock()
		defer all[0].mu.Unlock()
		require.Equal(t, []node.LeaseState{node.LeaseValid, node.LeaseLate, node.LeaseValid}, all[0].states)
	})
}

// The store may be unreachable for two fifths of a lease at any time, and no lock is lost. After an
// outage of a lease less the margin, all locks are lost, however late the last renewal was.
func TestLeaseOutage(t *testing.T) {
	for phase := range time.Duration(5) {
		for length, lost := range map[time.Duration]bool{leaseOf * 2 / 5: false, leaseOf * 15 / 16: true} {
			bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
				all := g.open(2)
				held := all[0].acquire("x")
				time.Sleep(leaseOf + leaseOf/3*phase/5)
				for _, s := range all {
					s.store.Outage(true)
				}
				time.Sleep(length)
				for _, s := range all {
					s.store.Outage(false)
				}
				time.Sleep(leaseOf)
				require.Equal(t, lost, held.Err() != nil, "phase %d, outage of %v", phase, length)
				_ = held.Release()
			})
		}
	}
}

// LESSONS L7, L11, L54: in a long outage of the store all locks are lost. Acquire waits, and its
// error names the store. TryAcquire returns that error at once. Locks are granted again when the
// store is back.
func TestLeaseLongOutage(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		all := g.open(2)
		held := all[0].acquire("x")
		changes := all[0].Status().View.Changes
		for _, s := range all {
			s.store.Outage(true)
		}
		began := time.Now()
		<-held.Context().Done()
		require.Less(t, time.Since(began), leaseOf)
		require.ErrorIs(t, context.Cause(held.Context()), node.ErrLease)
		time.Sleep(leaseOf)

		_, err := all[1].Mutex("x").Acquire(nodetest.ContextFor(t, time.Second))
		require.ErrorIs(t, err, node.ErrStore)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		began = time.Now()
		_, err = all[1].Mutex("x").TryAcquire(t.Context())
		require.ErrorIs(t, err, node.ErrStore)
		require.Zero(t, time.Since(began))
		require.False(t, all[0].Status().View.Acts)

		next := all[1].acquireLater(t.Context(), "x")
		for _, s := range all {
			s.store.Outage(false)
		}
		h := granted(t, next)
		require.Greater(t, h.Fence(), held.Fence())
		require.ErrorIs(t, held.Release(), node.ErrLost)
		require.NoError(t, h.Err())
		require.NoError(t, h.Release())
		require.Equal(t, changes, all[0].Status().View.Changes) // the view is as it was
		all[0].mu.Lock()
		defer all[0].mu.Unlock()
		require.Len(t, all[0].holds, 1)
		require.ErrorIs(t, all[0].holds[0].Err, node.ErrLease)
	})
}

// LESSONS L3: a process that reaches the other members but not the store takes no grant that
// arrives after the end of its lease.
func TestLeaseGrantTooLate(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		all := g.open(2)
		held := all[0].acquire("x")
		waiting := all[1].acquireLater(t.Context(), "x")
		all[1].store.Outage(true)
		time.Sleep(leaseOf * 3 / 2) // the other hears it, and does not exclude it
		require.Len(t, all[0].Status().View.Members, 2)
		require.NoError(t, held.Release())
		synctest.Wait()
		time.Sleep(time.Second)
		require.Empty(t, waiting)
		require.NoError(t, all[0].acquire("x").Release()) // the late grant was given back at once
		all[1].store.Outage(false)
		require.NoError(t, granted(t, waiting).Release())
	})
}

func text(t *testing.T, r lease.Record) string {
	b, err := r.MarshalText()
	require.NoError(t, err)
	return string(b)
}

// put replaces the record.
func (g *group) put(value string) {
	_, rev, err := g.store.Load(g.t.Context())
	require.NoError(g.t, err)
	_, err = g.store.Swap(g.t.Context(), []byte(value), rev)
	require.NoError(g.t, err)
}

// A record that is wiped, or cannot be read, stops the members.
func TestLeaseBadRecord(t *testing.T) {
	for name, value := range map[string]string{"gone": "", "nonsense": "nonsense"} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
				all := slices.Clone(g.open(2))
				held := all[0].acquire("x")
				g.put(value)
				time.Sleep(leaseOf)
				require.ErrorIs(t, held.Err(), node.ErrLost)
				require.ErrorIs(t, held.Err(), node.ErrRecord)
				for _, s := range all {
					require.ErrorIs(t, s.Status().Err, node.ErrRecord)
					require.ErrorIs(t, s.Status().Err, node.ErrStopped)
					_, err := s.Mutex("x").Acquire(t.Context())
					require.ErrorIs(t, err, node.ErrRecord)
				}
			})
		})
	}
}

// An old record that is put back does not have a member that has joined since. A process that joins before
// the others look gets that member's number. They stop, or a lock that the member holds would be free to them.
func TestLeaseRecordPutBack(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		g.open(2)
		old := slices.Clone(g.open(1))
		value, _, err := g.store.Load(t.Context())
		require.NoError(t, err)
		last := g.open(1)[3]
		held := last.acquire("x")
		last.isolate(true)
		require.NoError(t, last.link.Become(dmutex.None)) // memlink has one link for each number
		g.put(string(value))
		g.join()
		_, err = old[0].Mutex("x").Acquire(nodetest.ContextFor(t, leaseOf/2))
		require.NoError(t, held.Err())
		require.ErrorIs(t, err, node.ErrRecord)
		time.Sleep(leaseOf)
		require.ErrorIs(t, old[1].Status().Err, node.ErrRecord)
		last.isolate(false)
	})
}

// A node whose link was closed from outside is excluded, and does not join again.
func TestLeaseLinkClosed(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := g.open(3)
		held := all[0].acquire("x")
		next := all[1].acquireLater(t.Context(), "x")
		require.NoError(t, all[0].link.Close())
		_, err := all[0].Mutex("y").Acquire(t.Context())
		require.ErrorIs(t, err, transport.ErrClosed)
		synctest.Wait()
		require.ErrorIs(t, held.Err(), node.ErrLost)
		h := granted(t, next)
		for range 10 {
			time.Sleep(leaseOf)
			require.Len(t, all[1].Status().View.Members, 2)
		}
		require.NoError(t, h.Release())
		all[0].cut.Store(true) // it cannot say farewell
	})
}

// The first node of a new record waits for a lease, and says so.
func TestLeaseNewRecord(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		log := new(bytes.Buffer)
		g.log = slog.New(slog.NewTextHandler(log, nil))
		s := g.join()
		first := s.acquireLater(t.Context(), "y")
		_, err := s.Mutex("x").Acquire(nodetest.ContextFor(t, 5*time.Second))
		require.ErrorContains(t, err, "waiting until the leases of former members, if there were any, have ended: at most 5.2s more")
		granted(t, first)
		s.close()
		for _, text := range []string{"0s err=\"%s at most 10.2s", "3s err=\"%s at most 7.2s"} {
			text = fmt.Sprintf(text, "waiting until the leases of former members, if there were any, have ended:")
			require.Contains(t, log.String(), "msg=waiting node=1 waited="+text)
		}
		require.NotContains(t, log.String(), "lock is waited for") // the lock is not the reason
	})
}

// If a peer says that another process has this node's number, the node loads the record. The
// message alone changes nothing, because on a plain link anybody can forge it.
func TestLeaseTaken(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(2))
		held := all[0].acquire("x")
		for range 100 {
			all[0].Taken(all[1].Self())
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, held.Err())
		require.NoError(t, all[0].Status().Err)

		g.exclude(all[0].Self())
		all[0].Taken(all[1].Self())
		time.Sleep(leaseOf / 6)
		require.ErrorIs(t, held.Err(), node.ErrExcluded, "the node has loaded the record")
	})
}

// A process that finds a full group says so, and joins when a member leaves.
func TestLeaseFull(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		require.NoError(t, g.open(1)[0].acquire("x").Release())
		g.all[0].close()
		value, _, err := g.store.Load(t.Context())
		require.NoError(t, err)
		var r lease.Record
		require.NoError(t, r.UnmarshalText(value))
		full := r
		for i := range dmutex.NodeID(membership.MaxMembers) {
			full.Highest++
			full.Members = append(full.Members, lease.Entry{Member: membership.Member{Node: full.Highest, Life: uint64(i + 1)}, Speaks: protocol.Spoken})
		}
		full.Epoch++
		g.put(text(t, full))
		s := g.join()
		_, err = s.Mutex("x").Acquire(nodetest.ContextFor(t, leaseOf))
		require.ErrorIs(t, err, node.ErrFull)
		require.NotErrorIs(t, err, node.ErrStopped)
		require.ErrorContains(t, err, "the group has 64 members, which is the most: this process joins when one leaves")
		r.Epoch, r.Highest = full.Epoch+1, full.Highest
		g.put(text(t, r))
		require.NoError(t, s.acquire("x").Release())
	})
}

// A faraway link has a long address.
type faraway struct{ transport.DynamicLink }

func (faraway) Address() string { return strings.Repeat("a", 257) }

// LESSONS L39: Open refuses these arguments, and closes the link.
func TestLeaseMisuse(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		for _, tc := range []struct {
			says   string
			record store.Store
			link   transport.DynamicLink
			config node.Config
		}{
			{"Open needs a store", nil, g.net.Link(dmutex.None), node.Config{}},
			{"Open needs a link", &g.store, nil, node.Config{}},
			{"the link was made for node 8", &g.store, g.net.Link(8), node.Config{}},
			{"Config.Lease is 1ms: it must be from 100ms to 1h0m0s", &g.store, g.net.Link(dmutex.None), node.Config{Lease: time.Millisecond}},
			{"Config.Fence is 9223372036854775808: give the highest fence that your resources have stored, which is below 1<<63", &g.store, g.net.Link(dmutex.None), node.Config{Fence: 1 << 63}},
			{"Config.Deadlock is at least 0", &g.store, g.net.Link(dmutex.None), node.Config{Deadlock: -1}},
			{"the address of the link has more than 256 bytes: choose a shorter one", &g.store, faraway{g.net.Link(dmutex.None)}, node.Config{}},
			{"choose a shorter Config.Group", &g.store, g.net.Link(dmutex.None), node.Config{Group: strings.Repeat("g", 5000)}},
		} {
			_, err := node.Open(t.Context(), tc.record, tc.link, tc.config)
			require.ErrorIs(t, err, dmutex.ErrMisuse, tc.says)
			require.ErrorContains(t, err, tc.says)
			if tc.link != nil {
				require.ErrorIs(t, tc.link.Open(transport.Host{}), transport.ErrClosed, tc.says)
			}
		}
		all := g.open(1)
		require.ErrorIs(t, all[0].Evict(t.Context(), 1), dmutex.ErrMisuse)
	})
}

// A process that joins and leaves loads the record once, and writes it twice. A store that has not
// answered yet has not failed, so a TryAcquire waits for it.
func TestLeaseJoinAndLeave(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		loads, swaps := g.counted()
		s := g.join()
		time.Sleep(leaseOf / 10)
		s.close()
		require.Equal(t, node.LeaseEnded, s.Status().Lease.State)
		require.EqualValues(t, 1, loads.Load())
		require.EqualValues(t, 2, swaps.Load())

		h, err := g.join().Mutex("x").TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Release())
	})
}

// LESSONS L30: in a calm group each member loads the record once every third of a lease, and writes
// nothing. Locks do not touch the store, and cost the same messages as without a store.
func TestLeaseCost(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		const n, leases, locks = 5, 10, 100
		loads, swaps := g.counted()
		all := g.open(n)
		time.Sleep(leaseOf)
		before := g.sent()
		loaded, swapped := loads.Load(), swaps.Load()
		for i := range locks {
			time.Sleep(leaseOf * leases / locks)
			require.NoError(t, all[i%n].acquire("x").Release())
		}
		synctest.Wait()
		require.EqualValues(t, 3*n*leases, loads.Load()-loaded) // operating.md says so: 18 a minute and member
		require.Equal(t, swapped, swaps.Load())

		strict := memoryGroup(t, g.algorithm, n)
		for i := range locks {
			time.Sleep(time.Second)
			h, err := strict[i%n].Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, h.Release())
		}
		synctest.Wait()
		without := uint64(0)
		for _, node := range strict {
			for _, count := range node.Status().Sent {
				without += count
			}
		}
		require.Equal(t, without, uint64(g.sent()-before))
		closeAll(t, strict)
	})
}

// If the group had another lease, a process waits for the former leases before it joins, and its
// errors say so. In an outage they say that the store does not answer.
func TestLeaseWaitsToJoin(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := g.open(2)
		one, two := all[0], all[1]
		two.crash()
		one.sees(1)
		one.close()
		s := g.join(func(c *node.Config) { c.Lease = leaseOf / 5 })
		err := s.Ready(nodetest.ContextFor(t, 3*time.Second))
		require.ErrorContains(t, err, "node: waiting until the leases of former members, if there were any, have ended: at most 7.")
		require.Zero(t, s.Status().View.Epoch, "it has not joined")
		require.ErrorContains(t, s.Status().View.Err, "waiting until the leases")
		s.store.Outage(true)
		require.ErrorIs(t, s.Ready(nodetest.ContextFor(t, 8*time.Second)), node.ErrStore)
		s.store.Outage(false)
		require.NoError(t, s.Ready(t.Context()))
	})
}

// The beginning of a wait for leases is logged only once. A process that joins hears from the
// members whether there is a wait.
func TestLeaseWaitIsLoggedOnce(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		var logs [3]nodetest.Journal
		for i := range logs {
			g.log = logs[i].Logger()
			s := g.join()
			if i == 0 {
				time.Sleep(leaseOf / 5) // the next one joins while this one waits
			} else {
				require.NoError(t, s.Ready(t.Context()))
			}
		}
		time.Sleep(time.Minute)
		for i, count := range []int{1, 0, 0} {
			require.Equal(t, count, strings.Count(strings.Join(logs[i].Take(), "\n"), "msg=waiting node="+g.all[i].Self().String()+" waited=0s "), i)
		}
	})
}
