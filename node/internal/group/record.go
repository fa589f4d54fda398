package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
)

// record is the authority of the lease mode: the record in the store. Unlike consent, it asks
// the store, gives the link and the mail the peers of the record, looks after who is there, and
// ends what is held when the lease ends.
type record struct {
	*membership.LeaseMachine
	group *Group
	link  transport.DynamicLink
	time  *clock.Clock

	length int64 // of the lease
	margin int64 // before its end the locks are lost, and after that they are given back

	busy    chan struct{}  // full while the store has not returned
	rev     store.Revision // of the record that the machine was shown last
	epoch   uint64         // of the record whose members are the peers
	err     error          // why the last operation failed; nil if it did not
	watchAt int64          // when to look next who is there
	giveAt  int64          // when to release lost holds
	slept   int64          // by the clock, as the machine knows
	sayAt   int64          // when to log that this node waits for leases

	proof
}

const (
	// DefaultLease is Config.Lease if it is 0.
	DefaultLease = 10 * time.Second

	// maxWatch bounds the time from one look who is there to the next. It is also how late a
	// lease is seen to have ended after the machine has slept.
	maxWatch = int64(time.Second)

	// A store that has not returned so long after the context of an operation has ended breaks
	// its contract, and is left behind.
	storePatience = time.Second

	// A wait for leases is logged so long after it begins if the store can prove that it is
	// over: processes that start together see each other live before they are members.
	proofPatience = time.Second
)

// newRecord makes the members of the record the group.
func newRecord(g *Group) (err error) {
	cfg := &g.cfg
	cfg.Lease = cmp.Or(cfg.Lease, DefaultLease)
	if err := g.describe([]dmutex.NodeID{1, 2, 3}); err != nil { // the members come and go
		return err
	}
	link := cfg.Link.(transport.DynamicLink)         // of node.Open
	if err := link.Become(dmutex.None); err != nil { // it has a number of its own
		return err
	}
	l := &record{
		group: g, link: link, time: clock.New(),
		length: int64(cfg.Lease), margin: int64(cfg.Lease) / leases.Margin,
		watchAt: math.MaxInt64, giveAt: math.MaxInt64, sayAt: math.MaxInt64, busy: make(chan struct{}, 1), proof: proof{lasts: math.MinInt64, watches: make(map[string]context.CancelFunc)},
	}
	if prover, ok := cfg.Store.(store.Prover); ok && !cfg.Clients {
		l.prover, l.patience = prover, proofPatience
	}
	if link, ok := cfg.Link.(transport.DeathLink); ok {
		link.WatchDeaths(cfg.Lease/leases.Refuse, func(peer dmutex.NodeID) {
			g.do(func(now int64) []membership.Message { return l.died(now, peer, false) })
		})
	}
	g.who, g.life, g.limit, g.clock = l, newLife(0), membership.MaxMembers, l.time.Now
	l.LeaseMachine, err = membership.NewLease(membership.LeaseConfig{
		Life: g.life, Address: link.Address(), Name: cfg.Name, Lease: l.length, Settings: g.settings,
		Fence: cfg.Fence, Clock: clockNow(), Proves: l.prover != nil,
	})
	return err
}

// newLife draws a life above the one given, with more random bits: the processes have no numbers
// yet that keep two lives apart.
func newLife(above uint64) uint64 { return drawLife(above, 33) }

// stranger asks the record, which may be newer than this node has read.
func (l *record) stranger(now int64) []membership.Message { return l.Hint(now) }

// taken asks the record, too: it knows whose number it is.
func (l *record) taken(now int64, _ dmutex.NodeID, _ uint64) []membership.Message { return l.Hint(now) }

// died takes the evidence that a peer's process has ended.
func (l *record) died(now int64, id dmutex.NodeID, proved bool) []membership.Message {
	if l.group.peer(id) != nil && !l.group.Mail.Status(id).Left {
		e := trace.Event{What: trace.Dead, Peer: id}
		if proved {
			e.N = 1
		}
		l.group.trace(e)
		l.group.logOften(slog.LevelWarn, "peer's process has ended", l.group.peerAttr(id), slog.Bool("proved", proved))
	}
	return l.Dead(now, id, proved)
}

// Handle takes a message for a sign of life, too.
func (l *record) Handle(now int64, m membership.Message) (met []membership.Message, err error) {
	if here, _ := l.Here(m.From); !here {
		met = l.Met(now, m.From, l.group.Mail.Status(m.From).Life)
	}
	out, err := l.LeaseMachine.Handle(now, m)
	return append(met, out...), err
}

