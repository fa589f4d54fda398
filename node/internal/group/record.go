package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/lease"
	"github.com/dmutex/dmutex/internal/storecall"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
)

// record is the authority of the lease mode: the record in the store. Unlike consent, it asks
// the store, gives the link and the mail the peers of the record, looks after who is there, and
// ends what is held when the lease ends.
type record struct {
	*lease.Machine
	group *Group
	link  transport.DynamicLink

	length int64 // of the lease

	line  storecall.Line // to the store
	rev   store.Revision // of the record that the machine was shown last
	asked clock.Steady   // when the store was asked last
	err   error          // why the last operation failed; nil if it did not
	over  bool           // the machine has ended
	rests clock.Steady   // when code that lost a lock with the last lease has had time to stop
	slept int64          // by the clock, as the machine knows

	proof
}

const (
	// maxWatch bounds the time from one look who is there to the next. It is also how late a
	// lease is seen to have ended after the machine has slept.
	maxWatch = int64(time.Second)

	// A wait for leases is logged so long after it begins if the store can prove that it is
	// over: processes that start together see each other live before they are members.
	proofPatience = time.Second

	// lookAgain is how soon the store is asked again who lives, if there is no new reason. The pause
	// doubles, up to a share of the lease.
	lookAgain = int64(100 * time.Millisecond)
)

// newRecord makes the members of the record the group.
func newRecord(g *Group) (err error) {
	cfg := &g.cfg
	cfg.Lease = cmp.Or(cfg.Lease, leases.Default)
	if err := g.describe([]dmutex.NodeID{1, 2, 3}); err != nil { // the members come and go
		return err
	}
	if cfg.Lease < leases.Min || cfg.Lease > leases.Max {
		return dmutex.Misuse(fmt.Sprintf("Config.Lease is %v: it must be from %v to %v", cfg.Lease, time.Duration(leases.Min), time.Duration(leases.Max)))
	}
	link := cfg.Link.(transport.DynamicLink)         // of node.Open
	if err := link.Become(dmutex.None); err != nil { // it has a number of its own
		return err
	}
	l := &record{
		group: g, link: link,
		length: int64(cfg.Lease), line: storecall.NewLine(),
		proof: proof{lasts: math.MinInt64, watches: make(map[dmutex.NodeID]context.CancelFunc)},
	}
	if prover, ok := cfg.Store.(store.Prover); ok && !cfg.Clients { // its clients may outlive it: its death proves nothing of them
		l.prover, l.patience = prover, proofPatience
	}
	g.host.Apart, g.host.Died = cfg.Lease/leases.Refuse, func(peer dmutex.NodeID) {
		g.do(func(now int64) membership.Output { return l.died(now, peer, false) })
	}
	g.who, g.life, g.limit, g.clock = l, l.newLife(0), membership.MaxMembers, g.clocks.Now
	l.Machine, err = lease.New(lease.Config{
		Life: g.life, Address: link.Address(), Name: cfg.Name, Lease: l.length, Settings: g.settings,
		Fence: cfg.Fence, Clock: g.clockNow(), Proves: l.prover != nil, Serves: cfg.Clients,
	})
	return err
}

// newLife draws a life above the one given, with more random bits: no numbers keep the processes apart yet.
func (l *record) newLife(above uint64) uint64 { return l.group.drawLife(above, 33) }

// leave is the exclusion of oneself if locks are lent: clients may still hold them.
func (l *record) leave(now int64) membership.Output {
	if l.group.Locks.Used(true) != "" {
		return l.LeaveHolding(now)
	}
	return l.Leave(now)
}

// died takes the evidence that a peer's process has ended.
func (l *record) died(now int64, id dmutex.NodeID, proved bool) membership.Output {
	if l.group.peer(id) != nil && !l.group.Mail.Status(id).Left {
		e := trace.Event{What: trace.Dead, Peer: id}
		if proved {
			e.N = 1
		}
		l.group.trace(e)
		l.group.LogOften(slog.LevelWarn, "peer's process has ended", l.group.peerAttr(id), slog.Bool("proved", proved))
	}
	return l.Dead(now, id, proved)
}

