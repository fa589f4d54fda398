package node

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/membership"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/mail"
	"github.com/dmutex/dmutex/transport/session"
)

// locks is all locks at this node, in shards by name. It sends the messages of the
// machines by mail. The views call freeze and act; the locks call trouble to ask for
// another view.
type locks struct {
	cfg    *Config
	mail   *mail.Mail
	log    *logger // nil without Config.Logger
	seed   maphash.Seed
	shards [shards]shard
	trials trials

	ended context.Context         // nothing more is granted once it has ended
	end   context.CancelCauseFunc // the first cause stays

	clock  *clock        // of the lease; nil without a store
	until  atomic.Int64  // by it: nothing is granted from then on
	expire func()        // ends what is held if that time has come
	parked atomic.Bool   // a lock waits for the lease to be valid
	lease  atomic.Uint32 // a LeaseState

	lapsed atomic.Pointer[chan struct{}] // closed at the next lapse

	epoch    atomic.Uint32 // of the view that was installed last
	troubled atomic.Pointer[trouble]
	refused  atomic.Uint64 // messages and frames that no correct peer sends
	gaveBack chan struct{} // poked when a lock was released; Close waits for that
}

const (
	shards = 64

	// keepResting is how many locks a shard keeps that it could forget. Beyond it the
	// least recently used is forgotten.
	keepResting = 8

	// earlyBuffer bounds the messages that one shard keeps until their view acts,
	// in bytes of memory.
	earlyBuffer = 512 << 10
)

// errEarly is a trouble.
var errEarly = errors.New("node: messages for a view that does not act yet exceed their buffer")

// A trouble is why the view of an epoch is to be replaced.
type trouble struct {
	epoch uint32
	err   error
}

// A shard is the locks whose names hash alike, under one mutex. It has the
// machines of one view at a time.
type shard struct {
	*locks

	mu     sync.Mutex
	table  map[string]*lock
	epoch  uint32       // of the view that is installed; 0 before the first
	acting bool         // the machines of the view may be born
	start  dmutex.Start // of all of them, but for Holder; Clock and Fence are the highest of those that were forgotten
	shared *dmutex.Shared

	holders map[string]dmutex.NodeID // reported in the view, and no machine was born from it yet
	early   []early                  // messages of this view, before it acts, and of later ones
	room    int                      // that they take
	dropped bool                     // one of them found no room since a view last acted

	trying   *trial  // the TryAcquire whose request is being sent
	resting  []*lock // may be forgotten, the least recently used first; kept in case they are used again
	sent     [dmutex.Kinds]uint64
	received [dmutex.Kinds]uint64
	granted  uint64
	step     step
	owners   map[*Held]*Txn // the transactions that own holds, with Config.Deadlock
}

// A lock is one name in use at this node: its machine, and the goroutines that
// want it. It outlives the machine if it is held or waited for. Everything in it
// is guarded by the shard's mutex.
type lock struct {
	shard   *shard
	name    string
	machine dmutex.Machine // nil while the view does not act
	held    *Held          // the present grant
	waiters []waiter       // first come, first served

	// For an Observer.
	messages int   // sent and received since the request
	freed    int64 // when the last hold ended, if a goroutine was waiting and still is; else 0
}

// A waiter is a handle that is not granted yet.
type waiter struct {
	held  *Held
	told  *Wait         // for an Observer; else nil
	trial *trial        // of a TryAcquire; else nil
	ready chan struct{} // closed when the wait is over; nil while it may be over at once
}

// become ends the wait: with a grant, or for the reason given.
func (w waiter) become(over *error) {
	w.held.over.Store(over)
	if w.ready != nil {
		close(w.ready)
	}
}

// An early is a message that waits for its view to act.
type early struct {
	name    string
	message trace.Message
}

func (ls *locks) init(cfg *Config, m *mail.Mail, log *logger, views *views) {
	ls.cfg, ls.mail, ls.log, ls.clock, ls.expire = cfg, m, log, views.clock(), views.expire
	ls.until.Store(math.MinInt64)
	lapsed := make(chan struct{})
	ls.lapsed.Store(&lapsed)
	ls.seed = maphash.MakeSeed()
	ls.ended, ls.end = context.WithCancelCause(context.Background())
	ls.gaveBack = make(chan struct{}, 1)
	for i := range ls.shards {
		ls.shards[i].locks = ls
		ls.shards[i].table = make(map[string]*lock)
	}
}

// why returns why nothing more is granted, nil while all is well.
func (ls *locks) why() error { return context.Cause(ls.ended) }

// leased reports whether the lease of this node is valid. Without a store it always is.
func (ls *locks) leased() bool { return ls.clock == nil || ls.clock.now() < ls.until.Load() }

