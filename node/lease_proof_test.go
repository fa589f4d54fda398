package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
)

// A registry is where a store in memory keeps the lives of processes.
type registry struct {
	mu    sync.Mutex
	count int
	lives map[string]chan struct{}
	ends  map[string]time.Time
	hangs bool          // whether Living does not answer
	blind bool          // whether Living proves nothing, as if another process had no life
	looks atomic.Int64  // calls of Living
	slow  time.Duration // that Living takes to answer
	fails int           // how many calls of Over fail
}

// A prover is the store of one process. An outage of the store leaves the registry alone, as it
// leaves the kernel alone.
type prover struct {
	store.Store
	*registry
	no bool // whether it has no proofs
}

// memoryLife is a life in a registry.
type memoryLife struct {
	r    *registry
	name string
}

func (p *prover) Live(context.Context) (store.Life, error) {
	if p.no {
		return nil, fmt.Errorf("a network file system: %w", store.ErrNoProof)
	}
	return p.begin(), nil
}

func (r *registry) begin() store.Life {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	l := memoryLife{r, fmt.Sprintf("life%d", r.count)}
	r.lives[l.name] = make(chan struct{})
	return l
}

func (r *registry) Over(ctx context.Context, name string) error {
	r.mu.Lock()
	over := r.lives[name]
	_, known := r.ends[name]
	fails := r.fails > 0
	r.fails--
	r.mu.Unlock()
	switch {
	case fails:
		return errors.New("too many open files")
	case known:
		return nil
	case over == nil:
		return store.ErrNoProof
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *prover) Living(ctx context.Context) ([]string, error) {
	p.looks.Add(1)
	if p.no || p.blind {
		return nil, store.ErrNoProof
	}
	if p.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	living := p.living()
	time.Sleep(p.slow)
	return living, nil
}

func (r *registry) living() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.lives))
}

func (l memoryLife) Name() string   { return l.name }
func (l memoryLife) File() *os.File { return nil }

func (l memoryLife) Close() error {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if over := l.r.lives[l.name]; over != nil { // else a test has ended it
		close(over)
		delete(l.r.lives, l.name)
		l.r.ends[l.name] = time.Now()
	}
	return nil
}

// proving makes the stores of processes that start later prove deaths.
func (g *group) proving() *registry {
	r := &registry{lives: make(map[string]chan struct{}), ends: make(map[string]time.Time)}
	g.wrapStore = func(s store.Store) store.Store { return &prover{Store: s, registry: r} }
	return r
}

// soon is far below a lease.
const soon = leaseOf / 40

// With proofs, nobody waits for a new record, however many processes find it at once.
func TestProofNewRecord(t *testing.T) {
	for n := 1; n <= 5; n++ {
		bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
			r := g.proving()
			var log nodetest.Journal
			g.log = log.Logger()
			began := time.Now()
			for range n {
				g.join()
			}
			for _, s := range g.all {
				require.NoError(t, s.acquire("x").Release())
			}
			require.Less(t, time.Since(began), soon)
			require.Len(t, r.living(), n)
			said := strings.Join(log.Take(), "\n")
			require.NotContains(t, said, "msg=waiting", "not even if it sees others join")
			if n == 1 {
				require.Contains(t, said, "no lease is waited for: only members live")
			}
			for len(g.all) > 0 {
				g.all[0].close()
			}
			require.Empty(t, r.living())

			began = time.Now() // again
			require.NoError(t, g.join().acquire("x").Release())
			require.Less(t, time.Since(began), soon)
		})
	}
}

// The locks of a dead process, and all others, are free at once, even if the link does not report
// the death.
func TestProofOfDeath(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		g.proving()
		var log nodetest.Journal
		g.log = log.Logger()
		g.open(4)
		for range 3 {
			g.all[0].acquire("x")
			next := g.all[1].acquireLater(t.Context(), "x")
			began := time.Now()
			g.all[0].crash()
			require.NoError(t, granted(t, next).Release())
			require.Less(t, time.Since(began), soon)
			require.Contains(t, strings.Join(log.Take(), "\n"), "peer's process has ended")

			began = time.Now()
			require.NoError(t, g.join().acquire("x").Release()) // its life begins while the others look
			require.Less(t, time.Since(began), soon)
		}
	})
}

// If all processes are killed, the next one does not wait for their leases.
func TestProofOfAll(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		g.proving()
		for _, s := range slices.Clone(g.open(3)) {
			s.acquire("x" + s.Self().String())
			s.crash()
		}
		began := time.Now()
		s := g.join()
		for _, name := range []string{"x1", "x2", "x3"} {
			require.NoError(t, s.acquire(name).Release())
		}
		require.Less(t, time.Since(began), soon)
	})
}

