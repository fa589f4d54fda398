package node

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
)

const (
	// electionPrefix and an election's name make the name of its lock.
	electionPrefix = "election/"

	// maxElection is the length of the longest name of an election, in bytes.
	maxElection = lock.MaxName - len(electionPrefix)
)

// An Election is a named leadership held by one node at a time, built on a lock. It has no state
// of its own, and any number of Election values may stand for the same election. Its methods are
// safe for concurrent use.
//
//   - One node leads at a time. A second leader's function never runs while the first leader's
//     does, whatever is lost, delayed, paused or closed, unless the first was replaced or evicted
//     while it was paused ([ErrReplaced], [ErrEvicted]). In the lease mode that holds if the
//     function returns when its context ends: docs/modes.md has the time to do so.
//   - Epochs rise strictly. They are the fences of the lock: resources that the leader writes to
//     can refuse a late write of a former leader by them.
//   - Every candidate gets its turn, in the order of the lock's algorithm.
//
// A leader that crashes or is cut off is replaced only in the lease mode, when its lease has
// ended. In the strict mode the others wait until its process restarts or is evicted. The
// machines of package election replace such a leader without a store, at the price that two may
// lead at a time.
//
// The lock is [Node.Mutex]("election/" + name), and its status is that of the election. A caller
// that acquires it directly keeps every node from leading and is not announced. A leader does
// not notice a [Mutex.Ask].
type Election struct {
	name  string
	mutex *Mutex
}

// Election returns the election of that name, which has 1 to [lock.MaxName] bytes, less 9.
// It need not be created. Each term costs two messages to every other node, besides those of
// the lock. Every node remembers the leaders, and of the elections without a leader and without
// an observer the last 512.
func (n *Node) Election(name string) *Election {
	return &Election{name, n.Mutex(electionPrefix + name)}
}

// Name returns the election's name.
func (e *Election) Name() string { return e.name }

// Campaign waits until this node is elected, runs lead once, and gives the leadership up when lead
// has returned or panicked, never before. Each goroutine that campaigns is a candidate of its own.
//
// lead's context is derived from ctx. It also ends when this node resigns ([context.Cause] is then
// [ErrResigned]) and when the node closes or stops, or its lease ends ([ErrLost]). Then lead
// should return; Close waits for that.
//
// If lead was never called, the error is [ErrNotElected], wrapped together with ctx's error or
// another of [Mutex.Acquire]. Otherwise it is what lead returned, joined with an [ErrLost] if the
// leadership was lost meanwhile.
func (e *Election) Campaign(ctx context.Context, lead func(ctx context.Context, epoch uint64) error) error {
	if len(e.name) == 0 || len(e.name) > maxElection {
		return notElected("", dmutex.Misuse(fmt.Sprintf("the name of an election has 1 to %d bytes, not %d", maxElection, len(e.name))))
	}
	if lead == nil {
		return notElected(e.mutex.name, hold.ErrNoFunction)
	}
	led := false
	err := e.mutex.do(ctx, func(ctx context.Context, self dmutex.NodeID, epoch uint64) error {
		led = true
		n, begin := e.mutex.node, term{leader: self, epoch: epoch}
		ctx, resign := context.WithCancelCause(ctx)
		n.terms.learn(e.name, begin, resign)
		n.announce(e.name, begin)
		n.mail.Flush()
		defer func() {
			resign(nil)
			end := term{epoch: epoch}
			n.terms.learn(e.name, end, nil)
			n.announce(e.name, end) // leaves with the release
		}()
		return lead(ctx, epoch)
	})
	if !led {
		return notElected(e.mutex.name, err)
	}
	return err
}

// notElected is the error of a Campaign that has not led.
func notElected(lock string, err error) error {
	e := Error{Lock: lock, Err: err}
	if inner, ok := err.(*Error); ok {
		e = *inner
	}
	e.Err = fmt.Errorf("%w: %w", ErrNotElected, e.Err)
	return &e
}

// Resign ends the context of the function that leads this election at this node, if one does.
// The leadership ends when the function has returned, for which Resign does not wait. Other
// candidates of this node remain candidates.
func (e *Election) Resign() {
	if e.mutex.made() {
		e.mutex.node.terms.resign(e.name)
	}
}

// Observe yields the present leader and its epoch, if there is one, and then every change.
// [dmutex.None] with the epoch of the last leader means that nobody leads any more. Epochs never
// fall, and each is yielded at most twice: for its beginning and for its end. A slow observer may
// miss outdated changes, but never the newest. As an announcement takes time to arrive, the
// leader may have given up already. While the group has more than 65,536 elections with leaders,
// Observe may not know who already led when it began.
//
// The sequence ends when ctx ends and when the node closes or stops ([Status].Err).
func (e *Election) Observe(ctx context.Context) iter.Seq2[dmutex.NodeID, uint64] {
	return func(yield func(dmutex.NodeID, uint64) bool) {
		if hold.ContextError(ctx) != nil || !e.mutex.made() {
			return
		}
		n := e.mutex.node
		seen := n.terms.observe(e.name, 1)
		defer n.terms.observe(e.name, -1)
		for first := true; ctx.Err() == nil && n.locks.Why() == nil; first = false {
			t, news := n.terms.read(seen)
			if (!first || t.leader != dmutex.None) && !yield(t.leader, t.epoch) {
				return
			}
			select {
			case <-news:
			case <-ctx.Done():
			case <-n.locks.Ended():
			}
		}
	}
}

