package node

import (
	"context"
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport/session"
)

// What a node tells its recorder. Without one, each of these costs a nil check.

// openTrace writes the header.
func (n *Node) openTrace(life uint64) error {
	r := n.cfg.Trace
	if r == nil {
		return nil
	}
	text, err := trace.Describe(n.cfg.Algorithm, n.cfg.Self, n.cfg.Members)
	if err != nil {
		return err
	}
	h := trace.Header{
		Self: n.cfg.Self, Members: n.cfg.Members, Group: n.cfg.Group, Algorithm: text, Life: life, Opened: n.birth.UnixNano(),
	}
	return r.Open(h)
}

// closeTrace ends the trace, and waits until it is written.
func (n *Node) closeTrace(ctx context.Context) error {
	if n.cfg.Trace == nil {
		return nil
	}
	n.trace(trace.Event{What: trace.Close})
	if err := n.cfg.Trace.Flush(ctx); err != nil {
		return fmt.Errorf("node: trace: %w", err)
	}
	return nil
}

// trace records what happened to the node or to a peer.
func (n *Node) trace(e trace.Event) {
	if r := n.cfg.Trace; r != nil {
		e.Time = n.now()
		r.Record(&e)
	}
}

// traceErr is trace with a reason.
func (n *Node) traceErr(what trace.What, peer dmutex.NodeID, why error) {
	if n.cfg.Trace != nil {
		n.trace(trace.Event{What: what, Peer: peer, Err: why.Error()})
	}
}

// trace records what happened to the lock.
func (l *lock) trace(e trace.Event) {
	if l.shard.node.cfg.Trace != nil {
		e.Lock = l.name
		l.shard.node.trace(e)
	}
}

// A note is an input of a machine, from before its output is sent until it is
// recorded. Its time is before any of its messages can arrive.
type note struct {
	at   int64
	what trace.What
	in   trace.Message
	out  []trace.Message // scratch
}

// input begins the shard's note. The machine has moved, and nothing was sent.
func (l *lock) input(what trace.What, in trace.Message) {
	if l.shard.node.cfg.Trace != nil {
		note := &l.shard.note
		note.at, note.what, note.in, note.out = l.shard.node.now(), what, in, note.out[:0]
	}
}

// output adds a message to the note. It has no number if it was not sent.
func (l *lock) output(seq uint64, m dmutex.Message) {
	if l.shard.node.cfg.Trace != nil {
		l.shard.note.out = append(l.shard.note.out, trace.Message{Seq: seq, Message: m})
	}
}

// refused records an input that the machine has refused.
func (l *lock) refused(what trace.What, in trace.Message, why error) {
	l.input(what, in)
	l.noted(why)
}

// noted records the note; why is nil unless the machine has refused the input.
func (l *lock) noted(why error) {
	r := l.shard.node.cfg.Trace
	if r == nil {
		return
	}
	note := &l.shard.note
	e := trace.Event{
		Time: note.at, What: note.what, Lock: l.name, In: note.in, Out: note.out,
		Phase: l.machine.Phase(), Fence: l.machine.Fence(),
	}
	if why != nil {
		e.Err = why.Error()
	}
	r.Record(&e)
}

// look returns what the session has counted, for noticed. The caller holds
// p.mu.
func (p *peer) look() session.Stats {
	if p.node.cfg.Trace == nil {
		return session.Stats{}
	}
	return p.session.Stats()
}

// noticed records what has happened to the session since look.
func (p *peer) noticed(before session.Stats, event session.Event) {
	if p.node.cfg.Trace == nil {
		return
	}
	after := p.session.Stats()
	if after.Resent > before.Resent {
		acked := p.session.Acked()
		p.node.trace(trace.Event{What: trace.Resent, Peer: p.id, First: acked + 1, Last: acked + after.Again})
	}
	p.count(trace.Repeated, after.Repeated-before.Repeated)
	p.count(trace.Early, after.Early-before.Early)
	p.count(trace.Stray, after.Strays-before.Strays)
	switch event {
	case session.Met:
		p.node.trace(trace.Event{What: trace.Met, Peer: p.id, Life: p.session.Peer()})
	case session.Restarted:
		p.node.trace(trace.Event{What: trace.Restarted, Peer: p.id, Life: p.session.Peer()})
	case session.Left:
		p.node.trace(trace.Event{What: trace.Left, Peer: p.id})
	}
}

func (p *peer) count(what trace.What, n uint64) {
	if n > 0 {
		p.node.trace(trace.Event{What: what, Peer: p.id, N: n})
	}
}
