// Package tcplink carries frames over TCP.
//
// # Connections
//
// Two nodes share one connection for both directions: answers then carry the
// acknowledgements of TCP, which makes a round trip a quarter cheaper than over two
// connections. The node with the higher number dials, so there is no tie to break, and
// dials again when the connection is lost, with exponential back-off and jitter. If it
// dials while its last connection still seems alive, the accepting side asks the other end
// of that one for a heartbeat. If no frame comes within a second, the new
// connection replaces it. Otherwise two processes use one number, and the new one is
// refused and told of the other.
//
// A connection begins with a greeting, first from the dialing side, then from the
// other: "dmutex", a zero byte, a version byte, the number of the sender, the number of
// the intended receiver, the life of the dialing side (see [transport.Host]) and, in an
// answer that refuses, the life of the other process, each 8 bytes, big endian. An
// answer may go to a stranger, so it tells no life of its sender, and 1 in place of the life of
// the other process if that is lower: only a process with a lower life must know the other. A life
// below that of the present connection is refused without a question, and one above the
// highest that is believed always: a claim that no process can outdo would keep the true peer out.
// A node closes the connection if the greeting is malformed, does not arrive within five
// seconds, is from a node that is not a peer or is for another node. With [Config.Self] 0 it
// tells its node of one that is not a peer yet, which tries again.
//
// Then come frames: a length of 4 bytes, big endian, and as many bytes. Length zero is a
// heartbeat, which a side sends each two seconds, and length 2^32-1, which no bytes follow,
// asks for one. A peer that completes no frame in eight seconds is disconnected, while TCP
// alone would take a quarter of an hour.
//
// # Promises
//
// Frames of one connection arrive complete and in order. Frames in flight when it breaks
// are lost. Frames sent while there is none wait, up to 1 MiB for each peer, and leave on
// the next one.
//
// Send writes to the socket itself, but never waits for it: frames that the socket does
// not take at once, and all frames to be encrypted, wait for a goroutine that sends many
// with one write. A peer that is slow, silent or sends nonsense does not delay or harm
// other peers. A flood from many hosts, or from the address of a peer, makes that peer
// dial a few times.
//
// # Security
//
// docs/security.md says what [Config.TLS] protects against, and how to create and change
// certificates. TLS makes a round trip of small frames over loopback 1.2 times as long
// (BenchmarkPingPong). Without it every greeting is believed. So such a link uses only the
// loopback interface, unless [Config.AllowPlain] says that every process that reaches the
// addresses is trusted.
package tcplink

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/latelog"
	"github.com/dmutex/dmutex/internal/outside"
	"github.com/dmutex/dmutex/transport"
)

// Config configures a link: the addresses of a node and its peers, and how they
// authenticate.
type Config struct {
	// Self is this node, or 0 for a [transport.DynamicLink], which gets its number and peers
	// from [Link.Become] and [Link.SetPeer]. Then Peers and NodeOf must be empty.
	Self dmutex.NodeID

	// Listen is the address to listen on, as host:port; port 0 takes a free one, see
	// [Link.Addr]. Empty stands for the entry of Self in Peers.
	Listen string

	// Advertise is the host:port where the other nodes reach this one, for the record in
	// the store: it is only allowed with Self 0. Empty stands for the host in Listen, unless
	// that means all interfaces, as ":7000" and "0.0.0.0:7000" do, and the port of Addr.
	Advertise string

	// Peers is the address book: every node that this one talks to, with its host:port. The
	// address of a peer names a host, which ":7000" and "0.0.0.0:7000" do not. An
	// address may be empty if it is not known yet, or if the node has a higher number, and
	// so dials this node. An entry for Self is allowed, so that all can have the same book.
	Peers map[dmutex.NodeID]string

	// TLS encrypts all connections and binds every certificate to a node, or, with Self 0,
	// to the host in a node's address. It needs the certificate of this node, valid for
	// both client and server authentication, and in RootCAs the authorities of the group.
	// ClientCAs overrides RootCAs for the side that accepts. If ServerName is set, every
	// certificate must be valid for that name too, which separates groups that share an
	// authority; with Self 0, for that name instead of the host. VerifyConnection is called
	// after all other checks except that of the node or host. New clones the tls.Config,
	// requires TLS 1.3, client certificates and full handshakes, and refuses settings that
	// weaken that.
	TLS *tls.Config

	// NodeOf returns the node that a verified certificate speaks for, or an error. Nil stands for
	// the function [NodeOf]. It is called by several goroutines. It is not allowed with Self 0.
	NodeOf func(*x509.Certificate) (dmutex.NodeID, error)

	// AllowPlain permits, without TLS, addresses beyond loopback, and names
	// other than localhost, which might resolve to such addresses.
	AllowPlain bool

	// Logger logs connections made, lost and refused; nil stands for the logger of the node.
	// See [transport.Link] for the cost of a slow handler. A reason why a
	// connection was refused, or a peer cannot be reached, is logged at most once a minute,
	// with the number of times that it occurred again.
	Logger *slog.Logger
}

