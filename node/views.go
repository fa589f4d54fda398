package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/session"
	"github.com/dmutex/dmutex/trace"
)

// views is this node's part in the views of its group. It drives the machine of
// package membership over the mail, and tells the locks to freeze and to act.
type views struct {
	node   *Node
	who    authority
	acting atomic.Bool   // the locks act
	state  atomic.Uint32 // the LeaseState

	troubled atomic.Pointer[trouble]
	count    atomic.Uint64 // of views that have acted

	left  context.Context // ends when no member needs this life any more
	leave context.CancelFunc

	mu       sync.Mutex // before that of the locks; guards the fields below
	machine  machine    // strict, or the lease's
	life     uint64
	renaming bool                                 // life is being replaced by a higher one
	epoch    uint64                               // of the view in which the locks are frozen or act
	next     chan struct{}                        // closed when the next view acts
	pending  []membership.Message                 // found no room in the mail
	sendAt   int64                                // when to try to send them again
	parts    map[dmutex.NodeID]membership.Message // the parts of a report, until the last is there
	frozen   int64                                // when the present view was installed
	last     membership.View                      // the last that acted
	cause    error                                // why this node has asked for the present view
	refusal  error                                // why the algorithm does not take the present view
	taken    int64                                // when a peer first told of another process with our number; 0 if none did
	since    int64                                // when the locks began to act, or ceased to
	took     time.Duration                        // of the last ViewChange
	nagAt    int64                                // when to log next which members this node waits for
}

// A machine is what the machines of both modes have in common.
type machine interface {
	Phase() membership.Phase
	View() membership.View
	Missing(b []dmutex.NodeID) []dmutex.NodeID
	Holders() []membership.Holder
	Deadline() int64

	Clock(clock uint64)
	Tick(now int64) []membership.Message
	Met(now int64, peer dmutex.NodeID, life uint64) []membership.Message
	Lost(now int64, peer dmutex.NodeID) []membership.Message
	Handle(now int64, m membership.Message) ([]membership.Message, error)
	Report(now int64, holds []membership.Hold) []membership.Message
	Trouble(now int64, epoch uint64) []membership.Message
	Leave(now int64) []membership.Message

	AppendText(b []byte) ([]byte, error)
}

const (
	// nagAfter is how long a node waits for members before it logs that, and again
	// after twice that, and so on.
	nagAfter = 3 * time.Second

	// sendAgain is how soon a message that found no room in the mail is tried again.
	sendAgain = 10 * time.Millisecond
)

func (v *views) init() (err error) {
	if v.node.cfg.Store != nil {
		v.who, err = newLease(v)
	} else {
		v.who, err = newConsent(v)
	}
	return err
}

// A trouble is why the view of an epoch is to be replaced.
type trouble struct {
	epoch uint64
	err   error
}

// trouble asks for the view of the epoch to be replaced: the goroutine that keeps time
// passes it on, so it may be called under a mutex. A request about a later epoch takes
// precedence.
func (v *views) trouble(epoch uint64, err error) {
	t := &trouble{epoch, err}
	for {
		former := v.troubled.Load()
		if former != nil && former.epoch > epoch {
			return
		}
		if v.troubled.CompareAndSwap(former, t) {
			break
		}
	}
	v.node.mail.Wake(math.MinInt64)
}

// do gives the machine an input, and follows it.
func (v *views) do(input func(m machine, now int64) []membership.Message) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.now()
	v.follow(now, input(v.machine, now))
}

// now returns the time of an input, and tells the machine the wall clock. With a lease, an
// input may extend it, so what the lease has not covered until now ends first.
func (v *views) now() int64 {
	v.machine.Clock(clockNow())
	return v.who.now()
}

// expire ends what the lease has not covered until now.
func (v *views) expire() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now()
}

// pause notes that the locks cease to act.
func (v *views) pause(now int64) {
	if v.acting.Swap(false) {
		v.since = now
		v.nagAt = now + int64(nagAfter)
	}
}

// startOf returns what the machines of a view are born with, but for the holder.
func startOf(v membership.View, self dmutex.NodeID) dmutex.Start {
	return dmutex.Start{
		Self: self, Members: v.Nodes(), Fence: membership.FirstFence(v.Epoch), Limit: membership.LastFence(v.Epoch),
	}
}