// announce tells the other members of the beginning or the end of a term of this node. A
// member that is gone learns it when it is back.
func (n *Node) announce(name string, t term) {
	n.sendAll(&message{says: saysLeads, number: t.epoch, name: name, leads: t.leader != dmutex.None})
}

// A term is a leader and its epoch; with leader None, the end of that epoch.
type term struct {
	leader dmutex.NodeID
	epoch  uint64
	life   uint64 // of the leader, if that is a peer
}

// after reports whether t is newer than o. Terms of one election are totally
// ordered, because the lock gives each epoch to one node only.
func (t term) after(o term) bool {
	return t.epoch > o.epoch || t.epoch == o.epoch && t.leader == dmutex.None && o.leader != dmutex.None
}

// terms is the newest term of each election that a node knows of. Announcements of different
// nodes arrive in any order, and outdated ones are dropped.
//
// An election that is vacant and not observed is forgotten after keepVacant others. An outdated
// announcement that arrives after that is believed until the end of its term arrives, too.
//
// Announcements of other nodes are kept for at most maxElections, so that a member that invents
// elections cannot fill the memory.
type terms struct {
	mu        sync.Mutex // guards all elections, too
	elections map[string]*election
	vacant    []*election // those that are not observed; the longest listed first
}

const (
	keepVacant   = 512
	maxElections = 1 << 16
)

// An election is what a node remembers of one.
type election struct {
	term
	name      string
	resign    context.CancelCauseFunc // of this node's own term, while leader is this node
	observers int
	news      chan struct{} // closed at the next change
}

func (ts *terms) election(name string) *election {
	e := ts.elections[name]
	if e == nil {
		if ts.elections == nil {
			ts.elections = make(map[string]*election)
		}
		e = &election{name: name, news: make(chan struct{})}
		ts.elections[name] = e
	}
	return e
}

// learn takes an announcement. Of a term of this node itself, calling resign ends it.
func (ts *terms) learn(name string, t term, resign context.CancelCauseFunc) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.elections[name] == nil && resign == nil && len(ts.elections) >= maxElections {
		return
	}
	ts.change(ts.election(name), t, resign)
}

// resign ends this node's own term, if there is one. It holds no mutex then:
// ending a context calls its parent, which may be code of the application.
func (ts *terms) resign(name string) {
	ts.mu.Lock()
	resign := context.CancelCauseFunc(func(error) {})
	if e := ts.elections[name]; e != nil && e.resign != nil {
		resign = e.resign
	}
	ts.mu.Unlock()
	resign(&Error{Lock: electionPrefix + name, Err: ErrResigned})
}

// renew ends the terms of the lives that the view of the epoch leaves behind. The terms of a
// node's next life have later epochs. It returns the terms of this node, by the names of the
// elections.
func (ts *terms) renew(epoch uint64, ended func(term) bool) (own map[string]term) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	own = make(map[string]term)
	for name, e := range ts.elections {
		if e.leader != dmutex.None && epochs.Of(e.epoch) < epoch && ended(e.term) {
			ts.change(e, term{epoch: e.epoch}, nil)
		}
		if e.resign != nil {
			own[name] = e.term
		}
	}
	return own
}

func (ts *terms) change(e *election, t term, resign context.CancelCauseFunc) {
	if !t.after(e.term) {
		return
	}
	e.term, e.resign = t, resign
	close(e.news)
	e.news = make(chan struct{})
	ts.rest(e)
}

// observe adds so many observers.
func (ts *terms) observe(name string, more int) *election {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	e := ts.election(name)
	e.observers += more
	ts.rest(e)
	return e
}

// read returns the newest term, and what will be closed when there is a newer.
func (ts *terms) read(e *election) (term, <-chan struct{}) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return e.term, e.news
}

// rest lists the election as vacant if it has neither leader nor observer, and forgets the
// election that has been listed the longest if there are too many.
func (ts *terms) rest(e *election) {
	ts.vacant = slices.DeleteFunc(ts.vacant, func(o *election) bool { return o == e })
	if e.leader != dmutex.None || e.observers > 0 {
		return
	}
	if ts.vacant = append(ts.vacant, e); len(ts.vacant) > keepVacant {
		delete(ts.elections, ts.vacant[0].name)
		ts.vacant = slices.Delete(ts.vacant, 0, 1)
	}
}
