package dmutextest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

// The machines of this file are what a student hands in: right in most, wrong in one rule, and careless in what
// is not the paper's (WaitsFor, Forget).

// A homework is what they share. It waits for everybody, or nobody, and may be forgotten whenever it is idle.
type homework struct {
	site.Site
	mistake  string
	name     string
	replies  int
	deferred []dmutex.Stamp // to be replied to when we leave
	queue    []dmutex.Stamp
	heard    []uint64 // by peer: the time of its last message
	token    bool
	voted    dmutex.Stamp
	rules    *rules
}

type rules struct {
	request func(*homework)
	handle  func(*homework, dmutex.Message)
	release func(*homework, dmutex.Stamp)
	waits   func(*homework) []dmutex.NodeID
	begin   func(*homework)
}

func (r *rules) with(name, mistake string) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		own, err := site.New(s)
		if err != nil {
			return nil, err
		}
		m := &homework{Site: own, name: name, mistake: mistake, rules: r, heard: make([]uint64, len(own.Peers()))}
		if r.begin != nil {
			r.begin(m)
		}
		return m, nil
	}
}

func (m *homework) Request() ([]dmutex.Message, error) {
	if fresh, err := m.Ask(dmutex.Request); err != nil || !fresh {
		return nil, err
	}
	m.rules.request(m)
	return m.Out(), nil
}

func (m *homework) Release() ([]dmutex.Message, error) {
	over, err := m.Leave()
	if err != nil {
		return nil, err
	}
	m.rules.release(m, over)
	return m.Out(), nil
}

func (m *homework) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if _, err := m.Check(msg, func(dmutex.Message) string { return "" }); err != nil {
		return nil, err
	}
	fence := msg.Fence
	if m.mistake == "fences repeat" {
		fence = 0
	}
	m.Witness(max(msg.Attempt, msg.Clock), fence)
	m.rules.handle(m, msg)
	return m.Out(), nil
}

func (m *homework) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if m.rules.waits != nil {
		return append(b, m.rules.waits(m)...)
	}
	return b
}

func (m *homework) Forget() (clock, known uint64, ok bool) { return m.Clock(), m.Known(), m.Idle() }

func (m *homework) AppendText(b []byte) ([]byte, error) {
	return fmt.Appendf(m.AppendSite(append(b, m.name+" "...)), " replies=%d deferred=%v queue=%v heard=%v token=%v voted=%v",
		m.replies, m.deferred, m.queue, m.heard, m.token, m.voted), nil
}

func (m *homework) Clone() dmutex.Machine {
	c := *m
	c.Site = m.Site.Clone()
	c.deferred, c.queue, c.heard = slices.Clone(m.deferred), slices.Clone(m.queue), slices.Clone(m.heard)
	return &c
}

func (m *homework) all(kind dmutex.Kind, attempt uint64) {
	for _, peer := range m.Peers() {
		m.Send(kind, peer, attempt).Clock = m.Clock()
	}
}

func (m *homework) reply(to dmutex.Stamp) { m.Send(dmutex.Reply, to.Node, to.Clock) }

func from(msg dmutex.Message) dmutex.Stamp { return dmutex.Stamp{Clock: msg.Attempt, Node: msg.From} }

// enter enters, and leaves at once if the request was withdrawn.
func (m *homework) enter() {
	over := m.Stamp()
	if withdrawn := m.Enter(); withdrawn {
		m.rules.release(m, over)
	}
}

// ricartAgrawala counts the replies.
var ricartAgrawala = &rules{
	request: func(m *homework) { m.replies = 0; m.all(dmutex.Request, m.Stamp().Clock) },
	handle: func(m *homework, msg dmutex.Message) {
		r := from(msg)
		switch msg.Kind {
		case dmutex.Request:
			first := m.Stamp().Less(r)
			if m.mistake == "no tie-break" {
				first = m.Stamp().Clock < r.Clock
			}
			if m.Phase() == dmutex.Held && m.mistake != "replies inside" || m.Pending() && first {
				m.deferred = append(m.deferred, r)
			} else {
				m.reply(r)
			}
		case dmutex.Reply:
			if m.replies++; m.replies == len(m.Peers()) {
				m.enter()
			}
		}
	},
	release: func(m *homework, _ dmutex.Stamp) {
		for _, r := range m.deferred {
			m.reply(r)
		}
		m.deferred = nil
		if m.mistake != "leftover counter" {
			m.replies = 0
		}
	},
}

