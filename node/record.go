package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport"
)

// record is the authority of the lease mode: the record in the store. It does for its
// machine what consent has no need of: it asks the store, gives the link and the mail the
// peers of the record, looks after who is there, and ends what is held when the lease ends.
type record struct {
	views   *views
	machine *membership.LeaseMachine
	store   store.Store
	link    transport.DynamicLink
	time    *clock

	length int64 // of the lease
	margin int64 // before its end the locks are lost

	ctx    context.Context // of operations
	cancel context.CancelFunc
	busy   chan struct{} // full while the store has not returned

	rev     store.Revision         // of the record that the machine was shown last
	record  uint64                 // epoch of the record whose members are the peers
	err     error                  // why the last operation failed; nil if it did not
	away    map[dmutex.NodeID]bool // the machine was told that the peer is
	watchAt int64                  // when to look next who is there
	giveAt  int64                  // when to release lost holds
	slept   int64                  // by the clock, as the machine knows
}

const (
	// DefaultLease is Config.Lease if it is 0.
	DefaultLease = 10 * time.Second

	// The locks are lost a leaseMargin-th of the lease before its end, and given back a
	// margin later, so that code that hears of the loss can stop in time.
	leaseMargin = 16

	// maxWatch bounds the time from one look who is there to the next. It is also how
	// late a lease is seen to have ended after the machine has slept.
	maxWatch = int64(time.Second)

	// An operation of the store may take an opShare-th of the lease.
	opShare = 4

	// A store that has not returned so long after the context of an operation ended
	// breaks its contract, and is left behind.
	storePatience = time.Second

	// A peer that was silent for an askShare-th of the lease is asked for a sign of
	// life. After an awayShare-th it counts as away.
	askShare, awayShare = 20, 8
)

