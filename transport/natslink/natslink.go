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
// and peers from the record in the store. Groups that share a prefix by mistake take each
// other's frames for those of processes that use their numbers. A link that hears of
// another group's link with its number logs that, and [Link.Trouble] returns it. Such a
// link never waits for the server to confirm a subscription; Trouble says if the server
// does not permit it.
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
// that wait for it are bounded; beyond that nats.go drops frames, tells the ErrorHandler
// of a slow consumer, and [Link.Lost] counts them.
//
// Send never waits. It puts the frame into a queue of at most 1 MiB, which a goroutine
// publishes: when its socket is stuck, nats.go makes publishers wait for up to its
// FlusherTimeout, a minute by default. Close may have to wait as long, because it hands
// everything that was sent to the server, if there is one.
//
// The link never closes the connection. When the application closes or drains it, or
// nats.go stops reconnecting, the link refuses to send. nats.go does so after about two
// minutes: connect with nats.MaxReconnects(-1). Nodes that share one connection do not
// hear one another if it was made with nats.NoEcho().
package natslink

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

	// Logger logs when nats.go refuses frames, once a minute for each reason. If it is
	// nil, the link takes the logger of its node, if there is one. See
	// [transport.LoggerTaker], also for the cost of a slow handler.
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

	roundTrip = 2 * time.Second // how long to wait for a server's answer
)

// A Link is a [transport.Link] over NATS.
type Link struct {
	nc       *nats.Conn
	dynamic  bool
	name     uint64 // of this link, drawn at random
	prefix   string
	maxFrame int
	late     *latelog.Log // behind log; nil without a logger

	running    sync.WaitGroup
	delivering sync.Mutex // held while deliver runs
	unsent     atomic.Uint64
	unread     atomic.Uint64

	mu       sync.Mutex
	wake     *sync.Cond // the queue is no longer empty, the number is new, or the link is closed
	self     dmutex.NodeID
	log      *slog.Logger                           // does not change once the link is open
	deliver  func(from dmutex.NodeID, frame []byte) // nil before Open
	closed   bool
	sub      *nats.Subscription
	heard    dmutex.NodeID            // that sub is for
	dropped  int                      // by nats.go of sub, as far as unread counts it
	subjects map[dmutex.NodeID]string // of the peers; without dynamic, of those that were sent to
	queue    []outgoing
	queued   int // bytes, as backlog counts

	// Another group's link with this number: see namesake. Zero if it never did.
	heardAt time.Time // when it spoke last
	askedAt time.Time // when it was asked last
}

// An outgoing frame waits for publish.
type outgoing struct {
	subject string
	frame   []byte
}

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
		name:     rand.Uint64(),
		self:     c.Self,
		prefix:   c.Prefix,
		maxFrame: frame,
		log:      slog.New(slog.DiscardHandler),
		subjects: make(map[dmutex.NodeID]string),
	}
	l.wake = sync.NewCond(&l.mu)
	l.TakeLogger(c.Logger)
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

// TakeLogger implements [transport.LoggerTaker].
func (l *Link) TakeLogger(logger *slog.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if logger == nil || l.late != nil || l.deliver != nil {
		return
	}
	l.late = latelog.New(logger.Handler())
	l.log = slog.New(l.late.Often())
}

// Address implements [transport.DynamicLink]. It is empty: the number is enough.
func (l *Link) Address() string { return "" }

// Become implements [transport.DynamicLink].
func (l *Link) Become(self dmutex.NodeID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return transport.ErrClosed
	case !l.dynamic:
		return dmutex.Misuse(fmt.Sprintf("natslink: the link was made for node %d: leave Config.Self 0", l.self))
	}
	l.self = self
	clear(l.subjects)
	l.queue, l.queued = nil, 0
	l.heardAt = time.Time{}
	l.wake.Signal()
	return nil
}

