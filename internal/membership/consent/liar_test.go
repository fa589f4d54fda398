package consent

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// slanders are the lies about a member that the last member of a world may tell. The last
// lie is told to a third member: then the others agree on no view.
var slanders = [...]func(liar *life, victim int) membership.Message{
	func(liar *life, _ int) membership.Message {
		return membership.Message{Kind: membership.Refuse, Round: liar.highest, Life: lieAbout}
	},
	func(liar *life, victim int) membership.Message {
		return membership.Message{Kind: membership.Complete, View: liar.lie(func(m membership.Member) bool { return m.Node != dmutex.NodeID(victim+1) })}
	},
	func(liar *life, _ int) membership.Message {
		return membership.Message{Kind: membership.Complete, View: liar.lie(func(m membership.Member) bool { return m.Life == liar.Machine.life && m.Node == liar.me().node })}
	},
	func(liar *life, victim int) membership.Message {
		v := liar.lie(func(membership.Member) bool { return true })
		return membership.Message{Kind: membership.Decide, View: replaced(v, victim)}
	},
	func(liar *life, victim int) membership.Message {
		return membership.Message{Kind: membership.Promise, Round: 1, Installed: replaced(liar.in.View, victim)}
	},
}

const (
	lieAbout = 3000 // a life that does not exist
	hearsay  = len(slanders) - 1
)

// lie returns a view that nobody has decided.
func (l *life) lie(in func(membership.Member) bool) membership.View {
	v := membership.View{Epoch: max(l.highest, l.seen) + 1}
	for _, m := range l.in.View.Members {
		if in(m) {
			v.Members = append(v.Members, m)
		}
	}
	return v
}

func replaced(v membership.View, victim int) membership.View {
	v.Members = slices.Clone(v.Members)
	for i := range v.Members {
		if v.Members[i].Node == dmutex.NodeID(victim+1) {
			v.Members[i].Life = lieAbout
		}
	}
	return v
}

// slanderings appends the lies that may be told: of each kind, about each other member.
func (w *world) slanderings(list []action) []action {
	liar := w.n - 1
	if w.left.slanders == 0 || w.places[liar].life == 0 || w.life(liar).in.View.Epoch == 0 {
		return list
	}
	for victim := range liar {
		for kind := range slanders {
			if to := w.listener(victim, kind); w.places[to].life != 0 && w.life(liar).met[to] == w.number(to) {
				list = append(list, action{slander, victim, kind})
			}
		}
	}
	return list
}

// listener returns the member that hears a lie.
func (w *world) listener(victim, kind int) int {
	if kind == hearsay {
		return (victim + 1) % (w.n - 1)
	}
	return victim
}

func (w *world) slander(victim, kind int) {
	w.left.slanders--
	w.lied |= 1 << kind
	liar, to := w.n-1, w.listener(victim, kind)
	l := w.life(liar)
	msg := slanders[kind](l, victim)
	msg.From, msg.To = dmutex.NodeID(liar+1), dmutex.NodeID(to+1)
	w.post(w.send(l.Machine.life, l.met[to], msg))
}

// contradicted reports whether a member that life i has met would contradict the word that
// the others go on without life i. The answer comes before the word ends life i.
func (w *world) contradicted(i int) bool {
	l := w.life(i)
	return slices.ContainsFunc(l.in.View.Members, func(who membership.Member) bool {
		j := int(who.Node) - 1
		if j == i || w.places[j].life == 0 || w.number(j) != who.Life || l.met[j] != who.Life || l.members[j].newest != who.Life {
			return false
		}
		other := w.life(j)
		return other.met[i] == l.Machine.life && !other.ended() && !other.leaving && other.phase != Doubting &&
			(other.in.View.Epoch <= l.in.View.Epoch || other.in.View.Has(dmutex.NodeID(i+1), l.Machine.life))
	})
}
