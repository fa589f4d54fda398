//go:build unix

package redis

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/redisstore"
	"github.com/dmutex/dmutex/store/storelock"
	"github.com/dmutex/dmutex/store/storetest"
)

func TestMain(m *testing.M) {
	var missing error
	if _, err := exec.LookPath("redis-server"); err != nil {
		missing = errors.New("redis-server is not installed, so redisstore is not tested (Debian: apt-get install redis-server)")
	}
	servers.Main(m, missing)
}

const lease = time.Second

func client(t *testing.T, address string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	return c
}

func open(t *testing.T, c *redis.Client, cfg redisstore.Config, name string) store.Store {
	s, err := redisstore.Open(t.Context(), c, cfg, name)
	require.NoError(t, err)
	return s
}

// settle waits until the servers are sure that nobody relies on what they have forgotten.
func settle(t *testing.T, s store.Store) {
	for {
		_, _, err := s.Load(t.Context())
		if err == nil {
			return
		}
		require.ErrorIs(t, err, store.ErrForgotten)
		time.Sleep(10 * time.Millisecond)
	}
}

// The store keeps its contract on one server, and on a master with two replicas.
func TestRedis(t *testing.T) {
	for name, n := range map[string]int{"one server": 1, "a master with two replicas": 3} {
		t.Run(name, func(t *testing.T) {
			master := servers.StartRedis(t)
			for range n - 1 {
				follow(t, client(t, servers.StartRedis(t).Address), master.Address)
			}
			cfg := redisstore.Config{Servers: n, Lease: 100 * time.Millisecond}
			settle(t, ready(t, master.Address, cfg))
			storetest.Run(t, func(t *testing.T, group string) store.Store { return open(t, client(t, master.Address), cfg, group) })
			storetest.RunServer(t, master.Address,
				func(t *testing.T, address, group string) store.Store { return open(t, client(t, address), cfg, group) },
				func(t *testing.T, group string) {
					require.NoError(t, client(t, master.Address).Del(t.Context(), group).Err())
				})
		})
	}
}

// ready opens a record when enough replicas follow the master.
func ready(t *testing.T, address string, cfg redisstore.Config) store.Store {
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		s, err := redisstore.Open(ctx, client(t, address), cfg, "ready")
		cancel()
		if err == nil {
			return s
		}
		require.NotErrorIs(t, err, store.ErrUnusable)
		require.NoError(t, t.Context().Err())
	}
}

func follow(t *testing.T, replica *redis.Client, master string) {
	host, port, _ := net.SplitHostPort(master)
	require.NoError(t, replica.Do(t.Context(), "REPLICAOF", host, port).Err())
}

// A server that restarts has lost the lock. Its holder loses it, too, and the next one waits until it has. A process that
// asks later need not wait again.
func TestRestart(t *testing.T) {
	server := servers.StartRedis(t)
	cfg := redisstore.Config{Servers: 1, Lease: lease}
	door := func() lock.Mutex {
		m, err := storelock.New(open(t, client(t, server.Address), cfg, "door"), "door", lease)
		require.NoError(t, err)
		return m
	}
	held, err := door().Acquire(t.Context())
	require.NoError(t, err)
	next := door()
	server.Crash()
	server.Start()
	began := time.Now()
	short, cancel := context.WithTimeout(t.Context(), lease/2)
	defer cancel()
	_, err = next.Acquire(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, store.ErrForgotten)
	h, err := next.Acquire(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), lease)
	require.ErrorIs(t, held.Err(), lock.ErrLost)
	require.Greater(t, h.Fence(), held.Fence())
	require.NoError(t, h.Release())
	other, err := storelock.New(open(t, client(t, server.Address), cfg, "other"), "other", lease)
	require.NoError(t, err)
	h, err = other.TryAcquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Release())
}

