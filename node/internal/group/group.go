// Package group makes a process a member of its group. It drives the machine of package
// membership over the mail, and makes the locks freeze and act.
//
// A [Group] has what both modes share. Its authority says who is a member: the members by
// consent (strict.go), or the record in a store (record.go). It reports to package node by
// [Up]. Its mutex is taken before that of the locks, and never while one of the mail is held.
package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/latelog"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/message"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/stream"
	"github.com/dmutex/dmutex/internal/timers"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
)

// Config is what a Group is made of: the arguments of node.OpenStrict or those of node.Open,
// which has a Store and a Lease, and fields of node.Config.
type Config struct {
	Self      dmutex.NodeID
	Members   []dmutex.NodeID
	Store     store.Store
	Lease     time.Duration
	Link      transport.Link
	Algorithm dmutex.Algorithm
	Name      string
	Group     string
	Fence     uint64
	Deadlock  time.Duration
	Trace     *trace.Recorder
	Logger    *slog.Logger
	Clients   bool             // this node serves clients
	Tell      func(lock.Event) // of a hold that was released, or lost and given back; may be nil
	Up        Up
}

// Up is all that a Group calls above it. These happen to a node, so it cannot ask for them.
// Acts and Lease are called under the mutex of the Group.
type Up interface {
	// Message brings what a peer says about neither views nor a lock.
	Message(from dmutex.NodeID, message []byte)

	// Acts reports the view that has begun to act: elections of members that have left end,
	// and an Observer sees it.
	Acts(View)

	// Parting is called when this node closes, before it says its last word. When it returns, which takes no longer
	// than ctx allows, no client gives back what is lent to it any more.
	Parting(ctx context.Context)

	// Lease reports another state of the lease, for the Observer.
	Lease(Lease)
}

// A Group is this process's part in its group.
type Group struct {
	Mail  *mail.Mail
	Locks *locks.Table

	cfg      Config
	clocks   *clock.Clock // the two of this process; Mail has its own
	self     atomic.Uint64
	speak    protocol.Versions
	settings string // see describe
	late     *latelog.Log
	peers    atomic.Pointer[map[dmutex.NodeID]*peer] // the other members; replaced as a whole
	known    atomic.Pointer[map[dmutex.NodeID]About] // what is known of members and of former ones; likewise
	refused  atomic.Uint64                           // messages and frames that no correct peer sends
	running  sync.WaitGroup

	who   authority
	host  transport.Host
	limit int          // of the members of a view
	clock func() int64 // by which locks are held for a time; nil if they are not

	acting atomic.Bool // the locks act

	troubled atomic.Uint64   // the last epoch whose view is to be replaced
	done     context.Context // ends when no member needs this life any more
	finish   context.CancelFunc

	mu      sync.Mutex   // guards the fields below
	lease   leases.State // as far as was noticed; always Valid in the strict mode
	life    uint64
	next    chan struct{} // closed when the next view acts
	timers  timers.Table
	frozen  int64            // when the present view was installed
	last    membership.View  // the last that acted
	shown   View             // how it began to act
	cause   error            // why this node has asked for the present view
	ready   *membership.Acts // that the installed view acts; nil if it does not
	begun   uint64           // the last view for which Locks.Act was called
	doubted bool             // in the strict mode: nothing is granted until the machine says so
	refusal error            // why the algorithm does not take the present view
	rival   int64            // when a peer first met another process with our number; 0 if none did
	since   int64            // when the locks began to act, or ceased to
}

