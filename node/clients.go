package node

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/lend"
	"github.com/dmutex/dmutex/node/internal/group"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// Clients says how a node serves clients, which take locks and are no members: see package
// client. The session of a client that dies ends after Session, and its locks are free then.
//
// [Node.Close] tells the clients to go to another member, and waits until each of them has
// released what it holds, or its session has run out.
type Clients struct {
	// Listeners are where clients connect: of TCP, of TLS, or of package natsclient. The node
	// closes them. A listener of TLS should require certificates of the clients.
	Listeners []net.Listener

	// Allow decides who may have which lock, by the connection and the name that the client
	// gives itself. It is called with an empty lock when a client connects, and for each request.
	// The client gets the text of the error. Nil allows all.
	Allow func(conn net.Conn, client, lock string) error

	// Session is how long a client may hold locks after a member has last heard from it: 100 ms to
	// Config.Lease; 0 means Config.Lease.
	Session time.Duration

	// Max is how many clients this node serves at a time; 0 means 4096. Each may
	// hold and wait for 1000 locks.
	Max int
}

// A ClientStatus is how one client of a node stands.
type ClientStatus struct {
	Name      string        // as it calls itself
	Address   string        // empty while it is not connected
	Holds     []string      // locks
	WaitsFor  []string      // locks
	Remaining time.Duration // until its session runs out, unless the node hears from it
}

func (c *Clients) check(lease time.Duration) error {
	switch {
	case c.Session != 0 && (c.Session < 100*time.Millisecond || c.Session > lease):
		return dmutex.Misuse(fmt.Sprintf("Config.Clients.Session is %v: it must be from 100ms to Config.Lease, %v", c.Session, lease))
	case c.Max < 0:
		return dmutex.Misuse(fmt.Sprintf("Config.Clients.Max is at least 0, not %d", c.Max))
	case len(c.Listeners) == 0 || slices.Contains(c.Listeners, nil):
		return dmutex.Misuse("Config.Clients.Listeners has no listener, or one that is nil: where are clients to connect?")
	}
	return nil
}

func (c *Config) lease() time.Duration { return cmp.Or(c.Lease, group.DefaultLease) }

func (n *Node) serveClients() {
	c := n.cfg.Clients
	if c == nil {
		return
	}
	allow := c.Allow
	if allow == nil {
		allow = func(net.Conn, string, string) error { return nil }
	}
	n.clients = lend.New(lend.Config{
		Listeners: c.Listeners, Length: cmp.Or(c.Session, n.cfg.lease()), Most: cmp.Or(c.Max, 4096), Allow: allow,
		Take: n.lend, Awaits: n.tells, Left: n.locks.Left, Lapsed: n.locks.Lapsed, Ended: n.locks.Ended(), Why: n.locks.Why,
	})
}

// tells returns the text for a client that says what its request for a lock waits for.
func (n *Node) tells(lock string) string {
	if !n.group.Acting() {
		return "its member waits for others of the group"
	}
	st := n.locks.Status(lock)
	by := cmp.Or(n.heldBy(st, n.called(n.Self())), "its member does not know the holder")
	if silent := n.silent(st); silent != nil {
		by = fmt.Sprintf("waiting for %v: %s", silent, by)
	}
	return by
}

// lend begins to take a lock for a client, and calls done when it has, in a goroutine of its own. A
// wait needs no goroutine before; a try needs one for as long as it takes. Close waits
// for a lock that is lent as for the function of a Do. The group gives back a lost lock a margin later.
func (n *Node) lend(client, name string, try bool, done func(fence uint64, end func(lost bool), err error)) (end func(lost bool)) {
	m := n.Mutex(name)
	lent := func(h *locks.Held, err error) {
		if err == nil {
			if _, working := h.Work(client); !working {
				err = h.Release() // it is lost
			}
		}
		if err != nil {
			done(0, nil, err)
			return
		}
		done(h.Fence(), func(lost bool) {
			if !lost {
				_ = h.Release()
			}
			h.Rest()
		}, nil)
	}
	if try {
		ctx, cancel := context.WithCancel(context.Background())
		go func() { lent(m.acquire(ctx, true)) }()
		return func(bool) { cancel() }
	}
	called := n.mail.Now()
	w := n.locks.Join(context.Background(), name, false, func(w *locks.Waiter) {
		go func() {
			h, err := w.Result()
			err = public(name, err)
			m.observe(called, h, err)
			lent(h, err)
		}()
	})
	return func(bool) { w.Quit(context.Canceled) }
}
