package clientsession

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/leases"
)

// A pair is a client and the member's side of its session. It collects their orders, and the events of requests.
type pair struct {
	t      *testing.T
	now    int64
	c      *Client
	m      *Member
	term   int64
	told   told
	orders []Message
	events []Message
}

func newPair(t *testing.T) *pair {
	return &pair{t: t, c: New("n"), m: NewMember(0, unit), term: unit}
}

func order(number uint64, lock string) Message {
	return Message{Kind: Ask, Number: number, Lock: lock}
}

func refusal(number uint64, code Code, text string) Message {
	return Message{Kind: Refused, Number: number, Code: code, Text: text}
}

// ofRequests returns the news without those of sessions.
func ofRequests(news []Message) []Message {
	return slices.DeleteFunc(slices.Clone(news), func(m Message) bool { return m.Number == 0 })
}

// told is what a client has told of its sessions.
type told struct{ begun, wrong bool }

// hear takes the news after an input: sessions begin and end by turns, and one has begun while its term runs.
func (s *told) hear(m *Client, news []Message) {
	for _, e := range news {
		switch e.Kind {
		case Confirm:
			s.wrong = s.wrong || e.Fresh == s.begun
			s.begun = true
		case Over:
			s.wrong = s.wrong || !s.begun
			s.begun = false
		}
	}
	s.wrong = s.wrong || s.begun != m.term.Runs()
}

// holding returns a pair whose client holds the lock a by the request one.
func holding(t *testing.T) (p *pair, one uint64) {
	p = newPair(t)
	p.c.Connect(0, "x", false)
	one = p.c.Ask("a", false, false)
	p.talk()
	p.m.Granted(one, 7, 1)
	p.talk()
	return p, one
}

// talk lets all messages arrive.
func (p *pair) talk() {
	for range 9 {
		out, events := p.c.Output()
		p.told.hear(p.c, events)
		require.False(p.t, p.told.wrong)
		p.events = append(p.events, ofRequests(events)...)
		for _, msg := range out {
			p.m.Handle(p.now, p.term, &msg)
		}
		back, orders := p.m.Output()
		p.orders = append(p.orders, orders...)
		for _, msg := range back {
			p.c.Handle(p.now, &msg)
		}
	}
}

// A resumed session goes on where it was: the member gives back what the client released
// meanwhile, and the client learns what the member was granted meanwhile.
func TestResume(t *testing.T) {
	p := newPair(t)
	p.c.Connect(0, "x", false)
	one, two, three := p.c.Ask("a", false, false), p.c.Ask("b", false, false), p.c.Ask("b", false, false)
	p.talk()
	require.Equal(t, []Message{order(one, "a"), order(two, "b"), order(three, "b")}, p.orders, "in the order of the calls")
	p.m.Granted(one, 7, 1)
	p.talk()
	require.Equal(t, []Message{{Kind: Granted, Number: one, Fence: 7}}, p.events)

	p.c.Disconnect()
	p.orders, p.events = nil, nil
	p.c.Drop(0, one)
	p.m.Granted(two, 8, 1)
	p.m.Output() // is lost
	p.c.Connect(unit/2, "y", false)
	require.Equal(t, "x", p.c.Session())
	p.talk()
	require.Equal(t, []Message{{Kind: Drop, Number: one}}, p.orders)
	require.Equal(t, []Message{{Kind: Granted, Number: two, Fence: 8}}, p.events)

	p.orders = nil
	p.c.Drop(0, two)
	p.talk()
	require.Equal(t, []Message{{Kind: Drop, Number: two}}, p.orders)
	p.c.Disconnect()
	p.c.Connect(unit/2, "y", false)
	p.talk()
	p.m.Refuse(three, Failed, "why")
	p.c.Disconnect()
	p.m.Output() // is lost, too
	p.orders = nil
	p.c.Connect(unit/2, "y", false)
	p.talk()
	require.Equal(t, []Message{order(three, "b")}, p.orders, "the client asks for it again")
}

// A session that ends drops its waiting requests before its holds. Otherwise they would get the
// lock.
func TestWaitsEndFirst(t *testing.T) {
	p := newPair(t)
	p.c.Connect(0, "x", false)
	one, two, three := p.c.Ask("a", false, false), p.c.Ask("a", false, false), p.c.Ask("a", false, false)
	p.talk()
	p.m.Granted(one, 7, 1)
	p.m.Output()
	p.m.End(Unknown, "why")
	_, orders := p.m.Output()
	require.Equal(t, []Message{{Kind: Drop, Number: three, Code: Unknown}, {Kind: Drop, Number: two, Code: Unknown}, {Kind: Drop, Number: one, Code: Unknown}}, orders)
	held, waited := p.m.Locks()
	require.Empty(t, append(held, waited...))
}

