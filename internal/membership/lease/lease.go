package lease

import (
	"cmp"
	"math"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/protocol"
)

// A Machine is one life's part in the views of a group whose members one [Record] decides. It is not safe
// for concurrent use.
//
// Begin with Tick, and then do what the events of each [membership.Output] say. Only the members of the last
// [Members] are peers: a frame of another node is a Hint, and nothing else. The outcome of an [Ask] is
// given to Done, once, also if the store never answers. What is held ends with the term of the last
// [Renewed], by a timer of the driver. It looks at that before each input, which may extend the term, and
// at each grant: one after the end is released at once.
type Machine struct {
	in        membership.Installation // 3: from a view that is decided to one that acts
	register                          // 5.1, 5.6: the conversation with the store
	clearing                          // 5.4: the wait until no lease of an excluded life runs
	rejoining                         // 5.5: an excluded life is followed by another
	memory                            // 5a: who may hold what
	presence                          // who is here, and when to exclude whom; policy, never safety

	cfg   Config
	speak protocol.Versions
	now   int64         // of the last input
	self  dmutex.NodeID // by the record; None while it is Outside
	given dmutex.NodeID // the highest number that a record has given which the store has forgotten; None if there was none

	term leases.Term // 5.2: confirmed by operations that have shown this life as a member, from when they were asked for

	begun bool   // the store has begun a life for this one, or proves nothing
	proof string // its name; empty if the store proves nothing

	leaving   bool  // Leave was called
	holding   bool  // it was LeaveHolding: others may hold what it has lent them
	troubleAt int64 // when to replace the view; never if there is no reason
	phase     Phase
	err       error // why it is Stopped
}

// Tick tells the machine that time has passed.
func (m *Machine) Tick(now int64) membership.Output { return m.flush(now) }

// Clock tells the machine, before an input, what the wall clock says, as [Config.Clock].
func (m *Machine) Clock(clock uint64) { m.cfg.Clock = min(clock, epochs.MaxClock) }

// Met tells the machine that a member was met, or gives signs of life again. A life that is not
// a member is a hint.
func (m *Machine) Met(now int64, node dmutex.NodeID, life uint64) membership.Output {
	if !m.meets(now, node, life) {
		return m.Lost(now, node).And(m.Hint(now)) // where another answers, the member does not
	}
	if m.member() {
		m.tellView(m.peer(node)) // again, as messages may have been lost
	}
	return m.flush(now)
}

// Lost tells the machine that a member is gone, or gives no sign of life.
func (m *Machine) Lost(now int64, node dmutex.NodeID) membership.Output {
	if m.loses(now, node) {
		m.hint(now, membership.MinPause) // whether the store answers
	}
	return m.flush(now)
}

// Dead tells the machine that by all evidence the process of a member has ended. It is excluded
// at once, which is safe also if the evidence is wrong. If it is proved, the member is never met again.
func (m *Machine) Dead(now int64, node dmutex.NodeID, proved bool) membership.Output {
	m.buries(now, node, proved)
	return m.flush(now)
}

// Hint tells the machine that the record may have changed. Anybody can bring about a hint.
func (m *Machine) Hint(now int64) membership.Output {
	m.rumor(now)
	return m.flush(now)
}

// Leave begins the exit of this life. The caller has released all locks and makes no more requests. The
// exit is over when the phase is Left.
func (m *Machine) Leave(now int64) membership.Output {
	m.leaving = true
	return m.flush(now)
}

// LeaveHolding is Leave for a life whose clients may still hold what it has lent them: it excludes itself.
func (m *Machine) LeaveHolding(now int64) membership.Output {
	m.holding = true
	return m.Leave(now)
}

// Part says the last word of this life, before it leaves: it has released or withdrawn everything, requests
// nothing more, and has lent only this, in the order of the locks. The driver calls Leave when the members have
// it, or not much later.
func (m *Machine) Part(now int64, lent []membership.Loan) membership.Output {
	if m.sends(membership.Part) {
		m.sendAll(membership.Message{Kind: membership.Part, Lent: lent})
	}
	return m.flush(now)
}