func newLease(v *views) (*record, error) {
	cfg := &v.node.cfg
	settings, err := v.node.settings()
	if err != nil {
		return nil, err
	}
	link, ok := cfg.Link.(transport.DynamicLink)
	if !ok {
		return nil, dmutex.Misuse("Config.Link has a fixed list of members: Config.Store needs a transport.DynamicLink, such as that of tcplink without Config.Self")
	}
	if err := link.Become(dmutex.None); err != nil { // it has a number of its own
		return nil, err
	}
	machine, err := membership.NewLease(membership.LeaseConfig{
		Life: v.life, Address: link.Address(), Lease: int64(cfg.Lease), Settings: settings,
		Fence: cfg.Fence, Clock: clockNow(),
	})
	if err != nil {
		return nil, err
	}
	l := &record{
		views: v, machine: machine, store: cfg.Store, link: link, time: newClock(),
		length: int64(cfg.Lease), margin: int64(cfg.Lease) / leaseMargin,
		away: make(map[dmutex.NodeID]bool), watchAt: math.MaxInt64, giveAt: math.MaxInt64,
		busy: make(chan struct{}, 1),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	v.machine = machine
	return l, nil
}

func (l *record) now() int64 {
	now, slept := l.time.read()
	leapt := slept - l.slept
	l.slept = slept
	l.machine.Leapt(leapt)
	if l.giveAt != math.MaxInt64 {
		l.giveAt += leapt // the holder has slept, too, or the clock was set
	}
	l.check(now)
	return now
}

func (l *record) clock() func() int64 { return l.time.now }

func (l *record) mailTime(at int64) int64 {
	if at == math.MaxInt64 || at == math.MinInt64 {
		return at
	}
	return l.views.node.mail.Now() + at - l.time.now()
}

func (l *record) covers() bool { return !l.ended() }

func (l *record) near(peer dmutex.NodeID, here bool) { l.away[peer] = !here }

// takenBy asks the record, which knows whose number it is.
func (l *record) takenBy(now int64, _ uint64) []membership.Message { return l.machine.Hint(now) }

// stranger asks the record, too: it may be newer than this node has read.
func (l *record) stranger() {
	l.views.do(func(_ machine, now int64) []membership.Message { return l.machine.Hint(now) })
}

func (l *record) older() {} // no number is given twice

func (l *record) close() { l.cancel() }

// until returns the time to which the locks may go by the lease.
func (l *record) until() int64 {
	if l.over() || l.machine.Self() == dmutex.None {
		return math.MinInt64
	}
	return l.machine.LeaseEnd() - l.margin
}

// check ends what is held if the lease has ended. It comes before each input, since
// an input may extend the lease, and what has ended is not to come back.
func (l *record) check(now int64) {
	n := l.views.node
	if n.locks.Why() != nil { // what was held has ended with that
		l.giveAt = math.MaxInt64
		l.set(now, l.ended() || now >= l.until())
		return
	}
	if now >= l.giveAt {
		l.giveBack()
	}
	if now >= l.until() && !l.ended() {
		why := ErrLease
		if l.err != nil {
			why = fmt.Errorf("%w: %w", ErrLease, l.err)
		}
		l.end(now, why)
		n.log.tell(slog.LevelError, "lease ended: all locks are lost", slog.Any("err", why))
	}
}

// end ends what is held, for the reason given. The locks are given back a margin later,
// which is not before the end of a lease that has run out.
func (l *record) end(now int64, why error) {
	n := l.views.node
	n.locks.SetUntil(math.MinInt64) // first, so that no grant slips in after the loss
	l.giveAt = now + l.margin
	l.views.pause(now)
	lost := error(&lossError{why})
	n.locks.Lapse(lost)
	l.set(now, true)
}

// giveBack releases lost holds.
func (l *record) giveBack() {
	l.giveAt = math.MaxInt64
	n := l.views.node
	if holds := n.locks.GiveBack(); len(holds) > 0 {
		n.running.Go(func() { n.tell(holds...) })
	}
}

// follow does what the machine wants of a lease after an input.
func (l *record) follow(now int64) {
	n, m := l.views.node, l.machine
	if l.over() {
		n.locks.SetUntil(math.MinInt64)
		l.set(now, true)
		return // if it has stopped by itself, the others are to exclude it
	}
	switch self := m.Self(); {
	case self == n.Self():
	case self == dmutex.None:
		l.excluded(now)
	default:
		l.rename(self)
	}
	if r := m.Record(); r.Epoch != l.record && m.Self() != dmutex.None {
		// The members tell a process that joins whether earlier leases have ended.
		fresh := r.Unclean == r.Epoch || l.record != 0 && r.Unclean > l.record
		if until, dead := m.Waits(); until != 0 && fresh {
			n.log.tell(slog.LevelWarn, "waiting", slog.Duration("waited", 0), slog.Any("err", drains(until-now, dead)))
		}
		l.record = r.Epoch
		l.meet(now, &r)
	}
	n.locks.SetUntil(l.until())
	l.set(now, now >= l.until())
	if !l.ended() {
		n.locks.Resume()
	}
	if op, value := m.Operation(); op != membership.NoOperation {
		rev := l.rev
		n.running.Go(func() { l.operate(op, value, rev) })
	}
}

// over reports whether this node has nothing to do with the group any more.
func (l *record) over() bool {
	phase, why := l.machine.Phase(), l.views.node.locks.Why()
	return phase == membership.Left || phase == membership.Stopped || why != nil && why != ErrClosed
}

// rename makes this node speak under another number, or as nobody, to no peers yet.
func (l *record) rename(self dmutex.NodeID) {
	l.views.node.self.Store(uint64(self))
	l.record, l.watchAt = 0, math.MaxInt64
	l.try(l.link.Become(self))
}

// excluded ends a life of this node, whose peers go: to each of them its number will name
// nobody, and to this node theirs name nobody until it joins again.
func (l *record) excluded(now int64) {
	n := l.views.node
	l.end(now, ErrExcluded)
	l.views.cause = nil
	n.locks.Freeze(l.views.epoch, dmutex.Start{})
	l.giveBack() // no message is sent: the machines are gone, and the others wait out the lease
	n.log.tell(slog.LevelWarn, "excluded: the others go on without this process, which joins again")
	l.rename(dmutex.None)
	former := n.others()
	n.setPeers(nil)
	for _, id := range former {
		l.views.forget(id)
	}
	clear(l.away)
	life := n.cfg.newLife(l.views.life)
	n.running.Go(func() { l.rejoin(life, former) })
}

// rejoin begins another life. When Rename returns, nothing of the former life's sessions is
// being handled anymore.
func (l *record) rejoin(life uint64, former []dmutex.NodeID) {
	n := l.views.node
	_ = n.mail.Rename(life) // it fails when this node closes
	for _, id := range former {
		n.mail.Remove(id)
	}
	l.views.do(func(_ machine, now int64) []membership.Message {
		l.views.life = life
		return l.machine.Rejoin(now, life)
	})
}

// try logs what the link refuses. Peers cannot be reached then, and that shows.
func (l *record) try(err error) {
	if err != nil && !errors.Is(err, transport.ErrClosed) {
		l.views.node.log.tellOften(slog.LevelWarn, "the link refuses what the record says", slog.Any("err", err))
	}
}

// meet makes the members of the record, and nobody else, peers.
func (l *record) meet(now int64, r *membership.Record) {
	n := l.views.node
	self := n.Self()
	for _, id := range n.others() {
		if !slices.ContainsFunc(r.Members, func(e membership.Entry) bool { return e.Node == id }) {
			l.remove(id)
		}
	}
	for _, e := range r.Members {
		if e.Node == self || n.peer(e.Node) != nil {
			continue
		}
		n.setPeers(append(n.others(), e.Node))
		l.away[e.Node] = true
		l.try(l.link.SetPeer(e.Node, e.Address))
		_ = n.mail.Add(e.Node) // it fails when this node closes
	}
	l.watchAt = now
}

func (l *record) remove(id dmutex.NodeID) {
	n := l.views.node
	n.mail.Remove(id)
	l.link.RemovePeer(id)
	n.setPeers(slices.DeleteFunc(n.others(), func(other dmutex.NodeID) bool { return other == id }))
	l.views.forget(id)
	delete(l.away, id)
}

// watch tells the machine who is there, and who is not.
func (l *record) watch(now int64) (out []membership.Message) {
	if now < l.watchAt {
		return nil
	}
	n := l.views.node
	l.watchAt = now + min(l.length/askShare, maxWatch)
	for _, id := range n.others() {
		st := n.mail.Status(id)
		switch here := st.Met && !st.Left && int64(st.Silent) < l.length/awayShare; {
		case here && l.away[id]:
			out = append(out, l.views.meet(now, id, st.Life)...)
		case !here && !l.away[id]:
			out = append(out, l.views.lose(now, id)...)
			if !st.Left {
				n.log.tellOften(slog.LevelWarn, "peer gives no sign of life", peerAttr(id), slog.Duration("silent", st.Silent))
			}
		}
		if int64(st.Silent) >= l.length/askShare {
			n.mail.Challenge(id)
		}
	}
	return out
}

// heard notes a sign of life.
func (l *record) heard(now int64, from dmutex.NodeID) []membership.Message {
	if !l.away[from] {
		return nil
	}
	return l.views.meet(now, from, l.views.node.mail.Status(from).Life)
}

// deadline returns when check or watch has something to do.
func (l *record) deadline() int64 {
	switch {
	case l.over():
		return math.MaxInt64
	case l.ended():
		return min(l.watchAt, l.giveAt)
	default:
		return min(l.watchAt, l.giveAt, l.until())
	}
}

// operate asks the store, and gives the machine the outcome.
func (l *record) operate(op membership.Operation, value []byte, rev store.Revision) {
	value, rev, err := l.ask(op, value, rev)
	v := l.views
	v.do(func(_ machine, now int64) []membership.Message {
		switch {
		case err == nil && op == membership.Load:
			l.rev, l.err = rev, nil
			return l.machine.Loaded(now, value)
		case err == nil:
			l.rev, l.err = rev, nil
			return l.machine.Swapped(now)
		case op == membership.Swap && errors.Is(err, store.ErrConflict):
			l.err = nil
			return l.machine.Conflict(now)
		default:
			l.err = err
			if errors.Is(err, store.ErrUnusable) && v.count.Load() == 0 {
				v.node.stop(fmt.Errorf("node: %w", err))
			}
			return l.machine.Unknown(now)
		}
	})
	v.node.mail.Flush()
}

// ask calls the store, and returns when the time of the operation is over even if the
// store does not. At most one call is left behind: the next operation waits for it.
func (l *record) ask(op membership.Operation, value []byte, rev store.Revision) ([]byte, store.Revision, error) {
	ctx, cancel := context.WithTimeout(l.ctx, time.Duration(l.length/opShare))
	defer cancel()
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, "", errStuck
	}
	var err error
	done := make(chan struct{})
	go func() {
		if op == membership.Load {
			value, rev, err = l.store.Load(ctx)
		} else {
			rev, err = l.store.Swap(ctx, value, rev)
		}
		<-l.busy
		close(done)
	}()
	select {
	case <-done:
		return value, rev, err
	case <-ctx.Done():
	}
	select {
	case <-done:
		return value, rev, err
	case <-time.After(storePatience):
		return nil, "", errStuck
	}
}

