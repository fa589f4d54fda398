package locks

import (
	"errors"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/membership/carryover"
	"github.com/dmutex/dmutex/internal/message"
	"github.com/dmutex/dmutex/internal/stream"
	"github.com/dmutex/dmutex/trace"
)

// A lock is one name in use at this node. It outlives its machine if it is held or waited for.
// The mutex of the Table guards it.
type lock struct {
	table   *Table
	name    string
	machine dmutex.Machine // nil until it is needed in the view that acts; one of an earlier view stays until freeze
	epoch   uint64         // of the view of the machine
	one     [1]*Held       // the handle of the present grant, if there is one
	several *[]*Held       // the handles, since callers share it; else nil
	waiters []*Waiter      // first come, first served

	holder  dmutex.NodeID // what known returned after the last input
	learned clock.Steady  // when known first returned that; of no use while it is None

	listed bool // in Table.resting
	used   bool // since the list was last gone through
	shared bool // the present grant shares the lock with other nodes
}

// born gives the lock the machine of this view. A holder that was reported seeds
// one machine only: what was born, used and forgotten since is free.
func (l *lock) born() {
	t := l.table
	if !t.acting || l.machine != nil {
		return
	}
	start := t.start
	t.carried.Start(l.name, &start)
	t.carried.Forget(l.name)
	start.Home = Home(l.name, start.Members)
	machine, err := t.cfg.Algorithm(start)
	if err != nil && len(start.Sharers) > 0 && start.Holder == dmutex.None { // nobody has it: the algorithm lets one node in at a time
		t.cfg.Up.Refused(start.Sharers[0], &Error{l.name, start.Sharers[0], err})
		start.Sharers = nil
		machine, err = t.cfg.Algorithm(start)
	}
	if err != nil {
		panic("node: " + err.Error()) // it took a Start with these members, or the view would not act
	}
	l.machine, l.epoch = machine, t.epoch
	if known := l.known(); known != l.holder {
		l.holder, l.learned = known, t.acted
	}
	if t.start.Sibling == nil {
		t.start.Sibling = machine
	}
	l.trace(trace.Event{What: trace.Born, Clock: start.Clock, Known: start.Known, Limit: start.Limit, Fence: start.Fence, Holder: start.Holder, Sharers: start.Sharers, Home: start.Home, Phase: machine.Phase(), Shared: l.in(dmutex.Held) && l.shares()})
	if l.sharer() == nil {
		l.fail(ErrUnshared, func(w *Waiter) bool { return w.Shares })
	}
	if l.isHeld() && machine.Phase() != dmutex.Held { // another member has reported a later grant
		for _, h := range l.held() {
			h.end(overruled)
			t.repaid(h)
		}
		l.none()
	}
}

// lives reports whether the lock has a machine in the view that acts.
func (l *lock) lives() bool { return l.machine != nil && l.table.acts(l.epoch) }

// freeze ends the machine of a view that is over. It comes before anything else that is done to the lock.
func (l *lock) freeze() {
	t := l.table
	if l.machine == nil || l.lives() {
		return
	}
	if t.word != nil && t.word.Epoch == l.epoch {
		carryover.Note(t.word, l.name, l.machine, t.newborn(t.fresh.of(t.word), t.word, Home(l.name, t.word.Members), &free).bits)
	}
	l.drop()
	l.listed, l.used = false, false
	l.fail(ErrViewChanged, func(w *Waiter) bool { return w.Try || w.Claims != nil })
}

// known returns the holder of the lock if the machine is a Coordinator that knows it.
func (l *lock) known() dmutex.NodeID {
	if m, ok := l.machine.(dmutex.Coordinator); ok {
		return m.Holder()
	}
	return dmutex.None
}

// in reports whether the lock has a machine in that phase.
func (l *lock) in(p dmutex.Phase) bool { return l.machine != nil && l.machine.Phase() == p }

// drop takes the machine away.
func (l *lock) drop() {
	l.machine = nil
	l.trace(trace.Event{What: trace.Forget})
}

