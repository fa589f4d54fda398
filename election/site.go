package election

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// A site is what the machines of the three algorithms have in common: the members, the
// suspects, the numbers, the phase of the present election, and the output.
type site struct {
	elector
	config   Config
	members  []dmutex.NodeID // ascending; never written after birth: clones share it
	me       int             // our rank in it
	suspects []bool          // by rank

	phase  phase
	ballot uint64 // with which we run, while asking
	left   int    // ticks until a timeout, 0 if none runs

	epoch uint64 // highest epoch that was announced to us, or by us
	led   bool   // its leader is in office, as far as we know
	met   uint64 // highest ballot or epoch met in any message; at least epoch

	out []Message
}

// An elector is what differs between the algorithms.
type elector interface {
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

func newSite(c Config) (site, error) {
	members, me, err := canon.Members("Config.", c.Members, c.Self)
	switch {
	case err != nil:
		return site{}, dmutex.Misuse("election: " + err.Error())
	case c.Epoch > lastNumber:
		return site{}, dmutex.Misuse("election: Config.Epoch is beyond 1<<62")
	case c.Outcome <= 0:
		return site{}, dmutex.Misuse("election: Config.Outcome must be at least 1 tick")
	}
	return site{config: c, members: members, me: me, suspects: make([]bool, len(members)), epoch: c.Epoch, met: c.Epoch}, nil
}

// unshare makes a copy of a machine independent of the original.
func (s *site) unshare(of elector) {
	s.elector, s.suspects = of, slices.Clone(s.suspects)
}

func (s *site) Leader() (node dmutex.NodeID, epoch uint64) {
	if !s.led {
		return dmutex.None, s.epoch
	}
	return s.members[s.owner(s.epoch)], s.epoch
}

func (s *site) TicksLeft() int { return s.left }

func (s *site) leads() bool { return s.led && s.owner(s.epoch) == s.me }

// owner returns the rank of the member to which a ballot or an epoch belongs.
func (s *site) owner(number uint64) int { return int(number % uint64(len(s.members))) }

// next returns the lowest number above another that belongs to this node.
func (s *site) next(above uint64) uint64 {
	number := above - uint64(s.owner(above)) + uint64(s.me)
	if number <= above {
		number += uint64(len(s.members))
	}
	return number
}

func (s *site) run(timeout int) {
	s.ballot = s.next(s.met)
	s.met = s.ballot
	s.led, s.phase, s.left = false, asking, timeout
}

// yield lets another node run. A node that is not able has no outcome to wait for.
func (s *site) yield() {
	s.led = false
	if s.able() {
		s.phase, s.left = waiting, s.config.Outcome
	}
}

// rest ends this node's part in an election.
func (s *site) rest() { s.phase, s.left = idle, 0 }

// able reports whether this node may have or be a leader: whether it reaches enough members.
func (s *site) able() bool {
	reach := 0
	for _, suspected := range s.suspects {
		if !suspected {
			reach++
		}
	}
	return s.enough(reach)
}

// enough reports whether so many nodes can decide: under the majority rule, a majority.
func (s *site) enough(nodes int) bool { return !s.config.Majority || 2*nodes > len(s.members) }

// lead takes the office in an epoch of our own.
func (s *site) lead(epoch uint64) {
	s.epoch, s.met = epoch, max(s.met, epoch)
	s.led = true
	s.rest()
}

// learn takes an announcement that is new, and reports whether to contest it:
// a node that is not in an election does not accept a leader lower than itself. It
// accepts one that it suspects, until the timeout: if the suspicion is wrong, the two
// would otherwise depose each other as fast as messages travel.
func (s *site) learn(epoch uint64) (contest bool) {
	leader := s.owner(epoch)
	s.epoch, s.met = epoch, max(s.met, epoch)
	s.led = s.able() && leader > s.me && !s.suspects[leader]
	switch {
	case s.led || !s.able():
		s.rest()
	case s.phase != idle:
	case leader <= s.me:
		return true
	default:
		s.yield()
	}
	return false
}

func (s *site) Suspect(node dmutex.NodeID) ([]Message, error) { return s.judge(node, true) }

func (s *site) Unsuspect(node dmutex.NodeID) ([]Message, error) { return s.judge(node, false) }

// judge notes whether a member is suspected. It begins an election if the leader is lost,
// or if there was none because a majority was missing.
func (s *site) judge(node dmutex.NodeID, suspected bool) ([]Message, error) {
	j, member := slices.BinarySearch(s.members, node)
	if !member || j == s.me {
		return nil, dmutex.Misuse("election: node " + node.String() + " is not another member of the group")
	}
	s.out = nil
	if s.suspects[j] == suspected {
		return nil, nil
	}
	s.suspects[j] = suspected
	if !s.able() {
		s.led = false
		s.rest()
	}
	if suspected && s.led && j == s.owner(s.epoch) || !suspected && !s.led && s.phase == idle {
		s.elect()
	} else {
		s.judged(j)
	}
	return s.out, nil
}

func (s *site) Start() []Message {
	s.out = nil
	if s.phase == idle {
		s.elect()
	}
	return s.out
}

// elect begins an election, unless this node reaches no majority.
func (s *site) elect() {
	if !s.able() {
		s.led = false
		return
	}
	s.campaign()
}

func (s *site) Tick() []Message {
	s.out = nil
	if s.left > 0 {
		if s.left--; s.left == 0 {
			s.timeout()
		}
	}
	return s.out
}

func (s *site) Handle(m Message) ([]Message, error) {
	s.out = nil
	from, member := slices.BinarySearch(s.members, m.From)
	var mistake string
	switch {
	case m.To != s.members[s.me]:
		mistake = "it is not for node " + s.members[s.me].String()
	case !member || from == s.me:
		mistake = "the sender is not a peer"
	case m.Ballot > lastNumber || m.Epoch > lastNumber:
		mistake = "a number in it is beyond 1<<62"
	case m.Kind == Coordinator && m.Epoch == 0:
		mistake = "it names no epoch"
	case m.Kind != Coordinator && m.Ballot == 0:
		mistake = "it names no ballot"
	default:
		mistake = s.handle(from, m)
	}
	if mistake != "" {
		return nil, dmutex.PeerMistake(m.String() + ": " + mistake)
	}
	return s.out, nil
}

func (s *site) send(to int, m Message) {
	m.From, m.To = s.members[s.me], s.members[to]
	s.out = append(s.out, m)
}

func (s *site) appendText(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(s.members[s.me]), 10)
	b = append(b, ' ')
	b = append(b, s.phase.String()...)
	b = canon.Number(b, " left=", uint64(s.left))
	b = canon.Flag(b, " led", s.led)
	b = canon.Number(b, " epoch=", s.epoch)
	b = canon.Number(b, " met=", s.met)
	return canon.Set(b, " suspects ", s.members, s.suspects)
}