// Tick also tells the machine who is there, and who is not.
func (l *record) Tick(now int64) (out membership.Output) {
	if g := l.group; g.timers.Due(watch, now) {
		g.timers[watch] = now + l.watchPause()
		for _, id := range g.Others() {
			st := g.Mail.Status(id)
			here, since := l.Here(id)
			switch heard := st.Life != 0 && !st.Left && int64(st.Silent) < l.length/leases.Away; {
			case heard && !here && now-int64(st.Silent) > since:
				out = out.And(l.Met(now, id, st.Life))
			case !heard && here:
				out = out.And(l.Lost(now, id))
				if !st.Left {
					g.trace(trace.Event{What: trace.Silent, Peer: id})
					g.LogOften(slog.LevelWarn, "peer gives no sign of life", g.peerAttr(id), slog.Duration("silent", st.Silent))
				}
			}
			if int64(st.Silent) >= l.length/leases.Ask {
				g.Mail.Challenge(id)
			}
		}
	}
	out = out.And(l.Machine.Tick(now))
	if l.group.timers.Due(look, now) {
		l.look()
	}
	if l.group.timers.Due(say, now) {
		if until, dead, _ := l.Waits(); until != 0 {
			l.group.Log(slog.LevelWarn, "waiting", slog.Duration("waited", l.patience), slog.Any("err", l.drains(until-now, dead)))
		}
	}
	return out
}

// watchPause is the time from one look who is there to the next.
func (l *record) watchPause() int64 { return min(l.length/leases.Ask, maxWatch) }

// event does what the machine says, until this node has nothing to do with the group any more.
func (l *record) event(now int64, e membership.Event) {
	switch e := e.(type) {
	case stranger, taken: // the record may be newer than this node has read, and knows whose number it is
		l.group.apply(now, l.Hint(now))
	case halted:
		l.rest(now)
		l.retire(now)
	case closed:
		l.close(now, e.released)
	default:
		if !l.idle() { // if it has stopped by itself, the others are to exclude it
			l.follow(now, e)
		}
	}
}

func (l *record) follow(now int64, e membership.Event) {
	g := l.group
	switch e := e.(type) {
	case lease.Joined:
		l.rename(e.Self)
	case lease.Excluded:
		l.excluded(now, e.Forgotten)
	case lease.Members:
		l.meet(now, e)
	case lease.Renewed:
		l.renewed(now, e.Term)
	case lease.Waiting:
		if g.settle(g.Locks.Clear(e.Epoch, time.Duration(e.Until-now))); e.Until == 0 {
			g.timers[say] = due.Never
		}
		g.timers[look] = due.Never
		l.seek(now)
	case lease.Freed:
		g.Locks.Freed(e.Former, e.Loan)
	case lease.Ask:
		op, value, rev := e.Op, e.Value, l.rev
		l.asked = g.Mail.Now()
		g.running.Go(func() { l.operate(op, value, rev) })
	case lease.Ended:
		l.over = true
		l.rest(now)
		if e.Err != nil {
			g.stop(l.stopped())
			l.retire(now) // also if it was leaving
		}
		g.finish()
	}
}

// rest ends what this node does for its lease.
func (l *record) rest(now int64) {
	g := l.group
	g.timers[watch], g.timers[look], g.timers[say] = due.Never, due.Never, due.Never
	g.Locks.SetTerm(leases.Term{})
	l.set(now)
}

// renewed lets the locks go on until the term ends.
func (l *record) renewed(now int64, term leases.Term) {
	g := l.group
	if term.Expiry() > l.lasts {
		l.lasts = term.Expiry()
		g.trace(trace.Event{What: trace.Lease, N: uint64(term.Until() - now)})
	}
	l.gaveBack(g.Locks.Return(l.asked))
	g.Locks.SetTerm(term)
	l.set(now)
	g.settle(g.Locks.Resume())
	g.mayAct(now)
}

