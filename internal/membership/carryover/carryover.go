// Package carryover is what the locks of a view have from the views before it: who holds a lock, and which
// former members may.
package carryover

import (
	"cmp"
	"iter"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// A Holder is a hold and the member that reported it.
type Holder struct {
	Node dmutex.NodeID
	membership.Hold
}

// Holds are those that go on in a view: of each lock the one with the highest fence, and if that
// shares all that follow it up to one that does not. A member that has reported the lock several times is
// heard once. The locks are in no order of their names: members may hold many, and sorting them takes long.
type Holds struct {
	holdings []membership.Holding
	goes     [][]bool            // whether each of them goes on, as the only one of its lock
	at       map[string]spot     // where each lock was reported first
	several  map[string][]Holder // the locks that were reported several times
	names    []string            // of those
}

// A spot is where a hold stands in the holdings.
type spot struct{ of, at uint32 }

// Of returns what goes on of what the members of a view have reported. It keeps that, and nobody may
// change it.
func Of(holdings []membership.Holding) *Holds {
	count := 0
	for _, of := range holdings {
		count += len(of.Holds)
	}
	c := &Holds{holdings: holdings, at: make(map[string]spot, count), several: make(map[string][]Holder)}
	for i, of := range holdings {
		c.goes = append(c.goes, make([]bool, len(of.Holds)))
		for k := range of.Holds {
			lock := of.Holds[k].Lock
			first, again := c.at[lock]
			if !again {
				c.at[lock], c.goes[i][k] = spot{uint32(i), uint32(k)}, true
				continue
			}
			if c.several[lock] == nil {
				c.several[lock] = []Holder{c.holder(first)}
				c.names = append(c.names, lock)
				c.goes[first.of][first.at] = false
			}
			c.several[lock] = append(c.several[lock], Holder{of.Node, of.Holds[k]})
		}
	}
	for _, lock := range c.names {
		c.several[lock] = goOn(c.several[lock])
	}
	return c
}

func (c *Holds) holder(p spot) Holder {
	of := &c.holdings[p.of]
	return Holder{of.Node, of.Holds[p.at]}
}

// goOn returns the holds of one lock that go on.
func goOn(holders []Holder) []Holder {
	slices.SortFunc(holders, func(a, b Holder) int {
		order := cmp.Or(cmp.Compare(b.Fence, a.Fence), cmp.Compare(a.Node, b.Node))
		switch {
		case order != 0 || a.Shared == b.Shared:
			return order
		case a.Shared: // it overrules nobody
			return -1
		}
		return 1
	})
	kept, closed := holders[:0], false
	for _, h := range holders {
		if closed || slices.ContainsFunc(kept, func(k Holder) bool { return k.Node == h.Node }) {
			continue
		}
		if closed = !h.Shared; h.Shared || len(kept) == 0 {
			kept = append(kept, h)
		}
	}
	return kept
}

// All are the locks that are held, but for those that were forgotten, each with a Start that has only its
// holder, or those that share it. The next one has the same Start.
func (c *Holds) All() iter.Seq2[string, *dmutex.Start] {
	return func(yield func(string, *dmutex.Start) bool) {
		var start dmutex.Start
		next := func(lock string, holders ...Holder) bool {
			start = dmutex.Start{Sharers: start.Sharers[:0]}
			for _, h := range holders {
				h.start(&start)
			}
			return yield(lock, &start)
		}
		for i, of := range c.holdings {
			for k, h := range of.Holds {
				if c.goes[i][k] && !next(h.Lock, Holder{of.Node, h}) {
					return
				}
			}
		}
		for _, lock := range c.names {
			if holders := c.several[lock]; holders != nil && !next(lock, holders...) {
				return
			}
		}
	}
}

// Contested are the locks that several members have reported: some of them may not go on.
func (c *Holds) Contested() []string { return c.names }

// Start gives the start of a lock's machine its holder, or those that share it.
func (c *Holds) Start(lock string, start *dmutex.Start) {
	if p, reported := c.at[lock]; reported && c.goes[p.of][p.at] {
		c.holder(p).start(start)
	}
	for _, h := range c.several[lock] {
		h.start(start)
	}
}

func (h Holder) start(start *dmutex.Start) {
	if h.Shared {
		start.Sharers = append(start.Sharers, h.Node)
	} else {
		start.Holder = h.Node
	}
}

// Forget takes a lock out.
func (c *Holds) Forget(lock string) {
	if p, reported := c.at[lock]; reported {
		c.goes[p.of][p.at] = false
	}
	delete(c.several, lock)
}