// If all processes are killed, the group can be started with other settings at once: the store proves
// that they are dead. While one lives, or where nothing is proved, a process with other settings stops.
func TestProofOtherSettings(t *testing.T) {
	for _, tc := range []struct{ lives, proves bool }{{false, true}, {true, true}, {false, false}} {
		bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
			r := g.proving()
			all := slices.Clone(g.open(3))
			for _, s := range all[1:] {
				s.crash()
			}
			if !tc.lives {
				all[0].crash()
			}
			g.wrapStore = func(s store.Store) store.Store { return &prover{s, r, !tc.proves} }
			var opened []*member
			for range 3 {
				opened = append(opened, g.join(func(c *node.Config) { c.Algorithm, c.Lease = central.New, c.Lease*2 }))
			}
			began := time.Now()
			for _, n := range opened {
				if err := n.Ready(t.Context()); tc.lives || !tc.proves {
					require.ErrorIs(t, err, node.ErrConfig)
				} else {
					require.NoError(t, err)
				}
			}
			require.Less(t, time.Since(began), soon)
		})
	}
}

// A process that is only cut off is not dead, so the others wait for its lease. When it is back it
// has another life, and the next death is proved.
func TestProofOfNothing(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		r := g.proving()
		require.NoError(t, g.join().Ready(nodetest.ContextFor(t, soon))) // it has the first life
		all := slices.Clone(g.open(2))
		one, two, three := all[0], all[1], all[2]
		held, former := one.acquire("x"), one.Self()
		next := two.acquireLater(t.Context(), "x")
		one.isolate(true)
		h := granted(t, next)
		require.ErrorIs(t, held.Err(), node.ErrLost)
		require.Len(t, r.living(), 3)
		one.isolate(false)
		one.rejoins(former)
		synctest.Wait()
		require.Len(t, r.living(), 3, "it has ended the former life")
		require.NotContains(t, r.living(), "life1")

		three.crash()
		began := time.Now()
		waiting := one.acquireLater(t.Context(), "y")
		require.NoError(t, two.acquire("z").Release())
		require.NoError(t, (<-waiting).err)
		require.Less(t, time.Since(began), soon)
		require.NoError(t, h.Release())
	})
}

// A process that was cut off and excluded long ago does not delay the proof of another death.
func TestProofBesideCutOff(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		r := g.proving()
		all := slices.Clone(g.open(3))
		all[0].isolate(true)
		time.Sleep(2 * leaseOf)
		require.NoError(t, all[1].acquire("x").Release())
		require.Len(t, r.living(), 3)
		all[1].acquire("x")
		next := all[2].acquireLater(t.Context(), "x")
		began := time.Now()
		all[1].crash()
		require.NoError(t, granted(t, next).Release())
		require.Less(t, time.Since(began), soon)
	})
}

// A proof is final: late messages of a dead process do not bring it back.
func TestProofIsFinal(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		r := g.proving()
		require.NoError(t, g.join().Ready(nodetest.ContextFor(t, soon))) // it has the first life
		all := slices.Clone(g.open(1))
		one, two := all[0], all[1]
		require.NoError(t, two.acquire("x").Release())
		two.store.Outage(true)
		require.NoError(t, memoryLife{r, "life1"}.Close())
		time.Sleep(leaseOf / 100)
		g.wrapStore = nil
		g.join() // one, proved dead, reports in the view with this process
		time.Sleep(leaseOf / 5)
		require.Zero(t, one.Status().Lease.Exclusions)
		two.store.Outage(false)
		time.Sleep(leaseOf / 2)
		require.Equal(t, 1, one.Status().Lease.Exclusions)
	})
}

// The life of an excluded process lasts until its lease has ended, because its code may not have
// stopped yet. The death of the process ends the wait of the others.
func TestProofOfExcluded(t *testing.T) {
	for _, dies := range []bool{true, false} {
		bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
			r := g.proving()
			require.NoError(t, g.join().Ready(nodetest.ContextFor(t, soon)))
			all := slices.Clone(g.open(1))
			one, two := all[0], all[1]
			held := one.acquire("x")
			next := two.acquireLater(t.Context(), "x")
			began := time.Now()
			g.exclude(one.Self())
			time.Sleep(leaseOf / 2)
			require.ErrorIs(t, held.Err(), node.ErrExcluded)
			require.Contains(t, r.living(), "life1")
			if dies {
				require.NoError(t, memoryLife{r, "life1"}.Close())
				h := granted(t, next)
				require.Less(t, time.Since(began), leaseOf/2+soon)
				require.NoError(t, h.Release())
				return
			}
			h := granted(t, next)
			require.GreaterOrEqual(t, time.Since(began), leaseOf/2)
			require.NoError(t, h.Release())
			time.Sleep(leaseOf)
			require.Len(t, r.living(), 2)
		})
	}
}

// A process waits for all that live and are not members: they may be about to join, or hold locks
// by a record that was lost. The life of a process that cannot join ends.
func TestProofOfStrangers(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		r := g.proving()
		stranger := r.begin()
		one := g.join()
		require.ErrorIs(t, one.Ready(nodetest.ContextFor(t, leaseOf/2)), context.DeadlineExceeded)
		require.NoError(t, stranger.Close())
		require.NoError(t, one.Ready(nodetest.ContextFor(t, soon)))

		other := g.join(func(c *node.Config) { c.Algorithm = central.New })
		require.ErrorIs(t, other.Ready(t.Context()), node.ErrConfig)
		synctest.Wait()
		require.Len(t, r.living(), 1)

		held := one.acquire("x")
		one.isolate(true)
		g.put("") // the record is lost
		two := g.join()
		two.acquire("x")
		require.ErrorIs(t, held.Err(), node.ErrLost)
	})
}

