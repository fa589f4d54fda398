//go:build rivals

package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const rivals = true

// nobody is the user without permissions.
const nobody = 65534

// lockTTL is far beyond what a measurement takes.
const lockTTL = time.Minute

// retry is the pause between two attempts to lock in Redis: its clients poll. (By
// default redsync pauses for 50 to 250 ms.)
const retry = time.Millisecond

func openRedislock(e *env, clients int) ([]client, error) {
	return openRedis(e, clients, func(r *redis.Client) client {
		locks := redislock.New(r)
		return func(ctx context.Context, name string) (func() error, error) {
			l, err := locks.Obtain(ctx, name, lockTTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(retry)})
			if err != nil {
				return nil, err
			}
			return func() error { return l.Release(context.Background()) }, nil
		}
	})
}

func openRedsync(e *env, clients int) ([]client, error) {
	return openRedis(e, clients, func(r *redis.Client) client {
		locks := redsync.New(goredis.NewPool(r))
		return func(ctx context.Context, name string) (func() error, error) {
			m := locks.NewMutex(name, redsync.WithExpiry(lockTTL), redsync.WithTries(1<<30), redsync.WithRetryDelay(retry))
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return func() error {
				_, err := m.UnlockContext(context.Background())
				return err
			}, nil
		}
	})
}

func openRedis(e *env, clients int, lock func(*redis.Client) client) ([]client, error) {
	address, err := e.redis()
	if err != nil {
		return nil, err
	}
	return each(clients, func() (client, error) {
		r := redis.NewClient(&redis.Options{Addr: address})
		e.defers(func() { r.Close() })
		return lock(r), r.Ping(e.ctx).Err()
	})
}

func openEtcd(e *env, clients int) ([]client, error) {
	address, err := e.etcd()
	if err != nil {
		return nil, err
	}
	return each(clients, func() (client, error) {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: patience})
		if err != nil {
			return nil, err
		}
		e.defers(func() { c.Close() })
		session, err := concurrency.NewSession(c, concurrency.WithContext(e.ctx))
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, name string) (func() error, error) {
			m := concurrency.NewMutex(session, "/locks/"+name)
			if err := m.Lock(ctx); err != nil {
				return nil, err
			}
			return func() error { return m.Unlock(context.Background()) }, nil
		}, nil
	})
}

// openPostgres gives each client connections of its own: an advisory lock belongs
// to the connection.
func openPostgres(e *env, clients int) ([]client, error) {
	url, err := e.postgres()
	if err != nil {
		return nil, err
	}
	return each(clients, func() (client, error) {
		config, err := pgxpool.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		config.MaxConns = manyGoroutines / manyClients
		pool, err := pgxpool.NewWithConfig(e.ctx, config)
		if err != nil {
			return nil, err
		}
		e.defers(pool.Close)
		if err := e.await(func() error { return pool.Ping(e.ctx) }); err != nil {
			return nil, err
		}
		return func(ctx context.Context, name string) (func() error, error) {
			h := fnv.New64a()
			_, _ = h.Write([]byte(name)) // never fails
			key := int64(h.Sum64())
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", key); err != nil {
				conn.Release()
				return nil, err
			}
			return func() error {
				defer conn.Release()
				_, err := conn.Exec(context.Background(), "select pg_advisory_unlock($1)", key)
				return err
			}, nil
		}, nil
	})
}

// redis returns the address of a Redis server.
func (e *env) redis() (string, error) {
	path, port, err := e.find(e.redisAt, "redis-server")
	if path == "" {
		return e.redisAt, err
	}
	address := "127.0.0.1:" + port
	err = e.start(address, nil, path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", e.dir)
	e.redisAt = address
	return address, err
}

// etcd returns the address of an etcd server.
func (e *env) etcd() (string, error) {
	path, port, err := e.find(e.etcdAt, "etcd")
	if path == "" {
		return e.etcdAt, err
	}
	peer, err := freePort()
	if err != nil {
		return "", err
	}
	at, peerAt := "http://127.0.0.1:"+port, "http://127.0.0.1:"+peer
	err = e.start("127.0.0.1:"+port, nil, path, "--data-dir", filepath.Join(e.dir, "etcd"),
		"--listen-client-urls", at, "--advertise-client-urls", at,
		"--listen-peer-urls", peerAt, "--initial-advertise-peer-urls", peerAt, "--initial-cluster", "default="+peerAt)
	e.etcdAt = at
	return at, err
}

// postgres returns the URL of a PostgreSQL server. PostgreSQL refuses to run as root,
// so root runs it as nobody.
func (e *env) postgres() (string, error) {
	path, port, err := e.find(e.postgreAt, "postgres")
	if path == "" {
		return e.postgreAt, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	var as *syscall.SysProcAttr
	data := filepath.Join(e.dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		return "", err
	}
	if os.Getuid() == 0 {
		as = asUser(nobody)
		if err := errors.Join(os.Chmod(e.dir, 0o711), os.Chown(data, nobody, nobody)); err != nil {
			return "", err
		}
	}
	initdb := exec.CommandContext(e.ctx, filepath.Join(filepath.Dir(path), "initdb"), "-D", data, "-A", "trust", "-U", "bench", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = as, "/"
	if output, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, output)
	}
	err = e.start("127.0.0.1:"+port, as, path, "-D", data, "-p", port, "-h", "127.0.0.1", "-k", "", "-c", "max_connections=300")
	e.postgreAt = "postgres://bench@127.0.0.1:" + port + "/postgres?sslmode=disable"
	return e.postgreAt, err
}

// find returns the path of a server's program, and a free port to start it on. The path is
// empty if address is that of a running server.
func (e *env) find(address, program string) (path, port string, err error) {
	if address != "" {
		return "", "", nil
	}
	if path, err = exec.LookPath(program); err != nil || !e.external {
		return "", "", errAbsent
	}
	if port, err = freePort(); err != nil {
		return "", "", err
	}
	return path, port, nil
}

// start runs a server until the end, and waits until it accepts connections.
func (e *env) start(address string, as *syscall.SysProcAttr, path string, args ...string) error {
	command := exec.CommandContext(e.ctx, path, args...)
	command.SysProcAttr, command.Dir = as, "/"
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = patience
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	e.defers(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	return e.await(func() error {
		select {
		case <-ended:
			return fmt.Errorf("%s has ended", filepath.Base(path))
		default:
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// await repeats an operation until it succeeds.
func (e *env) await(op func() error) error {
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := op()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}