// idle reports whether this node has nothing to do with the group any more.
func (l *record) idle() bool {
	why := l.group.Locks.Why()
	return l.over || why != nil && why != ErrClosed
}

// rename makes this node speak under another number, or as nobody, to no peers yet.
func (l *record) rename(self dmutex.NodeID) {
	l.group.self.Store(uint64(self))
	l.group.timers[watch] = due.Never
	l.try(l.link.Become(self))
}

// errForgotten is why a hold is lost that the store has forgotten.
var errForgotten = fmt.Errorf("%w: the group begins anew, and this process joins it again", store.ErrForgotten)

// excluded ends a life of this node, by rule 5.5 of package lease. Its number names nobody at the
// peers any more, and theirs name nobody here until it joins again.
func (l *record) excluded(now int64, forgotten bool) {
	g := l.group
	why, said := ErrExcluded, "excluded: the others go on without this process, which joins again"
	if forgotten {
		why, said = errForgotten, "the store has begun anew, and has forgotten the members: all locks are lost, and this process joins again"
	}
	g.Locks.SetTerm(leases.Term{}) // first, so that no grant slips in after the loss
	l.lapse(now, why)
	l.retire(now)
	g.cause, g.ready = nil, nil
	epoch := g.Locks.Epoch()
	g.Locks.Freeze(epoch, dmutex.Start{})
	g.running.Go(func() { g.Locks.Frozen(epoch, false) }) // ends what waits for no other view
	g.timers[give] = due.Never
	g.trace(trace.Event{What: trace.Excluded, Peer: g.Self()})
	g.Log(slog.LevelWarn, said)
	l.rename(dmutex.None)
	life := l.newLife(g.life)
	for _, id := range g.Others() {
		l.unwatch(id)
	}
	g.setPeers(nil)
	g.running.Go(func() {
		// No message is sent: the machines are gone, and the others wait out the lease. It is done before another life reports.
		l.gaveBack(append(g.Locks.GiveBack(g.Locks.Lapses()), g.Locks.ReturnAll()...))
		g.Mail.Rename(life) // when it returns, nothing of the former life's streams is being handled
		g.Mail.SetPeers(nil)
		g.do(func(now int64) membership.Output {
			g.life = life
			return l.Rejoin(now, life)
		})
	})
}

// try logs what the link refuses. Peers cannot be reached then, and that shows.
func (l *record) try(err error) {
	if err != nil && !errors.Is(err, transport.ErrClosed) {
		l.group.LogOften(slog.LevelWarn, "the link refuses what the record says", slog.Any("err", err))
	}
}

// meet makes the members of the record, and nobody else, peers.
func (l *record) meet(now int64, members lease.Members) {
	g, r := l.group, members.Record
	if members.Excludes { // those that were there before tell a process that joins whether earlier leases have ended
		g.timers[say] = min(g.timers[say], now+int64(l.patience))
	}
	others := make(map[dmutex.NodeID]uint64)
	names := make(map[dmutex.NodeID]About) // also of this life, which the others may wait for later
	for _, e := range r.Members {
		if names[e.Node] = (About{e.Name, e.Address}); e.Node != g.Self() {
			others[e.Node] = e.Life
		}
	}
	former := g.Others()
	g.setPeers(slices.Collect(maps.Keys(others)))
	g.remember(names)
	for _, id := range former {
		if g.peer(id) == nil {
			l.unwatch(id)
			l.link.RemovePeer(id)
			if members.Excludes { // else it has left
				g.trace(trace.Event{What: trace.Excluded, Peer: id})
			}
		}
	}
	for _, e := range r.Members {
		if g.peer(e.Node) != nil && !slices.Contains(former, e.Node) {
			l.try(l.link.SetPeer(e.Node, e.Address))
			l.watch(e)
		}
	}
	g.Mail.SetPeers(others) // last: a stream begins at once
	g.timers[watch] = now
}

