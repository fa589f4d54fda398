package node

import (
	"context"
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/membership"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport/mail"
)

// What a node tells its recorder. Without one, each of these costs a nil check.

// openTrace writes the header.
func (n *Node) openTrace() error {
	r := n.cfg.Trace
	if r == nil {
		return nil
	}
	text, err := trace.Describe(n.cfg.Algorithm, n.cfg.Self, n.cfg.Members)
	if err != nil {
		return err
	}
	h := trace.Header{
		Self: n.cfg.Self, Members: n.cfg.Members, Group: n.cfg.Group, Algorithm: text, Life: n.views.life, Opened: n.birth.UnixNano(),
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
		e.Time = n.mail.Now()
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
	if r := l.shard.cfg.Trace; r != nil {
		e.Lock, e.Time = l.name, l.shard.mail.Now()
		r.Record(&e)
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
	if l.shard.cfg.Trace != nil {
		note := &l.shard.note
		note.at, note.what, note.in, note.out = l.shard.mail.Now(), what, in, note.out[:0]
	}
}

// output adds a message to the note. It has no number if it was not sent.
func (l *lock) output(seq uint64, m dmutex.Message) {
	if l.shard.cfg.Trace != nil {
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
	r := l.shard.cfg.Trace
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

// traceView records that a view is installed, or acts.
func (n *Node) traceView(what trace.What, v membership.View) {
	if n.cfg.Trace != nil {
		n.trace(trace.Event{What: what, N: uint64(v.Epoch), Members: v.Nodes()})
	}
}

// watch returns what records that the network was not perfect, nil without a
// recorder.
func (n *Node) watch() func(mail.Event) {
	if n.cfg.Trace == nil {
		return nil
	}
	return func(e mail.Event) {
		switch e.What {
		case mail.Resent:
			n.trace(trace.Event{What: trace.Resent, Peer: e.Peer, First: e.First, Last: e.Last})
		case mail.Unsent:
			n.traceErr(trace.Unsent, e.Peer, e.Err)
		case mail.Repeated:
			n.trace(trace.Event{What: trace.Repeated, Peer: e.Peer, N: e.N})
		case mail.Early:
			n.trace(trace.Event{What: trace.Early, Peer: e.Peer, N: e.N})
		case mail.Stray:
			n.trace(trace.Event{What: trace.Stray, Peer: e.Peer, N: e.N})
		}
	}
}
