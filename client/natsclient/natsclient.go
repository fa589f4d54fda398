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
// the connection: the server has let the client read there.
//
// # Promises
//
// Messages are numbered. If one is missing, the connection ends, and the client's session goes on
// with another connection. Connect with nats.MaxReconnects(-1): by default nats.go stops
// reconnecting after about two minutes.
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
)

const (
	inboxes = "_INBOX." // a member publishes nowhere else, whatever a client asks for
	maxData = 1000      // bytes in a message, at most; all servers take 1024

	// A connection may have someUnread bytes that wait to be read, and mostUnread while those of all
	// connections of its listener are at most allUnread. A client's 1000 requests take less.
	someUnread = 4 << 10
	mostUnread = 512 << 10
	allUnread  = 16 << 20
)

type subject string

func (subject) Network() string  { return "nats" }
func (s subject) String() string { return string(s) }

// A conn is a connection between two subjects.
type conn struct {
	nc       *nats.Conn
	from, to subject
	peer     subject       // a member's own prefix, or the inbox on which a client reads its answer
	leave    func()        // nothing more is received
	unread   *atomic.Int64 // bytes, of all connections of the listener
	sent     uint32

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

// receive takes a message of the other end.
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
func (c *conn) RemoteAddr() net.Addr             { return c.peer }

// Address is what to dial for the same member again.
func (c *conn) Address() string { return c.peer.String() }

// Dialer returns a function for Dial of a client.Config, whose Members are prefixes.
func Dialer(nc *nats.Conn) func(ctx context.Context, prefix string) (net.Conn, error) {
	return func(ctx context.Context, prefix string) (net.Conn, error) {
		c := newConn(nc, subject(nc.NewInbox()), "", "", new(atomic.Int64))
		sub, err := nc.Subscribe(c.from.String(), func(msg *nats.Msg) { c.receive(msg.Data) })
		if err != nil {
			return nil, err
		}
		c.leave = func() { _ = sub.Unsubscribe() }
		answer, err := nc.RequestWithContext(ctx, prefix+".new", []byte(c.from))
		if err == nil && !strings.HasPrefix(answer.Reply, prefix+".") {
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

// A listener is where clients connect with one member.
type listener struct {
	nc    *nats.Conn
	own   string // prefix of this member alone
	calls chan *conn
	ctx   context.Context // ends with Close
	close context.CancelFunc

	unread atomic.Int64

	mu    sync.Mutex
	conns map[string]*conn // by subject
}

// Listen returns a listener for Listeners of a node.Clients. The prefix is one or more tokens.
func Listen(nc *nats.Conn, prefix string) (net.Listener, error) {
	l := &listener{nc: nc, own: prefix + "." + rand.Text(), calls: make(chan *conn, 64), conns: make(map[string]*conn)}
	l.ctx, l.close = context.WithCancel(context.Background())
	for subject, queue := range map[string]string{prefix + ".new": "members", l.own + ".*": ""} {
		sub, err := nc.QueueSubscribe(subject, queue, l.take)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("natsclient: prefix %q: %w", prefix, err)
		}
		context.AfterFunc(l.ctx, func() { _ = sub.Unsubscribe() })
	}
	return l, nil
}

// take takes a message: of a connection, or of a client that wants one and reads on an inbox.
func (l *listener) take(msg *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	inbox := subject(msg.Data)
	switch c := l.conns[msg.Subject]; {
	case c != nil:
		c.receive(msg.Data)
	case strings.ContainsAny(inbox.String(), " \t\r\n"): // with nats.SkipSubjectValidation it would be more than a subject
	case strings.HasSuffix(msg.Subject, ".new") && strings.HasPrefix(msg.Reply, inboxes) && strings.HasPrefix(inbox.String(), inboxes):
		c = newConn(l.nc, subject(l.own+"."+rand.Text()), inbox, subject(msg.Reply), &l.unread)
		c.leave = func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.conns, c.from.String())
		}
		select {
		case l.calls <- c:
			l.conns[c.from.String()] = c
			_ = l.nc.PublishRequest(msg.Reply, c.from.String(), nil) // if it fails, nothing comes
		default: // the client tries again
		}
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
