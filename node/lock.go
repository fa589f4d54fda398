package node

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
)

// A shard is the locks whose names hash alike, under one mutex.
type shard struct {
	node *Node

	mu           sync.Mutex
	shared       dmutex.Shared // by the machines
	locks        table
	spare        *line           // for the next lock that needs one
	trying       *trial          // the TryAcquire whose request is being sent
	awaited      []dmutex.NodeID // scratch
	resting      []*lock         // may be forgotten, the longest so first; kept a while in case they come back
	clock, fence uint64          // the highest of all machines that were forgotten: every new one starts there
	sent         [dmutex.Kinds]uint64
	received     [dmutex.Kinds]uint64
	granted      uint64
	note         note
	owners       map[*Held]*Txn // whose the holds of transactions are, with Config.Deadlock
}

// keepResting is how many locks that may be forgotten a shard keeps before it
// forgets the longest unused.
const keepResting = 8

// A lock is one name in use at this node: its machine, and the goroutines that
// want it. Everything in it is guarded by the shard's mutex.
//
// There may be very many at once, most of them held and wanted by nobody else,
// so what such a lock can do without is elsewhere.
type lock struct {
	shard   *shard
	next    *lock // in a chain of the shard's table
	name    string
	machine dmutex.Machine
	held    *Held // the present grant
	line    *line // nil unless somebody waits or the lock is stopped
}

// A line is what a lock has while somebody waits for it, and when it is stopped.
type line struct {
	waiters []waiter // first come, first served
	broken  error    // why this lock is stopped at this node

	// For an Observer, for which the line stays until the lock is Idle.
	messages int   // sent and received since the request
	freed    int64 // when the last hold ended, if somebody was waiting and is still; else 0
}

// A waiter is a handle that is not granted yet.
type waiter struct {
	held  *Held
	told  *Wait         // for an Observer; else nil
	ready chan struct{} // closed when the wait is over; nil while it may be over at once
}

// become ends the wait: with a grant, or for the reason given.
func (w waiter) become(over *error) {
	w.held.over.Store(over)
	if w.ready != nil {
		close(w.ready)
	}
}

func (l *lock) waiters() []waiter {
	if l.line == nil {
		return nil
	}
	return l.line.waiters
}

// broken returns why this lock is stopped at this node, nil while it works.
func (l *lock) broken() error {
	if l.line == nil {
		return nil
	}
	return l.line.broken
}

// needLine gives the lock a line if it has none.
func (l *lock) needLine() *line {
	if l.line == nil {
		l.line, l.shard.spare = l.shard.spare, nil
	}
	if l.line == nil {
		l.line = new(line)
	}
	return l.line
}

// dropLine takes the line away when there is nothing in it.
func (l *lock) dropLine() {
	switch {
	case l.line == nil || len(l.line.waiters) > 0 || l.line.broken != nil:
		return
	case l.shard.node.cfg.Observer != nil && l.machine.Phase() != dmutex.Idle:
		return
	}
	l.line.freed = 0
	if cap(l.line.waiters) <= keepWaiters {
		l.shard.spare = l.line
	}
	l.line = nil
}

// keepWaiters is for how many waiters a spare line may have room.
const keepWaiters = 64

// lock returns the lock of that name, with a new machine if it is not in use.
func (s *shard) lock(hash uint64, name string) (*lock, error) {
	if l := s.locks.find(hash, name); l != nil {
		return l, nil
	}
	start := s.node.start
	start.Clock, start.Fence, start.Shared = s.clock, s.fence, &s.shared
	machine, err := s.node.cfg.Algorithm(start)
	if err != nil {
		return nil, err
	}
	l := &lock{shard: s, name: name, machine: machine}
	s.locks.add(hash, l)
	l.trace(trace.Event{What: trace.Born, Clock: start.Clock, Fence: start.Fence, Phase: machine.Phase()})
	return l, nil
}

// handle takes a peer's message to its lock.
func (s *shard) handle(hash uint64, name []byte, m trace.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks.findBytes(hash, name)
	if l == nil {
		var err error
		if l, err = s.lock(hash, string(name)); err != nil {
			s.node.failClosed(&PeerError{m.From, err})
			return
		}
	}
	if l.broken() != nil {
		return
	}
	out, err := l.machine.Handle(m.Message)
	if err != nil {
		l.refused(trace.Handle, m, err)
		s.node.refuse(m.From, err)
		if !l.rest() {
			l.stop(&PeerError{m.From, err}) // a message is not what it should be: never guess
		}
		return
	}
	s.received[m.Kind]++
	if l.line != nil {
		l.line.messages++
	}
	l.send(trace.Handle, m, out)
	l.settle()
}

