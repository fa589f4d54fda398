package machinetest

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// wrapped is a machine inside another that changes what it does. It is a
// [dmutex.Keeper] if the machine is one, but never a [dmutex.Ticker].
type wrapped struct {
	dmutex.Machine
	peers []dmutex.NodeID
}

func wrap(m dmutex.Machine, s dmutex.Start) wrapped {
	return wrapped{m, slices.DeleteFunc(slices.Clone(s.Members), func(id dmutex.NodeID) bool { return id == s.Self })}
}

// WaitsFor names all peers, so that a broken rule does not show as a broken law of
// WaitsFor.
func (w wrapped) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if w.Pending() {
		b = append(b, w.peers...)
	}
	return b
}

// Keeps implements [dmutex.Keeper].
func (w wrapped) Keeps() bool {
	k, ok := w.Machine.(dmutex.Keeper)
	return ok && k.Keeps()
}

func (w wrapped) clone() wrapped { return wrapped{w.Machine.Clone(), w.peers} }