func (ls *locks) shard(name string) *shard {
	return &ls.shards[maphash.String(ls.seed, name)%shards]
}

func (ls *locks) shardOf(name []byte) *shard {
	return &ls.shards[maphash.Bytes(ls.seed, name)%shards]
}

// trouble asks for another view in place of that of the epoch. It may be called
// under a shard's mutex: the goroutine that keeps time passes it on. That of a later
// epoch stays.
func (ls *locks) trouble(epoch uint32, err error) {
	t := &trouble{epoch, err}
	for {
		former := ls.troubled.Load()
		if former != nil && former.epoch > epoch {
			return
		}
		if ls.troubled.CompareAndSwap(former, t) {
			break
		}
	}
	ls.mail.Wake(math.MinInt64)
}

// refuse counts and logs what no correct peer sends.
func (ls *locks) refuse(from dmutex.NodeID, err error) {
	ls.refused.Add(1)
	ls.log.tellOften(slog.LevelWarn, "refused what no correct peer sends", peerAttr(from), slog.Any("err", err))
}

// poke tells a Close that a lock was released.
func (ls *locks) poke() {
	select {
	case ls.gaveBack <- struct{}{}:
	default:
	}
}

// each calls f for one shard after the other, under its mutex.
func (ls *locks) each(f func(s *shard)) {
	for i := range ls.shards {
		s := &ls.shards[i]
		func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			f(s)
		}()
	}
}

// freeze ends the machines of all older views, and returns what this node holds. self
// is its number in the view.
func (ls *locks) freeze(v membership.View, self dmutex.NodeID) (holds []membership.Hold) {
	ls.epoch.Store(v.Epoch)
	ls.each(func(s *shard) { holds = append(holds, s.freeze(v, self)...) })
	return holds
}

// lapse ends all holds of this node, for the reason given. The locks stay taken until
// their holders release them, or giveBack does. Waiters go on waiting.
func (ls *locks) lapse(lost *error) {
	ls.each(func(s *shard) {
		for _, l := range s.table {
			if l.held != nil {
				l.held.end(lost)
			}
		}
	})
	next := make(chan struct{})
	close(*ls.lapsed.Swap(&next))
}

// giveBack releases what has lapsed, and returns what an Observer is to be told.
func (ls *locks) giveBack() (holds []Hold) {
	ls.each(func(s *shard) {
		for _, l := range slices.Collect(maps.Values(s.table)) { // some will be forgotten meanwhile
			if l.held != nil && l.held.lost() {
				var hold Hold
				l.release(l.held.over.Load(), &hold)
				holds = append(holds, hold)
			}
		}
	})
	return holds
}

// resume lets the locks go on after a lapse.
func (ls *locks) resume() {
	ls.each(func(s *shard) {
		for _, l := range slices.Collect(maps.Values(s.table)) {
			l.settle()
		}
	})
}

// act lets the machines of the view be born, with the holders that were reported.
func (ls *locks) act(epoch uint32, holders []membership.Holder) {
	of := make(map[*shard][]membership.Holder)
	for _, h := range holders {
		s := ls.shard(h.Lock)
		of[s] = append(of[s], h)
	}
	ls.each(func(s *shard) { s.act(epoch, of[s]) })
}

func (s *shard) freeze(v membership.View, self dmutex.NodeID) (holds []membership.Hold) {
	s.epoch, s.acting = v.Epoch, false
	s.start = dmutex.Start{Self: self, Members: v.Nodes(), Fence: v.Fence}
	s.shared = new(dmutex.Shared)
	s.resting, s.holders = nil, nil
	for name, l := range s.table {
		l.drop()
		l.waiters = slices.DeleteFunc(l.waiters, func(w waiter) bool {
			if w.trial != nil {
				w.become(&errViewChanged)
			}
			return w.trial != nil
		})
		switch {
		case l.held != nil:
			holds = append(holds, membership.Hold{Lock: name, Fence: l.held.fence})
		case len(l.waiters) == 0:
			delete(s.table, name)
		}
	}
	s.rehandle()
	return holds
}

func (s *shard) act(epoch uint32, holders []membership.Holder) {
	if s.epoch != epoch {
		return
	}
	s.acting = true
	s.holders = make(map[string]dmutex.NodeID, len(holders))
	for _, h := range holders {
		s.holders[h.Lock] = h.Node
	}
	for _, l := range slices.Collect(maps.Values(s.table)) { // some may be forgotten meanwhile
		l.born()
		l.settle()
	}
	for _, h := range holders {
		if h.Node != s.start.Self {
			continue
		}
		if l := s.lock(h.Lock); l.held == nil && l.machine.Phase() == dmutex.Held {
			l.release(nil, nil) // it was released, or lost, since the report
		}
	}
	s.rehandle()
	if s.dropped {
		s.dropped = false
		s.trouble(epoch, errEarly)
	}
}

