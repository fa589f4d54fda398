// Package locks has the locks of one node: a machine for each lock in use, and the
// goroutines that hold it or wait for it.
//
// A [Table] runs the machines of one view at a time. It knows the view's epoch, a time until
// which it may grant, and the mail. Its user knows the members and extends that time, and calls
// Freeze, Frozen, Act and Lapse.
//
// Every method may be called by any goroutine. One mutex guards a Table. No function of the
// application runs under it but the algorithm's. Each method for callers, but none for the event
// path, calls Mail.Flush or FlushSoon when it has released the mutex: then frames leave.
package locks

import (
	"context"
	"iter"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
	"github.com/dmutex/dmutex/internal/stream"
	"github.com/dmutex/dmutex/trace"
)

// Config is what a Table is made of.
type Config struct {
	Algorithm dmutex.Algorithm
	Mail      *mail.Mail
	Clock     func() int64    // of the term; nil if grants have no end
	Trace     *trace.Recorder // may be nil
	Tell      func(Event)     // of a grant that its holder has released; may be nil
	Up        Up
}

// Up takes what a Table cannot handle itself. Trouble and Refused are called under the mutex of
// the Table.
type Up interface {
	// Trouble asks for another view in place of that of the epoch.
	Trouble(epoch uint64, err error)

	// Refused reports what no correct peer sends.
	Refused(peer dmutex.NodeID, err error)

	// Expired reports that the term has ended, as a holder has found out. When it returns, Lapse
	// was called.
	Expired()
}

// A lease is the lease of a node, by both clocks: a leap of Config.Clock ends the term, and what clients of the
// node were confirmed goes on.
type lease struct {
	leases.Term              // by Config.Clock: nothing is granted after it
	lent        clock.Steady // no client was confirmed a hold for longer than until then
}

// A Table is all locks of a node.
type Table struct {
	cfg Config

	ended  context.Context         // nothing more is granted once it has ended
	cancel context.CancelCauseFunc // the first cause stays

	lease  atomic.Pointer[lease]
	halted atomic.Bool                   // nothing is granted for now
	parked atomic.Bool                   // a lock waits for Resume
	lapsed atomic.Pointer[chan struct{}] // closed at the next lapse
	lapses atomic.Uint64                 // how often Lapse was called
	rested chan struct{}                 // see Rested

	mu      sync.Mutex
	joining Waiter // scratch of Join
	locks   map[string]*lock
	epoch   uint64       // of the view that is installed; 0 before the first
	acting  bool         // the machines of the view may be born
	acted   clock.Steady // since when
	start   dmutex.Start // of all of them, but for Holder and Home; Clock and Known are the highest of those that were forgotten

	walk   chan struct{} // full while a goroutine is in Frozen or in Act
	breath func()        // yields: else the scheduler stops a walk sooner or later while it has the mutex, and all wait for its next turn

	carried  *carryover.Holds    // what was reported in the view, of the locks without a machine yet
	word     *membership.Word    // about the last view that acted, as far as its machines have ended; see Frozen
	unborn   *carryover.Holds    // carried, of that view
	past     *carryover.Past     // of the view
	held     int                 // what this node has reported last
	freed    []freed             // since a view acted last: see Freed
	returned []string            // that were released, or lost, while no view acted: the view may have them as held
	waiting  map[string]struct{} // what has had a waiter while no view acted, for the next one
	cleared  uint64              // see Clear
	drainAt  clock.Steady        // see Clear
	fresh    newborns            // what new machines exclude
	early    []early             // messages of this view, before it acts, and of later ones
	late     bool                // messages of this view still go behind those
	room     int                 // that they take
	latest   uint64              // epoch among them
	dropped  bool                // one of them found no room since a view last acted

	resting        [keepResting]*lock // may be forgotten; some are in use again
	oldest         int                // where to look for one to forget
	granted        uint64
	sent, received [dmutex.Kinds]uint64
	message        []byte        // scratch
	uses           map[*Held]use // of holds that Close waits for, also lost ones
	owed           []*Held       // those that were lost while they were lent, and some that were released since
}

