package node_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport/memlink"
)

// eachShared runs a test with every algorithm that shares.
func eachShared(t *testing.T, test func(t *testing.T, g *group)) {
	for _, a := range algorithms.Some() {
		if !a.Shares {
			continue
		}
		t.Run(a.Name, func(t *testing.T) {
			bubble(t, both, a.Algorithm, memlink.Config{MinDelay: time.Millisecond, MaxDelay: 3 * time.Millisecond, Seed: 1}, test)
		})
	}
}

func (g *group) share(id dmutex.NodeID, name string) lock.Held {
	h, err := g.node(id).Mutex(name).Shared().Acquire(nodetest.ContextFor(g.t, time.Minute))
	require.NoError(g.t, err)
	return h
}

// Callers of all nodes share the lock. One that wants it alone waits for all of them, and those that
// come later wait behind it.
func TestShared(t *testing.T) {
	eachShared(t, func(t *testing.T, g *group) {
		g.open(3)
		var readers []lock.Held
		for _, id := range []dmutex.NodeID{1, 2, 1, 2} {
			readers = append(readers, g.share(id, "x"))
		}
		before := g.sent()
		for _, id := range g.members[:2] {
			readers = append(readers, g.share(id, "x"))
		}
		require.Equal(t, before, g.sent(), "a node that shares the lock joins at no message")
		require.Equal(t, readers[0].Fence(), readers[2].Fence())
		require.Equal(t, 1, g.node(1).Status().Shared)
		require.Zero(t, g.node(3).Status().Shared)

		alone := g.acquireLater(t.Context(), 3, "x")
		time.Sleep(100 * time.Millisecond)
		for _, id := range g.members {
			_, err := g.node(id).Mutex("x").Shared().TryAcquire(t.Context())
			require.ErrorIs(t, err, node.ErrBusy, "the door is closed at %d", id)
		}
		late := make(chan lock.Held, 1)
		go func() { late <- g.share(1, "x") }()
		for _, h := range readers {
			require.Empty(t, alone, "a writer among readers")
			require.NoError(t, h.Err())
			require.NoError(t, h.Release())
			time.Sleep(20 * time.Millisecond)
		}
		h := granted(t, alone)
		for _, r := range readers {
			require.Greater(t, h.Fence(), r.Fence())
		}
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, late, "a reader beside a writer")
		require.NoError(t, h.Release())
		r := <-late
		require.Greater(t, r.Fence(), h.Fence())
		require.NoError(t, r.Release())
		synctest.Wait()
	})
}

// Under algorithms that do not share, a call fails at once.
func TestUnshared(t *testing.T) {
	for _, a := range algorithms.All {
		if a.Shares {
			continue
		}
		t.Run(a.Name, func(t *testing.T) {
			bubble(t, both, a.Algorithm, memlink.Config{}, func(t *testing.T, g *group) {
				g.open(2)
				h := g.acquire(1, "x")
				_, err := g.node(1).Mutex("x").Shared().Acquire(t.Context())
				require.ErrorIs(t, err, node.ErrUnshared)
				_, err = g.node(2).Mutex("x").Shared().TryAcquire(t.Context())
				require.ErrorIs(t, err, node.ErrUnshared)
				require.NoError(t, h.Release())
			})
		})
	}
}

