package election

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/spectest"
)

// The published specification of the algorithm of Chang and Roberts is module ChangRoberts by Stephan Merz, in the
// collection of examples of TLA+ (specifications/chang_roberts). Below are its variables and its actions, under its
// names. It departs from the paper in two rules, and from our channels in one; they can be switched on one after
// the other, and our machine has all three. docs/testing.md says what is the same and what is not.

const mostPlaces = 5 // of a ring that is compared

type (
	id  = uint8 // in the module the lowest wins, and 0 is none
	set uint8   // of places
)

// The states of a place.
const (
	asleep = iota // with the rule wakes only
	cand
	lost
	won
)

// A spec is a state of the module. msgs of a place are ascending unless the order counts.
type spec struct {
	msgs      [mostPlaces][mostPlaces]id
	n1        set // places that have done n0
	initiator set
	state     [mostPlaces]uint8
}

// Departures are those from the published module, each with those before it.
type departures int

const (
	ordered departures = iota + 1 // a message is received before those that were sent after it
	drops                         // a node that has lost drops an identity that is worse than its own
	wakes                         // a node is an initiator if it begins before it has passed a better identity on
)

// A module is ChangRoberts with the constant Id.
type module struct {
	departures
	id []id
}

func (m module) first() (all []spec) {
	if m.departures >= wakes {
		return []spec{{}}
	}
	for initiator := range set(1) << len(m.id) {
		s := spec{initiator: initiator}
		for p := range m.id {
			s.state[p] = lost
			if initiator&(1<<p) != 0 {
				s.state[p] = cand
			}
		}
		all = append(all, s)
	}
	return all
}

// pass puts an identity into the messages of the successor.
func (m module) pass(s *spec, p int, what id) {
	to := &s.msgs[(p+1)%len(m.id)]
	n := slices.Index(to[:], 0)
	if m.departures < ordered {
		if slices.Contains(to[:n], what) {
			return // it is a set
		}
		for n > 0 && to[n-1] > what {
			to[n] = to[n-1]
			n--
		}
	}
	to[n] = what
}

// begin is n0.
func (m module) begin(s spec, p int) (spec, bool) {
	if s.n1&(1<<p) != 0 {
		return s, false
	}
	s.n1 |= 1 << p
	if m.departures >= wakes {
		s.initiator |= 1 << p
		s.state[p] = cand
	}
	if s.initiator&(1<<p) != 0 {
		m.pass(&s, p, m.id[p])
	}
	return s, true
}

// receive is n1 with the message k.
func (m module) receive(s spec, p, k int) (spec, bool) {
	what := s.msgs[p][k]
	if what == 0 || m.departures < wakes && s.n1&(1<<p) == 0 {
		return s, false
	}
	copy(s.msgs[p][k:], s.msgs[p][k+1:])
	s.msgs[p][mostPlaces-1] = 0
	switch own := m.id[p]; {
	case s.state[p] == asleep && what > own:
		return m.begin(s, p)
	case what < own:
		s.state[p] = lost
		s.n1 |= 1 << p
		m.pass(&s, p, what)
	case s.state[p] == lost && m.departures < drops:
		m.pass(&s, p, what)
	case s.state[p] != lost && what == own:
		s.state[p] = won
	}
	return s, true
}

func (m module) next(b []spec, s spec) []spec {
	for p := range m.id {
		if t, enabled := m.begin(s, p); enabled {
			b = append(b, t)
		}
		for k := range m.id {
			if t, enabled := m.receive(s, p, k); enabled && (k == 0 || m.departures < ordered) {
				b = append(b, t)
			}
		}
	}
	return b
}

func (m module) spec() spectest.Spec[spec] {
	return spectest.Spec[spec]{First: m.first(), Next: m.next, Within: func(*spec) bool { return true }}
}

// correct is the invariant Correctness: a node that has won is the initiator with the best identity, and all others know that they have lost.
func (m module) correct(s spec) bool {
	for n := range m.id {
		if s.state[n] != won {
			continue
		}
		for o := range m.id {
			if s.initiator&(1<<n) == 0 || o != n && (s.state[o] != lost || s.initiator&(1<<o) != 0 && m.id[o] < m.id[n]) {
				return false
			}
		}
	}
	return true
}

// The published model, three nodes whose identities ascend, has as many states as its manifest says: 137 of 227 that are
// generated, with depth 10. The other rows are with our departures, one after the other.
func TestPublished(t *testing.T) {
	for _, c := range []struct {
		departures departures
		want       spectest.Count
	}{
		{0, spectest.Count{Distinct: 137, Generated: 227, Depth: 10}},
		{ordered, spectest.Count{Distinct: 120, Generated: 188, Depth: 10}},
		{drops, spectest.Count{Distinct: 113, Generated: 179, Depth: 10}},
		{wakes, spectest.Count{Distinct: 40, Generated: 67, Depth: 9}},
	} {
		m := module{c.departures, []id{1, 2, 3}}
		got, states := m.spec().Explore()
		require.Equal(t, c.want, got, "departures %d", c.departures)
		for s := range states {
			require.True(t, m.correct(s), "%+v", s)
		}
	}
}

// A loop is a ring of our machines and the messages in flight to each.
type loop struct {
	module
	machines []*machine // by place
	msgs     [][]Message
}

func newLoop(t *testing.T, m module) *loop {
	g := &loop{module: m, msgs: make([][]Message, len(m.id))}
	var ring []dmutex.NodeID
	for _, what := range m.id { // with us the highest wins
		ring = append(ring, dmutex.NodeID(len(m.id)+1-int(what)))
	}
	for _, self := range ring {
		made, err := ChangRoberts(Config{Self: self, Members: ring, Outcome: 1})
		require.NoError(t, err)
		g.machines = append(g.machines, made.(*machine))
	}
	return g
}

