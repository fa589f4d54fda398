package election

import "github.com/dmutex/dmutex"

// Bully is the algorithm of Garcia-Molina: the highest live node wins, whichever runs.
//
// Garcia-Molina, "Elections in a Distributed Computing System", IEEE
// Transactions on Computers C-31(1), 1982; in the form in which Tanenbaum
// teaches it, completed where that form is incomplete.
//
// # Theory of operation
//
// A node that joins or misses the leader sends ELECTION to all higher nodes. A node that
// receives it sends ANSWER, which means "I am alive and take over", and runs itself if it
// does not yet. A node that hears no ANSWER within the first timeout presumes all higher
// nodes dead, and sends COORDINATOR to all others. A node that hears one waits for that
// announcement. The highest leads at once when it joins: hence the name.
//
// The usual account leaves out three things. If any one of them is missing, some runs end
// without agreement. First, the node that answered may die, so the wait for the announcement has
// a timeout of its own, after which the election begins again. Second, an announcement may
// be late, so it has an epoch, and a node answers an older one with a COORDINATOR of the
// newer epoch. Third, that answer must name the leader, not only a higher number, or two
// nodes that both think they lead outbid each other forever. An epoch names the leader.
//
// With the majority rule ELECTION goes to the lower nodes too. They answer
// AGREE, and cease to lead or run. A node that runs announces itself when all nodes
// that it does not suspect have agreed, or on the first timeout if a majority has.
// (In the paper, too, a node that runs first halts the lower nodes and waits for
// them.) A higher node that itself reaches no majority agrees like a lower one.
//
// Agreement. The highest live node waits for no other node, and announces itself to
// all others. A node runs when it suspects the leader that it follows, and skips
// the first timeout when there is no node left to wait for.
//
// Stability. Lower nodes that run, because they join or suspect the leader wrongly, do not
// replace it: it sends them COORDINATOR again, with the same epoch.
//
// Count. There are N nodes, the highest is dead, and each of the others runs
// because the lowest began: (N-1)N/2 ELECTION, (N-2)(N-1)/2 ANSWER and N-1 COORDINATOR, one
// of them to the dead. If the second highest begins, it costs 1 ELECTION.
func Bully(c Config) (Machine, error) {
	m, err := newMachine(c, "bully", func(m *machine) rules { return bully{m} })
	if err == nil && (c.Answer <= 0 || c.Answer >= c.Outcome) {
		return nil, dmutex.Misuse("election: Config.Answer must be at least 1 tick and less than Config.Outcome")
	}
	return m, err
}

type bully struct{ *machine }

func (m bully) campaign() {
	m.run(m.config.Answer)
	clear(m.agreed)
	for j := range m.members {
		if m.asks(j) {
			m.send(j, Message{Kind: Election, Ballot: m.ballot})
		}
	}
	m.tryLead()
}

// asks reports whether ELECTION goes to a member.
func (m bully) asks(j int) bool { return j > m.me || m.config.Majority && j < m.me }

// tryLead ends the election when there is no node left to wait for.
func (m bully) tryLead() {
	for j := range m.members {
		if m.asks(j) && !m.agreed[j] && !m.suspects[j] {
			return
		}
	}
	m.conclude()
}

// conclude ends the election: no higher node is alive.
func (m bully) conclude() {
	agreed := 1
	for j, yes := range m.agreed {
		if yes && !m.suspects[j] {
			agreed++
		}
	}
	if m.ballot <= m.epoch || !m.enough(agreed) {
		m.elect() // outrun meanwhile, or not let
		return
	}
	m.lead(m.ballot)
	for j := range m.members {
		if j != m.me {
			m.announce(j)
		}
	}
}

func (m bully) announce(j int) { m.send(j, Message{Kind: Coordinator, Epoch: m.epoch}) }

func (m bully) handle(j int, msg Message) (mistake string) {
	switch {
	case msg.Kind == Election && m.owner(msg.Ballot) != j:
		return "the ballot is not the sender's"
	case msg.Kind == Election && j > m.me && !m.config.Majority:
		return "without the majority rule ELECTION goes only to higher nodes"
	case msg.Kind == Election:
		m.election(j, msg.Ballot)
	case msg.Kind == Answer && j < m.me:
		return "a lower node does not take over"
	case msg.Kind == Answer:
		m.answered(msg.Ballot)
	case msg.Kind == Agree && !m.config.Majority:
		return "this group does not use the majority rule"
	case msg.Kind == Agree:
		m.agree(j, msg.Ballot)
	case msg.Kind == Coordinator:
		m.coordinator(j, msg.Epoch)
	default:
		return "the bully has no such message"
	}
	return ""
}

// election takes over from a lower node, or tells it who leads. A node that leads or runs
// gives way to a higher one. A sender whose ballot is too low learns the number to outbid.
func (m bully) election(j int, ballot uint64) {
	m.met = max(m.met, ballot)
	if j > m.me || !m.able() {
		if m.phase == asking || m.leads() {
			m.yield()
		}
		m.send(j, Message{Kind: Agree, Ballot: m.met})
		return
	}
	m.send(j, Message{Kind: Answer, Ballot: m.met})
	switch {
	case m.leads():
		m.announce(j)
	case m.phase == idle:
		m.elect()
	}
}

// answered waits for the announcement of a higher node.
func (m bully) answered(met uint64) {
	m.met = max(m.met, met)
	if m.phase == asking {
		m.yield()
	}
}

// agree notes a node that lets us run.
func (m bully) agree(j int, ballot uint64) {
	m.met = max(m.met, ballot)
	if m.phase == asking && ballot == m.ballot {
		m.agreed[j] = true
		m.tryLead()
	}
}

// coordinator follows the leader of a new epoch, or runs against it. It
// returns to that of the present one if the leader itself says so.
func (m bully) coordinator(j int, epoch uint64) {
	switch {
	case epoch < m.epoch:
		m.announce(j)
	case epoch > m.epoch, !m.led && m.owner(epoch) == j:
		if m.learn(epoch) {
			m.elect()
		}
	}
}

// timeout presumes silent nodes dead, or begins again if there was no outcome.
func (m bully) timeout() {
	if m.phase == asking {
		m.conclude()
	} else {
		m.elect()
	}
}

func (m bully) judged(j int) {
	switch {
	case m.leads() && !m.suspects[j]:
		m.announce(j)
	case m.phase == asking && m.suspects[j]:
		m.tryLead()
	}
}
