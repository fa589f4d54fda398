package membership

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

// A member that reports a lock several times is heard once, with its latest hold. What the other
// members hold goes on as if it had reported the lock once, in whatever order the reports came.
func TestHeardOnce(t *testing.T) {
	shared := func(node dmutex.NodeID, fence uint64) Holder { return Holder{node, Hold{"x", fence, true}} }
	alone := func(node dmutex.NodeID, fence uint64) Holder { return Holder{node, Hold{"x", fence, false}} }
	for name, tt := range map[string]struct{ reported, want []Holder }{
		"nobody twice":           {[]Holder{shared(1, 6), shared(2, 5), alone(3, 4), shared(4, 3)}, []Holder{shared(1, 6), shared(2, 5)}},
		"the same":               {[]Holder{shared(1, 6), shared(1, 6), shared(2, 6)}, []Holder{shared(1, 6), shared(2, 6)}},
		"an older one":           {[]Holder{shared(1, 6), shared(2, 5), shared(1, 4)}, []Holder{shared(1, 6), shared(2, 5)}},
		"an older one alone":     {[]Holder{shared(1, 6), alone(1, 5), shared(2, 4)}, []Holder{shared(1, 6), shared(2, 4)}},
		"an equal one alone":     {[]Holder{shared(1, 6), alone(1, 6), shared(2, 6)}, []Holder{shared(1, 6), shared(2, 6)}},
		"a later one alone":      {[]Holder{shared(1, 6), alone(1, 7), shared(2, 6)}, []Holder{alone(1, 7)}},
		"alone, twice":           {[]Holder{alone(1, 6), alone(1, 5), shared(2, 4)}, []Holder{alone(1, 6)}},
		"after one that is over": {[]Holder{shared(1, 6), alone(2, 5), alone(2, 4), shared(1, 3)}, []Holder{shared(1, 6)}},
		"two locks":              {[]Holder{{1, Hold{"w", 6, true}}, {1, Hold{"w", 6, false}}, shared(1, 6)}, []Holder{{1, Hold{"w", 6, true}}, shared(1, 6)}},
	} {
		for k := range len(tt.reported) {
			in := slices.Concat(tt.reported[k:], tt.reported[:k])
			require.Equal(t, tt.want, carried(each(in)...), "%s, from %d", name, k)
			slices.Reverse(in)
			require.Equal(t, tt.want, carried(each(in)...), "%s, from %d, reversed", name, k)
		}
	}
}

// each returns the holdings of members that have reported one hold each.
func each(holders []Holder) (holdings []Holding) {
	for _, h := range holders {
		holdings = append(holdings, Holding{h.Node, []Hold{h.Hold}})
	}
	return holdings
}

// slanders are the lies about a member that the last member of a world may tell. The last
// lie is told to a third member: then the others agree on no view.
var slanders = [...]func(liar *life, victim int) Message{
	func(liar *life, _ int) Message { return Message{Kind: Refuse, Round: liar.highest, Life: lieAbout} },
	func(liar *life, victim int) Message {
		return Message{Kind: Complete, View: liar.lie(func(m Member) bool { return m.Node != dmutex.NodeID(victim+1) })}
	},
	func(liar *life, _ int) Message {
		return Message{Kind: Complete, View: liar.lie(func(m Member) bool { return m.Life == liar.Machine.life && m.Node == liar.me().node })}
	},
	func(liar *life, victim int) Message {
		v := liar.lie(func(Member) bool { return true })
		return Message{Kind: Decide, View: replaced(v, victim)}
	},
	func(liar *life, victim int) Message {
		return Message{Kind: Promise, Round: 1, Installed: replaced(liar.view, victim)}
	},
}

const (
	lieAbout = 3000 // a life that does not exist
	hearsay  = len(slanders) - 1
)

// lie returns a view that nobody has decided.
func (l *life) lie(in func(Member) bool) View {
	v := View{Epoch: max(l.highest, l.seen) + 1}
	for _, m := range l.view.Members {
		if in(m) {
			v.Members = append(v.Members, m)
		}
	}
	return v
}

func replaced(v View, victim int) View {
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
	if w.left.slanders == 0 || w.places[liar].life == 0 || w.life(liar).view.Epoch == 0 {
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
	return slices.ContainsFunc(l.view.Members, func(who Member) bool {
		j := int(who.Node) - 1
		if j == i || w.places[j].life == 0 || w.number(j) != who.Life || l.met[j] != who.Life || l.members[j].newest != who.Life {
			return false
		}
		other := w.life(j)
		return other.met[i] == l.Machine.life && other.ended == Outside && !other.leaving && !other.inDoubt() &&
			(other.view.Epoch <= l.view.Epoch || other.view.Has(dmutex.NodeID(i+1), l.Machine.life))
	})
}