// join makes h a waiter, and grants to it at once if that needs no answer. If
// not, ready will be closed when the wait is over.
func (l *lock) join(h *Held, told *Wait, trying *trial) (ready <-chan struct{}, err error) {
	s := l.shard
	if reason := s.node.downReason(); reason != nil {
		return nil, reason
	}
	if why := l.broken(); why != nil {
		return nil, why
	}
	h.lock, h.since = l, s.node.now()
	h.over.Store(&errPending)
	line := l.needLine()
	line.waiters = append(line.waiters, waiter{held: h, told: told})
	s.trying = trying
	l.settle()
	s.trying = nil
	switch {
	case !h.waits():
		return nil, h.Err()
	case trying != nil && trying.unheard == 0:
		l.quit(h, l.busy()) // somebody here has it, or is before us: nobody was asked
		return nil, h.Err()
	}
	last := &l.line.waiters[len(l.line.waiters)-1]
	last.ready = make(chan struct{})
	return last.ready, nil
}

// quit takes a waiter back, for the reason given. If it was the last, the request
// is withdrawn.
func (l *lock) quit(h *Held, why error) {
	i := slices.IndexFunc(l.line.waiters, func(w waiter) bool { return w.held == h })
	l.dequeue(i).become(&why)
	if len(l.waiters()) == 0 && l.machine.Phase() == dmutex.Waiting {
		l.withdraw()
	}
}

func (l *lock) dequeue(i int) waiter {
	w := l.line.waiters[i]
	l.line.waiters = slices.Delete(l.line.waiters, i, i+1)
	l.dropLine()
	return w
}

func (l *lock) withdraw() {
	out, err := l.machine.Cancel()
	if err != nil {
		panic("node: " + err.Error()) // only called while Waiting
	}
	l.send(trace.Cancel, trace.Message{}, out)
	l.settle()
}

// withdrawn reports whether a cancelled request is still in the protocol.
func (l *lock) withdrawn() bool {
	return l.machine.Pending() && l.machine.Phase() == dmutex.Idle
}

// release ends the present grant, for the reason given, and notes in told, if there
// is one, what an Observer is to be told. (Nobody has the handle of a grant that
// came while the node went down.)
func (l *lock) release(reason *error, told *Hold) {
	if l.held != nil {
		if told != nil {
			l.held.observe(*reason, told)
		}
		l.held.end(reason)
		delete(l.shard.owners, l.held)
		l.held = nil
	}
	out, err := l.machine.Release()
	if err != nil {
		panic("node: " + err.Error()) // only called while Held
	}
	l.send(trace.Release, trace.Message{}, out)
	if told != nil && l.line != nil {
		told.Messages = l.line.messages
		if len(l.line.waiters) > 0 {
			l.line.freed = l.shard.node.now()
		}
	}
	l.settle()
}

// settle follows the machine after every input. It is the one place where a
// phase becomes a grant, and where the next local waiter gets its request: a
// new one, behind the other nodes'.
func (l *lock) settle() {
	for l.broken() == nil && len(l.waiters()) > 0 {
		switch l.machine.Phase() {
		case dmutex.Held:
			if l.held == nil && l.shard.node.downReason() == nil {
				l.grant()
			}
			return
		case dmutex.Waiting:
			return
		case dmutex.Idle:
			l.request()
		}
	}
	if l.line != nil {
		l.dropLine()
	}
	l.rest()
}

func (l *lock) grant() {
	w := l.dequeue(0)
	h := w.held
	l.held = h
	l.shard.granted++
	h.fence = l.machine.Fence()
	if w.ready != nil { // it did wait
		h.since = l.shard.node.now()
	}
	if w.told != nil && l.line.freed != 0 {
		w.told.Handoff, l.line.freed = time.Duration(max(h.since-l.line.freed, 1)), 0
	}
	w.become(nil)
}

// request asks for the first waiter. If it cannot, all waiters fail.
func (l *lock) request() {
	if err := l.shard.node.obstacle(); err != nil {
		l.fail(err)
		return
	}
	l.line.messages = 0
	out, err := l.machine.Request()
	if err != nil {
		l.refused(trace.Request, trace.Message{}, err)
		l.fail(err)
		return
	}
	l.send(trace.Request, trace.Message{}, out)
}

// obstacle says why no new request can be made now.
func (n *Node) obstacle() error {
	if reason := n.downReason(); reason != nil {
		return reason
	}
	for _, p := range n.peers {
		if p.full.Load() {
			return &PeerError{p.id, ErrOverflow}
		}
	}
	return nil
}

// send queues the machine's output for the peers, and records the input that
// caused it; in is the message that a Handle was for. What cannot reach a peer
// stops the lock: an algorithm does not survive a gap. Only one that has left
// misses nothing, and what matters is whether something is awaited of it. But the
// token must not get lost in silence: somebody may want it who does not know, and
// never will, that the next on its way has left.
func (l *lock) send(did trace.What, in trace.Message, out []dmutex.Message) {
	var failed error
	asks := did == trace.Request
	l.input(did, in)
	for _, m := range out {
		var seq uint64
		if failed == nil {
			seq, failed = l.shard.node.peer(m.To).send(l.name, m, l.shard.trying)
		}
		if m.Kind != dmutex.Token && errors.Is(failed, ErrLeft) {
			failed, asks = nil, true
		} else if failed == nil {
			l.shard.sent[m.Kind]++
			if l.line != nil {
				l.line.messages++
			}
		}
		l.output(seq, m)
	}
	l.noted(nil)
	if failed != nil {
		l.stop(failed)
	} else if asks {
		for _, p := range l.shard.node.peers {
			if p.left.Load() {
				l.strand(p.id)
			}
		}
	}
}