func (l *record) stands(now int64) standing {
	return standing{view: l.View(), missing: l.Missing(nil), why: l.waitsFor(), lease: l.status(now), alone: len(l.Record().Members) < 2}
}

// waitsFor is what keeps this node from acting, apart from members that are missing.
func (l *record) waitsFor() error {
	until, dead, all := l.Waits()
	switch {
	case l.err != nil && !l.group.covered():
		return fmt.Errorf("%w: %w", ErrStore, l.err)
	case l.Phase() == lease.Acting:
		return nil
	case all:
		return l.drains(until-l.group.clocks.Now(), dead)
	case l.Self() == dmutex.None && len(l.Record().Members) >= membership.MaxMembers:
		return ErrFull
	case l.Self() == dmutex.None:
		return errors.New("this process is not in the record yet, and joins")
	}
	return nil
}

// drains says that the leases of the dead may run for some time.
func (l *record) drains(most int64, dead []dmutex.NodeID) error {
	whose := "former members, if there were any,"
	if len(dead) > 0 {
		whose = fmt.Sprintf("members %s, which were excluded,", strings.Join(l.group.AllCalled(dead), ", "))
	}
	return fmt.Errorf("waiting until the leases of %s have ended: at most %v more", whose, time.Duration(max(most, 0)).Round(100*time.Millisecond))
}

func (l *record) stopped() error {
	other, ok := errors.AsType[lease.SettingsError](l.Err())
	if !ok {
		return l.Err()
	}
	describe := func(lease int64, settings string) string {
		return fmt.Sprintf("lease %v, %s", time.Duration(lease), settings)
	}
	return fmt.Errorf("%w; the record has members: start this process with what they have, or close all of them first; only if they were killed, delete the record, as docs/operating.md says",
		l.group.differs("member "+other.Member.String(), other.Speaks, describe(l.length, l.group.settings), describe(other.Lease, other.Settings)))
}

func (l *record) depart(ctx context.Context) error {
	l.part(ctx)
	g := l.group
	late := g.leave(ctx, l.leave)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case late == nil && l.Phase() == lease.Stopped:
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
	l.Clock(l.group.clockNow())
	now, slept := l.group.clocks.Read()
	leapt := slept - l.slept
	l.slept = slept
	l.Leapt(leapt)
	if l.group.timers[give] != due.Never {
		l.group.timers[give] += leapt // the holder has slept, too, or the clock was set
	}
	l.expire(now)
	return now
}

// expire is rule 5.3 of package lease: what is held ends with the lease, before an input may extend that.
func (l *record) expire(now int64) {
	g := l.group
	if g.Locks.Why() != nil { // what was held has ended with that
		g.timers[give] = due.Never
		l.set(now)
		return
	}
	if g.timers.Due(give, now) {
		l.giveBack()
	}
	if term := g.Locks.Term(); g.covered() && term.State(now) == leases.Ended {
		why := ErrLease
		if l.err != nil {
			why = fmt.Errorf("%w: %w", ErrLease, l.err)
		}
		l.lapse(now, why)
		g.Log(slog.LevelError, "lease ended: all locks are lost", slog.Any("err", why))
	}
	l.set(now)
}

// lapse ends what is held, for the reason given.
func (l *record) lapse(now int64, why error) {
	g := l.group
	g.timers[give] = now + l.length/leases.Margin
	g.pause(now)
	g.Locks.Lapse(why)
	l.set(now)
}

// giveBack releases the holds that have lapsed. There may be many, so not under the mutex; what lapses
// meanwhile has its own time.
func (l *record) giveBack() {
	g := l.group
	g.timers[give] = due.Never
	lapses := g.Locks.Lapses()
	g.running.Go(func() {
		l.gaveBack(g.Locks.GiveBack(lapses))
		g.Mail.Flush()
	})
}