// lamport1978 has the queue of all requests.
var lamport1978 = &rules{
	request: func(m *homework) {
		m.queue = append(m.queue, m.Stamp())
		m.all(dmutex.Request, m.Stamp().Clock)
	},
	handle: func(m *homework, msg dmutex.Message) {
		r := from(msg)
		j := slices.Index(m.Peers(), msg.From)
		m.heard[j] = max(m.heard[j], msg.Attempt, msg.Clock)
		switch msg.Kind {
		case dmutex.Request:
			m.queue = append(m.queue, r)
			m.Advance()
			m.Send(dmutex.Reply, r.Node, r.Clock).Clock = m.Clock()
		case dmutex.Release:
			m.queue = slices.DeleteFunc(m.queue, func(q dmutex.Stamp) bool { return q == r })
		}
		slices.SortFunc(m.queue, dmutex.Stamp.Compare)
		late := slices.ContainsFunc(m.heard, func(t uint64) bool { return t < m.Stamp().Clock })
		if m.mistake == "does not wait for all" {
			late = slices.Max(m.heard) < m.Stamp().Clock
		}
		if m.Pending() && m.queue[0] == m.Stamp() && !late {
			m.enter()
		}
	},
	release: func(m *homework, over dmutex.Stamp) {
		m.queue = slices.DeleteFunc(m.queue, func(q dmutex.Stamp) bool { return q == over })
		m.all(dmutex.Release, over.Clock)
	},
}

// passed is a token that is sent to those that ask.
var passed = &rules{
	begin: func(m *homework) { m.token = m.Place() == 0 },
	request: func(m *homework) {
		if m.token {
			m.enter()
		} else {
			m.all(dmutex.Request, m.Stamp().Clock)
		}
	},
	handle: func(m *homework, msg dmutex.Message) {
		switch r := from(msg); {
		case msg.Kind == dmutex.Token:
			m.token = true
			m.enter()
		case m.token && m.Phase() == dmutex.Idle:
			m.Send(dmutex.Token, r.Node, r.Clock)
			m.token = m.mistake == "the token is copied"
		case m.token || m.Pending():
			m.queue = append(m.queue, r)
		}
	},
	release: func(m *homework, _ dmutex.Stamp) {
		if len(m.queue) > 0 {
			m.Send(dmutex.Token, m.queue[0].Node, m.queue[0].Clock)
			m.queue, m.token = m.queue[1:], false
		}
	},
}

// coordinator is central.
var coordinator = &rules{
	request: func(m *homework) {
		if m.Place() == 0 {
			m.grants(m.Stamp())
		} else {
			m.Send(dmutex.Request, m.Members()[0], m.Stamp().Clock)
		}
	},
	handle: func(m *homework, msg dmutex.Message) {
		switch msg.Kind {
		case dmutex.Request:
			m.grants(from(msg))
		case dmutex.Grant:
			m.enter()
		case dmutex.Release:
			m.next()
		}
	},
	release: func(m *homework, over dmutex.Stamp) {
		if m.Place() == 0 {
			m.next()
		} else {
			m.Send(dmutex.Release, m.Members()[0], over.Clock)
		}
	},
}

func (m *homework) grants(r dmutex.Stamp) {
	if m.queue = append(m.queue, r); len(m.queue) == 1 || m.mistake == "grants twice" && len(m.queue) == 2 {
		m.grant(r)
	}
}

func (m *homework) grant(r dmutex.Stamp) {
	if r.Node == m.Self() {
		m.enter()
	} else {
		m.Send(dmutex.Grant, r.Node, r.Clock)
	}
}

func (m *homework) next() {
	if m.queue = m.queue[1:]; len(m.queue) > 0 {
		m.grant(m.queue[0])
	}
}