// lock returns the lock of that name, and sees to it that it has a machine if the
// view acts.
func (s *shard) lock(name string) *lock {
	l := s.table[name]
	if l == nil {
		l = &lock{shard: s, name: name}
		s.table[name] = l
	}
	l.born()
	return l
}

// born gives the lock the machine of this view. A holder that was reported seeds
// one machine only: what was born, used and forgotten since is free.
func (l *lock) born() {
	s := l.shard
	if !s.acting || l.machine != nil {
		return
	}
	start := s.start
	start.Holder, start.Shared = s.holders[l.name], s.shared
	delete(s.holders, l.name)
	machine, err := s.cfg.Algorithm(start)
	if err != nil {
		panic("node: " + err.Error()) // it took a Start with these members, or the view would not act
	}
	l.machine = machine
	l.trace(trace.Event{What: trace.Born, Clock: start.Clock, Fence: start.Fence, Holder: start.Holder, Phase: machine.Phase()})
	if l.held != nil && machine.Phase() != dmutex.Held { // another member has reported a later grant
		l.held.end(&overruled)
		delete(s.owners, l.held)
		l.held = nil
	}
}

// drop takes the machine away.
func (l *lock) drop() {
	if l.machine != nil {
		l.machine = nil
		l.trace(trace.Event{What: trace.Forget})
	}
}

// handle takes a peer's message to its lock. A message of an older view is dropped,
// one of a view that does not act yet is kept.
func (s *shard) handle(name []byte, m trace.Message) {
	switch epoch := dmutex.Epoch(m.Fence); {
	case epoch < s.epoch:
	case epoch == s.epoch && s.acting:
		l := s.table[string(name)] // does not allocate
		if l == nil {
			l = s.lock(string(name))
		}
		l.handle(m)
	default:
		s.keep(early{string(name), trace.Message{Seq: m.Seq, Message: m.Clone()}})
	}
}

// rehandle handles the messages that were kept for a later view: it may have come, or
// will not come any more.
func (s *shard) rehandle() {
	kept := s.early
	s.early, s.room = nil, 0
	for _, e := range kept {
		s.handle([]byte(e.name), e.message)
	}
}

// keep keeps a message until its view acts. If there is no room, those of the
// latest epochs go first: their views may never be.
func (s *shard) keep(e early) {
	for s.room+e.size() > earlyBuffer {
		s.dropped = true
		last := 0
		for i := range s.early {
			if s.early[i].epoch() > s.early[last].epoch() {
				last = i
			}
		}
		if len(s.early) == 0 || s.early[last].epoch() <= e.epoch() {
			return
		}
		s.room -= s.early[last].size()
		s.early = slices.Delete(s.early, last, last+1)
	}
	s.early, s.room = append(s.early, e), s.room+e.size()
}

func (e early) epoch() uint32 { return dmutex.Epoch(e.message.Fence) }

func (e early) size() int {
	return 192 + len(e.name) + 8*len(e.message.Numbers) + 8*len(e.message.Nodes)
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
	l.messages++
	l.send(trace.Handle, m, out)
	l.settle()
}

// join makes h a waiter, and grants to it at once if that needs no answer. If
// not, ready will be closed when the wait is over.
func (l *lock) join(h *Held, told *Wait, try *trial) (ready <-chan struct{}, err error) {
	s := l.shard
	reason := s.why()
	if reason == nil && try != nil && (!s.acting || !s.leased()) {
		reason = errViewChanged
	}
	if reason != nil {
		l.rest()
		return nil, reason
	}
	if try != nil {
		try.lock = l
	}
	h.lock, h.since = l, s.mail.Now()
	h.over.Store(&errPending)
	l.waiters = append(l.waiters, waiter{held: h, told: told, trial: try})
	s.trying = try
	l.settle()
	s.trying = nil
	switch {
	case !h.waits():
		return nil, h.err()
	case try != nil && try.unheard == 0:
		l.quit(h, l.busy()) // it is taken at this node, or others wait here: no peer was asked
		return nil, h.err()
	}
	last := &l.waiters[len(l.waiters)-1]
	last.ready = make(chan struct{})
	return last.ready, nil
}

