package election

import "slices"

// A circle is what the two rings have in common. It has the order of [Config.Members].
type circle struct{ *machine }

// successor returns the next that is not suspected; this node if all others are.
func (m circle) successor() int {
	for _, j := range m.others {
		if !m.suspects[j] {
			return j
		}
	}
	return m.me
}

// pass sends a message to the successor, if there is another node.
func (m circle) pass(msg Message) {
	if next := m.successor(); next != m.me {
		m.send(next, msg)
	}
}

// judged begins an election if the ring has changed here: a node that gets a new successor
// runs. So the last change is followed by an election that passes every node.
func (m circle) judged(j int) {
	next := slices.IndexFunc(m.others, func(k int) bool { return k == j || !m.suspects[k] })
	if m.others[next] == j {
		m.elect()
	}
}

func (m circle) timeout() { m.elect() }
