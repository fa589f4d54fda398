package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
)

// Config describes a node and its group. Members, Algorithm, Group, Deadlock and Lease
// must be the same in all members; nodes that differ refuse to meet, with [ErrConfig].
type Config struct {
	// Self is this node, and Members are all nodes of the group, this one among them,
	// in any order. With Store leave both out: the record in the store gives each process
	// a number.
	Self    dmutex.NodeID
	Members []dmutex.NodeID

	Algorithm dmutex.Algorithm // such as ricart.New
	Link      transport.Link   // not yet opened; the node opens it, and closes it in Close

	// Store, if not nil, has the record of the group's members, who then come and go: a
	// process that crashes is excluded, and its locks are freed. Link must be a
	// [transport.DynamicLink], and Trace nil. See "Two modes" in the package comment.
	Store store.Store

	// Lease is how long a member may hold locks after the store has last confirmed that
	// it is one: 100 ms to 1 h, and 0 stands for [DefaultLease]. The locks of a process
	// that crashes are freed after about one and a half leases, and an outage of the
	// store that lasts longer than a lease costs all locks. Only with Store.
	Lease time.Duration

	// Group distinguishes groups that share a network. It may be empty.
	Group string

	// Fence is a fence that was granted before, below 1<<63: all grants will have higher
	// ones. 0 is right if the members' wall clocks are never set back by more than the
	// time between a stop of all members and their next start. Otherwise set it to the
	// highest fence that your resources have stored. The members need not give the same
	// value: the highest counts. But if it is more than a day ahead of the clock, all
	// must give it.
	Fence uint64

	// Deadlock is how long an Acquire of a [Txn] that holds a lock waits before the
	// node looks for a cycle of transactions that wait for each other, and the time
	// between two looks. 0 disables detection, which then costs nothing. For each lock
	// in the cycle, one look costs about as many messages as one entry, so choose a
	// time that is long for a wait: a second rather than a millisecond.
	Deadlock time.Duration

	// Trace, if not nil, records every event of this node. It costs time and disk
	// space, but no call waits for it except Close, which flushes it.
	Trace *trace.Recorder

	// Logger gets a few records for the operator; nil logs nothing. Every record has
	// the key node, once this node has a number, and the key group if Group is not empty.
	//
	//	INFO   node opened
	//	INFO   peer met                                peer
	//	INFO   peer gone                               peer              it has closed its end
	//	INFO   view acts                               epoch, members, joined, left, took
	//	WARN   epochs are ahead of the clock: ...      ahead             by more than a minute
	//	WARN   waiting for members                     waited, for
	//	WARN   peer is configured differently          peer, err         once, until it is met or something else differs
	//	WARN   peer has met another process with this node's number   peer
	//	WARN   view is to be replaced                  peer, lock, err   the algorithm does not survive what happened
	//	WARN   refused what no correct peer sends      peer, err
	//	WARN   lock is waited for                      lock, waited, holder, for
	//	ERROR  node stopped: nothing more is granted   err
	//	WARN   lease is late to be renewed             left, err
	//	ERROR  lease ended: all locks are lost         err
	//	WARN   excluded: the others go on without this process, which joins again
	//	WARN   peer gives no sign of life              peer, silent      it is excluded if that lasts
	//	WARN   waiting                                 waited, err       for the store, or for leases of former members to end
	//	WARN   the link refuses what the record says   err
	//	WARN   records left out                        count, last       INFO for those of that level
	//	INFO   node closed                             WARN with err if Close returns an error
	//
	// A node that waits for members or the store logs that after 3 seconds, then 6, 12 and
	// so on, and a wait for leases also when it begins.
	// A long wait for a lock is logged when the first waiter of this node has waited
	// for 10 seconds, then 20, 40 and so on, with the holder, if it is known, and the
	// peers whose answers are missing. Campaigns may wait indefinitely, so they are
	// not logged.
	//
	// A record that a peer can trigger at will is written once a minute, and then again with
	// the attribute "again", the number of times that it was repeated. Of each level 20
	// different ones are written in a minute, followed by the count of those left out and
	// the last of them. A goroutine of the node writes all records: a slow handler delays
	// only Close. The handler must not call Close. A Link that has no
	// logger of its own logs here, too.
	Logger *slog.Logger

	// Observer is called for every wait and hold at this node, and for every change
	// of the group.
	Observer *Observer
}

