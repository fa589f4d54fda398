// Package mail carries messages between processes over a [transport.Link]:
// each message once, in order, and between one run of a process and one run of
// another. It is the driver of package session: it owns the sessions with all
// peers, transmits their frames, and keeps time for them.
//
// Package mail knows nothing about locks. Packages node and channel are built on it.
//
// # Lives
//
// A life is one run of a process, identified by Config.Life. The lives of one node are
// ordered: a process that starts later has a higher one. A peer that restarts comes back
// as a higher life, and [Handler.Met] is called. Then messages that the former life had
// not acknowledged are dropped, and no further message of the former life is delivered.
//
// # Peers
//
// Peers may come and go: [Mail.Add] begins a session with a node, and [Mail.Remove]
// ends it. The Mail drops a frame from any other node, and calls Handler.Stranger.
//
// # Concurrency
//
// A frame is handled from beginning to end in the goroutine in which the link
// delivers it: session, then Handler, then the answers back to the link. The
// frames of one peer are handled one after the other, those of different peers
// at the same time. At any moment at most one goroutine transmits to a peer. Other
// goroutines leave their messages to that one, so many messages travel in few
// frames. One more goroutine keeps time: it retransmits, sends delayed
// acknowledgements, and calls Handler.Tick. No mutex of a session is held while the
// link sends or the Handler runs.
package mail

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/session"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
)

// Config configures a [Mail]. MaxLife and Watch may be nil, and Peers empty.
type Config struct {
	Peers   []dmutex.NodeID // the other members at first, in any order, without this node; see Add and Remove
	Life    uint64          // the number of this run of the process; see session.Config.Life
	Group   uint64          // a digest of what all members must agree on
	Link    transport.Link  // not yet opened; Open opens it, and Close closes it
	Handler Handler

	// MaxLife, if not nil, returns the highest life that is believed at this time: where
	// lives begin at a clock, that clock and a day. A higher one is refused. MaxLife is
	// called about once a second, and by the link when a peer connects.
	MaxLife func() uint64

	// Watch, if not nil, is called for what the network does to frames: events of the
	// kinds Resent, Unsent, Repeated, Early and Stray, without the time. It is called
	// while a mutex is held: it must return soon, and must not send.
	Watch func(trace.Event)
}

// A Handler receives what arrives. Every method but Stranger, Closed and Tick is
// about one peer: such calls are made one at a time for each peer, and concurrently
// for different peers.
//
// A Handler may call Send, and what it sends leaves when the frames that have
// arrived together are handled. It may also call Add, Remove and Challenge. It must
// not call Flush, Rename or Close. Calls begin while [Mail.Open] opens the link, and
// end before [Mail.Close] returns.
type Handler interface {
	// Met reports contact with a new life of the peer. If another life of the peer was
	// met before, that one is gone: the messages that it had not acknowledged are
	// dropped, and messages are counted from 1 again in both directions. After a
	// Rename, Met is called again for each peer.
	Met(peer dmutex.NodeID, life uint64)

	// Message delivers the seq-th message of the peer's present life, counted
	// from 1. The message is valid only during the call.
	Message(from dmutex.NodeID, seq uint64, message []byte)

	// Left reports that the peer has closed its Mail, or renamed itself. It
	// comes after all messages of that life.
	Left(peer dmutex.NodeID)

	// Taken reports that the peer has met another life of this node. If it is higher than
	// this one, it has replaced this one: that stays true. If it is lower, its process was
	// there first and has answered the peer a moment ago. Taken may be called for a peer
	// that was not met. It is called again each time this node asks again.
	Taken(by dmutex.NodeID, life uint64)

	// Refused reports a frame that no correct peer sends. The frame has changed
	// nothing. If the Config.Group of the peer differs, err is a [session.GroupError]. It is
	// reported once, and again only after a frame of the peer was accepted or the
	// peer's Group has changed.
	Refused(peer dmutex.NodeID, err error)

	// Stranger reports that a frame arrived from a node that is not a peer, or that the
	// link has refused one: see [transport.DynamicLink]. It is called for each such
	// frame, possibly concurrently for the same node, so it must bound its work. For
	// frames that arrived before Add returned, it may be called after that.
	Stranger(from dmutex.NodeID)

	// Closed reports that the link was closed before the Mail: no more frames
	// arrive or leave. It is called once.
	Closed(err error)

	// Tick is called by the goroutine that keeps time, when the time has come that
	// the last Tick returned or that Wake has set, whichever is earlier. Times are in
	// nanoseconds, as [Mail.Now] returns them. Tick returns when to call it again,
	// and math.MaxInt64 to wait for the next Wake. The first call needs a Wake.
	Tick(now int64) (next int64)
}

