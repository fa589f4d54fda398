package node

import (
	"context"
	"slices"
	"sync"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// A term is a leader and its epoch; with leader None, the end of that epoch.
type term struct {
	leader dmutex.NodeID
	epoch  uint64
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
	end       context.CancelCauseFunc // of this node's own term, while leader is this node
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

// learn takes an announcement. Of a term of this node itself, calling end resigns it.
func (ts *terms) learn(name string, t term, end context.CancelCauseFunc) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.elections[name] == nil && end == nil && len(ts.elections) >= maxElections {
		return
	}
	ts.change(ts.election(name), t, end)
}

// resign ends this node's own term, if there is one. It holds no mutex then:
// ending a context calls its parent, which may be code of the application.
func (ts *terms) resign(name string) {
	ts.mu.Lock()
	end := context.CancelCauseFunc(func(error) {})
	if e := ts.elections[name]; e != nil && e.end != nil {
		end = e.end
	}
	ts.mu.Unlock()
	end(&Error{Err: ErrResigned})
}

// renew ends the terms of the lives that the view of the epoch leaves behind. The terms of a
// node's next life have later epochs. It returns the terms of this node, by the names of the
// elections.
func (ts *terms) renew(epoch uint64, ended func(leader dmutex.NodeID) bool) (own map[string]term) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	own = make(map[string]term)
	for name, e := range ts.elections {
		if e.leader != dmutex.None && membership.EpochOf(e.epoch) < epoch && ended(e.leader) {
			ts.change(e, term{dmutex.None, e.epoch}, nil)
		}
		if e.end != nil {
			own[name] = e.term
		}
	}
	return own
}

func (ts *terms) change(e *election, t term, end context.CancelCauseFunc) {
	if !t.after(e.term) {
		return
	}
	e.term, e.end = t, end
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
