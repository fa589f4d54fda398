// Package site has what the machines of all algorithms of mutual exclusion have in
// common. An algorithm of one's own begins with it: see [Site].
package site

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// A Site is this node and its peers, the state of its own request, its logical clock, the
// rule of the fences, and the messages that the current input sends. An algorithm embeds a
// Site and adds what its paper adds. (Site is the papers' word for a node.)
//
// Phase, Fence, Pending, Cancel and WaitsFor are those of the [dmutex.Machine]; a [Machine] has
// AppendText, Clone and Forget, too. Shared, Sharers and ExcludesAlone are
// those of the [dmutex.Sharer], and Excludes is what every [dmutex.Excluder] may say. An
// algorithm calls Ask when its caller requests, Enter when the request is granted, Leave when its
// caller releases, and Check for each message.
//
// # The states of a request
//
// A request goes from Idle to Waiting to Held to Idle. A canceled request becomes
// a ghost: the caller is gone, but the other nodes are not told, and when the
// grant arrives the machine leaves the critical section at once. The other nodes
// see an ordinary run with an empty critical section, so the proofs without
// cancellation still hold, and no message is added. A new request resumes the
// ghost. To the driver, a ghost is Idle.
//
// # The rule of the fences
//
// A fence is a scalar clock that ticks only on a grant: every message carries the highest
// fence that its sender knows, a receiver keeps the maximum, and the fence of a grant is
// the highest known plus one. Between two successive critical sections there is a chain of
// the algorithm's own messages (it is what makes the algorithm safe), so fences rise
// strictly. If no machine is forgotten in between, and no node shares, the n-th grant of a
// group has fence Start.Fence + n. Between two grants that share there need be no chain, and
// their fences may be equal.
//
// The fences of a group are above [dmutex.Start.Fence] and at most [dmutex.Start.Limit].
// Near the limit a node requests nothing any more, early enough for all pending requests.
type Site struct {
	common  *common // never nil
	attempt uint64  // the number of our request, 0 if none is pending or held
	clock   uint64
	known   uint64 // highest fence known
	fence   uint64 // of the current grant
	phase   dmutex.Phase
	ghost   bool // the pending request is withdrawn, and phase is Idle
	shared  bool // the request shares
}

const (
	// No request is later than lastClock. Answers advance a clock beyond it, but the time
	// in a message does not. So whatever times a peer claims, the messages of this node
	// stay far below lastTime, and what Forget returns below lastStart.
	lastClock = 1 << 61
	lastStart = 1 << 62
	lastTime  = 1 << 63
)

// Carried is the attempt number of the request by which [dmutex.Start.Holder], or each of
// [dmutex.Start.Sharers], holds the lock. It is older than any other request of this group.
const Carried = 1

// New returns the Site that a Start describes, or [dmutex.ErrMisuse] if the Start
// is not valid. The fence of a Start.Holder is Start.Fence, even if that is 0. The machine is no
// [dmutex.Sharer]: that begins with [NewShared].
func New(s dmutex.Start) (Site, error) {
	if len(s.Sharers) > 0 {
		return Site{}, dmutex.Misuse("Start.Sharers: the algorithm lets one node in at a time")
	}
	return NewShared(s)
}