// Rule 5b.1: for the client, a session counts from the sending of what the member confirms. The member waits longer, since
// both clocks may be wrong.
func TestCountsFromTheSending(t *testing.T) {
	p := newPair(t)
	require.Equal(t, leases.Drain(unit), p.m.Deadline())
	p.c.Connect(0, "x", false)
	p.c.Handle(unit/4, &Message{Kind: Confirm, For: unit, Length: unit})
	require.Equal(t, leases.From(0, unit), p.c.term)
}

// A member that closes confirms a session no more, and says on each connection that it closes.
func TestClosingConfirmsNothing(t *testing.T) {
	p := newPair(t)
	p.m.Handle(0, unit, &Message{Kind: Hello, Wants: []uint64{1}})
	p.m.Handle(0, unit, &Message{Kind: Ask, Number: 1, Lock: "a"}) // else it is over at once
	p.m.Close()
	p.m.Output()
	p.m.Handle(unit/2, unit, &Message{Kind: Hello, Wants: []uint64{1}})
	p.m.Handle(unit/2, unit, &Message{Kind: Beat})
	said, _ := p.m.Output()
	require.Equal(t, []Message{{Kind: Confirm, Length: unit}, {Kind: Leave}, {Kind: Confirm, Length: unit}}, said)
	require.Equal(t, leases.Drain(unit), p.m.Deadline())
}

// What is still held by a member that the client has left is lost in time, whatever else is due.
func TestLeftEndsInTime(t *testing.T) {
	c := New("n")
	c.requests = []request{{number: 1, lock: "a", fence: 7, left: leases.From(0, unit)}}
	end := c.requests[0].left.Until()
	require.Equal(t, end, c.Deadline())
	c.Tick(end - 1)
	require.Empty(t, c.news)
	c.Tick(end)
	require.Equal(t, []Message{refusal(1, Unknown, Late)}, c.news)
}

// The requests of a session are bounded: a client that makes more is refused.
func TestBounds(t *testing.T) {
	p := newPair(t)
	p.c.Connect(0, "x", false)
	p.talk()
	p.m.requests = make([]request, MaxRequests-3)
	for range 4 {
		p.c.Ask("a", false, false)
	}
	try := p.c.Ask("a", true, false)
	p.talk()
	require.Equal(t, []Message{refusal(4, Full, tooMany), refusal(try, Full, tooMany)}, p.events)
	p.events = nil
	p.c.Drop(0, 3)
	p.c.Ask("a", true, false)
	p.talk()
	require.Equal(t, []Message{refusal(3, Busy, "")}, p.events)
	held, waited := p.m.Locks()
	require.Empty(t, held)
	require.Equal(t, []string{"a", "a", "a"}, waited[MaxRequests-3:])
}

// A grant counts only while the session is valid. A member without a valid lease confirms no
// session.
func TestGrantBeforeValid(t *testing.T) {
	p := newPair(t)
	p.term = 0
	p.c.Connect(0, "x", false)
	one := p.c.Ask("a", false, false)
	p.talk()
	p.m.Granted(one, 7, 1)
	p.talk()
	require.Empty(t, p.events)
	p.now, p.term = p.c.Deadline(), unit
	p.c.Tick(p.now)
	p.talk()
	require.Equal(t, []Message{{Kind: Granted, Number: one, Fence: 7}}, p.events)
	p.c.Tick(p.now + unit)
	p.talk()
	require.Equal(t, Unknown, p.events[1].Code)
	require.Empty(t, p.c.Session())
}

// A refusal that comes when the lock is held changes nothing. One of a request that was dropped
// reports who holds the lock.
func TestLateRefusal(t *testing.T) {
	p, one := holding(t)
	p.events = nil
	p.c.Handle(0, &Message{Kind: Refused, Number: one, Text: "why"})
	p.talk()
	require.Empty(t, p.events)
	require.True(t, p.c.holds(p.c.requests[0]))
	p.c.Drop(0, one)
	p.c.Handle(0, &Message{Kind: Refused, Number: one, Text: "why"})
	p.talk()
	require.Equal(t, []Message{refusal(one, Busy, "why")}, p.events)
}

// A client that may have no session wants none any more.
func TestForbidden(t *testing.T) {
	p := newPair(t)
	p.c.Connect(0, "x", false)
	one := p.c.Ask("a", false, false)
	p.c.Handle(0, &Message{Kind: Over, Code: Forbidden, Text: "why"})
	p.talk()
	require.Equal(t, []Message{refusal(one, Forbidden, "why")}, p.events)
	require.False(t, p.c.Wanting())
}

// Connections are numbered, and an older one does not make room for one between.
func TestNewer(t *testing.T) {
	m := NewMember(0, unit)
	require.True(t, m.Newer(3))
	require.False(t, m.Newer(1))
	require.False(t, m.Newer(2))
	require.True(t, m.Newer(4))
}

