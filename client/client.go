// Package client takes the locks of a group in a process that is no member of it. Members cost: each
// pair of them keeps in touch. So a group is a handful of members, and the many and short-lived
// processes that want its locks are clients. A client has a session with one member, which takes
// locks for it as for its own goroutines: in the same queues, and with the same fences.
//
//	c, err := client.New(client.Config{Members: []string{"a:7100", "b:7100", "c:7100"}, TLS: certificates})
//	...
//	defer c.Close()
//	err = c.Mutex("invoices/42").Do(ctx, func(ctx context.Context, fence uint64) error { ... })
//
// A member serves clients with node.Config.Clients.
//
// # Sessions
//
// The client sends a beat every sixth of the session's length, which the member sets, and the
// member confirms it. What the client holds is lost when a confirmation is late by its own
// clock, a sixteenth of the length before the member gives it to others. Earlier, Held.Suspended
// says that the confirmation is late. A lost connection costs nothing if another one comes in
// time.
//
// When a member crashes, is excluded or loses its lease, what its clients hold is lost: by their
// own clocks, before others get it. They go to another member by themselves, and waiting calls
// wait there anew. A member that closes waits until its clients have released what they hold,
// and tells them to go to another. A client that dies costs its own locks for the length of the
// session, and nobody else anything.
//
// Exclusion rests on the same as that of the group's lease: clocks whose rates are right within
// 1 %, and holders that stop when their context ends. Only a resource that checks fences is safe
// from a process that was paused; see package fence.
package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex/internal/clientlink"
	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
)

// The errors of a client besides those of package lock, for [errors.Is]. Errors of a context are
// wrapped, too.
var (
	ErrClosed  = errors.New("the client is closed")
	ErrRefused = errors.New("the member refuses it") // the error says why
)

// Config says where the members of the group are.
type Config struct {
	// Members are the addresses of some or all members that serve clients, host:port over
	// TCP. The client begins with any of them.
	Members []string

	// TLS is how the client and the members authenticate; nil is plain TCP, for networks where
	// everybody is trusted. Give it Certificates if the members ask for them.
	TLS *tls.Config

	// Dial connects with a member. Nil dials over TCP, with TLS if there is one. Dial may return
	// any connection that keeps bytes in order, such as that of natsclient.Dial.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Name is what the members call this client, at most 64 bytes. Empty stands for the names of
	// host and program, and the process number.
	Name string
}

const (
	dialPatience = 5 * time.Second
	firstPause   = 20 * time.Millisecond // between attempts to connect
	lastPause    = time.Second
)

// A Client takes locks through one member at a time. Its methods are safe for concurrent use.
type Client struct {
	cfg    Config
	clock  *clock.Clock
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wake   chan struct{} // tells run to look
	done   sync.WaitGroup
	why    atomic.Pointer[error] // why there is no connection

	mu      sync.Mutex
	m       *clientsession.Client
	calls   map[uint64]*call // and holds
	timer   *time.Timer
	conn    net.Conn // nil while there is none
	out     []byte   // to be written to it
	address string   // of the member of the session
	running bool
}

// A call is a request, or the hold that has come of it.
type call struct {
	ctx   context.Context
	ready chan struct{} // closed when held or err is set
	held  *held
	err   error
}