// NewShared is New for a [dmutex.Sharer]. The fence of Start.Sharers is Start.Fence, too.
func NewShared(s dmutex.Start) (Site, error) {
	common := commonOf(s.Sibling)
	group, err := common.groupOf(s)
	switch {
	case err != nil:
		return Site{}, err
	case s.Holder != dmutex.None && !slices.Contains(group.members, s.Holder):
		return Site{}, dmutex.Misuse("Start.Holder " + s.Holder.String() + " is not among Start.Members")
	case s.Holder != dmutex.None && len(s.Sharers) > 0:
		return Site{}, dmutex.Misuse("Start.Holder and Start.Sharers: a lock is held alone or shared")
	case slices.ContainsFunc(s.Sharers, func(id dmutex.NodeID) bool { return !slices.Contains(group.members, id) }):
		return Site{}, dmutex.Misuse("Start.Sharers contains a node that is not among Start.Members")
	case s.Home != dmutex.None && !slices.Contains(group.members, s.Home):
		return Site{}, dmutex.Misuse("Start.Home " + s.Home.String() + " is not among Start.Members")
	case s.Clock > lastStart:
		return Site{}, dmutex.Misuse("Start.Clock is beyond 1<<62")
	case s.Known > group.limit:
		return Site{}, dmutex.Misuse("Start.Known is beyond Start.Limit: begin a group with higher fences")
	}
	common.group = group
	site := Site{common: common, clock: s.Clock, known: max(s.Fence, s.Known)}
	if s.Holder != dmutex.None || len(s.Sharers) > 0 {
		site.clock = max(site.clock, Carried)
	}
	site.shared = slices.Contains(s.Sharers, s.Self)
	if s.Holder == s.Self || site.shared {
		site.phase, site.attempt, site.fence = dmutex.Held, Carried, s.Fence
	}
	return site, nil
}

// Home returns the member at which the lock of a Start begins: the given one, or the one
// of the Start while that is not a member.
func Home(s dmutex.Start, given dmutex.NodeID) dmutex.NodeID {
	switch {
	case slices.Contains(s.Members, given):
		return given
	case s.Home != dmutex.None:
		return s.Home
	default:
		return slices.Min(s.Members)
	}
}

// Self returns the number of this node.
func (s *Site) Self() dmutex.NodeID { return s.common.group.self }

// Members returns all members, ascending. The caller must not change the slice.
func (s *Site) Members() []dmutex.NodeID { return s.common.group.members }

// Place returns the index of this node in Members.
func (s *Site) Place() int { return s.common.group.place }

// Peers returns the other members, ascending. The caller must not change the slice.
func (s *Site) Peers() []dmutex.NodeID { return s.common.group.peers }

// Phase implements [dmutex.Machine].
func (s *Site) Phase() dmutex.Phase { return s.phase }

// Fence implements [dmutex.Machine].
func (s *Site) Fence() uint64 { return s.fence }

// Excludes implements [dmutex.Excluder]: while this node holds the lock alone, no other node holds it.
func (s *Site) Excludes(peer dmutex.NodeID) bool { return !s.shared && s.ExcludesAlone(peer) }

// ExcludesAlone implements [dmutex.Sharer]: while this node holds the lock, no other node holds
// it alone.
func (s *Site) ExcludesAlone(peer dmutex.NodeID) bool {
	return s.phase == dmutex.Held && peer != s.Self()
}

// Shared implements [dmutex.Sharer].
func (s *Site) Shared() bool { return s.shared }

// Sharers implements [dmutex.Sharer]: a node knows about itself; under most algorithms it
// knows about no other.
func (s *Site) Sharers(b []dmutex.NodeID) []dmutex.NodeID {
	if s.shared && s.phase == dmutex.Held {
		b = append(b, s.Self())
	}
	return b
}

// Stamp returns this node's request, pending or held. Its Clock is the attempt
// number, or 0 if there is no request.
func (s *Site) Stamp() dmutex.Stamp { return dmutex.Stamp{Clock: s.attempt, Node: s.Self()} }

// Pending implements [dmutex.Machine].
func (s *Site) Pending() bool { return s.phase == dmutex.Waiting || s.ghost }

// Idle reports whether this node has no request, pending, withdrawn or held.
func (s *Site) Idle() bool { return s.phase == dmutex.Idle && !s.ghost }

