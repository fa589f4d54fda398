// Package natslink carries frames over NATS: core NATS, at most once, without
// JetStream, on a connection that the application already has.
//
// # Subjects and permissions
//
// A frame from node 7 to node 3 is published on
//
//	<prefix>.3.7
//
// and node 3 subscribes to <prefix>.3.*, so the subject names the sender. Without
// permissions every client of the server can speak in every node's name:
// docs/security.md shows how to give them.
//
// With Config.Self 0 a link is a [transport.DynamicLink]: package node gives it a number
// and peers from the record in the store. Such a link never waits for the server to confirm
// a subscription; [Link.Trouble] says if the server does not permit it.
//
// Give each group a prefix of its own. Groups that share one by mistake hear each other's frames: a node with
// a store takes only those of the processes in its record, and says so when another uses the number of one.
//
// # Promises
//
// While the connection lasts, the frames of one node to another arrive in order.
// Frames are lost when the server is lost, when the receiver is not running, and when
// the sender has no permission to publish them, which nats.go tells only the
// ErrorHandler of the connection. While nats.go reconnects, it keeps some frames and
// sends them late.
//
// A node that receives too slowly does not delay others on its connection. The frames
// that wait for it are bounded; beyond that nats.go drops frames, and tells the ErrorHandler
// of a slow consumer.
//
// Send never waits. It puts the frame into a queue of at most 1 MiB, which a goroutine
// publishes: when its socket is stuck, nats.go makes publishers wait for up to its
// FlusherTimeout, a minute by default. Close may have to wait as long, because it hands
// everything that was sent to the server, if there is one.
//
// A frame with a reply subject or headers is dropped: NATS does not check the permission to publish
// where a service answers on a reply subject, so it is no word of a node.
//
// # Deaths and reconnections
//
// A link of a node with a store tells the node that the process of a peer has ended, when the server
// has said for an eighth of a lease that nobody subscribes to the peer's subject, and the own
// connection has been up for a third of one. The peer is then excluded. Any other subscriber to the
// group's subjects, such as a monitor, hides this.
//
// A process that reconnects looks dead for as long. By default nats.go waits 2 s after it has tried all
// servers: an outage of 3.0 s costs 4.1 s. With nats.ReconnectWait(250*time.Millisecond) it costs
// 3.2 s, and a process that lost its only server is back before it is excluded.
//
// The link never closes the connection. When the application closes or drains it, or
// nats.go stops reconnecting, the link refuses to send. nats.go does so after about two
// minutes: connect with nats.MaxReconnects(-1). Nodes that share one connection do not
// hear one another if it was made with nats.NoEcho().
package natslink

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/latelog"
	"github.com/dmutex/dmutex/transport"
)

// Config names the node and the group of a link.
type Config struct {
	Self dmutex.NodeID // this node; 0 for a link that gets its number from Become

	// Prefix is the beginning of the group's subjects, the same at all nodes:
	// one or more tokens, such as "locks.billing", of 255 bytes at most. It
	// contains no spaces and no wildcards, and does not begin with $.
	Prefix string

	// Logger logs when nats.go refuses frames, once a minute for each reason. Nil
	// stands for the logger of the node. See [transport.Link] for the cost of a slow handler.
	Logger *slog.Logger
}

const (
	// The size of the largest frame in bytes, if the server's max_payload is not smaller.
	maxFrame = 64 << 10

	// How many bytes may wait to be published, counting overhead for each frame.
	backlog  = 1 << 20
	overhead = 64

	// A server ends the connection for a longer line than 4096 bytes, if not for
	// a shorter one, and nats.go then closes it for good.
	maxPrefix = 255

	// What may have arrived and not yet been delivered.
	maxPendingFrames = 64 << 10
	maxPendingBytes  = 16 << 20

	roundTrip  = 2 * time.Second       // how long to wait for a server's answer
	stuckAfter = 50 * time.Millisecond // what nats.go may take; it holds a mutex while it connects and writes
)

// A Link is a [transport.Link] over NATS.
type Link struct {
	nc       *nats.Conn
	dynamic  bool
	prefix   string
	maxFrame int

	// Open sets these.
	host transport.Host // without Deliver before that
	log  *latelog.Log

	running sync.WaitGroup

	mu      sync.Mutex
	wake    *sync.Cond // the queue is no longer empty, the number is new, or the link is closed
	self    dmutex.NodeID
	opening chan struct{} // closed when Open knows what the server says; nil while it does not wait for that
	over    error         // why the link is closed; nil while it is not
	done    chan struct{} // closed then
	sub     *nats.Subscription
	heard   dmutex.NodeID           // that sub is for
	peers   map[dmutex.NodeID]*peer // without dynamic, those that were sent to
	queue   []outgoing
	queued  int       // bytes, as backlog counts
	known   state     // when nats.go was called last
	busy    time.Time // since then publish is calling it, if not zero

	reconnects uint64    // of the connection
	upSince    time.Time // it has been up at each look
}

