package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A farStore takes up to a tenth of a second to do what it is asked, and as long to answer.
type farStore struct {
	store.Store
	mu   sync.Mutex
	luck *rand.Rand
}

func (s *farStore) wait() {
	s.mu.Lock()
	d := time.Duration(s.luck.Int64N(int64(session / 100)))
	s.mu.Unlock()
	time.Sleep(d)
}

func (s *farStore) Load(ctx context.Context) ([]byte, store.Revision, error) {
	s.wait()
	defer s.wait()
	return s.Store.Load(ctx)
}

func (s *farStore) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	s.wait()
	defer s.wait()
	return s.Store.Swap(ctx, value, rev)
}

// In a rolling restart, no client waits long for a lock that nobody else takes: the peers have what a member
// sent before it closed, and its last word, before the record changes.
func TestRollingRestart(t *testing.T) {
	seeds := uint64(20)
	switch {
	case testing.Short():
		seeds = 2
	case racetest.On || quicktest.On():
		seeds = 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { bubble(t, func(t *testing.T, w *world) { rollingRestart(t, w, seed) }) })
	}
}

func rollingRestart(t *testing.T, w *world, seed uint64) {
	luck := rand.New(rand.NewPCG(seed, 0))
	var err error
	w.net, err = memlink.New(memlink.Config{Seed: seed, MaxDelay: time.Duration(luck.Int64N(int64(session / 100)))})
	require.NoError(t, err)
	w.wrap = func(s *outagetest.Store) store.Store {
		return &farStore{Store: s, luck: rand.New(rand.NewPCG(seed, luck.Uint64()))}
	}
	names := []string{"m0", "m1", "m2"}
	for _, name := range names {
		w.open(name)
	}
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for i := range 24 {
		u := w.use(fmt.Sprint("u", i), names...)
		luck := rand.New(rand.NewPCG(seed, uint64(i)))
		working.Go(func() {
			pause := func(most time.Duration) { time.Sleep(time.Duration(luck.Int64N(int64(most)))) }
			for ctx.Err() == nil {
				name := fmt.Sprint("l", i, "/", luck.IntN(4))
				began := time.Now()
				h, err := u.Mutex(name).Acquire(ctx)
				if ctx.Err() != nil {
					return
				}
				if took := time.Since(began); took > session/4 {
					t.Errorf("seed %d: client %d waited %v for %s from %v", seed, i, took, name, began)
				}
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
					return
				}
				pause(session / 20)
				if luck.IntN(3) == 0 { // a job
					pause(session)
				}
				if err := h.Release(); err != nil {
					t.Errorf("seed %d: client %d: %v", seed, i, err)
				}
				pause(session / 50)
			}
		})
	}
	for _, name := range names {
		time.Sleep(session/2 + time.Duration(luck.Int64N(int64(session))))
		m := w.member(name)
		w.forget(name)
		began := time.Now()
		require.NoError(t, m.Close(t.Context()))
		require.Less(t, time.Since(began), session/4, "seed %d", seed)
		w.open(name)
	}
	time.Sleep(session)
	stop()
	working.Wait()
}

// A member that closes costs no wait: not for a lock that its client keeps at another member, and releases,
// and not for those that nobody holds, whatever the machines of the others know.
func TestCloseCostsNoWait(t *testing.T) {
	for name, algorithm := range map[string]dmutex.Algorithm{"central": central.New, "witnessed": central.Witnessed, "ricart": ricart.New} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.algorithm = algorithm
				var err error
				w.net, err = memlink.New(memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond})
				require.NoError(t, err)
				a := w.open("a")
				w.open("b")
				w.open("c")
				one, two, three := w.use("one", "a", "b"), w.use("two", "b"), w.use("three", "c")
				soon := func(u *user, name string) {
					began := time.Now()
					h := u.acquire(name)
					require.Less(t, time.Since(began), session/4, name)
					require.NoError(t, h.Release())
				}
				var held []lock.Held
				for i := range 5 {
					held = append(held, one.acquire(fmt.Sprint("held ", i)))
				}
				for i := range 30 {
					soon(one, fmt.Sprint("free ", i))
				}
				w.forget("a")
				require.NoError(t, a.Close(t.Context()))
				for i := range 30 {
					soon(two, fmt.Sprint("free ", i))
					soon(three, fmt.Sprint("new ", i))
				}
				require.NoError(t, held[4].Release())
				time.Sleep(session / 20)
				for i, h := range held[:4] {
					require.NoError(t, h.Err())
					require.NoError(t, h.Release())
					soon([]*user{two, three}[i%2], fmt.Sprint("held ", i))
				}
				soon(three, "held 4")
			})
		})
	}
}

// A lock that was released while its member closed is free: the client gives it back at another member.
func TestReleasedWhileMemberCloses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.open("a")
		w.open("b")
		one, two := w.use("one", "a", "b"), w.use("two", "b")
		held := one.acquire("l")
		w.forget("a")
		closed := make(chan error, 1)
		go func() { closed <- a.Close(t.Context()) }()
		one.hangUp("a")
		synctest.Wait()
		require.NoError(t, held.Release())
		require.NoError(t, <-closed)
		began := time.Now()
		require.NoError(t, two.acquire("l").Release())
		require.Less(t, time.Since(began), session/4)
	})
}

// A peer that hangs delays a Close for an eighth of a lease at most, and one that is known to be silent does
// not delay it.
func TestCloseBesideHungMember(t *testing.T) {
	for _, silent := range []time.Duration{0, session / 4} {
		bubble(t, func(t *testing.T, w *world) {
			a, b := w.open("a"), w.open("b")
			w.open("c")
			held := w.use("one", "a", "c").acquire("l")
			b.cut.Store(true)
			time.Sleep(silent)
			began := time.Now()
			w.forget("a")
			require.NoError(t, a.Close(t.Context()))
			took := time.Since(began)
			require.LessOrEqual(t, took, session/8+time.Second/10)
			if silent > 0 {
				require.Less(t, took, session/20)
			}
			time.Sleep(session / 2)
			require.NoError(t, held.Err())
			b.cut.Store(false)
			time.Sleep(3 * session)
		})
	}
}

// A member that hangs makes no new client wait for long, also when it was excluded long ago.
func TestHungMember(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.open("m0")
		w.open("m1")
		w.open("m2")
		m.door.hangs.Store(true)
		defer func() {
			m.cut.Store(false)
			m.store.Outage(false)
		}()
		for _, later := range []time.Duration{0, 10 * session} {
			time.Sleep(later)
			for i := range 12 {
				u := w.use(fmt.Sprint(later, i), "m0", "m1", "m2")
				began := time.Now()
				require.NoError(t, u.acquire(fmt.Sprint("l", later, i)).Release())
				require.Less(t, time.Since(began), session/20)
			}
			m.cut.Store(true)
			m.store.Outage(true)
		}
	})
}
