package locks

import (
	"slices"

	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/trace"
)

// EarlyBuffer bounds the messages that are kept until their view acts, in bytes of
// memory.
const EarlyBuffer = 32 << 20

// An early is a message that waits for its view to act.
type early struct {
	name    string
	message trace.Message
}

// Handle takes a peer's message to its lock. A message of an older view is dropped,
// one of a view that does not act yet is kept.
func (t *Table) Handle(name []byte, m *trace.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handle(name, m)
}

func (t *Table) handle(name []byte, m *trace.Message) {
	if epoch := epochs.Of(m.Fence); t.acting && !t.late && epoch == t.epoch {
		l := t.locks[string(name)] // does not allocate
		if l == nil || !l.lives() {
			l = t.lock(string(name))
		}
		l.handle(m)
	} else if epoch >= t.epoch {
		t.keep(early{string(name), trace.Message{Seq: m.Seq, Message: m.Clone()}})
	}
}

// rehandle handles the kept messages: their view may have come, or will never come. It reports whether more
// of the view that acts have come meanwhile, which needs breathing.
func (t *Table) rehandle(breathing bool) (more bool) {
	kept := t.early
	t.early, t.room, t.latest = nil, 0, 0
	n := 0
	for i := range kept {
		e := &kept[i]
		switch epoch := e.epoch(); {
		case t.acting && epoch == t.epoch:
			t.lock(e.name).handle(&e.message)
		case epoch >= t.epoch:
			t.keep(*e)
		}
		if breathing {
			t.breathe(&n)
		}
	}
	return t.acting && slices.ContainsFunc(t.early, func(e early) bool { return e.epoch() == t.epoch })
}

// keep keeps a message until its view acts. If there is no room, it drops those of the latest epoch
// first, which may never be installed.
func (t *Table) keep(e early) {
	for t.room+e.size() > EarlyBuffer {
		t.dropped = true
		if e.epoch() >= t.latest {
			return
		}
		t.early = slices.DeleteFunc(t.early, func(e early) bool { return e.epoch() == t.latest })
		t.room, t.latest = 0, 0
		for _, e := range t.early {
			t.room, t.latest = t.room+e.size(), max(t.latest, e.epoch())
		}
	}
	t.early, t.room, t.latest = append(t.early, e), t.room+e.size(), max(t.latest, e.epoch())
}

func (e early) epoch() uint64 { return epochs.Of(e.message.Fence) }

func (e early) size() int {
	return 192 + len(e.name) + 8*len(e.message.Numbers) + 8*len(e.message.Nodes)
}
