// Package redisstore keeps the record of a group, or of one lock, in Redis 7 or Valkey 8. It is a module of its own.
//
//	client := redis.NewClient(&redis.Options{Addr: "redis:6379", MaxRetries: -1, ContextTimeoutEnabled: true})
//	record, err := redisstore.Open(ctx, client, redisstore.Config{Servers: 1}, "invoices")
//
// # Redis forgets
//
// A server that restarts has lost what was not synced, and a replica that is promoted lacks what had not reached it, though
// it was acknowledged. A lock that is a key with a time to live is then given to a second holder, as redsync and others do
// over one server with a replica: TestPromotedReplica in integration/redis shows it.
//
// So a record belongs to one history of the server, which the server's replication ID names. A server that has restarted,
// or was promoted, has another one. There the record does not exist, and Load returns [store.ErrForgotten] until the
// longest lease has run since this process first saw the new history, or since another one has. Each failover and each
// restart, also a planned one, ends all locks once, and the next holder waits for a lease. There is never a second holder.
//
// A master that was deposed and does not know it must not confirm leases. So with replicas each Load writes, too, and each
// operation waits until a majority of the servers has what it wrote. A replica follows one master at a time: once the
// new master has answered, no operation at the old one succeeds.
//
// # What it relies on
//
//   - Config.Servers is how many servers have the data, also those that are down. With a lower number a deposed master
//     could answer alone. A server that has as many replicas as that, or more, is refused.
//   - No operator turns a deposed master into the master again with REPLICAOF, and no server is restored from a backup,
//     while leases run.
//   - The server does not evict these keys. Open refuses a policy for all keys if maxmemory is set.
//   - Nobody deletes the keys, or all keys by FLUSHALL or FLUSHDB, while a lease runs: a process that has known this history for longer
//     than a lease takes a missing record for a free lock.
//   - Nobody opens a group with a shorter lease than before until the longer one has run since the server has begun anew. A process
//     that comes then does not know the longer lease, and waits only for its own.
//   - A cluster of Redis is refused. Services that hide INFO, or the replication ID, are not supported.
//
// A master that was without replicas for an hour changes its replication ID, unless repl-backlog-ttl is 0.
package redisstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/store"
)

// Config says what holds the data.
type Config struct {
	// Servers is how many servers have it: the master and its replicas, also those that are down now. It is 1, or an odd
	// number, such as 3 with Sentinel.
	Servers int

	// Lease is the longest lease of all groups and locks with a record there: 100 ms to 1 h; 0 is 10 s. After a server has
	// begun anew, locks that are records of their own wait for it.
	Lease time.Duration
}

type record struct {
	client *redis.Client
	Config
	key string

	mu      sync.Mutex
	history string    // that answered last; empty before the first answer
	since   time.Time // when it had answered first
}

// Open returns the record of that name, which need not exist. The client belongs to the application; it must not send an
// operation again by itself, and must keep the deadlines of contexts, so its MaxRetries is -1 and its
// ContextTimeoutEnabled is set. It may be one of NewFailoverClient. Open asks the server; the error wraps
// [store.ErrUnusable] if the client or the server would break the contract of package store.
func Open(ctx context.Context, client *redis.Client, cfg Config, name string) (store.Store, error) {
	cfg.Lease = cmp.Or(cfg.Lease, time.Duration(leases.Default))
	o := client.Options()
	switch {
	case name == "":
		return nil, errors.New("redisstore: the name of the record is empty")
	case name == settled:
		return nil, fmt.Errorf("redisstore: %s is a key of this package: choose another name", settled)
	case cfg.Servers < 1 || cfg.Servers%2 == 0:
		return nil, fmt.Errorf("redisstore: Config.Servers is 1 or an odd number, the master and all its replicas, not %d", cfg.Servers)
	case cfg.Lease < leases.Min || cfg.Lease > leases.Max:
		return nil, fmt.Errorf("redisstore: Config.Lease is 100ms to 1h, not %v", cfg.Lease)
	case o.MaxRetries > 0 || !o.ContextTimeoutEnabled: // the client turns -1 into 0
		return nil, fmt.Errorf("redisstore: set MaxRetries to -1 in the options of the client, since a Swap that is sent again would conflict with itself, and ContextTimeoutEnabled: %w", store.ErrUnusable)
	}
	s := &record{client: client, Config: cfg, key: name}
	if err := s.check(ctx); err != nil {
		return nil, s.failed("open", err)
	}
	if _, _, err := s.Load(ctx); err != nil && !errors.Is(err, store.ErrForgotten) {
		return nil, err
	}
	return s, nil
}

// check refuses a server that may drop the record, or that is one of a cluster.
func (s *record) check(ctx context.Context) error {
	info, err := within(ctx, func() (info string, err error) {
		for _, section := range []string{"server", "memory"} {
			text, err := s.client.Info(ctx, section).Result()
			if err != nil {
				return "", err
			}
			info += text
		}
		return info, nil
	})
	if err != nil {
		return err
	}
	field := func(name string) string {
		_, rest, _ := strings.Cut(info, "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\r")
		return value
	}
	switch policy := field("maxmemory_policy"); {
	case field("redis_mode") == "cluster" || field("server_mode") == "cluster": // of Redis, and of Valkey
		return fmt.Errorf("%w: it is a server of a cluster, which this package does not support: use one server, or three with Sentinel", store.ErrUnusable)
	case field("maxmemory") != "0" && strings.HasPrefix(policy, "allkeys-"):
		return fmt.Errorf("%w: its maxmemory-policy is %s, so it may drop the record: set it to noeviction or to one for volatile keys", store.ErrUnusable, policy)
	}
	return nil
}

// settled is the key of the history in which the longest lease has run.
const settled = "dmutex.settled"