// Ask begins a request of a kind, dmutex.Request or, for one that shares, dmutex.Share. A fresh
// request gets the next tick of the clock as its attempt number, so it is later than anything that
// this node has sent or seen. If the last request was withdrawn and is still pending, Ask resumes it:
// then fresh is false and there is nothing to send. The error is [dmutex.ErrMisuse] while Waiting or
// Held, or while a withdrawn request of the other kind is pending, and [dmutex.ErrExhausted] near
// [dmutex.Start.Limit].
func (s *Site) Ask(kind dmutex.Kind) (fresh bool, err error) {
	s.Begin()
	switch {
	case s.phase == dmutex.Waiting:
		return false, dmutex.Misuse("Request while Waiting: one request at a time, queue callers above the machine")
	case s.phase == dmutex.Held:
		return false, dmutex.Misuse("Request while Held: locks are not re-entrant")
	case s.ghost && s.shared && kind != dmutex.Share:
		return false, dmutex.Misuse("Request while a withdrawn Share is pending: wait until it has had its turn")
	case s.ghost && !s.shared && kind == dmutex.Share:
		return false, dmutex.Misuse("Share while a withdrawn Request is pending: wait until it has had its turn")
	case s.ghost:
		s.phase, s.ghost = dmutex.Waiting, false
		return false, nil
	case s.known >= s.common.group.asked():
		return false, dmutex.Exhausted("its fences are used up")
	case s.clock >= lastClock:
		return false, dmutex.Exhausted("its logical times are used up")
	}
	s.clock++
	s.phase, s.attempt, s.shared = dmutex.Waiting, s.clock, kind == dmutex.Share
	return true, nil
}

// Cancel implements [dmutex.Machine]: the request becomes a ghost.
func (s *Site) Cancel() ([]dmutex.Message, error) {
	s.Begin()
	if s.phase != dmutex.Waiting {
		return nil, dmutex.Misuse("Cancel while " + s.phase.String() + ": only a request that waits can be withdrawn")
	}
	s.phase, s.ghost = dmutex.Idle, true
	return nil, nil
}

// Withdraw ends a withdrawn request that keeps out nodes that share: one to hold the lock alone, before
// its grant. It returns the request that is over, and the algorithm must tell the nodes that know of it. It
// does nothing, and ok is false, unless such a request is pending.
func (s *Site) Withdraw() (over dmutex.Stamp, ok bool) {
	if !s.ghost || s.shared {
		return dmutex.Stamp{}, false
	}
	over = s.Stamp()
	s.ghost, s.attempt = false, 0
	return over, true
}

// Enter takes the grant of the pending request: this node is Held, with the next fence. If
// the request was withdrawn, it ends without using a fence, and the algorithm must do at
// once what it does when a node leaves.
func (s *Site) Enter() (withdrawn bool) {
	if s.ghost {
		s.ghost, s.shared, s.attempt = false, false, 0
		return true
	}
	s.known++
	s.phase, s.fence = dmutex.Held, s.known
	return false
}

// Leave ends the critical section and returns the request that is over. The
// algorithm then tells the nodes that its paper names. The error is
// [dmutex.ErrMisuse] if this node is not Held.
func (s *Site) Leave() (dmutex.Stamp, error) {
	s.Begin()
	if s.phase != dmutex.Held {
		return dmutex.Stamp{}, dmutex.Misuse("Release while " + s.phase.String())
	}
	over := s.Stamp()
	s.phase, s.shared, s.attempt, s.fence = dmutex.Idle, false, 0, 0
	return over, nil
}

// Check begins the handling of a message. It returns the sender's index in
// Peers, or [dmutex.ErrPeer] for a message that no correct peer sends to this node:
// impossible says why that is so under the algorithm, and "" if a peer may send it. The
// Attempt of a REPLY, GRANT, FAILED or INQUIRE is that of a request of this node. The
// error quotes the message, with the lengths of its lists in place of the lists.
func (s *Site) Check(m dmutex.Message, impossible func(dmutex.Message) (why string)) (from int, err error) {
	s.Begin()
	from, why := s.stray(m)
	if why == "" {
		why = impossible(m)
	}
	if why == "" {
		return from, nil
	}
	numbers, nodes := len(m.Numbers), len(m.Nodes)
	m.Numbers, m.Nodes = nil, nil
	b := canon.Number([]byte(m.String()), " len(numbers)=", uint64(numbers))
	b = canon.Number(b, " len(nodes)=", uint64(nodes))
	return 0, dmutex.PeerMistake(string(b) + ": " + why)
}