// A replica is promoted without the last write of its master, and the master does not know. With a key that has a time to
// live, as of redsync over one master with replicas, two hold one lock. With redisstore nobody gets it while the old
// master has a majority, and its holder has lost it before the new master grants it.
func TestPromotedReplica(t *testing.T) {
	old, promoted, third := servers.StartRedis(t), servers.StartRedis(t), servers.StartRedis(t)
	for _, r := range []*servers.Redis{promoted, third} {
		follow(t, client(t, r.Address), old.Address)
	}
	cfg := redisstore.Config{Servers: 3, Lease: lease}
	settle(t, ready(t, old.Address, cfg))
	ctx := t.Context()
	require.NoError(t, client(t, promoted.Address).Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	for _, r := range []*servers.Redis{old, promoted} {
		ok, err := client(t, r.Address).SetNX(ctx, "naive", "me", time.Minute).Result()
		require.NoError(t, err)
		require.True(t, ok, "two hold the naive lock")
	}

	atOld, err := storelock.New(open(t, client(t, old.Address), cfg, "door"), "door", lease)
	require.NoError(t, err)
	held, err := atOld.Acquire(ctx)
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, lease/2)
	_, err = redisstore.Open(short, client(t, promoted.Address), cfg, "door")
	cancel()
	require.Error(t, err, "it has no majority")
	require.NoError(t, held.Err())

	follow(t, client(t, third.Address), promoted.Address)
	s := ready(t, promoted.Address, cfg)
	atNew, err := storelock.New(s, "door", lease)
	require.NoError(t, err)
	next, err := atNew.Acquire(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, held.Err(), lock.ErrLost)
	require.NoError(t, next.Release())
}

// What would break the contract is refused.
func TestRefused(t *testing.T) {
	server := servers.StartRedis(t)
	ctx, cfg := t.Context(), redisstore.Config{Servers: 1}
	for _, o := range []redis.Options{{ContextTimeoutEnabled: true}, {MaxRetries: -1}} {
		o.Addr = server.Address
		c := redis.NewClient(&o)
		defer c.Close()
		_, err := redisstore.Open(ctx, c, cfg, "a")
		require.ErrorIs(t, err, store.ErrUnusable)
		require.ErrorContains(t, err, "set MaxRetries to -1")
	}
	c := client(t, server.Address)
	for want, bad := range map[string]redisstore.Config{"1 or an odd number": {}, "or an odd number, the": {Servers: 2}, "100ms to 1h": {Servers: 1, Lease: time.Millisecond}} {
		_, err := redisstore.Open(ctx, c, bad, "a")
		require.ErrorContains(t, err, want)
	}
	_, err := redisstore.Open(ctx, c, cfg, "")
	require.ErrorContains(t, err, "name of the record is empty")
	_, err = redisstore.Open(ctx, c, cfg, "dmutex.settled")
	require.ErrorContains(t, err, "choose another name", "or no record of the server would be found any more")
	alone, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = redisstore.Open(alone, c, redisstore.Config{Servers: 3}, "alone")
	require.ErrorContains(t, err, "0 of 2 replicas have it")

	s := open(t, c, cfg, "list")
	require.NoError(t, c.LPush(ctx, "list", "x").Err())
	storetest.Unusable(t, s, "0")
	require.NoError(t, c.Do(ctx, "ACL", "SETUSER", "web", "on", ">web", "+info", "+ping").Err())
	web := redis.NewClient(&redis.Options{Addr: server.Address, MaxRetries: -1, ContextTimeoutEnabled: true, Username: "web", Password: "web"})
	defer web.Close()
	_, err = redisstore.Open(ctx, web, cfg, "a")
	require.ErrorIs(t, err, store.ErrUnusable)
	require.ErrorContains(t, err, "NOPERM")

	for _, missing := range []string{"-hset", "resetkeys"} { // what the scripts may not do
		require.NoError(t, c.Do(ctx, "ACL", "SETUSER", "web", "on", "allkeys", "+@all").Err())
		s := open(t, web, cfg, "web")
		_, rev, _ := s.Load(ctx)
		require.NoError(t, c.Do(ctx, "ACL", "SETUSER", "web", missing).Err())
		_, err := s.Swap(ctx, []byte("a"), rev)
		require.ErrorIs(t, err, store.ErrUnusable, missing)
	}

	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "100mb").Err())
	require.NoError(t, c.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	_, err = redisstore.Open(ctx, c, cfg, "a")
	require.ErrorIs(t, err, store.ErrUnusable)
	require.ErrorContains(t, err, "its maxmemory-policy is allkeys-lru")
	require.NoError(t, c.ConfigSet(ctx, "maxmemory-policy", "volatile-lru").Err())
	open(t, c, cfg, "a")

	replica := servers.StartRedis(t)
	follow(t, client(t, replica.Address), server.Address)
	for {
		_, err = redisstore.Open(ctx, c, cfg, "a")
		if err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "it has 1 replicas, more than Config.Servers says")
	_, err = redisstore.Open(ctx, client(t, replica.Address), cfg, "a")
	require.ErrorContains(t, err, "it is a replica")
	require.NotErrorIs(t, err, store.ErrUnusable, "it may be promoted")

	cluster := servers.StartRedis(t, "--cluster-enabled", "yes")
	_, err = redisstore.Open(ctx, client(t, cluster.Address), cfg, "a")
	require.ErrorIs(t, err, store.ErrUnusable)
	require.ErrorContains(t, err, "it is a server of a cluster")
}

