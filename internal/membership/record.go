package membership

import (
	"math"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/protocol"
)

// A LeaseMachine is one life's part in the views of a group whose members one [Record] in a store
// decides. The phases are those of a [Machine] but Older. A life that wants to join is Outside, and so
// is an excluded one: its process goes on as another life (5.5), see Rejoin. A life is Stopped when it
// cannot rely on the record, or has other settings than the group: see Err.
//
// # How a view is decided
//
// A record is a view: its epoch and its members. Each change (5.1) replaces it by one of a
// higher epoch, with a compare-and-swap on what was read last. After a swap of unknown outcome
// the life reads the record again.
//
//	join      the life adds itself, under a number that was never given before
//	leave     the life removes itself, after it has released everything
//	exclude   a member removes others, whose processes seem to be gone
//	replace   a member asks for a view of the same members, in trouble
//
// Any member may exclude any other at any time: a suspicion decides when, and never whether it
// is safe. The record has the epoch of the last exclusion (unclean).
//
// # How a view is installed
//
// A member installs the view of a newer record as in the strict mode, but sends VIEW to all members
// first, and REPORT to those that have spoken of the view. It acts when all have reported, its own
// lease is valid, and they know which locks each excluded life may hold whose lease may run.
//
// # Leases
//
// The lease of a life (5.2) ends, by its own clock, L after it asked for the last operation
// that succeeded and showed it among the members. From then on the life holds nothing (5.3):
// what is lost is not reported, and no later renewal brings it back.
//
// The locks that an excluded life may hold wait (5.4) until D = L(1+rho)/(1-rho) has passed since a
// life first knew a record that is not older than the last exclusion (see package leases). A life
// that has waited tells the others: CLEARED. Then they need not wait, as the end of those leases is a
// fact of real time. Each swap also writes the last exclusion that its life knows to be cleared, but
// not its own, so a life that joins after all others have left acts at once. The reports tell which
// locks wait (see past.go). If they cannot, the view does not act until then. A new record counts as
// an exclusion of everybody: the members of a record that was lost before it may not know that yet.
//
// # Why it is right
//
// Two views never have one epoch: both would be changes of one record. Nobody acts in a view
// before all of its members have frozen all older epochs for good. So a life that still acts in
// an older view has left, and has released everything, or was excluded.
//
// Excluded lives: take the last operation that showed a life among the members. It was asked for
// before it took effect, and that was before the swap that excluded the life. So the lease ends
// less than L/(1-rho) of true time after that swap. A life that requests a lock in a later view
// knows that the excluded life cannot have it (5a), or has waited, or was told, by a message or the
// record, of a life that has waited: for D, by a clock, after that swap. That is at least D/(1+rho)
// of true time, which is L/(1-rho), however long messages and operations take.
//
// A life that brings another L to a record without members does so when the last exclusion is
// cleared. So no lease that runs is longer than that in the record, and a life waits for its own or
// that in the record, whichever is longer. What is cleared holds for any L.
//
// Holders are reported, and fences rise, as in the strict mode.
//
// # The record
//
// A life that finds the record gone (5.6), or with a lower epoch than before, or contradicting what it
// has read, stops: others may be using epochs for the second time. The epoch of each record is at
// least the clock of its writer. So fences rise also from a lost record to a new one, and to an older
// one that was put back, with a member that joins, if the clocks of the later writers do not stand
// behind those of the earlier ones. Exclusion depends on no clock's time, only on its rate.
//
// # How often it changes
//
// A member that was not there for a share of a lease is excluded, one that has not reported in a whole
// lease, and at once one that is dead by all evidence. Its silence counts from the first answer of the
// store to what was asked after the silence had begun, and anew when two operations in a row fail:
// where the link and the store are one server, a life that is back after an outage leaves the others
// time to be back, too. A life that misses several members waits longer, and one that has never acted
// since it joined longer still. So if two cannot reach each other, the one that can reach fewer goes,
// and one that has come back goes again. A life that is excluded again and again pauses longer each
// time before it joins, so it brings about at most 40 views in ten minutes.
//
// # How to drive it
//
// Begin with Tick. After each input the driver does what it does with a [Machine], and
//
//	meets the other members in the [LeaseMachine.Record], and passes on their messages:
//	a frame of a node that is not among them is a Hint, and nothing else
//	starts the [LeaseMachine.Operation], and gives its outcome to Done, once, also if the store
//	never answers
//	ends what it holds when Self or the epoch of View falls back to 0
//	ends the sessions of a life that was excluded, draws another, and calls Rejoin
//	ends what it holds at [LeaseMachine.LeaseEnd], less a margin, by a timer of its own
//
// It checks LeaseEnd before each input, which may extend the lease, and at each grant: one after the
// end is released at once.
type LeaseMachine struct {
	installation

	cfg   LeaseConfig
	speak protocol.Versions
	drain int64 // D
	wait  int64 // for the leases that may run now: D, or longer where the last members had a longer lease
	now   int64 // of the last input

	// What the last operation that succeeded has shown.
	record Record
	self   dmutex.NodeID

	// The operation under way, if there is one.
	op     Operation
	asked  bool   // the driver has it
	next   Record // of a swap
	sentAt int64
	unsure bool // a swap may have taken effect, or may still

	// The next operation.
	stale    bool  // the record is to be loaded before it is changed
	loadAt   int64 // when, if so
	hintAt   int64 // when to load it because it may have changed; never if nothing says so
	prompted bool  // the load under way was asked for by a hint
	vain     int   // loads in a row that were, and have shown nothing new
	fails    int   // operations without an outcome since the last with one
	losses   int   // swaps that were too late, in a row

	renewAt   int64
	leaseFrom int64 // when the last operation that has shown this life as a member was asked for

	// The wait for the leases of lives that were excluded.
	since    int64  // when the last exclusion was known first
	due      uint64 // the exclusion that is cleared next: the last one, or one before it
	dueSince int64
	cleared  uint64 // the last exclusion whose leases have ended
	memory

	acting bool   // in the installed view
	peers  []peer // the other members of it

	begun bool   // the store was asked to begin a life for this one
	proof string // its name; empty if the store proves nothing
	gone  []gone // that were members, the last at the end

	spent      bool // this life was excluded, and needs a successor
	joinAt     int64
	joinedAt   int64
	exclusions int // how often it was excluded
	flaps      int // how often in short order
	leaving    bool
	ended      Phase // Left or Stopped; else Outside
	err        error // why it is Stopped
	troubleAt  int64 // when to replace the view; never if there is no reason
}