// Readers that never pause, with deadlines, and a writer at each node: never a writer with anybody,
// and every writer gets its turns.
func TestSharedStorm(t *testing.T) {
	eachShared(t, func(t *testing.T, g *group) {
		g.open(3)
		end, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		var guard sync.RWMutex // is never waited for
		var inside, most atomic.Int32
		share := func() bool {
			most.Store(max(most.Load(), inside.Add(1)))
			return guard.TryRLock()
		}
		leave := func() {
			inside.Add(-1)
			guard.RUnlock()
		}
		take := func(m lock.Mutex, seed uint64, in func() bool, out func()) (turns int) {
			luck := rand.New(rand.NewPCG(0, seed))
			for end.Err() == nil {
				ctx, cancel := context.WithTimeout(end, 1+nodetest.UpTo(luck, 100*time.Millisecond))
				if h, err := m.Acquire(ctx); err == nil {
					assert.True(t, in())
					time.Sleep(nodetest.UpTo(luck, 10*time.Millisecond))
					out()
					assert.NoError(t, h.Release())
					turns++
				}
				cancel()
			}
			return turns
		}
		var working sync.WaitGroup
		for i, m := range g.all {
			working.Go(func() { assert.Positive(t, take(m.Mutex("x"), uint64(i), guard.TryLock, guard.Unlock)) })
			for k := range 3 {
				working.Go(func() { take(m.Mutex("x").Shared(), uint64(3+3*i+k), share, leave) })
			}
		}
		working.Wait()
		require.Greater(t, most.Load(), int32(1))
		require.NoError(t, g.acquire(1, "x").Release(), "nothing is left behind")
	})
}

// Sharers of two nodes keep the lock over views, and a writer waits for all of them. Callers that join
// them then have the old fence.
func TestSharedViews(t *testing.T) {
	eachShared(t, func(t *testing.T, g *group) {
		g.open(3)
		readers := []lock.Held{g.share(1, "x"), g.share(2, "x"), g.share(1, "x"), g.share(2, "x")}
		g.close(3)
		g.start(3)
		require.NoError(t, g.node(3).Ready(t.Context()))
		readers = append(readers, g.share(1, "x"))
		require.Equal(t, readers[0].Fence(), readers[4].Fence())
		alone := g.acquireLater(t.Context(), 3, "x")
		for _, h := range readers {
			time.Sleep(100 * time.Millisecond)
			require.Empty(t, alone, "a writer among readers")
			require.NoError(t, h.Release())
		}
		h := granted(t, alone)
		for _, r := range readers {
			require.Greater(t, h.Fence(), r.Fence())
		}
		require.NoError(t, h.Release())
	})
}

// A caller that wants the lock alone and gives up keeps no reader out: while readers hold it, readers of
// all nodes come in at once and meet, also those that waited behind it at its own node, and those that
// come later. So it is for each home of the lock, and each node of the first reader and of the writer.
//
// LESSONS L53.
func TestWriterGivesUp(t *testing.T) {
	eachShared(t, func(t *testing.T, g *group) {
		g.open(3)
		for k := range 3 * 3 * 3 {
			first, writer, tries := g.members[k%3], g.members[k/3%3], k/9
			name := fmt.Sprint("x", k)
			held := []lock.Held{g.share(first, name)}
			behind := make(chan lock.Held, 3)
			switch tries {
			case 0:
				_, err := g.node(writer).Mutex(name).TryAcquire(t.Context())
				require.ErrorIs(t, err, node.ErrBusy)
				behind <- g.share(writer, name)
			case 1: // its deadline passes, and readers wait behind it, at every node
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				alone := g.acquireLater(ctx, writer, name)
				time.Sleep(20 * time.Millisecond)
				for _, id := range g.members {
					go func() { behind <- g.share(id, name) }()
				}
				require.ErrorIs(t, (<-alone).err, context.DeadlineExceeded)
				cancel()
			case 2: // another one still waits
				ctx, cancel := context.WithCancel(t.Context())
				all := []<-chan outcome{g.acquireLater(ctx, writer, name), g.acquireLater(ctx, writer%3+1, name)}
				time.Sleep(20 * time.Millisecond)
				_, err := g.node(first%3 + 1).Mutex(name).TryAcquire(t.Context())
				require.ErrorIs(t, err, node.ErrBusy)
				go func() { behind <- g.share(first%3+1, name) }()
				time.Sleep(time.Second)
				require.Empty(t, behind)
				cancel()
				for _, o := range all {
					require.Error(t, (<-o).err)
				}
			}
			time.Sleep(time.Second)
			require.NotEmpty(t, behind, "first %d writer %d tries %d", first, writer, tries)
			for len(behind) > 0 {
				held = append(held, <-behind)
			}
			for _, id := range g.members {
				h, err := g.node(id).Mutex(name).Shared().TryAcquire(t.Context())
				require.NoError(t, err, "first %d writer %d tries %d", first, writer, tries)
				held = append(held, h)
			}
			for _, h := range held {
				require.NoError(t, h.Err())
				require.NoError(t, h.Release())
			}
			h := g.acquire(writer, name)
			require.Greater(t, h.Fence(), held[0].Fence())
			require.NoError(t, h.Release())
		}
	})
}

