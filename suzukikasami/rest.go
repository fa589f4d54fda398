package suzukikasami

import "slices"

// A lock at rest costs little memory: the machine has only what tells something,
// and the locks of a node share the rest, see [dmutex.Shared]. An input that finds
// it at rest wakes it first.

// wake gives the machine lists, if it has none. At rest Q is empty and LN is RN.
func (m *Machine) wake() {
	if m.lists != nil {
		return
	}
	spare, ok := m.site.Take().(*lists)
	if !ok {
		spare = &lists{rn: make([]uint64, len(m.site.Members()))}
	}
	m.lists = spare
	m.unpack()
	if m.token {
		m.ln, m.q = append(m.ln[:0], m.rn...), m.q[:0]
	}
}

// awake returns the machine, or a copy that is awake: only an input may use what
// the locks of a node share, for the last one's output may be in it.
func (m *Machine) awake() *Machine {
	if m.lists == nil {
		m = m.Clone().(*Machine)
		m.wake()
	}
	return m
}

// rest lays lists aside that tell no more than a packed RN does.
func (m *Machine) rest() {
	if m.token && (len(m.q) > 0 || !slices.Equal(m.ln, m.rn)) {
		return
	}
	if m.pack() {
		m.site.Lay(m.lists)
		m.lists = nil
	}
}

// pack packs RN. In a group of more than 11, or with a number beyond 65,535, it
// cannot: then the machine keeps its lists.
func (m *Machine) pack() bool {
	if len(m.rn) > len(m.packed) {
		return false
	}
	for j, n := range m.rn {
		m.packed[j] = uint16(n)
		if uint64(m.packed[j]) != n {
			return false
		}
	}
	return true
}

func (m *Machine) unpack() {
	for j := range min(len(m.rn), len(m.packed)) {
		m.rn[j] = uint64(m.packed[j])
	}
}
