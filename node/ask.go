package node

import (
	"context"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// Ask asks whoever holds the lock, at any node, this one too, to give it back:
// [Held.Asked] tells them. It takes nothing from anybody. Whether the lock is
// given back, and when, is the holder's decision, and Ask does not wait for it.
//
// Whoever holds the lock when its node hears of it is asked, and no later holder.
// While the lock is handed over, that may be two, or nobody, so whoever still
// waits asks again: to be asked twice is to be asked once. Those that hold
// without a handle do not hear of it: the functions of [Mutex.Do] and of
// [Election.Campaign], and who uses a [Mutex.Locker].
//
// It costs one message to each other member. It first waits until this node has
// met all members, and returns ctx's error if ctx ends before that. Other errors:
// [ErrClosed]; a [PeerError] when a peer stands in the way; [dmutex.ErrMisuse]
// for a name that is empty or too long. After an error nobody was asked.
func (m *Mutex) Ask(ctx context.Context) error {
	if err := lawful(m.name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s, n := m.shard, m.node
	if err := n.Ready(ctx); err != nil {
		return err
	}
	defer n.mail.Flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.obstacle(); err != nil {
		return err
	}
	for _, p := range s.peers {
		_, _ = n.mail.Send(p, func(b []byte) []byte { return append(append(b, saysAsk), m.name...) }) // a peer that is gone holds nothing
	}
	if l := s.table[m.name]; l != nil {
		l.ask()
	}
	return nil
}

// asked takes a peer's request to give a lock back. It is looked up only: a lock
// that nobody here uses is not held here.
func (n *Node) asked(from dmutex.NodeID, name []byte) {
	if len(name) == 0 || len(name) > transport.MaxName {
		n.locks.refuse(from, dmutex.PeerMistake("it asks for a lock whose name is empty or too long"))
		return
	}
	s := n.locks.shardOf(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.table[string(name)]; l != nil {
		l.ask()
	}
}

// ask tells the holder, if it is at this node. A handle remembers it, for an
// Asked to come.
func (l *lock) ask() {
	if l.held == nil {
		return
	}
	asked := l.held.asking()
	select {
	case <-asked:
	default:
		close(asked)
	}
}

// Asked returns a channel that is closed once somebody has asked for the lock
// to be given back, by [Mutex.Ask], since it was granted to this handle; the end
// of the hold does not close it. A long work looks at it between two steps, or
// waits for it beside other things.
func (h *Held) Asked() <-chan struct{} {
	mu := &h.lock.shard.mu
	mu.Lock()
	defer mu.Unlock()
	return h.asking()
}

// asking returns the channel of Asked.
func (h *Held) asking() chan struct{} {
	c := h.own()
	if c.asked == nil {
		c.asked = make(chan struct{})
	}
	return c.asked
}
