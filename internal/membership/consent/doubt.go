package consent

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
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
//	after ten       when a member says so again after a contradiction, and does not take it back by
//	                contradicting itself: the two would never talk again, and every lock that needs
//	                both would wait. A stranger may have taken this life's place at that member, and
//	                a link gives up a stranger who says nothing before that
//
// It goes on as before when a member q of its view, perhaps the one that said so, contradicts: q
// promises that round, is not leaving, and has installed no later view than this life's, but one that
// has this life as a member. Then no later view is complete. A later view with q needs q's report. One
// without q needs q to leave, or an operator's word that q is dead. One with this life needs this
// life's report. So going on is as safe as before the word came: by assumption a life that was replaced
// is dead, and a later view still needs the promise of each member that is not excused.
//
// A life in doubt promises nothing, so it contradicts nobody. The question carries the accusation, the
// later view, and a life that is outside of that view is then in doubt, too, though what it has only
// heard is no word: two that were taken for dead together do not keep each other in the old view. A
// view that was contradicted once is not believed by hearsay again, so questions end.

const (
	maxDoubt   = second
	maxDispute = 10 * second       // tcplink gives up a silent connection after eight
	askPause   = 100 * millisecond // also between two doubts, so that a liar uses up no epochs
)

// accused takes the word of p that there is another life of this number. A life in no view
// may take a higher number, and one that leaves holds nothing: for both, one word is enough.
func (m *Machine) accused(p *member, life uint64) {
	if m.in.View.Epoch > 0 && !m.leaving && !m.ended() {
		p.later = max(p.later, life)
	} else {
		m.learn(m.me(), life)
	}
}

// accuses reports whether p says that the others go on without this life.
func (m *Machine) accuses(p *member) bool { return p.later != 0 || m.outside(p.complete) }

// insists reports whether p will say so again: but for a former life, which may end yet.
func (m *Machine) insists(p *member) bool { return p.later > m.life || m.outside(p.complete) }

// disputes reports whether p says so again after a contradiction.
func (m *Machine) disputes(p *member) bool { return p.denied && m.insists(p) }

// outside reports whether the others go on without this life in a view, or are said to.
func (m *Machine) outside(v membership.View) bool {
	return !m.leaving && m.in.Complete.Epoch > 0 && v.Epoch > m.in.View.Epoch && !v.Has(m.me().node, m.life)
}

// heard takes the accusation that the question of p carries, before it answers the question.
func (m *Machine) heard(now int64, p *member, v membership.View) {
	if m.outside(v) && v.Epoch > m.denied {
		p.rumor = v
		m.doubt(now)
	}
}

// Doubt returns the member that says that the others go on without this life, [dmutex.None] if
// there is none, and the other life of its number by that word, 0 if it was evicted.
func (m *Machine) Doubt() (by dmutex.NodeID, later uint64) {
	if m.phase == Doubting {
		p := m.members[slices.IndexFunc(m.members, func(p member) bool { return m.accuses(&p) || m.outside(p.rumor) })]
		return p.node, p.later
	}
	return dmutex.None, 0
}

// Taken tells the machine that a peer refuses this life, because it has met another of
// its number. It matters to a life that is in a view.
func (m *Machine) Taken(now int64, peer dmutex.NodeID, life uint64) membership.Output {
	if p := m.member(peer); p != nil && p != m.me() && m.in.View.Epoch > 0 {
		m.accused(p, life)
	}
	return m.flush(now)
}

// doubt does what is due because of such words.
func (m *Machine) doubt(now int64) {
	words, later, again, told := 0, uint64(0), false, membership.View{}
	for i := range m.members {
		p := &m.members[i]
		if m.accuses(p) {
			words++
			later = max(later, p.later)
			again = again || m.disputes(p)
		}
		for _, v := range []membership.View{p.complete, p.rumor} {
			if m.outside(v) && v.Epoch > told.Epoch {
				told = v
			}
		}
	}
	switch {
	case m.ended():
		return
	case words == 0 && told.Epoch == 0:
		if m.phase == Doubting {
			m.becomeTrusted()
		}
		return
	case m.phase == Doubting:
	case again:
		m.becomeDoubting(now, maxDispute)
	default:
		m.becomeDoubting(now, maxDoubt)
	}
	switch {
	case words > 1 || m.leaving || now >= m.doubtAt:
		m.later = later
		m.becomeStopped()
	case now < m.askAt:
	case m.tooFar() > 0: // nobody would answer
		m.askAt = m.doubtAt
	default:
		m.question, m.askAt = m.nextRound(), now+askPause
		m.highest = m.question
		for i := range m.members {
			if p := &m.members[i]; i != m.self && p.life != 0 {
				m.send(membership.Message{Kind: membership.Prepare, To: p.node, Round: m.question, View: told})
			}
		}
	}
}

// onAnswer takes that p takes part in the round of the question.
func (m *Machine) onAnswer(now int64, p *member, msg *membership.Message) {
	if msg.Round != m.question {
		m.onPromise(now, p, msg)
		return
	}
	p.leaving = msg.Leaving
	m.measure(now, p, msg.Round)
	m.answered(p, msg)
}

// answered takes the answer of p to the question: it may contradict what was said, but not what another
// member disputes.
func (m *Machine) answered(p *member, promise *membership.Message) {
	v := &promise.Installed
	if promise.Leaving || p.life != p.newest || !m.in.View.Has(p.node, p.life) || v.Epoch > m.in.View.Epoch && !v.Has(m.me().node, m.life) {
		return
	}
	for i := range m.members {
		q := &m.members[i]
		if q != p && m.disputes(q) {
			continue
		}
		q.denied = q != p && (q.denied || m.insists(q))
		for _, v := range []membership.View{q.complete, q.rumor} {
			if m.outside(v) {
				m.denied = max(m.denied, v.Epoch)
			}
		}
		if q.later, q.rumor = 0, (membership.View{}); m.outside(q.complete) {
			q.complete = membership.View{}
		}
	}
}
