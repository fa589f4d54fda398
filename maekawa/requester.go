package maekawa

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// The requester's half of a machine.

// A ballot is what one arbiter has said to our pending request.
type ballot struct {
	locked   bool // we have its vote
	failed   bool // another request goes before ours there
	yielded  bool // it has had its vote back
	inquired bool // it asked for its vote back, and we have not answered
}

// answer notes what an arbiter says to our pending request, not to an earlier one. An
// INQUIRE that finds us in the critical section is answered by the RELEASE.
func (m *machine) answer(kind dmutex.Kind, from dmutex.NodeID, r dmutex.Stamp) {
	if !m.Pending() || r != m.Stamp() {
		return
	}
	k, _ := slices.BinarySearch(m.quorum, from)
	b := &m.ballots[k]
	switch kind {
	case dmutex.Reply:
		b.locked, b.failed, b.yielded = true, false, false
	case dmutex.Failed:
		b.failed = true
	case dmutex.Inquire:
		b.inquired = true
	}
	if m.won() {
		m.enter()
	} else if m.lost() {
		m.giveWay()
	}
}

// won reports whether we have every vote.
func (m *machine) won() bool {
	return !slices.ContainsFunc(m.ballots, func(b ballot) bool { return !b.locked })
}

// lost reports whether we cannot win for now.
func (m *machine) lost() bool {
	return slices.ContainsFunc(m.ballots, func(b ballot) bool { return b.failed || b.yielded })
}

// giveWay gives back the votes that were asked back.
func (m *machine) giveWay() {
	for k, arbiter := range m.quorum {
		if b := &m.ballots[k]; b.locked && b.inquired {
			b.locked, b.inquired, b.yielded = false, false, true
			m.say(dmutex.Yield, arbiter, m.Stamp())
		}
	}
}

// enter takes the lock. For a withdrawn request the critical section is empty.
func (m *machine) enter() {
	mine := m.Stamp()
	clear(m.ballots)
	if withdrawn := m.Enter(); withdrawn {
		m.sayAll(dmutex.Release, mine)
	}
}