const (
	maxFrame = 64 << 10 // the size of the largest frame in bytes
	backlog  = 1 << 20  // bytes that may wait for one peer; the link may be writing as many again
)

// pace is what tests change.
type pace struct {
	greeting    time.Duration                       // limit for dialing, and for exchanging greetings
	minRedial   time.Duration                       // the first back-off
	maxRedial   time.Duration                       // the last back-off
	grace       time.Duration                       // for a connection to answer before another replaces it
	heartbeat   time.Duration                       // between heartbeats
	patience    int32                               // heartbeats missed until a connection is given up
	maxGreeters int                                 // connections that have not said whose they are, at a time
	pick        func(int) int                       // draws the one of them that gives way, see door
	jitter      func(n time.Duration) time.Duration // draws how much of a back-off is left out, less than n; nil for a clock's
}

var defaultPace = pace{
	greeting:    5 * time.Second,
	minRedial:   10 * time.Millisecond,
	maxRedial:   time.Second,
	grace:       time.Second, // more than a round trip
	heartbeat:   2 * time.Second,
	patience:    3,
	maxGreeters: 256,
	pick:        rand.IntN,
}

// A Link is a [transport.Link] over TCP.
type Link struct {
	dynamic  bool                                           // made without a number
	address  string                                         // where the others reach this node
	anywhere bool                                           // beyond loopback too
	nodeOf   func(*x509.Certificate) (dmutex.NodeID, error) // nil if dynamic
	guard    atomic.Pointer[guard]                          // nil if connections are plain
	pace     pace
	network  outside.Network
	listener net.Listener
	door     door

	// serve sets these, before it starts the goroutines that use them.
	host transport.Host // its Life and Taken are never nil
	log  *latelog.Log

	ctx     context.Context // ends with the link
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.RWMutex
	opened bool
	self   dmutex.NodeID // None if nobody
	peers  map[dmutex.NodeID]*peer

	refused atomic.Pointer[error] // of the last connection that named no peer; nil once a peer has connected
}

// New listens, but does not accept or dial until Open. It returns
// [dmutex.ErrMisuse] for an invalid Config, and an error of package net if it
// cannot listen.
func New(c Config) (*Link, error) { return newLink(c, defaultPace) }

func newLink(c Config, pace pace) (*Link, error) {
	if pace.jitter == nil {
		pace.jitter = clock.New().UpTo
	}
	l := &Link{
		dynamic:  c.Self == dmutex.None,
		self:     c.Self,
		anywhere: c.AllowPlain || c.TLS != nil,
		nodeOf:   c.NodeOf,
		host:     transport.Host{Logger: c.Logger},
		pace:     pace,
		peers:    make(map[dmutex.NodeID]*peer),
		door:     door{places: pace.maxGreeters, pick: pace.pick},
	}
	if l.nodeOf == nil && !l.dynamic {
		l.nodeOf = NodeOf
	}
	l.network = tcp{l.control}
	if p := outside.Current(); p != nil && p.Network != nil {
		l.network = p.Network
	}
	listen := cmp.Or(c.Listen, c.Peers[c.Self])
	l.address = cmp.Or(c.Advertise, listen)
	if err := l.check(c, listen); err != nil {
		return nil, err
	}
	if c.TLS != nil {
		if err := l.secure(c.TLS); err != nil {
			return nil, err
		}
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for id, addr := range c.Peers {
		if id == c.Self {
			continue
		}
		if err := l.SetPeer(id, addr); err != nil {
			return nil, err
		}
	}
	var err error
	if l.listener, err = l.network.Listen(l.ctx, listen); err != nil {
		l.cancel()
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("tcplink: %w: another program listens there, perhaps another process of this node", err)
		}
		return nil, fmt.Errorf("tcplink: %w", err)
	}
	if c.Advertise == "" { // now its port is known
		host, _, _ := net.SplitHostPort(listen)
		_, port, _ := net.SplitHostPort(l.Addr().String())
		l.address = net.JoinHostPort(host, port)
	}
	return l, nil
}

