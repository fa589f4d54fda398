package consent

import (
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/protocol"
)

// Config describes a life and its group.
type Config struct {
	Self    dmutex.NodeID
	Members []dmutex.NodeID // all members that there can be, Self among them, in any order, no duplicates

	// Life is the number of this life: not 0, unique among the lives of the member, and higher than
	// those of former lives if possible. It begins with the clock, in nanoseconds since 2020.
	Life uint64

	// Fence is the highest fence known that was granted before, below 1<<63: every
	// fence of a view with this member will be higher.
	Fence uint64

	// Clock is the wall clock: milliseconds since 2020-01-01 UTC, until 2089. A clock
	// before 2020 counts as 0. The driver keeps it up to date with [Machine.Clock].
	Clock uint64

	Speaks protocol.Versions // of the protocol
}

// instead is advice for a group that is larger than the bound.
const instead = "let fewer processes be members, and take locks for the others"

// New returns a life that has met no peer. It refuses an invalid Config with [dmutex.ErrMisuse].
func New(cfg Config) (*Machine, error) {
	nodes, self, err := canon.Members("", cfg.Members, cfg.Self)
	switch {
	case err != nil:
		return nil, dmutex.Misuse(err.Error())
	case len(nodes) > membership.MaxMembers:
		return nil, dmutex.Misuse("a group has at most 64 members, not " + strconv.Itoa(len(nodes)) + ": " + instead)
	}
	m := &Machine{self: self, life: cfg.Life, floor: epochs.Above(cfg.Fence), clock: min(cfg.Clock, epochs.MaxClock), speaks: cfg.Speaks, beginAt: due.Never, doubtAt: due.Never}
	// A former life may have promised any round up to the clock.
	m.highest = max(m.clock, max(m.floor, 1)-1)
	for _, node := range nodes {
		m.members = append(m.members, member{node: node})
	}
	m.me().life, m.me().newest = cfg.Life, cfg.Life
	return m, nil
}

// Phase returns the phase of this life.
func (m *Machine) Phase() Phase { return m.phase }

// View returns the view that is installed: the zero View before the first.
func (m *Machine) View() membership.View { return m.in.View }

// Later returns, if the phase is Older or Stopped, the later life of this number that
// the others know; 0 if this life was evicted.
func (m *Machine) Later() uint64 { return m.later }

// Missing appends the members that this life waits for: those whose promise the open round or
// whose report the view lacks, those that are down, and those that still need a leaving life.
func (m *Machine) Missing(b []dmutex.NodeID) []dmutex.NodeID {
	for i := range m.members {
		p := &m.members[i]
		switch {
		case m.ended() || i == m.self:
		case m.exit.Epoch > 0 && m.exit.Life(p.node) != 0 && p.complete.Epoch < m.exit.Epoch,
			m.round != 0 && p.promise == nil && !m.excused(p, m.lastComplete()),
			m.in.View.Epoch == 0 && p.life == 0,
			m.in.Lacks(p.node),
			m.in.View.Life(p.node) != 0 && p.life == 0:
			b = append(b, p.node)
		}
	}
	return b
}

// Newest returns the latest life of a member that was heard of, 0 if none was, and the last round in which it has
// refuted, by a promise, the operator's word that it is dead.
func (m *Machine) Newest(node dmutex.NodeID) (life, refuted uint64) {
	if p := m.member(node); p != nil {
		return p.newest, p.refuted
	}
	return 0, 0
}

// Deadline returns when Tick has something to do, or [due.Never] if nothing.
func (m *Machine) Deadline() int64 {
	if m.ended() {
		return due.Never
	}
	at := min(m.beginAt, m.doubtAt)
	if m.phase == Doubting {
		at = min(at, m.askAt)
	}
	if m.round != 0 && m.courtesy != 0 && m.late() {
		at = min(at, m.courtesy)
	}
	return at
}

// latest returns the highest epoch that a peer may claim.
func (m *Machine) latest() uint64 { return max(m.clock, m.floor) + epochs.Day }

// latestLife returns the highest life that is believed. Members whose clocks differ a little
// must all take the view of a life that one of them has met, so it is a minute more than
// what sessions bound lives to.
func (m *Machine) latestLife() uint64 { return (m.clock + epochs.Day + epochs.Minute) * millisecond }

const farAhead = " that began more than a day ahead of this node's clock: set the clocks right"