// follow does what the machine wants after an input.
func (v *views) follow(now int64, out []membership.Message) {
	for {
		v.who.follow(now)
		v.pending = append(v.pending, out...)
		v.send(now)
		view := v.machine.View()
		if view.Epoch <= v.epoch {
			break
		}
		v.epoch = view.Epoch
		v.pause(now)
		v.frozen = now
		holds := v.node.locks.Freeze(view.Epoch, startOf(view, v.node.Self()))
		if _, v.refusal = v.node.cfg.Algorithm(startOf(view, v.node.Self())); v.refusal != nil {
			v.refusal = fmt.Errorf("node: the algorithm refuses the members %v, so nothing is granted until the group changes: %w", view.Nodes(), v.refusal)
			v.node.log.trouble(v.refusal)
		}
		v.node.traceView(trace.View, view)
		out = v.machine.Report(now, holds)
	}
	switch v.machine.Phase() {
	case membership.Acting:
		switch {
		case v.acting.Load() || v.refusal != nil || !v.who.covers():
		case v.last.Epoch == v.epoch:
			v.begin(now)
		default:
			v.act(now)
		}
	case membership.Left:
		v.leave()
	case membership.Older:
		if v.node.locks.Why() != nil {
			v.leave() // it was in no view
		} else {
			v.who.older()
		}
	case membership.Stopped:
		v.node.stop(v.who.stopped())
		v.leave() // also if it was leaving
	}
	v.node.mail.Wake(v.who.mailTime(v.deadline()))
}

// deadline returns when there is something to do by time alone.
func (v *views) deadline() int64 {
	return min(v.machine.Deadline(), v.nagAt, v.sendAt, v.who.deadline())
}

// send passes the pending messages to the mail, as far as there is room. The rest
// is tried again, until the peers have acknowledged enough.
func (v *views) send(now int64) {
	var full []dmutex.NodeID
	kept := v.pending[:0]
	for _, m := range v.pending {
		if slices.Contains(full, m.To) || !v.sendParts(&m) {
			full, kept = append(full, m.To), append(kept, m)
		}
	}
	clear(v.pending[len(kept):])
	v.pending, v.sendAt = kept, math.MaxInt64
	if len(kept) > 0 {
		v.sendAt = now + int64(sendAgain)
	}
}

// sendParts passes a message to the mail, in as many parts as needed. If there is no
// room for all of them, m becomes what is left.
func (v *views) sendParts(m *membership.Message) (all bool) {
	for {
		left := m.Holds
		_, err := v.node.mail.Send(m.To, func(b []byte) []byte {
			b, left = appendMembership(b, m, v.node.mail.MaxMessage())
			return b
		})
		switch {
		case errors.Is(err, session.ErrFull):
			return false
		case err != nil || len(left) == 0:
			return true
		}
		m.Holds = left
	}
}

// act lets the locks of the installed view begin.
func (v *views) act(now int64) {
	n, view := v.node, v.machine.View()
	n.locks.Act(view.Epoch, v.machine.Holders())
	if v.count.Add(1) > 1 {
		v.frozen = v.since // views between the last that acted and this one have not
	}
	v.took = time.Duration(now - v.frozen)
	v.begin(now)
	change := ViewChange{Epoch: view.Epoch, Members: view.Nodes(), Took: v.took, Cause: v.cause}
	for _, m := range view.Members {
		if !v.last.Has(m.Node, m.Life) {
			change.Joined = append(change.Joined, m.Node)
		}
	}
	for _, m := range v.last.Members {
		if !view.Has(m.Node, m.Life) {
			change.Left = append(change.Left, m.Node)
		}
	}
	n.terms.gone(view.Epoch, func(leader dmutex.NodeID) bool {
		return slices.Contains(change.Left, leader) || !slices.Contains(change.Members, leader)
	})
	for name, t := range n.terms.own() { // those that have joined do not know it
		n.announce(name, t)
	}
	v.last, v.cause, v.taken = view, nil, 0
	n.traceView(trace.Ready, view)
	if ahead := ahead(view); ahead > 0 {
		n.log.tellOften(slog.LevelWarn, "epochs are ahead of the clock: a clock is or was wrong, and a restart of all members needs Config.Fence", slog.Duration("ahead", ahead))
	}
	n.log.tellOften(slog.LevelInfo, "view acts", change.attrs()...)
	if o := n.cfg.Observer; o != nil && o.View != nil {
		n.event(func() { o.View(change) })
	}
}

// begin notes that the locks act, unless nothing more is granted.
func (v *views) begin(now int64) {
	if v.node.locks.Why() != nil {
		return
	}
	v.acting.Store(true)
	close(v.next)
	v.next = make(chan struct{})
	v.since, v.nagAt = now, math.MaxInt64
}

