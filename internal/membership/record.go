package membership

import (
	"cmp"
	"math"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/protocol"
)

// A LeaseMachine is one life's part in the views of a group whose members one [Record] in a store
// decides. The phases are those of a [Machine] but Older, and promise this:
//
//	         may hold, and be granted             answers peers          changes the record
//	Outside  nothing: it joins, or was excluded   no                     to join
//	Frozen   what it reports; nothing is granted  REPORT, VIEW, CLEARED  yes
//	Acting   locks that no former member may      all                    yes
//	         hold (5a)
//	Left     nothing, but see LeaveHolding        no                     no
//	Stopped  nothing: the record is bad, or has   no                     no
//	         other settings than it, see Err
//
// What a life holds it holds while the term of its lease runs (5.3), which is no phase. The record that it
// has read names it if it is Frozen or Acting, and may if it is Stopped: then the others exclude it. The
// process of an excluded life goes on as another life (5.5), and changes nothing before, see Rejoin.
//
// # How a view is decided
//
// A record is a view: its epoch and its members. Each change (5.1) replaces it by one of a
// higher epoch, with a compare-and-swap on what was read last. After a swap of unknown outcome
// the life reads the record again.
//
//	join      the life adds itself, under a number that was never given before, and excludes a member
//	          with its address: the process there has ended
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
// has read, stops: others may be using epochs or numbers for the second time. The epoch of each record is at
// least the clock of its writer. So fences rise also from a lost record to a new one, and to an older
// one that was put back, with a member that joins, if the clocks of the later writers do not stand
// behind those of the earlier ones. Exclusion depends on no clock's time, only on its rate.
//
// # Settings
//
// All members have the same lease and settings, and versions of the protocol in common (5.7). A life
// with others is Stopped, if the record has members. If it has none, the life writes its own.
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
// Begin with Tick, and then do what the events of each [Output] say. Only the members of the last
// [Members] are peers: a frame of another node is a Hint, and nothing else. The outcome of an [Ask] is
// given to Done, once, also if the store never answers. What is held ends with the term of the last
// [Renewed], by a timer of the driver. It looks at that before each input, which may extend the term, and
// at each grant: one after the end is released at once.
type LeaseMachine struct {
	installation // 3: from a view that is decided to one that acts
	register     // 5.1, 5.6: the conversation with the store
	clearing     // 5.4: the wait until no lease of an excluded life runs
	rejoining    // 5.5: an excluded life is followed by another
	memory       // 5a: who may hold what, see past.go
	presence     // who is here, and when to exclude whom; policy, never safety

	cfg   LeaseConfig
	speak protocol.Versions
	now   int64         // of the last input
	self  dmutex.NodeID // by the record; None while it is Outside

	term leases.Term // 5.2: confirmed by operations that have shown this life as a member, from when they were asked for

	begun bool   // the store has begun a life for this one, or proves nothing
	proof string // its name; empty if the store proves nothing

	leaving   bool  // Leave was called
	holding   bool  // it was LeaveHolding: others may hold what it has lent them
	troubleAt int64 // when to replace the view; never if there is no reason
	ended     Phase // Left or Stopped; else Outside
	err       error // why it is Stopped
}

// Tick tells the machine that time has passed.
func (m *LeaseMachine) Tick(now int64) Output { return m.flush(now) }

// Clock tells the machine, before an input, what the wall clock says, as [LeaseConfig.Clock].
func (m *LeaseMachine) Clock(clock uint64) { m.cfg.Clock = min(clock, maxClock) }

// Met tells the machine that a member was met, or gives signs of life again. A life that is not
// a member is a hint.
func (m *LeaseMachine) Met(now int64, node dmutex.NodeID, life uint64) Output {
	if !m.meets(now, node, life) {
		return m.Lost(now, node).And(m.Hint(now)) // where another answers, the member does not
	}
	if m.ended == Outside {
		m.tellView(m.peer(node)) // again, as messages may have been lost
	}
	return m.flush(now)
}

