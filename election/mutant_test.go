package election

import "github.com/dmutex/dmutex"

// A mutant is a machine with one rule broken. A nil function changes nothing.
type mutant struct {
	Machine
	handle func(m *machine, msg Message) ([]Message, error)
	after  func(m *machine, out []Message) []Message // each call

	// Suspect and Unsuspect
	suspects func(m *machine, node dmutex.NodeID, suspected bool) ([]Message, error)
}

// quiet is a ring that runs only if it has no leader.
type quiet struct{ ring }

func (q quiet) campaign() {
	if !q.led || q.suspects[q.owner(q.epoch)] {
		q.ring.campaign()
	}
}

func (m mutant) alter(out []Message) []Message {
	if m.after == nil {
		return out
	}
	return m.after(m.Machine.(*machine), out)
}

func (m mutant) Start() []Message { return m.alter(m.Machine.Start()) }
func (m mutant) Tick() []Message  { return m.alter(m.Machine.Tick()) }

func (m mutant) Handle(msg Message) (out []Message, err error) {
	if m.handle != nil {
		out, err = m.handle(m.Machine.(*machine), msg)
	} else {
		out, err = m.Machine.Handle(msg)
	}
	return m.alter(out), err
}

func (m mutant) Suspect(node dmutex.NodeID) ([]Message, error) {
	if m.suspects != nil {
		return m.suspects(m.Machine.(*machine), node, true)
	}
	out, err := m.Machine.Suspect(node)
	return m.alter(out), err
}

func (m mutant) Unsuspect(node dmutex.NodeID) ([]Message, error) {
	if m.suspects != nil {
		return m.suspects(m.Machine.(*machine), node, false)
	}
	out, err := m.Machine.Unsuspect(node)
	return m.alter(out), err
}

func (m mutant) Clone() Machine {
	m.Machine = m.Machine.Clone()
	return m
}

// of returns the algorithm with each machine mutated.
func (m mutant) of(algorithm Algorithm) Algorithm {
	return func(c Config) (Machine, error) {
		var err error
		m.Machine, err = algorithm(c)
		return m, err
	}
}

// Mutants are the algorithms with one rule broken, by name.
var Mutants = map[string]Algorithm{
	// Any announcement is followed, also an older one.
	"bully-no-epochs": mutant{handle: func(m *machine, msg Message) ([]Message, error) {
		if msg.Kind == Coordinator && msg.Epoch < m.epoch {
			m.epoch = msg.Epoch - 1
		}
		return m.Handle(msg)
	}}.of(Bully),

	// An older announcement is ignored, not answered.
	"bully-old-not-answered": mutant{handle: func(m *machine, msg Message) ([]Message, error) {
		if msg.Kind == Coordinator && msg.Epoch < m.epoch {
			return nil, nil
		}
		return m.Handle(msg)
	}}.of(Bully),

	// The answer says that there is a newer epoch, but names no leader.
	"bully-answer-names-nobody": mutant{handle: func(m *machine, msg Message) ([]Message, error) {
		if msg.Kind == Coordinator && dmutex.NodeID(m.owner(msg.Epoch)+1) != msg.From {
			m.out = nil
			if m.leads() && msg.Epoch > m.epoch {
				m.met = max(m.met, msg.Epoch)
				m.lead(m.next(m.met))
				for j := range m.members {
					if j != m.me {
						bully{m}.announce(j)
					}
				}
			}
			return m.out, nil
		}
		return m.Handle(msg)
	}}.of(Bully),

	// A node that heard an ANSWER waits forever.
	"bully-no-second-timeout": mutant{after: func(m *machine, out []Message) []Message {
		if m.phase == waiting {
			m.left = 0
		}
		return out
	}}.of(Bully),

	// A leader that is suspected is contested at once.
	"bully-suspect-contested": mutant{after: func(m *machine, out []Message) []Message {
		if leader := m.owner(m.epoch); m.phase == waiting && m.epoch == m.met && m.suspects[leader] {
			m.elect()
			return m.out
		}
		return out
	}}.of(Bully),

	// Under the majority rule a node keeps running although a higher one runs.
	"bully-runs-on": mutant{handle: func(m *machine, msg Message) ([]Message, error) {
		if j := int(msg.From) - 1; msg.Kind == Election && j > m.me && msg.Ballot < m.met && m.phase == asking {
			m.out = nil
			m.send(j, Message{Kind: Agree, Ballot: m.met})
			return m.out, nil
		}
		return m.Handle(msg)
	}}.of(Bully),

	// Under the majority rule no node is asked to agree.
	"bully-not-let": mutant{after: func(m *machine, out []Message) []Message {
		for j := range m.agreed {
			m.agreed[j] = j != m.me
		}
		return out
	}}.of(Bully),

	// Under the majority rule a leader leads on, no matter how few nodes it reaches.
	"bully-minority-leads-on": mutant{after: func(m *machine, out []Message) []Message {
		if !m.able() && m.epoch > 0 && m.owner(m.epoch) == m.me {
			m.led = true
		}
		return out
	}}.of(Bully),

	// No node begins again when the election dies with a node.
	"ring-no-timeout": mutant{after: func(m *machine, out []Message) []Message {
		m.left = 0
		return out
	}}.of(Ring),

	// A new successor is no reason to run.
	"ring-successor-not-told": mutant{suspects: func(m *machine, node dmutex.NodeID, suspected bool) ([]Message, error) {
		told := m.rules
		m.rules = func(m *machine) rules { return quiet{ring{circle{m}}} }
		defer func() { m.rules = told }()
		if suspected {
			return m.Suspect(node)
		}
		return m.Unsuspect(node)
	}}.of(Ring),

	// A node that has let a higher ballot run still takes the office from a lower one.
	"ring-office-of-the-outrun": mutant{handle: func(m *machine, msg Message) ([]Message, error) {
		if msg.Kind == Coordinator && m.owner(msg.Epoch) == m.me && msg.Epoch > m.epoch {
			m.met = min(m.met, msg.Ballot)
		}
		return m.Handle(msg)
	}}.of(Ring),

	// A name whose node has crashed goes around forever.
	"changroberts-no-count": mutant{handle: func(m *machine, msg Message) ([]Message, error) {
		msg.Passed = min(msg.Passed, 1)
		return m.Handle(msg)
	}}.of(ChangRoberts),

	// A node that has passed a higher name on still leads when its own name comes back.
	"changroberts-leads-beside": mutant{handle: func(m *machine, msg Message) ([]Message, error) {
		if msg.Kind == Election && m.owner(msg.Ballot) == m.me && m.able() {
			m.phase, m.ballot = asking, msg.Ballot
		}
		return m.Handle(msg)
	}}.of(ChangRoberts),
}
