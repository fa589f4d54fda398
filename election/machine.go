package election

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// A machine is the whole state of a node, whichever the algorithm.
type machine struct {
	name     string               // of the algorithm
	rules    func(*machine) rules // of the algorithm
	config   Config
	members  []dmutex.NodeID // ascending; never written after birth: clones share it
	me       int             // our rank in it
	others   []int           // the rings': ranks, in the order of the ring from our place on; never written either
	suspects []bool          // by rank

	phase  phase
	ballot uint64 // with which we run, while asking
	agreed []bool // the bully's, by rank: to our ballot
	left   int    // ticks until a timeout, 0 if none runs

	epoch uint64 // highest epoch that was announced to us, or by us
	led   bool   // its leader is in office, as far as we know
	met   uint64 // highest ballot or epoch met in any message; at least epoch

	out []Message
}

// The rules are what differs between the algorithms. They have no state but the machine.
type rules interface {
	campaign()                                   // begins an election
	handle(from int, m Message) (mistake string) // takes a message, or says why no peer sends it
	judged(j int)                                // a suspicion has changed that is no reason to elect
	timeout()
}

type phase uint8

const (
	idle    phase = iota
	asking        // it runs
	waiting       // it has let another node run, and waits for the outcome
)

func (p phase) String() string { return [...]string{"idle", "asking", "waiting"}[p] }

// No correct node reaches this number. From a higher one our own would overflow.
const lastNumber = 1 << 62

func newMachine(c Config, name string, r func(*machine) rules) (Machine, error) {
	members, me, err := canon.Members("Config.", c.Members, c.Self)
	switch {
	case err != nil:
		return nil, dmutex.Misuse("election: " + err.Error())
	case c.Epoch > lastNumber:
		return nil, dmutex.Misuse("election: Config.Epoch is beyond 1<<62")
	case c.Outcome <= 0:
		return nil, dmutex.Misuse("election: Config.Outcome must be at least 1 tick")
	}
	var others []int
	i := slices.Index(c.Members, c.Self)
	for _, node := range slices.Concat(c.Members[i+1:], c.Members[:i]) {
		j, _ := slices.BinarySearch(members, node)
		others = append(others, j)
	}
	return &machine{
		name: name, rules: r, config: c, members: members, me: me, others: others,
		suspects: make([]bool, len(members)), agreed: make([]bool, len(members)), epoch: c.Epoch, met: c.Epoch,
	}, nil
}

func (m *machine) Clone() Machine {
	c := *m
	c.suspects, c.agreed = slices.Clone(m.suspects), slices.Clone(m.agreed)
	return &c
}

func (m *machine) Leader() (node dmutex.NodeID, epoch uint64) {
	if !m.led {
		return dmutex.None, m.epoch
	}
	return m.members[m.owner(m.epoch)], m.epoch
}

func (m *machine) TicksLeft() int { return m.left }

func (m *machine) leads() bool { return m.led && m.owner(m.epoch) == m.me }

// owner returns the rank of the member to which a ballot or an epoch belongs.
func (m *machine) owner(number uint64) int { return int(number % uint64(len(m.members))) }

// next returns the lowest number above another that belongs to this node.
func (m *machine) next(above uint64) uint64 {
	number := above - uint64(m.owner(above)) + uint64(m.me)
	if number <= above {
		number += uint64(len(m.members))
	}
	return number
}

func (m *machine) run(timeout int) {
	m.ballot = m.next(m.met)
	m.met = m.ballot
	m.led, m.phase, m.left = false, asking, timeout
}

// yield lets another node run. A node that is not able has no outcome to wait for.
func (m *machine) yield() {
	m.led = false
	if m.able() {
		m.phase, m.left = waiting, m.config.Outcome
	}
}

// rest ends this node's part in an election.
func (m *machine) rest() { m.phase, m.left = idle, 0 }

// able reports whether this node may have or be a leader: whether it reaches enough members.
func (m *machine) able() bool {
	reach := 0
	for _, suspected := range m.suspects {
		if !suspected {
			reach++
		}
	}
	return m.enough(reach)
}

// enough reports whether so many nodes can decide: under the majority rule, a majority.
func (m *machine) enough(nodes int) bool { return !m.config.Majority || 2*nodes > len(m.members) }

