package servers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// Users take locks and release them, again and again. Nobody may hold a lock beside another, and fences rise.
type Users struct {
	t     *testing.T
	ctx   context.Context
	stop  context.CancelFunc
	using sync.WaitGroup
	nodes []*node.Node

	mu     sync.Mutex
	inside map[string][]lock.Held
	fences map[string]uint64
	holds  int
	last   time.Time
	stood  time.Duration // the longest time without a grant
}

// NewUsers returns users who end by Stop, or with a test that fails.
func NewUsers(t *testing.T) *Users {
	u := &Users{t: t, inside: make(map[string][]lock.Held), fences: make(map[string]uint64)}
	u.ctx, u.stop = context.WithCancel(t.Context())
	return u
}

// OfMembers starts three members of a group, each with a store of its own for the same record, whose locks "a" and "b"
// they use. The members close by Stop.
func (u *Users) OfMembers(lease time.Duration, record func() store.Store) {
	for i := range 3 {
		link, err := tcplink.New(tcplink.Config{Listen: "127.0.0.1:0"})
		require.NoError(u.t, err)
		n, err := node.Open(u.t.Context(), record(), link, node.Config{Algorithm: central.Witnessed, Lease: lease, Name: fmt.Sprint(i)})
		require.NoError(u.t, err)
		u.t.Cleanup(func() { n.Close(u.t.Context()) }) // at once, if the test fails
		u.nodes = append(u.nodes, n)
		for _, name := range []string{"a", "b"} {
			u.Use(name, n.Mutex(name))
		}
	}
}

// Outage lets three members of a group go on through an outage of the server of their record that is longer than a lease.
// They lose what they held.
func Outage(t *testing.T, record func() store.Store, crash, start func()) {
	const lease = 2 * time.Second
	u := NewUsers(t)
	u.OfMembers(lease, record)
	u.More(10_000, "at first")
	crash()
	time.Sleep(2 * lease)
	start()
	u.More(1000, "after the outage")
	holds, stood := u.Stop()
	t.Logf("%d holds, none for %v", holds, stood)
}

// Use adds a user of one lock.
func (u *Users) Use(name string, m lock.Mutex) {
	u.using.Go(func() {
		for u.ctx.Err() == nil {
			h, err := m.Acquire(u.ctx)
			if err != nil {
				if u.ctx.Err() == nil {
					u.t.Errorf("%s: %v", name, err)
				}
				return
			}
			u.enter(name, h)
			time.Sleep(100 * time.Microsecond)
			u.leave(name, h)
			_ = h.Release()
		}
	})
}

func (u *Users) enter(name string, h lock.Held) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, other := range u.inside[name] {
		if other.Err() == nil && h.Err() == nil {
			u.t.Errorf("two hold %s, by fences %d and %d", name, other.Fence(), h.Fence())
		}
	}
	if h.Fence() <= u.fences[name] {
		u.t.Errorf("the fence of %s falls from %d to %d", name, u.fences[name], h.Fence())
	}
	now := time.Now()
	if u.holds > 0 {
		u.stood = max(u.stood, now.Sub(u.last))
	}
	u.inside[name], u.fences[name], u.last = append(u.inside[name], h), h.Fence(), now
	u.holds++
}

func (u *Users) leave(name string, h lock.Held) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inside[name] = slices.DeleteFunc(u.inside[name], func(o lock.Held) bool { return o == h })
}

// Holds returns how many grants there were, and the longest time without one.
func (u *Users) Holds() (n int, stood time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.holds, u.stood
}

// More waits for n more grants, a minute at most, and logs how long the first of them took. What says what was done before.
func (u *Users) More(n int, what string) {
	u.t.Helper()
	before, _ := u.Holds()
	began, first := time.Now(), time.Duration(0)
	for now := before; now < before+n; now, _ = u.Holds() {
		if now > before && first == 0 {
			first = time.Since(began)
		}
		require.Less(u.t, time.Since(began), time.Minute, what)
		time.Sleep(time.Millisecond)
	}
	u.t.Logf("%s: a grant after %v, %d more after %v", what, first.Round(time.Millisecond), n, time.Since(began).Round(time.Millisecond))
}

// Stop ends the users, and then the members in order. It returns what Holds returns.
func (u *Users) Stop() (holds int, stood time.Duration) {
	u.stop()
	u.using.Wait()
	for _, n := range u.nodes {
		require.NoError(u.t, n.Close(u.t.Context()))
	}
	return u.Holds()
}