// stray says why no correct peer sends m to this node under any algorithm, and "" if one
// may.
func (s *Site) stray(m dmutex.Message) (from int, why string) {
	from, member := slices.BinarySearch(s.Peers(), m.From)
	switch {
	case m.To != s.Self():
		why = "it is not for node " + s.Self().String()
	case !member:
		why = "the sender is not a peer"
	case m.Attempt == 0 && m.Kind != dmutex.Token:
		why = "it names no request"
	case m.Kind != dmutex.Token && len(m.Numbers) > 0, m.Kind != dmutex.Token && m.Kind != dmutex.Request && len(m.Nodes) > 0:
		why = "only a token, or a request for it, carries a list"
	case m.Attempt > lastClock || slices.ContainsFunc(m.Numbers, func(request uint64) bool { return request > lastClock }):
		why = "a request in it is beyond 1<<61"
	case m.Clock > lastTime:
		why = "its time is beyond 1<<63"
	case m.Fence < s.common.group.fence:
		why = "its fence is below those of this group"
	case m.Fence > s.common.group.heard():
		why = "its fence is above those of this group"
	case m.Attempt > s.clock && (m.Kind == dmutex.Reply || m.Kind == dmutex.Grant || m.Kind == dmutex.Failed || m.Kind == dmutex.Inquire):
		why = "it answers a request that was never made"
	}
	return from, why
}

// Witness advances the clock to t and the highest fence known to fence, if
// they are higher. So this node's next request is later than the message. A
// time beyond 1<<61 counts as 1<<61, because no request is later.
func (s *Site) Witness(t, fence uint64) {
	s.clock = max(s.clock, min(t, lastClock))
	s.known = max(s.known, fence)
}

// Advance moves the clock by one. Ask does it by itself.
func (s *Site) Advance() { s.clock++ }

// Clock returns the highest time that this node has used or seen.
func (s *Site) Clock() uint64 { return s.clock }

// Known returns the highest fence that this node knows.
func (s *Site) Known() uint64 { return s.known }

// Send adds a message to the output of the current input. The attempt is the
// number of the request that the message is about, ours or the receiver's.
// Send returns the message, so that the caller can set the fields that only
// some algorithms use. The pointer is valid until the next Send.
func (s *Site) Send(kind dmutex.Kind, to dmutex.NodeID, attempt uint64) *dmutex.Message {
	sh := s.common
	sh.out = append(sh.out, dmutex.Message{})
	m := &sh.out[len(sh.out)-1]
	m.Kind, m.From, m.To, m.Attempt, m.Fence = kind, s.Self(), to, attempt, s.known
	return m
}

// Out returns what the current input sends.
func (s *Site) Out() []dmutex.Message { return s.common.out }

// Begin clears the output for the next input. Ask, Cancel, Leave and Check
// call it. An algorithm with other inputs, such as ticks, calls it when it
// handles one. The old output is cleared, so that a driver that keeps it too
// long always sends nonsense, not only sometimes.
func (s *Site) Begin() {
	clear(s.common.out)
	s.common.out = s.common.out[:0]
}

// AppendSite appends the Site's part of a machine's canonical state, such as
// "2 waiting attempt=5 clock=7 known=3".
func (s *Site) AppendSite(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(s.Self()), 10)
	phase := s.phase.String()
	if s.ghost {
		phase = "withdrawn"
	}
	b = append(append(b, ' '), phase...)
	b = canon.Flag(b, " shared", s.shared)
	b = canon.Number(b, " attempt=", s.attempt)
	b = canon.Number(b, " clock=", s.clock)
	b = canon.Number(b, " known=", s.known)
	return canon.Number(b, " fence=", s.fence)
}

// Clone returns a copy that shares no mutable state.
func (s *Site) Clone() Site {
	c := *s
	c.common = &common{group: s.common.group}
	return c
}