// check refuses a Config, except for what it says of TLS and the peers.
func (l *Link) check(c Config, listen string) error {
	refuse := func(why string) error { return dmutex.Misuse("tcplink: " + why) }
	host, _, _ := net.SplitHostPort(listen)
	switch {
	case listen == "":
		return refuse("Config.Listen is missing, and Config.Peers has no address of Self: give host:port, such as 127.0.0.1:0")
	case c.TLS != nil && c.AllowPlain:
		return refuse("Config.AllowPlain and Config.TLS contradict each other: drop one")
	case c.TLS == nil && c.NodeOf != nil:
		return refuse("Config.NodeOf without Config.TLS: there are no certificates")
	case !l.dynamic && c.Advertise != "":
		return refuse("Config.Advertise is for a link with Config.Self 0: the others have the address in their Config.Peers")
	case l.dynamic && len(c.Peers) > 0:
		return refuse("Config.Peers with Config.Self 0: give this node's number, or no peers if a store gives the numbers")
	case l.dynamic && c.NodeOf != nil:
		return refuse("Config.NodeOf with Config.Self 0: a certificate is bound to the address in the record, not to a number")
	}
	if err := l.checkAddress("Config.Listen", listen, true); err != nil {
		return err
	}
	switch {
	case c.Advertise != "":
		return l.checkAddress("Config.Advertise", c.Advertise, false)
	case l.dynamic && nowhere(host):
		return refuse(fmt.Sprintf("Config.Listen is %q, which names no host:"+
			" set Config.Advertise to the host:port that the others dial, such as the pod's IP and the port", listen))
	}
	return nil
}

// checkAddress refuses what is not a host:port, and, unless it is allowed, what is not
// certainly on the loopback interface. Only the address to listen on may have no host, or
// port 0.
func (l *Link) checkAddress(what, addr string, listen bool) error {
	refuse := func(why string) error { return dmutex.Misuse(fmt.Sprintf("tcplink: %s is %q%s", what, addr, why)) }
	host, port, err := net.SplitHostPort(addr)
	number := 0
	if err == nil {
		number, err = net.LookupPort("tcp", port)
	}
	switch {
	case err != nil || number == 0 && !listen:
		return refuse(": give host:port")
	case nowhere(host) && !listen:
		return refuse(", which names no host: give one")
	case !l.anywhere && host != "localhost" && !loopback(host):
		return refuse(", beyond loopback: give Config.TLS, for a plain link believes everyone," +
			" or set Config.AllowPlain if every process that reaches it is trusted")
	}
	return nil
}

func loopback(host string) bool {
	ip, _ := netip.ParseAddr(host) // of a name it is no address
	return ip.Unmap().IsLoopback()
}

// nowhere reports whether a host stands for all interfaces.
func nowhere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.Unmap().IsUnspecified()
}

// control is called with the address that a name resolved to, before it is used:
// even localhost may resolve to any address.
func (l *Link) control(_, addr string, _ syscall.RawConn) error {
	if host, _, err := net.SplitHostPort(addr); !l.anywhere && (err != nil || !loopback(host)) {
		return fmt.Errorf("%s is beyond loopback", addr)
	}
	return nil
}

// Addr returns the address that the link listens on, nil if New has not made the link.
func (l *Link) Addr() net.Addr {
	if l.listener == nil {
		return nil
	}
	return l.listener.Addr()
}

// SetTLS changes certificates and authorities for new connections. It returns
// [dmutex.ErrMisuse] for what New refuses as Config.TLS, and for a link without TLS; then
// it changes nothing.
func (l *Link) SetTLS(c *tls.Config) error {
	if l.guard.Load() == nil || c == nil {
		return dmutex.Misuse("tcplink: SetTLS changes TLS, but does not begin or end it: make a new link")
	}
	return l.secure(c)
}

