package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/internal/lend"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/names"
	"github.com/dmutex/dmutex/node/internal/group"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
)

// Config configures a node. The zero Config works. Algorithm, Lease, Group and Deadlock must be
// the same in all members, and either all have Clients or none: members that differ refuse each
// other with [ErrConfig].
type Config struct {
	// Name names this process to people: up to 64 bytes of printable text, which all members
	// show beside its number. If it is empty, it is the host's name, cut if need be, a slash, and the process ID.
	Name string

	// Algorithm is one such as ricart.New. Nil means central.Witnessed for [Open], with which a
	// crash costs only the locks that the dead member held or asked for, and central.New for
	// [OpenStrict].
	Algorithm dmutex.Algorithm

	// Lease is how long a member may hold locks after the store last confirmed its
	// membership: 100 ms to 1 h; 0 means 10 s. The locks of a process that crashes are freed
	// when its lease has ended, and an outage of the store that lasts longer than a lease costs
	// all locks: see docs/modes.md. Not for [OpenStrict].
	Lease time.Duration

	// Group distinguishes groups that share a network. It may be empty.
	Group string

	// Fence is a fence that was granted before, below 1<<63: all grants will have higher
	// ones. 0 is right if the members' wall clocks are never set back by more than the
	// time between a stop of all members and their next start. Otherwise set it to the
	// highest fence that your resources have stored. The highest value of any member counts,
	// but one more than a day ahead of the clock must be given by all.
	Fence uint64

	// Deadlock is how long an Acquire of a [Txn] that holds a lock waits before the
	// node looks for a cycle of transactions that wait for each other, and the time
	// between two looks. 0 disables detection, which then costs nothing. One look costs about
	// as many messages as one entry for each lock in the cycle, so choose a time that is long
	// for a wait: a second rather than a millisecond.
	Deadlock time.Duration

	// Trace, if not nil, records every event of this node. It costs time and disk
	// space, but no call waits for it except Close, which flushes it.
	Trace *trace.Recorder

	// Clients, if not nil, says how this node serves clients. Then the locks of a dead member wait
	// for the end of its lease even if the store proves its death, because its clients may live.
	// Not for [OpenStrict].
	Clients *Clients

	// Logger gets a few records for the operator, which docs/operating.md lists; nil logs
	// nothing. A record that a peer can trigger at will is written once a minute, and then with
	// the number of times that it was repeated; of each level 20 different ones are written in
	// a minute. A slow handler delays only Close, which the handler must not call. A Link
	// without a logger of its own logs here, too.
	Logger *slog.Logger

	Observer *Observer // may be nil
}

// A Node is one member of a group. It takes part in all locks of the group. Its
// methods are safe for concurrent use.
type Node struct {
	cfg    Config
	group  *group.Group
	mail   *mail.Mail   // of the group
	locks  *locks.Table // of the group
	terms  terms
	events chan func() // to tell the Observer; nil if there is nothing to tell

	clients *lend.Server // nil if this node serves none

	probes    atomic.Uint64 // that were sent
	deadlocks atomic.Uint64 // waits that were ended
	numbers   atomic.Uint64 // given to transactions, and to questions who holds a lock
	asks      sync.Map      // questions that wait for answers: a chan Holder by their number

	closing atomic.Bool
	closed  chan struct{} // closed when Close has finished
	quit    chan struct{} // ends what tells the Observer
	running sync.WaitGroup
}

// Open makes this process a member of the group whose record is in the store. The record gives
// each process its number and the addresses of the others. The link must be made without a
// number, and not opened: the node opens it, and closes it in Close.
//
// Open does not wait for the other members: they may start in any order, and Acquire waits
// until the group grants locks. If ctx has ended, Open returns its error; ctx has no effect
// after that.
//
// Open refuses an invalid Config with [dmutex.ErrMisuse], and returns the link's
// error if the link cannot be opened. With any error it closes the link, but not the Listeners
// of Config.Clients.
//
// Packages filenode, natsnode and sqlnode open the usual stores and links in one call.
func Open(ctx context.Context, record store.Store, link transport.DynamicLink, cfg Config) (*Node, error) {
	var refused error
	switch {
	case link == nil:
		return nil, dmutex.Misuse("Open needs a link, such as that of tcplink.New")
	case record == nil:
		refused = dmutex.Misuse("Open needs a store, such as that of filestore.Open")
	case cfg.Clients != nil:
		refused = cfg.Clients.check(cfg.lease())
	}
	return open(ctx, refused, cfg, group.Config{Store: record, Link: link, Lease: cfg.Lease, Clients: cfg.Clients != nil})
}