// SetPeer implements [transport.DynamicLink]. The address must be empty. It returns
// [dmutex.ErrMisuse] if the link was made with a number, and so needs no list of peers.
func (l *Link) SetPeer(id dmutex.NodeID, address string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return transport.ErrClosed
	case l.self == dmutex.None || !l.dynamic:
		return dmutex.Misuse("natslink: SetPeer is for a link that has its number from Become")
	case id == dmutex.None || id == l.self:
		return dmutex.Misuse(fmt.Sprintf("natslink: SetPeer with node %d: a peer is another node", id))
	case address != "":
		return dmutex.Misuse(fmt.Sprintf("natslink: node %d has the address %q: it uses another kind of link", id, address))
	}
	l.subjects[id] = l.subject(id.String(), l.self.String())
	return nil
}

// RemovePeer implements [transport.DynamicLink].
func (l *Link) RemovePeer(id dmutex.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	subject := l.subjects[id]
	delete(l.subjects, id)
	l.queue = slices.DeleteFunc(l.queue, func(f outgoing) bool { return f.subject == subject })
}

// Trouble implements [transport.Reporter]. It knows only whether there is a server, whether
// the server last refused frames to that node, and, with Config.Self 0, whether another group
// uses the prefix.
func (l *Link) Trouble(to dmutex.NodeID) error {
	l.mu.Lock()
	closed, self, clash := l.closed, l.self, l.clash()
	l.mu.Unlock()
	err := l.nc.LastError()
	switch {
	case closed:
		return transport.ErrClosed
	case self == dmutex.None:
		return errors.New("natslink: this node has no number yet")
	case !l.nc.IsConnected():
		return fmt.Errorf("natslink: no connection to a server: %w", cmp.Or(err, nats.ErrDisconnected))
	case denied(err, l.subject(to.String(), self.String())):
		return fmt.Errorf("natslink: frames to node %d are lost: %w", to, err)
	case l.dynamic && denied(err, l.subject(self.String(), "*")):
		return fmt.Errorf("natslink: frames to this node, %d, are lost: %w", self, err)
	}
	return clash
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
func (l *Link) Open(deliver func(from dmutex.NodeID, frame []byte)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return transport.ErrClosed
	case l.deliver != nil:
		return dmutex.Misuse("natslink: the link is open already")
	case l.nc.IsClosed():
		return fmt.Errorf("natslink: open: %w", nats.ErrConnectionClosed)
	}
	if !l.dynamic {
		before := l.nc.LastError()
		sub, err := l.subscribe(l.self)
		if err != nil {
			return err
		}
		l.flush() // if this fails, nats.go subscribes again when the trouble is over
		err = l.nc.LastError()
		if err != before && denied(err, sub.Subject) || errors.Is(err, nats.ErrMaxSubscriptionsExceeded) || l.nc.IsClosed() {
			_ = sub.Unsubscribe()
			return fmt.Errorf("natslink: subscribe to %s: %w", sub.Subject, cmp.Or(err, nats.ErrConnectionClosed))
		}
		l.sub, l.heard = sub, l.self
	}
	l.deliver = deliver
	l.running.Go(l.publish)
	return nil
}

