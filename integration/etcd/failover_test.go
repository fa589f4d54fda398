//go:build unix

package etcd

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver for PostgreSQL
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/internal/child"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/etcdstore"
	"github.com/dmutex/dmutex/store/sqlstore"
	"github.com/dmutex/dmutex/transport/tcplink"
)

const (
	lease = 2 * time.Second // the shortest that etcd grants by default
	never = 5 * lease       // until a waiter gives up

	holderArg = "holder"
)

// TestMain makes this program the holder, and a process that takes a permit, as well.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == holderArg {
		if err := hold(); err != nil {
			log.Fatal(err)
		}
		return
	}
	if len(os.Args) == 4 && os.Args[1] == permitArg {
		if err := permit(os.Args[2], os.Args[3]); err != nil {
			log.Fatal(err)
		}
		return
	}
	_, missing := servers.Etcd()
	servers.Main(m, missing)
}

// A system has locks, and frees those of a dead holder.
type system struct {
	name string
	open func(context.Context, addresses) (*client, error)
}

type addresses struct{ Etcd, PostgreSQL string }

// A client takes one lock of a system.
type client struct {
	acquire func(context.Context) (release func() error, err error)
	close   func() error
}

var systems = []system{
	{"dmutex, record in etcd", func(ctx context.Context, at addresses) (*client, error) {
		c, err := dialEtcd(at)
		if err != nil {
			return nil, err
		}
		s, err := etcdstore.Open(c, "/failover/record")
		if err != nil {
			return nil, err
		}
		return join(ctx, s, c)
	}},
	{"dmutex, record in PostgreSQL", func(ctx context.Context, at addresses) (*client, error) {
		db, err := sql.Open("pgx", at.PostgreSQL)
		if err != nil {
			return nil, err
		}
		s, err := sqlstore.Open(ctx, db, sqlstore.PostgreSQL, "failover")
		if err != nil {
			return nil, err
		}
		return join(ctx, s, db)
	}},
	{"etcd, a session's mutex", func(ctx context.Context, at addresses) (*client, error) {
		c, err := dialEtcd(at)
		if err != nil {
			return nil, err
		}
		session, err := concurrency.NewSession(c, concurrency.WithContext(ctx), concurrency.WithTTL(int(lease.Seconds())))
		if err != nil {
			return nil, err
		}
		granted, err := c.TimeToLive(ctx, session.Lease())
		if err != nil {
			return nil, err
		}
		if granted.GrantedTTL != int64(lease.Seconds()) {
			return nil, fmt.Errorf("etcd grants a TTL of %d s", granted.GrantedTTL)
		}
		m := concurrency.NewMutex(session, "/failover/lock")
		return &client{
			acquire: func(ctx context.Context) (func() error, error) {
				if err := m.Lock(ctx); err != nil {
					return nil, err
				}
				return func() error { return m.Unlock(context.Background()) }, nil
			},
			close: c.Close,
		}, nil
	}},
	{"PostgreSQL, an advisory lock", func(_ context.Context, at addresses) (*client, error) {
		db, err := sql.Open("pgx", at.PostgreSQL)
		if err != nil {
			return nil, err
		}
		return &client{
			acquire: func(ctx context.Context) (func() error, error) {
				conn, err := db.Conn(ctx)
				if err != nil {
					return nil, err
				}
				if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock(1)`); err != nil {
					conn.Close()
					return nil, err
				}
				return func() error {
					defer conn.Close()
					_, err := conn.ExecContext(context.Background(), `SELECT pg_advisory_unlock(1)`)
					return err
				}, nil
			},
			close: db.Close,
		}, nil
	}},
}

func dialEtcd(at addresses) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{at.Etcd}, Logger: zap.NewNop()})
}

// join returns a member of the group whose record is in s. Its close closes db, too.
func join(ctx context.Context, s store.Store, db io.Closer) (*client, error) {
	link, err := tcplink.New(tcplink.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		return nil, err
	}
	n, err := node.Open(ctx, s, link, node.Config{Lease: lease})
	if err != nil {
		return nil, err
	}
	return &client{
		acquire: func(ctx context.Context) (func() error, error) {
			held, err := n.Mutex("failover").Acquire(ctx)
			if err != nil {
				return nil, err
			}
			return held.Release, nil
		},
		close: func() error {
			defer db.Close()
			return n.Close(context.Background())
		},
	}, nil
}

// A task is the system that a holder must use.
type task struct {
	System  int
	Servers addresses
}

// hold takes the lock, says so, and keeps it until the test ends.
func hold() error {
	var j task
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return err
	}
	c, err := systems[j.System].open(context.Background(), j.Servers)
	if err != nil {
		return err
	}
	release, err := c.acquire(context.Background())
	if err != nil {
		return err
	}
	fmt.Println(true)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := release(); err != nil {
		return err
	}
	return c.close()
}

// startHolder returns a process that holds the lock, and a function that kills it.
func startHolder(t *testing.T, job task) (holder *child.Process, kill func()) {
	holder, err := child.Start(holderArg)
	require.NoError(t, err)
	kill = func() {
		_ = holder.Signal(os.Kill) // it may be dead already
		_ = holder.Close()
	}
	held := false
	if err := errors.Join(holder.Tell(job), holder.Hear(&held)); err != nil {
		kill()
		require.FailNow(t, "a holder has ended", "%s: %v", systems[job.System].name, err)
	}
	return holder, kill
}

// failover starts a holder, lets the client wait for the lock, signals the holder at a
// random time, and returns how long the client waits from then on.
func failover(t *testing.T, rng *rand.Rand, c *client, job task, signal syscall.Signal) time.Duration {
	holder, kill := startHolder(t, job)
	defer kill()
	before := lease/2 + time.Duration(rng.Int64N(int64(lease)))
	ctx, cancel := context.WithTimeout(t.Context(), before+never)
	defer cancel()
	waited := make(chan error, 1)
	var release func() error
	go func() {
		var err error
		release, err = c.acquire(ctx)
		waited <- err
	}()
	select {
	case err := <-waited:
		require.FailNow(t, "no lock", "%s: the holder lives, but the waiter has ended: %v", systems[job.System].name, err)
	case <-time.After(before):
	}
	begun := time.Now()
	require.NoError(t, holder.Signal(signal))
	err := <-waited
	took := time.Since(begun)
	if errors.Is(err, context.DeadlineExceeded) {
		return never
	}
	require.NoError(t, err)
	require.NoError(t, release())
	return took
}

// A waiter gets the lock of a holder that is killed or stopped. The test measures how long that
// takes, also with the locks of etcd and PostgreSQL, for docs/performance.md.
func TestFailover(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" {
		t.Skip("a measurement: set DMUTEX_LONG=1")
	}
	const seed = 1
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p := servers.StartPostgres(t)
	etcd, _ := servers.StartEtcd(t, t.TempDir())
	at := addresses{Etcd: etcd, PostgreSQL: p.DSN("postgres")}
	clients := make([]*client, len(systems))
	for i, s := range systems {
		var err error
		clients[i], err = s.open(t.Context(), at)
		require.NoError(t, err, s.name)
		defer clients[i].close()
	}
	measure := func(signal syscall.Signal, rounds int) [][]time.Duration {
		times := make([][]time.Duration, len(systems))
		for range rounds {
			for _, i := range rng.Perm(len(systems)) {
				times[i] = append(times[i], failover(t, rng, clients[i], task{i, at}, signal))
			}
		}
		for i := range times {
			slices.Sort(times[i])
		}
		return times
	}
	killed, stopped := measure(syscall.SIGKILL, 10), measure(syscall.SIGSTOP, 3)
	show := func(d time.Duration) string {
		if d == never {
			return fmt.Sprintf("not within %v", never)
		}
		return d.Round(time.Millisecond).String()
	}
	median := func(times []time.Duration) time.Duration { return times[len(times)/2] }
	for i, s := range systems {
		t.Logf("| %s | %s | %s | %s | %s |", s.name, show(median(killed[i])), show(slices.Max(killed[i])),
			show(median(stopped[i])), show(slices.Max(stopped[i])))
	}
	for i, s := range systems[:2] { // dmutex
		require.NotEqual(t, never, median(killed[i]), s.name)
		require.NotEqual(t, never, median(stopped[i]), s.name)
	}
}