func (g *loop) clone() *loop {
	c := &loop{module: g.module, msgs: slices.Clone(g.msgs)}
	for _, m := range g.machines {
		c.machines = append(c.machines, m.Clone().(*machine))
	}
	return c
}

// Text is the whole state.
func (g *loop) Text() string {
	var b []byte
	for p, m := range g.machines {
		b, _ = m.AppendText(b)
		b = fmt.Appendf(b, " %v %d\n", g.msgs[p], m.ballot)
	}
	return string(b)
}

// Spec projects the loop to the variables of the module. It leaves out the announcement, the numbers of elections, how
// many nodes a message has passed, and the timeouts.
func (g *loop) Spec() (s spec) {
	for p, m := range g.machines {
		switch leader, _ := m.Leader(); {
		case leader == m.config.Self:
			s.state[p] = won
		case m.phase == asking:
			s.state[p] = cand
		case m.phase == waiting || m.led:
			s.state[p] = lost
		}
		if s.state[p] != asleep {
			s.n1 |= 1 << p
		}
		if m.ballot != 0 {
			s.initiator |= 1 << p
		}
		k := 0
		for _, msg := range g.msgs[p] {
			if msg.Kind == Election {
				s.msgs[p][k] = id(len(g.machines) - m.owner(msg.Ballot))
				k++
			}
		}
	}
	return s
}

// A weak machine has one rule of ours broken: it changes what a machine is, or sends, after an action.
type weak func(m *machine, action string, out []Message) []Message

const announcement = "the announcement" // which the module does not have

type step = spectest.Step[spec, *loop]

// compare compares a ring of machines with the module, from the beginning to the end of one election: no node begins when it knows the leader.
func (w weak) compare(t *testing.T, m module) (ours, theirs int, err error) {
	took := func(g *loop, p int, action string, out []Message) *loop {
		if w != nil {
			out = w(g.machines[p], action, out)
		}
		next := (p + 1) % len(g.msgs)
		g.msgs[next] = append(slices.Clip(g.msgs[next]), out...)
		return g
	}
	return spectest.Compare([]*loop{newLoop(t, m)}, func(g *loop) (all []step) {
		s := g.Spec()
		for p, is := range g.machines {
			if is.phase == idle && !is.led {
				to := g.clone()
				same, enabled := m.begin(s, p)
				all = append(all, step{Action: "n0", To: took(to, p, "n0", to.machines[p].Start()), Same: same, Enabled: enabled})
			}
			if len(g.msgs[p]) == 0 {
				continue
			}
			to := g.clone()
			msg := to.msgs[p][0]
			to.msgs[p] = to.msgs[p][1:]
			out, err := to.machines[p].Handle(msg)
			require.NoError(t, err)
			if msg.Kind == Coordinator {
				all = append(all, step{Action: announcement, To: took(to, p, announcement, out), Extra: true})
				continue
			}
			same, enabled := m.receive(s, p, 0)
			all = append(all, step{Action: "n1", To: took(to, p, "n1", out), Same: same, Enabled: enabled})
		}
		return all
	}, m.spec())
}

// rings returns every order of n identities around a ring.
func rings(n int) (all [][]id) {
	if n == 1 {
		return [][]id{{1}}
	}
	for _, r := range rings(n - 1) {
		for at := range n - 1 {
			all = append(all, slices.Insert(slices.Clone(r), at+1, id(n)))
		}
	}
	return all
}

// Each step of our machines is the step of the same name of the module with our three departures, in every state that
// either reaches, on every ring of two to five nodes.
func TestOurSteps(t *testing.T) {
	for _, c := range []struct{ nodes, want int }{{2, 10}, {3, 69}, {4, 713}, {mostPlaces, 9762}} {
		ours, same := 0, 0
		for _, ring := range rings(c.nodes) {
			of, are, err := weak(nil).compare(t, module{wakes, ring})
			require.NoError(t, err, ring)
			ours, same = ours+of, same+are
		}
		require.Equal(t, c.want, same)
		t.Logf("%d nodes: %d states of ours are %d of the module", c.nodes, ours, same)
	}
}

// The comparison notices a machine that breaks a rule, and names the action.
func TestOtherSteps(t *testing.T) {
	for _, c := range []struct {
		name string
		weak weak
		said string
	}{
		{"a machine that begins in silence", func(_ *machine, action string, out []Message) []Message {
			if action == "n0" {
				return nil
			}
			return out
		}, "n0: ours leads to "},
		{"a machine that passes nothing on", func(_ *machine, action string, out []Message) []Message {
			if action == "n1" {
				return nil
			}
			return out
		}, "n1: ours leads to "},
		{"a machine that runs on after it has passed a better identity on", func(m *machine, _ string, out []Message) []Message {
			if m.phase == waiting {
				m.phase = asking
			}
			return out
		}, "n1: ours leads to "},
		{"a machine that leads as soon as it has dropped a worse identity", func(m *machine, action string, out []Message) []Message {
			if action == "n1" && m.phase == asking {
				m.lead(m.ballot)
			}
			return out
		}, "n1: ours leads to "},
		{"a machine that forgets at the announcement who leads", func(m *machine, action string, out []Message) []Message {
			if action == announcement {
				m.led = false
			}
			return out
		}, "the announcement: ours leads to "},
	} {
		_, _, err := c.weak.compare(t, module{wakes, []id{1, 2, 3}})
		require.ErrorContains(t, err, c.said, c.name)
	}
}