// Move tells that a client has gone on with this life, and relies no more on a former member, which has lent
// it this. Then the lock is free of that one.
func (m *Machine) Move(now int64, former dmutex.NodeID, loan membership.Loan) membership.Output {
	if m.sends(membership.Moved) {
		m.freed(former, loan)
		m.sendAll(membership.Message{Kind: membership.Moved, Former: former, Lent: []membership.Loan{loan}})
	}
	return m.flush(now)
}

// freed notes that a loan of a former member is over.
func (m *Machine) freed(former dmutex.NodeID, loan membership.Loan) {
	m.frees(former, loan)
	for i := range m.in.Reports {
		if r := &m.in.Reports[i]; r.Past != nil {
			r.Past.Free(former, loan)
		}
	}
	m.in.Emit(Freed{former, loan})
}

// Trouble asks for another view in place of that of the epoch, after an event that an algorithm does not
// survive.
func (m *Machine) Trouble(now int64, epoch uint64) membership.Output {
	if m.member() && epoch == m.in.View.Epoch && m.troubleAt == due.Never {
		m.troubleAt = m.in.ReplaceAt(now) + m.turn()
	}
	return m.flush(now)
}

// needsWord reports whether the next Report tells others of its word, since a former member may hold locks. Else the word may
// be brief.
func (m *Machine) needsWord() bool {
	return slices.ContainsFunc(m.met, func(a acquaintance) bool { return a.gone > m.cleared })
}

// Report tells the members of the view what this life holds, without what it has lost. The driver calls it
// once for each view, when nothing more is granted in an older one. The word is about
// the last view in which the driver let the locks act, as they were frozen then, and again until they
// act; nil if they did not act since the last call, and that was not brief.
func (m *Machine) Report(now int64, holds []membership.Hold, word *membership.Word) membership.Output {
	if m.member() && !m.in.Reported {
		switch {
		case word == nil:
		case word.Epoch == m.in.Complete.Epoch:
			m.remember(*word)
		case word.Epoch == m.own.Epoch:
			m.own = *word // it may have been brief
		}
		m.in.Report(m.self, holds, m.tell(m.cleared))
		for i := range m.peers {
			m.tellView(&m.peers[i])
		}
	}
	return m.flush(now)
}

// tellView sends a member the REPORT of the installed view if it has spoken of that view, and
// VIEW if not; neither before this life has reported.
func (m *Machine) tellView(p *peer) {
	if !m.in.Reported {
		return
	}
	msg := membership.Message{Kind: membership.Decide, View: membership.View{Epoch: m.in.View.Epoch}}
	if p.here && p.heard == m.in.View.Epoch {
		m.told(p.node, m.in.View.Epoch)
		r := m.in.ReportOf(m.self)
		msg = membership.Message{Kind: membership.Report, View: m.in.View, Holds: r.Holds, Cleared: m.cleared}
		if r.Past != nil {
			past := r.Past.Apart()
			msg.Past = &past
		}
	}
	m.send(p, msg)
}

// Rule 5.1: how and when the record is changed.

// change opens a swap to the record that this life wants.
func (m *Machine) change(now int64) {
	if m.self == dmutex.None {
		m.join(now)
		return
	}
	r := m.successor()
	r.Members = slices.DeleteFunc(r.Members, func(e Entry) bool {
		p := m.peer(e.Node)
		gone, leaves := p != nil && (m.removeAt(p) <= now || !p.here && p.awayAt <= now-m.grace()), m.leaving && e.Life == m.cfg.Life
		if gone || leaves && m.holding {
			r.exclude(e.Proof)
		}
		return gone || leaves
	})
	m.swap(now, r)
}

// join adds this life to the record, when nothing is in its way.
func (m *Machine) join(now int64) {
	switch {
	case m.misfit(m.record.Members) != nil:
		m.in.Emit(m.begin(now, Look, nil))
	case m.cfg.Proves && !m.begun:
		m.in.Emit(m.begin(now, Live, nil))
	default:
		r := m.successor()
		if m.record.Epoch == 0 {
			r.exclude(m.proof)
		}
		r.drop(func(e Entry) bool { return e.Address != "" && e.Address == m.cfg.Address }) // this process listens there now
		r.Lease, r.Settings = m.cfg.Lease, m.cfg.Settings                                   // rule 5.7: others only if there is no member
		r.Highest = max(r.Highest, m.given) + 1                                             // no number is given twice
		r.Members = append(r.Members, Entry{membership.Member{Node: r.Highest, Life: m.cfg.Life}, m.speak, m.proof, m.cfg.Address, m.cfg.Name})
		m.swap(now, r)
	}
}

