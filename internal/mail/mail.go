// Package mail carries messages between processes over a [transport.Link]:
// each message once, in order, from one life of a node to one life of another. It is the
// driver of package stream: it owns the streams with all peers, transmits their
// frames, and keeps time for them. It knows nothing about locks.
//
// A life is one run of a process. The lives of one node are ordered: a peer that restarts
// comes back as a higher life, and [Handler.Met] is called. Then messages that the former
// life had not acknowledged are dropped, and no further message of it is delivered.
//
// # Concurrency
//
// A frame is handled from beginning to end in the goroutine in which the link delivers it: stream, then Handler, then
// the answers back to the link. The frames of one peer are handled one after the other. At most one goroutine transmits
// to a peer, and others leave their messages to it, so many travel in few frames. One more goroutine keeps time: it
// retransmits, sends delayed acknowledgements, and calls Handler.Tick. Another one flushes for FlushSoon. No mutex of a
// stream is held while the link sends or the Handler runs.
package mail

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/stream"
	"github.com/dmutex/dmutex/transport"
)

// Config configures a [Mail]. MaxLife may be nil, and Peers empty.
type Config struct {
	Peers   []dmutex.NodeID // the other members at first, in any order, without this node; see SetPeers
	Life    uint64          // the number of this run of the process, not 0; see stream.Config.Life and Rename
	Link    transport.Link  // not yet opened; Open opens it, and Close closes it
	Host    transport.Host  // for the link: Died, Apart and Logger are the caller's, the rest is the Mail's
	Handler Handler

	Settings string // what all members must agree on; see stream.Config.Settings

	// MaxLife, if not nil, returns the highest life that is believed at this time. It is called
	// about once a second, and by the link when a peer connects.
	MaxLife func() uint64
}

// A Handler receives what arrives. Every method but Stranger, Closed and Tick is about one peer:
// such calls are made one at a time for each peer, and concurrently for different peers. Calls begin
// while [Mail.Open] opens the link, and end before [Mail.Close] returns.
//
// A Handler must not call Rename or Close, which wait for it. What it sends leaves by itself when the
// frames that have arrived together are handled.
type Handler interface {
	// Met reports contact with a new life of the peer, or after a Rename. Messages are counted from
	// 1 again in both directions; those that a former life had not acknowledged are dropped.
	Met(peer dmutex.NodeID, life uint64)

	// Message delivers the seq-th message of the peer's present life. It is valid during the call.
	Message(from dmutex.NodeID, seq uint64, message []byte)

	// Left reports, after all messages of that life, that the peer has closed its Mail or renamed itself.
	Left(peer dmutex.NodeID)

	// Taken reports that the peer has met another life of this node: see stream.Input. It is
	// called each time that this node has asked, also for a peer that was not met.
	Taken(by dmutex.NodeID, life uint64)

	// Refused reports a frame that no correct peer sends, and that has changed nothing.
	// A [stream.GroupError] is reported again only after a frame of the peer was accepted or
	// its error has changed.
	Refused(peer dmutex.NodeID, err error)

	// Stranger reports a frame from a node that is not a peer, or that the link has refused one: see
	// [transport.DynamicLink]. It is called for each such frame, so it must bound its work.
	Stranger(from dmutex.NodeID)

	// Closed reports that the link was closed before the Mail: no more frames
	// arrive or leave. It is called once.
	Closed(err error)

	// Tick is called at the time that the last Tick returned, due.Never for no time, or that Wake
	// has set, whichever is earlier, in nanoseconds since New by the steady clock. The first call needs a Wake.
	Tick(now int64) (next int64)
}

const (
	// How often to look whether the process was paused for so long that another may have replaced it.
	lookAfter = time.Second
	pause     = time.Second / 5
)

// The link's states.
const (
	unopened = iota
	open
	shut
)

// A Mail is one node's end of its streams with all peers. Its methods are safe for concurrent
// use. Flush, Rename and Close wait for the Handler or call it: do not call them while holding
// a mutex that the Handler takes.
type Mail struct {
	cfg   Config
	clock *clock.Clock
	speak protocol.Versions
	peers atomic.Pointer[[]*peer] // ascending; SetPeers replaces it, so who sends or receives needs no mutex

	link    atomic.Int32 // unopened, open or shut
	tickAt  atomic.Int64 // when Tick is due
	planned atomic.Int64 // when the timer wakes keepTime, 0 before Open; plan guards changes to an earlier time
	plan    sync.Mutex
	timer   *time.Timer
	wake    chan struct{} // pokes keepTime: something is due earlier
	soon    chan struct{} // pokes flushSoon: see FlushSoon
	drain   chan struct{} // pokes Close: there may be less to wait for
	stop    chan struct{} // ends keepTime and flushSoon
	running sync.WaitGroup

	mu     sync.Mutex    // held by Open, Rename and Close; before the peers' mutexes
	change sync.Mutex    // held for moments, to change what follows, peers and cfg.Life: after mu, before the peers' mutexes
	closed chan struct{} // closed when Close has finished; nil before Close
}

