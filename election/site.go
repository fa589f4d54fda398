package election

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// A site is what the machines of the three algorithms have in common: the members,
// which of them are suspected, the numbers, the phase of the present election, and
// the output.
type site struct {
	elector
	members  []dmutex.NodeID // ascending; never written after birth: clones share it
	me       int             // our rank in it
	majority bool
	suspects []bool // by rank

	phase   phase
	outcome int // the timeout of those that wait, in ticks
	left    int // ticks until a timeout, 0 if none runs

	epoch uint64 // highest epoch that was announced to us, or by us
	led   bool   // its leader is in office, as far as we know
	met   uint64 // highest ballot or epoch met in any message; at least epoch

	out []Message
}

// An elector is the machine of a site: the algorithm by which it runs.
type elector interface{ campaign() }

// phase is where a node stands with an election.
type phase uint8

const (
	idle    phase = iota
	asking        // it runs
	waiting       // it has let another node run, and waits for the outcome
)

func (p phase) String() string { return [...]string{"idle", "asking", "waiting"}[p] }

// No correct node reaches this number. A peer that claims such a number would make
// our own numbers overflow.
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
	return site{
		members:  members,
		me:       me,
		majority: c.Majority,
		suspects: make([]bool, len(members)),
		outcome:  c.Outcome,
		epoch:    c.Epoch,
		met:      c.Epoch,
	}, nil
}

func (s *site) clone() site {
	c := *s
	c.suspects = slices.Clone(s.suspects)
	c.out = nil
	return c
}

// Leader implements [Machine].
func (s *site) Leader() (node dmutex.NodeID, epoch uint64) {
	if !s.led {
		return dmutex.None, s.epoch
	}
	return s.members[s.owner(s.epoch)], s.epoch
}

// TicksLeft returns the ticks until a timeout, 0 if none runs.
func (s *site) TicksLeft() int { return s.left }

// leads reports whether this node leads.
func (s *site) leads() bool { return s.led && s.owner(s.epoch) == s.me }

// owner returns the rank of the member to which a ballot or an epoch belongs.
func (s *site) owner(number uint64) int { return int(number % uint64(len(s.members))) }

// next returns the lowest number above another that belongs to a member.
func (s *site) next(above uint64, rank int) uint64 {
	number := above - uint64(s.owner(above)) + uint64(rank)
	if number <= above {
		number += uint64(len(s.members))
	}
	return number
}

// run begins to run, with a new ballot.
func (s *site) run(timeout int) (ballot uint64) {
	s.met = s.next(s.met, s.me)
	s.led, s.phase, s.left = false, asking, timeout
	return s.met
}

// yield lets another node run: this one ceases to lead or run. A node that is not
// able has no outcome to wait for.
func (s *site) yield() {
	s.led = false
	if s.able() {
		s.phase, s.left = waiting, s.outcome
	}
}

// rest ends this node's part in an election.
func (s *site) rest() { s.phase, s.left = idle, 0 }

// able reports whether this node may have or be a leader: under the majority rule
// only if it reaches a majority.
func (s *site) able() bool {
	if !s.majority {
		return true
	}
	reach := 0
	for _, suspected := range s.suspects {
		if !suspected {
			reach++
		}
	}
	return s.isMajority(reach)
}

func (s *site) isMajority(nodes int) bool { return 2*nodes > len(s.members) }

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

// suspect notes a suspicion, and reports whether it is of the leader.
func (s *site) suspect(node dmutex.NodeID) (orphaned bool, err error) {
	s.begin()
	j, err := s.rank(node)
	if err != nil || s.suspects[j] {
		return false, err
	}
	s.suspects[j] = true
	if !s.able() {
		s.led = false
		s.rest()
	}
	return s.led && j == s.owner(s.epoch), nil
}

// unsuspect notes that a suspicion is withdrawn, and reports whether that is
// news.
func (s *site) unsuspect(node dmutex.NodeID) (news bool, err error) {
	s.begin()
	j, err := s.rank(node)
	if err != nil || !s.suspects[j] {
		return false, err
	}
	s.suspects[j] = false
	return true, nil
}

// rank returns the rank of another member, for a caller that names one.
func (s *site) rank(node dmutex.NodeID) (int, error) {
	j, member := slices.BinarySearch(s.members, node)
	if !member || j == s.me {
		return 0, dmutex.Misuse("election: node " + node.String() + " is not another member of the group")
	}
	return j, nil
}

// Start implements [Machine].
func (s *site) Start() []Message {
	s.begin()
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

// timeout lets a tick pass, and reports whether the timeout is reached.
func (s *site) timeout() bool {
	s.begin()
	if s.left == 0 {
		return false
	}
	s.left--
	return s.left == 0
}

// check begins the handling of a message. It returns the sender's rank, or
// ErrPeer for a message that no peer can have meant for this node.
func (s *site) check(m Message) (from int, err error) {
	s.begin()
	from, member := slices.BinarySearch(s.members, m.From)
	switch {
	case m.To != s.members[s.me]:
		return 0, refuse(m, "it is not for node "+s.members[s.me].String())
	case !member || from == s.me:
		return 0, refuse(m, "the sender is not a peer")
	case m.Ballot > lastNumber || m.Epoch > lastNumber:
		return 0, refuse(m, "a number in it is beyond 1<<62")
	case m.Kind == Coordinator && m.Epoch == 0:
		return 0, refuse(m, "it names no epoch")
	case m.Kind != Coordinator && m.Ballot == 0:
		return 0, refuse(m, "it names no ballot")
	}
	return from, nil
}

func refuse(m Message, why string) error { return dmutex.PeerMistake(m.String() + ": " + why) }

// begin makes room for the output of the next input. The old one is wiped, so
// that a driver which kept it too long sends nonsense at once.
func (s *site) begin() {
	clear(s.out)
	s.out = s.out[:0]
}

// send adds a message to the output. The pointer is good until the next send.
func (s *site) send(kind Kind, to int) *Message {
	s.out = append(s.out, Message{Kind: kind, From: s.members[s.me], To: s.members[to]})
	return &s.out[len(s.out)-1]
}

// appendText appends the site's part of a machine's canonical state.
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