// successor returns what a swap may change: the record of the next epoch, not behind the clock (5.6). It says
// what is cleared already, and not what this swap excludes.
func (m *Machine) successor() Record {
	r := m.record
	r.Members = slices.Clone(r.Members)
	r.Cleared = min(m.cleared, r.Unclean)
	r.Epoch = max(r.Epoch+1, m.cfg.Clock, epochs.Above(m.cfg.Fence))
	return r
}

func (m *Machine) swap(now int64, r Record) {
	value, err := r.MarshalText()
	if err != nil {
		m.becomeStopped(err)
		return
	}
	m.next = r
	m.in.Emit(m.begin(now, Swap, value))
}

// nextChange returns when this life wants to change the record.
func (m *Machine) nextChange() int64 {
	switch {
	case m.stale, m.spent, m.op != NoOperation:
		return due.Never
	case m.self != dmutex.None:
	case m.misfit(m.record.Members) != nil:
		return m.joinAt
	case m.runsOther():
		return max(m.joinAt, m.since+m.wait)
	case len(m.record.Members) >= membership.MaxMembers:
		return due.Never
	default:
		return m.joinAt
	}
	if m.leaving {
		return math.MinInt64
	}
	at := m.troubleAt
	for i := range m.peers {
		at = min(at, m.removeAt(&m.peers[i]))
	}
	return at
}

// removeAt returns when this life wants to exclude a peer: for what is known of its process, or since it
// is here and does not report in a view for so long that it cannot hold anything any more.
func (m *Machine) removeAt(p *peer) int64 {
	at := m.excludeAt(p, m.grace(), m.phase == Frozen && m.earlier == nil)
	if p.here && m.in.Reported && m.in.Lacks(p.node) {
		at = max(m.in.InstalledAt, p.since) + m.cfg.Lease + m.grace()
	}
	if at == due.Never {
		return due.Never
	}
	return at + m.turn()
}

// grace is how long a member may be away.
func (m *Machine) grace() int64 { return max(m.cfg.Lease/leases.Exclude, membership.Patience) }

// turn is how long this life lets others go first.
func (m *Machine) turn() int64 { return m.rank(m.self) * m.in.Pause() }

// Rules 5.2 and 5.6: what an operation that has succeeded has shown.

// learn takes in a record that an operation has shown, which was asked for at the time sent.
func (m *Machine) learn(now, sent int64, r Record) {
	if why := cmp.Or(m.contradicted(&r), m.mistaken(&r)); why != "" {
		m.becomeStopped(badRecord(why + ": stop all members, delete the record, and start them again"))
		return
	}
	was, former, cleared := m.self, m.record, m.cleared
	m.knows(now, m.cfg.Lease, &former, &r)
	m.record, m.self = r, r.number(m.cfg.Life)
	if m.self != dmutex.None {
		m.belong(now, sent, was, &former)
	} else if m.leaving {
		m.becomeLeft()
	} else if excluded, err := was != dmutex.None || m.missed(&r), m.misfit(r.Members); err != nil && (!m.cfg.Proves || excluded || m.exclusions > 0) { // 5.7: one that was a member never looks
		m.becomeStopped(err)
	} else {
		if excluded {
			m.becomeOutside(now, false)
		}
		if m.runsOther() || len(r.Members) >= membership.MaxMembers { // until others have joined, or one leaves
			m.rumor(now)
		}
	}
	if m.cleared > cleared || r.Epoch > former.Epoch && m.waits(r.Unclean) {
		m.tellWait()
	}
	if m.self != dmutex.None && r.Epoch > m.in.View.Epoch {
		m.meet(m.self, r.view(), r.Unclean, r.Unclean > former.Unclean)
		m.becomeFrozen(now)
	}
}

