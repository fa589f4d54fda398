package lease

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// Rule 5a: a crash costs only what the dead may hold. After an exclusion the members act at once, and
// keep the wait of rule 5.4 lock by lock: a node sends no request of its own for a lock that a former
// member may hold, until that wait is over for it. Members that answer need not know.
//
//	word     what a life knows of the view in which it acted last, as of the moment at which
//	         it froze that: for each lock, which members its machine Excludes, told where
//	         that differs from what a new machine of a free lock would say
//	former   a life that was excluded, may have acted, and has a lease that may run
//	free     a lock is free of a former if a word says that it is excluded. For a request to share it is
//	         free, too, if a word says that the former does not hold it alone (ExcludesAlone of
//	         [dmutex.Sharer]). So a dead reader delays writers only
//	parting  the last word of a life that closes, about itself: it holds what it has lent to clients, and
//	         nothing else. Every other lock is free of it, whatever machines can say. When a client has gone
//	         on with another member, the lock that it held is free of this one, too
//
// # Why it is right
//
// A word of s about a former x counts only if s has sent x no REPORT after the view e of the word.
// Then x has acted in no later view, since each would need the report of s. So x can have a lock only
// as a member of e, or of an earlier view, and then it has reported that in e. s excludes x in e at its
// freeze and sends nothing of e after it. By the law of [dmutex.Excluder] x is not Held in e and never
// will be. This stays true: a life that learns it may tell others, and successive exclusions take the
// union. What another survivor was granted in e before its own freeze is in its REPORT.
//
// No former is overlooked. A life v that has acted in a view e knows all formers of that time. A life
// that has come since acts only in a view in which v has reported to it. So all lives that may hold
// anything are members, or formers that v knew in e, or members of e, or were sent a REPORT by v since.
// What one such life does not name is no former, even if others name it. A life that has left holds
// nothing.
//
// A life that parts requests nothing and is granted nothing from then on, in no view. It has given back what
// is not lent, and what is lent to one client goes to nobody else. So its word stays true, and a life that
// has it may tell others. What it has lent only becomes less, so of two such words both hold.
//
// A life that ended before a view was decided has not spoken of it, so nobody sends it a REPORT, and
// the words of all that acted in the view before still count for it. If no member of a view has ever
// acted, the formers are not known; if no word is about one of them, nothing is known of any lock. Then
// the view does not act before the wait is over.

// A memory is what a life needs for the Past that it tells, and for that of its view.
type memory struct {
	earlier *membership.Past // of the view in which this life acted last before the installed one; nil if in none since it joined
	own     membership.Word  // of that view
	met     []acquaintance

	past  membership.Past // of the view that is complete
	blind uint64          // that view acts when this exclusion is cleared
}

// An acquaintance is a life that was a member, beside this one, of the view of the own word or
// of a later one.
type acquaintance struct {
	node dmutex.NodeID
	told uint64 // the last view in which it was sent a REPORT
	gone uint64 // the last exclusion when its absence was seen, 0 while it is a member

	parting *membership.Parting // its last word, nil if it has said none
}

// meet takes in the members of a newer record, and its last exclusion. If that is not new, those
// that are gone have left.
func (m *memory) meet(self dmutex.NodeID, v membership.View, unclean uint64, excludes bool) {
	m.met = slices.DeleteFunc(m.met, func(a acquaintance) bool { return !excludes && a.gone == 0 && v.Life(a.node) == 0 })
	for i := range m.met {
		if a := &m.met[i]; a.gone == 0 && v.Life(a.node) == 0 {
			a.gone = unclean
		}
	}
	for _, e := range v.Members {
		if e.Node != self && !slices.ContainsFunc(m.met, func(a acquaintance) bool { return a.node == e.Node }) {
			m.met = append(m.met, acquaintance{node: e.Node})
		}
	}
}

// told notes that a REPORT is sent.
func (m *memory) told(node dmutex.NodeID, epoch uint64) {
	for i := range m.met {
		if m.met[i].node == node {
			m.met[i].told = epoch
		}
	}
}

// parts notes the last word of a member.
func (m *memory) parts(node dmutex.NodeID, word *membership.Parting) {
	for i := range m.met {
		if m.met[i].node == node {
			m.met[i].parting = m.met[i].parting.And(word)
		}
	}
}