// A client of a closing member first gives back what it holds, and then asks the next member
// for what it waits for.
func TestLeave(t *testing.T) {
	p := newPair(t)
	p.c.Connect(0, "x", false)
	one := p.c.Ask("a", false, false)
	p.talk()
	p.m.Granted(one, 7, 1)
	two := p.c.Ask("b", false, false)
	p.talk()
	p.m.Close()
	p.talk()
	require.Equal(t, []Message{order(one, "a"), order(two, "b"), {Kind: Drop, Number: two}}, p.orders)
	require.True(t, p.c.Connected())
	p.c.Drop(0, one)
	require.True(t, p.c.Connected(), "the member may not hear it any more")
	p.talk()
	require.False(t, p.c.Connected())
	require.True(t, p.m.Over())
	p.m, p.orders = NewMember(0, unit), nil
	p.c.Connect(0, "y", false)
	p.talk()
	require.Equal(t, []Message{order(two, "b")}, p.orders)
}

// A client that holds a lock while its member closes tries that member and another one by turns, even if whatever runs at the
// address of the first ends each connection without an answer.
func TestLeaveUnheard(t *testing.T) {
	p, _ := holding(t)
	p.m.Close()
	p.talk()
	for range 3 {
		p.c.Disconnect()
		require.True(t, p.c.Elsewhere())
		p.c.Connect(0, "y", true)
		p.c.Disconnect() // the claim came too early
		require.False(t, p.c.Elsewhere())
		p.c.Connect(0, "y", false)
	}
}

// The word of a member that the session is over ends no hold. T does, and until then another member may take it
// over.
func TestOverEndsNoHold(t *testing.T) {
	p, one := holding(t)
	p.events = nil
	p.m.End(Lapsed, "why")
	p.talk()
	require.Empty(t, p.events)
	require.True(t, p.c.holding())
	require.False(t, p.c.Connected())
	require.True(t, p.c.Elsewhere())
	p.now = p.c.term.Until()
	p.c.Tick(p.now)
	p.talk()
	require.Equal(t, []Message{refusal(one, Unknown, Late)}, p.events)
}

// A listener is a client whose news of sessions are checked.
type listener struct {
	*Client
	t    *testing.T
	told told
}

func newListener(t *testing.T) *listener { return &listener{Client: New("n"), t: t} }

// learn returns the news since the last call.
func (c *listener) learn() []Message {
	_, news := c.Output()
	c.told.hear(c.Client, news)
	require.False(c.t, c.told.wrong)
	return slices.Clone(news)
}

// take takes messages of a member, and returns the news.
func (c *listener) take(now int64, msgs ...Message) (news []Message) {
	for i := range msgs {
		c.Handle(now, &msgs[i])
		news = append(news, c.learn()...)
	}
	return news
}

func confirmation(length, s int64) Message {
	return Message{Kind: Confirm, For: length, Length: s}
}

// outlives returns a client that has gone on with another member, which had granted it one of two claims
// when that session was lost. The other hold has outlived that, and may be claimed from a third member.
func outlives(t *testing.T) (c *listener, left uint64) {
	c = newListener(t)
	one, left := c.Ask("a", false, false), c.Ask("b", false, false)
	c.Connect(0, "x", false)
	c.take(0, confirmation(16*unit, 16*unit), Message{Kind: Granted, Number: one, Fence: 1, Node: 1}, Message{Kind: Granted, Number: left, Fence: 2, Node: 1})
	c.Disconnect()
	c.Connect(1, "y", true)
	moved := c.take(1, confirmation(2*unit, 16*unit), Message{Kind: Granted, Number: one, Fence: 3, Node: 2})
	require.Equal(t, []Message{{Kind: Confirm}, {Kind: Granted, Number: one, Fence: 1}}, moved)
	c.Tick(3 * unit)
	require.Equal(t, []Message{{Kind: Over, Code: Unknown, Text: Late}, refusal(one, Unknown, Late)}, c.learn())
	c.Connect(3*unit, "z", true)
	return c, left
}

// A hold that a claim has not moved yet is not granted again when the next session begins.
func TestGrantedOnce(t *testing.T) {
	c, left := outlives(t)
	begun := c.take(3*unit, confirmation(16*unit, 16*unit))
	require.Equal(t, []Message{{Kind: Confirm, Fresh: true}}, begun)
	moved := c.take(3*unit, Message{Kind: Granted, Number: left, Fence: 4, Node: 3})
	require.Equal(t, []Message{{Kind: Granted, Number: left, Fence: 2}}, moved)
}

