package lamport

// A lock at rest costs little memory: the machine has only what tells something,
// and the locks of a node share the rest, see [dmutex.Shared]. A request wakes
// the machine, its end lets it rest.

// wake gives the machine answers, to whatever request.
func (m *Machine) wake() {
	spare, ok := m.site.Take().(*answers)
	if !ok {
		spare = &answers{make([]bool, len(m.site.Peers()))}
	}
	m.answers = spare
}

// rest lays the answers aside unless a request is pending.
func (m *Machine) rest() {
	if m.answers != nil && !m.site.Pending() {
		m.site.Lay(m.answers)
		m.answers = nil
	}
}