// New returns a Mail that is not yet open. Messages can be sent already, and
// leave when it is open. New returns [dmutex.ErrMisuse] for an invalid Config.
func New(cfg Config) (*Mail, error) {
	peers := make(map[dmutex.NodeID]uint64)
	for _, id := range cfg.Peers {
		peers[id] = 0
	}
	switch {
	case len(peers) < len(cfg.Peers) || slices.Contains(cfg.Peers, dmutex.None):
		return nil, dmutex.Misuse(fmt.Sprintf("mail: Config.Peers is %v: name each peer once, and not node 0, which names nobody", cfg.Peers))
	case cfg.Link == nil:
		return nil, dmutex.Misuse("mail: Config.Link is missing: choose one, such as tcplink.New")
	case cfg.Link.MaxFrame() < 1024: // what transport.Link promises
		return nil, dmutex.Misuse(fmt.Sprintf("mail: Config.Link takes frames of %d bytes: it must take 1024", cfg.Link.MaxFrame()))
	case stream.Overhead+len(cfg.Settings) > cfg.Link.MaxFrame(): // or no HELLO would ever leave
		return nil, dmutex.Misuse(fmt.Sprintf("mail: what all members must agree on takes %d bytes, and Config.Link takes frames of %d: choose a shorter Config.Group, or another link",
			len(cfg.Settings), cfg.Link.MaxFrame()))
	}
	if cfg.MaxLife == nil {
		cfg.MaxLife = func() uint64 { return math.MaxUint64 }
	}
	m := &Mail{
		cfg:   cfg,
		clock: clock.New(),
		speak: protocol.Spoken,
		wake:  make(chan struct{}, 1),
		soon:  make(chan struct{}, 1),
		drain: make(chan struct{}, 1),
		stop:  make(chan struct{}),
	}
	m.tickAt.Store(due.Never)
	m.peers.Store(new([]*peer))
	m.SetPeers(peers)
	return m, nil
}

// stream returns a stream with that life of a peer, or with any if it is 0.
func (m *Mail) stream(peer uint64) *stream.Stream {
	return stream.New(stream.Config{Life: m.cfg.Life, Peer: peer, MaxLife: m.cfg.MaxLife(), Versions: m.speak, Settings: m.cfg.Settings, MaxFrame: m.maxFrame()})
}

func (m *Mail) maxFrame() int { return min(m.cfg.Link.MaxFrame(), stream.Buffer) }

// peer looks at one peer after the other: a group has few, so this takes less than a search.
func (m *Mail) peer(id dmutex.NodeID) *peer {
	for _, p := range *m.peers.Load() {
		if p.id == id {
			return p
		}
	}
	return nil
}

// SetPeers makes these nodes, without this one, the peers, and nobody else. Each is given with the only
// life of it that may be met, or 0 for any; one that stays a peer keeps it. A stream begins with each new
// one, unless Close was called. A stream with another node ends without telling it: Send refuses the node,
// its frames go to Handler.Stranger, and Close does not wait for it. One frame may still go to the link, and
// the Handler may still be called for the frame that is being handled, also when the node is a peer again.
//
// A node may be a peer again only if it or this node has begun another life since then. Otherwise
// the other end still counts the messages of the old stream.
//
// SetPeers and Challenge do not wait for the Handler: they may be called while holding a mutex
// that it takes.
func (m *Mail) SetPeers(lives map[dmutex.NodeID]uint64) {
	m.change.Lock()
	defer m.change.Unlock()
	former, ps := *m.peers.Load(), []*peer(nil)
	for _, id := range slices.Sorted(maps.Keys(lives)) {
		p := m.peer(id)
		if p == nil && m.closed == nil {
			p = &peer{mail: m, id: id, life: lives[id], stream: m.stream(lives[id])}
		}
		if p != nil {
			ps = append(ps, p)
		}
	}
	m.peers.Store(&ps)
	for _, p := range former {
		if m.peer(p.id) != p {
			p.mu.Lock()
			p.gone = true
			p.mu.Unlock()
		}
	}
	poke(m.wake)
	poke(m.drain)
}

// Challenge asks a peer for a sign of life, once, unless it is unknown or has left. A live
// peer answers at once, and Status.Silent starts again from 0. A peer that was not met is
// asked repeatedly anyway.
func (m *Mail) Challenge(id dmutex.NodeID) {
	if p := m.peer(id); p != nil {
		p.notice(m.cfg.MaxLife(), true)
		poke(m.wake)
	}
}

