package lamport

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// The published specification of this algorithm is module LamportMutex by Stephan Merz, in the collection of examples of
// TLA+ (specifications/lamport_mutex). Below are its variables and its actions, under its names, for three processes. It
// departs from the paper in three rules, which can be switched on one after the other; our machine has all three.
// docs/testing.md says what is the same and what is not.

const procs = 3 // N

type (
	proc = int
	set  uint8 // of processes
)

const all set = 1<<procs - 1

// The kinds of messages.
const (
	req = iota + 1
	ack
	rel
)

// A sent is a message. Only a request has a clock in the published module.
type sent struct{ kind, clock uint8 }

const mostSent = 6 // in a channel; the published module has an invariant that at most 3 are needed

type channel struct {
	n    uint8
	sent [mostSent]sent
}

func (c *channel) append(m sent) {
	c.sent[c.n] = m
	c.n++
}

func (c *channel) tail() {
	copy(c.sent[:], c.sent[1:c.n])
	c.n--
	c.sent[c.n] = sent{}
}

// A spec is a state of the module.
type spec struct {
	clock   [procs]uint8
	req     [procs][procs]uint8
	ack     [procs]set
	network [procs][procs]channel
	crit    set
}

// Rules are where we depart from the published module, each with those before it. It has none of them.
type rules int

const (
	ticks rules = iota + 1 // a clock advances with every event, and every message has a time
	later                  // any message later than a request acknowledges it, not only its ack
	eager                  // Enter happens in the step that makes it possible
)

func (r rules) init() (s spec) {
	if r < ticks {
		s.clock = [procs]uint8{1, 1, 1}
	}
	return s // else Request advances the clock first
}

func beats(s *spec, p, q proc) bool {
	return s.req[p][q] == 0 || s.req[p][p] < s.req[p][q] || s.req[p][p] == s.req[p][q] && p < q
}

func broadcast(s *spec, p proc, m sent) {
	for q := range procs {
		if q != p {
			s.network[p][q].append(m)
		}
	}
}

// time is what a message other than a request carries.
func (r rules) time(s *spec, p proc) uint8 {
	if r >= ticks {
		return s.clock[p]
	}
	return 0
}

func (r rules) request(s spec, p proc) (spec, bool) {
	if s.req[p][p] != 0 {
		return s, false
	}
	if r >= ticks {
		s.clock[p]++
	}
	s.req[p][p] = s.clock[p]
	broadcast(&s, p, sent{req, s.clock[p]})
	s.ack[p] = 1 << p
	return r.settle(s, p), true
}

// receive is ReceiveRequest, ReceiveAck and ReceiveRelease: the kind of the first message says which.
func (r rules) receive(s spec, p, q proc) (spec, bool) {
	c := &s.network[q][p]
	if c.n == 0 {
		return s, false
	}
	m := c.sent[0]
	c.tail()
	if r >= ticks || m.kind == req {
		s.clock[p] = max(s.clock[p], m.clock) + 1
	}
	if r >= later && s.req[p][p] != 0 && (m.clock > s.req[p][p] || m.clock == s.req[p][p] && q > p) {
		s.ack[p] |= 1 << q
	}
	switch m.kind {
	case req:
		s.req[p][q] = m.clock
		s.network[p][q].append(sent{ack, r.time(&s, p)})
	case ack:
		if r < later {
			s.ack[p] |= 1 << q
		}
	case rel:
		s.req[p][q] = 0
	}
	return r.settle(s, p), true
}

func (r rules) enter(s spec, p proc) (spec, bool) {
	if s.ack[p] != all {
		return s, false
	}
	for q := range procs {
		if q != p && !beats(&s, p, q) {
			return s, false
		}
	}
	s.crit |= 1 << p
	return s, true
}

func (r rules) settle(s spec, p proc) spec {
	if r >= eager {
		s, _ = r.enter(s, p)
	}
	return s
}