// A Node is one member of a group. It takes part in all locks of the group. Its
// methods are safe for concurrent use.
type Node struct {
	cfg    Config
	self   atomic.Uint64 // this node's number, which Config.Store gives
	birth  time.Time
	sum    uint64 // see digest
	mail   *mail.Mail
	views  views
	locks  *locks.Table
	terms  terms
	log    *logger     // nil without Config.Logger
	events chan func() // to tell the Observer; nil if there is nothing to tell
	peers  atomic.Pointer[peers]

	refused   atomic.Uint64 // messages and frames that no correct peer sends
	probes    atomic.Uint64 // that were sent
	deadlocks atomic.Uint64 // waits that were ended
	txns      atomic.Uint64 // transactions that were begun

	closing atomic.Bool
	closed  chan struct{} // closed when Close has finished
	quit    chan struct{} // ends tellChanges
	running sync.WaitGroup
}

// A peer is what the node keeps of another member beside its mail. Its fields
// are used by one call of the mail's handler at a time.
type peer struct {
	id      dmutex.NodeID
	decoder wire.Decoder
	life    uint64 // that was met last; 0 if none was
}

// peers is the other members, ascending. It never changes: another takes its place.
type peers []*peer

func (n *Node) peer(id dmutex.NodeID) *peer {
	ps := *n.peers.Load()
	if i, found := slices.BinarySearchFunc(ps, id, func(p *peer, id dmutex.NodeID) int { return cmp.Compare(p.id, id) }); found {
		return ps[i]
	}
	return nil
}

// others returns the other members, ascending.
func (n *Node) others() (ids []dmutex.NodeID) {
	for _, p := range *n.peers.Load() {
		ids = append(ids, p.id)
	}
	return ids
}

// setPeers replaces the other members. Those that stay keep what is known of them.
func (n *Node) setPeers(ids []dmutex.NodeID) {
	var ps peers
	for _, id := range slices.Sorted(slices.Values(ids)) {
		p := n.peer(id)
		if p == nil {
			p = &peer{id: id}
		}
		ps = append(ps, p)
	}
	n.peers.Store(&ps)
}

// Open makes this process a member of the group. It does not wait for the other
// members: they may start in any order, and Acquire waits until they are there. If
// ctx has ended, Open returns its error; ctx has no effect after that.
//
// Without Config.Store, at most one process with this number may be alive at a time. If
// another one still answers the members, this node grants nothing, and within seconds
// all calls return [ErrNumberTaken].
//
// Open refuses an invalid Config with [dmutex.ErrMisuse], and returns the link's
// error if the link cannot be opened. After an error the caller closes the link.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cfg.Members = slices.Sorted(slices.Values(cfg.Members))
	if cfg.Store != nil && cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, birth: time.Now(), closed: make(chan struct{}), quit: make(chan struct{})}
	n.self.Store(uint64(cfg.Self))
	n.peers.Store(new(peers))
	n.views = views{node: n, life: cfg.newLife(0), next: make(chan struct{}), nagAt: int64(nagAfter)}
	n.views.left, n.views.leave = context.WithCancel(context.Background())
	n.views.parts = make(map[dmutex.NodeID]membership.Message)
	n.txns.Store(n.views.life << 32 >> 16) // a probe for a transaction of a former life finds none
	var err error
	if n.sum, err = n.digest(); err != nil {
		return nil, err
	}
	if err := n.views.init(); err != nil {
		return nil, err
	}
	if cfg.Logger != nil {
		n.log = newLogger(&cfg, &n.self)
		if l, ok := cfg.Link.(transport.LoggerTaker); ok {
			l.TakeLogger(cfg.Logger)
		}
	}
	n.setPeers(slices.DeleteFunc(slices.Clone(cfg.Members), func(id dmutex.NodeID) bool { return id == cfg.Self }))
	for _, id := range n.others() {
		if l, ok := cfg.Link.(transport.Reporter); ok && errors.Is(l.Trouble(id), transport.ErrUnknownNode) {
			return nil, dmutex.Misuse(fmt.Sprintf("Config.Link has no address for member %v: add it", id))
		}
	}
	n.mail, err = mail.New(mail.Config{
		Peers: n.others(), Life: n.views.life, Group: n.sum, Link: cfg.Link, Handler: handler{n}, MaxLife: maxLife, Watch: n.watch(),
	})
	if err != nil {
		return nil, err
	}
	n.locks = locks.New(locks.Config{
		Algorithm: cfg.Algorithm, Mail: n.mail, Clock: n.views.who.clock(), Trace: cfg.Trace, Up: up{n}, Overruled: overruled,
	})
	if err := n.openTrace(); err != nil {
		return nil, err
	}
	if o := cfg.Observer; o != nil && (o.View != nil || o.Lease != nil) {
		n.events = make(chan func(), 64)
	}
	n.log.tell(slog.LevelInfo, "node opened")
	if err := n.mail.Open(); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	n.views.do(machine.Tick)
	if n.log != nil {
		n.running.Go(n.log.late.Run)
	}
	if n.events != nil {
		n.running.Go(n.tellEvents)
	}
	return n, nil
}