func (l *lock) handle(m *trace.Message) {
	t := l.table
	out, err := l.machine.Handle(m.Message)
	if err != nil {
		l.refused(trace.Handle, m, err)
		t.cfg.Up.Refused(m.From, err)
		if !l.rest() { // the algorithm has missed what was meant; a machine at rest misses nothing
			t.cfg.Up.Trouble(t.epoch, &Error{l.name, m.From, err})
		}
		return
	}
	t.received[m.Kind]++
	l.send(trace.Handle, m, out)
	l.settle()
}

// settle follows the machine after every input. Only here a phase becomes a grant, and the next
// local waiter gets its request: a new one, behind the other nodes'.
func (l *lock) settle() {
	l.freeze()
	if known := l.known(); known != l.holder {
		if l.holder = known; known != dmutex.None {
			l.learned = l.table.cfg.Mail.Now()
		}
	}
	l.tellWanted()
	if len(l.waiters) == 0 {
		l.rest()
		return
	}
	grants := l.table.grants()
	if !grants {
		l.table.parked.Store(true)
		grants = l.table.grants() // it may have been renewed before that
	}
	for l.machine != nil && len(l.waiters) > 0 {
		switch l.machine.Phase() {
		case dmutex.Held:
			switch {
			case l.isHeld() && !l.open() || l.table.Why() != nil:
			case grants && (l.waiters[0].Shares || !l.shares()):
				l.grant()
			case !l.isHeld(): // a grant that comes after the lease is none, and one to share is none for a waiter that does not
				l.release()
			}
			return
		case dmutex.Waiting:
			return
		case dmutex.Idle:
			if !grants || l.waiters[0].Claims == nil && (l.waits() || l.turns()) || !l.request() {
				l.rest()
				return
			}
		}
	}
	l.rest()
}

// grant grants the lock to the first waiter and, if that shares, to all that share and follow it.
func (l *lock) grant() {
	for batch := l.waiters[0].Shares; ; {
		w := l.waiters[0]
		if l.waiters = slices.Delete(l.waiters, 0, 1); len(l.waiters) == 0 {
			l.waiters = nil
		}
		h := &Held{lock: l, fence: l.machine.Fence(), since: w.since, ctx: w.ctx}
		if w.tell != nil {
			h.since = l.table.cfg.Mail.Now()
		}
		if !l.isHeld() {
			l.shared = l.shares()
		} else {
			h.fence = l.held()[0].fence // that of all, also if the view has changed since
		}
		l.add(h)
		l.table.granted++
		w.finish(h, nil)
		if !batch || len(l.waiters) == 0 || !l.waiters[0].Shares {
			return
		}
	}
}

// waits reports whether former members may hold the lock.
func (l *lock) waits() bool {
	former := l.former()
	if len(former) > 0 {
		l.trace(trace.Event{What: trace.Waits, Members: former})
	}
	return len(former) > 0
}

// request asks for the first waiter. If it cannot, all waiters fail, or wait for the next epoch if
// this one is used up.
func (l *lock) request() (asked bool) {
	if err := l.table.obstacle(); err != nil {
		l.fail(err, all)
		return false
	}
	did := trace.Request
	var out []dmutex.Message
	var err error
	if l.waiters[0].Shares {
		did = trace.Share
		out, err = l.machine.(dmutex.Sharer).Share()
	} else {
		out, err = l.machine.Request()
	}
	switch {
	case errors.Is(err, dmutex.ErrExhausted):
		l.refused(did, nil, err)
		l.table.cfg.Up.Trouble(l.table.epoch, &Error{Lock: l.name, Err: err})
		return false
	case err != nil:
		panic("node: " + err.Error()) // only called while Idle
	}
	l.send(did, nil, out)
	if w := l.waiters[0]; w.Try && w.ready == nil { // it is joining
		for i := range out {
			w.asked = append(w.asked, l.table.cfg.Mail.Receipt(out[i].To))
		}
	}
	return true
}