func (r rules) exit(s spec, p proc) (spec, bool) {
	if s.crit&(1<<p) == 0 {
		return s, false
	}
	s.crit &^= 1 << p
	if r >= ticks {
		s.clock[p]++
	}
	broadcast(&s, p, sent{rel, r.time(&s, p)})
	s.req[p][p], s.ack[p] = 0, 0
	return s, true
}

// next appends the states that follow.
func (r rules) next(b []spec, s spec) []spec {
	add := func(t spec, enabled bool) {
		if enabled {
			b = append(b, t)
		}
	}
	for p := range procs {
		add(r.request(s, p))
		if r < eager {
			add(r.enter(s, p))
		}
		add(r.exit(s, p))
		for q := range procs {
			if q != p {
				add(r.receive(s, p, q))
			}
		}
	}
	return b
}

// clockConstraint is the bound of the published model.
func clockConstraint(s *spec, maxClock uint8) bool { return slices.Max(s.clock[:]) <= maxClock }

// A count is what TLC prints: the states that were generated include those that were known, and those beyond the bound.
type count struct{ distinct, generated, depth int }

// explore visits all states, and checks that the invariant Mutex holds.
func (r rules) explore(t *testing.T, maxClock uint8) (c count, states map[spec]struct{}) {
	first := r.init()
	states = map[spec]struct{}{first: {}}
	level := []spec{first}
	c.generated = 1
	var list []spec
	for ; len(level) > 0; c.depth++ {
		var found []spec
		for _, s := range level {
			list = r.next(list[:0], s)
			c.generated += len(list)
			for _, n := range list {
				if _, known := states[n]; known || !clockConstraint(&n, maxClock) {
					continue
				}
				if n.crit&(n.crit-1) != 0 {
					require.Zero(t, n.crit&(n.crit-1), "two processes in %+v", n)
				}
				states[n] = struct{}{}
				found = append(found, n)
			}
		}
		level = found
	}
	c.distinct = len(states)
	return c, states
}

// The published model has as many states as its manifest says: for clocks to 6, 724,274 of 2,729,079 that are generated, with depth
// 61. The other rows are with our departures, one after the other.
func TestPublished(t *testing.T) {
	published := rules(0)
	for _, c := range []struct {
		rules    rules
		maxClock uint8
		want     count
	}{
		{published, 4, count{70_472, 276_114, 41}},
		{ticks, 6, count{15_181, 54_116, 20}},
		{later, 6, count{47_958, 218_348, 21}},
		{eager, 6, count{36_118, 155_586, 19}},
		{published, 6, count{724_274, 2_729_079, 61}},
	} {
		if c.want.distinct > 100_000 {
			machinetest.Thorough(t)
		}
		got, _ := c.rules.explore(t, c.maxClock)
		require.Equal(t, c.want, got, "rules %d, clocks to %d", c.rules, c.maxClock)
	}
}

// A group is three of our machines and the messages in flight.
type group struct {
	machines [procs]*machine
	network  [procs][procs][]dmutex.Message
}

func (g *group) clone() *group {
	c := &group{}
	for p, m := range g.machines {
		c.machines[p] = m.Clone().(*machine)
		for q := range procs {
			c.network[p][q] = slices.Clone(g.network[p][q])
		}
	}
	return c
}

// text is the whole state.
func (g *group) text() string {
	var b []byte
	for p, m := range g.machines {
		b, _ = m.AppendText(b)
		for q := range procs {
			for _, msg := range g.network[p][q] {
				b, _ = msg.AppendText(append(b, ';'))
			}
		}
		b = append(b, '\n')
	}
	return string(b)
}