func (l *record) gaveBack(outcomes []lock.Event) {
	tell := l.group.cfg.Tell
	if len(outcomes) == 0 || tell == nil {
		return
	}
	l.group.running.Go(func() {
		for _, e := range outcomes {
			tell(e)
		}
	})
}

// set notes how the lease stands, and reports it if that has changed.
func (l *record) set(now int64) {
	g := l.group
	term := g.Locks.Term()
	state := term.State(now)
	if g.lease == state {
		return
	}
	if g.lease = state; state == leases.Ended {
		l.rests = g.Mail.Now().Add(time.Duration(l.length / leases.Margin))
	}
	status := l.status(now)
	if state == leases.Late {
		g.Log(slog.LevelWarn, "lease is late to be renewed", slog.Duration("remains", status.Remains), slog.Any("err", l.err))
	}
	g.cfg.Up.Lease(*status)
}

func (l *record) status(now int64) *Lease {
	status := &Lease{State: l.group.lease, Length: time.Duration(l.length), Err: l.err, Exclusions: l.Exclusions()}
	if l.group.covered() {
		term := l.group.Locks.Term()
		status.Remains = time.Duration(term.Until() - now)
	}
	return status
}

// part says this node's last word, before it changes the record, and waits until the other members have it
// and, before it, the releases and withdrawals: record and link are two channels. A view without this node that
// came first would find locks that it holds or waits for, and the members would wait for its lease.
//
// It waits for an eighth of a lease at most, so that no peer that hangs delays a Close for longer, and for no
// peer that was silent for as long. Then all is as after a crash, for those that do not know. Before that it
// waits for its clients, for a twentieth of a lease at most.
func (l *record) part(ctx context.Context) {
	g := l.group
	clients, cancel := context.WithTimeout(ctx, g.clocks.Span(g.cfg.Lease/leases.Ask))
	g.cfg.Up.Parting(clients)
	cancel()
	ctx, cancel = context.WithTimeout(ctx, g.clocks.Span(g.cfg.Lease/leases.Away))
	defer cancel()
	lent := g.Locks.Loans()
	g.do(func(now int64) membership.Output { return l.Part(now, lent) })
	g.Mail.Flush()
	for _, id := range g.Others() {
		l.awaitReceipt(ctx, id)
	}
}

// awaitReceipt waits until a peer has all that was sent to it.
func (l *record) awaitReceipt(ctx context.Context, id dmutex.NodeID) {
	g := l.group
	var receipt <-chan struct{}
	for ctx.Err() == nil {
		there, sent := l.hears(id)
		if !there {
			return
		}
		if sent && receipt == nil {
			receipt = g.Mail.Receipt(id)
			g.Mail.Flush()
		}
		select {
		case <-receipt:
			return
		case <-time.After(g.clocks.Span(sendAgain)): // it may be no peer any more
		case <-ctx.Done():
		}
	}
}

// hears reports whether a peer is there, as far as it is known, and whether the mail has all that is for it.
func (l *record) hears(id dmutex.NodeID) (there, sent bool) {
	g := l.group
	g.mu.Lock()
	defer g.mu.Unlock()
	p, st := g.peer(id), g.Mail.Status(id)
	there = p != nil && st.Life != 0 && !st.Left && st.Silent < g.cfg.Lease/leases.Away
	return there, there && len(p.pending) == 0 && len(p.parts) == 0
}

// Moved tells the members that a client goes on with this one, and that a former member has nothing lent to it
// any more.
func (g *Group) Moved(former dmutex.NodeID, loan membership.Loan) {
	g.do(func(now int64) membership.Output { return g.who.(*record).Move(now, former, loan) })
	g.Mail.Flush()
}

// StepWall acts as if the wall clock had been set forward. Only tests call it.
func (g *Group) StepWall(d time.Duration) { g.clocks.StepWall(d) }
