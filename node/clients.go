package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/lend"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// Clients says how a node serves clients, which take locks and are no members: see package
// client. The session of a client that dies ends after Session, and its locks are free then.
//
// When the node closes, crashes or is excluded, its clients go to other members, which take over what
// they hold. [Node.Close] of the last member waits until each client has released what it holds, or
// its session has run out.
type Clients struct {
	// Listeners are where clients connect: of TCP, of TLS, or of package natsclient. The node
	// closes them. A listener of TLS should require certificates of the clients.
	Listeners []net.Listener

	// Allow decides who may have which lock, by the connection and the name that the client
	// gives itself. It is called with an empty lock when a client connects, and for each request:
	// shared reports whether the request is for a shared hold, so a client can be limited to reading.
	// The client gets the text of the error. Nil allows all.
	Allow func(conn net.Conn, client, lock string, shared bool) error

	// Session is how long a client may hold locks after a member has last heard from it: 100 ms to
	// Config.Lease; 0 means Config.Lease.
	Session time.Duration

	// Max is how many clients this node serves at a time; 0 means 4096. Each may
	// hold and wait for 1000 locks. Over NATS, one user gets at most half: see natsclient.
	Max int
}

// ClientStatus describes the present state of one client of a node.
type ClientStatus struct {
	Name      string        // as it calls itself
	Address   string        // empty while it is not connected
	Holds     []string      // locks
	WaitsFor  []string      // locks
	Moved     []string      // those of Holds that this node has taken over from a member that was gone
	Remaining time.Duration // until its session runs out, unless the node hears from it
}

func (c *Clients) check(lease time.Duration) error {
	switch {
	case c.Session != 0 && (c.Session < 100*time.Millisecond || c.Session > lease):
		return dmutex.Misuse(fmt.Sprintf("Config.Clients.Session is %v: it must be from 100ms to Config.Lease, %v", c.Session, lease))
	case c.Max < 0:
		return dmutex.Misuse(fmt.Sprintf("Config.Clients.Max is at least 0, not %d", c.Max))
	case len(c.Listeners) == 0 || slices.Contains(c.Listeners, nil):
		return dmutex.Misuse("Config.Clients.Listeners is empty, or has a listener that is nil: give the listeners where clients connect")
	}
	return nil
}

// taken has the listeners of this process's nodes. One that two nodes had would give each connection to
// either, and end with the first that closes.
var taken sync.Map

// claim makes listeners a node's, all or none of them.
func claim(listeners []net.Listener) error {
	for i, l := range listeners {
		if !reflect.ValueOf(l).Comparable() {
			continue
		}
		if _, twice := taken.LoadOrStore(l, true); twice {
			disclaim(listeners[:i])
			return dmutex.Misuse(fmt.Sprintf("Config.Clients.Listeners: %v serves another node, or is there twice: give each node listeners of its own", l.Addr()))
		}
	}
	return nil
}

func disclaim(listeners []net.Listener) {
	for _, l := range listeners {
		if reflect.ValueOf(l).Comparable() {
			taken.Delete(l)
		}
	}
}

func (c *Config) lease() time.Duration { return cmp.Or(c.Lease, leases.Default) }

func (n *Node) serveClients() {
	c := n.cfg.Clients
	if c == nil {
		return
	}
	allow := func(conn net.Conn, client, lock string, shared bool) error {
		if c.Allow == nil {
			return nil
		}
		err := c.Allow(conn, client, lock, shared)
		if err != nil {
			n.group.LogOften(slog.LevelWarn, "client refused", slog.String("client", client), slog.String("lock", lock), slog.Any("err", err))
		}
		return err
	}
	unmet := func(from net.Addr, why error) {
		host, _, err := net.SplitHostPort(from.String())
		if err != nil {
			host = from.String()
		}
		n.group.LogOften(slog.LevelWarn, "client's connection failed before it said hello", slog.String("from", host), slog.Any("err", why))
	}
	n.clients = lend.New(lend.Config{
		Listeners: c.Listeners, Length: cmp.Or(c.Session, n.cfg.lease()), Most: cmp.Or(c.Max, 4096), Allow: allow, Unmet: unmet,
		Take: n.lend, Busy: n.busy, Idle: n.idle, Left: n.locks.Left, Lapsed: n.locks.Lapsed, Ended: n.locks.Ended(), Why: n.locks.Why,
	})
}

// busy returns the text for a client that says what its request for a lock waits for, and whether the
// lock is busy: somebody is known to hold it, or all that it waits for have its request, so one of them has
// the lock.
func (n *Node) busy(lock string) (text string, busy bool) {
	if text := n.idle(); text != "" {
		return text, false
	}
	st := n.locks.Status(lock)
	by := n.heldBy(lock, st, n.group.Called(n.Self()), answer{})
	text = cmp.Or(by, "its member does not know the holder")
	if silent := n.silent(st); silent != nil {
		text = fmt.Sprintf("waiting for %v: %s", silent, text)
	}
	return text, by != "" || !slices.ContainsFunc(st.WaitsFor, n.group.Mute)
}

// keyOf is the key of what is lent in a session: the client and the members know the name of that.
func keyOf(session string) string {
	sum := sha256.Sum256([]byte(session))
	return string(sum[:16])
}

// lend begins to take a lock for a client, and calls done when it has, in a goroutine of its own. A wait
// needs no goroutine before; a try needs one for as long as it takes. A lock that was shared is taken over by
// nobody.
func (n *Node) lend(w lend.Want, done func(lend.Taken, error)) lend.Stop {
	m := &Mutex{node: n, name: w.Lock, shared: w.Shares}
	want := locks.Want{Shares: w.Shares, Key: keyOf(w.Via)}
	for _, id := range w.Of {
		want.Claims = append(want.Claims, dmutex.NodeID(id))
	}
	lent := func(h *locks.Held, err error) {
		var self dmutex.NodeID
		if err == nil {
			lent := false
			if self, lent = h.Lend(w.Client, keyOf(w.Session)); !lent {
				err = h.Release() // it is lost
			}
		}
		if err != nil {
			done(lend.Taken{}, err)
			return
		}
		taken := lend.Taken{Fence: h.Fence(), Node: uint64(self), Stop: func(lost error) {
			if lost != nil {
				h.Lose(lost)
				n.group.Recheck()
			} else {
				_ = h.Release()
			}
		}}
		if len(want.Claims) > 0 {
			former := want.Claims[len(want.Claims)-1]
			n.group.LogOften(slog.LevelInfo, "client's lock taken over", slog.String("client", w.Client), slog.String("lock", w.Lock), slog.String("former", n.group.Called(former)))
			taken.Moved = func() { n.group.Moved(former, membership.Loan{Lock: w.Lock, Key: want.Key}) }
		}
		done(taken, nil)
	}
	if w.Try && len(w.Of) == 0 {
		ctx, cancel := context.WithCancel(context.Background())
		go func() { lent(m.acquire(ctx, true)) }()
		return func(error) { cancel() }
	}
	called := n.mail.Now()
	tell := func(waiter *locks.Waiter) {
		go func() {
			h, err := waiter.Result()
			err = public(w.Lock, err)
			m.observe(called, h, err)
			lent(h, err)
		}()
	}
	waiter, _, _ := n.locks.Join(context.Background(), w.Lock, want, tell)
	return func(error) { waiter.Quit(context.Canceled) }
}
