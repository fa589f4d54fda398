// Package natsclient connects clients with members over NATS: core NATS, on connections that the
// applications already have. A member listens, and a client dials, with the same prefix:
//
//	listener, err := natsclient.Listen(nc, "locks.clients")                        // for node.Clients
//	client.Config{Members: []string{"locks.clients"}, Dial: natsclient.Dialer(nc)} // at the client
//
// Any member that listens accepts a new session. Each client reads on an inbox of its own.
//
// # Permissions
//
// For the prefix locks.clients, a member subscribes to locks.clients.> and publishes to _INBOX.>,
// and the client alice publishes to locks.clients.> and subscribes to _INBOX.alice.>. Such a
// client connects with nats.CustomInboxPrefix("_INBOX.alice"). A client that may read the inbox of
// another may speak for it. node.Clients.Allow can identify a client by its inbox, the RemoteAddr of
// the connection: the server has let the client read there, because it knows the member's answer.
//
// # What a hostile client can do
//
// Clients whose inboxes have the same second token, alice above, count as one user. A user gets at
// most 1024 connections of a member in a second, and half of its sessions. A member answers at most
// 4096 calls for a connection in a second. So a client that floods a member keeps others from new
// connections for as long, but takes no locks from those that are connected. The messages of a flood share
// the NATS connection with everything else that it carries: give [Listen] one of its own.
//
// # Promises
//
// Messages are numbered. If one is missing, the connection ends, and the client's session goes on
// with another connection. Connect with nats.MaxReconnects(-1): by default nats.go stops
// reconnecting after about two minutes.
//
// While its socket is stuck, nats.go makes callers wait for up to its FlusherTimeout, a minute by default; while it
// connects, for up to its Timeout, 2 s by default. No call for a lock waits for that. Close of a client does, and so does
// Close of a member.
package natsclient

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex/internal/clientlink"
)

const (
	inboxes = "_INBOX." // a member publishes nowhere else, whatever a client asks for
	maxData = 1000      // bytes in a message, at most; all servers take 1024

	firstTry = 300 * time.Millisecond // for a member to answer a call, doubled each time
	lastTry  = time.Second

	// A server ends the connection that publishes on a subject of 4096 bytes, if not of fewer, and
	// nats.go then closes it for good.
	maxSubject = 256
	maxPrefix  = 200 // a member adds two tokens of 27 bytes each

	// In a second a member answers so many calls for a connection, and those of one owner. As many of
	// the latest answers may wait for the first message.
	allCalls = 4096
	ownCalls = allCalls / 4

	// A connection may have someUnread bytes that wait to be read, and mostUnread while those of all
	// connections of its listener are at most allUnread. A client's 1000 requests take less.
	someUnread = 4 << 10
	mostUnread = 512 << 10
	allUnread  = 16 << 20
)

var errNil = errors.New("natsclient: the connection is nil")

type subject string

func (subject) Network() string  { return "nats" }
func (s subject) String() string { return string(s) }

// literal reports whether it is safe to publish on the subject, which a stranger may have chosen.
func (s subject) literal() bool {
	return len(s) <= maxSubject && !strings.Contains("."+s.String()+".", "..") &&
		!strings.ContainsFunc(s.String(), func(r rune) bool { return r <= ' ' || r == '*' || r == '>' || r == 0x7f })
}

// private reports whether the subject is an inbox, as those of clients and of requests are.
func (s subject) private() bool { return strings.HasPrefix(s.String(), inboxes) && s.literal() }

// A conn is a connection between two subjects.
type conn struct {
	nc       *nats.Conn
	from, to subject
	peer     subject       // a member's own prefix, or the inbox on which a client reads its answer
	leave    func()        // nothing more is received
	unread   *atomic.Int64 // bytes, of all connections of the listener
	sent     uint32
	used     bool // something has come on it; the listener's

	mu       sync.Mutex
	changed  *sync.Cond
	in       []byte
	received uint32
	over     error       // why nothing more is received
	deadline *time.Timer // nil until it is set: a timer would keep a connection that nobody closes
}