// A reader behind a writer of its own node that gives up does not get the lock alone: readers meet, also
// when another node held the lock alone before.
func TestReaderBehindQuitter(t *testing.T) {
	eachShared(t, func(t *testing.T, g *group) {
		g.open(3)
		h := g.acquire(2, "x")
		ctx, cancel := context.WithCancel(t.Context())
		quitter := g.acquireLater(ctx, 1, "x")
		time.Sleep(50 * time.Millisecond)
		readers := make(chan lock.Held, 6)
		for _, id := range append(g.members, g.members...) {
			go func() { readers <- g.share(id, "x") }()
		}
		time.Sleep(50 * time.Millisecond)
		cancel()
		require.Error(t, (<-quitter).err)
		time.Sleep(time.Second)
		require.Empty(t, readers)
		require.NoError(t, h.Release())
		time.Sleep(time.Second)
		require.Len(t, readers, 6, "all at once")
		for range 6 {
			require.NoError(t, (<-readers).Release())
		}
		require.NoError(t, g.acquire(3, "x").Release())
	})
}

// A caller that shares the lock learns that another wants it alone, at its own node or at another one,
// also if it looks only then.
func TestSharedAsked(t *testing.T) {
	eachShared(t, func(t *testing.T, g *group) {
		g.open(3)
		for _, writer := range []dmutex.NodeID{1, 3} {
			early, late := g.share(1, "x"), g.share(1, "x")
			asked := node.Asked(early)
			more := g.share(2, "x")
			synctest.Wait()
			select {
			case <-asked:
				require.Fail(t, "nobody waits")
			default:
			}
			alone := g.acquireLater(t.Context(), writer, "x")
			<-asked
			<-node.Asked(late)
			require.NoError(t, early.Release())
			require.NoError(t, late.Release())
			<-node.Asked(more) // at the latest when node 1 has made its request
			require.NoError(t, more.Release())
			require.NoError(t, granted(t, alone).Release())
		}
	})
}

// Under central a writer costs one message more for each other node that shares the lock, an INQUIRE
// from the coordinator, and one for itself. The first reader of a node costs three messages, and further ones none.
func TestSharedCost(t *testing.T) {
	for _, nodes := range []int{3, 5, 9} {
		bubble(t, both, central.New, memlink.Config{}, func(t *testing.T, g *group) {
			g.open(nodes)
			var others, all []dmutex.NodeID
			home := locks.Home("x", g.members)
			for _, id := range g.members {
				if all = append(all, id); id != home {
					others = append(others, id)
				}
			}
			sent := func() (sum [dmutex.Kinds]uint64) {
				synctest.Wait()
				for _, id := range all {
					for k, n := range g.node(id).Status().Sent {
						sum[k] += n
					}
				}
				return sum
			}
			writer, readers := others[0], others[1:]
			before := sent()
			var held []lock.Held
			for _, id := range append(readers, readers...) {
				held = append(held, g.share(id, "x"))
			}
			alone := g.acquireLater(t.Context(), writer, "x")
			for _, h := range held {
				<-node.Asked(h)
				require.NoError(t, h.Release())
			}
			require.NoError(t, (<-alone).held.Release())
			after, r := sent(), uint64(len(readers))
			for kind, want := range map[dmutex.Kind]uint64{dmutex.Share: r, dmutex.Grant: r + 1, dmutex.Request: 1, dmutex.Inquire: r + 1, dmutex.Release: r + 1} {
				require.Equal(t, want, after[kind]-before[kind], "%v", kind)
			}
		})
	}
}