// Tick also tells the machine who is there, and who is not.
func (l *record) Tick(now int64) (out []membership.Message) {
	if g := l.group; now >= l.watchAt {
		l.watchAt = now + min(l.length/leases.Ask, maxWatch)
		for _, id := range g.Others() {
			st := g.Mail.Status(id)
			here, since := l.Here(id)
			switch heard := st.Life != 0 && !st.Left && int64(st.Silent) < l.length/leases.Away; {
			case heard && !here && now-int64(st.Silent) > since:
				out = append(out, l.Met(now, id, st.Life)...)
			case !heard && here:
				out = append(out, l.Lost(now, id)...)
				if !st.Left {
					g.trace(trace.Event{What: trace.Silent, Peer: id})
					g.logOften(slog.LevelWarn, "peer gives no sign of life", g.peerAttr(id), slog.Duration("silent", st.Silent))
				}
			}
			if int64(st.Silent) >= l.length/leases.Ask {
				g.Mail.Challenge(id)
			}
		}
	}
	return append(out, l.LeaseMachine.Tick(now)...)
}

// Deadline also says when Tick and check have something to do.
func (l *record) Deadline() int64 {
	at := min(l.LeaseMachine.Deadline(), l.watchAt, l.giveAt, l.sayAt)
	if l.group.covered() {
		at = min(at, l.until())
	}
	return at
}

func (l *record) follow(now int64) {
	g := l.group
	if l.idle() {
		l.watchAt, l.sayAt = math.MaxInt64, math.MaxInt64
		g.Locks.SetUntil(l.until())
		l.set(now)
		if l.Phase() != membership.Left {
			l.retire(now)
		}
		return // if it has stopped by itself, the others are to exclude it
	}
	switch self := l.Self(); {
	case self == g.Self():
	case self == dmutex.None:
		l.excluded(now)
	default:
		l.rename(self)
	}
	if r := l.Record(); r.Epoch != l.epoch && l.Self() != dmutex.None {
		// The members tell a process that joins whether earlier leases have ended.
		if r.Unclean == r.Epoch || l.epoch != 0 && r.Unclean > l.epoch {
			l.sayAt = min(l.sayAt, now+int64(l.patience))
		}
		l.meet(now, &r)
		l.epoch = r.Epoch
	}
	if end := l.LeaseEnd(); end > l.lasts {
		if l.lasts = end; end-l.margin > now {
			g.trace(trace.Event{What: trace.Lease, N: uint64(end - l.margin - now)})
		}
	}
	l.prove()
	until, dead, _ := l.Waits()
	if until == 0 {
		l.sayAt = math.MaxInt64
	} else if now >= l.sayAt {
		g.Log(slog.LevelWarn, "waiting", slog.Duration("waited", l.patience), slog.Any("err", drains(until-now, dead)))
		l.sayAt = math.MaxInt64
	}
	g.Locks.SetUntil(l.until())
	g.Locks.Clear(l.Cleared(), until)
	l.set(now)
	if g.covered() {
		g.Locks.Resume()
	}
	if op, value := l.Operation(); op != membership.NoOperation {
		rev := l.rev
		g.running.Go(func() { l.operate(op, value, rev) })
	}
}

// idle reports whether this node has nothing to do with the group any more.
func (l *record) idle() bool {
	phase, why := l.Phase(), l.group.Locks.Why()
	return phase == membership.Left || phase == membership.Stopped || why != nil && why != ErrClosed
}

// rename makes this node speak under another number, or as nobody, to no peers yet.
func (l *record) rename(self dmutex.NodeID) {
	l.group.self.Store(uint64(self))
	l.epoch, l.watchAt = 0, math.MaxInt64
	l.try(l.link.Become(self))
	l.watch()
}

// excluded ends a life of this node. Its number names nobody at the peers any more, and theirs
// name nobody here until it joins again.
func (l *record) excluded(now int64) {
	g := l.group
	l.end(now, ErrExcluded)
	l.retire(now)
	g.cause = nil
	g.Locks.Freeze(g.Locks.Epoch(), dmutex.Start{})
	l.giveBack() // no message is sent: the machines are gone, and the others wait out the lease
	g.trace(trace.Event{What: trace.Excluded, Peer: g.Self()})
	g.Log(slog.LevelWarn, "excluded: the others go on without this process, which joins again")
	l.rename(dmutex.None)
	former, life := g.Others(), newLife(g.life)
	g.setPeers(nil)
	g.running.Go(func() {
		g.Mail.Rename(life) // when it returns, nothing of the former life's sessions is being handled
		for _, id := range former {
			g.Mail.Remove(id)
		}
		g.do(func(now int64) []membership.Message {
			g.life = life
			return l.Rejoin(now, life)
		})
	})
}

// try logs what the link refuses. Peers cannot be reached then, and that shows.
func (l *record) try(err error) {
	if err != nil && !errors.Is(err, transport.ErrClosed) {
		l.group.logOften(slog.LevelWarn, "the link refuses what the record says", slog.Any("err", err))
	}
}