// New refuses an invalid Config with [dmutex.ErrMisuse]. It opens nothing.
func New(cfg Config) (g *Group, err error) {
	g = &Group{cfg: cfg, host: transport.Host{Logger: cfg.Logger}, speak: protocol.Spoken, next: make(chan struct{}), timers: timers.New(), clocks: clock.New()}
	g.timers[nag] = int64(nagAfter)
	g.self.Store(uint64(cfg.Self))
	g.peers.Store(new(map[dmutex.NodeID]*peer))
	g.known.Store(&map[dmutex.NodeID]About{})
	g.done, g.finish = context.WithCancel(context.Background())
	join := newStrict
	if cfg.Store != nil {
		join = newRecord
	}
	if err := join(g); err != nil {
		return nil, err
	}
	if room := roomFor(g.limit) + len(g.settings); cfg.Link.MaxFrame() < room {
		return nil, dmutex.Misuse(fmt.Sprintf("the link takes frames of %d bytes: a group of %d members needs %d", cfg.Link.MaxFrame(), g.limit, room))
	}
	g.late = latelog.New(cfg.Logger)
	g.setPeers(slices.DeleteFunc(slices.Clone(cfg.Members), func(id dmutex.NodeID) bool { return id == cfg.Self }))
	for _, id := range g.Others() {
		if errors.Is(cfg.Link.Trouble(id), transport.ErrUnknownNode) {
			return nil, dmutex.Misuse(fmt.Sprintf("the link has no address for member %v: add it", id))
		}
	}
	if g.Mail, err = mail.New(mail.Config{
		Peers: g.Others(), Life: g.life, Settings: g.settings, Link: cfg.Link, Host: g.host, Handler: g, MaxLife: g.maxLife,
	}); err != nil {
		return nil, err
	}
	g.Locks = locks.New(locks.Config{
		Algorithm: cfg.Algorithm, Mail: g.Mail, Clock: g.clock, Trace: cfg.Trace, Tell: cfg.Tell, Up: g,
	})
	return g, nil
}

// Open opens the link, and begins to join.
func (g *Group) Open() (err error) {
	if r := g.cfg.Trace; r != nil {
		h := trace.Header{Self: g.cfg.Self, Members: g.cfg.Members, Name: g.cfg.Name, Group: g.cfg.Group, Life: g.life, Opened: g.clocks.Wall()}
		if h.Algorithm, err = trace.Describe(g.cfg.Algorithm, h.Self, h.Members); err == nil {
			err = r.Open(h)
		}
		if err != nil {
			return err
		}
	}
	g.Log(slog.LevelInfo, "node opened", slog.String("name", g.cfg.Name))
	if err := g.Mail.Open(); err != nil {
		return err
	}
	g.do(g.who.Tick)
	return nil
}

// Self returns this node's number, None while it has none.
func (g *Group) Self() dmutex.NodeID { return dmutex.NodeID(g.self.Load()) }

// MaxMembers bounds the members of a view.
func (g *Group) MaxMembers() int { return g.limit }

// A peer is what a Group keeps of another member beside its mail. One call of the mail's handler at a
// time uses decoder and part.
type peer struct {
	decoder message.Decoder
	part    []byte               // of a message about views, until the rest of it is there
	some    []membership.Message // what was read of it
	size    int                  // of both, in bytes
	refused bool                 // a part of it was: the rest is thrown away, since it would be taken for a whole one

	// Guarded by Group.mu: messages about views that wait for their turn, and their first parts.
	pending []membership.Message
	parts   [][]byte

	clash atomic.Pointer[clock.Steady] // when another process with its number was last heard, nil if none was
}

// About is what a process tells of itself, for people. The address is that of the record.
type About struct{ Name, Address string }

// About returns what is known of a member, or of a former one.
func (g *Group) About(id dmutex.NodeID) About {
	if id == g.Self() {
		return About{Name: g.cfg.Name}
	}
	return (*g.known.Load())[id]
}

func (g *Group) peer(id dmutex.NodeID) *peer { return (*g.peers.Load())[id] }

// Others returns the other members, ascending.
func (g *Group) Others() []dmutex.NodeID { return slices.Sorted(maps.Keys(*g.peers.Load())) }

// setPeers replaces the other members. Those that stay keep what is known of them.
func (g *Group) setPeers(ids []dmutex.NodeID) {
	all := make(map[dmutex.NodeID]*peer)
	for _, id := range ids {
		all[id] = cmp.Or(g.peer(id), new(peer))
	}
	g.peers.Store(&all)
}

// A Group is the Handler of its mail: what the mail brings goes to the machine, the locks
// or the node.
var _ mail.Handler = (*Group)(nil)