// lead takes the office in an epoch of our own.
func (m *machine) lead(epoch uint64) {
	m.epoch, m.met = epoch, max(m.met, epoch)
	m.led = true
	m.rest()
}

// learn takes an announcement that is new, and reports whether to contest it:
// a node that is not in an election does not accept a leader lower than itself. It
// accepts one that it suspects, until the timeout: if the suspicion is wrong, the two
// would otherwise depose each other as fast as messages travel.
func (m *machine) learn(epoch uint64) (contest bool) {
	leader := m.owner(epoch)
	m.epoch, m.met = epoch, max(m.met, epoch)
	m.led = m.able() && leader > m.me && !m.suspects[leader]
	switch {
	case m.led || !m.able():
		m.rest()
	case m.phase != idle:
	case leader <= m.me:
		return true
	default:
		m.yield()
	}
	return false
}

func (m *machine) Suspect(node dmutex.NodeID) ([]Message, error) { return m.judge(node, true) }

func (m *machine) Unsuspect(node dmutex.NodeID) ([]Message, error) { return m.judge(node, false) }

// judge notes whether a member is suspected. It begins an election if the leader is lost,
// or if there was none because a majority was missing.
func (m *machine) judge(node dmutex.NodeID, suspected bool) ([]Message, error) {
	j, member := slices.BinarySearch(m.members, node)
	if !member || j == m.me {
		return nil, dmutex.Misuse("election: node " + node.String() + " is not another member of the group")
	}
	m.out = nil
	if m.suspects[j] == suspected {
		return nil, nil
	}
	m.suspects[j] = suspected
	if !m.able() {
		m.led = false
		m.rest()
	}
	if suspected && m.led && j == m.owner(m.epoch) || !suspected && !m.led && m.phase == idle {
		m.elect()
	} else {
		m.rules(m).judged(j)
	}
	return m.out, nil
}

func (m *machine) Start() []Message {
	m.out = nil
	if m.phase == idle {
		m.elect()
	}
	return m.out
}

// elect begins an election, unless this node reaches no majority.
func (m *machine) elect() {
	if !m.able() {
		m.led = false
		return
	}
	m.rules(m).campaign()
}

func (m *machine) Tick() []Message {
	m.out = nil
	if m.left > 0 {
		if m.left--; m.left == 0 {
			m.rules(m).timeout()
		}
	}
	return m.out
}

func (m *machine) Handle(msg Message) ([]Message, error) {
	m.out = nil
	from, member := slices.BinarySearch(m.members, msg.From)
	var mistake string
	switch {
	case msg.To != m.members[m.me]:
		mistake = "it is not for node " + m.members[m.me].String()
	case !member || from == m.me:
		mistake = "the sender is not a peer"
	case msg.Ballot > lastNumber || msg.Epoch > lastNumber:
		mistake = "a number in it is beyond 1<<62"
	case msg.Kind == Coordinator && msg.Epoch == 0:
		mistake = "it names no epoch"
	case msg.Kind != Coordinator && msg.Ballot == 0:
		mistake = "it names no ballot"
	default:
		mistake = m.rules(m).handle(from, msg)
	}
	if mistake != "" {
		return nil, dmutex.PeerMistake(msg.String() + ": " + mistake)
	}
	return m.out, nil
}

func (m *machine) send(to int, msg Message) {
	msg.From, msg.To = m.members[m.me], m.members[to]
	m.out = append(m.out, msg)
}

func (m *machine) AppendText(b []byte) ([]byte, error) {
	b = append(append(b, m.name...), ' ')
	b = strconv.AppendUint(b, uint64(m.members[m.me]), 10)
	b = append(append(b, ' '), m.phase.String()...)
	b = canon.Number(b, " left=", uint64(m.left))
	b = canon.Flag(b, " led", m.led)
	b = canon.Number(b, " epoch=", m.epoch)
	b = canon.Number(b, " met=", m.met)
	b = canon.Set(b, " suspects ", m.members, m.suspects)
	if m.phase == asking {
		b = canon.Number(b, " ballot=", m.ballot)
		b = canon.Set(b, " agreed ", m.members, m.agreed)
	}
	return b, nil
}