// frees notes that a client has gone on with another member than the one that has lent it this.
func (m *memory) frees(node dmutex.NodeID, loan membership.Loan) {
	m.past.Free(node, loan)
	if m.earlier != nil {
		m.earlier.Free(node, loan)
	}
	for _, a := range m.met {
		if a.node == node {
			a.parting.End(loan)
		}
	}
}

// remember notes the word about the view that was complete last, in which this life has acted.
func (m *memory) remember(word membership.Word) {
	past := m.past
	m.earlier, m.own = &past, word
	m.met = slices.DeleteFunc(m.met, func(a acquaintance) bool {
		return a.gone != 0 && a.told <= word.Epoch && !slices.Contains(word.Members, a.node) // as past says
	})
}

// tell returns what this life tells in a view, nil if it has not acted since it joined.
func (m *memory) tell(cleared uint64) *membership.Past {
	if m.earlier == nil {
		return nil
	}
	p := &membership.Past{Former: slices.DeleteFunc(m.earlier.Apart().Former, func(f membership.Former) bool { return f.Epoch <= cleared })}
	own := m.own
	own.Of = 0
	for _, a := range m.met {
		i := slices.Index(own.Members, a.node)
		if a.gone <= cleared || i < 0 && a.told <= own.Epoch {
			continue // its lease has ended, or it has never acted
		}
		if p.Former = append(p.Former, membership.Former{Node: a.node, Epoch: a.gone, Parting: a.parting.Rest()}); a.told <= own.Epoch && !own.Brief {
			own.Of |= 1 << i
		}
	}
	room := membership.MaxPast
	for i := range p.Former {
		if w := p.Former[i].Parting; w != nil {
			if room -= w.Size(); room < 0 {
				p.Former[i].Parting = nil
			}
		}
	}
	for _, list := range own.Lists() {
		var about []membership.Differ
		if own.Of != 0 { // else it is not told
			about = slices.DeleteFunc(slices.Clone(*list), func(d membership.Differ) bool { return d.Bits&own.Of == 0 })
		}
		*list = about
	}
	if len(p.Former) > membership.MaxFormer {
		return nil
	}
	for _, w := range append([]membership.Word{own}, m.earlier.Words...) {
		if room -= w.Size(); room >= 0 && len(p.Words) < membership.MaxWords && p.Needs(&w) {
			p.Words = append(p.Words, w)
		}
	}
	return p
}

// recall finds out what the members of a view know together, when all have reported.
func (m *memory) recall(told []*membership.Past, unclean, cleared uint64) {
	m.past, m.blind = membership.Past{}, 0
	told = slices.DeleteFunc(told, func(p *membership.Past) bool { return p == nil })
	if len(told) == 0 {
		m.blind = unclean
		return
	}
	var all membership.Past
	about := make(map[[2]uint64][]uint64) // by node and epoch: the same words come from all members
	for _, p := range told {
		for _, w := range p.Words {
			by := [2]uint64{uint64(w.Node), w.Epoch}
			if !slices.ContainsFunc(about[by], func(of uint64) bool { return w.Of&^of == 0 }) {
				all.Words, about[by] = append(all.Words, w), append(about[by], w.Of)
			}
		}
	}
	for _, f := range told[0].Former {
		for _, p := range told[1:] {
			i := slices.IndexFunc(p.Former, func(g membership.Former) bool { return g.Node == f.Node })
			if i < 0 {
				f.Epoch = 0
				break
			}
			f.Epoch, f.Parting = min(f.Epoch, p.Former[i].Epoch), f.Parting.And(p.Former[i].Parting)
		}
		switch {
		case f.Epoch <= cleared || f.Parting != nil && len(f.Parting.Lent) == 0:
		case f.Parting != nil || slices.ContainsFunc(all.Words, func(w membership.Word) bool { _, about := w.Place(f.Node); return about }):
			m.past.Former = append(m.past.Former, f)
		default:
			m.blind = max(m.blind, f.Epoch)
		}
	}
	for _, w := range all.Words {
		if m.past.Needs(&w) {
			m.past.Words = append(m.past.Words, w)
		}
	}
}
