package election

// ChangRoberts is the algorithm of Chang and Roberts: the names of the nodes go
// around the ring, and only the highest gets all the way around.
//
// Chang and Roberts, "An Improved Algorithm for Decentralized Extrema-Finding
// in Circular Configurations of Processes", CACM 22(5), 1979.
//
// # Theory of operation
//
// The ring, and the reasons to begin, are those of [Ring]. A node that misses the leader
// becomes a participant and sends ELECTION with its own name. A node that receives a
// higher name becomes a participant and passes it on. A participant that receives a
// lower name drops it; any other node becomes a participant and sends its own name
// instead. A node that receives its own name leads, and sends ELECTED around, which
// makes every node a non-participant. (On the wire ELECTED is COORDINATOR.)
//
// The name is that of the ballot's owner. Names decide which node wins, whatever
// the ballots. But ELECTION also collects the highest number that the nodes on its
// way have met, and the winner's epoch is higher than that: so it is new to all
// nodes. A node that has passed a higher name on since it ran no longer runs: if its
// own name then comes back, the higher node was not in the ring yet.
//
// Agreement. Only the highest name comes around. The name of a crashed node would go
// around forever, so ELECTION counts the nodes that it has passed, and ends at N. If
// ELECTION or ELECTED is lost, the timeout begins another election.
//
// With the majority rule, a node that passes ELECTION on ceases to lead, and a node
// that receives its own name leads only if that has passed a majority. A node that
// reaches no majority itself passes everything on.
//
// Count. With n nodes alive, a node that runs alone costs between 2n messages (it
// is the highest) and 3n-1 (the highest comes last), n of them ELECTED. If all
// run at once ELECTION costs from 2n-1 to n(n+1)/2 messages, and n(1 + 1/2 + ... + 1/n) on
// average over all orders of names.
func ChangRoberts(c Config) (Machine, error) {
	return newMachine(c, "changroberts", func(m *machine) rules { return changRoberts{circle{m}} })
}

// The changRoberts rules call a node a non-participant if it is idle.
type changRoberts struct{ circle }

func (m changRoberts) campaign() {
	m.run(m.config.Outcome)
	if m.successor() == m.me {
		m.back(m.ballot, m.ballot, 1)
	}
	m.pass(Message{Kind: Election, Ballot: m.ballot, Epoch: m.met, Passed: 1})
}

func (m changRoberts) handle(_ int, msg Message) (mistake string) {
	switch {
	case msg.Kind == Election && (msg.Passed == 0 || msg.Passed > uint64(len(m.members))):
		return "it has passed no node, or more than there are"
	case msg.Kind == Election && msg.Epoch < msg.Ballot:
		return "its sender has not met its ballot"
	case msg.Kind == Election:
		m.election(msg.Ballot, msg.Epoch, msg.Passed)
	case msg.Kind == Coordinator:
		m.elected(msg.Epoch)
	default:
		return "Chang-Roberts has no such message"
	}
	return ""
}

// election passes a higher name on, and replaces or drops a lower one.
func (m changRoberts) election(ballot, met, passed uint64) {
	name := m.owner(ballot)
	switch {
	case name == m.me:
		m.back(ballot, met, passed)
	case passed == uint64(len(m.members)): // its node has crashed
	case name > m.me || !m.able():
		m.met = max(m.met, met)
		m.yield()
		m.pass(Message{Kind: Election, Ballot: ballot, Epoch: m.met, Passed: passed + 1})
	case m.phase == idle:
		m.met = max(m.met, met)
		m.elect()
	}
}

// back leads if our name has come around, in the epoch of the ballot if no node has met a
// higher number. If it has passed too few nodes, the timeout begins another election.
func (m changRoberts) back(ballot, met, passed uint64) {
	if m.phase != asking || ballot != m.ballot || !m.enough(int(passed)) {
		return
	}
	epoch := ballot
	if met = max(m.met, met); met > ballot {
		epoch = m.next(met)
	}
	m.lead(epoch)
	m.pass(Message{Kind: Coordinator, Epoch: epoch})
}

// elected follows the leader of an epoch that is new here, or runs against it.
func (m changRoberts) elected(epoch uint64) {
	if epoch <= m.epoch {
		return
	}
	contest := m.learn(epoch)
	m.pass(Message{Kind: Coordinator, Epoch: epoch})
	if contest {
		m.elect()
	}
}