// A state is what nats.go knows of its connection.
type state struct {
	connected bool
	err       error // the last
}

// A peer is a node that is sent to.
type peer struct {
	subject string // of frames to it
	silence
}

// An outgoing frame waits for publish. A question has a reply subject, and is empty.
type outgoing struct {
	subject, reply string
	frame          []byte
}

// size is what it takes of the backlog.
func (f outgoing) size() int { return len(f.frame) + overhead }

// New returns a link over a connection, which may be reconnecting or not yet connected. It
// returns [dmutex.ErrMisuse] if the connection is nil or closed, if the server does not take
// frames of 1024 bytes, or if the Config is not valid.
func New(nc *nats.Conn, c Config) (*Link, error) {
	switch {
	case nc == nil:
		return nil, dmutex.Misuse("natslink: the connection is nil")
	case nc.IsClosed():
		return nil, dmutex.Misuse("natslink: the connection is closed")
	}
	if err := checkPrefix(c.Prefix); err != nil {
		return nil, err
	}
	frame := maxFrame
	if p := nc.MaxPayload(); p > 0 { // else not connected yet
		frame = int(min(p, maxFrame))
	}
	if frame < 1024 { // what transport.Link promises
		return nil, dmutex.Misuse(fmt.Sprintf("natslink: the server's max_payload is %d: raise it to at least 1024", frame))
	}
	l := &Link{
		nc:       nc,
		dynamic:  c.Self == dmutex.None,
		self:     c.Self,
		prefix:   c.Prefix,
		maxFrame: frame,
		host:     transport.Host{Logger: c.Logger},
		peers:    make(map[dmutex.NodeID]*peer),
		done:     make(chan struct{}),
		upSince:  time.Now(),
		known:    state{connected: true},
	}
	l.wake = sync.NewCond(&l.mu)
	return l, nil
}

func checkPrefix(prefix string) error {
	refuse := func(why string) error {
		return dmutex.Misuse(fmt.Sprintf("natslink: Config.Prefix %q %s: give one or more tokens, such as locks.billing", prefix, why))
	}
	switch {
	case len(prefix) > maxPrefix:
		return refuse("is longer than 255 bytes")
	case strings.Contains("."+prefix+".", ".."):
		return refuse("has an empty token")
	case strings.HasPrefix(prefix, "$"):
		return refuse("begins with $, which is reserved")
	case strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r == '*' || r == '>' || r == 0x7f }):
		return refuse("contains a space or a wildcard")
	}
	return nil
}

// Address implements [transport.DynamicLink]. It is empty: the number is enough.
func (l *Link) Address() string { return "" }

// Become implements [transport.DynamicLink].
func (l *Link) Become(self dmutex.NodeID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over != nil:
		return l.over
	case !l.dynamic:
		return dmutex.Misuse(fmt.Sprintf("natslink: the link was made for node %d: leave Config.Self 0", l.self))
	}
	l.self = self
	clear(l.peers)
	l.queue, l.queued = nil, 0
	l.wake.Signal()
	return nil
}

// SetPeer implements [transport.DynamicLink]. The address must be empty. It returns
// [dmutex.ErrMisuse] if the link was made with a number, and so needs no list of peers.
func (l *Link) SetPeer(id dmutex.NodeID, address string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over != nil:
		return l.over
	case l.self == dmutex.None || !l.dynamic:
		return dmutex.Misuse("natslink: SetPeer is for a link that has its number from Become")
	case id == dmutex.None || id == l.self:
		return dmutex.Misuse(fmt.Sprintf("natslink: SetPeer with node %d: a peer is another node", id))
	case address != "":
		return dmutex.Misuse(fmt.Sprintf("natslink: node %d has the address %q: it uses another kind of link", id, address))
	}
	if l.peers[id] == nil {
		l.peers[id] = &peer{subject: l.subject(id.String(), l.self.String())}
	}
	return nil
}

// RemovePeer implements [transport.DynamicLink].
func (l *Link) RemovePeer(id dmutex.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.peers[id]; p != nil {
		delete(l.peers, id)
		l.queue = slices.DeleteFunc(l.queue, func(f outgoing) bool { return f.subject == p.subject })
		l.queued = 0
		for _, f := range l.queue {
			l.queued += f.size()
		}
	}
}

