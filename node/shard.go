package node

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/trace"
)

// A shard is the locks whose names hash alike, under one mutex. It has the
// machines of one view at a time.
type shard struct {
	*locks

	mu     sync.Mutex
	table  map[string]*lock
	epoch  uint64       // of the view that is installed; 0 before the first
	acting bool         // the machines of the view may be born
	start  dmutex.Start // of all of them, but for Holder; Clock and Known are the highest of those that were forgotten

	holders map[string]dmutex.NodeID // reported in the view, and no machine was born from it yet
	early   []early                  // messages of this view, before it acts, and of later ones
	room    int                      // that they take
	dropped bool                     // one of them found no room since a view last acted

	resting  []*lock // may be forgotten, the least recently used first; kept in case they are used again
	sent     [dmutex.Kinds]uint64
	received [dmutex.Kinds]uint64
	granted  uint64
	step     step
	owners   map[*Held]*Txn     // the transactions that own holds, with Config.Deadlock
	working  map[*Held]struct{} // holds, also lost ones, under which a function of Do runs
}

// earlyBuffer bounds the messages that one shard keeps until their view acts, in bytes
// of memory.
const earlyBuffer = 512 << 10

// errEarly is a trouble.
var errEarly = errors.New("node: messages for a view that does not act yet exceed their buffer")

// An early is a message that waits for its view to act.
type early struct {
	name    string
	message trace.Message
}

func (s *shard) freeze(v membership.View, self dmutex.NodeID) (holds []membership.Hold) {
	s.epoch, s.acting = v.Epoch, false
	s.start = startOf(v, self)
	s.resting, s.holders = nil, nil
	for name, l := range s.table {
		l.drop()
		l.waiters = slices.DeleteFunc(l.waiters, func(w *waiter) bool {
			if !w.try {
				return false
			}
			w.finish(nil, errViewChanged)
			return true
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

// startOf returns what the machines of a view are born with, but for the holder.
func startOf(v membership.View, self dmutex.NodeID) dmutex.Start {
	return dmutex.Start{
		Self: self, Members: v.Nodes(), Fence: membership.FirstFence(v.Epoch), Limit: membership.LastFence(v.Epoch),
	}
}

func (s *shard) act(epoch uint64, holders []membership.Holder) {
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
	start.Holder = s.holders[l.name]
	delete(s.holders, l.name)
	machine, err := s.cfg.Algorithm(start)
	if err != nil {
		panic("node: " + err.Error()) // it took a Start with these members, or the view would not act
	}
	l.machine = machine
	if s.start.Sibling == nil {
		s.start.Sibling = machine
	}
	l.trace(trace.Event{What: trace.Born, Clock: start.Clock, Known: start.Known, Limit: start.Limit, Fence: start.Fence, Holder: start.Holder, Phase: machine.Phase()})
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
	switch epoch := membership.EpochOf(m.Fence); {
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

func (e early) epoch() uint64 { return membership.EpochOf(e.message.Fence) }

func (e early) size() int {
	return 192 + len(e.name) + 8*len(e.message.Numbers) + 8*len(e.message.Nodes)
}

func (s *shard) abandon(why, lost *error, release bool) (holds []Hold) {
	for _, l := range slices.Collect(maps.Values(s.table)) { // some will be forgotten meanwhile
		l.fail(*why)
		switch {
		case l.held != nil && (!release || s.works(l.held)):
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

func (s *shard) works(h *Held) bool {
	_, works := s.working[h]
	return works
}