// Lost tells the machine that a member is gone, or gives no sign of life.
func (m *LeaseMachine) Lost(now int64, node dmutex.NodeID) Output {
	if m.loses(now, node) {
		m.hint(now, minPause) // whether the store answers
	}
	return m.flush(now)
}

// Dead tells the machine that by all evidence the process of a member has ended. It is excluded
// at once, which is safe also if the evidence is wrong. If it is proved, the member is never met again.
func (m *LeaseMachine) Dead(now int64, node dmutex.NodeID, proved bool) Output {
	m.buries(now, node, proved)
	return m.flush(now)
}

// Hint tells the machine that the record may have changed. Anybody can bring about a hint.
func (m *LeaseMachine) Hint(now int64) Output {
	m.rumor(now)
	return m.flush(now)
}

// Leave begins the exit of this life, as [Machine.Leave].
func (m *LeaseMachine) Leave(now int64) Output {
	m.leaving = true
	return m.flush(now)
}

// LeaveHolding is Leave for a life whose clients may still hold what it has lent them: it excludes itself.
func (m *LeaseMachine) LeaveHolding(now int64) Output {
	m.holding = true
	return m.Leave(now)
}

// Part says the last word of this life, before it leaves: it has released or withdrawn everything, requests
// nothing more, and has lent only this, in the order of the locks. The driver calls Leave when the members have
// it, or not much later.
func (m *LeaseMachine) Part(now int64, lent []Loan) Output {
	if m.ended == Outside && m.self != dmutex.None {
		m.sendAll(Message{Kind: Part, Lent: lent})
	}
	return m.flush(now)
}

// Move tells that a client has gone on with this life, and relies no more on a former member, which has lent
// it this. Then the lock is free of that one.
func (m *LeaseMachine) Move(now int64, former dmutex.NodeID, loan Loan) Output {
	if m.ended == Outside && m.self != dmutex.None {
		m.freed(former, loan)
		m.sendAll(Message{Kind: Moved, Former: former, Lent: []Loan{loan}})
	}
	return m.flush(now)
}

// freed notes that a loan of a former member is over.
func (m *LeaseMachine) freed(former dmutex.NodeID, loan Loan) {
	m.frees(former, loan)
	for i := range m.reports {
		if r := &m.reports[i]; r.past != nil {
			r.past.Free(former, loan)
		}
	}
	m.emit(Event{Kind: Freed, Former: former, Loan: loan})
}

// Trouble asks for another view in place of that of the epoch, as [Machine.Trouble].
func (m *LeaseMachine) Trouble(now int64, epoch uint64) Output {
	if m.self != dmutex.None && epoch == m.view.Epoch && m.troubleAt == never {
		m.troubleAt = m.replaceAt(now) + m.turn()
	}
	return m.flush(now)
}

// NeedsWord reports whether the next Report tells others of its word, since a former member may hold locks. Else the word may
// be brief.
func (m *LeaseMachine) NeedsWord() bool {
	return slices.ContainsFunc(m.met, func(a acquaintance) bool { return a.gone > m.cleared })
}

// Report is as [Machine.Report], without the holds that this life has lost. The word is about
// the last view in which the driver let the locks act, as they were frozen then, and again until they
// act; nil if they did not act since the last call, and that was not brief.
func (m *LeaseMachine) Report(now int64, holds []Hold, word *Word) Output {
	if m.ended == Outside && m.view.Epoch > 0 && !m.reported {
		switch {
		case word == nil:
		case word.Epoch == m.complete.Epoch:
			m.remember(*word)
		case word.Epoch == m.own.Epoch:
			m.own = *word // it may have been brief
		}
		m.report(m.self, holds, m.tell(m.cleared))
		for i := range m.peers {
			m.tellView(&m.peers[i])
		}
	}
	return m.flush(now)
}