// Trouble implements [transport.Link]. It knows only whether there was a server that reads when the last frame was sent, and
// whether that had refused frames to that node, or, with Config.Self 0, frames to this one.
func (l *Link) Trouble(to dmutex.NodeID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch nc, self := l.known, l.self; {
	case l.over != nil:
		return l.over
	case self == dmutex.None:
		return errors.New("natslink: this node has no number yet")
	case !l.busy.IsZero() && time.Since(l.busy) > stuckAfter:
		return errors.New("natslink: the server does not take what is sent to it")
	case !nc.connected:
		return fmt.Errorf("natslink: no connection to a server: %w", cmp.Or(nc.err, nats.ErrDisconnected))
	case denied(nc.err, l.subject(to.String(), self.String())):
		return fmt.Errorf("natslink: frames to node %d are lost: %w", to, nc.err)
	case l.dynamic && denied(nc.err, l.subject(self.String(), "*")):
		return fmt.Errorf("natslink: frames to this node, %d, are lost: %w", self, nc.err)
	}
	return nil
}

// subject is where node from publishes for node to.
func (l *Link) subject(to, from string) string { return l.prefix + "." + to + "." + from }

// MaxFrame implements [transport.Link]. It is 64 KiB, or the max_payload of the server if
// that is less, and is fixed when the link is made: larger frames are lost at a server met
// later that takes less. Give all servers the same max_payload, or one of at least 65536.
func (l *Link) MaxFrame() int { return l.maxFrame }

// Open implements [transport.Link]. Without Config.Self 0, and if there is a server, it waits
// until that knows of the subscription, and fails if the server does not permit it or has
// said on this connection that there are too many.
func (l *Link) Open(host transport.Host) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over != nil:
		return l.over
	case l.host.Deliver != nil || l.opening != nil:
		return dmutex.Misuse("natslink: the link is open already")
	case host.Deliver == nil:
		return dmutex.Misuse("natslink: Host.Deliver is missing")
	case l.nc.IsClosed():
		return fmt.Errorf("natslink: open: %w", nats.ErrConnectionClosed)
	}
	if !l.dynamic {
		if err := l.begin(); err != nil {
			return err
		}
	}
	l.host, l.log, l.busy = host, latelog.New(l.host.Logger, host.Logger), time.Now()
	l.running.Go(l.publish)
	if l.dynamic && host.Died != nil && host.Apart > 0 {
		l.running.Go(l.watch)
	}
	return nil
}

// begin subscribes for Open, and waits without l.mu, which the caller has, for what the server says.
func (l *Link) begin() error {
	self, opening := l.self, make(chan struct{})
	l.opening = opening
	l.mu.Unlock()
	before := l.nc.LastError()
	sub, err := l.subscribe(self)
	if err == nil {
		l.flush() // if this fails, nats.go subscribes again when the trouble is over
		now := l.nc.LastError()
		if now != before && denied(now, sub.Subject) || errors.Is(now, nats.ErrMaxSubscriptionsExceeded) || l.nc.IsClosed() {
			err = fmt.Errorf("natslink: subscribe to %s: %w", sub.Subject, cmp.Or(now, nats.ErrConnectionClosed))
		}
	}
	l.mu.Lock()
	l.opening = nil
	close(opening)
	if err = cmp.Or(err, l.over); err != nil {
		_ = sub.Unsubscribe() // as in follow
		return err
	}
	l.sub, l.heard = sub, self
	return nil
}

// lock locks l.mu when Open does not wait for the server.
func (l *Link) lock() {
	l.mu.Lock()
	for opening := l.opening; opening != nil; opening = l.opening {
		l.mu.Unlock()
		<-opening
		l.mu.Lock()
	}
}

// subscribe begins to take the frames for a number.
func (l *Link) subscribe(self dmutex.NodeID) (*nats.Subscription, error) {
	subject := l.subject(self.String(), "*")
	sub, err := l.nc.Subscribe(subject, func(m *nats.Msg) { l.receive(m, self) })
	if err != nil {
		return nil, fmt.Errorf("natslink: subscribe to %s: %w", subject, err)
	}
	_ = sub.SetPendingLimits(maxPendingFrames, maxPendingBytes) // fails if the connection is closed by now, which is found next
	return sub, nil
}

// flush waits until the server, if there is one, has read everything.
func (l *Link) flush() {
	if l.nc.IsConnected() {
		ctx, cancel := context.WithTimeout(context.Background(), roundTrip)
		defer cancel()
		_ = l.nc.FlushWithContext(ctx)
	}
}

// follow changes the subscription when the node has another number. Like publishing it can
// take long while the socket is stuck.
func (l *Link) follow(self dmutex.NodeID) {
	_ = l.sub.Unsubscribe() // fails if there is none, or if the connection is closed
	var sub *nats.Subscription
	if self != dmutex.None {
		var err error
		if sub, err = l.subscribe(self); err != nil {
			l.log.Often(slog.LevelWarn, "natslink: frames from others are lost", slog.Any("err", err))
			l.shut(l.ended(err)) // the connection is closed
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sub, l.heard = sub, self
}

// denied reports whether the server has refused the subscription. nats.go tells
// only by the connection's last error.
func denied(err error, subject string) bool {
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), strconv.Quote(subject))
}

