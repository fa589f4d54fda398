package node

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

const (
	// electionPrefix and an election's name make the name of its lock.
	electionPrefix = "election/"

	// MaxElection bounds the name of an election, in bytes; it has at least
	// one.
	MaxElection = transport.MaxName - len(electionPrefix)
)

// An Election is a post of the group that one node at a time has, by its name:
// leadership that stands on a lock. It has no state of its own: any number of
// them may stand for one election. Its methods are safe for concurrent use.
//
// What holds, in a group of fixed members:
//
//   - One leads at a time. A second leader's function never runs while the
//     first's does, whatever is lost, delayed, paused or closed.
//   - Epochs rise strictly. They are the fences of the lock: give them to what
//     the leader writes to, which can then refuse a leader that has died with a
//     write on its way.
//   - Whoever campaigns gets its turn, in the order of the lock's algorithm.
//
// What does not: a leader that crashes, or is cut off, is not replaced. Nobody
// can tell it from one that is slow, so the others wait, and observers go on
// seeing it. The machines of package election elect another, and allow two at a
// time for it.
//
// The lock is [Node.Mutex]("election/" + name): its status is that of the
// election. Whoever locks it keeps everybody from leading, and is not
// announced, and a leader does not hear of a [Mutex.Ask]. Unlike any other lock,
// it is not released by [Node.Close] but by its holder, for whom Close waits.
type Election struct {
	node  *Node
	name  string
	mutex *Mutex
}

// Election returns the election of that name, which has 1 to [MaxElection]
// bytes. It need not be created. Each term costs two messages to every other
// node, beside those of the lock. While there is a leader every node remembers
// it, in less than 100 bytes beside the name; of elections without a leader and
// without an observer, a node remembers the last few hundred.
func (n *Node) Election(name string) *Election {
	return &Election{node: n, name: name, mutex: n.Mutex(electionPrefix + name)}
}

// Name returns the election's name.
func (e *Election) Name() string { return e.name }

// Campaign waits until this node is elected, runs lead, and gives the
// leadership up when lead has returned or panicked, never before. It leads once:
// to lead again, call it again. Several goroutines of a node may campaign, and
// each is a candidate of its own.
//
// lead's context is derived from ctx. It also ends when this node resigns
// ([context.Cause] is then [ErrResigned]) and when its node closes ([ErrLost]);
// lead should return then. Close waits for that. epoch is higher than that of
// every leader before.
//
// Campaign's error tells what happened: [ErrNotElected], with ctx's error or
// another of [Mutex.Acquire], if lead was never called; otherwise what lead
// returned, joined with an [ErrLost] if the leadership was lost meanwhile.
// Whichever it is, nothing of the candidacy is left.
func (e *Election) Campaign(ctx context.Context, lead func(ctx context.Context, epoch uint64) error) (err error) {
	if len(e.name) == 0 || len(e.name) > MaxElection {
		err := dmutex.Misuse(fmt.Sprintf("the name of an election has 1 to %d bytes, not %d", MaxElection, len(e.name)))
		return fmt.Errorf("%w: %w", ErrNotElected, err)
	}
	h, err := e.mutex.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotElected, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.Context(), func() { cancel(h.Err()) })
	begin, end := term{e.node.cfg.Self, h.fence}, term{dmutex.None, h.fence}
	e.node.terms.lead(e.name, begin, cancel)
	e.node.announce(e.name, begin)
	e.node.mail.Flush()
	defer func() {
		stop()
		cancel(nil)
		e.node.terms.hear([]byte(e.name), end)
		e.node.announce(e.name, end)
		if lost := h.Release(); lost != nil { // sends the announcement too
			err = errors.Join(err, lost)
		}
	}()
	return lead(ctx, h.fence)
}

// Resign ends the context of the function that leads this election at this
// node. The leadership itself ends when the function has returned; until then
// nobody else is elected. Resign does not wait for that, and does nothing if
// this node does not lead. Those that campaign at this node go on doing so.
func (e *Election) Resign() { e.node.terms.resign(e.name) }

// Observe tells who leads: first the present leader, if there is one, then
// every change, as leader and epoch; [dmutex.None] and the epoch of the last
// leader mean that nobody leads any more. Epochs never fall, and none is told
// twice but for its end. A slow observer misses what is outdated by then, also
// that the post was vacant between two leaders, and never the newest.
//
// It ends when ctx ends, when the node closes or when the group is broken
// ([Status].Err): what this node knows would only grow old.
//
// It is news and no lock: it takes a message to arrive, and one that is
// observed may have given up already. A leader that crashes remains the leader.
func (e *Election) Observe(ctx context.Context) iter.Seq2[dmutex.NodeID, uint64] {
	return func(yield func(dmutex.NodeID, uint64) bool) {
		terms := &e.node.terms
		s := terms.observe(e.name)
		defer terms.unobserve(s)
		for first := true; ctx.Err() == nil && e.node.locks.why() == nil; first = false {
			t, news := terms.read(s)
			if (!first || t.leader != dmutex.None) && !yield(t.leader, t.epoch) {
				return
			}
			select {
			case <-news:
			case <-ctx.Done():
			case <-e.node.locks.ended.Done():
			}
		}
	}
}

// announce tells all peers of the beginning or the end of a term of this node.
func (n *Node) announce(name string, t term) {
	for _, p := range n.locks.peers {
		_, _ = n.mail.Send(p, func(b []byte) []byte { return appendTerm(b, name, t) }) // a peer that is gone hears it when it is back
	}
}