// votes is Maekawa with the quorums {1,2}, {2,3} and {3,1}, without INQUIRE, YIELD and FAILED.
var votes = &rules{
	request: func(m *homework) {
		m.replies = 0
		m.vote(m.Stamp())
		m.Send(dmutex.Request, m.second(), m.Stamp().Clock)
	},
	handle: func(m *homework, msg dmutex.Message) {
		switch r := from(msg); msg.Kind {
		case dmutex.Request:
			m.vote(r)
		case dmutex.Reply:
			m.voice()
		case dmutex.Release:
			m.back()
		}
	},
	release: func(m *homework, over dmutex.Stamp) {
		m.Send(dmutex.Release, m.second(), over.Clock)
		m.back()
	},
}

func (m *homework) second() dmutex.NodeID { return m.Members()[(m.Place()+1)%len(m.Members())] }

func (m *homework) vote(r dmutex.Stamp) {
	if m.voted.Node != dmutex.None {
		m.queue = append(m.queue, r)
		return
	}
	if m.voted = r; r.Node == m.Self() {
		m.voice()
	} else {
		m.reply(r)
	}
}

func (m *homework) voice() {
	if m.replies++; m.replies == 2 {
		m.replies = 0
		m.enter()
	}
}

func (m *homework) back() {
	m.voted = dmutex.Stamp{}
	if len(m.queue) > 0 {
		r := m.queue[0]
		m.queue = m.queue[1:]
		m.vote(r)
	}
}

func everybody(m *homework) []dmutex.NodeID {
	if !m.Pending() {
		return nil
	}
	return m.Peers()
}

// What is wrong in the algorithm is named, however careless the rest is; and where the algorithm is right, the sentence names the
// method that is not.
func TestHomework(t *testing.T) {
	for _, tt := range []struct {
		name    string
		rules   *rules
		mistake string
		nodes   int
		kind    error
		why     string
	}{
		{"Ricart-Agrawala", ricartAgrawala, "no tie-break", 3, ErrMutualExclusion, "both hold the lock"},
		{"Ricart-Agrawala", ricartAgrawala, "replies inside", 3, ErrMutualExclusion, "both hold the lock"},
		{"Ricart-Agrawala", ricartAgrawala, "fences repeat", 3, ErrFenceOrder, "after a grant with fence"},
		{"Lamport", lamport1978, "does not wait for all", 3, ErrMutualExclusion, "both hold the lock"},
		{"token", passed, "the token is copied", 3, ErrMutualExclusion, "both hold the lock"},
		{"central", coordinator, "grants twice", 3, ErrMutualExclusion, "both hold the lock"},
		{"central", coordinator, "fences repeat", 3, ErrFenceOrder, "after a grant with fence"},
		{"Maekawa", votes, "no INQUIRE", 3, ErrDeadlock, "waits, no node holds the lock"},
		{"Ricart-Agrawala", ricartAgrawala, "leftover counter", 3, ErrContract, "Forget lets"},
		{"Ricart-Agrawala", ricartAgrawala, "", 2, nil, ""},
	} {
		for careless, waits := range map[string]func(*homework) []dmutex.NodeID{"waits for nobody": nil, "waits for everybody": everybody} {
			t.Run(tt.name+", "+tt.mistake+", "+careless, func(t *testing.T) {
				r := *tt.rules
				r.waits = waits
				c := Config{Algorithm: r.with(tt.name, tt.mistake), Members: Nodes(tt.nodes), Requests: []int{2}, MaxStates: 300_000}
				report, err := Explore(c)
				if waits == nil && (tt.kind == nil || tt.kind == ErrContract) {
					require.ErrorIs(t, err, ErrUnfound)
					require.ErrorContains(t, err, "WaitsFor of ")
					return
				}
				if tt.kind == nil {
					require.NoError(t, err)
					require.True(t, report.Complete)
					return
				}
				require.ErrorIs(t, err, tt.kind)
				require.ErrorContains(t, err, tt.why)
				v, _ := wrongly(err)
				require.Contains(t, v.Script, "violation: "+name(tt.kind))
				require.LessOrEqual(t, strings.Count(v.Script, "violation: contract"), 1, "what is less grave is said once")
				again, err := RunScript(c.Algorithm, v.Script)
				require.NoError(t, err)
				require.Equal(t, v.Script, again)
				_, err = Walk(c, 1, 300)
				require.Equal(t, slices.Contains(grave, tt.kind), isGrave(err), "%v", err)
			})
		}
	}
}