// The error of a call that shares names the call that keeps it out: of this process, of another one, or only
// that there is one.
func TestErrorNamesTheWriter(t *testing.T) {
	eachShared(t, func(t *testing.T, g *group) {
		g.open(3)
		h := g.share(1, "x")
		ctx, cancel := context.WithCancel(t.Context())
		alone := g.acquireLater(ctx, 2, "x")
		time.Sleep(2 * time.Second)
		for id, want := range map[dmutex.NodeID]string{
			1: `(held|shared) by .*, and a call of web-2 \(node 2\) has waited [2-5].*s to hold it alone: context deadline exceeded$`,
			2: `(held|shared) by .*, and a call of this process has waited [2-5]s to hold it alone: context deadline exceeded$`,
			3: `(held|shared) by .*, and a call of web-2 \(node 2\) has waited [2-5].*s to hold it alone: context deadline exceeded$`,
		} {
			_, err := g.node(id).Mutex("x").Shared().Acquire(nodetest.ContextFor(t, time.Second))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Regexp(t, want, err)
		}
		_, err := g.node(1).Mutex("x").Shared().TryAcquire(t.Context())
		require.ErrorIs(t, err, node.ErrBusy)
		require.ErrorContains(t, err, "and a call of another process waits to hold it alone")
		_, err = g.node(3).Mutex("x").Acquire(nodetest.ContextFor(t, time.Second))
		require.NotContains(t, err.Error(), "alone", "only readers are kept out by it")
		cancel()
		require.Error(t, (<-alone).err)
		require.NoError(t, h.Release())
	})
}

// A trace has what a request that is taken back sends, and replays.
func TestTraceOfAQuitter(t *testing.T) {
	eachShared(t, func(t *testing.T, g *group) {
		nodetest.Today()
		g.members = []dmutex.NodeID{1, 2, 3}
		files := []*bytes.Buffer{g.recorded(1), g.recorded(2), g.recorded(3)}
		h := g.share(1, "x")
		for _, id := range g.members {
			_, err := g.node(id).Mutex("x").TryAcquire(t.Context())
			require.ErrorIs(t, err, node.ErrBusy)
		}
		require.NoError(t, g.share(3, "x").Release())
		require.NoError(t, h.Release())
		synctest.Wait()
		for _, id := range g.members {
			g.close(id)
		}
		withdrawn := 0
		for i, file := range files {
			tr, err := trace.Read(fmt.Sprint(i), file)
			require.NoError(t, err)
			_, err = dmutextest.Replay(tr, g.algorithm)
			require.NoError(t, err)
			for _, e := range tr.Events {
				if e.What == trace.Cancel || e.What == trace.Handle && e.In.Kind == dmutex.Inquire {
					withdrawn += len(e.Out)
				}
			}
		}
		require.Positive(t, withdrawn)
	})
}

// A dead reader delays writers for its lease, and readers not at all, if its death is reported and the lock
// has a witness, or a living home.
func TestSharedDeath(t *testing.T) {
	for name, algorithm := range map[string]dmutex.Algorithm{"default": nil, "central": central.New} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, algorithm, func(t *testing.T, g *group) {
				all, members := slices.Clone(g.open(3)), g.members
				one, two, three := all[0], all[1], all[2]
				var names []string // several, so that the survivors' lists of them must be in order
				at := map[dmutex.NodeID]string{}
				for i := 0; len(names) < 20; i++ {
					name := fmt.Sprint("lock ", i)
					if home := locks.Home(name, members); home != three.Self() {
						names, at[home] = append(names, name), name
					}
				}
				for _, name := range names {
					_, err := three.Mutex(name).Shared().Acquire(t.Context())
					require.NoError(t, err)
				}
				h, err := two.Mutex(at[one.Self()]).Shared().Acquire(t.Context())
				require.NoError(t, err)
				began := time.Now()
				three.crash()
				one.host.Died(members[2])
				two.host.Died(members[2])
				for _, name := range names {
					for _, s := range []*member{one, two} {
						r, err := s.Mutex(name).Shared().Acquire(nodetest.ContextFor(t, time.Minute))
						require.NoError(t, err)
						require.Less(t, time.Since(began), leaseOf/20)
						require.NoError(t, r.Release())
						_, err = s.Mutex(name).Acquire(nodetest.ContextFor(t, time.Millisecond))
						require.Error(t, err)
					}
				}
				require.NoError(t, h.Err())
				require.NoError(t, h.Release())
				for _, name := range names {
					h, err := one.Mutex(name).Acquire(t.Context())
					require.NoError(t, err)
					require.Greater(t, time.Since(began), leaseOf)
					require.Less(t, time.Since(began), leaseOf*104/100)
					require.NoError(t, h.Release())
				}
			})
		})
	}
}

