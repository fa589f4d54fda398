package membership

import (
	"cmp"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
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

// A Word is what a life knows of the locks of a view that it has frozen.
type Word struct {
	Node    dmutex.NodeID // that has acted in the view
	Epoch   uint64
	Members []dmutex.NodeID // of the view
	Of      uint64          // the members that it is about, a bit for each of Members
	Differs []Differ
	Alone   []Differ // where ExcludesAlone of the machine differs from its Excludes
	Brief   bool     // it lacks locks in both, so it is told to nobody: see NeedsWord

	index [2]map[string]uint64 // the bits of Differs and of Alone, if it is Indexed
}

// A Differ is a lock for which a machine excludes others than a new one of a free lock.
type Differ struct {
	Lock string
	Bits uint64 // of Members: one of the two, and not both, excludes these
}

// A Former is a life that may hold locks without being a member.
type Former struct {
	Node    dmutex.NodeID
	Epoch   uint64 // the last exclusion when its absence was seen: when that is cleared, its lease has ended
	Name    string // of its process, for people: the driver sets it in what is sent
	Parting *Parting
}

// A Parting is the last word of a life that closes: what it has lent, in the order of the locks, is all that
// it holds.
type Parting struct{ Lent []Loan }

// A Loan is a lock that a life has lent to a client. The key is known to the client, the members, and nobody
// else; that of a shared lock is no client's. A loan that is over has none.
type Loan struct{ Lock, Key string }

func (l Loan) compare(lock string) int { return cmp.Compare(l.Lock, lock) }

// key returns the key of a lock that is lent, empty if it is not.
func (w *Parting) key(lock string) string {
	if i, found := slices.BinarySearchFunc(w.Lent, lock, Loan.compare); found {
		return w.Lent[i].Key
	}
	return ""
}

// end notes that a loan is over.
func (w *Parting) end(loan Loan) {
	if w == nil {
		return
	}
	if i, found := slices.BinarySearchFunc(w.Lent, loan.Lock, Loan.compare); found && w.Lent[i] == loan {
		w.Lent[i].Key = ""
	}
}

// rest returns a word with the loans that are not over, nil for none.
func (w *Parting) rest() *Parting {
	if w == nil {
		return nil
	}
	return &Parting{slices.DeleteFunc(slices.Clone(w.Lent), func(l Loan) bool { return l.Key == "" })}
}

// and returns what both words leave, nil if there is none. Each may be nil.
func (w *Parting) and(other *Parting) *Parting {
	switch {
	case w == nil || w == other:
		return other
	case other == nil:
		return w
	}
	both := new(Parting)
	for _, l := range w.Lent {
		if other.key(l.Lock) != "" {
			both.Lent = append(both.Lent, l)
		}
	}
	return both
}

// wrong reports whether its locks are not in order.
func (w *Parting) wrong() bool {
	for i := range w.Lent {
		if i > 0 && w.Lent[i-1].Lock >= w.Lent[i].Lock {
			return true
		}
	}
	return false
}

// size is about how many bytes it takes.
func (w *Parting) size() (n int) {
	for _, l := range w.Lent {
		n += 48 + len(l.Lock) + len(l.Key)
	}
	return n
}

// A Past is what is known of formers in a view.
type Past struct {
	Former []Former
	Words  []Word
}

// Bounds of what a life tells of the past. If there is more, it leaves out words, or tells
// nothing, and locks wait.
const (
	maxPast   = 8 << 20 // bytes, about
	MaxFormer = 1 << 10
	MaxWords  = 1 << 12
)

// Excluding returns which of the members a machine excludes, a bit for each, and in alone those for
// which ExcludesAlone says otherwise.
func Excluding(m dmutex.Machine, members []dmutex.NodeID) (bits, alone uint64) {
	e, ok := m.(dmutex.Excluder)
	sharer, shares := m.(dmutex.Sharer)
	for i, id := range members {
		excludes := ok && e.Excludes(id)
		if excludes {
			bits |= 1 << i
		}
		if shares && sharer.ExcludesAlone(id) != excludes {
			alone |= 1 << i
		}
	}
	return bits, alone
}

// Note adds what the machine of a lock knows to the word, where it differs from fresh, what that of a
// free lock would say.
func (w *Word) Note(lock string, m dmutex.Machine, fresh uint64) {
	bits, alone := Excluding(m, w.Members)
	w.Add(lock, bits, alone, fresh)
}

// Add is Note for a machine that was asked what it excludes.
func (w *Word) Add(lock string, bits, alone, fresh uint64) {
	if bits != fresh {
		w.Differs = append(w.Differs, Differ{lock, bits ^ fresh})
	}
	if alone != 0 {
		w.Alone = append(w.Alone, Differ{lock, alone})
	}
}

// place returns the place of a node in Members, and whether the word is about it.
func (w *Word) place(node dmutex.NodeID) (i int, about bool) {
	i = slices.Index(w.Members, node)
	return i, i >= 0 && w.Of>>i&1 != 0
}

func (w *Word) lists() [2]*[]Differ { return [...]*[]Differ{&w.Differs, &w.Alone} }

// bits returns what a list of the word says of a lock.
func (w *Word) bits(k int, lock string) uint64 {
	if index := w.index[k]; index != nil {
		return index[lock]
	}
	for _, d := range *w.lists()[k] {
		if d.Lock == lock {
			return d.Bits
		}
	}
	return 0
}

// Indexed returns a past in which it is found at once what the words say of a lock.
func (p Past) Indexed() *Past {
	p.Words = slices.Clone(p.Words)
	for i := range p.Words {
		w := &p.Words[i]
		for k, list := range w.lists() {
			w.index[k] = make(map[string]uint64, len(*list))
			for _, d := range *list {
				if _, again := w.index[k][d.Lock]; !again {
					w.index[k][d.Lock] = d.Bits
				}
			}
		}
	}
	return &p
}

// size is about how many bytes the word takes.
func (w *Word) size() int {
	n := 64 + 16*len(w.Members)
	for _, list := range w.lists() {
		for _, d := range *list {
			n += 32 + len(d.Lock)
		}
	}
	return n
}

// Holders returns the formers that may hold a lock, or with shares, that may hold it alone, but for
// those that are cleared. fresh returns what the new machine of the lock, if free, excludes at the
// node of a word.
func (p *Past) Holders(lock string, shares bool, cleared uint64, fresh func(w *Word) uint64) []Former {
	return slices.DeleteFunc(slices.Clone(p.Former), func(f Former) bool {
		return f.Epoch <= cleared || f.Parting != nil && f.Parting.key(lock) == "" || p.frees(f.Node, lock, shares, fresh)
	})
}

// Free notes that a former member does not hold any more what it has lent by this loan.
func (p *Past) Free(node dmutex.NodeID, loan Loan) {
	for i := range p.Former {
		if f := &p.Former[i]; f.Node == node {
			f.Parting.end(loan)
		}
	}
}

// apart returns a past that does not change when this one hears that a loan is over.
func (p Past) apart() Past {
	p.Former = slices.Clone(p.Former)
	for i := range p.Former {
		p.Former[i].Parting = p.Former[i].Parting.rest()
	}
	return p
}

// Refutes reports whether a former member has said that it has not lent this.
func (p *Past) Refutes(node dmutex.NodeID, loan Loan) bool {
	return slices.ContainsFunc(p.Former, func(f Former) bool {
		return f.Node == node && f.Parting != nil && f.Parting.key(loan.Lock) != loan.Key
	})
}

func (p *Past) frees(node dmutex.NodeID, lock string, shares bool, fresh func(w *Word) uint64) bool {
	for k := range p.Words {
		w := &p.Words[k]
		i, about := w.place(node)
		if !about {
			continue
		}
		excludes := fresh(w)
		if excludes ^= w.bits(0, lock); shares {
			excludes ^= w.bits(1, lock)
		}
		if excludes>>i&1 != 0 {
			return true
		}
	}
	return false
}

// MayClaim is the rule of taking, see package clientsession: whether a member of a view takes the claim of
// a client that holds a lock by the last of these, and has left the others for that one. former are those
// that may hold the lock.
func MayClaim(of, view, former []dmutex.NodeID) bool {
	return len(of) > 0 && slices.Contains(former, of[len(of)-1]) &&
		!slices.ContainsFunc(of, func(id dmutex.NodeID) bool { return slices.Contains(view, id) }) &&
		!slices.ContainsFunc(former, func(id dmutex.NodeID) bool { return !slices.Contains(of, id) })
}

// impossible says why no correct peer tells this in a view, and "" if one may.
func (p *Past) impossible(epoch uint64) string {
	switch {
	case p == nil:
		return ""
	case len(p.Former) > MaxFormer || len(p.Words) > MaxWords:
		return "it tells of too many lives"
	case slices.ContainsFunc(p.Words, func(w Word) bool { return w.Epoch >= epoch || w.wrong() }):
		return "it tells of a view that was none"
	case slices.ContainsFunc(p.Former, func(f Former) bool { return f.Parting != nil && f.Parting.wrong() }):
		return "it tells of locks in no order"
	}
	return ""
}

// wrong reports whether its members are not those of a view, with the node that it is of.
func (w *Word) wrong() bool {
	nodes, _, err := canon.Members("", w.Members, w.Node)
	return err != nil || len(nodes) > MaxMembers || !slices.Equal(nodes, w.Members)
}

// A memory is what a life needs for the Past that it tells, and for that of its view.
type memory struct {
	earlier *Past // of the view in which this life acted last before the installed one; nil if in none since it joined
	own     Word  // of that view
	met     []acquaintance

	past  Past   // of the view that is complete
	blind uint64 // that view acts when this exclusion is cleared
}

// An acquaintance is a life that was a member, beside this one, of the view of the own word or
// of a later one.
type acquaintance struct {
	node dmutex.NodeID
	told uint64 // the last view in which it was sent a REPORT
	gone uint64 // the last exclusion when its absence was seen, 0 while it is a member

	parting *Parting // its last word, nil if it has said none
}

// meet takes in the members of a newer record, and its last exclusion. If that is not new, those
// that are gone have left.
func (m *memory) meet(self dmutex.NodeID, v View, unclean uint64, excludes bool) {
	m.met = slices.DeleteFunc(m.met, func(a acquaintance) bool { return !excludes && a.gone == 0 && v.life(a.node) == 0 })
	for i := range m.met {
		if a := &m.met[i]; a.gone == 0 && v.life(a.node) == 0 {
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
func (m *memory) parts(node dmutex.NodeID, word *Parting) {
	for i := range m.met {
		if m.met[i].node == node {
			m.met[i].parting = m.met[i].parting.and(word)
		}
	}
}

// frees notes that a client has gone on with another member than the one that has lent it this.
func (m *memory) frees(node dmutex.NodeID, loan Loan) {
	m.past.Free(node, loan)
	if m.earlier != nil {
		m.earlier.Free(node, loan)
	}
	for _, a := range m.met {
		if a.node == node {
			a.parting.end(loan)
		}
	}
}

// remember notes the word about the view that was complete last, in which this life has acted.
func (m *memory) remember(word Word) {
	past := m.past
	m.earlier, m.own = &past, word
	m.met = slices.DeleteFunc(m.met, func(a acquaintance) bool {
		return a.gone != 0 && a.told <= word.Epoch && !slices.Contains(word.Members, a.node) // as past says
	})
}

// tell returns what this life tells in a view, nil if it has not acted since it joined.
func (m *memory) tell(cleared uint64) *Past {
	if m.earlier == nil {
		return nil
	}
	p := &Past{Former: slices.DeleteFunc(m.earlier.apart().Former, func(f Former) bool { return f.Epoch <= cleared })}
	own := m.own
	own.Of = 0
	for _, a := range m.met {
		i := slices.Index(own.Members, a.node)
		if a.gone <= cleared || i < 0 && a.told <= own.Epoch {
			continue // its lease has ended, or it has never acted
		}
		if p.Former = append(p.Former, Former{Node: a.node, Epoch: a.gone, Parting: a.parting.rest()}); a.told <= own.Epoch && !own.Brief {
			own.Of |= 1 << i
		}
	}
	room := maxPast
	for i := range p.Former {
		if w := p.Former[i].Parting; w != nil {
			if room -= w.size(); room < 0 {
				p.Former[i].Parting = nil
			}
		}
	}
	for _, list := range own.lists() {
		var about []Differ
		if own.Of != 0 { // else it is not told
			about = slices.DeleteFunc(slices.Clone(*list), func(d Differ) bool { return d.Bits&own.Of == 0 })
		}
		*list = about
	}
	if len(p.Former) > MaxFormer {
		return nil
	}
	for _, w := range append([]Word{own}, m.earlier.Words...) {
		if room -= w.size(); room >= 0 && len(p.Words) < MaxWords && p.needs(&w) {
			p.Words = append(p.Words, w)
		}
	}
	return p
}

// needs reports whether a word is about a former.
func (p *Past) needs(w *Word) bool {
	return slices.ContainsFunc(p.Former, func(f Former) bool { _, about := w.place(f.Node); return about })
}

// recall finds out what the members of a view know together, when all have reported.
func (m *memory) recall(told []*Past, unclean, cleared uint64) {
	m.past, m.blind = Past{}, 0
	told = slices.DeleteFunc(told, func(p *Past) bool { return p == nil })
	if len(told) == 0 {
		m.blind = unclean
		return
	}
	var all Past
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
			i := slices.IndexFunc(p.Former, func(g Former) bool { return g.Node == f.Node })
			if i < 0 {
				f.Epoch = 0
				break
			}
			f.Epoch, f.Parting = min(f.Epoch, p.Former[i].Epoch), f.Parting.and(p.Former[i].Parting)
		}
		switch {
		case f.Epoch <= cleared || f.Parting != nil && len(f.Parting.Lent) == 0:
		case f.Parting != nil || slices.ContainsFunc(all.Words, func(w Word) bool { _, about := w.place(f.Node); return about }):
			m.past.Former = append(m.past.Former, f)
		default:
			m.blind = max(m.blind, f.Epoch)
		}
	}
	for _, w := range all.Words {
		if m.past.needs(&w) {
			m.past.Words = append(m.past.Words, w)
		}
	}
}