// check refuses an invalid Config.
func (cfg *Config) check() error {
	switch {
	case cfg.Algorithm == nil:
		return dmutex.Misuse("Config.Algorithm is missing: choose one, such as ricart.New")
	case cfg.Link == nil:
		return dmutex.Misuse("Config.Link is missing: choose one, such as tcplink.New")
	case cfg.Deadlock < 0:
		return dmutex.Misuse(fmt.Sprintf("Config.Deadlock is at least 0, not %v: 0 never looks for cycles", cfg.Deadlock))
	case cfg.Link.MaxFrame() < roomFor(cfg.maxMembers()):
		return dmutex.Misuse(fmt.Sprintf("Config.Link takes frames of %d bytes: a group of %d members needs %d",
			cfg.Link.MaxFrame(), cfg.maxMembers(), roomFor(cfg.maxMembers())))
	case cfg.Store == nil && cfg.Lease != 0:
		return dmutex.Misuse("Config.Lease needs Config.Store: without one, members that are gone are waited for")
	case cfg.Store == nil && numberless(cfg.Link):
		return dmutex.Misuse("Config.Link was made without a number, for a node with Config.Store: give it a number and the members, as tcplink.Config.Self and Peers do, or set Config.Store")
	case cfg.Store != nil && (cfg.Self != dmutex.None || len(cfg.Members) > 0):
		return dmutex.Misuse("Config.Self and Config.Members contradict Config.Store, whose record has the members: leave them out")
	case cfg.Store != nil && cfg.Trace != nil:
		return dmutex.Misuse("Config.Trace needs Config.Members: a trace of a group with Config.Store cannot be replayed")
	}
	return nil
}

// numberless reports whether a link was made to get its number from a record.
func numberless(l transport.Link) bool {
	d, ok := l.(transport.DynamicLink)
	return ok && d.Become(dmutex.None) == nil
}

// maxMembers bounds the members of a view.
func (cfg *Config) maxMembers() int {
	if cfg.Store != nil {
		return membership.MaxMembers
	}
	return len(cfg.Members)
}

// newLife names a life of this process: by its wall clock in steps of about a
// millisecond, so that it is probably higher than former ones, and random bits below.
// It is higher than above. No two members have the same: with a store, where they have no
// numbers yet, because the steps are longer and the random bits more.
func (cfg *Config) newLife(above uint64) uint64 {
	clock, bits := uint64(max(sinceEpoch(), 0)), lifeRandom
	if cfg.Store != nil {
		bits = lifeRandomStore
	}
	random := 1 + rand.Uint64N(1<<bits-1)
	life := max(clock>>bits<<bits|random, above+random)
	if cfg.Store != nil {
		return life
	}
	step := uint64(len(cfg.Members) + 1)
	return life - life%step + step + uint64(slices.Index(cfg.Members, cfg.Self))
}

const lifeRandom, lifeRandomStore = 20, 33

// maxLife returns the highest life that is believed: some clock may be wrong by a day, and
// a life told once cannot lock a number out for longer.
func maxLife() uint64 { return uint64(max(sinceEpoch(), 0) + int64(24*time.Hour)) }

// sinceEpoch returns the nanoseconds since 2020-01-01 UTC by the wall clock.
func sinceEpoch() int64 { return int64(time.Since(epochZero)) }

// clockNow returns the clock of the machines of package membership.
func clockNow() uint64 { return uint64(max(sinceEpoch(), 0)) / uint64(time.Millisecond) }

var epochZero = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