// Met takes a process of a peer in.
func (g *Group) Met(id dmutex.NodeID, life uint64) {
	p := g.peer(id)
	if p == nil { // it was removed meanwhile
		return
	}
	p.again()
	g.trace(trace.Event{What: trace.Met, Peer: id, Life: life})
	g.do(func(now int64) membership.Output {
		p.pending, p.parts = nil, nil // what is pending was for a former life
		out := g.who.Met(now, id, life)
		g.LogOften(slog.LevelInfo, "peer met", g.peerAttr(id))
		return out
	})
}

// Left reports that the mail of a peer has closed.
func (g *Group) Left(id dmutex.NodeID) {
	p := g.peer(id)
	if p == nil {
		return
	}
	p.again()
	g.trace(trace.Event{What: trace.Left, Peer: id})
	g.LogOften(slog.LevelInfo, "peer gone", g.peerAttr(id))
	g.do(func(now int64) membership.Output {
		p.pending, p.parts = nil, nil
		return g.who.Lost(now, id)
	})
}

// Message takes a peer's message. One about a lock's algorithm is as message.Append writes
// it, and begins with a byte of 0x80 or more. For the others see wire.go.
func (g *Group) Message(from dmutex.NodeID, seq uint64, message []byte) {
	p := g.peer(from)
	switch says := message[0]; {
	case p == nil:
	case says >= 0x80:
		name, m, err := p.decoder.Decode(message)
		if err != nil { // a lock has missed a message, and we do not know which lock
			g.Refused(from, err)
			g.Trouble(g.Locks.Epoch(), &locks.Error{Peer: from, Err: err})
			return
		}
		m.From, m.To = from, g.Self()
		g.Locks.Handle(name, &trace.Message{Seq: seq, Message: m})
	case says == saysName:
		var name string
		if err := wire.Read(message, func(f *wire.Fields) { nameFields(f, &name) }); err != nil {
			g.Refused(from, err)
			return
		}
		g.mu.Lock()
		g.remember(map[dmutex.NodeID]About{from: {Name: name}})
		g.mu.Unlock()
	case says == saysMore || says == saysLast || says == saysSome:
		g.handle(from, p, message)
	default:
		g.cfg.Up.Message(from, message)
	}
}

// Stranger takes a frame of a node that may be in a newer record than this node has read.
func (g *Group) Stranger(dmutex.NodeID) { g.happens(stranger{}) }

// Taken reports that a peer has met another process with this node's number.
func (g *Group) Taken(by dmutex.NodeID, life uint64) {
	g.do(func(now int64) (none membership.Output) {
		if g.rival == 0 {
			g.rival = max(now, 1)
			g.LogOften(slog.LevelWarn, "peer has met another process with this node's number", g.peerAttr(by))
		}
		g.who.event(now, taken{by, life})
		return none
	})
}

// Refused counts and logs what no correct peer sends.
func (g *Group) Refused(from dmutex.NodeID, err error) {
	text := "refused what no correct peer sends"
	if other, ok := errors.AsType[stream.GroupError](err); ok {
		text, err = "peer is configured differently", g.differs("it", other.Versions, g.settings, other.Settings)
	}
	if errors.Is(err, stream.ErrBroken) && g.cfg.Store == nil { // with a store, the record replaces the peer that seems silent
		g.running.Go(func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.stop(fmt.Errorf("member %v: %w", from, err))
		})
	}
	if p := g.peer(from); p != nil && errors.Is(err, stream.ErrOther) {
		now := g.Mail.Now()
		p.clash.Store(&now)
	}
	g.refused.Add(1)
	g.LogOften(slog.LevelWarn, text, g.peerAttr(from), slog.Any("err", err))
}

// Closed stops this node: without its link it can do nothing more.
func (g *Group) Closed(err error) {
	g.running.Go(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.stop(fmt.Errorf("the link was closed before the node: %w", err))
		if g.cfg.Store == nil {
			g.finish() // a Close under way would ask the peers in vain
		}
	})
}