// A peer is what is known of another member.
type peer struct {
	node   dmutex.NodeID
	life   uint64
	here   bool  // it was met, and is not lost since
	dead   bool  // there is evidence that its process has ended, and it was not met since
	proved bool  // the evidence is a proof
	since  int64 // when it was met or lost last
	awayAt int64 // if it is not here: from when on its silence counts; never if it does not yet

	heard uint64 // the last view that it has spoken of
}

// peer returns what is known of a node, nil if it is not another member.
func (m *LeaseMachine) peer(node dmutex.NodeID) *peer {
	if i := slices.IndexFunc(m.peers, func(p peer) bool { return p.node == node }); i >= 0 {
		return &m.peers[i]
	}
	return nil
}

// Tick tells the machine that time has passed.
func (m *LeaseMachine) Tick(now int64) []Message { return m.flush(now) }

// Clock tells the machine, before an input, what the wall clock says, as [LeaseConfig.Clock].
func (m *LeaseMachine) Clock(clock uint64) { m.cfg.Clock = min(clock, maxClock) }

// Leapt tells the machine, before an input, by how much its clock has run ahead of a steady one
// since the last input: it counts what the wall clock was set forward by, as that may have been
// a sleep. A lease may end too soon, but not a wait for the leases of others.
func (m *LeaseMachine) Leapt(by int64) { m.since, m.dueSince = m.since+by, m.dueSince+by }

// Met tells the machine that a member was met, or gives signs of life again. A life that is not
// a member is a hint.
func (m *LeaseMachine) Met(now int64, node dmutex.NodeID, life uint64) []Message {
	p := m.peer(node)
	if p == nil || p.life != life || p.proved {
		return append(m.Lost(now, node), m.Hint(now)...) // where another answers, the member does not
	}
	if p.here, p.dead, p.since = true, false, now; m.reported && m.ended == Outside {
		m.tellView(p) // again, as messages may have been lost
	}
	return m.flush(now)
}