// errStuck is the outcome of an operation from which the store has not returned.
var errStuck = errors.New("node: the store does not return, although the context of the operation has ended: Config.Store breaks its contract")

// needsStore says why the store keeps this node from acting, nil if it does not.
func (l *record) needsStore() error {
	if l.err == nil || !l.ended() && !l.machine.NeedsStore() {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrStore, l.err)
}

func (l *record) late(why error) error {
	l.views.mu.Lock()
	defer l.views.mu.Unlock()
	if l.err != nil {
		why = fmt.Errorf("%w: %w: %w", why, ErrStore, l.err)
	}
	return fmt.Errorf("node: close: the record still has this node, so the others wait until they exclude it: %w", why)
}

// waits says for what but members this node waits, nil if it does not.
func (l *record) waits() error {
	until, dead := l.machine.Waits()
	switch err := l.needsStore(); {
	case err != nil:
		return err
	case l.machine.Phase() == membership.Acting:
		return nil
	case until != 0:
		return drains(until-l.time.now(), dead)
	case l.machine.Self() == dmutex.None:
		return errJoining
	}
	return nil
}

// errJoining is why a node does not act that is not in the record.
var errJoining = errors.New("node: this process is not in the record yet, and joins")

// drains says that the leases of the dead may run for some time.
func drains(left int64, dead []dmutex.NodeID) error {
	whose := "former members, if there were any,"
	if len(dead) > 0 {
		whose = fmt.Sprintf("members %v, which were excluded,", dead)
	}
	return fmt.Errorf("node: waiting until the leases of %s have ended: at most %v more", whose, time.Duration(max(left, 0)).Round(100*time.Millisecond))
}