// prelude has the history of the server, and the revision that the record has in it.
const prelude = `
local info = redis.call('INFO', 'replication')
local history = string.match(info, 'master_replid:(%w+)')
local role, replicas = string.match(info, 'role:(%w+)'), tonumber(string.match(info, 'connected_slaves:(%d+)'))
if not history then return {'err', 'it does not tell its master_replid'} end
if role ~= 'master' then return {'err', 'it is a replica'} end
if replicas >= tonumber(ARGV[1]) then
	return {'err', 'it has ' .. replicas .. ' replicas, more than Config.Servers says'}
end
local record = redis.call('HMGET', KEYS[1], 'history', 'name', 'value')
local exists = record[1] == history
local revision = history .. (exists and '.' or '!') .. (record[2] or '')
`

// loading returns the history, the revision, the value, whether the record exists, and whether one that does not is certainly not
// a forgotten one. ARGV: the servers, the length of the lease, the history in which that has run, empty if it has not yet.
const loading = prelude + `
if tonumber(ARGV[1]) > 1 then redis.call('HINCRBY', KEYS[1], 'reads', 1) end
local mark = redis.call('HMGET', KEYS[2], 'history', 'lease')
local sure = mark[1] == history and tonumber(mark[2]) >= tonumber(ARGV[2])
if not sure and ARGV[3] == history then
	redis.call('HSET', KEYS[2], 'history', history, 'lease', ARGV[2])
	sure = true
end
return {'ok', history, revision, exists and record[3] or '', exists and '1' or '0', sure and '1' or '0'}
`

// swapping returns the revision of the new value, if the record has the old one. ARGV: the servers, the revision, a random
// name, the value.
const swapping = prelude + `
if revision ~= ARGV[2] then return {'conflict'} end
redis.call('HSET', KEYS[1], 'history', history, 'name', ARGV[3], 'value', ARGV[4])
return {'ok', history .. '.' .. ARGV[3]}
`

// Load implements [store.Store].
func (s *record) Load(ctx context.Context) ([]byte, store.Revision, error) {
	drain := time.Duration(leases.Drain(int64(s.Lease)))
	s.mu.Lock()
	whole := s.history
	if time.Since(s.since) < drain {
		whole = ""
	}
	s.mu.Unlock()
	answer, err := s.run(ctx, loading, s.Lease.Milliseconds(), whole)
	if err != nil {
		return nil, "", s.failed("load", err)
	}
	history, rev, exists, sure := answer[1], store.Revision(answer[2]), answer[4] == "1", answer[5] == "1"
	s.mu.Lock()
	last := s.history
	if last != history {
		s.history, s.since = history, time.Now()
	}
	s.mu.Unlock()
	switch {
	case last != "" && last != history && exists: // others have begun anew
		return nil, store.Revision(history + "?"), s.failed("load", store.ErrForgotten)
	case last != "" && last != history, !exists && !sure:
		return nil, rev, s.failed("load", store.ErrForgotten)
	}
	return []byte(answer[3]), rev, nil
}

// Swap implements [store.Store].
func (s *record) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	// A client that is left behind may still read the value, which is the caller's.
	answer, err := s.run(ctx, swapping, string(rev), rand.Text(), bytes.Clone(value))
	if err != nil {
		return "", s.failed("swap", err)
	}
	return store.Revision(answer[1]), nil
}

// run runs a script at the master, and waits until a majority of the servers has what it wrote.
func (s *record) run(ctx context.Context, script string, args ...any) ([]string, error) {
	args = append([]any{s.Servers}, args...)
	return within(ctx, func() ([]string, error) {
		patience := 5 * time.Second
		if end, ok := ctx.Deadline(); ok {
			patience = time.Until(end) * 3 / 4 // so the server says how many have it before the context ends
		}
		pipe := s.client.Pipeline() // WAIT is about what its own connection wrote
		ran := pipe.Eval(ctx, script, []string{s.key, settled}, args...)
		var waited *redis.Cmd
		if s.Servers > 1 {
			waited = pipe.Do(ctx, "WAIT", s.Servers/2, max(1, patience.Milliseconds()))
		}
		_, _ = pipe.Exec(ctx)
		answer, err := ran.StringSlice()
		switch {
		case err != nil:
			return nil, err
		case answer[0] == "conflict":
			return nil, store.ErrConflict
		case answer[0] == "err":
			return nil, errors.New(answer[1])
		}
		if waited != nil {
			switch n, err := waited.Int(); {
			case err != nil:
				return nil, err
			case n < s.Servers/2:
				return nil, fmt.Errorf("%d of %d replicas have it, which with the master is no majority", n, s.Servers-1)
			}
		}
		return answer, nil
	})
}

// within returns what do returns, or when the context ends, for which the client may not wait.
func within[T any](ctx context.Context, do func() (T, error)) (got T, err error) {
	type outcome struct {
		got T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		got, err := do()
		done <- outcome{got, err}
	}()
	select {
	case o := <-done:
		return o.got, cmp.Or(o.err, ctx.Err())
	case <-ctx.Done():
		return got, ctx.Err()
	}
}

// lasting begin the errors that recur until an operator mends their cause.
var lasting = []string{"NOPERM", "WRONGPASS", "NOAUTH", "WRONGTYPE", "ERR unknown command",
	"ERR The user executing the script can't"} // of a script in Redis 7.0

func (s *record) failed(op string, err error) error {
	for _, prefix := range lasting {
		if strings.HasPrefix(err.Error(), prefix) {
			err = fmt.Errorf("%w: %w", store.ErrUnusable, err)
			break
		}
	}
	return fmt.Errorf("redisstore: %s %q: %w", op, s.key, err)
}