// New returns an empty Table, which acts in no view.
func New(cfg Config) *Table {
	t := &Table{
		cfg: cfg, rested: make(chan struct{}, 1), walk: make(chan struct{}, 1), locks: make(map[string]*lock),
		fresh: make(newborns), uses: make(map[*Held]use), waiting: make(map[string]struct{}), breath: runtime.Gosched,
	}
	t.ended, t.cancel = context.WithCancelCause(context.Background())
	t.SetTerm(leases.Term{})
	t.lapsed.Store(new(make(chan struct{})))
	return t
}

// End ends all granting and all waits, for the reason given. The first reason stays.
func (t *Table) End(why error) {
	t.cancel(why)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.locks {
		l.fail(why, all)
	}
}

// Why returns why nothing more is granted, nil while all is well.
func (t *Table) Why() error {
	if t.ended.Err() == nil { // which takes no mutex
		return nil
	}
	return context.Cause(t.ended)
}

// Ended is closed by End.
func (t *Table) Ended() <-chan struct{} { return t.ended.Done() }

// SetTerm sets the term after which nothing is granted. After a later one, call Resume. It must not be
// called twice at a time.
func (t *Table) SetTerm(term leases.Term) {
	next := lease{Term: term}
	if was := t.lease.Load(); was != nil {
		next.lent = was.lent
	}
	if term.Runs() { // Config.Clock first, so that a pause between them makes it no earlier
		left := time.Duration(term.Until() - t.cfg.Clock())
		next.lent = clock.Latest(next.lent, t.cfg.Mail.Now().Add(left))
	}
	t.lease.Store(&next)
}

// Term returns that term.
func (t *Table) Term() leases.Term { return t.lease.Load().Term }

// Left returns how long until its end, 0 if nothing more is granted. A Table that has lost
// what it held tells of no later time before it has closed Lapsed.
func (t *Table) Left() time.Duration {
	if t.Why() != nil {
		return 0
	}
	now := t.cfg.Clock()
	return time.Duration(max(t.lease.Load().Until(), now) - now)
}

// leased reports whether the term has not ended yet: rule 5.3 of package lease, at each grant.
func (t *Table) leased() bool { return t.cfg.Clock == nil || t.cfg.Clock() < t.lease.Load().Until() }

// grants reports whether anything may be granted at the moment.
func (t *Table) grants() bool { return !t.halted.Load() && t.leased() }

// Halt lets nothing be granted until Resume is called.
func (t *Table) Halt() { t.halted.Store(true) }

// Resume ends a Halt. It reports whether locks have waited for that, or for a later term: then call Settle.
func (t *Table) Resume() (parked bool) {
	t.halted.Store(false)
	return t.parked.Swap(false)
}

// Settle lets the locks go on that are waited for, after Resume and Clear. It takes long if there are many.
func (t *Table) Settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for l := range t.each() {
		if len(l.waiters) > 0 {
			l.settle()
		}
	}
}

// chunk is how many locks are gone through until others get the mutex: so nothing waits for long, however
// many there are.
const chunk = 256

// each goes through all locks under the mutex, and releases that now and then. Locks that come meanwhile
// may be left out.
func (t *Table) each() iter.Seq[*lock] {
	return func(yield func(*lock) bool) {
		n := 0
		for _, l := range t.locks {
			if !yield(l) {
				return
			}
			t.breathe(&n)
		}
	}
}

// OnBreath makes all that goes through the locks call f whenever it has released the mutex in between. Only
// tests call it.
func (t *Table) OnBreath(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.breath = f
}

// breathe lets others have the mutex after every chunk.
func (t *Table) breathe(n *int) {
	if *n++; *n%chunk > 0 {
		return
	}
	f := t.breath
	t.mu.Unlock()
	f()
	t.mu.Lock()
}

// Freeze ends all older views: nothing is granted, sent or taken in until Act. start is what the machines of
// the view begin with, but for the holder. It takes no time: the machines end one by one, in Frozen or before
// anything else uses their locks. Without a Start.Self this node takes part in no view.
func (t *Table) Freeze(epoch uint64, start dmutex.Start) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case start.Self == dmutex.None:
		t.word, t.unborn = nil, nil
	case t.acting && t.cfg.Clock != nil:
		t.word, t.unborn = &membership.Word{Node: t.start.Self, Epoch: t.epoch, Members: t.start.Members}, t.carried
	}
	t.epoch, t.acting, t.late = epoch, false, false
	t.start = start
	clear(t.resting[:])
	t.carried, t.past = nil, nil
}

