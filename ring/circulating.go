package ring

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
)

// Circulating is one lock at one node of a ring whose token goes around for
// ever. It implements [dmutex.Keeper] and [dmutex.Ticker].
type Circulating struct {
	seat
	pace   int
	rested int // ticks since the token came here
}

// Circulate returns Le Lann's algorithm: nobody asks for the token, it comes by
// itself. An idle node passes it on after pace ticks, at least 1; with none it
// would go around as fast as the network can. No order means ascending; the
// token begins with the first node. All nodes of a group must have the same
// order; a pace below 1, or a Start of other members, is refused with
// [dmutex.ErrMisuse].
//
// An idle ring of N nodes sends one message every pace ticks and one hop, for
// ever. When everybody always wants the lock an entry costs 1 message. A
// request waits for up to N hops and N-1 times the pace, and for those on the
// way who enter: from a release to the next entry pass up to N-1 hops, and the
// pace at each of up to N-2 idle nodes between. The channels may reorder messages, but not repeat them.
func Circulate(pace int, order ...dmutex.NodeID) dmutex.Algorithm {
	order = slices.Clone(order)
	return func(s dmutex.Start) (dmutex.Machine, error) {
		if pace < 1 {
			return nil, dmutex.Misuse("the pace of the ring must be at least 1 tick")
		}
		if len(order) == 0 {
			return newCirculating(s, ascending(s.Members), pace)
		}
		return newCirculating(s, order, pace)
	}
}

func newCirculating(s dmutex.Start, order []dmutex.NodeID, pace int) (dmutex.Machine, error) {
	t, err := newSeat(s, order)
	if err != nil {
		return nil, err
	}
	return &Circulating{seat: t, pace: pace}, nil
}

// Request implements [dmutex.Machine].
func (c *Circulating) Request() ([]dmutex.Message, error) {
	_, err := c.site.Request()
	if err == nil && c.token {
		c.site.Enter()
	}
	return nil, err
}

// Release implements [dmutex.Machine].
func (c *Circulating) Release() ([]dmutex.Message, error) {
	if err := c.site.Release(); err != nil {
		return nil, err
	}
	c.passOn()
	return c.site.Out(), nil
}

// Handle implements [dmutex.Machine].
func (c *Circulating) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if err := c.check(msg); err != nil {
		return nil, err
	}
	if msg.Kind != dmutex.Token || len(msg.Nodes) > 0 || len(msg.Numbers) > 0 {
		return nil, c.site.Refuse(msg, "in this ring there is only the token, and it carries no list")
	}
	c.take(msg)
	return nil, nil
}

// Tick tells an idle node with the token that time passes. At the other nodes
// it does nothing. The error is always nil.
func (c *Circulating) Tick() ([]dmutex.Message, error) {
	c.site.Begin()
	if c.rests() {
		if c.rested++; c.rested == c.pace {
			c.passOn()
		}
	}
	return c.site.Out(), nil
}

// passOn passes the token on, if there is anybody else.
func (c *Circulating) passOn() {
	c.rested = 0
	if c.place().after != c.site.Self() {
		c.pass()
	}
}

// Forget implements [dmutex.Machine]. The answer is always no: where the token
// is must be remembered.
func (c *Circulating) Forget() (clock, fence uint64, ok bool) {
	clock, fence, _ = c.site.Forget()
	return clock, fence, false
}

// Keeps implements [dmutex.Keeper].
func (c *Circulating) Keeps() bool {
	_, _, idle := c.site.Forget()
	return idle
}

// AppendText appends the canonical state: machines of equal text behave alike
// for ever. The error is always nil.
func (c *Circulating) AppendText(b []byte) ([]byte, error) {
	b = c.appendText(b)
	if c.rested > 0 {
		b = append(b, " rested "...)
		b = strconv.AppendUint(b, uint64(c.rested), 10)
	}
	return b, nil
}

// Clone returns an independent copy.
func (c *Circulating) Clone() dmutex.Machine {
	return &Circulating{seat: c.clone(), pace: c.pace, rested: c.rested}
}