// A member is cut off and excluded at once while it holds locks, alone and shared, that a change of the group
// has carried over and that nobody has used since. The others know of them: nobody gets one that conflicts
// before the holder's lease has ended.
func TestCarriedHolds(t *testing.T) {
	for name, algorithm := range map[string]dmutex.Algorithm{"default": nil, "central": central.New, "ricart": ricart.New, "lamport": lamport.New} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, algorithm, func(t *testing.T, g *group) {
				members := slices.Clone(g.open(3))
				one, two, three := members[0], members[1], members[2]
				held := make(map[string]lock.Held)
				for i := range 12 {
					name := fmt.Sprint("lock ", i)
					mutex := lock.Mutex(three.Mutex(name))
					if i%2 > 0 {
						mutex = three.Mutex(name).Shared()
					}
					h, err := mutex.Acquire(t.Context())
					require.NoError(t, err)
					held[name] = h
				}
				four := g.join()
				require.NoError(t, four.Ready(t.Context()))
				time.Sleep(leaseOf / 10)

				three.isolate(true)
				one.host.Died(three.Self())
				two.host.Died(three.Self())
				synctest.Wait()
				var all sync.WaitGroup
				for name, theirs := range held {
					for _, s := range []*member{one, two, four} {
						all.Go(func() {
							h, err := s.Mutex(name).Acquire(nodetest.ContextFor(t, 2*leaseOf))
							if assert.NoError(t, err) {
								assert.Error(t, theirs.Err(), "two hold %q", name)
								assert.NoError(t, h.Release())
							}
						})
					}
				}
				all.Wait()
			})
		})
	}
}

// How long other readers wait when a member that shares a lock falls silent, in leases: until it is excluded, if
// a survivor knows that it does not hold the lock alone; else for its lease, too. A survivor that shares the lock
// itself knows that under every algorithm, a coordinator or its witness under central.
func TestSilentReader(t *testing.T) {
	for _, a := range algorithms.Some() {
		if !a.Shares {
			continue
		}
		for _, shared := range []bool{false, true} {
			for _, dead := range []bool{false, true} { // the home of the lock
				t.Run(fmt.Sprintf("%s, a survivor shares it %v, its home is dead %v", a.Name, shared, dead), func(t *testing.T) {
					bubbleLease(t, a.Algorithm, func(t *testing.T, g *group) {
						all, members := slices.Clone(g.open(3)), g.members
						name := nameAt(members[map[bool]int{false: 0, true: 2}[dead]], members)
						_, err := all[2].Mutex(name).Shared().Acquire(t.Context())
						require.NoError(t, err)
						if shared {
							_, err := all[0].Mutex(name).Shared().Acquire(t.Context())
							require.NoError(t, err)
						}
						time.Sleep(leaseOf / 10)
						began := time.Now()
						all[2].crash()
						h, err := all[1].Mutex(name).Shared().Acquire(t.Context())
						require.NoError(t, err)
						waited := float64(time.Since(began)) / float64(leaseOf)
						if shared || a.Name == "central.Witnessed" || a.Name == "central" && !dead {
							require.Less(t, waited, 0.5)
						} else {
							// From its last sign of life, which is up to a 20th of a lease (leases.Ask) before its death.
							require.InDelta(t, 1.48, waited, 0.07)
						}
						require.NoError(t, h.Release())
					})
				})
			}
		}
	}
}