func (n *Node) newMachine(life uint64) (*membership.Machine, error) {
	return membership.New(membership.Config{
		Self: n.cfg.Self, Members: n.cfg.Members, Life: life,
		Fence: n.cfg.Fence, Clock: clockNow(),
	})
}

// Self returns this node's number. With Config.Store it is [dmutex.None] until the store
// has given one, and after an exclusion the node gets another.
func (n *Node) Self() dmutex.NodeID { return dmutex.NodeID(n.self.Load()) }

// Mutex returns the lock of that name. Every name is a lock of the whole group;
// it need not be created. A name has 1 to [transport.MaxName] bytes.
//
// A lock that is not in use takes no memory, with two exceptions: a node remembers
// up to 512 locks that were used last, and under ring and suzukikasami some nodes
// remember where the token is.
func (n *Node) Mutex(name string) *Mutex {
	return &Mutex{node: n, name: name}
}

// stop ends all granting with an ErrStopped, for the reason given: holds are lost, and
// waits fail. The caller
// has the mutex of views.
func (n *Node) stop(why error) {
	if n.locks.Why() != nil {
		return
	}
	why = &stopError{why}
	n.end(why)
	var lost error = &lossError{why}
	n.locks.Abandon(why, lost, false)
	if !errors.Is(why, transport.ErrClosed) {
		n.running.Go(func() { // the group goes on without this process
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_ = n.mail.Close(ended)
		})
	}
	n.log.tell(slog.LevelError, "node stopped: nothing more is granted", slog.Any("err", why))
	n.traceErr(trace.Down, dmutex.None, why)
	n.views.leave()
}

// end ends all granting. The caller has the mutex of views.
func (n *Node) end(why error) {
	now := n.views.now() // before: the lease may have ended first
	n.locks.End(why)
	n.views.pause(now)
}