// A session begins by a trial if the one before has not begun.
func TestBeginsByTrial(t *testing.T) {
	c, left := outlives(t)
	require.Empty(t, c.take(3*unit, confirmation(0, 16*unit), Message{Kind: Over, Code: Unknown}), "of a member that closes")
	c.Connect(3*unit, "u", c.Elsewhere())
	moved := c.take(3*unit, confirmation(16*unit, 16*unit), Message{Kind: Granted, Number: left, Fence: 4, Node: 4})
	require.Equal(t, []Message{{Kind: Confirm, Fresh: true}, {Kind: Granted, Number: left, Fence: 2}}, moved)
}

// A member that changes S within a session confirms nothing by that: what is held ends in time.
func TestOtherLength(t *testing.T) {
	c := newListener(t)
	one := c.Ask("a", false, false)
	c.Connect(0, "x", false)
	c.take(0, confirmation(unit, unit), Message{Kind: Granted, Number: one, Fence: 1, Node: 1})
	now := c.Deadline()
	c.Tick(now)
	require.Empty(t, c.take(now, confirmation(unit, 100*unit)))
	c.Tick(c.Deadline())
	require.False(t, c.Connected(), "it is silent")
	term := c.TermOf(one)
	require.Equal(t, int64(unit), term.Expiry())
	c.Tick(unit)
	require.Equal(t, []Message{{Kind: Over, Code: Unknown, Text: Late}, refusal(one, Unknown, Late)}, c.learn())
}

// Whatever members say, the news of sessions are true, and what was granted is held until it is refused.
func TestAnyMember(t *testing.T) {
	for seed := range uint64(5000) {
		luck := rand.New(rand.NewPCG(seed, 0))
		c, now, held := newListener(t), int64(0), make(map[uint64]bool)
		for step := range 60 {
			number := 1 + luck.Uint64N(3)
			switch luck.IntN(9) {
			case 0:
				c.Ask("l", false, false)
			case 1:
				c.Drop(now, number)
				delete(held, number)
			case 2, 3:
				if !c.Connected() {
					c.Connect(now, fmt.Sprint(step), c.Elsewhere())
				}
			case 4:
				if c.Disconnect(); luck.IntN(2) == 0 {
					c.Unreached()
				}
			case 5:
				now += luck.Int64N(unit)
				c.Tick(now)
			default:
				msg := Message{Kind: Confirm + Kind(luck.IntN(4)), Number: number, For: luck.Int64N(3) * unit, Length: 2 * unit}
				switch luck.IntN(9) {
				case 0:
					msg.Kind = Over
				case 1:
					msg.Length = luck.Int64N(100 * unit)
				}
				c.Handle(now, &msg)
			}
			for _, e := range c.learn() {
				switch e.Kind {
				case Granted:
					held[e.Number] = true
				case Refused:
					delete(held, e.Number)
				}
			}
			for number := range held {
				i := c.find(number)
				require.True(t, i >= 0 && c.holds(c.requests[i]), "seed %d, step %d", seed, step)
			}
		}
	}
}

// A member takes over no hold that is shared, so nobody claims it. A client that holds nothing else leaves the
// trial, and tries the first member again.
func TestSharedIsNotClaimed(t *testing.T) {
	for _, both := range []bool{false, true} {
		c := newListener(t)
		shared, alone := c.Ask("a", false, true), uint64(0)
		granted := []Message{confirmation(16*unit, 16*unit), {Kind: Granted, Number: shared, Fence: 1, Node: 1}}
		if both {
			alone = c.Ask("b", false, false)
			granted = append(granted, Message{Kind: Granted, Number: alone, Fence: 2, Node: 1})
		}
		c.Connect(0, "x", false)
		c.take(0, granted...)
		c.Disconnect()
		c.Connect(1, "y", true)
		c.Output()
		answer := confirmation(16*unit, 16*unit)
		c.Handle(1, &answer)
		out, _ := c.Output()
		if both {
			require.Len(t, out, 1)
			require.Equal(t, Ask, out[0].Kind)
			require.Equal(t, alone, out[0].Number)
			require.True(t, c.Trying())
		} else {
			require.Equal(t, []Message{{Kind: Bye}}, out)
			require.False(t, c.Trying())
		}
		require.True(t, c.holding())
	}
}

// A session that is shorter than a member may have it begins none. Else the client would give up each connection with
// another member before that could answer.
func TestTooShort(t *testing.T) {
	for _, length := range []int64{0, 1, leases.Min - 1} {
		c := New("n")
		c.Connect(0, "s", false)
		c.Handle(0, &Message{Kind: Confirm, For: 1, Length: length})
		c.Disconnect()
		c.Connect(0, "t", false)
		require.Greater(t, c.Deadline(), int64(unit))
		c.Handle(unit, &Message{Kind: Confirm, For: 10 * unit, Length: 10 * unit})
		require.True(t, c.Connected())
	}
}