// subscribe begins to take the frames for a number.
func (l *Link) subscribe(self dmutex.NodeID) (*nats.Subscription, error) {
	subject := l.subject(self.String(), "*")
	sub, err := l.nc.Subscribe(subject, func(m *nats.Msg) { l.receive(m, self) })
	if err == nil {
		err = sub.SetPendingLimits(maxPendingFrames, maxPendingBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("natslink: subscribe to %s: %w", subject, err)
	}
	return sub, nil
}

// flush waits until the server, if there is one, has read everything.
func (l *Link) flush() {
	if l.nc.IsConnected() {
		_ = l.nc.FlushTimeout(roundTrip)
	}
}

// follow changes the subscription when the node has another number. Like publishing it can
// take long while the socket is stuck.
func (l *Link) follow(self dmutex.NodeID) {
	l.Lost()                // counts what nats.go will have forgotten
	_ = l.sub.Unsubscribe() // fails if there is none, or if the connection is closed
	var sub *nats.Subscription
	if self != dmutex.None {
		var err error
		if sub, err = l.subscribe(self); err != nil {
			l.log.Warn("natslink: frames from others are lost", "err", err)
			l.shut() // the connection is closed
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sub, l.heard, l.dropped = sub, self, 0
	if self != dmutex.None && self == l.self {
		l.say(asks)
	}
}

// denied reports whether the server has refused the subscription. nats.go tells
// only by the connection's last error.
func denied(err error, subject string) bool {
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), strconv.Quote(subject))
}

// receive delivers what comes from a node, unless the link is closed or has another
// number by now.
func (l *Link) receive(m *nats.Msg, self dmutex.NodeID) {
	from := sender(m.Subject)
	if from == self {
		l.namesake(m, self)
		return
	}
	if from == dmutex.None || len(m.Data) == 0 || len(m.Data) > maxFrame {
		l.unread.Add(1)
		return
	}
	l.delivering.Lock()
	defer l.delivering.Unlock()
	l.mu.Lock()
	deliver := l.deliver // nil if Open has failed
	late := l.closed || l.self != self
	l.mu.Unlock()
	if !late && deliver != nil {
		deliver(from, m.Data)
	}
}

// sender reads the last token. It takes only the form that permissions name:
// decimal without leading zeros.
func sender(subject string) dmutex.NodeID {
	token := subject[strings.LastIndexByte(subject, '.')+1:]
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
	subject, found := l.subjects[to]
	switch {
	case l.closed || l.deliver == nil:
		return transport.ErrClosed
	case to == dmutex.None || to == l.self || l.dynamic && !found:
		return transport.ErrUnknownNode
	case len(frame) == 0 || len(frame) > l.maxFrame:
		return transport.ErrFrameSize
	}
	if !found {
		subject = l.subject(to.String(), l.self.String())
		l.subjects[to] = subject
	}
	return l.put(subject, frame)
}

// put queues a frame for publish. The caller has l.mu.
func (l *Link) put(subject string, frame []byte) error {
	if l.queued+len(frame)+overhead > backlog {
		return transport.ErrFull
	}
	l.queued += len(frame) + overhead
	l.queue = append(l.queue, outgoing{subject, bytes.Clone(frame)})
	l.wake.Signal()
	return nil
}

// publish empties the queue until the link is closed, and sees to the subscription.
func (l *Link) publish() {
	for {
		l.mu.Lock()
		for len(l.queue) == 0 && l.self == l.heard && !l.closed {
			l.wake.Wait()
		}
		self, closed, batch := l.self, l.closed, l.queue
		l.queue, l.queued = nil, 0
		l.mu.Unlock()
		if closed && len(batch) == 0 {
			return
		}
		if self != l.heard && !closed { // nobody else changes it
			l.follow(self)
		}
		for _, f := range batch {
			if err := l.nc.Publish(f.subject, f.frame); err != nil {
				l.unsent.Add(1)
				l.log.Warn("natslink: frames are lost", "subject", f.subject, "err", err)
				if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionDraining) {
					l.shut() // it will never take a frame again
				}
			}
		}
	}
}

func (l *Link) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake.Signal()
}

// Lost returns how many frames were lost at this node: those that Send took and nats.go
// refused, and those that arrived malformed or faster than they were delivered.
func (l *Link) Lost() (sending, receiving uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, err := l.sub.Dropped(); err == nil { // else there is none, or it has ended
		l.unread.Add(uint64(n - l.dropped))
		l.dropped = n
	}
	return l.unsent.Load(), l.unread.Load()
}

// Close implements [transport.Link]. It publishes the frames that wait, and waits for
// the server's confirmation; the connection stays open.
func (l *Link) Close() error {
	l.shut()
	l.mu.Lock()
	opened := l.deliver != nil
	l.mu.Unlock()
	if !opened {
		return nil
	}
	l.running.Wait()
	l.late.Close()
	l.Lost()                // counts what nats.go will have forgotten
	_ = l.sub.Unsubscribe() // nobody changes it any more; as in follow
	l.flush()               // if this fails, frames are lost as when the server is lost
	l.delivering.Lock()     // waits for deliver; from now on there is none
	defer l.delivering.Unlock()
	return nil
}