// New returns a client. It connects when it is first used.
func New(cfg Config) (*Client, error) {
	if cfg.Name == "" {
		host, _ := os.Hostname()
		cfg.Name = fmt.Sprintf("%.30s/%.20s/%d", cmp.Or(host, "?"), filepath.Base(os.Args[0]), os.Getpid())
	}
	switch {
	case len(cfg.Members) == 0 || slices.Contains(cfg.Members, ""):
		return nil, errors.New("client: Config.Members is empty, or one of them is: give the addresses of members")
	case len(cfg.Name) > clientlink.MaxWord:
		return nil, fmt.Errorf("client: Config.Name has %d bytes: at most %d are allowed", len(cfg.Name), clientlink.MaxWord)
	case cfg.Dial != nil && cfg.TLS != nil:
		return nil, errors.New("client: Config.TLS has no meaning with Config.Dial: let Dial do it")
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			if cfg.TLS != nil {
				return (&tls.Dialer{Config: cfg.TLS}).DialContext(ctx, "tcp", address)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	c := &Client{cfg: cfg, clock: clock.New(), wake: make(chan struct{}, 1), m: clientsession.New(cfg.Name), calls: make(map[uint64]*call)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.timer = time.AfterFunc(time.Hour, func() { c.input(func(now int64) { c.m.Tick(now) }) })
	c.timer.Stop()
	return c, nil
}

// Mutex returns the lock of that name, 1 to 255 bytes.
func (c *Client) Mutex(name string) *Mutex { return &Mutex{c, name} }

// Close ends the session. What is held is lost, and free at once: release it before. Waiting calls
// return [ErrClosed].
func (c *Client) Close() error {
	c.mu.Lock()
	first := c.ctx.Err() == nil
	c.cancel()
	c.timer.Stop()
	if first {
		for number, call := range c.calls {
			delete(c.calls, number)
			call.end(fmt.Errorf("%w: %w", lock.ErrLost, ErrClosed), ErrClosed)
		}
		c.m.Close()
		c.follow()
	}
	c.mu.Unlock()
	c.done.Wait()
	return nil
}

// end ends a hold or a wait, for these reasons.
func (call *call) end(lost, err error) {
	if call.held != nil {
		call.held.End(lost)
		return
	}
	call.err = err
	close(call.ready)
}

// input gives the machine an input, and does what it wants.
func (c *Client) input(input func(now int64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil {
		input(c.clock.Now())
		c.follow()
	}
}

// follow does what the machine wants. The caller has the mutex.
func (c *Client) follow() {
	now := c.clock.Now()
	out, events := c.m.Output()
	if c.conn != nil {
		for i := range out {
			c.out = clientlink.Append(c.out, &out[i])
		}
	}
	for _, e := range events {
		c.news(e)
	}
	if end := c.m.End(); end > now {
		for _, call := range c.calls {
			if call.held != nil {
				call.held.Extend(end)
			}
		}
	}
	if c.ctx.Err() == nil {
		c.timer.Reset(time.Duration(max(c.m.Deadline()-now, 0)))
	}
	if !c.running && c.m.Wanting() {
		c.running = true
		c.done.Go(c.run)
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// news takes an event.
func (c *Client) news(e clientsession.Event) {
	call := c.calls[e.Number]
	switch {
	case call == nil:
	case e.Code == clientsession.None:
		h := hold.New(call.ctx, c.clock, time.Duration(c.m.Length()), e.Fence, c.m.End(), func() error {
			return c.loss(clientsession.Late)
		})
		call.held = &held{h, c, e.Number}
		close(call.ready)
	default:
		delete(c.calls, e.Number)
		err := fmt.Errorf("%w: %s", ErrRefused, e.Text)
		if e.Code == clientsession.Busy {
			err = lock.ErrBusy
		}
		call.end(c.loss(e.Text), err)
	}
}

// run keeps the client connected while it wants anything.
func (c *Client) run() {
	pause := firstPause
	for c.wanting() {
		if c.attach() {
			pause = firstPause
		}
		select {
		case <-c.ctx.Done():
		case <-time.After(pause/2 + mrand.N(pause)):
		}
		pause = min(2*pause, lastPause)
	}
}

// wanting waits until there is a reason to connect. It returns false if the client is closed.
func (c *Client) wanting() bool {
	for {
		c.mu.Lock()
		wanting := c.m.Wanting()
		c.mu.Unlock()
		switch {
		case c.ctx.Err() != nil:
			return false
		case wanting:
			return true
		}
		select {
		case <-c.wake:
		case <-c.ctx.Done():
		}
	}
}

// attach connects with a member, and writes to it until the connection ends. It reports whether
// the member has answered on it.
func (c *Client) attach() (confirmed bool) {
	c.mu.Lock()
	if c.m.Session() == "" {
		c.address = c.other()
	}
	address := c.address
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, dialPatience)
	defer cancel()
	conn, err := c.cfg.Dial(ctx, address)
	if err != nil {
		c.note(fmt.Errorf("member %s: %w", address, err))
		return false
	}
	defer conn.Close()
	c.input(func(now int64) {
		if a, ok := conn.(interface{ Address() string }); ok {
			c.address = a.Address() // of this member, where the other is of any
		}
		c.conn, c.out = conn, nil
		c.m.Connect(now, rand.Text())
	})
	c.done.Go(func() { c.read(conn) })
	for {
		c.mu.Lock()
		out, over := c.out, c.conn != conn || !c.m.Connected()
		confirmed = confirmed || c.conn == conn && c.m.Confirmed()
		if c.out = nil; over && c.conn == conn {
			c.conn = nil
		}
		c.mu.Unlock()
		if len(out) > 0 {
			_ = conn.SetWriteDeadline(time.Now().Add(dialPatience))
			if _, err := conn.Write(out); err != nil {
				c.lost(conn, err)
				continue
			}
		}
		if over {
			return confirmed
		}
		<-c.wake
	}
}

// other chooses a member other than the last, if there is one.
func (c *Client) other() string {
	others := slices.DeleteFunc(slices.Clone(c.cfg.Members), func(address string) bool { return address == c.address })
	if len(others) == 0 {
		return c.cfg.Members[0]
	}
	return others[mrand.IntN(len(others))]
}

// note remembers why there is no connection.
func (c *Client) note(err error) { c.why.Store(&err) }

// lost notes that a connection has ended.
func (c *Client) lost(conn net.Conn, err error) {
	c.input(func(int64) {
		if c.conn == conn {
			if c.m.Connected() {
				c.note(fmt.Errorf("member %s: %w", c.address, err))
			}
			c.conn, c.out = nil, nil
			c.m.Disconnect()
		}
	})
}

// read takes the messages of a connection.
func (c *Client) read(conn net.Conn) {
	r := clientlink.NewReader(conn)
	for {
		msg, err := r.Read()
		if err != nil {
			c.lost(conn, err)
			return
		}
		c.input(func(now int64) {
			if c.conn != conn {
				return
			}
			if c.m.Handle(now, msg); msg.Kind == clientsession.Over {
				c.note(fmt.Errorf("member %s: %s", c.address, msg.Text))
			} else if msg.Kind == clientsession.Confirm {
				c.why.Store(nil)
			}
		})
	}
}