// Lost tells the machine that a member is gone, or gives no sign of life.
func (m *LeaseMachine) Lost(now int64, node dmutex.NodeID) []Message {
	if p := m.peer(node); p != nil && p.here {
		p.here, p.since, p.awayAt = false, now, never
		m.hint(now, minPause) // whether the store answers
	}
	return m.flush(now)
}

// Dead tells the machine that by all evidence the process of a member has ended. It is excluded
// at once, which is safe also if the evidence is wrong. If it is proved, the member is never met again.
func (m *LeaseMachine) Dead(now int64, node dmutex.NodeID, proved bool) []Message {
	if p := m.peer(node); p != nil {
		if p.proved = p.proved || proved; !p.dead {
			p.here, p.dead, p.since, p.awayAt = false, true, now, now
		}
	}
	return m.flush(now)
}

// Leave begins the exit of this life, as [Machine.Leave].
func (m *LeaseMachine) Leave(now int64) []Message {
	m.leaving = true
	return m.flush(now)
}

// Trouble asks for another view in place of that of the epoch, as [Machine.Trouble].
func (m *LeaseMachine) Trouble(now int64, epoch uint64) []Message {
	if m.self != dmutex.None && epoch == m.view.Epoch && m.troubleAt == never {
		m.troubleAt = m.replaceAt(now) + m.rank()*m.pause()
	}
	return m.flush(now)
}

// Report is as [Machine.Report], without the holds that this life has lost. The word is about
// the last view in which the driver let the locks act, as they were frozen just now; nil if
// they did not act since the last call.
func (m *LeaseMachine) Report(now int64, holds []Hold, word *Word) []Message {
	if m.ended == Outside && m.view.Epoch > 0 && !m.reported {
		if word != nil && word.Epoch == m.complete.Epoch {
			m.remember(*word)
		}
		m.report(m.self, holds, m.tell(m.cleared))
		for i := range m.peers {
			m.tellView(&m.peers[i])
		}
	}
	return m.flush(now)
}

// tellView sends a member the REPORT of the installed view if it has spoken of that view, and
// VIEW if not.
func (m *LeaseMachine) tellView(p *peer) {
	msg := Message{Kind: Decide, View: View{Epoch: m.view.Epoch}}
	if p.here && p.heard == m.view.Epoch {
		m.told(p.node, m.view.Epoch)
		r := m.reportOf(m.self)
		msg = Message{Kind: Report, View: m.view, Holds: r.holds, Past: r.past, Cleared: m.cleared}
	}
	m.send(p, msg)
}

// Handle takes a message from a member that was met. It returns [dmutex.ErrPeer] for a message
// that no correct peer sends, and then has changed nothing.
func (m *LeaseMachine) Handle(now int64, msg Message) ([]Message, error) {
	if m.ended != Outside || m.self == dmutex.None { // it was for a member
		return m.flush(now), nil
	}
	p := m.peer(msg.From)
	if why := m.impossible(p, &msg); why != "" {
		return nil, dmutex.PeerMistake("membership: " + why)
	}
	if msg.View.Epoch > m.record.Epoch {
		m.hint(now, minPause)
	}
	if msg.Kind == Report && msg.View.Epoch == m.view.Epoch { // one of a later view does not come before this life has spoken of that
		m.take(p.node, msg.Holds, msg.Past)
	}
	if msg.View.Epoch > p.heard {
		if p.heard = msg.View.Epoch; m.reported && p.heard == m.view.Epoch {
			m.tellView(p)
		}
	}
	m.cleared = max(m.cleared, msg.Cleared)
	return m.flush(now), nil
}

// Rule 5.1: how and when the record is changed.