// stopped returns why the machine has stopped.
func (l *record) stopped() error {
	err := fmt.Errorf("node: %w", l.machine.Err())
	if errors.Is(err, membership.ErrSettings) {
		err = fmt.Errorf("%w: %w", ErrConfig, l.machine.Err())
	}
	return err
}

func (l *record) left() error {
	l.views.mu.Lock()
	defer l.views.mu.Unlock()
	if l.machine.Phase() != membership.Stopped {
		return nil
	}
	return l.stopped()
}

// farewell is short: the peers forget this node when they see in the record that it has
// left.
func (l *record) farewell() time.Duration { return 20 * time.Millisecond }

func (l *record) status(now int64) *LeaseStatus {
	st := &LeaseStatus{State: l.views.node.leaseState(), Err: l.err, Exclusions: l.machine.Exclusions()}
	if !l.ended() {
		st.Left = time.Duration(l.until() - now)
	}
	return st
}

// ended reports whether the lease has ended, and what was held is lost.
func (l *record) ended() bool { return l.views.node.leaseState() == LeaseEnded }

// set notes how the lease stands, and tells the Observer if that has changed.
func (l *record) set(now int64, ended bool) {
	n := l.views.node
	state := LeaseValid
	switch {
	case ended:
		state = LeaseEnded
	case l.machine.Suspended():
		state = LeaseLate
	}
	if LeaseState(l.views.state.Swap(uint32(state))) == state {
		return
	}
	if state == LeaseLate {
		n.log.tell(slog.LevelWarn, "lease is late to be renewed", slog.Duration("left", time.Duration(l.until()-now)), slog.Any("err", l.err))
	}
	if o := n.cfg.Observer; o != nil && o.Lease != nil {
		n.event(func() { o.Lease(state) })
	}
}
