package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/session"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
)

// A lock is one name in use at this node: its machine, and the goroutines that
// want it. It outlives the machine if it is held or waited for. Everything in it
// is guarded by the shard's mutex.
type lock struct {
	shard   *shard
	name    string
	machine dmutex.Machine // nil while the view does not act
	held    *Held          // the present grant
	waiters []*waiter      // first come, first served
}

// A waiter is a call of Acquire or TryAcquire that has not got the lock yet.
type waiter struct {
	lock  *lock
	ctx   context.Context   // the call's
	since int64             // when it began to wait, by Mail.Now
	try   bool              // it is a TryAcquire
	asked []<-chan struct{} // the receipts of its request, if it is one

	ready chan struct{} // closed when it is over; nil if it was over at once
	over  atomic.Bool   // then one of these is set
	held  *Held
	err   error
}

// waiters are kept for the next call, so that a call which gets the lock at once
// allocates nothing but its handle.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

// finish ends the wait, with a grant or an error.
func (w *waiter) finish(h *Held, err error) {
	w.held, w.err = h, err
	w.over.Store(true)
	if w.ready != nil {
		close(w.ready)
	}
}

func (l *lock) handle(m trace.Message) {
	s := l.shard
	out, err := l.machine.Handle(m.Message)
	if err != nil {
		l.refused(trace.Handle, m, err)
		s.refuse(m.From, err)
		if !l.rest() { // the algorithm has missed what was meant; a machine at rest misses nothing
			s.trouble(s.epoch, &LockError{l.name, &PeerError{m.From, err}})
		}
		return
	}
	s.received[m.Kind]++
	l.send(trace.Handle, m, out)
	l.settle()
}

// join makes w a waiter, and grants to it at once if that needs no answer.
func (l *lock) join(w *waiter) {
	s := l.shard
	w.lock, w.since = l, s.mail.Now()
	reason := s.why()
	if reason == nil && w.try && (!s.acting || !s.grants()) {
		reason = errViewChanged
	}
	if reason != nil {
		l.rest()
		w.finish(nil, reason)
		return
	}
	l.waiters = append(l.waiters, w)
	l.settle()
	if !w.over.Load() && w.try && w.asked == nil {
		l.quit(w, l.busy()) // it is taken at this node, or others wait here: no peer was asked
	}
	if !w.over.Load() {
		w.ready = make(chan struct{})
	}
}

// settle follows the machine after every input. It is the one place where a
// phase becomes a grant, and where the next local waiter gets its request: a
// new one, behind the other nodes'.
func (l *lock) settle() {
	if len(l.waiters) == 0 {
		l.rest()
		return
	}
	grants := l.shard.grants()
	if !grants {
		l.shard.parked.Store(true)
		grants = l.shard.grants() // it may have been renewed before that
	}
	for l.machine != nil && len(l.waiters) > 0 {
		switch l.machine.Phase() {
		case dmutex.Held:
			switch {
			case l.held != nil || l.shard.why() != nil:
			case grants:
				l.grant()
			default: // a grant that comes after the lease is none
				l.release(nil, nil)
			}
			return
		case dmutex.Waiting:
			return
		case dmutex.Idle:
			if !grants || !l.request() {
				l.rest()
				return
			}
		}
	}
	l.rest()
}

func (l *lock) grant() {
	w := l.waiters[0]
	l.waiters = slices.Delete(l.waiters, 0, 1)
	h := &Held{lock: l, fence: l.machine.Fence(), since: w.since, ctx: w.ctx}
	if w.ready != nil {
		h.since = l.shard.mail.Now()
	}
	l.held = h
	l.shard.granted++
	w.finish(h, nil)
}

// request asks for the first waiter. If it cannot, all waiters fail; but if the
// epoch is used up they wait for the next.
func (l *lock) request() (asked bool) {
	if err := l.shard.obstacle(); err != nil {
		l.fail(err)
		return false
	}
	out, err := l.machine.Request()
	switch {
	case errors.Is(err, dmutex.ErrExhausted):
		l.refused(trace.Request, trace.Message{}, err)
		l.shard.trouble(l.shard.epoch, &LockError{l.name, err})
		return false
	case err != nil:
		panic("node: " + err.Error()) // only called while Idle
	}
	l.send(trace.Request, trace.Message{}, out)
	if w := l.waiters[0]; w.try && w.ready == nil { // it is joining
		for _, m := range out {
			w.asked = append(w.asked, l.shard.mail.Receipt(m.To))
		}
	}
	return true
}

