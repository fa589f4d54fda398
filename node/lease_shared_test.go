package node_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/ricart"
)

// A dead reader delays writers for its lease, and readers not at all, if its death is reported and the lock
// has a witness, or a living home.
func TestSharedDeath(t *testing.T) {
	for name, algorithm := range map[string]dmutex.Algorithm{"default": nil, "central": central.New} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, algorithm, func(t *testing.T, g *group) {
				one, two, three := g.join(), g.join(), g.join()
				for _, s := range g.all {
					require.NoError(t, s.Ready(t.Context()))
				}
				members := []dmutex.NodeID{one.Self(), two.Self(), three.Self()}
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
				one, two, three := g.join(), g.join(), g.join()
				for _, s := range g.all {
					require.NoError(t, s.Ready(t.Context()))
				}
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
						all := slices.Clone(g.open(3))
						members := []dmutex.NodeID{all[0].Self(), all[1].Self(), all[2].Self()}
						name := "x"
						for i := 0; (locks.Home(name, members) == members[2]) != dead; i++ {
							name = fmt.Sprint("x", i)
						}
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
