package group

import (
	"context"
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/trace"
)

// What a node records in its trace, beside what its locks do. Without a recorder each of these costs a nil check.

// openTrace writes the header.
func (g *Group) openTrace() error {
	r := g.cfg.Trace
	if r == nil {
		return nil
	}
	text, err := trace.Describe(g.cfg.Algorithm, g.cfg.Self, g.cfg.Members)
	if err != nil {
		return err
	}
	h := trace.Header{
		Self: g.cfg.Self, Members: g.cfg.Members, Group: g.cfg.Group, Algorithm: text, Life: g.life, Opened: g.birth.UnixNano(),
	}
	return r.Open(h)
}

// closeTrace ends the trace, and waits until it is written.
func (g *Group) closeTrace(ctx context.Context) error {
	if g.cfg.Trace == nil {
		return nil
	}
	g.trace(trace.Event{What: trace.Close})
	if err := g.cfg.Trace.Flush(ctx); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}

// trace records what happened to the node or to a peer.
func (g *Group) trace(e trace.Event) {
	if r := g.cfg.Trace; r != nil {
		e.Time = g.Mail.Now()
		r.Record(&e)
	}
}

// traceErr is trace with a reason.
func (g *Group) traceErr(what trace.What, peer dmutex.NodeID, why error) {
	if g.cfg.Trace != nil {
		g.trace(trace.Event{What: what, Peer: peer, Err: why.Error()})
	}
}

// traceView records that a view is installed, or acts.
func (g *Group) traceView(what trace.What, v membership.View) {
	if g.cfg.Trace != nil {
		g.trace(trace.Event{What: what, N: v.Epoch, Members: v.Nodes(), Limit: membership.LastFence(v.Epoch)})
	}
}

// watch returns the function that records what the network did to frames, nil
// without a recorder.
func (g *Group) watch() func(trace.Event) {
	if g.cfg.Trace == nil {
		return nil
	}
	return g.trace
}