// Frozen returns, after the Freeze of the view, what this node holds and, if grants have an end, what this node
// knows of the view that acted here last, nil for none: again until the next one acts, for the outcome of a
// call may come too late to be told. The word is whole if that is asked for, and else brief, which is quicker: the machines
// stay, in case that it is asked for later. Frozen reports false if another Freeze came.
func (t *Table) Frozen(epoch uint64, whole bool) (holds []membership.Hold, word *membership.Word, frozen bool) {
	t.walk <- struct{}{}
	defer func() { <-t.walk }()
	if whole {
		t.foresee()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	holds = make([]membership.Hold, 0, t.held+t.held/8)
	for l := range t.each() {
		if t.epoch != epoch {
			return nil, nil, false
		}
		if whole || len(l.waiters) > 0 || t.cfg.Trace != nil {
			l.freeze()
		}
		if l.isHeld() {
			holds = append(holds, membership.Hold{Lock: l.name, Fence: l.held()[0].fence, Shared: l.shared})
		}
		if len(l.waiters) > 0 || t.cfg.Trace != nil && l.isHeld() { // a trace says in each view who has the lock
			t.waiting[l.name] = struct{}{}
		}
	}
	if t.epoch != epoch {
		return nil, nil, false
	}
	t.held = len(holds)
	t.rehandle(true)
	if t.word != nil {
		word = new(*t.word)
		word.Brief = !whole
	}
	return holds, word, true
}

// Act lets the machines of the view begin after Frozen, with the holds that were reported. A machine is born when its lock
// is first used. What former members may hold waits for Clear. Call Sweep some time later. Act reports false if another
// Freeze came, also one for no view in the same epoch.
func (t *Table) Act(epoch uint64, holdings []membership.Holding, past *membership.Past) (acts bool) {
	t.walk <- struct{}{}
	defer func() { <-t.walk }()
	carried := carryover.Of(holdings)
	var known *carryover.Past
	if past != nil {
		known = carryover.Indexed(past)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.epoch != epoch || t.acting || t.start.Self == dmutex.None {
		return false
	}
	t.acting, t.late, t.acted, t.past, t.carried, t.word, t.unborn = true, true, t.cfg.Mail.Now(), known, carried, nil, nil
	for _, f := range t.freed {
		t.free(f)
	}
	names := slices.AppendSeq(slices.Concat(carried.Contested(), t.returned), maps.Keys(t.waiting))
	t.freed, t.returned, t.waiting = nil, nil, make(map[string]struct{})
	clear(t.fresh)
	n := 0
	for _, name := range names {
		if !t.acts(epoch) {
			return false
		}
		if l := t.lock(name); !l.isHeld() && l.in(dmutex.Held) {
			l.release() // it was released, or lost, since the report
		} else {
			l.settle()
		}
		t.breathe(&n)
	}
	if t.acts(epoch) && t.rehandle(true) {
		t.rehandle(false)
	}
	if !t.acts(epoch) {
		return false
	}
	t.late = false
	if t.dropped {
		t.dropped = false
		t.cfg.Up.Trouble(epoch, errEarly)
	}
	return true
}

// Sweep forgets the machines of earlier views, and with them the locks that nobody here holds or waits for.
func (t *Table) Sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for l := range t.each() {
		if l.freeze(); l.machine == nil {
			l.rest()
		}
	}
}

func (t *Table) acts(epoch uint64) bool { return t.acting && t.epoch == epoch }

// Epoch returns the epoch of the view that was installed last.
func (t *Table) Epoch() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epoch
}

// Lose ends all holds of this node, for the reason given. The locks stay taken until their holders
// release them.
func (t *Table) Lose(why error) { t.lose(t.loss(why)) }

func (t *Table) lose(lost *Cause) {
	t.mu.Lock()
	defer t.mu.Unlock()
	over := clock.Latest(t.cfg.Mail.Now(), t.lease.Load().lent)
	for _, l := range t.locks {
		for _, h := range l.held() {
			h.lose(lost, over)
		}
	}
}