func newConn(nc *nats.Conn, from, to, peer subject, unread *atomic.Int64) *conn {
	c := &conn{nc: nc, from: from, to: to, peer: peer, unread: unread}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// receive takes a message of the other side.
func (c *conn) receive(data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	after := len(c.in) + len(data)
	switch {
	case c.over != nil:
	case len(data) < 4:
		c.over = io.EOF
	case binary.BigEndian.Uint32(data) != c.received:
		c.over = fmt.Errorf("natsclient: message %d was lost", c.received)
	case after > mostUnread, after > someUnread && c.unread.Load() > allUnread:
		c.over = errors.New("natsclient: too many messages wait to be read")
	default:
		c.received++
		c.unread.Add(int64(len(data) - 4))
		c.in = append(c.in, data[4:]...)
	}
	c.changed.Broadcast()
}

// end ends the reading.
func (c *conn) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = cmp.Or(c.over, why)
	c.changed.Broadcast()
}

func (c *conn) Read(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.in) == 0 && c.over == nil {
		c.changed.Wait()
	}
	if len(c.in) == 0 {
		return 0, c.over
	}
	n = copy(b, c.in)
	c.unread.Add(-int64(n))
	if c.in = c.in[n:]; len(c.in) == 0 {
		c.in = nil // it may have been long
	}
	return n, nil
}

// Write does not wait for a slow server, as long as nats.go does not.
func (c *conn) Write(b []byte) (n int, err error) {
	for part := range slices.Chunk(b, maxData) {
		if err := c.nc.Publish(c.to.String(), append(binary.BigEndian.AppendUint32(nil, c.sent), part...)); err != nil {
			return n, err
		}
		c.sent++
		n += len(part)
	}
	return n, nil
}

func (c *conn) Close() error {
	c.end(net.ErrClosed)
	_, _ = io.Copy(io.Discard, c) // it does not count any more
	c.leave()
	return c.nc.Publish(c.to.String(), nil)
}

// SetReadDeadline ends the reading at that time, for good.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline != nil {
		c.deadline.Stop()
	}
	if !t.IsZero() {
		c.deadline = time.AfterFunc(time.Until(t), func() { c.end(os.ErrDeadlineExceeded) })
	}
	return nil
}

func (c *conn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
func (c *conn) LocalAddr() net.Addr              { return c.from }
func (c *conn) RemoteAddr() net.Addr             { return c.peer } // at a client, what to dial for the same member again

// Dialer returns a function for Dial of a client.Config, whose Members are prefixes.
func Dialer(nc *nats.Conn) func(ctx context.Context, prefix string) (net.Conn, error) {
	return func(ctx context.Context, prefix string) (net.Conn, error) {
		if nc == nil {
			return nil, errNil
		}
		c := newConn(nc, subject(nc.NewInbox()), "", "", new(atomic.Int64))
		sub, err := nc.Subscribe(c.from.String(), func(msg *nats.Msg) { c.receive(msg.Data) })
		if err != nil {
			return nil, err
		}
		c.leave = func() { _ = sub.Unsubscribe() }
		answer, err := c.ask(ctx, prefix+".new")
		if err == nil && (!strings.HasPrefix(answer.Reply, prefix+".") || !subject(answer.Reply).literal()) {
			err = errors.New("this is no member")
		}
		if err != nil {
			c.leave()
			return nil, fmt.Errorf("natsclient: no member has answered on %s.new: %w", prefix, err)
		}
		c.to = subject(answer.Reply)
		c.peer = c.to[:strings.LastIndexByte(answer.Reply, '.')]
		return c, nil
	}
}

// ask asks for a member, again if there is no answer: the server may have asked one that hangs.
func (c *conn) ask(ctx context.Context, subject string) (answer *nats.Msg, err error) {
	for patience := firstTry; ; patience = min(2*patience, lastTry) {
		try, cancel := context.WithTimeout(ctx, patience)
		answer, err = c.nc.RequestWithContext(try, subject, []byte(c.from))
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return answer, err
		}
	}
}