// tellView sends a member the REPORT of the installed view if it has spoken of that view, and
// VIEW if not; neither before this life has reported.
func (m *LeaseMachine) tellView(p *peer) {
	if !m.reported {
		return
	}
	msg := Message{Kind: Decide, View: View{Epoch: m.view.Epoch}}
	if p.here && p.heard == m.view.Epoch {
		m.told(p.node, m.view.Epoch)
		r := m.reportOf(m.self)
		msg = Message{Kind: Report, View: m.view, Holds: r.holds, Cleared: m.cleared}
		if r.past != nil {
			past := r.past.apart()
			msg.Past = &past
		}
	}
	m.send(p, msg)
}

// Handle takes a message from a member, which is a sign of life, too. It returns [dmutex.ErrPeer] for a
// message that no correct peer sends, and then has changed nothing.
func (m *LeaseMachine) Handle(now int64, msg Message) (Output, error) {
	if m.ended != Outside || m.self == dmutex.None { // it was for a member
		return m.flush(now), nil
	}
	p := m.peer(msg.From)
	if why := m.impossible(p, &msg); why != "" {
		return Output{}, dmutex.PeerMistake("membership: " + why)
	}
	if !p.here && m.meets(now, p.node, p.life) {
		m.tellView(p) // as Met does
	}
	if msg.View.Epoch > m.record.Epoch {
		m.hint(now, minPause)
	}
	switch msg.Kind {
	case Part:
		m.parts(p.node, &Parting{msg.Lent})
	case Moved:
		m.freed(msg.Former, msg.Lent[0])
	}
	if msg.Kind == Report && msg.View.Epoch == m.view.Epoch { // one of a later view does not come before this life has spoken of that
		m.take(p.node, msg.Holds, msg.Past)
	}
	if msg.View.Epoch > p.heard {
		if p.heard = msg.View.Epoch; p.heard == m.view.Epoch {
			m.tellView(p)
		}
	}
	if msg.Cleared > m.cleared {
		m.cleared = msg.Cleared
		m.tellWait()
	}
	return m.flush(now), nil
}

// Rule 5.1: how and when the record is changed.