// OpenStrict makes this process a member of a group without a store, in which no member is
// ever presumed dead. self is its number, with which the link was made. members are the numbers
// of all members, this one among them, in any order, and the same in all members.
//
// At most one process with this number may be alive at a time. If another one still answers
// the members, this node grants nothing, and within seconds all calls return
// [ErrNumberTaken]. In all else OpenStrict is like [Open].
func OpenStrict(ctx context.Context, self dmutex.NodeID, members []dmutex.NodeID, link transport.Link, cfg Config) (*Node, error) {
	var refused error
	switch {
	case link == nil:
		return nil, dmutex.Misuse("OpenStrict needs a link, such as that of tcplink.New")
	case cfg.Lease != 0:
		refused = dmutex.Misuse("Config.Lease has no meaning without a store: OpenStrict waits for members that are gone")
	case cfg.Clients != nil:
		refused = dmutex.Misuse("Config.Clients needs a store: without one, the locks of a member are free when it restarts, while its clients may still hold them")
	}
	return open(ctx, refused, cfg, group.Config{Self: self, Members: slices.Sorted(slices.Values(members)), Link: link})
}

// open opens a node, unless its arguments are refused. With any error it closes the link.
func open(ctx context.Context, refused error, cfg Config, to group.Config) (_ *Node, err error) {
	defer func() {
		if err != nil {
			_ = to.Link.Close()
		}
	}()
	switch {
	case refused != nil:
		return nil, refused
	case hold.ContextError(ctx) != nil:
		return nil, public("", hold.ContextError(ctx))
	case !names.Is(cfg.Name):
		return nil, dmutex.Misuse("Config.Name is " + names.Rule)
	case cfg.Fence>>63 != 0:
		return nil, dmutex.Misuse(fmt.Sprintf("Config.Fence is %d: give the highest fence that your resources have stored, which is below 1<<63", cfg.Fence))
	case cfg.Deadlock < 0:
		return nil, dmutex.Misuse(fmt.Sprintf("Config.Deadlock is at least 0, not %v: 0 never looks for cycles", cfg.Deadlock))
	case cfg.Name == "":
		host, _ := os.Hostname()
		cfg.Name = names.Of(host, "", os.Getpid())
	}
	if cfg.Algorithm == nil {
		if cfg.Algorithm = central.New; to.Store != nil {
			cfg.Algorithm = central.Witnessed
		}
	}
	if c := cfg.Clients; c != nil {
		if err := claim(c.Listeners); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				disclaim(c.Listeners)
			}
		}()
	}
	n := &Node{cfg: cfg, closed: make(chan struct{}), quit: make(chan struct{})}
	to.Algorithm, to.Name, to.Group, to.Fence = cfg.Algorithm, cfg.Name, cfg.Group, cfg.Fence
	to.Deadlock, to.Trace, to.Logger, to.Up = cfg.Deadlock, cfg.Trace, cfg.Logger, up{n}
	if o := cfg.Observer; o != nil {
		to.Tell = o.Hold
	}
	g, err := group.New(to)
	if err != nil {
		return nil, public("", err)
	}
	n.group, n.mail, n.locks = g, g.Mail, g.Locks
	n.numbers.Store(g.Status().Life << 32 >> 16) // a probe for a transaction of a former life finds none
	if o := cfg.Observer; o != nil && (o.View != nil || o.Lease != nil) {
		n.events = make(chan func(), 64)
	}
	if err := g.Open(); err != nil {
		return nil, public("", err)
	}
	if n.events != nil {
		n.running.Go(func() {
			for {
				select {
				case tell := <-n.events:
					tell()
				case <-n.quit:
					return
				}
			}
		})
	}
	if cfg.Logger != nil {
		n.running.Go(n.logLongWaits)
	}
	n.serveClients()
	return n, nil
}