// meet makes the members of the record, and nobody else, peers.
func (l *record) meet(now int64, r *membership.Record) {
	g := l.group
	former := g.Others()
	g.setPeers(slices.DeleteFunc(l.View().Nodes(), func(id dmutex.NodeID) bool { return id == g.Self() }))
	for _, id := range former {
		if g.peer(id) == nil {
			g.Mail.Remove(id)
			l.link.RemovePeer(id)
			if r.Unclean > l.epoch { // else it has left
				g.trace(trace.Event{What: trace.Excluded, Peer: id})
			}
		}
	}
	for _, e := range r.Members {
		if p := g.peer(e.Node); p != nil && !slices.Contains(former, e.Node) {
			p.about.Store(&About{e.Name, e.Address})
			l.try(l.link.SetPeer(e.Node, e.Address))
			_ = g.Mail.Add(e.Node) // it fails when this node closes
		}
	}
	l.watchAt = now
	l.watch()
}

// obstacle is an ErrStore while the store keeps this node from acting.
func (l *record) obstacle() error {
	until, dead, all := l.Waits()
	switch {
	case l.err != nil && !l.group.covered():
		return fmt.Errorf("%w: %w", ErrStore, l.err)
	case l.Phase() == membership.Acting:
		return nil
	case all:
		return drains(until-l.time.Now(), dead)
	case l.Self() == dmutex.None:
		return errors.New("this process is not in the record yet, and joins")
	}
	return nil
}

// drains says that the leases of the dead may run for some time.
func drains(most int64, dead []dmutex.NodeID) error {
	whose := "former members, if there were any,"
	if len(dead) > 0 {
		whose = fmt.Sprintf("members %v, which were excluded,", dead)
	}
	return fmt.Errorf("waiting until the leases of %s have ended: at most %v more", whose, time.Duration(max(most, 0)).Round(100*time.Millisecond))
}

func (l *record) stopped() error {
	err := l.Err()
	if errors.Is(err, membership.ErrSettings) {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return err
}

func (l *record) departed(late error) error {
	switch {
	case late == nil && l.Phase() == membership.Stopped:
		return l.stopped()
	case late == nil:
		return nil
	case l.err != nil:
		late = fmt.Errorf("%w: %w: %w", late, ErrStore, l.err)
	}
	return fmt.Errorf("close: the record still has this node, so the others wait until they exclude it: %w", late)
}

// now also tells the machine how long the computer has slept.
func (l *record) now() int64 {
	now, slept := l.time.Read()
	leapt := slept - l.slept
	l.slept = slept
	l.Leapt(leapt)
	if l.giveAt != math.MaxInt64 {
		l.giveAt += leapt // the holder has slept, too, or the clock was set
	}
	l.check(now)
	return now
}

// until returns the time to which the locks may go by the lease.
func (l *record) until() int64 {
	if l.idle() || l.Self() == dmutex.None {
		return math.MinInt64
	}
	return l.LeaseEnd() - l.margin
}

// check ends what is held if the lease has ended, before an input may extend the lease.
func (l *record) check(now int64) {
	g := l.group
	if g.Locks.Why() != nil { // what was held has ended with that
		l.giveAt = math.MaxInt64
		l.set(now)
		return
	}
	if now >= l.giveAt {
		l.giveBack()
	}
	if now >= l.until() && g.covered() {
		why := ErrLease
		if l.err != nil {
			why = fmt.Errorf("%w: %w", ErrLease, l.err)
		}
		l.end(now, why)
		g.Log(slog.LevelError, "lease ended: all locks are lost", slog.Any("err", why))
	}
}

// end ends what is held, for the reason given.
func (l *record) end(now int64, why error) {
	g := l.group
	g.Locks.SetUntil(l.until()) // first, so that no grant slips in after the loss
	l.giveAt = now + l.margin
	g.pause(now)
	g.Locks.Lapse(why)
	l.set(now)
}

// giveBack releases lost holds.
func (l *record) giveBack() {
	l.giveAt = math.MaxInt64
	holds := l.group.Locks.GiveBack()
	l.group.running.Go(func() {
		for _, h := range holds {
			l.group.Ended(h)
		}
	})
}

// set notes how the lease stands, and reports it if that has changed.
func (l *record) set(now int64) {
	g := l.group
	state := leaseValid
	switch {
	case now >= l.until():
		state = leaseEnded
	case l.Suspended():
		state = leaseLate
	}
	if g.state.Swap(state) == state {
		return
	}
	lease := l.lease(now)
	if state == leaseLate {
		g.Log(slog.LevelWarn, "lease is late to be renewed", slog.Duration("remains", lease.Remains), slog.Any("err", l.err))
	}
	g.cfg.Up.Lease(*lease)
}

func (l *record) lease(now int64) *Lease {
	lease := &Lease{State: l.group.state.Load().(string), Err: l.err, Exclusions: l.Exclusions()}
	if l.group.covered() {
		lease.Remains = time.Duration(l.until() - now)
	}
	return lease
}

// StepWall acts as if the wall clock had been set forward. Only tests call it.
func (g *Group) StepWall(d time.Duration) { g.who.(*record).time.StepWall(d) }
