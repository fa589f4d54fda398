package membership

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
)

// This file is how a store that can prove that a process is dead spares a [LeaseMachine] the
// wait of rule 5.4.

// Begun tells the machine the name of the life that a Live has begun, which is empty if the
// store proves nothing. The driver ends that life of the store when this one is no member any
// more, or is Stopped, and its lease has ended, or all that it held was released.
func (m *LeaseMachine) Begun(now int64, proof string) []Message {
	if m.op == Live && m.ended == Outside {
		m.finish(now)
		if m.begun, m.proof = true, proof; !isProof(proof) {
			m.stop(dmutex.Misuse("membership: the store names a life " + strconv.Quote(proof) + ", not with 1 to 64 letters and digits"))
		}
	}
	return m.flush(now)
}

// Living tells the machine the names of all lives of the store that had begun when the driver
// asked, and were not over when the store answered. When it asked, the machine had shown it a
// record with that last exclusion.
//
// If members of the record are all that live, that exclusion is cleared: a life that was excluded
// by then had begun its life of the store before it joined, so before the driver asked. It is
// never a member again, and the answer does not have it, so it holds nothing any more. Lives
// without one of the store must be cleared by a wait. A life that lives holds nothing, either, if
// it has left, or was excluded in an epoch that is cleared: a process that is stopped for long
// keeps nobody waiting twice. A life that is about to join a new record has begun its own, so the
// others wait until it has joined.
func (m *LeaseMachine) Living(now int64, unclean uint64, names []string) []Message {
	harmless := func(name string) bool {
		return slices.ContainsFunc(m.record.Members, func(e Entry) bool { return e.Proof == name }) ||
			slices.ContainsFunc(m.gone, func(g gone) bool { return g.proof == name && g.unclean <= m.cleared })
	}
	if unclean > m.cleared && m.record.Unproved <= m.cleared && m.ended == Outside &&
		!slices.ContainsFunc(names, func(name string) bool { return !harmless(name) }) {
		m.clear(unclean)
	}
	return m.flush(now)
}

// A gone is a life of the store whose member was excluded in this epoch or before, or has left.
type gone struct {
	proof   string
	unclean uint64
}

// part notes who is no member of a record any more.
func (m *LeaseMachine) part(r *Record) {
	for _, e := range m.record.Members {
		if e.Proof != "" && r.number(e.Life) == dmutex.None {
			m.gone = append(slices.Clone(m.gone[max(len(m.gone)-MaxMembers+1, 0):]), gone{e.Proof, r.Unclean})
		}
	}
}