// Close leaves the group. New and waiting acquisitions fail with [ErrClosed], and
// locks that are still held are lost ([Held.Context] ends) and released. Then this node
// leaves the view, and the others go on without it. Close also closes the link, and
// no goroutine of the node is left when it returns.
//
// That takes a few round trips while the other members are up. If one of them is
// down or cut off, Close waits until ctx ends, and then leaves anyway. It then
// returns ctx's error, with the members that were missing, and this node looks
// crashed to the others: they wait for its return.
//
// With Config.Store, Close does not need the other members, but the store, which takes this
// node out of the record. If the store does not answer, Close waits until ctx ends,
// and then leaves anyway, with an error that says so. The others exclude this node when
// the store is back. A store that does not return when the context of an operation has
// ended delays Close by a second.
//
// Close waits until the functions of [Mutex.Do] and [Election.Campaign] have returned,
// also if the node had stopped by itself. If ctx ends before that, this node looks
// crashed to the others, too. Close also waits until Config.Trace is written. A second
// Close waits for the first and returns nil.
func (n *Node) Close(ctx context.Context) error {
	if n.closing.Swap(true) {
		select {
		case <-n.closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var lost []locks.Hold
	defer func() {
		close(n.closed)
		n.tell(lost...) // at the end: the Observer may be slow, panic, or call Close
	}()
	n.views.mu.Lock() // so that Held.Err finds the hold ended, or the lease still looked after
	if n.locks.Why() == nil {
		n.end(ErrClosed)
		n.trace(trace.Event{What: trace.Down})
	}
	lost = n.locks.Abandon(ErrClosed, closed, n.locks.Why() == ErrClosed)
	n.views.mu.Unlock()
	n.mail.Flush()
	err := n.awaitWork(ctx)
	if err == nil && n.locks.Why() == ErrClosed {
		err = n.leave(ctx)
	}
	n.views.who.close()
	err = errors.Join(err, n.farewell(ctx, err == nil), n.closeTrace(ctx))
	n.log.close(err)
	close(n.quit)
	n.running.Wait()
	return err
}

// awaitWork waits until no function of Do runs here any more.
func (n *Node) awaitWork(ctx context.Context) error {
	for name := n.locks.Working(); name != ""; name = n.locks.Working() {
		select {
		case <-n.locks.Rested():
		case <-ctx.Done():
			return fmt.Errorf("node: close: the function that runs under lock %q has not returned: %w", name, ctx.Err())
		}
	}
	return nil
}

// leave waits until no member needs this node.
func (n *Node) leave(ctx context.Context) error {
	n.views.do(machine.Leave)
	n.mail.Flush()
	select {
	case <-n.views.left.Done():
		return n.views.who.left()
	case <-ctx.Done():
		if n.views.left.Err() != nil { // a node that is alone asks nobody
			return n.views.who.left()
		}
		return n.views.who.late(ctx.Err())
	}
}

// farewell closes the mail. Nothing depends on whether the peers learn of it, so it
// waits for a second at most, and not at all if this node has not left. With a store
// the peers forget this node when they see in the record that it has left.
func (n *Node) farewell(ctx context.Context, left bool) error {
	ctx, cancel := context.WithTimeout(ctx, n.views.who.farewell())
	defer cancel()
	if !left {
		cancel()
	}
	err := n.mail.Close(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// refuse counts and logs what no correct peer sends.
func (n *Node) refuse(from dmutex.NodeID, err error) {
	n.refused.Add(1)
	n.log.tellOften(slog.LevelWarn, "refused what no correct peer sends", peerAttr(from), slog.Any("err", err))
}

// An up is what the locks report to.
type up struct{ *Node }

func (u up) Trouble(epoch uint64, lock string, err error) {
	if err = public(err); lock != "" {
		err = &LockError{lock, err}
	}
	u.views.trouble(epoch, err)
}

func (u up) Refused(from dmutex.NodeID, err error) { u.refuse(from, err) }

func (u up) Expired() { u.views.expire() }

// A handler passes what the mail brings to the part of the node that it is for.
type handler struct{ *Node }

func (h handler) Met(peer dmutex.NodeID, life uint64) {
	what, p := trace.Met, h.peer(peer)
	if p == nil { // it was removed meanwhile
		return
	}
	if p.life != 0 && p.life != life {
		what = trace.Restarted
	}
	p.life = life
	h.trace(trace.Event{What: what, Peer: peer, Life: life})
	h.log.tellOften(slog.LevelInfo, "peer met", peerAttr(peer))
	h.views.met(peer, life)
}

func (h handler) Left(peer dmutex.NodeID) {
	if h.peer(peer) == nil {
		return
	}
	h.trace(trace.Event{What: trace.Left, Peer: peer})
	h.log.tellOften(slog.LevelInfo, "peer gone", peerAttr(peer))
	h.views.lost(peer)
}

func (h handler) Message(from dmutex.NodeID, seq uint64, message []byte) {
	p := h.peer(from)
	if p == nil {
		return
	}
	switch says := message[0]; {
	case says >= 0x80:
		name, m, err := p.decoder.Decode(message)
		if err != nil { // a lock has missed a message, and we do not know which lock
			h.refuse(from, err)
			h.views.trouble(h.locks.Epoch(), &PeerError{from, err})
			return
		}
		m.From, m.To = from, h.Self()
		h.locks.Handle(name, trace.Message{Seq: seq, Message: m})
	case says > 0 && says <= saysLast:
		h.views.handle(from, message)
	case says == saysLeads:
		name, t, err := readTerm(from, message)
		if err != nil {
			h.refuse(from, fmt.Errorf("node: announcement of a leader: %w", err))
			return
		}
		h.terms.hear(name, t)
	case says == saysProbe:
		h.probed(from, message)
	case says == saysAsk:
		h.asked(from, message)
	default:
		h.refuse(from, dmutex.PeerMistake(fmt.Sprintf("node: unknown kind of message: %d", says)))
	}
}

// Stranger hears of a node that may be in a newer record than this node has read.
func (h handler) Stranger(dmutex.NodeID) {
	h.views.who.stranger()
}

func (h handler) Taken(by dmutex.NodeID, life uint64) { h.views.takenBy(by, life) }

func (h handler) Refused(from dmutex.NodeID, err error) {
	var other *mail.GroupError
	if errors.As(err, &other) {
		h.Node.refused.Add(1)
		h.log.tellOften(slog.LevelWarn, "peer is configured differently", peerAttr(from), slog.Any("err", h.differs(other.Other)))
		return
	}
	h.refuse(from, err)
}

func (h handler) Closed(err error) {
	h.running.Go(func() {
		h.views.mu.Lock()
		defer h.views.mu.Unlock()
		h.stop(fmt.Errorf("node: the link was closed before the node: %w", err))
		if h.cfg.Store == nil {
			h.views.leave() // a Close under way would ask the peers in vain
		}
	})
}

func (h handler) Tick(int64) (next int64) { return h.views.tick() }