const (
	// enough is how much may wait for one peer's acknowledgement, in bytes, until
	// [Mail.Full] reports true: the other half is for answers, which must not be refused.
	enough = session.Buffer / 2

	minFrame = 1024 // what transport.Link promises

	// To notice that the process was paused the clock is looked at each lookAfter. A
	// peer that does not answer for a quarter of a second can be replaced.
	lookAfter = time.Second
	pause     = time.Second / 5

	never = math.MaxInt64
)

// The link's states.
const (
	unopened = iota
	open
	shut
)

// A Mail is one node's end of its sessions with all peers. Its methods are safe
// for concurrent use.
//
// Flush, Rename and Close wait for the Handler or call it: do not call them while
// holding a mutex that the Handler takes.
type Mail struct {
	cfg    Config
	birth  time.Time
	roster atomic.Pointer[roster]
	full   atomic.Int32 // how many peers are

	link    atomic.Int32  // unopened, open or shut
	tickAt  atomic.Int64  // when Tick is due
	planned atomic.Int64  // when keepTime will wake by itself
	wake    chan struct{} // pokes keepTime: something is due earlier
	drain   chan struct{} // pokes Close: there may be less to wait for
	stop    chan struct{} // ends keepTime
	running sync.WaitGroup

	mu     sync.Mutex    // before the peers' mutexes
	closed chan struct{} // closed when Close has finished; nil before Close

	change  sync.Mutex // held to replace roster, for moments: after mu, before the peers' mutexes
	life    uint64     // of new sessions
	closing bool       // no new session begins
}

// A roster is the peers at one time. It does not change: Add and Remove replace it,
// so that the goroutines that send and receive need no mutex.
type roster struct {
	ids   []dmutex.NodeID // ascending
	peers []*peer         // in this order
}

// New returns a Mail that is not yet open. Messages can be sent already, and
// leave when it is open. New returns [dmutex.ErrMisuse] for an invalid Config.
func New(cfg Config) (*Mail, error) {
	switch {
	case cfg.Link == nil:
		return nil, dmutex.Misuse("mail: Config.Link is missing: choose one, such as tcplink.New")
	case cfg.Link.MaxFrame() < minFrame:
		return nil, dmutex.Misuse(fmt.Sprintf("mail: Config.Link takes frames of %d bytes: it must take %d", cfg.Link.MaxFrame(), minFrame))
	case cfg.Handler == nil:
		return nil, dmutex.Misuse("mail: Config.Handler is missing")
	case cfg.Life == 0:
		return nil, dmutex.Misuse("mail: Config.Life is 0: give each run of the process a number that no other run has")
	}
	m := &Mail{
		cfg:   cfg,
		birth: time.Now(),
		wake:  make(chan struct{}, 1),
		drain: make(chan struct{}, 1),
		stop:  make(chan struct{}),
		life:  cfg.Life,
	}
	m.tickAt.Store(never)
	m.roster.Store(&roster{})
	for _, id := range cfg.Peers {
		if err := m.Add(id); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Mail) session(life uint64) *session.Session {
	return session.New(session.Config{Life: life, MaxLife: m.maxLife(), Group: m.cfg.Group, MaxFrame: m.maxFrame()})
}

func (m *Mail) maxFrame() int { return min(m.cfg.Link.MaxFrame(), session.Buffer) }

func (m *Mail) maxLife() uint64 {
	if m.cfg.MaxLife == nil {
		return math.MaxUint64
	}
	return m.cfg.MaxLife()
}

func (m *Mail) peer(id dmutex.NodeID) *peer {
	r := m.roster.Load()
	i, found := slices.BinarySearch(r.ids, id)
	if !found {
		return nil
	}
	return r.peers[i]
}

// Add begins a session with a peer. It returns [dmutex.ErrMisuse] for node 0 and for
// a node that is a peer already. After Close was called, it does nothing and returns
// [session.ErrClosed].
//
// A node that was removed may be added again only if it or this node has begun another
// life since then. Otherwise the new session would lose messages, because the other
// end still counts those of the old one.
//
// Add, Remove and Challenge wait neither for the Handler nor for Open, Rename or Close:
// they may be called at any time, including by the Handler or while holding a mutex
// that the Handler takes.
func (m *Mail) Add(id dmutex.NodeID) error {
	m.change.Lock()
	defer m.change.Unlock()
	r := m.roster.Load()
	i, found := slices.BinarySearch(r.ids, id)
	switch {
	case m.closing:
		return session.ErrClosed
	case id == dmutex.None:
		return dmutex.Misuse("mail: node 0 names nobody: number the peers from 1")
	case found:
		return dmutex.Misuse(fmt.Sprintf("mail: node %d is added twice, by Config.Peers or Add", id))
	}
	m.roster.Store(&roster{
		ids:   slices.Insert(slices.Clone(r.ids), i, id),
		peers: slices.Insert(slices.Clone(r.peers), i, &peer{mail: m, id: id, session: m.session(m.life)}),
	})
	m.wakeBefore(math.MinInt64)
	return nil
}

// Remove ends the session with a peer without telling it. The messages queued for the
// peer are dropped, and from then on the node is unknown: Send refuses it, its frames
// go to Handler.Stranger, and Close does not wait for it. Remove does nothing for an
// unknown peer.
//
// Work in progress may continue after Remove has returned: one frame may still go to
// the link, and the Handler may still be called for the frame that is being handled.
// If the node is added again, these calls may coincide with those of the new session.
func (m *Mail) Remove(id dmutex.NodeID) {
	m.change.Lock()
	defer m.change.Unlock()
	r := m.roster.Load()
	i, found := slices.BinarySearch(r.ids, id)
	if !found {
		return
	}
	m.roster.Store(&roster{
		ids:   slices.Delete(slices.Clone(r.ids), i, i+1),
		peers: slices.Delete(slices.Clone(r.peers), i, i+1),
	})
	p := r.peers[i]
	p.mu.Lock()
	p.gone = true
	p.gauge()
	p.mu.Unlock()
	m.pokeDrain()
}

// Challenge asks a peer for a sign of life. A live peer answers at once, and
// Status.Silent starts again from 0. The question is sent once and may be lost. A
// peer that was not met is asked repeatedly anyway. Challenge does nothing for a peer
// that has left, nor for an unknown one.
func (m *Mail) Challenge(id dmutex.NodeID) {
	if p := m.peer(id); p != nil {
		p.notice(m.maxLife(), true)
		m.wakeBefore(math.MinInt64)
	}
}

// Open opens the link and begins to call the Handler. If the link cannot be
// opened, Open returns the link's error, and the caller must close the link.
func (m *Mail) Open() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.link.Load() != unopened || m.closed != nil {
		return dmutex.Misuse("mail: Open was called before, or the Mail is closed")
	}
	m.tellLife()
	if err := m.openLink(); err != nil {
		return fmt.Errorf("mail: open link: %w", err)
	}
	m.link.Store(open)
	m.running.Go(m.keepTime)
	return nil
}