// Self returns this node's number. In the lease mode it is [dmutex.None] until the store
// has given one, and after an exclusion the node gets another.
func (n *Node) Self() dmutex.NodeID {
	if n.group == nil {
		return dmutex.None
	}
	return n.group.Self()
}

// Done returns a channel that is closed when this node grants nothing more, ever: it has
// stopped by itself ([ErrStopped]), or Close was called. The error is in [Status].Err.
func (n *Node) Done() <-chan struct{} {
	if n.group == nil {
		return ended
	}
	return n.locks.Ended()
}

// ended is the channel of a node that was not opened.
var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Mutex returns the lock of that name. Every name is a lock of the whole group;
// it need not be created. A name has 1 to [lock.MaxName] bytes.
//
// A lock that is not in use takes no memory, with two exceptions: a node remembers
// up to 512 locks that were used lately, and under ring and suzukikasami some nodes
// remember where the token is.
func (n *Node) Mutex(name string) *Mutex { return &Mutex{node: n, name: name} }

// Close leaves the group. New and waiting acquisitions fail with [ErrClosed], and locks that are
// still held are lost ([lock.Held.Context] ends) and released. Close waits until the functions of
// [Mutex.Do], of Do of a semaphore and of [Election.Campaign] have returned. Then this node leaves the view, and
// the others go on without it. Close also closes the link and flushes Config.Trace, and leaves no goroutine
// behind. A second Close waits for the first and returns nil.
//
// In the strict mode that takes a few round trips while the other members are up. In the lease mode the
// node tells the others what it has lent to clients, for an eighth of a lease at most and after waiting
// a twentieth at most for its clients to hear that it closes; then the store takes it out of the record. If a member or the store
// does not answer, or a function does not return, Close waits until ctx ends, and then leaves
// anyway, with an error that says so. This node then looks crashed to the others: they wait for
// its return, or exclude it when the store is back. A store that does not return when the
// context of an operation has ended delays Close by a second, and a NATS server that hangs by two or more: see package natslink.
//
// A process that exits without Close looks crashed, too. The message of a Release right before the
// exit may be lost. Then the lock becomes free together with those that the process still held.
func (n *Node) Close(ctx context.Context) error {
	switch {
	case ctx == nil:
		return hold.ContextError(ctx)
	case n.group == nil:
		return errUnopened
	}
	if n.closing.Swap(true) {
		select {
		case <-n.closed:
			return nil
		case <-ctx.Done():
			return public("", hold.ContextError(ctx))
		}
	}
	lost, err := n.group.Close(ctx) // the clients are told to leave when the locks end
	if n.clients != nil {
		n.clients.Close()
		disclaim(n.cfg.Clients.Listeners)
	}
	close(n.quit)
	n.running.Wait()
	close(n.closed)
	if o := n.cfg.Observer; o != nil && o.Hold != nil {
		for _, e := range lost { // at the end: the Observer may be slow, panic, or call Close
			o.Hold(e)
		}
	}
	return public("", err)
}

// An up is what the group reports to.
type up struct{ *Node }

func (u up) Parting(ctx context.Context) {
	if u.clients != nil {
		u.clients.Seal(ctx)
	}
}

func (u up) Acts(v group.View) {
	own := u.terms.renew(v.Epoch, func(t term) bool { // v.Left lacks lives that were in no view that acted here
		return t.life != u.mail.Status(t.leader).Life || !slices.Contains(v.Members, t.leader)
	})
	for name, t := range own { // those that have joined do not know it
		u.announce(name, t)
	}
	if o := u.cfg.Observer; o != nil && o.View != nil {
		u.event(func() { o.View(viewStatus(v)) })
	}
}

func (u up) Lease(l group.Lease) {
	if o := u.cfg.Observer; o != nil && o.Lease != nil {
		u.event(func() { o.Lease(LeaseStatus(l)) })
	}
}