// spec projects the group to the variables of the module. It leaves out the fences, and which request a message is about.
func (g *group) spec() (s spec) {
	for p, m := range g.machines {
		s.clock[p] = uint8(m.Clock())
		s.req[p][p] = uint8(m.Stamp().Clock)
		for j, peer := range m.Peers() {
			s.req[p][peer-1] = uint8(m.queue[j])
			if m.later[j] && !m.Idle() {
				s.ack[p] |= 1 << (peer - 1)
			}
		}
		if !m.Idle() {
			s.ack[p] |= 1 << p
		}
		if m.Phase() == dmutex.Held {
			s.crit |= 1 << p
		}
		for q := range procs {
			for _, msg := range g.network[p][q] {
				kind := map[dmutex.Kind]uint8{dmutex.Request: req, dmutex.Reply: ack, dmutex.Release: rel}[msg.Kind]
				s.network[p][q].append(sent{kind, uint8(msg.Clock)})
			}
		}
	}
	return s
}

// took puts the output of machine p into the network.
func (g *group) took(t *testing.T, p proc, out []dmutex.Message, err error) *group {
	require.NoError(t, err)
	for _, msg := range out {
		g.network[p][msg.To-1] = append(g.network[p][msg.To-1], msg)
	}
	return g
}

// follow calls step with each step of the group, and with the same action of the module.
func (g *group) follow(t *testing.T, step func(to *group, action string, same spec, enabled bool)) {
	s := g.spec()
	for p, m := range g.machines {
		if m.Idle() {
			to := g.clone()
			out, err := to.machines[p].Request()
			same, enabled := eager.request(s, p)
			step(to.took(t, p, out, err), "Request", same, enabled)
		}
		if m.Phase() == dmutex.Held {
			to := g.clone()
			out, err := to.machines[p].Release()
			same, enabled := eager.exit(s, p)
			step(to.took(t, p, out, err), "Exit", same, enabled)
		}
		for q := range procs {
			if len(g.network[q][p]) > 0 {
				to := g.clone()
				msg := to.network[q][p][0]
				to.network[q][p] = to.network[q][p][1:]
				out, err := to.machines[p].Handle(msg)
				same, enabled := eager.receive(s, p, q)
				step(to.took(t, p, out, err), "Receive", same, enabled)
			}
		}
	}
}

// Each step of our machine is the step of the same name of the module with our three departures, in every state that
// either reaches: from the same projection both can do the same, and it leads to the same projection. So both reach the same states.
func TestOurSteps(t *testing.T) {
	for _, c := range []struct {
		name     string
		maxClock uint8
		run      func(*testing.T)
	}{{"clocks to 5", 5, func(*testing.T) {}}, {"clocks to 6", 6, machinetest.Thorough}, {"clocks to 7", 7, machinetest.Long}} {
		t.Run(c.name, func(t *testing.T) {
			c.run(t)
			want, states := eager.explore(t, c.maxClock)
			first := &group{}
			for p := range procs {
				m, err := New(dmutex.Start{Self: dmutex.NodeID(p + 1), Members: dmutextest.Nodes(procs)})
				require.NoError(t, err)
				first.machines[p] = m.(*machine)
			}
			require.Equal(t, eager.init(), first.spec())
			seen, projected := map[string]struct{}{first.text(): {}}, map[spec]struct{}{first.spec(): {}}
			for level := []*group{first}; len(level) > 0; {
				var found []*group
				for _, g := range level {
					steps, s := 0, g.spec()
					g.follow(t, func(to *group, action string, same spec, enabled bool) {
						steps++
						is := to.spec()
						if !enabled || is != same {
							require.True(t, enabled, "%s in %s", action, g.text())
							require.Equal(t, same, is, "%s in %s", action, g.text())
						}
						text := to.text()
						if _, known := seen[text]; known || !clockConstraint(&is, c.maxClock) {
							return
						}
						if _, reached := states[is]; !reached {
							require.True(t, reached, "the module does not reach %+v", is)
						}
						seen[text], projected[is] = struct{}{}, struct{}{}
						found = append(found, to)
					})
					if can := len(eager.next(nil, s)); can != steps {
						require.Equal(t, can, steps, "the module can do something else in %s", g.text())
					}
				}
				level = found
			}
			t.Logf("%d states of ours are %d of the module", len(seen), len(projected))
			require.Len(t, projected, want.distinct)
		})
	}
}