// A Swap that is given up while its client connects is written later as it was, though the caller uses its slice again.
func TestSlice(t *testing.T) {
	server := servers.StartRedis(t)
	ctx, cancel := context.WithCancel(t.Context())
	var slow atomic.Bool
	connected := make(chan struct{})
	options := redis.Options{Addr: server.Address, MaxRetries: -1, ContextTimeoutEnabled: true, ConnMaxLifetime: time.Nanosecond}
	options.OnConnect = func(context.Context, *redis.Conn) error {
		if slow.Load() {
			cancel()
			<-connected
		}
		return nil
	}
	c := redis.NewClient(&options)
	defer c.Close()
	cfg := redisstore.Config{Servers: 1, Lease: 100 * time.Millisecond}
	other := open(t, client(t, server.Address), cfg, "slice")
	settle(t, other)
	_, rev, err := other.Load(t.Context())
	require.NoError(t, err)
	s, value := open(t, c, cfg, "slice"), []byte("value")
	slow.Store(true)
	_, err = s.Swap(ctx, value, rev)
	require.ErrorIs(t, err, context.Canceled)
	copy(value, "other")
	close(connected)
	var got []byte
	require.Eventually(t, func() bool {
		got, _, err = other.Load(t.Context())
		return err == nil && len(got) > 0
	}, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, "value", string(got), "the store keeps the slice that was swapped")
}

// The tool keeps the records of locks and of groups below a prefix.
func TestTool(t *testing.T) {
	server := servers.StartRedis(t)
	tool := servers.BuildTool(t, "redis")
	at := "redis://" + server.Address + "/tool"
	out, err := exec.Command(tool, "run", "--store="+at, "--lock=a door", "--lease=1s", "--", tool, "run", "--store="+at, "--lock=a door", "--lease=1s", "-n", "--", "true").CombinedOutput()
	require.ErrorContains(t, err, "exit status 123", "%s", out)
	keys, err := client(t, server.Address).Keys(t.Context(), "tool*").Result()
	require.NoError(t, err)
	require.Equal(t, []string{"tool:a door"}, keys)
	servers.ServeAt(t, tool, at)
}

// The records are registers, but for what a restart loses, while their server is killed and stopped, and
// the network is bad.
func TestRegister(t *testing.T) {
	server := servers.StartRedis(t)
	through, turn := servers.BadNetwork(t, server.Address)
	var clients [8]*redis.Client
	for i := range clients {
		clients[i] = client(t, through)
	}
	harms := []func() bool{turn}
	for range 3 {
		restart := func() bool {
			server.Crash()
			server.Start()
			return true
		}
		harms = append(harms, restart, restart, func() bool {
			server.Pause(150 * time.Millisecond)
			return false
		})
	}
	servers.Register(t, 20_000, func(worker int, name string) store.Store {
		return open(t, clients[worker], redisstore.Config{Servers: 1, Lease: 100 * time.Millisecond}, name)
	}, harms...)
}