// stop takes the lock out of service, here and by our word everywhere. A
// present holder keeps it.
func (l *lock) stop(why error) {
	if l.broken() == nil {
		l.shard.node.tellStopped(l.name, why)
		l.shut(why)
	}
}

// stopped takes a lock out of service on the word of a peer, which tells
// everybody else itself.
func (s *shard) stopped(hash uint64, name string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.lock(hash, name)
	if err == nil && l.broken() == nil {
		l.shut(why)
	}
}

func (l *lock) shut(why error) {
	l.needLine().broken = why
	l.trace(trace.Event{What: trace.Stop, Err: why.Error()})
	l.shard.node.note(lockStopped, l.name, why)
	l.fail(why)
}

func (l *lock) fail(why error) {
	if l.line == nil {
		return
	}
	for _, w := range l.line.waiters {
		w.become(&why)
	}
	l.line.waiters = nil
	l.dropLine()
}

// rest lists the lock if it may be forgotten, and forgets the one that has rested
// longest if there are too many.
func (l *lock) rest() (fresh bool) {
	if l.held != nil || len(l.waiters()) > 0 {
		return false
	}
	if _, _, fresh = l.forget(); !fresh {
		return false
	}
	s := l.shard
	if i := slices.Index(s.resting, l); i >= 0 {
		s.resting = slices.Delete(s.resting, i, i+1)
	}
	s.resting = append(s.resting, l)
	if len(s.resting) > keepResting {
		oldest := s.resting[0]
		s.resting = slices.Delete(s.resting, 0, 1)
		if clock, fence, fresh := oldest.forget(); fresh {
			s.clock, s.fence = max(s.clock, clock), max(s.fence, fence)
			s.locks.remove(oldest)
			oldest.trace(trace.Event{What: trace.Forget})
		}
	}
	return true
}

// forget asks the machine whether nothing would be lost by forgetting it. A lock
// that is stopped must be remembered.
func (l *lock) forget() (clock, fence uint64, ok bool) {
	if l.broken() != nil {
		return 0, 0, false
	}
	return l.machine.Forget()
}

func (l *lock) busy() error { return &BusyError{l.name, l.holder()} }

// holder returns who holds the lock, as far as this node can know: who the
// machine says if it is a Coordinator, else whether it is this node.
func (l *lock) holder() dmutex.NodeID {
	if m, ok := l.machine.(dmutex.Coordinator); ok {
		return m.Holder()
	}
	if l.held != nil {
		return l.shard.node.cfg.Self
	}
	return dmutex.None
}

// strand is for when a peer has left, and all that it said was heard: it stops
// every lock whose request awaits more of it.
func (s *shard) strand(left dmutex.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.locks.all() {
		l.strand(left)
	}
}

// strand stops the lock if its request, withdrawn or not, awaits something of one
// that has left.
func (l *lock) strand(left dmutex.NodeID) {
	l.shard.awaited = l.machine.WaitsFor(l.shard.awaited[:0])
	if slices.Contains(l.shard.awaited, left) {
		l.stop(&PeerError{left, ErrLeft})
	}
}

// abandon ends everything local for Close, and returns what an Observer is to be
// told.
func (s *shard) abandon() (lost []Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range slices.Collect(s.locks.all()) { // some will be forgotten meanwhile
		l.fail(ErrClosed)
		switch l.machine.Phase() {
		case dmutex.Held:
			if l.held != nil && strings.HasPrefix(l.name, electionPrefix) {
				l.held.end(&closed) // its function may still run: nobody else may lead yet
				continue
			}
			var hold Hold
			if l.release(&closed, &hold); s.node.cfg.Observer != nil {
				lost = append(lost, hold)
			}
		case dmutex.Waiting:
			l.withdraw()
		}
	}
	return lost
}

// lingers reports whether, after abandon, a lock of this shard is still held,
// or a cancelled request still in the protocol, where it can move.
func (s *shard) lingers(mute bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.locks.all() {
		if l.held != nil || !mute && l.broken() == nil && l.withdrawn() {
			return true
		}
	}
	return false
}

// undrained notes the name of a lock that is still held, and the peers of which
// withdrawn requests await something, also what this node has lent them.
func (s *shard) undrained(held *string, owing *[]dmutex.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.locks.all() {
		if l.held != nil {
			*held = l.name
		}
		if l.broken() == nil && l.withdrawn() {
			*owing = l.machine.WaitsFor(*owing)
			if m, ok := l.machine.(dmutex.Lender); ok && m.Lends() != dmutex.None && m.Lends() != s.node.cfg.Self {
				*owing = append(*owing, m.Lends())
			}
		}
	}
}

// confess stops the locks that are still held, and those in which a request of
// this node is outstanding, now that it leaves: the others may owe it an answer
// that comes too late for anybody to notice.
func (s *shard) confess() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.locks.all() {
		if l.held != nil || l.withdrawn() {
			l.stop(&PeerError{s.node.cfg.Self, ErrLeft})
		}
	}
}