// change opens a swap to the record that this life wants.
func (m *LeaseMachine) change(now int64) {
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
func (m *LeaseMachine) join(now int64) {
	switch {
	case m.misfit(m.record.Members) != nil:
		m.emit(m.begin(now, Look, nil))
	case m.cfg.Proves && !m.begun:
		m.emit(m.begin(now, Live, nil))
	default:
		r := m.successor()
		if m.record.Epoch == 0 {
			r.exclude(m.proof)
		}
		r.drop(func(e Entry) bool { return e.Address != "" && e.Address == m.cfg.Address }) // this process listens there now
		r.Lease, r.Settings = m.cfg.Lease, m.cfg.Settings                                   // rule 5.7: others only if there is no member
		r.Highest++
		r.Members = append(r.Members, Entry{Member{r.Highest, m.cfg.Life}, m.speak, m.proof, m.cfg.Address, m.cfg.Name})
		m.swap(now, r)
	}
}

// successor returns what a swap may change: the record of the next epoch, not behind the clock (5.6). It says
// what is cleared already, and not what this swap excludes.
func (m *LeaseMachine) successor() Record {
	r := m.record
	r.Members = slices.Clone(r.Members)
	r.Cleared = min(m.cleared, r.Unclean)
	r.Epoch = max(r.Epoch+1, m.cfg.Clock, epochs.Above(m.cfg.Fence))
	return r
}

func (m *LeaseMachine) swap(now int64, r Record) {
	value, err := r.MarshalText()
	if err != nil {
		m.stop(err)
		return
	}
	m.next = r
	m.emit(m.begin(now, Swap, value))
}

// nextChange returns when this life wants to change the record.
func (m *LeaseMachine) nextChange() int64 {
	switch {
	case m.stale, m.spent, m.op != NoOperation:
		return never
	case m.self != dmutex.None:
	case m.misfit(m.record.Members) != nil:
		return m.joinAt
	case m.runsOther():
		return max(m.joinAt, m.since+m.wait)
	case len(m.record.Members) >= MaxMembers:
		return never
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
func (m *LeaseMachine) removeAt(p *peer) int64 {
	at := m.excludeAt(p, m.grace(), !m.acting && m.earlier == nil)
	if p.here && m.reported && m.lacks(p.node) {
		at = max(m.installedAt, p.since) + m.cfg.Lease + m.grace()
	}
	if at == never {
		return never
	}
	return at + m.turn()
}

// grace is how long a member may be away.
func (m *LeaseMachine) grace() int64 { return max(m.cfg.Lease/leases.Exclude, patience) }

// turn is how long this life lets others go first.
func (m *LeaseMachine) turn() int64 { return m.rank(m.self) * m.pause() }

// Rules 5.2 and 5.6: what an operation that has succeeded has shown.

// learn takes in a record that an operation has shown, which was asked for at the time sent.
func (m *LeaseMachine) learn(now, sent int64, r Record) {
	if why := cmp.Or(m.contradicted(&r), m.mistaken(&r)); why != "" {
		m.stop(badRecord(why + ": stop all members, delete the record, and start them again"))
		return
	}
	was, former, cleared := m.self, m.record, m.cleared
	m.knows(now, m.cfg.Lease, &former, &r)
	m.record, m.self = r, r.number(m.cfg.Life)
	if m.self != dmutex.None {
		m.belong(now, sent, was, &former)
	} else if m.leaving {
		m.end(Left, nil)
	} else if excluded, err := was != dmutex.None || m.missed(&r), m.misfit(r.Members); err != nil && (!m.cfg.Proves || excluded || m.exclusions > 0) { // 5.7: one that was a member never looks
		m.stop(err)
	} else {
		if excluded {
			m.excluded(now)
		}
		if m.runsOther() || len(r.Members) >= MaxMembers { // until others have joined, or one leaves
			m.rumor(now)
		}
	}
	if m.cleared > cleared || r.Epoch > former.Epoch && m.waits(r.Unclean) {
		m.tellWait()
	}
	if m.self != dmutex.None && r.Epoch > m.view.Epoch {
		m.enter(now)
		m.meet(m.self, m.view, r.Unclean, r.Unclean > former.Unclean)
	}
}

// belong takes in a record of which this life is a member.
func (m *LeaseMachine) belong(now, sent int64, was dmutex.NodeID, former *Record) {
	if was == dmutex.None {
		m.joinedAt, m.asked = now, dmutex.None
		m.emit(Event{Kind: Joined, Self: m.self})
	}
	if m.term.Over(now) { // rule 5.3: what it held is lost
		m.term = leases.Term{Length: m.cfg.Lease}
	}
	if m.term.Confirm(now, sent, m.cfg.Lease) {
		m.emit(Event{Kind: Renewed, Term: m.term})
	}
	m.renewAt = m.term.Renew(m.share())
	if r := &m.record; was == dmutex.None || r.Epoch > former.Epoch {
		record := *r
		m.emit(Event{Kind: Members, Record: &record, Excludes: r.Unclean == r.Epoch || was != dmutex.None && r.Unclean > former.Epoch})
	}
}

// mistaken is rule 5.6, too: it says how a record contradicts what this life knows of itself, "" if it does not.
func (m *LeaseMachine) mistaken(r *Record) string {
	switch number := r.number(m.cfg.Life); {
	case number != dmutex.None && m.self != dmutex.None && number != m.self:
		return "it has renumbered member " + m.self.String()
	case number != dmutex.None && (r.Lease != m.cfg.Lease || r.Settings != m.cfg.Settings):
		return "it has other settings than its members"
	}
	return ""
}

// share is after what share of the lease it is renewed.
func (m *LeaseMachine) share() int64 {
	if m.cfg.Serves { // rule 5b.4: it confirms the sessions of clients no longer than its lease lasts
		return leases.RenewServing
	}
	return leases.Renew
}

// tellWait tells the driver what is waited for.
func (m *LeaseMachine) tellWait() {
	until, _, _ := m.Waits()
	m.emit(Event{Kind: Waiting, Epoch: m.cleared, Unclean: m.record.Unclean, Until: until})
}

// Rule 5.7: what all members must agree on is written into a record without members only.

// misfit says why this life cannot be a member beside those of the record, nil if it can.
func (m *LeaseMachine) misfit(members []Entry) error {
	for _, e := range members {
		if m.differs() || e.Speaks.Common(m.speak) == 0 {
			return SettingsError{e.Node, e.Speaks, m.record.Lease, m.record.Settings}
		}
	}
	return nil
}

// looked takes the members out of the record that are dead, because the store says who lives, if
// this life can then be a member. Nothing but the look was under way, so they had begun before it.
func (m *LeaseMachine) looked(now int64, names string) {
	var living []string
	for begin, i := 0, 0; i <= len(names); i++ {
		if i == len(names) || names[i] == ' ' {
			living, begin = append(living, names[begin:i]), i+1
		}
	}
	r := m.successor()
	r.drop(func(e Entry) bool { return e.Proof != "" && !slices.Contains(living, e.Proof) })
	if err := m.misfit(r.Members); err != nil {
		m.stop(err)
		return
	}
	m.swap(now, r)
}

// differs reports whether the record has other settings than this life.
func (m *LeaseMachine) differs() bool {
	return m.record.Lease != m.cfg.Lease || m.record.Settings != m.cfg.Settings
}

// runsOther reports whether a lease of another length may run.
func (m *LeaseMachine) runsOther() bool { return m.differs() && m.waits(m.record.Unclean) }

func (m *LeaseMachine) stop(err error) { m.end(Stopped, err) }

func (m *LeaseMachine) end(phase Phase, err error) {
	m.ended, m.err = phase, err
	m.emit(Event{Kind: Ended, Phase: phase, Err: err})
}

// enter installs the view of the record.
func (m *LeaseMachine) enter(now int64) {
	m.install(now, m.record.view())
	m.troubleAt = never
	m.adopt(now, &m.view, m.self)
}

// excluded ends this life, by rule 5.5. What it held is lost.
func (m *LeaseMachine) excluded(now int64) {
	m.spend(now)
	m.install(now, View{})
	m.peers, m.renewAt, m.troubleAt, m.memory, m.term = nil, never, never, memory{}, leases.Term{Length: m.cfg.Lease}
	m.emit(Event{Kind: Excluded})
}

// Rejoin goes on as another life, drawn like that of [LeaseConfig], when this one was excluded.
// Nothing that was sent from or to the former one counts for the new one.
func (m *LeaseMachine) Rejoin(now int64, life uint64) Output {
	if m.spent && life != 0 {
		m.spent, m.begun, m.proof, m.cfg.Life = false, false, "", life
	}
	return m.flush(now)
}

func (m *LeaseMachine) send(p *peer, msg Message) {
	if p.here {
		msg.From, msg.To = m.self, p.node
		m.out.Messages = append(m.out.Messages, msg)
	}
}

func (m *LeaseMachine) sendAll(msg Message) {
	for i := range m.peers {
		m.send(&m.peers[i], msg)
	}
}

// flush does what an input may have made possible, and returns the output.
func (m *LeaseMachine) flush(now int64) Output {
	if m.now = now; m.ended == Outside {
		m.mayAct(now)
		m.mayAsk(now)
	}
	return m.said()
}

// mayAsk asks the store for what is due.
func (m *LeaseMachine) mayAsk(now int64) {
	switch {
	case m.leaving && m.self == dmutex.None && m.op != Swap && !m.unsure: // the others exclude it if an earlier swap joins it after all
		m.end(Left, nil)
	case m.op != NoOperation:
	case m.nextChange() <= now: // before a load that a stranger may have asked for (5.5)
		m.change(now)
	case m.nextLoad() <= now:
		m.emit(m.load(now))
	}
}
