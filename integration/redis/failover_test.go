//go:build unix

package redis

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/redisstore"
	"github.com/dmutex/dmutex/store/storelock"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// A referee watches who is inside.
type referee struct {
	t      *testing.T
	mu     sync.Mutex
	inside map[string][]lock.Held
	fences map[string]uint64
	holds  int
	last   time.Time
	stood  time.Duration // the longest time without a grant
}

// use takes and releases a lock until the context ends.
func (r *referee) use(ctx context.Context, name string, m lock.Mutex) {
	for ctx.Err() == nil {
		h, err := m.Acquire(ctx)
		if err != nil {
			if ctx.Err() == nil {
				r.t.Errorf("%s: %v", name, err)
			}
			return
		}
		r.enter(name, h)
		time.Sleep(100 * time.Microsecond)
		r.leave(name, h)
		_ = h.Release()
	}
}

func (r *referee) enter(name string, h lock.Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.inside[name] {
		if other.Err() == nil && h.Err() == nil {
			r.t.Errorf("two hold %s, by fences %d and %d", name, other.Fence(), h.Fence())
		}
	}
	if h.Fence() <= r.fences[name] {
		r.t.Errorf("the fence of %s falls from %d to %d", name, r.fences[name], h.Fence())
	}
	now := time.Now()
	if r.holds > 0 {
		r.stood = max(r.stood, now.Sub(r.last))
	}
	r.inside[name], r.fences[name], r.last = append(r.inside[name], h), h.Fence(), now
	r.holds++
}

func (r *referee) leave(name string, h lock.Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range r.inside[name] {
		if other == h {
			r.inside[name] = append(r.inside[name][:i], r.inside[name][i+1:]...)
			return
		}
	}
}

// Three members with their record in Redis, which Sentinel watches, go on by themselves when its master was killed, and when
// the next one was stopped for seconds; so do users of a lock that is a record of its own. Nobody holds a lock beside another,
// and fences rise.
func TestSentinel(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const lease = 2 * time.Second
	servers3 := []*servers.Redis{servers.StartRedis(t), servers.StartRedis(t), servers.StartRedis(t)}
	for _, r := range servers3[1:] {
		follow(t, client(t, r.Address), servers3[0].Address)
	}
	var sentinels []string
	for range 3 {
		sentinels = append(sentinels, servers.StartSentinel(t, servers3[0].Address).Address)
	}
	cfg := redisstore.Config{Servers: 3, Lease: lease}
	ready(t, servers3[0].Address, cfg)
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: sentinels[0]})
	defer sentinel.Close()
	master := func() *servers.Redis {
		for {
			at, err := sentinel.GetMasterAddrByName(t.Context(), "locks").Result()
			for _, r := range servers3 {
				if err == nil && r.Address == at[0]+":"+at[1] {
					return r
				}
			}
			require.NoError(t, t.Context().Err())
		}
	}
	knows := func() bool { // a Sentinel can fail over only to replicas that it knows, with others that it knows
		replicas, err := sentinel.Replicas(t.Context(), "locks").Result()
		others, err2 := sentinel.Sentinels(t.Context(), "locks").Result()
		return err == nil && err2 == nil && len(replicas) == 2 && len(others) == 2
	}
	for !knows() {
		time.Sleep(50 * time.Millisecond)
	}
	record := func(name string) store.Store {
		c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "locks", SentinelAddrs: sentinels, MaxRetries: -1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { c.Close() })
		return open(t, c, cfg, name)
	}

	group := &referee{t: t, inside: map[string][]lock.Held{}, fences: map[string]uint64{}}
	alone := &referee{t: t, inside: map[string][]lock.Held{}, fences: map[string]uint64{}}
	ctx, stop := context.WithCancel(t.Context())
	var using sync.WaitGroup
	for i := range 3 {
		link, err := tcplink.New(tcplink.Config{Listen: "127.0.0.1:0"})
		require.NoError(t, err)
		n, err := node.Open(t.Context(), record("group"), link, node.Config{Algorithm: central.Witnessed, Lease: lease, Name: fmt.Sprint(i)})
		require.NoError(t, err)
		defer n.Close(context.Background())
		for _, name := range []string{"a", "b"} {
			using.Go(func() { group.use(ctx, name, n.Mutex(name)) })
		}
		own, err := storelock.New(record("own"), "own", lease)
		require.NoError(t, err)
		using.Go(func() { alone.use(ctx, "own", own) })
	}
	count := func() (int, int) {
		group.mu.Lock()
		defer group.mu.Unlock()
		alone.mu.Lock()
		defer alone.mu.Unlock()
		return group.holds, alone.holds
	}
	more := func(what string) { // both go on
		g, a := count()
		for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			now, own := count()
			if now >= g+3000 && own >= a+30 {
				t.Logf("%s: after %v, %d holds of the group and %d of the lock of its own", what, time.Since(began).Round(time.Millisecond), now, own)
				return
			}
			require.Less(t, time.Since(began), time.Minute, what)
		}
	}
	more("at first")
	killed := master()
	killed.Crash()
	for master() == killed {
		time.Sleep(20 * time.Millisecond)
	}
	more("the master was killed")
	killed.Start()
	for !knows() {
		time.Sleep(50 * time.Millisecond)
	}
	stopped := master()
	stopped.Signal(syscall.SIGSTOP)
	for master() == stopped {
		time.Sleep(20 * time.Millisecond)
	}
	more("the next one was stopped")
	stopped.Continue()
	more("it goes on")
	stop()
	using.Wait()
	g, a := count()
	require.Greater(t, g, 10_000)
	t.Logf("%d holds of the group, %d of the lock of its own; grants stood still for at most %v and %v", g, a, group.stood, alone.stood)
}