// change opens a swap to the record that this life wants.
func (m *LeaseMachine) change(now int64) {
	if m.self == dmutex.None && m.cfg.Proves && !m.begun {
		m.begin(now, Live)
		return
	}
	r := m.record
	r.Members = slices.Clone(r.Members)
	r.Cleared = min(m.cleared, r.Unclean) // and not what this swap excludes
	r.Epoch = max(r.Epoch+1, m.cfg.Clock, epochAbove(m.cfg.Fence))
	if m.self == dmutex.None {
		if m.record.Epoch == 0 {
			r.exclude(m.proof)
		}
		r.Lease, r.Settings = m.cfg.Lease, m.cfg.Settings
		r.Highest++
		r.Members = append(r.Members, Entry{Member{r.Highest, m.cfg.Life}, m.speak, m.proof, m.cfg.Address, m.cfg.Name})
	} else {
		r.Members = slices.DeleteFunc(r.Members, func(e Entry) bool {
			p := m.peer(e.Node)
			gone := p != nil && (m.excludeAt(p) <= now || !p.here && p.awayAt <= now-m.grace())
			if gone {
				r.exclude(e.Proof)
			}
			return gone || m.leaving && e.Life == m.cfg.Life
		})
	}
	switch _, err := r.MarshalText(); {
	case len(r.Members) > MaxMembers:
		m.stop(&failure{ErrFull, instead})
	case err != nil:
		m.stop(err)
	default:
		m.next = r
		m.begin(now, Swap)
	}
}

// nextChange returns when this life wants to change the record.
func (m *LeaseMachine) nextChange() int64 {
	switch {
	case m.stale, m.spent, m.op != NoOperation:
		return never
	case m.self == dmutex.None && m.differs() && m.cleared < m.record.Unclean:
		return max(m.joinAt, m.since+m.wait) // no lease of another length may run then
	case m.self == dmutex.None:
		return m.joinAt
	case m.leaving:
		return math.MinInt64
	}
	at := m.troubleAt
	for i := range m.peers {
		at = min(at, m.excludeAt(&m.peers[i]))
	}
	return at
}

// excludeAt returns when this life wants to exclude a peer.
func (m *LeaseMachine) excludeAt(p *peer) int64 {
	switch {
	case p.dead:
		return p.since + m.rank()*m.pause()
	case !p.here && p.awayAt == never:
		return never
	case !p.here:
		times := int64(0)
		for i := range m.peers {
			if !m.peers[i].here {
				times++
			}
		}
		if !m.acting && m.earlier == nil { // it has not acted since it joined
			times++
		}
		return p.awayAt + min(times, 3)*m.grace() + m.rank()*m.pause()
	case m.reported && m.lacks(p.node):
		return max(m.installedAt, p.since) + m.cfg.Lease + m.grace() + m.rank()*m.pause() // it cannot hold anything any more
	default:
		return never
	}
}

// grace is how long a member may be away.
func (m *LeaseMachine) grace() int64 { return max(m.cfg.Lease/leases.Exclude, patience) }

// rank is how many of the members that are there may change the record before this one.
func (m *LeaseMachine) rank() (rank int64) {
	for i := range m.peers {
		if p := &m.peers[i]; p.node < m.self && p.here {
			rank++
		}
	}
	return rank
}

// Rules 5.2 and 5.6: what an operation that has succeeded has shown.

// learn takes in a record that an operation has shown, which was asked for at the time sent.
func (m *LeaseMachine) learn(now, sent int64, r Record) {
	if why := m.contradicted(&r); why != "" {
		m.stop(badRecord(why + ": stop all members, delete the record, and start them again"))
		return
	}
	was, excludes := m.self, r.Unclean > m.record.Unclean
	if excludes {
		m.since = now
	}
	m.part(&r)
	m.record, m.self = r, r.number(m.cfg.Life)
	m.cleared = max(m.cleared, r.Cleared)
	if r.Lease > m.cfg.Lease { // of a group that this life cannot join
		m.wait = max(m.wait, leases.Drain(r.Lease))
	}
	switch {
	case m.self != dmutex.None:
		if was == dmutex.None {
			m.joinedAt = now
		}
		m.leaseFrom, m.renewAt = sent, sent+m.cfg.Lease/leases.Renew
		if r.Epoch > m.view.Epoch {
			m.enter(now)
			m.meet(m.self, m.view, r.Unclean, excludes)
		}
	case m.leaving:
		m.ended = Left
	case was != dmutex.None:
		m.excluded(now)
	case m.differs() && len(r.Members) > 0:
		m.stop(&failure{ErrSettings, "it has a lease of " + strconv.FormatInt(r.Lease/millisecond, 10) + " ms and " + strconv.Quote(r.Settings) +
			", and this node has " + strconv.FormatInt(m.cfg.Lease/millisecond, 10) + " ms and " + strconv.Quote(m.cfg.Settings)})
	default:
		if i := slices.IndexFunc(r.Members, func(e Entry) bool { return e.Speaks.Common(m.speak) == 0 }); i >= 0 {
			m.stop(&failure{ErrSettings, "member " + r.Members[i].Node.String() + " speaks " + m.speak.Differs(r.Members[i].Speaks)})
		}
	}
}