// receive delivers what comes from a node, unless the link is closed or has another
// number by now.
func (l *Link) receive(m *nats.Msg, self dmutex.NodeID) {
	from := node(last(m.Subject))
	switch {
	case len(m.Header) != 0 && m.Reply == "":
		l.answered(m)
		return
	case m.Reply != "" || len(m.Header) != 0: // a question, or of a service that was asked to speak for a node
		return
	case from == dmutex.None || from == self || len(m.Data) == 0 || len(m.Data) > maxFrame:
		return
	}
	l.lock()
	deliver := l.host.Deliver // nil if Open has failed
	takes := l.over == nil && l.self == self && deliver != nil
	if takes {
		l.running.Add(1)
	}
	if p := l.peers[from]; p != nil {
		p.silence = silence{}
	}
	l.mu.Unlock()
	if takes {
		defer l.running.Done()
		deliver(from, [][]byte{m.Data})
	}
}

// last returns the last token of a subject.
func last(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// node reads a token. It takes only the form that permissions name: decimal without leading zeros.
func node(token string) dmutex.NodeID {
	id, err := strconv.ParseUint(token, 10, 64)
	if err != nil || token[0] == '0' {
		return dmutex.None
	}
	return dmutex.NodeID(id)
}

// Send implements [transport.Link]. There is no address book: without Config.Self 0, a frame
// to a node that does not exist is lost.
func (l *Link) Send(to dmutex.NodeID, frame []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[to]
	switch {
	case l.over != nil:
		return l.over
	case l.host.Deliver == nil:
		return transport.ErrClosed
	case to == dmutex.None || to == l.self || l.dynamic && p == nil:
		return transport.ErrUnknownNode
	case len(frame) == 0 || len(frame) > l.maxFrame:
		return transport.ErrFrameSize
	}
	if p == nil {
		p = &peer{subject: l.subject(to.String(), l.self.String())}
		l.peers[to] = p
	}
	if p.frames++; p.frames == 1 {
		p.since = time.Now()
	}
	return l.put(outgoing{subject: p.subject, frame: frame})
}

// put queues a frame for publish. The caller has l.mu.
func (l *Link) put(f outgoing) error {
	if l.queued+f.size() > backlog {
		return transport.ErrFull
	}
	l.queued += f.size()
	f.frame = bytes.Clone(f.frame)
	l.queue = append(l.queue, f)
	l.wake.Signal()
	return nil
}

// publish empties the queue until the link is closed, and sees to the subscription.
func (l *Link) publish() {
	for {
		now := state{l.nc.IsConnected(), l.nc.LastError()}
		l.mu.Lock()
		l.known, l.busy = now, time.Time{}
		for len(l.queue) == 0 && l.self == l.heard && l.over == nil {
			l.wake.Wait()
		}
		self, closed, batch := l.self, l.over != nil, l.queue
		l.queue, l.queued, l.busy = nil, 0, time.Now()
		l.mu.Unlock()
		if closed && len(batch) == 0 {
			return
		}
		if self != l.heard && !closed { // nobody else changes it
			l.follow(self)
		}
		for _, f := range batch {
			if err := l.nc.PublishMsg(&nats.Msg{Subject: f.subject, Reply: f.reply, Data: f.frame}); err != nil {
				l.log.Often(slog.LevelWarn, "natslink: frames are lost", slog.String("subject", f.subject), slog.Any("err", err))
				if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionDraining) {
					l.shut(l.ended(err)) // it will never take a frame again
				}
			}
		}
	}
}

// ended says why the link has lost its connection: nats.go closes it by itself when a server refuses
// its credentials twice, for example.
func (l *Link) ended(err error) error {
	if why := l.nc.LastError(); why != nil {
		err = fmt.Errorf("%w (its last error: %v)", err, why) // perhaps why
	}
	return fmt.Errorf("%w: %w", transport.ErrClosed, err)
}

func (l *Link) shut(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over == nil {
		l.over = why
		close(l.done)
		l.wake.Signal()
	}
}

// Close implements [transport.Link]. It publishes the frames that wait, and waits for
// the server's confirmation; the connection stays open.
func (l *Link) Close() error {
	if l.done == nil { // New has not made it
		return nil
	}
	l.shut(transport.ErrClosed)
	l.lock()
	opened := l.host.Deliver != nil
	l.mu.Unlock()
	if !opened {
		return nil
	}
	l.running.Wait()
	l.log.Close()
	_ = l.sub.Unsubscribe() // nobody changes it any more; as in follow
	l.flush()               // if this fails, frames are lost as when the server is lost
	return nil
}