func (v *views) met(peer dmutex.NodeID, life uint64) {
	v.do(func(m machine, now int64) []membership.Message {
		v.forget(peer)
		return v.meet(now, peer, life)
	})
}

func (v *views) lost(peer dmutex.NodeID) {
	v.do(func(m machine, now int64) []membership.Message {
		v.forget(peer)
		return v.lose(now, peer)
	})
}

func (v *views) meet(now int64, peer dmutex.NodeID, life uint64) []membership.Message {
	v.who.near(peer, true)
	return v.machine.Met(now, peer, life)
}

func (v *views) lose(now int64, peer dmutex.NodeID) []membership.Message {
	v.who.near(peer, false)
	return v.machine.Lost(now, peer)
}

// forget drops what was on its way to a peer's former life, or from it.
func (v *views) forget(peer dmutex.NodeID) {
	v.pending = slices.DeleteFunc(v.pending, func(m membership.Message) bool { return m.To == peer })
	delete(v.parts, peer)
}

// handle takes a message of package membership.
func (v *views) handle(from dmutex.NodeID, message []byte) {
	msg, more, err := readMembership(message, v.node.cfg.maxMembers())
	if err != nil {
		v.node.refuse(from, fmt.Errorf("node: message about views: %w", err))
		return
	}
	msg.From, msg.To = from, v.node.Self()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.node.peer(from) == nil {
		return
	}
	if msg.Kind == membership.Report {
		if parts := v.parts[from]; parts.View.Epoch == msg.View.Epoch {
			msg.Holds = append(parts.Holds, msg.Holds...)
		}
		if len(msg.Holds) > maxHolds {
			msg.Holds, more = msg.Holds[:maxHolds], true // no process holds so many
		}
		if delete(v.parts, from); more {
			v.parts[from] = msg
			return
		}
	}
	now := v.now()
	v.follow(now, v.who.heard(now, from))
	out, err := v.machine.Handle(now, msg)
	switch {
	case err != nil && v.renaming: // it was for the former life
		return
	case err != nil:
		v.node.refuse(from, err)
		return
	}
	v.follow(now, out)
}

// maxHolds bounds the locks that one report may name.
const maxHolds = 1 << 22

// takenBy handles a peer's word that it has met another process with this node's
// number, of the life given.
func (v *views) takenBy(peer dmutex.NodeID, life uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.now()
	if v.taken == 0 {
		v.taken = max(now, 1)
		v.node.log.tellOften(slog.LevelWarn, "peer has met another process with this node's number", peerAttr(peer))
	}
	v.follow(now, v.who.takenBy(now, life))
}

// tick does what is due by time.
func (v *views) tick() (next int64) {
	var missing []dmutex.NodeID // to be logged,
	var why error               // and what else is waited for
	v.mu.Lock()
	now := v.now()
	if t := v.troubled.Swap(nil); t != nil && t.epoch == v.epoch {
		if v.cause == nil {
			v.cause = t.err
			v.node.log.trouble(t.err)
			v.node.traceErr(trace.Trouble, dmutex.None, t.err)
		}
		v.follow(now, v.machine.Trouble(now, t.epoch))
	}
	v.follow(now, v.who.watch(now))
	v.follow(now, v.machine.Tick(now))
	waited := time.Duration(now - v.since)
	if now >= v.nagAt {
		v.nagAt = now + max(now-v.since, int64(nagAfter))
		if v.node.locks.Why() == nil {
			missing, why = v.machine.Missing(nil), v.obstacle()
		}
	}
	next = v.who.mailTime(v.deadline())
	v.mu.Unlock()
	if why != nil {
		v.node.log.tell(slog.LevelWarn, "waiting", slog.Duration("waited", waited), slog.Any("err", why))
	}
	if len(missing) > 0 { // asks the link, so not under the mutex
		v.node.log.tell(slog.LevelWarn, "waiting for members",
			slog.Duration("waited", waited), slog.String("for", v.node.describePeers(missing)))
	}
	return next
}

// missing returns the members that this node waits for, and what else it waits for.
func (v *views) missing() ([]dmutex.NodeID, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.machine.Missing(nil), v.obstacle()
}

// obstacle says what but members keeps this node from acting, nil if nothing does.
func (v *views) obstacle() error {
	if err := v.who.waits(); err != nil {
		return err
	}
	return v.refusal
}

// needsStore says why the store keeps this node from acting, nil if it does not.
func (v *views) needsStore() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now() // the lease may have ended
	return v.who.needsStore()
}