// loss returns the cause of holds that are lost now, or were at the end of the lease.
func (t *Table) loss(why error) *Cause {
	lost, left := loss(why), int64(0)
	if l := t.lease.Load(); l.Runs() {
		left = min(l.Until()-t.cfg.Clock(), 0)
	}
	lost.at = time.Now().Add(time.Duration(left))
	return lost
}

// Lapse is Lose for a lease that has ended: GiveBack and Return release the locks, too, and waiters
// keep waiting.
func (t *Table) Lapse(why error) {
	lost := t.loss(why)
	lost.lapse = t.lapses.Add(1)
	t.lose(lost)
	close(*t.lapsed.Swap(new(make(chan struct{}))))
}

// Lapsed is closed at the next Lapse.
func (t *Table) Lapsed() <-chan struct{} { return *t.lapsed.Load() }

// Lapses returns how often Lapse was called.
func (t *Table) Lapses() uint64 { return t.lapses.Load() }

// GiveBack releases what has lapsed with the first lapses, but for what is lent, and returns it.
func (t *Table) GiveBack(lapses uint64) (outcomes []Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for l := range t.each() {
		for _, h := range slices.Clone(l.held()) {
			if why := h.why.Load(); why != nil && why.lapse <= lapses && !t.uses[h].lent {
				e, _ := l.leave(h, nil)
				outcomes = append(outcomes, e)
			}
		}
	}
	return outcomes
}

// Return releases the lent holds that were lost, and that no client surely held when an operation on the
// record was sent which has shown this life as a member. It returns them. Without that the others may have
// excluded this life, and the client may go on with another member.
func (t *Table) Return(sent clock.Steady) []Event {
	return t.giveBack(func(u use) bool { return !u.over.After(sent) })
}

// ReturnAll releases all lent holds that were lost, and returns them: this life is no member any more.
func (t *Table) ReturnAll() []Event { return t.giveBack(func(use) bool { return true }) }

func (t *Table) giveBack(may func(use) bool) (outcomes []Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	owed := t.owed
	t.owed = nil
	n := 0
	for _, h := range owed {
		switch u := t.uses[h]; {
		case !u.lost: // it was released
		case may(u):
			e, _ := h.lock.leave(h, nil)
			outcomes = append(outcomes, e)
		default:
			t.owed = append(t.owed, h)
		}
		t.breathe(&n)
	}
	return outcomes
}

// Abandon ends all holds after an End, for the reason given, but for those that are lent. Their locks stay
// taken until Vacate.
func (t *Table) Abandon(why error) {
	lost := t.loss(why)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.locks {
		for _, h := range l.held() {
			if !t.uses[h].lent {
				h.end(lost)
			}
		}
	}
}

// Vacate releases what Abandon has ended, but for the locks under which a function still runs, and returns it.
func (t *Table) Vacate() (outcomes []Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for l := range t.each() {
		l.freeze()
		for _, h := range slices.Clone(l.held()) {
			if _, used := t.uses[h]; !used {
				e, _ := l.leave(h, nil)
				outcomes = append(outcomes, e)
			}
		}
		switch {
		case l.isHeld():
		case l.in(dmutex.Held):
			l.release()
		case l.in(dmutex.Waiting):
			l.withdraw()
		}
	}
	return outcomes
}

// Used returns the name of a lock under which a function runs or, with lent, of one that is lent to a
// client; "" if there is none.
func (t *Table) Used(lent bool) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h, u := range t.uses {
		if u.lent == lent {
			return h.lock.name
		}
	}
	return ""
}

// Rested gets a token when a function has ended that ran under a lock, and when a lent lock was released.
func (t *Table) Rested() <-chan struct{} { return t.rested }

// Obstacle says why no new request can be made now.
func (t *Table) Obstacle() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.obstacle()
}

func (t *Table) obstacle() error {
	if why := t.Why(); why != nil {
		return why
	}
	for _, p := range t.start.Members {
		if t.cfg.Mail.Backlog(p) > stream.Buffer/2 { // the other half is for answers, which must not be refused
			return &Error{Peer: p, Err: ErrOverflow}
		}
	}
	return nil
}

// lock returns the lock of that name, which has a machine if the view acts, and none if it does not.
func (t *Table) lock(name string) *lock {
	l := t.locks[name]
	if l == nil {
		l = &lock{table: t, name: name}
		t.locks[name] = l
	}
	l.freeze()
	l.born()
	return l
}
