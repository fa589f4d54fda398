package suzukikasami

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// A lock at rest costs little memory: the machine has only what tells something,
// and the locks of a node share the rest, see [dmutex.Shared].

// quiet is the token of a machine at rest where Q is empty and LN is RN. It is
// never written: an input wakes the machine first.
var quiet = new(token)

// wake gives the machine a token to write to, if it has the token.
func (m *Machine) wake() {
	if m.token == quiet {
		m.token = m.room()
		m.q = m.q[:0]
		copy(m.ln, m.rn)
	}
}

// rest lays a token that tells nothing aside.
func (m *Machine) rest() {
	if m.token != nil && len(m.q) == 0 && slices.Equal(m.ln, m.rn) {
		m.site.Lay(m.token)
		m.token = quiet
	}
}

// room returns a token with anything in it.
func (m *Machine) room() *token {
	if spare, ok := m.site.Take().(*token); ok {
		return spare
	}
	n := len(m.rn)
	return &token{make([]uint64, n), make([]dmutex.NodeID, 0, n)}
}

// served returns LN, also of a machine at rest.
func (m *Machine) served() []uint64 {
	if m.token == quiet {
		return m.rn
	}
	return m.ln
}

func (t *token) clone() *token {
	if t == nil || t == quiet {
		return t
	}
	return &token{slices.Clone(t.ln), append(make([]dmutex.NodeID, 0, cap(t.q)), t.q...)}
}