// obstacle says why no new request can be made now.
func (s *shard) obstacle() error {
	if reason := s.why(); reason != nil {
		return reason
	}
	for _, p := range s.start.Members {
		if s.mail.Full(p) {
			return &PeerError{p, ErrOverflow}
		}
	}
	return nil
}

// send queues the machine's output for the peers, and records the input that
// caused it; in is the message that a Handle was for. An algorithm does not
// survive a message that is lost. A peer that has closed its mail has lost all:
// it is missing, and is waited for.
func (l *lock) send(did trace.What, in trace.Message, out []dmutex.Message) {
	s := l.shard
	l.input(did, in)
	for _, m := range out {
		seq, err := s.mail.Send(m.To, func(b []byte) []byte { return transport.AppendMessage(b, l.name, m) })
		if err == nil {
			s.sent[m.Kind]++
		} else if !errors.Is(err, session.ErrClosed) { // trouble about a node that is no peer any more is about an older view
			s.trouble(s.epoch, &LockError{l.name, &PeerError{m.To, ErrOverflow}})
		}
		l.output(seq, m)
	}
	l.recorded(nil)
}

// release ends the present grant, for the reason given, and fills told for an
// Observer, unless it is nil. While the view does not act, the peers learn of the
// release when it does.
func (l *lock) release(reason *error, told *Hold) {
	if l.held != nil {
		l.held.end(reason)
		if told != nil {
			l.held.observe(l.held.err(), told)
		}
		delete(l.shard.owners, l.held)
		l.held = nil
	}
	if l.machine != nil && l.machine.Phase() == dmutex.Held {
		out, err := l.machine.Release()
		if err != nil {
			panic("node: " + err.Error()) // only called while Held
		}
		l.send(trace.Release, trace.Message{}, out)
	}
	l.settle()
}

// quit takes a waiter back, for the reason given. If it was the last, the request
// is withdrawn.
func (l *lock) quit(w *waiter, why error) {
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	w.finish(nil, why)
	switch {
	case len(l.waiters) > 0:
	case l.machine == nil:
		l.rest()
	case l.machine.Phase() == dmutex.Waiting:
		l.withdraw()
	}
}

func (l *lock) withdraw() {
	out, err := l.machine.Cancel()
	if err != nil {
		panic("node: " + err.Error()) // only called while Waiting
	}
	l.send(trace.Cancel, trace.Message{}, out)
	l.settle()
}

func (l *lock) fail(why error) {
	for _, w := range l.waiters {
		w.finish(nil, why)
	}
	l.waiters = nil
}

// keepResting is how many locks a shard keeps that it could forget. Beyond it the least
// recently used is forgotten.
const keepResting = 8

// rest lists the lock if it may be forgotten. If too many are listed, it forgets the
// least recently used.
func (l *lock) rest() (fresh bool) {
	s := l.shard
	if l.held != nil || len(l.waiters) > 0 {
		return false
	}
	if l.machine == nil {
		delete(s.table, l.name)
		return true
	}
	if _, _, fresh = l.machine.Forget(); !fresh {
		return false
	}
	if i := slices.Index(s.resting, l); i >= 0 {
		s.resting = slices.Delete(s.resting, i, i+1)
	}
	s.resting = append(s.resting, l)
	if len(s.resting) > keepResting {
		oldest := s.resting[0]
		s.resting = slices.Delete(s.resting, 0, 1)
		oldest.forget()
	}
	return true
}

// forget removes a lock that has rested, unless it is in use again.
func (l *lock) forget() {
	s := l.shard
	if l.held != nil || len(l.waiters) > 0 {
		return
	}
	if clock, known, fresh := l.machine.Forget(); fresh {
		s.start.Clock, s.start.Known = max(s.start.Clock, clock), max(s.start.Known, known)
		l.drop()
		delete(s.table, l.name)
	}
}

func (l *lock) busy() error { return &BusyError{l.name, l.holder(), l.held != nil} }

// holder returns the holder of the lock, as far as this node can know: this node
// itself, or what the machine says if it is a Coordinator.
func (l *lock) holder() dmutex.NodeID {
	if l.held != nil {
		return l.shard.start.Self
	}
	if m, ok := l.machine.(dmutex.Coordinator); ok {
		return m.Holder()
	}
	return dmutex.None
}