// contradicted says how a record contradicts the one that was read before, "" if it does not.
func (m *LeaseMachine) contradicted(r *Record) string {
	number := r.number(m.cfg.Life)
	switch {
	case r.Epoch < m.record.Epoch:
		return "it went back to epoch " + strconv.FormatUint(r.Epoch, 10) + " from " + m.epoch()
	case r.Epoch == m.record.Epoch && r.text() != m.record.text():
		return "it has changed within epoch " + m.epoch()
	case r.Unclean < m.record.Unclean || r.Unproved < m.record.Unproved || r.Cleared < m.record.Cleared || r.Highest < m.record.Highest:
		return "it has forgotten what was before epoch " + strconv.FormatUint(r.Epoch, 10)
	case number != dmutex.None && m.self != dmutex.None && number != m.self:
		return "it has renumbered member " + m.self.String()
	case number != dmutex.None && (r.Lease != m.cfg.Lease || r.Settings != m.cfg.Settings):
		return "it has other settings than its members"
	}
	return ""
}

func (m *LeaseMachine) epoch() string { return strconv.FormatUint(m.record.Epoch, 10) }

// differs reports whether the record has other settings than this life.
func (m *LeaseMachine) differs() bool {
	return m.record.Lease != m.cfg.Lease || m.record.Settings != m.cfg.Settings
}

func (m *LeaseMachine) stop(err error) { m.ended, m.err = Stopped, err }

// enter installs the view of the record.
func (m *LeaseMachine) enter(now int64) {
	m.install(now, m.record.view())
	m.acting, m.troubleAt = false, never
	m.peers = slices.DeleteFunc(m.peers, func(p peer) bool { return !m.view.Has(p.node, p.life) })
	for _, who := range m.view.Members {
		if who.Node != m.self && m.peer(who.Node) == nil {
			m.peers = append(m.peers, peer{node: who.Node, life: who.Life, since: now, awayAt: now})
		}
	}
}

// Rule 5.5: a life that was excluded is followed by another.

// excluded ends this life. What it held is lost.
func (m *LeaseMachine) excluded(now int64) {
	m.spent = true
	m.exclusions++
	if now-m.joinedAt > 60*second {
		m.flaps = 0
	}
	m.joinAt = now + second<<m.flaps - second
	m.flaps = min(m.flaps+1, maxFails)
	m.install(now, View{})
	m.peers, m.acting, m.renewAt, m.troubleAt, m.memory = nil, false, never, never, memory{}
}

// Rejoin goes on as another life, drawn like that of [LeaseConfig], when this one was excluded.
// No life joins twice: nothing that was sent from or to the former one counts for the new one.
func (m *LeaseMachine) Rejoin(now int64, life uint64) []Message {
	if m.spent && life != 0 {
		m.spent, m.begun, m.proof, m.cfg.Life = false, false, "", life
	}
	return m.flush(now)
}

func (m *LeaseMachine) send(p *peer, msg Message) {
	if p.here {
		msg.From, msg.To = m.self, p.node
		m.out = append(m.out, msg)
	}
}

func (m *LeaseMachine) sendAll(msg Message) {
	for i := range m.peers {
		m.send(&m.peers[i], msg)
	}
}

// flush does what an input may have made possible, and returns the output.
func (m *LeaseMachine) flush(now int64) []Message {
	if m.now = now; m.ended != Outside {
		return m.said()
	}
	m.mayAct(now)
	switch {
	case m.leaving && m.self == dmutex.None && m.op != Swap && !m.unsure:
		m.ended = Left
	case m.op != NoOperation:
	case m.nextChange() <= now: // before a load that a stranger may have asked for
		m.change(now)
	case m.nextLoad() <= now:
		m.prompted, m.hintAt = !m.stale && m.hintAt <= now, never
		m.begin(now, Load)
	}
	return m.said()
}
