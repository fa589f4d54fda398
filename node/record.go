package node

import (
	"context"
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/trace"
)

// What a node records in its trace. Without a recorder each of these costs a nil check.

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

// A step is an input of a machine and its output. It begins before the output is
// sent, so its time is before any of the messages can arrive.
type step struct {
	at   int64
	what trace.What
	in   trace.Message
	out  []trace.Message // scratch
}

// input begins the shard's step. The machine has taken the input, and nothing was
// sent yet.
func (l *lock) input(what trace.What, in trace.Message) {
	if l.shard.cfg.Trace != nil {
		step := &l.shard.step
		step.at, step.what, step.in, step.out = l.shard.mail.Now(), what, in, step.out[:0]
	}
}

// output adds a message to the step. It has no number if it was not sent.
func (l *lock) output(seq uint64, m dmutex.Message) {
	if l.shard.cfg.Trace != nil {
		l.shard.step.out = append(l.shard.step.out, trace.Message{Seq: seq, Message: m})
	}
}

// refused records an input that the machine has refused.
func (l *lock) refused(what trace.What, in trace.Message, why error) {
	l.input(what, in)
	l.recorded(why)
}

// recorded records the step; why is nil unless the machine has refused the input.
func (l *lock) recorded(why error) {
	r := l.shard.cfg.Trace
	if r == nil {
		return
	}
	step := &l.shard.step
	e := trace.Event{
		Time: step.at, What: step.what, Lock: l.name, In: step.in, Out: step.out,
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
		n.trace(trace.Event{What: what, N: v.Epoch, Members: v.Nodes(), Limit: membership.LastFence(v.Epoch)})
	}
}

// watch returns the function that records what the network did to frames, nil
// without a recorder.
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
