//go:build unix

package redis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/redisstore"
	"github.com/dmutex/dmutex/store/storelock"
)

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

	group, alone := servers.NewUsers(t), servers.NewUsers(t)
	group.OfMembers(lease, func() store.Store { return record("group") })
	for range 3 {
		own, err := storelock.New(record("own"), "own", lease)
		require.NoError(t, err)
		alone.Use("own", own)
	}
	more := func(what string) { // both go on
		group.More(3000, what+", the group")
		alone.More(30, what+", the lock of its own")
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
	stopped.Stop()
	for master() == stopped {
		time.Sleep(20 * time.Millisecond)
	}
	more("the next one was stopped")
	stopped.Continue()
	more("it goes on")
	g, stood := group.Stop()
	a, stoodAlone := alone.Stop()
	require.Greater(t, g, 10_000)
	t.Logf("%d holds of the group, %d of the lock of its own; grants stood still for at most %v and %v", g, a, stood, stoodAlone)
}