// tellLife gives the link the present life. The caller has m.mu.
func (m *Mail) tellLife() {
	if l, ok := m.cfg.Link.(transport.LifeLink); ok {
		l.SetLife(m.life, m.maxLife, m.taken)
	}
}

func (m *Mail) openLink() error {
	if l, ok := m.cfg.Link.(transport.BurstLink); ok {
		return l.OpenBursts(m.deliver)
	}
	return m.cfg.Link.Open(func(from dmutex.NodeID, frame []byte) { m.deliver(from, [][]byte{frame}) })
}

// Send queues a message, which is copied, and returns its number, counted from 1 for the
// peer's present life. A message to a peer that was not met yet waits for its first life.
// Messages leave at the next Flush; messages that a Handler sends leave when it has
// handled the frames that arrived together.
//
// The errors are [session.ErrFull]; [session.ErrTooLarge]; [session.ErrClosed] if the
// peer has left, or if this Mail or its link is closed; and [dmutex.ErrMisuse] for an
// empty message or an unknown peer.
func (m *Mail) Send(to dmutex.NodeID, message []byte) (seq uint64, err error) {
	p := m.peer(to)
	if p == nil {
		return 0, errUnknown
	}
	return p.send(message)
}

var errUnknown = dmutex.Misuse("mail: the node is not a peer")

// Flush transmits to every peer the messages and acknowledgements that are due. It
// never waits for the network.
func (m *Mail) Flush() {
	for _, p := range m.roster.Load().peers {
		if p.due.Load() && p.due.Swap(false) {
			m.wakeBefore(p.transmit())
		}
	}
}

// Receipt returns a channel that is closed when the peer has acknowledged all that was
// sent to it so far, and the Handler has handled what came with that. If the peer has
// left, that is at once. The channel stays open if the peer leaves, is removed or begins
// another life before it has acknowledged all.
//
// The acknowledgement of a message usually travels in one frame with the answer. So if
// a message has its receipt but no answer, the peer has not answered at once, or the
// network has lost or reordered frames.
func (m *Mail) Receipt(to dmutex.NodeID) <-chan struct{} {
	p := m.peer(to)
	if p == nil {
		return nil
	}
	return p.receipt()
}

// Full reports whether more than half of the peer's send buffer of 4 MiB is
// unacknowledged. While that is so for no peer, it takes no mutex.
func (m *Mail) Full(to dmutex.NodeID) bool { return m.full.Load() > 0 && m.Backlog(to) > enough }

// Backlog returns how many bytes sent to the peer are unacknowledged.
func (m *Mail) Backlog(to dmutex.NodeID) int {
	p := m.peer(to)
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session.Backlog()
}

// MaxMessage returns the size of the largest message in bytes.
func (m *Mail) MaxMessage() int { return m.maxFrame() - session.Overhead }

