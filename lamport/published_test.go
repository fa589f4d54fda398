package lamport

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/kit/spectest"
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

// spec is the module with the bound of the published model: ClockConstraint.
func (r rules) spec(maxClock uint8) spectest.Spec[spec] {
	return spectest.Spec[spec]{
		First: []spec{r.init()}, Next: r.next,
		Within: func(s *spec) bool { return slices.Max(s.clock[:]) <= maxClock },
	}
}

// The published model has as many states as its manifest says: for clocks to 6, 724,274 of 2,729,079 that are generated, with depth
// 61. The other rows are with our departures, one after the other.
func TestPublished(t *testing.T) {
	published := rules(0)
	for _, c := range []struct {
		rules    rules
		maxClock uint8
		want     spectest.Count
	}{
		{published, 4, spectest.Count{Distinct: 70_472, Generated: 276_114, Depth: 41}},
		{ticks, 6, spectest.Count{Distinct: 15_181, Generated: 54_116, Depth: 20}},
		{later, 6, spectest.Count{Distinct: 47_958, Generated: 218_348, Depth: 21}},
		{eager, 6, spectest.Count{Distinct: 36_118, Generated: 155_586, Depth: 19}},
		{published, 6, spectest.Count{Distinct: 724_274, Generated: 2_729_079, Depth: 61}},
	} {
		if c.want.Distinct > 100_000 {
			machinetest.Thorough(t)
		}
		got, states := c.rules.spec(c.maxClock).Explore()
		require.Equal(t, c.want, got, "rules %d, clocks to %d", c.rules, c.maxClock)
		for s := range states {
			if s.crit&(s.crit-1) != 0 { // the invariant Mutex
				require.Zero(t, s.crit&(s.crit-1), "two processes in %+v", s)
			}
		}
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

// Text is the whole state.
func (g *group) Text() string {
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

// Spec projects the group to the variables of the module. It leaves out the fences, and which request a message is about.
func (g *group) Spec() (s spec) {
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

// A weak machine has one rule of ours broken: it changes what a machine is, or sends, after an action.
type weak func(m *machine, action string, out []dmutex.Message) []dmutex.Message

// took puts the output of machine p into the network.
func (w weak) took(g *group, p proc, action string, out []dmutex.Message, err error) *group {
	if err != nil {
		panic(err) // the machines speak to each other only
	}
	if w != nil {
		out = w(g.machines[p], action, out)
	}
	for _, msg := range out {
		g.network[p][msg.To-1] = append(g.network[p][msg.To-1], msg)
	}
	return g
}

type step = spectest.Step[spec, *group]

// compare compares three machines with the module.
func (w weak) compare(t *testing.T, r rules, maxClock uint8) (ours, theirs int, err error) {
	first := &group{}
	for p := range procs {
		m, err := New(dmutex.Start{Self: dmutex.NodeID(p + 1), Members: dmutextest.Nodes(procs)})
		require.NoError(t, err)
		first.machines[p] = m.(*machine)
	}
	require.Equal(t, r.init(), first.Spec())
	return spectest.Compare([]*group{first}, func(g *group) (all []step) {
		s := g.Spec()
		for p, m := range g.machines {
			if m.Idle() {
				to := g.clone()
				out, err := to.machines[p].Request()
				same, enabled := r.request(s, p)
				all = append(all, step{Action: "Request", To: w.took(to, p, "Request", out, err), Same: same, Enabled: enabled})
			}
			if m.Phase() == dmutex.Held {
				to := g.clone()
				out, err := to.machines[p].Release()
				same, enabled := r.exit(s, p)
				all = append(all, step{Action: "Exit", To: w.took(to, p, "Exit", out, err), Same: same, Enabled: enabled})
			}
			for q := range procs {
				if len(g.network[q][p]) > 0 {
					to := g.clone()
					msg := to.network[q][p][0]
					to.network[q][p] = to.network[q][p][1:]
					action := "Receive " + msg.Kind.String()
					out, err := to.machines[p].Handle(msg)
					same, enabled := r.receive(s, p, q)
					all = append(all, step{Action: action, To: w.took(to, p, action, out, err), Same: same, Enabled: enabled})
				}
			}
		}
		return all
	}, r.spec(maxClock))
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
			ours, theirs, err := weak(nil).compare(t, eager, c.maxClock)
			require.NoError(t, err)
			t.Logf("%d states of ours are %d of the module", ours, theirs)
		})
	}
}

// The comparison notices a machine that breaks a rule, and a module that lacks one of our departures. It names the action.
func TestOtherSteps(t *testing.T) {
	without := func(kind dmutex.Kind) weak {
		return func(_ *machine, _ string, out []dmutex.Message) []dmutex.Message {
			return slices.DeleteFunc(out, func(m dmutex.Message) bool { return m.Kind == kind })
		}
	}
	for _, c := range []struct {
		name string
		weak weak
		rule rules
		said string
	}{
		{"a machine that requests from one peer only", func(_ *machine, action string, out []dmutex.Message) []dmutex.Message {
			if action == "Request" {
				return out[:1]
			}
			return out
		}, eager, "Request: ours leads to "},
		{"a machine that acknowledges nothing", without(dmutex.Reply), eager, "Receive REQUEST: ours leads to "},
		{"a machine that releases in silence", without(dmutex.Release), eager, "Exit: ours leads to "},
		{"a machine that takes any message of a peer for a later one", func(m *machine, action string, out []dmutex.Message) []dmutex.Message {
			for j := range m.later {
				m.later[j] = m.later[j] || action == "Receive REQUEST" && !m.Idle() && m.queue[j] != 0
			}
			return out
		}, eager, "Receive REQUEST: ours leads to "},
		{"a machine that keeps a request that was released", func(m *machine, action string, out []dmutex.Message) []dmutex.Message {
			if action == "Receive RELEASE" {
				m.queue[0] = max(m.queue[0], 1)
			}
			return out
		}, eager, "Receive RELEASE: ours leads to "},
		{"a module in which Enter is an action of its own", nil, later, "Receive REQUEST: ours leads to "},
		{"a module in which a message without a request acknowledges nothing", nil, ticks, "Receive REQUEST: ours leads to "},
	} {
		_, _, err := c.weak.compare(t, c.rule, 5)
		require.ErrorContains(t, err, c.said, c.name)
	}
}
