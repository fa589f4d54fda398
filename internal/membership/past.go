package membership

import (
	"cmp"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// What the members tell each other of lives that are gone, in the lease mode: which locks these may hold.
// Package lease says why.

// A Word is what a life knows of the locks of a view that it has frozen.
type Word struct {
	Node    dmutex.NodeID // that has acted in the view
	Epoch   uint64
	Members []dmutex.NodeID // of the view
	Of      uint64          // the members that it is about, a bit for each of Members
	Differs []Differ
	Alone   []Differ // where ExcludesAlone of the machine differs from its Excludes
	Brief   bool     // it lacks locks in both, so it is told to nobody: see Installed
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

// Key returns the key of a lock that is lent, empty if it is not.
func (w *Parting) Key(lock string) string {
	if i, found := slices.BinarySearchFunc(w.Lent, lock, Loan.compare); found {
		return w.Lent[i].Key
	}
	return ""
}

// End notes that a loan is over.
func (w *Parting) End(loan Loan) {
	if w == nil {
		return
	}
	if i, found := slices.BinarySearchFunc(w.Lent, loan.Lock, Loan.compare); found && w.Lent[i] == loan {
		w.Lent[i].Key = ""
	}
}

// Rest returns a word with the loans that are not over, nil for none.
func (w *Parting) Rest() *Parting {
	if w == nil {
		return nil
	}
	return &Parting{slices.DeleteFunc(slices.Clone(w.Lent), func(l Loan) bool { return l.Key == "" })}
}

// And returns what both words leave, nil if there is none. Each may be nil.
func (w *Parting) And(other *Parting) *Parting {
	switch {
	case w == nil || w == other:
		return other
	case other == nil:
		return w
	}
	both := new(Parting)
	for _, l := range w.Lent {
		if other.Key(l.Lock) != "" {
			both.Lent = append(both.Lent, l)
		}
	}
	return both
}

// Wrong reports whether its locks are not in order.
func (w *Parting) Wrong() bool {
	for i := range w.Lent {
		if i > 0 && w.Lent[i-1].Lock >= w.Lent[i].Lock {
			return true
		}
	}
	return false
}

// Size is about how many bytes it takes.
func (w *Parting) Size() (n int) {
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
	MaxPast   = 8 << 20 // bytes, about
	MaxFormer = 1 << 10
	MaxWords  = 1 << 12
)

// Place returns the place of a node in Members, and whether the word is about it.
func (w *Word) Place(node dmutex.NodeID) (i int, about bool) {
	i = slices.Index(w.Members, node)
	return i, i >= 0 && w.Of>>i&1 != 0
}

// Lists returns Differs and Alone.
func (w *Word) Lists() [2]*[]Differ { return [...]*[]Differ{&w.Differs, &w.Alone} }

// Size is about how many bytes the word takes.
func (w *Word) Size() int {
	n := 64 + 16*len(w.Members)
	for _, list := range w.Lists() {
		for _, d := range *list {
			n += 32 + len(d.Lock)
		}
	}
	return n
}

// Free notes that a former member does not hold any more what it has lent by this loan.
func (p *Past) Free(node dmutex.NodeID, loan Loan) {
	for i := range p.Former {
		if f := &p.Former[i]; f.Node == node {
			f.Parting.End(loan)
		}
	}
}

// Apart returns a past that does not change when this one hears that a loan is over.
func (p Past) Apart() Past {
	p.Former = slices.Clone(p.Former)
	for i := range p.Former {
		p.Former[i].Parting = p.Former[i].Parting.Rest()
	}
	return p
}

// Impossible says why no correct peer tells this in a view, and "" if one may.
func (p *Past) Impossible(epoch uint64) string {
	switch {
	case p == nil:
		return ""
	case len(p.Former) > MaxFormer || len(p.Words) > MaxWords:
		return "it tells of too many lives"
	case slices.ContainsFunc(p.Words, func(w Word) bool { return w.Epoch >= epoch || w.wrong() }):
		return "it tells of a view that was none"
	case slices.ContainsFunc(p.Former, func(f Former) bool { return f.Parting != nil && f.Parting.Wrong() }):
		return "it tells of locks in no order"
	}
	return ""
}

// wrong reports whether its members are not those of a view, with the node that it is of.
func (w *Word) wrong() bool {
	nodes, _, err := canon.Members("", w.Members, w.Node)
	return err != nil || len(nodes) > MaxMembers || !slices.Equal(nodes, w.Members)
}

// Needs reports whether a word is about a former.
func (p *Past) Needs(w *Word) bool {
	return slices.ContainsFunc(p.Former, func(f Former) bool { _, about := w.Place(f.Node); return about })
}