// belong takes in a record that has this life as a member.
func (m *Machine) belong(now, sent int64, was dmutex.NodeID, former *Record) {
	if was == dmutex.None {
		m.joinedAt, m.asked = now, dmutex.None
		m.in.Emit(Joined{m.self})
	}
	if m.term.Over(now) { // rule 5.3: what it held is lost
		m.term = leases.Term{Length: m.cfg.Lease}
	}
	if m.term.Confirm(now, sent, m.cfg.Lease) {
		m.in.Emit(Renewed{m.term})
	}
	m.renewAt = m.term.Renew(m.share())
	if r := &m.record; was == dmutex.None || r.Epoch > former.Epoch {
		m.in.Emit(Members{*r, r.Unclean == r.Epoch || was != dmutex.None && r.Unclean > former.Epoch})
	}
}

// mistaken is rule 5.6, too: it says how a record contradicts what this life knows of itself, "" if it does not.
func (m *Machine) mistaken(r *Record) string {
	switch number := r.number(m.cfg.Life); {
	case number != dmutex.None && m.self != dmutex.None && number != m.self:
		return "it has renumbered member " + m.self.String()
	case number != dmutex.None && (r.Lease != m.cfg.Lease || r.Settings != m.cfg.Settings):
		return "it has other settings than its members"
	}
	return ""
}

// share is after what share of the lease it is renewed.
func (m *Machine) share() int64 {
	if m.cfg.Serves { // it confirms the sessions of clients no longer than its lease lasts
		return leases.RenewServing
	}
	return leases.Renew
}

// tellWait tells the driver what is waited for.
func (m *Machine) tellWait() {
	until, _, _ := m.Waits()
	m.in.Emit(Waiting{m.cleared, until})
}

// Rule 5.7: what all members must agree on is written into a record without members only.

// misfit says why this life cannot be a member beside those of the record, nil if it can.
func (m *Machine) misfit(members []Entry) error {
	for _, e := range members {
		if m.differs() || e.Speaks.Common(m.speak) == 0 {
			return SettingsError{e.Node, e.Speaks, m.record.Lease, m.record.Settings}
		}
	}
	return nil
}

// looked takes the members out of the record that are dead, because the store says who lives, if
// this life can then be a member. Nothing but the look was under way, so they had begun before it.
func (m *Machine) looked(now int64, names string) {
	var living []string
	for begin, i := 0, 0; i <= len(names); i++ {
		if i == len(names) || names[i] == ' ' {
			living, begin = append(living, names[begin:i]), i+1
		}
	}
	r := m.successor()
	r.drop(func(e Entry) bool { return e.Proof != "" && !slices.Contains(living, e.Proof) })
	if err := m.misfit(r.Members); err != nil {
		m.becomeStopped(err)
		return
	}
	m.swap(now, r)
}

// differs reports whether the record has other settings than this life.
func (m *Machine) differs() bool {
	return m.record.Lease != m.cfg.Lease || m.record.Settings != m.cfg.Settings
}

// runsOther reports whether a lease of another length may run.
func (m *Machine) runsOther() bool { return m.differs() && m.waits(m.record.Unclean) }

// Rejoin goes on as another life, drawn like that of [Config], when this one was excluded.
// Nothing that was sent from or to the former one counts for the new one.
func (m *Machine) Rejoin(now int64, life uint64) membership.Output {
	if m.spent && life != 0 {
		m.becomeAnother(life)
	}
	return m.flush(now)
}

// flush does what an input may have made possible, and returns the output.
func (m *Machine) flush(now int64) membership.Output {
	if m.now = now; !m.ended() {
		m.mayAct(now)
		m.mayAsk(now)
	}
	return m.in.Said()
}

// mayAsk asks the store for what is due.
func (m *Machine) mayAsk(now int64) {
	switch {
	case m.leaving && m.self == dmutex.None && m.op != Swap && !m.unsure: // the others exclude it if an earlier swap joins it after all
		m.becomeLeft()
	case m.op != NoOperation:
	case m.nextChange() <= now: // before a load that a stranger may have asked for (5.5)
		m.change(now)
	case m.nextLoad() <= now:
		m.in.Emit(m.load(now))
	}
}