// A listener is where clients connect with one member.
type listener struct {
	nc    *nats.Conn
	own   string // prefix of this member alone
	calls chan *conn
	ctx   context.Context // ends with Close
	close context.CancelFunc

	unread atomic.Int64

	// Of this second: when it began, and how many calls were answered, of all and by owner.
	second   time.Time
	answered int
	owners   map[string]int

	mu    sync.Mutex
	conns map[string]*conn // by subject
	fresh []*conn          // those that were answered last, oldest first: some are used, or closed
}

// Listen returns a listener for Listeners of a node.Clients. The prefix is one or more tokens, of 200 bytes at most,
// without spaces and wildcards.
func Listen(nc *nats.Conn, prefix string) (net.Listener, error) {
	if nc == nil {
		return nil, errNil
	}
	if len(prefix) > maxPrefix || !subject(prefix).literal() { // clients would believe no answer
		return nil, fmt.Errorf("natsclient: prefix %q: give one or more tokens, such as locks.clients, of %d bytes at most, without spaces and wildcards", prefix, maxPrefix)
	}
	l := &listener{
		nc: nc, own: prefix + "." + rand.Text(), calls: make(chan *conn, 64),
		owners: make(map[string]int), conns: make(map[string]*conn),
	}
	l.ctx, l.close = context.WithCancel(context.Background())
	for subject, queue := range map[string]string{prefix + ".new": "members", l.own + ".*": ""} {
		sub, err := nc.QueueSubscribe(subject, queue, l.take)
		if err == nil && queue != "" {
			err = sub.SetPendingLimits(allCalls, allCalls*maxSubject)
		}
		if err != nil {
			l.close()
			return nil, fmt.Errorf("natsclient: prefix %q: %w", prefix, err)
		}
		context.AfterFunc(l.ctx, func() { _ = sub.Unsubscribe() })
	}
	return l, nil
}

// take takes a message: of a connection, or of a client that wants one. A flood of what no client
// sends takes no mutex.
func (l *listener) take(msg *nats.Msg) {
	inbox, peer := subject(msg.Data), subject(msg.Reply)
	switch {
	case !strings.HasSuffix(msg.Subject, ".new"):
		if len(msg.Data) <= 4+maxData {
			l.receive(msg)
		}
	case len(msg.Data) <= maxSubject && inbox.private() && peer.private():
		if c := l.answer(inbox, peer); c != nil {
			_ = l.nc.PublishRequest(msg.Reply, c.from.String(), nil) // if it fails, nothing comes
		}
	}
}

// answer makes a connection for a client that reads on an inbox. It is nil if there are too many, and
// the client tries again. It counts for nothing more until the client has used it, and so has read
// what was sent to the inbox peer: anybody can name another's.
func (l *listener) answer(inbox, peer subject) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.second) >= time.Second {
		l.second, l.answered = now, 0
		clear(l.owners)
	}
	if l.answered == allCalls || l.owners[clientlink.Owner(peer)] == ownCalls {
		return nil
	}
	l.answered++
	l.owners[clientlink.Owner(peer)]++
	c := newConn(l.nc, subject(l.own+"."+rand.Text()), inbox, peer, &l.unread)
	c.leave = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c.from.String())
	}
	l.conns[c.from.String()] = c
	if l.fresh = append(l.fresh, c); len(l.fresh) > allCalls {
		if oldest := l.fresh[0]; !oldest.used {
			delete(l.conns, oldest.from.String())
		}
		l.fresh[0], l.fresh = nil, l.fresh[1:]
	}
	return c
}

// receive takes a message of a connection. The first one makes it ready for Accept.
func (l *listener) receive(msg *nats.Msg) {
	l.mu.Lock()
	c := l.conns[msg.Subject]
	full := false
	if c != nil && !c.used {
		select {
		case l.calls <- c:
			c.used = true
		default:
			full = true
			delete(l.conns, msg.Subject)
		}
	}
	l.mu.Unlock()
	switch {
	case full:
		_ = c.nc.Publish(c.to.String(), nil) // the client tries again
	case c != nil:
		c.receive(msg.Data)
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.close(); return nil }
func (l *listener) Addr() net.Addr { return subject(l.own) }