// quit takes a waiter back, for the reason given. If it was the last, the request
// is withdrawn.
func (l *lock) quit(h *Held, why error) {
	i := slices.IndexFunc(l.waiters, func(w waiter) bool { return w.held == h })
	w := l.waiters[i]
	l.waiters = slices.Delete(l.waiters, i, i+1)
	w.become(&why)
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

// release ends the present grant, for the reason given, and fills told for an
// Observer, unless it is nil. While the view does not act, the peers learn of the
// release when it does.
func (l *lock) release(reason *error, told *Hold) {
	if l.held != nil {
		if l.held.lost() {
			reason = l.held.over.Load() // before this one
		}
		if told != nil {
			l.held.observe(*reason, told)
		}
		l.held.end(reason)
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
	if told != nil {
		told.Messages = l.messages
		if len(l.waiters) > 0 {
			l.freed = l.shard.mail.Now()
		}
	}
	l.settle()
}

// settle follows the machine after every input. It is the one place where a
// phase becomes a grant, and where the next local waiter gets its request: a
// new one, behind the other nodes'.
func (l *lock) settle() {
	if len(l.waiters) == 0 {
		l.rest()
		return
	}
	leased := l.shard.leased()
	if !leased {
		l.shard.parked.Store(true)
		leased = l.shard.leased() // it may have been renewed before that
	}
	for l.machine != nil && len(l.waiters) > 0 {
		switch l.machine.Phase() {
		case dmutex.Held:
			switch {
			case l.held != nil || l.shard.why() != nil:
			case leased:
				l.grant()
			default: // a grant that comes after the lease is none
				l.release(nil, nil)
			}
			return
		case dmutex.Waiting:
			return
		case dmutex.Idle:
			if !leased || !l.request() {
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
	h := w.held
	l.held = h
	l.shard.granted++
	h.fence = l.machine.Fence()
	if w.ready != nil { // it did wait
		h.since = l.shard.mail.Now()
	}
	if w.told != nil && l.freed != 0 {
		w.told.Away = time.Duration(max(h.since-l.freed, 1))
	}
	l.freed = 0
	w.become(nil)
}

// request asks for the first waiter. If it cannot, all waiters fail; but if the
// epoch is used up they wait for the next.
func (l *lock) request() (asked bool) {
	if err := l.shard.obstacle(); err != nil {
		l.fail(err)
		return false
	}
	l.messages = 0
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
			l.messages++
			if s.trying != nil {
				s.trials.add(s.trying, m.To, seq)
			}
		} else if !errors.Is(err, session.ErrClosed) { // trouble about a node that is no peer any more is about an older view
			s.trouble(s.epoch, &LockError{l.name, &PeerError{m.To, ErrOverflow}})
		}
		l.output(seq, m)
	}
	l.recorded(nil)
}

func (l *lock) fail(why error) {
	for _, w := range l.waiters {
		w.become(&why)
	}
	l.waiters = nil
}

// rest lists the lock if it may be forgotten. If too many are listed, it forgets the
// least recently used.
func (l *lock) rest() (fresh bool) {
	s := l.shard
	if l.held != nil || len(l.waiters) > 0 {
		return false
	}
	l.freed = 0
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
	if clock, fence, fresh := l.machine.Forget(); fresh {
		s.start.Clock, s.start.Fence = max(s.start.Clock, clock), max(s.start.Fence, fence)
		l.drop()
		delete(s.table, l.name)
		if len(s.table) == 0 {
			s.table = make(map[string]*lock) // a map does not shrink
		}
	}
}

func (l *lock) busy() error { return &BusyError{l.name, l.holder()} }

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

// abandon ends all waits and, with the cause given, all holds, and returns what an
// Observer is to be told. The lock of an election is released by its holder: its
// function may still run, and nobody else may lead yet. Unless release is false the
// peers are told.
func (ls *locks) abandon(why, lost *error, release bool) (holds []Hold) {
	ls.each(func(s *shard) { holds = append(holds, s.abandon(why, lost, release)...) })
	return holds
}

func (s *shard) abandon(why, lost *error, release bool) (holds []Hold) {
	for _, l := range slices.Collect(maps.Values(s.table)) { // some will be forgotten meanwhile
		l.fail(*why)
		switch {
		case l.held != nil && (!release || strings.HasPrefix(l.name, electionPrefix)):
			l.held.end(lost)
		case l.held != nil:
			var hold Hold
			l.release(lost, &hold)
			holds = append(holds, hold)
		case l.machine != nil && l.machine.Phase() == dmutex.Held && release:
			l.release(nil, nil)
		case l.machine != nil && l.machine.Phase() == dmutex.Waiting && release:
			l.withdraw()
		}
	}
	return holds
}

// leads returns the name of a lock that is still held here, "" if there is none.
func (ls *locks) leads() (name string) {
	ls.each(func(s *shard) {
		for _, l := range s.table {
			if l.held != nil {
				name = l.name
			}
		}
	})
	return name
}
