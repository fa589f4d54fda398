package membership

import (
	"cmp"
	"iter"
	"slices"

	"github.com/dmutex/dmutex"
)

// A Holding is what a member of a view has reported that it holds.
type Holding struct {
	Node  dmutex.NodeID
	Holds []Hold
}

// Carried has the holds that go on in a view: of each lock the one with the highest fence, and if that
// shares all that follow it up to one that does not. A member that has reported the lock several times is
// heard once. The locks are in no order of their names: members may hold many, and sorting them takes long.
type Carried struct {
	holdings []Holding
	once     map[string]spot     // the locks that were reported once
	several  map[string][]Holder // the others
	names    []string            // of those
}

// A spot is where a hold stands in the holdings.
type spot struct{ of, at uint32 }

// Carry returns what goes on of what the members of a view have reported. It keeps that, and nobody may
// change it.
func Carry(holdings []Holding) *Carried {
	count := 0
	for _, of := range holdings {
		count += len(of.Holds)
	}
	c := &Carried{holdings: holdings, once: make(map[string]spot, count), several: make(map[string][]Holder)}
	for i, of := range holdings {
		for k := range of.Holds {
			lock := of.Holds[k].Lock
			first, again := c.once[lock]
			if !again {
				c.once[lock] = spot{uint32(i), uint32(k)}
				continue
			}
			if c.several[lock] == nil {
				c.several[lock] = []Holder{c.at(first)}
				c.names = append(c.names, lock)
			}
			c.several[lock] = append(c.several[lock], Holder{of.Node, of.Holds[k]})
		}
	}
	for _, lock := range c.names {
		delete(c.once, lock)
		c.several[lock] = goOn(c.several[lock])
	}
	return c
}

func (c *Carried) at(p spot) Holder {
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
func (c *Carried) All() iter.Seq2[string, *dmutex.Start] {
	return func(yield func(string, *dmutex.Start) bool) {
		if c == nil {
			return
		}
		var start dmutex.Start
		next := func(lock string, holders ...Holder) bool {
			start = dmutex.Start{Sharers: start.Sharers[:0]}
			for _, h := range holders {
				h.start(&start)
			}
			return yield(lock, &start)
		}
		for i, of := range c.holdings {
			for k := range of.Holds {
				lock := of.Holds[k].Lock
				if p, once := c.once[lock]; once && p == (spot{uint32(i), uint32(k)}) && !next(lock, c.at(p)) {
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
func (c *Carried) Contested() []string { return c.names }

// Start gives the start of a lock's machine its holder, or those that share it.
func (c *Carried) Start(lock string, start *dmutex.Start) {
	if c == nil {
		return
	}
	if p, once := c.once[lock]; once {
		c.at(p).start(start)
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
func (c *Carried) Forget(lock string) {
	if c != nil {
		delete(c.once, lock)
		delete(c.several, lock)
	}
}