// If there is no proof, or it does not come, the lease decides. Close does not wait for a proof.
func TestProofIsMissing(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
			r := g.proving()
			r.hangs = hangs
			g.wrapStore = func(s store.Store) store.Store { return &prover{s, r, !hangs} }
			var log nodetest.Journal
			g.log = log.Logger()
			began := time.Now()
			require.NoError(t, g.join().acquire("x").Release())
			require.GreaterOrEqual(t, time.Since(began), leaseOf)
			require.Equal(t, !hangs, strings.Contains(strings.Join(log.Take(), "\n"), "cannot prove"))
			all := slices.Clone(g.open(3))
			all[0].acquire("x")
			next := all[1].acquireLater(t.Context(), "x")
			began = time.Now()
			all[0].crash()
			require.NoError(t, granted(t, next).Release())
			require.GreaterOrEqual(t, time.Since(began), leaseOf/2)
			began = time.Now()
			for len(g.all) > 0 {
				g.all[0].close()
			}
			require.Less(t, time.Since(began), time.Second)
			require.Empty(t, r.living())
		})
	}
}

// If a member has no proof, the others wait for its lease, even if they have proofs.
func TestProofIsMissingForOne(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		g.proving()
		has := g.wrapStore
		one := g.join()
		require.NoError(t, one.Ready(nodetest.ContextFor(t, soon)))
		g.wrapStore = func(s store.Store) store.Store { return s }
		two := g.join()
		g.wrapStore = has
		held := two.acquire("x")
		next := one.acquireLater(t.Context(), "x")
		two.isolate(true)
		require.NoError(t, (<-next).err)
		require.ErrorIs(t, held.Err(), node.ErrLost)
	})
}

// The store is asked who lives less and less often, once if it can never tell, and not at all for a member
// without a proof.
func TestProofIsNotAskedInVain(t *testing.T) {
	for _, blind := range []bool{true, false} {
		bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
			r := g.proving()
			stranger := r.begin()
			r.blind = blind
			one := g.join(func(c *node.Config) { c.Lease = time.Hour })
			require.NoError(t, one.Ready(nodetest.ContextFor(t, 2*time.Hour)))
			require.Less(t, r.looks.Load(), int64(70))
			if blind {
				require.LessOrEqual(t, r.looks.Load(), int64(2))
			}
			require.NoError(t, stranger.Close())
		})
	}
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		r := g.proving()
		one := g.join()
		require.NoError(t, one.Ready(nodetest.ContextFor(t, soon)))
		g.wrapStore = nil
		two := g.join()
		two.acquire("x")
		next := one.acquireLater(t.Context(), "x")
		before := r.looks.Load()
		two.isolate(true)
		require.NoError(t, (<-next).err)
		require.Equal(t, before, r.looks.Load())
	})
}

// A life that ends while the store is being asked is asked about at once.
func TestProofDuringLook(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		r := g.proving()
		r.slow = 40 * time.Millisecond
		all := slices.Clone(g.open(3))
		all[2].acquire("x")
		next := all[0].acquireLater(t.Context(), "x")
		began := time.Now()
		all[1].crash()
		time.Sleep(r.slow / 2)
		all[2].crash()
		require.NoError(t, (<-next).err)
		require.Less(t, time.Since(began), 5*r.slow/2)
	})
}

// A life whose watch fails is watched again.
func TestProofAfterFailure(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		r := g.proving()
		r.fails = 4
		all := slices.Clone(g.open(2))
		all[0].acquire("x")
		next := all[1].acquireLater(t.Context(), "x")
		time.Sleep(leaseOf)
		began := time.Now()
		all[0].crash()
		require.NoError(t, (<-next).err)
		require.Less(t, time.Since(began), soon)
	})
}

// If a node stops, or is closed while a function runs under a lock, its life lasts until its lease
// has ended.
func TestProofOutlivesNode(t *testing.T) {
	for _, stops := range []bool{true, false} {
		bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
			r := g.proving()
			one := g.join()
			require.NoError(t, one.Ready(nodetest.ContextFor(t, soon)))
			renewed := time.Now()
			release := make(chan struct{})
			started := make(chan struct{})
			go func() {
				_ = one.Mutex("x").Do(t.Context(), func(context.Context, uint64) error {
					close(started)
					<-release
					return nil
				})
			}()
			<-started
			if stops {
				g.put("") // the record is lost
				time.Sleep(leaseOf / 2)
				require.ErrorIs(t, one.Status().Err, node.ErrRecord)
			} else {
				g.all = nil
				require.Error(t, one.Close(nodetest.ContextFor(t, time.Second)))
			}
			require.Len(t, r.living(), 1)
			time.Sleep(leaseOf + time.Second)
			require.Empty(t, r.living())
			require.Less(t, r.ends["life1"].Sub(renewed), leaseOf+soon)
			close(release)
		})
	}
}