// Trouble implements [transport.Link].
func (l *Link) Trouble(to dmutex.NodeID) error {
	l.mu.RLock()
	p, self := l.peers[to], l.self
	l.mu.RUnlock()
	switch {
	case l.ctx == nil:
		return errUnmade
	case l.ctx.Err() != nil:
		return transport.ErrClosed
	case self == dmutex.None:
		return errNobody
	case p == nil:
		return transport.ErrUnknownNode
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	why := p.trouble
	switch {
	case p.conn != nil:
		return nil
	case why == nil && to > self:
		why = fmt.Errorf("tcplink: node %d has not connected: the node with the higher number dials", to)
	case why == nil && p.addr == "":
		why = fmt.Errorf("tcplink: cannot connect to node %d: its address is not known", to)
	case why == nil:
		why = fmt.Errorf("tcplink: not yet connected to node %d", to)
	}
	if last := l.refused.Load(); last != nil && to > self { // perhaps it was this one
		why = fmt.Errorf("%w; %w", why, *last)
	}
	return why
}

// start begins to dial a peer, if it is for us to dial and the link is open.
func (l *Link) start(p *peer) {
	if l.opened && p.id < p.self && p.addr != "" {
		l.running.Go(p.dial)
	}
}

// MaxFrame implements [transport.Link].
func (l *Link) MaxFrame() int { return maxFrame }

// Open implements [transport.Link]. Up to 64 frames that one read has brought, together no longer
// than the longest frame, are delivered together.
func (l *Link) Open(host transport.Host) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ctx == nil:
		return errUnmade
	case l.ctx.Err() != nil:
		return transport.ErrClosed
	case l.opened:
		return dmutex.Misuse("tcplink: the link is open already")
	case host.Deliver == nil:
		return dmutex.Misuse("tcplink: Host.Deliver is missing")
	}
	l.serve(host)
	l.opened = true
	l.running.Go(l.accept)
	l.running.Go(l.keepAlive)
	for _, p := range l.peers {
		l.start(p)
	}
	return nil
}

// serve begins to use a host.
func (l *Link) serve(host transport.Host) {
	if host.Life == nil {
		host.Life = func() (own, highest uint64) { return 0, math.MaxUint64 }
	}
	if host.Taken == nil {
		host.Taken = func(dmutex.NodeID, uint64) {}
	}
	l.host, l.log = host, latelog.New(l.host.Logger, host.Logger)
}

// Send implements [transport.Link].
func (l *Link) Send(to dmutex.NodeID, frame []byte) error {
	l.mu.RLock()
	p, opened := l.peers[to], l.opened
	l.mu.RUnlock()
	switch {
	case !opened || l.ctx.Err() != nil:
		return transport.ErrClosed
	case p == nil:
		return transport.ErrUnknownNode
	case len(frame) == 0 || len(frame) > maxFrame:
		return transport.ErrFrameSize
	}
	return p.send(frame)
}

// Close implements [transport.Link]. Frames that a peer does not take within a second are lost.
func (l *Link) Close() error {
	if l.ctx == nil {
		return nil
	}
	l.mu.RLock()
	peers := slices.Collect(maps.Values(l.peers))
	l.mu.RUnlock()
	until := time.Now().Add(l.pace.grace)
	for _, p := range peers {
		p.linger(until)
	}
	l.mu.Lock()
	var err error
	if l.ctx.Err() == nil {
		l.cancel()
		err = l.listener.Close()
	}
	l.mu.Unlock()
	l.running.Wait()
	l.log.Close()
	return err
}

// wait waits for a time. It returns false when the context has ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// hold closes a connection when the context ends, and at the latest when drop is called.
func hold(ctx context.Context, nc net.Conn) (drop func()) {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		nc.Close()
		close(closed)
	})
	return func() {
		if !stop() {
			<-closed
		}
		nc.Close()
	}
}

// keepAlive sends heartbeats, and ends connections whose other side is silent.
func (l *Link) keepAlive() {
	for wait(l.ctx, l.pace.heartbeat) {
		l.mu.RLock()
		for _, p := range l.peers {
			p.mu.Lock()
			switch c := p.conn; {
			case c == nil:
			case c.silent.Add(1) > l.pace.patience:
				l.log.Log(slog.LevelWarn, "tcplink: the peer is silent", slog.Any("node", p.self), slog.Any("peer", p.id))
				p.lose(c, errSilent)
			case len(c.out) == 0: // else drain has something to send
				p.say(heartbeat)
			}
			p.mu.Unlock()
		}
		l.mu.RUnlock()
	}
}
