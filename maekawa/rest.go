package maekawa

// A lock at rest costs little memory: the machine has only what tells something,
// and the locks of a node share the rest, see [dmutex.Shared]. An input that finds
// it at rest wakes it first.

// wake gives the machine a contest, if it has none.
func (m *Machine) wake() {
	if m.contest != nil {
		return
	}
	spare, ok := m.site.Take().(*contest)
	if !ok {
		spare = m.newContest()
	}
	m.contest = spare
}

// rest lays a contest aside that is over.
func (m *Machine) rest() {
	if !m.site.Pending() && len(m.queue) == 0 {
		m.site.Lay(m.contest)
		m.contest = nil
	}
}

func (m *Machine) newContest() *contest {
	return &contest{ballots: make([]ballot, len(m.quorum()))}
}
