package client_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// session is the length of sessions in these tests, and the lease of the members.
const session = 10 * time.Second

// A world is a group whose members serve clients over connections in memory.
type world struct {
	t       *testing.T
	net     *memlink.Network
	store   store.Memory
	mu      sync.Mutex
	members map[string]*member
	clients []*user

	lease     time.Duration                       // of later members, if it is not session
	observer  *node.Observer                      // of all members
	watch     func(*client.Config)                // of later clients
	log       *slog.Logger                        // of later members
	algorithm dmutex.Algorithm                    // of later members
	wrap      func(*outagetest.Store) store.Store // of later members; nil for the store as it is
}

// A member is a node whose ways to the other members and to the store can be cut.
type member struct {
	*node.Node
	name  string
	store *outagetest.Store
	door  *door
	cut   atomic.Bool // from the other members
	dead  bool
}

// A door is where a member listens.
type door struct {
	name   string
	calls  chan net.Conn
	closed chan struct{}
	once   sync.Once
	shut   atomic.Bool // nobody gets in
	hangs  atomic.Bool // a client that gets in hears nothing
}

func (d *door) Accept() (net.Conn, error) {
	select {
	case nc := <-d.calls:
		return nc, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

func (d *door) Close() error   { d.once.Do(func() { close(d.closed) }); return nil }
func (d *door) Addr() net.Addr { return memory(d.name) }

type memory string

func (memory) Network() string  { return "memory" }
func (m memory) String() string { return string(m) }

func newWorld(t *testing.T) *world {
	time.Sleep(30 * 365 * 24 * time.Hour) // so that fences begin above 0
	network, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	w := &world{t: t, net: network, members: make(map[string]*member)}
	return w
}

// open adds a member.
func (w *world) open(name string, change ...func(*node.Clients)) *member {
	m := &member{name: name, store: outagetest.New(w.t, &w.store, outagetest.Faults{})}
	m.door = &door{name: name, calls: make(chan net.Conn), closed: make(chan struct{})}
	var err error
	clients := &node.Clients{Listeners: []net.Listener{m.door}}
	for _, c := range change {
		c(clients)
	}
	way := store.Store(m.store)
	if w.wrap != nil {
		way = w.wrap(m.store)
	}
	m.Node, err = node.Open(w.t.Context(), way, outagetest.Link{DynamicLink: w.net.Link(dmutex.None), Cut: &m.cut}, node.Config{Algorithm: w.algorithm, Lease: cmp.Or(w.lease, session), Clients: clients, Observer: w.observer, Logger: w.log})
	require.NoError(w.t, err)
	w.mu.Lock()
	w.members[name] = m
	w.mu.Unlock()
	w.t.Cleanup(func() { w.end(m) })
	require.NoError(w.t, m.Ready(w.t.Context()))
	return m
}

func (w *world) member(name string) *member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.members[name]
}

// forget stops clients from connecting to a member that closes.
func (w *world) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.members, name)
}

// end closes a member. If the member has crashed, Close waits for nothing.
func (w *world) end(m *member) {
	if w.member(m.name) == m {
		w.forget(m.name)
		ctx, cancel := context.WithCancel(context.Background())
		if cancel(); m.dead {
			_ = m.Close(ctx)
			return
		}
		_ = m.Close(context.Background())
	}
}

// crash makes a member silent for good: to the others it is dead.
func (w *world) crash(m *member) {
	m.dead = true
	m.cut.Store(true)
	m.store.Outage(true)
	m.door.shut.Store(true)
	for _, u := range w.clients {
		u.hangUp(m.name)
	}
}

// A user is a client whose connections can be cut.
type user struct {
	*client.Client
	w     *world
	mu    sync.Mutex
	conns []*wire
	gone  bool // its process is dead
}

// A wire is a connection that may lose everything from some moment on.
type wire struct {
	net.Conn
	to   string
	dead atomic.Bool
}

func (c *wire) Write(b []byte) (int, error) {
	if c.dead.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *wire) RemoteAddr() net.Addr { return memory(c.to) }

// use adds a client of these members, all if none is named.
func (w *world) use(name string, members ...string) *user {
	if len(members) == 0 {
		for name := range w.members {
			members = append(members, name)
		}
	}
	u := &user{w: w}
	cfg := client.Config{Members: members, Name: name, Dial: u.dial}
	if w.watch != nil {
		w.watch(&cfg)
	}
	c, err := client.New(cfg)
	require.NoError(w.t, err)
	u.Client = c
	w.clients = append(w.clients, u)
	w.t.Cleanup(func() { require.NoError(w.t, c.Close()) })
	return u
}

func (u *user) dial(ctx context.Context, address string) (net.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m := u.w.member(address)
	if m == nil || m.door.shut.Load() || u.gone {
		return nil, errors.New("nobody listens")
	}
	near, far := net.Pipe()
	if m.door.hangs.Load() {
		go func() { _, _ = io.Copy(io.Discard, far) }()
		u.conns = append(u.conns, &wire{Conn: near, to: address})
		return near, nil
	}
	select {
	case m.door.calls <- far:
	case <-m.door.closed:
		return nil, errors.New("nobody listens")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c := &wire{Conn: near, to: address}
	u.conns = append(u.conns, c)
	return c, nil
}

// hangUp breaks the connections with a member, all if none is named.
func (u *user) hangUp(member string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.conns {
		if member == "" || c.to == member {
			c.Close()
		}
	}
}

// silence makes the present connections lose everything. Later connections work.
func (u *user) silence() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.conns {
		c.dead.Store(true)
	}
}

// die makes the client silent for good.
func (u *user) die() {
	u.silence()
	u.mu.Lock()
	u.gone = true
	u.mu.Unlock()
}

func (u *user) acquire(name string) lock.Held {
	u.w.t.Helper()
	h, err := u.Mutex(name).Acquire(u.w.t.Context())
	require.NoError(u.w.t, err)
	require.NoError(u.w.t, h.Err())
	return h
}

// eventually starts an Acquire, and returns a channel for its handle.
func (u *user) eventually(name string) <-chan lock.Held {
	granted := make(chan lock.Held, 1)
	go func() {
		h, err := u.Mutex(name).Acquire(u.w.t.Context())
		if err != nil {
			h = nil
		}
		granted <- h
	}()
	return granted
}

func (m *member) client(name string) *node.ClientStatus {
	for _, c := range m.Status().Clients {
		if c.Name == name {
			return &c
		}
	}
	return nil
}
