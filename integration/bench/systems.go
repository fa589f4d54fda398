package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
)

// A client locks as one process does, with the connections of one process. Goroutines
// share it.
type client func(ctx context.Context, name string) (release func() error, err error)

// A system is a way to lock.
type system struct {
	name string
	open func(e *env, clients int) ([]client, error)
}

// The names of the systems that the variable systems lists.
const (
	bare        = "bare coordinator"
	centralTCP  = "dmutex central" // at one member
	ricartTCP   = "dmutex ricart"
	suzukiTCP   = "dmutex suzukikasami"
	centralNATS = "dmutex central, NATS"
	natsKV      = "JetStream KV"
	redisLock   = "Redis, redislock"
	redisSync   = "Redis, redsync"
	etcdLock    = "etcd"
	postgres    = "PostgreSQL"
)

var systems = []system{
	{bare, openBare},
	{centralTCP, openTCP("central", 1)},
	{ricartTCP, openTCP("ricart", 1)},
	{suzukiTCP, openTCP("suzukikasami", 1)},
	{centralNATS, openNATS},
	{natsKV, openKV},
	{redisLock, openRedislock},
	{redisSync, openRedsync},
	{etcdLock, openEtcd},
	{postgres, openPostgres},
}

func openBare(e *env, clients int) ([]client, error) {
	address, err := e.bare()
	if err != nil {
		return nil, err
	}
	return each(clients, func() (client, error) {
		b, err := dialBare(address)
		if err != nil {
			return nil, err
		}
		e.defers(func() { b.conn.Close() })
		return b.acquire, nil
	})
}

func each(clients int, open func() (client, error)) ([]client, error) {
	var list []client
	for range clients {
		c, err := open()
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// clientsOf returns the nodes of a group as clients.
func clientsOf(nodes []*node.Node) (list []client) {
	for _, n := range nodes {
		list = append(list, member(n))
	}
	return list
}

// member is a client that is a node of a group.
func member(n *node.Node) client {
	return func(ctx context.Context, name string) (func() error, error) {
		return acquire(ctx, n.Mutex(name))
	}
}

func acquire(ctx context.Context, m lock.Mutex) (release func() error, err error) {
	h, err := m.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return h.Release, nil
}

// openGroup opens a group of members like p. The first ones are processes of their own, and
// the others are in this process.
func openGroup(e *env, p part, processes, clients int) (others []*process, nodes []*node.Node, err error) {
	p.Kind, p.Peers = partMember, make([]string, processes+clients)
	for i := range p.Peers {
		p.Self = dmutex.NodeID(i + 1)
		if i < processes {
			other, err := e.launch(p)
			if err != nil {
				return nil, nil, err
			}
			p.Peers[i] = other.address
			others = append(others, other)
			continue
		}
		n, address, err := p.open(e)
		if err != nil {
			return nil, nil, err
		}
		p.Peers[i] = address
		nodes = append(nodes, n)
	}
	e.defers(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		together(len(nodes), func(i int) { _ = nodes[i].Close(ctx) })
	})
	for _, n := range nodes {
		if err := n.Ready(e.ctx); err != nil {
			return nil, nil, err
		}
	}
	return others, nodes, nil
}

// openTCP opens a group over TCP on the loopback interface.
func openTCP(algorithm string, processes int) func(e *env, clients int) ([]client, error) {
	return func(e *env, clients int) ([]client, error) {
		_, nodes, err := openGroup(e, part{Algorithm: algorithm}, processes, clients)
		return clientsOf(nodes), err
	}
}

func openNATS(e *env, clients int) ([]client, error) {
	if _, err := e.connect(); err != nil {
		return nil, err
	}
	e.groups++
	p := part{Algorithm: "central", NATS: e.natsAt, Prefix: fmt.Sprintf("locks.g%d", e.groups)}
	_, nodes, err := openGroup(e, p, 1, clients)
	return clientsOf(nodes), err
}

// kvClient is a lock written by hand on a key-value bucket: the client that creates the
// key has the lock, and the others watch for the key's deletion.
type kvClient struct {
	kv       jetstream.KeyValue
	watchers map[string]jetstream.KeyWatcher
}

func openKV(e *env, clients int) ([]client, error) {
	e.groups++
	bucket := fmt.Sprintf("locks%d", e.groups)
	return each(clients, func() (client, error) {
		nc, err := e.connect()
		if err != nil {
			return nil, err
		}
		js, err := jetstream.New(nc)
		if err != nil {
			return nil, err
		}
		kv, err := js.CreateOrUpdateKeyValue(e.ctx, jetstream.KeyValueConfig{Bucket: bucket, Storage: jetstream.MemoryStorage})
		if err != nil {
			return nil, err
		}
		return (&kvClient{kv, make(map[string]jetstream.KeyWatcher)}).acquire, nil
	})
}

func (c *kvClient) acquire(ctx context.Context, name string) (func() error, error) {
	for {
		revision, err := c.kv.Create(ctx, name, []byte("held"))
		if err == nil {
			return func() error { return c.kv.Delete(context.Background(), name, jetstream.LastRevision(revision)) }, nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return nil, err
		}
		if err := c.awaitEnd(ctx, name); err != nil {
			return nil, err
		}
	}
}

// awaitEnd waits until the key was deleted since the last call. The watcher stays,
// so that no deletion is missed.
func (c *kvClient) awaitEnd(ctx context.Context, name string) error {
	w := c.watchers[name]
	if w == nil {
		var err error
		if w, err = c.kv.Watch(context.Background(), name); err != nil {
			return err
		}
		c.watchers[name] = w
	}
	for {
		select {
		case entry, open := <-w.Updates():
			switch {
			case !open:
				return errors.New("the watcher has ended")
			case entry != nil && entry.Operation() != jetstream.KeyValuePut:
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
