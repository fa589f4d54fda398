package carryover

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
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
func Note(w *membership.Word, lock string, m dmutex.Machine, fresh uint64) {
	bits, alone := Excluding(m, w.Members)
	Add(w, lock, bits, alone, fresh)
}

// Add is Note for a machine that was asked what it excludes.
func Add(w *membership.Word, lock string, bits, alone, fresh uint64) {
	if bits != fresh {
		w.Differs = append(w.Differs, membership.Differ{Lock: lock, Bits: bits ^ fresh})
	}
	if alone != 0 {
		w.Alone = append(w.Alone, membership.Differ{Lock: lock, Bits: alone})
	}
}

// A Past is what is known of former members, for those that ask about a lock.
type Past struct {
	*membership.Past
	index [][2]map[string]uint64 // by the place of a word: its bits of each lock; nil if the words are to be read
}

// About returns a past that reads the words when it is asked.
func About(p *membership.Past) *Past { return &Past{Past: p} }

// Indexed returns a past in which it is found at once what the words say of a lock.
func Indexed(p *membership.Past) *Past {
	index := make([][2]map[string]uint64, len(p.Words))
	for i := range p.Words {
		for k, list := range p.Words[i].Lists() {
			index[i][k] = make(map[string]uint64, len(*list))
			for _, d := range *list {
				if _, again := index[i][k][d.Lock]; !again {
					index[i][k][d.Lock] = d.Bits
				}
			}
		}
	}
	return &Past{p, index}
}

// bits returns what a list of a word says of a lock.
func (p *Past) bits(word, list int, lock string) uint64 {
	if p.index != nil {
		return p.index[word][list][lock]
	}
	for _, d := range *p.Words[word].Lists()[list] {
		if d.Lock == lock {
			return d.Bits
		}
	}
	return 0
}

// Holders returns the formers that may hold a lock, or with shares, that may hold it alone, but for
// those that are cleared. fresh returns what the new machine of the lock, if free, excludes at the
// node of a word.
func (p *Past) Holders(lock string, shares bool, cleared uint64, fresh func(w *membership.Word) uint64) []membership.Former {
	return slices.DeleteFunc(slices.Clone(p.Former), func(f membership.Former) bool {
		return f.Epoch <= cleared || f.Parting != nil && f.Parting.Key(lock) == "" || p.frees(f.Node, lock, shares, fresh)
	})
}

// Refutes reports whether a former member has said that it has not lent this.
func (p *Past) Refutes(node dmutex.NodeID, loan membership.Loan) bool {
	return slices.ContainsFunc(p.Former, func(f membership.Former) bool {
		return f.Node == node && f.Parting != nil && f.Parting.Key(loan.Lock) != loan.Key
	})
}

func (p *Past) frees(node dmutex.NodeID, lock string, shares bool, fresh func(w *membership.Word) uint64) bool {
	for k := range p.Words {
		w := &p.Words[k]
		i, about := w.Place(node)
		if !about {
			continue
		}
		excludes := fresh(w)
		if excludes ^= p.bits(k, 0, lock); shares {
			excludes ^= p.bits(k, 1, lock)
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
