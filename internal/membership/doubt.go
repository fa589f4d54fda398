package membership

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// Rule 3.3 of the strict mode. A life that is in a view, and does not leave, takes the word of a
// member that the others go on without it: REFUSE or a view with a later life of its number, or
// COMPLETE of a later view without it. One such word puts it in doubt: it does not act, promises,
// decides and installs nothing, and asks all that are there, by PREPARE of a round that it will not
// decide. It ends
//
//	at once         when a second member says so, too
//	after a second  when nobody has contradicted: where the others are gone, or cut off,
//	                no second word can be had
//
// It goes on as before when a member q of its view, perhaps the one that said so, contradicts: q
// promises that round, is not leaving, and has installed no later view than this life's, but one that
// has this life as a member. Then no later view is complete. One with q would need its report, one
// without q its departure, or that an operator has taken q for dead, too, and one with this life this
// life's report. So going on is as safe as before the word came: by assumption a life that was replaced
// is dead, and a later view still needs the promise of each member that is not excused.
//
// A life in doubt promises nothing, so it contradicts nobody: two that were both taken for
// dead do not keep each other in the old view.

const (
	maxDoubt = second
	askPause = 100 * millisecond // also between two doubts, so that a liar uses up no epochs
)

// accused takes the word of p that there is another life of this number. A life in no view
// may take a higher number, and one that leaves holds nothing: for both, one word is enough.
func (m *Machine) accused(p *member, life uint64) {
	if m.view.Epoch > 0 && !m.leaving && m.ended == Outside {
		p.later = max(p.later, life)
	} else {
		m.learn(m.me(), life)
	}
}

// accuses reports whether p says that the others go on without this life.
func (m *Machine) accuses(p *member) bool {
	return p.later != 0 || !m.leaving && m.complete.Epoch > 0 && p.complete.Epoch > m.view.Epoch
}

// Doubt returns the member that says that the others go on without this life, [dmutex.None] if
// there is none, and the other life of its number by that word, 0 if it was evicted.
func (m *Machine) Doubt() (by dmutex.NodeID, later uint64) {
	if m.inDoubt() {
		p := m.members[slices.IndexFunc(m.members, func(p member) bool { return m.accuses(&p) })]
		return p.node, p.later
	}
	return dmutex.None, 0
}

func (m *Machine) inDoubt() bool { return m.doubtAt != never }

// Taken tells the machine that a peer refuses this life, because it has met another of
// its number. It matters to a life that is in a view.
func (m *Machine) Taken(now int64, peer dmutex.NodeID, life uint64) []Message {
	if p := m.member(peer); p != nil && p != m.me() && m.view.Epoch > 0 {
		m.accused(p, life)
	}
	return m.flush(now)
}

// doubt does what is due because of such words.
func (m *Machine) doubt(now int64) {
	words, later := 0, uint64(0)
	for i := range m.members {
		if p := &m.members[i]; m.accuses(p) {
			words++
			later = max(later, p.later)
		}
	}
	switch {
	case words == 0 || m.ended != Outside:
		m.doubtAt = never
		return
	case m.doubtAt == never:
		m.round = 0
		m.doubtAt = now + maxDoubt
	}
	switch {
	case words > 1 || m.leaving || now >= m.doubtAt:
		m.doubtAt, m.later = never, later
		m.end(Stopped)
	case now < m.askAt:
	case m.tooFar() > 0: // nobody would answer
		m.askAt = m.doubtAt
	default:
		m.question, m.askAt = m.nextRound(), now+askPause
		m.highest = m.question
		for i := range m.members {
			if p := &m.members[i]; i != m.self && p.life != 0 {
				m.send(Message{Kind: Prepare, To: p.node, Round: m.question})
			}
		}
	}
}

// answered takes the answer of p to the question: it may contradict what was said.
func (m *Machine) answered(p *member, promise *Message) {
	v := &promise.Installed
	if promise.Leaving || p.life != p.newest || !m.view.Has(p.node, p.life) || v.Epoch > m.view.Epoch && !v.Has(m.me().node, m.life) {
		return
	}
	for i := range m.members {
		if p := &m.members[i]; m.accuses(p) {
			p.later, p.complete = 0, View{}
		}
	}
}