// Open opens the link and begins to call the Handler. If it returns the link's error, the caller must
// close the link.
func (m *Mail) Open() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.link.Load() != unopened || m.closed != nil {
		return dmutex.Misuse("mail: Open was called before, or the Mail is closed")
	}
	host := m.cfg.Host
	host.Deliver, host.Life, host.Taken = m.deliver, m.lives, m.taken
	err := m.cfg.Link.Open(host)
	if err != nil {
		return fmt.Errorf("mail: open link: %w", err)
	}
	m.link.Store(open)
	m.running.Go(m.keepTime)
	m.running.Go(m.flushSoon)
	return nil
}

// lives returns the present life, and the highest that is believed.
func (m *Mail) lives() (own, highest uint64) {
	m.change.Lock()
	defer m.change.Unlock()
	return m.cfg.Life, m.cfg.MaxLife()
}

// Send queues a message, which is copied, and returns its number, counted from 1 for the peer's
// present life, or its first if it was not met yet. Messages leave at the next Flush.
//
// The errors are [stream.ErrFull]; [stream.ErrTooLarge]; [stream.ErrClosed] if the
// peer has left, or if this Mail or its link is closed; and [dmutex.ErrMisuse] for an
// empty message or an unknown peer.
func (m *Mail) Send(to dmutex.NodeID, message []byte) (seq uint64, err error) {
	p := m.peer(to)
	if p == nil {
		return 0, dmutex.Misuse("mail: the node is not a peer")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.link.Load() == shut {
		return 0, stream.ErrClosed
	}
	if err := p.stream.Send(message); err != nil {
		return 0, err
	}
	p.due.Store(true)
	p.backlog.Store(int64(p.stream.Backlog()))
	return p.stream.Sent(), nil
}

// Flush transmits to every peer the messages and acknowledgements that are due. It
// never waits for the network.
func (m *Mail) Flush() { m.flush(m.now()) }

// FlushSoon lets another goroutine call Flush, so the caller makes no system call. If the caller sends
// more and calls Flush before that, all leaves in one frame, such as a release and the next request.
func (m *Mail) FlushSoon() {
	for _, p := range *m.peers.Load() {
		if p.due.Load() {
			poke(m.soon)
			return
		}
	}
}

func (m *Mail) flush(now int64) {
	for _, p := range *m.peers.Load() {
		if p.due.Load() && p.due.Swap(false) {
			m.wakeBefore(p.transmit(now))
		}
	}
}

// Receipt returns a channel that is closed when the peer has acknowledged all that was
// sent to it so far, and the Handler has handled what came with that; at once if the peer
// has left. It stays open if the peer leaves, is removed or begins another life before.
//
// The acknowledgement travels in one frame with the answer. So after a receipt without an answer,
// the peer has not answered at once, or the network has lost frames.
func (m *Mail) Receipt(to dmutex.NodeID) <-chan struct{} {
	p := m.peer(to)
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	seq := p.stream.Sent()
	if n := len(p.receipts); n > 0 && p.receipts[n-1].seq == seq {
		return p.receipts[n-1].given
	}
	r := receipt{seq, make(chan struct{})}
	if seq <= p.acked || p.stream.Left() {
		close(r.given)
	} else {
		p.receipts = append(p.receipts, r)
		p.stream.Push()
	}
	return r.given
}

// A receipt is given when the peer has acknowledged its first seq messages.
type receipt struct {
	seq   uint64
	given chan struct{}
}

// Backlog returns how many bytes sent to the peer are unacknowledged, of [stream.Buffer] at most.
// It takes no mutex.
func (m *Mail) Backlog(to dmutex.NodeID) int {
	if p := m.peer(to); p != nil {
		return int(p.backlog.Load())
	}
	return 0
}

// MaxMessage returns the size of the largest message in bytes.
func (m *Mail) MaxMessage() int { return m.maxFrame() - stream.Overhead }

// Now returns the time by the steady clock, which begins with New.
func (m *Mail) Now() clock.Steady { return m.clock.Steady() }

// now is the time of the streams: nanoseconds since New by the steady clock.
func (m *Mail) now() int64 { return int64(m.Now().Age()) }

// Clock returns the clock of Now.
func (m *Mail) Clock() *clock.Clock { return m.clock }

// Wake asks for a Tick after so long, or earlier.
func (m *Mail) Wake(after time.Duration) { m.wakeAt(m.now() + max(int64(after), 0)) }

func (m *Mail) wakeAt(at int64) {
	for {
		present := m.tickAt.Load()
		if at >= present {
			return
		}
		if m.tickAt.CompareAndSwap(present, at) {
			m.wakeBefore(at)
			return
		}
	}
}

// Rename continues as a higher life, with new streams. The peers see the present life
// leave and meet the new one, 250 ms later if the farewell is lost, and this node meets the
// peers again. Unacknowledged messages are lost. After Close, Rename does nothing.
func (m *Mail) Rename(life uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed != nil {
		return
	}
	m.change.Lock()
	m.cfg.Life = life // also of new peers from now on
	ps := *m.peers.Load()
	m.change.Unlock()
	for _, p := range ps {
		p.rename(m.stream(p.life))
	}
	m.Flush()
}

// Close tells all peers, after everything that was sent, that this node leaves, and waits for their
// acknowledgements, also for that of a peer that has crashed, but not for a peer that was never met
// and to which nothing was sent. Then it closes the link, and no goroutine of the Mail is left. If
// ctx ends first, its error says which peers have not acknowledged. If the link was closed before,
// the error wraps [transport.ErrClosed]. A second Close waits for the first and returns nil.
func (m *Mail) Close(ctx context.Context) error {
	m.mu.Lock()
	if closed := m.closed; closed != nil {
		m.mu.Unlock()
		select {
		case <-closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.change.Lock()
	m.closed = make(chan struct{})
	defer close(m.closed)
	ps := *m.peers.Load()
	m.change.Unlock()
	for _, p := range ps {
		p.close()
	}
	m.mu.Unlock()
	m.Flush()
	err := m.await(ctx)
	close(m.stop)
	m.running.Wait()
	if m.link.Swap(shut) == shut {
		err = fmt.Errorf("mail: close: the peers were not told: %w", transport.ErrClosed)
	}
	return errors.Join(err, m.cfg.Link.Close())
}

// await waits until every peer has all that was sent. Every event that may end the
// wait pokes m.drain.
func (m *Mail) await(ctx context.Context) error {
	for m.link.Load() == open {
		var missing []dmutex.NodeID
		for _, p := range *m.peers.Load() {
			if p.listening() {
				missing = append(missing, p.id)
			}
		}
		if len(missing) == 0 {
			break
		}
		select {
		case <-m.drain:
		case <-ctx.Done():
			return fmt.Errorf("mail: close: the last messages are not acknowledged by %v: %w", missing, ctx.Err())
		}
	}
	return nil
}

// wakeBefore sets the timer to the deadline if keepTime would sleep longer. It does not wake keepTime,
// because a switch to that goroutine would hold up what was just sent. It sets no timer to a time that
// has come, and the timer has no channel: in a bubble of testing/synctest two of these at once crash
// the race detector (golang/go issue 78156).
func (m *Mail) wakeBefore(deadline int64) {
	if deadline >= m.planned.Load() {
		return
	}
	m.plan.Lock()
	defer m.plan.Unlock()
	if deadline >= m.planned.Load() {
		return
	}
	m.planned.Store(deadline)
	if wait := deadline - m.now(); wait > 0 {
		m.timer.Reset(m.clock.Span(time.Duration(wait)))
	} else {
		poke(m.wake)
	}
}

// poke wakes the goroutine that waits for the channel, or the next one that does.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// flushSoon calls Flush for FlushSoon: a Tick that takes long does not hold it up.
func (m *Mail) flushSoon() {
	for {
		select {
		case <-m.soon:
			m.Flush()
		case <-m.stop:
			return
		}
	}
}

// keepTime transmits what becomes due by time alone, and calls Tick.
func (m *Mail) keepTime() {
	wake := m.wake // all that the timer keeps when the Mail is closed
	m.timer = time.AfterFunc(m.clock.Span(lookAfter), func() { poke(wake) })
	lookAt, slept := m.now(), int64(0)
	for {
		m.planned.Store(due.Never) // first: what becomes due during this round sets the timer
		now := m.now()
		if now >= m.tickAt.Load() {
			m.tickAt.Store(due.Never)
			m.wakeAt(m.cfg.Handler.Tick(now)) // a Wake meanwhile counts beside what Tick returns
		}
		if now >= lookAt {
			// After a pause, or a sleep of the machine, another process may have this number, and the peers know.
			before := slept
			_, slept = m.clock.Read()
			paused, maxLife := now-lookAt+slept-before > int64(pause), m.cfg.MaxLife()
			for _, p := range *m.peers.Load() {
				p.notice(maxLife, paused)
			}
			lookAt = now + int64(lookAfter)
		}
		earliest := min(m.tickAt.Load(), lookAt)
		for _, p := range *m.peers.Load() {
			earliest = min(earliest, p.transmit(now))
		}
		m.wakeBefore(earliest)
		select {
		case <-m.wake:
		case <-m.stop:
			return
		}
	}
}