// send queues the machine's output for the peers, and records the input that caused it (for in see step). An
// algorithm does not survive a message that is lost. A peer that has closed its mail has lost all: it is waited for.
func (l *lock) send(did trace.What, in *trace.Message, out []dmutex.Message) {
	t := l.table
	step := l.step(did, in)
	for i := range out {
		m := &out[i]
		t.message = message.Append(t.message[:0], l.name, *m)
		seq, err := t.cfg.Mail.Send(m.To, t.message)
		if err == nil {
			t.sent[m.Kind]++
		} else if !errors.Is(err, stream.ErrClosed) { // trouble about a node that is no peer any more is about an older view
			t.cfg.Up.Trouble(t.epoch, &Error{l.name, m.To, ErrOverflow})
		}
		if step != nil {
			step.Out = append(step.Out, trace.Message{Seq: seq, Message: *m}) // without a number if it was not sent
		}
	}
	if step != nil {
		l.trace(*step)
	}
}

// release ends a grant that has no handle. While the view does not act, the peers learn of the
// release when it does.
func (l *lock) release() {
	l.born()
	if l.in(dmutex.Held) {
		out, err := l.machine.Release()
		if err != nil {
			panic("node: " + err.Error()) // only called while Held
		}
		l.send(trace.Release, nil, out)
	}
	l.settle()
}

func (l *lock) withdraw() {
	out, err := l.machine.Cancel()
	if err != nil {
		panic("node: " + err.Error()) // only called while Waiting
	}
	l.send(trace.Cancel, nil, out)
}

// fail ends the wait of some waiters, which are taken out of the list before they are told. Once it is told, a
// waiter belongs to its caller, who may use it again, and the list may lie in the memory of its first waiter.
func (l *lock) fail(why error, some func(*Waiter) bool) {
	out := slices.DeleteFunc(slices.Clone(l.waiters), func(w *Waiter) bool { return !some(w) })
	l.waiters = slices.DeleteFunc(l.waiters, some)
	for _, w := range out {
		w.finish(nil, why)
	}
}

func all(*Waiter) bool { return true }

// keepResting is how many locks are kept that could be forgotten, in case they are used again.
const keepResting = 512

// rest lists the lock if it may be forgotten, in place of one that was not used since the
// list was last gone through.
func (l *lock) rest() (fresh bool) {
	t := l.table
	if l.isHeld() || len(l.waiters) > 0 {
		return false
	}
	if l.machine == nil {
		delete(t.locks, l.name)
		delete(t.waiting, l.name)
		return true
	}
	if _, _, fresh = l.machine.Forget(); !fresh {
		return false
	}
	if l.used = l.listed; l.listed {
		return true
	}
	at := &t.resting[t.oldest]
	for ; *at != nil && (*at).used; at = &t.resting[t.oldest] {
		(*at).used = false
		t.oldest = (t.oldest + 1) % keepResting
	}
	if former := *at; former != nil {
		former.listed = false
		former.forget()
	}
	*at, l.listed = l, true
	t.oldest = (t.oldest + 1) % keepResting
	return true
}

// forget removes a lock that has rested, unless it is in use again.
func (l *lock) forget() {
	t := l.table
	if l.isHeld() || len(l.waiters) > 0 {
		return
	}
	if clock, known, fresh := l.machine.Forget(); fresh {
		t.start.Clock, t.start.Known = max(t.start.Clock, clock), max(t.start.Known, known)
		l.drop()
		delete(t.locks, l.name)
	}
}

// trace records what happened to the lock, now unless e says when.
func (l *lock) trace(e trace.Event) {
	if r := l.table.cfg.Trace; r != nil {
		if e.Time == 0 {
			e.Time = int64(l.table.cfg.Mail.Now().Age())
		}
		e.Lock = l.name
		r.Record(&e)
	}
}

// step returns an input of the machine, which has taken or refused it, or nil without a recorder.
// in is the message of a Handle, else nil. The time is before that of the output's arrival.
func (l *lock) step(what trace.What, in *trace.Message) *trace.Event {
	if l.table.cfg.Trace == nil {
		return nil
	}
	e := &trace.Event{Time: int64(l.table.cfg.Mail.Now().Age()), What: what, Phase: l.machine.Phase(), Fence: l.machine.Fence(), Shared: l.in(dmutex.Held) && l.shares()}
	if in != nil {
		e.In = *in
	}
	return e
}

// refused records an input that the machine has refused.
func (l *lock) refused(what trace.What, in *trace.Message, why error) {
	if e := l.step(what, in); e != nil {
		e.Err = why.Error()
		l.trace(*e)
	}
}