// Now returns the time since New in nanoseconds, by the monotonic clock.
func (m *Mail) Now() int64 { return int64(time.Since(m.birth)) }

// Wake asks for a Tick at that time, in nanoseconds as [Mail.Now] counts them, or
// earlier.
func (m *Mail) Wake(at int64) {
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

// Rename continues as a higher life, with new sessions. The peers see the present life
// leave and meet the new one, and this node meets the peers again. Unacknowledged
// messages are lost. The present life says once that it leaves: a peer that does not
// receive this meets the new life 250 ms later. After Close, Rename does nothing.
//
// Rename returns [dmutex.ErrMisuse] for life 0.
func (m *Mail) Rename(life uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed != nil:
		return nil
	case life == 0:
		return dmutex.Misuse("mail: Rename to life 0: give each run of the process a number that no other run has")
	}
	m.change.Lock()
	m.life = life // of peers that are added from now on
	r := m.roster.Load()
	m.change.Unlock()
	m.tellLife()
	for _, p := range r.peers {
		p.rename(m.session(life))
	}
	m.Flush()
	return nil
}

// Close tells all peers, after everything that was sent, that this node leaves, and
// waits for their acknowledgements. Then it closes the link. When Close returns, no
// goroutine of the Mail is left. If ctx ends first, Close stops waiting and returns
// ctx's error with the peers that have not acknowledged. If the link was closed
// before, the error wraps [transport.ErrClosed]. A second Close waits for the first
// and returns nil.
//
// Close does not wait for a peer that was never met and to which nothing was sent.
// It does wait for a peer that has crashed.
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
	m.closed = make(chan struct{})
	defer close(m.closed)
	opened := m.link.Load() != unopened
	m.change.Lock()
	m.closing = true
	r := m.roster.Load()
	m.change.Unlock()
	for _, p := range r.peers {
		p.close()
	}
	m.mu.Unlock()
	if !opened {
		m.link.Store(shut)
		return m.cfg.Link.Close()
	}
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
	for m.link.Load() == open && slices.ContainsFunc(m.roster.Load().peers, (*peer).listening) {
		select {
		case <-m.drain:
		case <-ctx.Done():
			var missing []dmutex.NodeID
			for _, p := range m.roster.Load().peers {
				if p.listening() {
					missing = append(missing, p.id)
				}
			}
			return fmt.Errorf("mail: close: the last messages are not acknowledged by %v: %w", missing, ctx.Err())
		}
	}
	return nil
}

func (m *Mail) pokeDrain() {
	select {
	case m.drain <- struct{}{}:
	default:
	}
}

// wakeBefore makes keepTime wake at the deadline if it would sleep longer.
func (m *Mail) wakeBefore(deadline int64) {
	if deadline < m.planned.Load() {
		m.poke()
	}
}

func (m *Mail) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// keepTime transmits frames that become due by time alone, which are retransmissions
// and delayed acknowledgements, and calls Tick. It sets no timer to a time that has come,
// and reads no timer's channel: in a bubble of testing/synctest these run a timer in the
// goroutine that asks, and with two at once the race detector crashes (golang/go issue
// 78156).
func (m *Mail) keepTime() {
	timer := time.AfterFunc(lookAfter, m.poke)
	defer timer.Stop()
	lookAt := m.Now()
	for {
		m.planned.Store(never) // before the look round: from now on anything earlier pokes us
		m.tick()
		if now := m.Now(); now >= lookAt {
			lookAt = m.notice(now, lookAt)
		}
		earliest := min(m.tickAt.Load(), lookAt)
		for _, p := range m.roster.Load().peers {
			earliest = min(earliest, p.transmit())
		}
		m.pokeDrain() // an acknowledgement may have been the last thing to say
		m.planned.Store(earliest)
		if wait := earliest - m.Now(); wait > 0 {
			timer.Reset(time.Duration(wait))
		} else {
			m.poke()
		}
		select {
		case <-m.wake:
		case <-m.stop:
			return
		}
	}
}

// notice tells the sessions how high lives may be by now. If this process was paused, it
// should have looked at the clock at a time that is long past: then notice asks the peers
// whether another process took this one's number meanwhile, since there may be nothing
// else to say to anybody. notice returns when to look again.
func (m *Mail) notice(now, due int64) (next int64) {
	maxLife := m.maxLife()
	for _, p := range m.roster.Load().peers {
		p.notice(maxLife, now-due > int64(pause))
	}
	return now + int64(lookAfter)
}

// tick calls Tick if it is due. A Wake meanwhile counts beside what Tick returns.
func (m *Mail) tick() {
	now := m.Now()
	if now < m.tickAt.Load() {
		return
	}
	m.tickAt.Store(never)
	m.Wake(m.cfg.Handler.Tick(now))
}
