package ricart

import "slices"

// A lock at rest costs little memory: the machine has only what tells something,
// and the locks of a node share the rest, see [dmutex.Shared]. An input that finds
// it at rest wakes it first.

// wake gives the machine a round, if it has none.
func (m *Machine) wake() {
	if m.round != nil {
		return
	}
	spare, ok := m.site.Take().(*round)
	if !ok {
		n := len(m.site.Peers())
		spare = &round{awaiting: make([]bool, n), deferred: make([]uint64, n), kept: make([]bool, n)}
	}
	m.round = spare
	for j := range m.kept {
		m.kept[j] = m.all
	}
}

// rest lays a round aside that tells no more than all does.
func (m *Machine) rest() {
	if m.missing > 0 || slices.ContainsFunc(m.deferred, func(t uint64) bool { return t != 0 }) {
		return
	}
	if all := slices.Contains(m.kept, true); !all || !slices.Contains(m.kept, false) {
		m.all = all
		m.site.Lay(m.round)
		m.round = nil
	}
}

// has reports whether a peer's permission is ours, also of a machine at rest.
func (m *Machine) has(j int) bool {
	if m.round == nil {
		return m.all
	}
	return m.kept[j]
}
