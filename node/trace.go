package node

import (
	"context"
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/trace"
)

// What a node records in its trace, beside what its locks do. Without a recorder each of these costs a nil check.

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
