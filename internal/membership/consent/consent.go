package consent

import (
	"cmp"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/protocol"
)

// A Machine is one life's part in the views of its group. It is not safe for concurrent use.
//
// Each input returns a [membership.Output], and the driver does what its events say.
//
// Time enters as nanoseconds on any scale that never goes back. The driver calls
// Tick at [Machine.Deadline].
type Machine struct {
	in membership.Installation

	self    int // place in members
	life    uint64
	floor   uint64 // the lowest epoch that Config.Fence allows
	clock   uint64 // in epochs
	speaks  protocol.Versions
	members []member // ascending by node
	highest uint64   // round that was promised
	seen    uint64   // the highest round that was heard of
	leaving bool
	stayed  uint64          // of a leaving life: the highest round that it promised before; a view of it may have it as a member
	exit    membership.View // of a leaving life: the newest view without it, of a higher round
	phase   Phase
	later   uint64 // a later life of this number that the others know
	trouble bool   // the view is to be replaced

	// The doubt of this life.
	doubtAt  int64  // when it ends this life; never if it is in none
	askAt    int64  // when it may ask the others again
	question uint64 // the round by which it has
	denied   uint64 // the latest view without this life that a member has contradicted

	// The open round of this life.
	round    uint64 // 0 if there is none
	evicted  []dmutex.NodeID
	courtesy int64 // until when it waits for those that are there and excused; 0 if that is over

	// Time.
	beginAt int64 // when to begin a round
	fails   int   // rounds since the last view
}

// A member is what is known of one member.
type member struct {
	node       dmutex.NodeID
	life       uint64 // that was met and is there; 0 if none is
	newest     uint64 // the latest life that was heard of
	told       bool   // life knows that it is not the newest
	leaving    bool   // life has said so
	news       bool   // life was met, or has spoken, and is in no view since
	bound      uint64 // of a life in no view: a life that may count on a promise of ours
	asked      uint64 // the round that life has asked for and that was promised
	timed      uint64 // the round whose answer is timed, 0 if none is: a late answer counts, too
	preparedAt int64  // when it was asked to take part in that
	promise    *membership.Message
	complete   membership.View // the last view that it reported complete
	later      uint64          // another life of this number that it has told of
	rumor      membership.View // a later view without this life that it has asked about
	denied     bool            // its word against this life was contradicted
	refuted    uint64          // the last round of ours that was to evict it, and that it promised
}

func (m *Machine) me() *member { return &m.members[m.self] }

// member returns what is known of a node, nil if it is no member.
func (m *Machine) member(node dmutex.NodeID) *member {
	if i := slices.IndexFunc(m.members, func(p member) bool { return p.node == node }); i >= 0 {
		return &m.members[i]
	}
	return nil
}

// Clock tells the machine, before an input, what the wall clock says: see [Config.Clock].
func (m *Machine) Clock(clock uint64) { m.clock = min(clock, epochs.MaxClock) }

// Tick tells the machine that time has passed.
func (m *Machine) Tick(now int64) membership.Output { return m.flush(now) }

// Met tells the machine that a life of a peer was met. If a former life was met
// before, messages to it are lost, and no more come from it.
func (m *Machine) Met(now int64, peer dmutex.NodeID, life uint64) membership.Output {
	p := m.member(peer)
	if p == nil || p == m.me() || life == 0 || life > m.latestLife() {
		return membership.Output{}
	}
	m.gone(p)
	p.life, p.news = life, true
	m.learn(p, life)
	if m.ended() { // it only hears p
		return m.flush(now)
	}
	m.admonish(p)
	if m.round != 0 {
		m.prepare(now, p)
	}
	if m.in.View.Has(peer, life) && m.in.Reported {
		m.sendReport(p)
	}
	if m.in.IsComplete() && m.in.View.Life(peer) == 0 {
		m.send(membership.Message{Kind: membership.Complete, To: peer, View: m.in.View})
	}
	if m.exit.Has(peer, life) {
		m.send(membership.Message{Kind: membership.Decide, To: peer, View: m.exit})
	}
	return m.flush(now)
}

// Lost tells the machine that a peer's life is gone, or has said goodbye.
func (m *Machine) Lost(now int64, peer dmutex.NodeID) membership.Output {
	if p := m.member(peer); p != nil && p != m.me() {
		m.gone(p)
	}
	return m.flush(now)
}

// gone forgets what only the present life of a peer can vouch for.
func (m *Machine) gone(p *member) {
	p.life, p.told, p.leaving, p.news = 0, false, false, false
	p.promise, p.asked, p.timed = nil, 0, 0
}

// Trouble asks for another view in place of that of the epoch, after an event that an
// algorithm does not survive.
func (m *Machine) Trouble(now int64, epoch uint64) membership.Output {
	if !m.ended() && epoch == m.in.View.Epoch && !m.trouble {
		m.trouble, m.beginAt = true, min(m.beginAt, m.in.ReplaceAt(now)) // an open round goes first, see flush
	}
	return m.flush(now)
}

// Report tells the members of the view what this life holds. The driver calls it
// once for each view, when nothing more is granted in an older one.
func (m *Machine) Report(now int64, holds []membership.Hold) membership.Output {
	if !m.ended() && m.in.Report(m.me().node, holds, nil) {
		for i := range m.members {
			if p := &m.members[i]; i != m.self && m.in.View.Has(p.node, p.life) {
				m.sendReport(p)
			}
		}
	}
	return m.flush(now)
}

func (m *Machine) sendReport(p *member) {
	m.send(membership.Message{Kind: membership.Report, To: p.node, View: m.in.View, Holds: m.in.ReportOf(m.me().node).Holds})
}

// learn takes in that a member has, or had, this life.
func (m *Machine) learn(p *member, life uint64) {
	if life <= p.newest {
		return
	}
	p.newest = life
	if p == m.me() {
		switch m.later = life; {
		case m.ended():
		case m.phase == Outside:
			m.becomeOlder()
		default:
			m.becomeStopped()
		}
		return
	}
	if slices.Contains(m.evicted, p.node) {
		m.round = 0 // the operator's word was about a former life
	}
	if m.exit.Life(p.node) != 0 {
		m.exit = membership.View{} // it may have died before it was complete
	}
	m.admonish(p)
}

// admonish tells a peer that it is not the latest life of its number, but not one that is
// in the present view: the word of one member must not become that of two.
func (m *Machine) admonish(p *member) {
	if p.life == 0 || p.life >= p.newest {
		return
	}
	if p.promise = nil; !p.told && !m.in.View.Has(p.node, p.life) {
		p.told = true
		m.send(membership.Message{Kind: membership.Refuse, To: p.node, Round: m.highest, Life: p.newest})
	}
}

// Rule 4.1: rounds.

// maxCourtesy is how long a round waits for those that it can do without, at most.
const maxCourtesy = 10 * second

// begin asks all that are there to take part in a round.
func (m *Machine) begin(now int64, evicted ...dmutex.NodeID) {
	m.round = m.nextRound()
	m.highest = m.round
	m.evicted, m.courtesy = evicted, now+min(10*m.in.Pause()<<m.fails, maxCourtesy)
	m.beginAt = due.Never
	for i := range m.members {
		if p := &m.members[i]; i != m.self {
			p.promise = nil
			if p.life != 0 {
				m.prepare(now, p)
			}
		}
	}
	m.mayDecide(now)
}

// prepare asks a member to take part in the open round.
func (m *Machine) prepare(now int64, p *member) {
	if p.timed == 0 {
		p.timed, p.preparedAt = m.round, now
	}
	m.send(membership.Message{Kind: membership.Prepare, To: p.node, Round: m.round, Leaving: m.leaving})
}

// measure takes the answer of p to a round, or to a later one, for the round trip.
func (m *Machine) measure(now int64, p *member, round uint64) {
	if p.timed != 0 && round >= p.timed {
		m.in.Trip, p.timed = now-p.preparedAt, 0
	}
}

// nextRound is not below the clock: the evicted may have granted in epochs that the others do not know.
func (m *Machine) nextRound() uint64 { return max(m.highest+1, m.seen+1, m.clock) }

// tooFar returns how long a new round has to wait before all would believe it, also those whose
// clocks stand a little behind: they would refuse it without an answer.
func (m *Machine) tooFar() int64 {
	return max(int64(m.nextRound())-int64(m.latest()-epochs.Minute), 0) * millisecond
}

// onPrepare takes part in a round, if this life has promised no later one.
func (m *Machine) onPrepare(now int64, p *member, msg *membership.Message) {
	p.leaving = msg.Leaving
	if msg.Round <= m.highest {
		m.decline(now, p, msg)
		return
	}
	m.highest = msg.Round
	p.bound, p.asked = p.life, msg.Round
	if m.round != 0 || m.wants() {
		m.fail(now, m.patience())
	}
	m.send(m.promise(p))
}

// decline takes no part in a round.
func (m *Machine) decline(_ int64, p *member, msg *membership.Message) {
	p.leaving = msg.Leaving
	m.send(membership.Message{Kind: membership.Refuse, To: p.node, Round: max(m.highest, msg.Round)})
}

// onPromise takes that p takes part in a round.
func (m *Machine) onPromise(now int64, p *member, msg *membership.Message) {
	p.leaving = msg.Leaving
	if m.measure(now, p, msg.Round); msg.Round == m.highest && slices.Contains(m.evicted, p.node) {
		p.refuted, m.evicted = msg.Round, slices.DeleteFunc(slices.Clone(m.evicted), func(id dmutex.NodeID) bool { return id == p.node })
	}
	switch {
	case m.round == msg.Round && p.life == p.newest:
		p.promise = msg
	case !passed(msg, m.in.Complete):
		p.news = true // too late for its round
	}
}

// onRefusal takes that p takes no part in a round, or knows of a later life of a number.
func (m *Machine) onRefusal(now int64, p *member, msg *membership.Message) {
	m.measure(now, p, msg.Round)
	switch {
	case msg.Life > m.life:
		m.accused(p, msg.Life)
	case m.round == 0:
		p.news = true
	case msg.Round >= m.round:
		m.fail(now, m.in.Pause())
	}
}

// promise returns this life's promise of the round promised last.
func (m *Machine) promise(to *member) membership.Message {
	return membership.Message{Kind: membership.Promise, To: to.node, Round: m.highest, Leaving: m.leaving, Installed: m.in.View, Completed: m.in.Complete, Speaks: m.speaks}
}

// fail gives a round up, this life's or another's, and plans the next. After a pause, the
// times of members of different rank, odd multiples of it that double with each failure,
// differ by a pause or more.
func (m *Machine) fail(now int64, after int64) {
	m.round = 0
	m.beginAt = now + (after+2*m.rank()*m.in.Pause())<<m.fails
	m.fails = min(m.fails+1, membership.MaxFails)
}

// patience is how long this life waits for the view of another's round: as long as the promise takes
// to arrive, and the view.
func (m *Machine) patience() int64 { return max(membership.Patience, 2*min(m.in.Trip, maxCourtesy)) }

// Rule 4.2: when a view is decided.

// mayDecide decides the open round if nothing is missing.
func (m *Machine) mayDecide(now int64) {
	if m.round == 0 {
		return
	}
	own := m.promise(m.me())
	m.me().promise = &own
	if now >= m.courtesy {
		m.courtesy = 0
	}
	if m.courtesy != 0 && m.late() {
		return
	}
	last := m.lastComplete()
	for i := range m.members {
		switch u := &m.members[i]; {
		case u.promised(last):
		case !slices.Contains(m.evicted, u.node) && !m.excused(u, last):
			m.mayGo()
			return
		}
	}
	view := m.chosen(last)
	for i := range m.members {
		if p := &m.members[i]; i != m.self && p.promise != nil {
			m.send(membership.Message{Kind: membership.Decide, To: p.node, View: view})
		}
	}
	fails := 0
	if m.late() { // the next round waits longer for the life that this one was begun for
		fails = min(m.fails+1, membership.MaxFails)
	}
	m.round = 0
	if m.learnView(now, view); m.in.View.Epoch == view.Epoch {
		m.fails = fails
	}
}

// chosen returns the view of the open round: the lives under (i) that are not leaving. A life in no
// view, which holds nothing, comes in only if it shares a version of the protocol with all before it, or
// the view would wait for its reports in vain.
func (m *Machine) chosen(last membership.View) membership.View {
	view, speak := membership.View{Epoch: m.round}, []protocol.Versions(nil)
	for _, fresh := range [...]bool{false, true} {
		for i := range m.members {
			u := &m.members[i]
			if !u.promised(last) || u.promise.Leaving || fresh != (u.promise.Installed.Epoch == 0) ||
				fresh && slices.ContainsFunc(speak, func(v protocol.Versions) bool { return v != u.promise.Speaks && v.Common(u.promise.Speaks) == 0 }) {
				continue
			}
			speak = append(speak, u.promise.Speaks)
			view.Members = append(view.Members, membership.Member{Node: u.node, Life: u.life})
		}
	}
	slices.SortFunc(view.Members, func(a, b membership.Member) int { return cmp.Compare(a.Node, b.Node) })
	return view
}

// promised is rule (i): u has promised the open round, by its latest known life.
func (u *member) promised(last membership.View) bool {
	return u.promise != nil && !passed(u.promise, last)
}

// passed reports whether a promise is of a life that once acted, and without which the others
// have gone on since, in a view that was complete: an operator has vouched for its death.
func passed(promise *membership.Message, last membership.View) bool {
	return promise.Completed.Epoch > 0 && promise.Installed.Epoch < last.Epoch && last.Life(promise.From) == 0
}

// excused is rule (ii): u need not promise, as it is outside of the last complete view, and
// of every later one that a promise names.
func (m *Machine) excused(u *member, last membership.View) bool {
	return last.Epoch > 0 && last.Life(u.node) == 0 && !slices.ContainsFunc(m.members, func(p member) bool {
		return p.promise != nil && p.promise.Installed.Epoch > last.Epoch && p.promise.Installed.Life(u.node) != 0
	})
}

// lastComplete returns the last view that was complete at a life that stays, by the promises of the
// open round. If nobody stays, nobody will act, and the word of those that leave is good enough.
func (m *Machine) lastComplete() (last membership.View) {
	stays := m.stays()
	for i := range m.members {
		p := m.members[i].promise
		if p != nil && p.Leaving != stays && p.Completed.Epoch > last.Epoch {
			last = p.Completed
		}
	}
	return last
}

// stays reports whether a member that has promised the open round is not leaving.
func (m *Machine) stays() bool {
	return slices.ContainsFunc(m.members, func(p member) bool { return p.promise != nil && !p.promise.Leaving })
}

// late reports whether a member that is there is given a moment to promise the open round, even if it is excused:
// it wants to be in the view, or nobody that has promised stays, and it would hear of no later view.
func (m *Machine) late() bool {
	last := !m.stays()
	return slices.ContainsFunc(m.members, func(p member) bool {
		return p.promise == nil && p.life != 0 && p.life == p.newest && (last || p.news && !m.in.View.Has(p.node, p.life))
	})
}

// Rules 4.4 and 4.5: when to begin a round. Rule 4.3 is in leave.go.

// Evict begins a round that does not wait for the given members, on an operator's word that their processes are
// dead. The word holds for this round alone, and until this life learns that one of them is back. If no view without
// them follows, the caller may repeat it while what [Machine.Newest] returns is the same. Evict returns
// [dmutex.ErrMisuse] for this node, for a number that is no member, and if this life is leaving, in no view or in doubt.
func (m *Machine) Evict(now int64, peers ...dmutex.NodeID) (membership.Output, error) {
	why, stranger := "", slices.IndexFunc(peers, func(peer dmutex.NodeID) bool { return m.member(peer) == nil })
	switch {
	case stranger >= 0:
		why = peers[stranger].String() + " is not a member"
	case slices.Contains(peers, m.me().node):
		why = m.me().node.String() + " is this node itself: close it"
	case m.leaving || m.ended():
		why = "this node is leaving the group: ask another member"
	case m.in.View.Epoch == 0:
		why = "this node is in no view yet: ask a member that is"
	case m.phase == Doubting:
		why = "this node is told that the group goes on without it: ask another member"
	case m.tooFar() > 0:
		why = "the epochs of the group are a day ahead of this node's clock, and the others would not believe another: set the clocks right"
	default:
		m.begin(now, slices.Clone(peers)...)
		return m.flush(now), nil
	}
	return membership.Output{}, dmutex.Misuse("evict: " + why)
}

// Evicting reports whether such a round is open. It may wait for a moment for a member that is there.
func (m *Machine) Evicting(peers ...dmutex.NodeID) bool {
	return m.round != 0 && slices.Equal(m.evicted, peers)
}

// wants reports whether this life has a reason to ask for another view.
func (m *Machine) wants() bool {
	if m.ended() || m.phase == Doubting || m.exit.Epoch > 0 && m.exit.Epoch >= max(m.highest, m.seen) {
		return false
	}
	if m.leaving || m.trouble || len(m.members) == 1 && m.in.View.Epoch == 0 {
		return true
	}
	return slices.ContainsFunc(m.members, func(p member) bool {
		return p.news && p.life == p.newest && !p.leaving && !m.in.View.Has(p.node, p.life)
	})
}

// rank is how many of the members that are there may begin a round before this one.
func (m *Machine) rank() (rank int64) {
	for _, p := range m.members[:m.self] {
		if p.life != 0 {
			rank++
		}
	}
	return rank
}

// Rule 3.1: what is installed. Rule 3.2 is in install.go, and 3.3 in doubt.go.

// onView takes the decision of a round.
func (m *Machine) onView(now int64, _ *member, msg *membership.Message) { m.learnView(now, msg.View) }

// onReport takes that p has installed a view, and what it holds.
func (m *Machine) onReport(now int64, p *member, msg *membership.Message) {
	if m.learnView(now, msg.View); msg.View.Epoch == m.in.View.Epoch {
		m.in.Take(p.node, msg.Holds, nil)
	}
}

// onComplete takes that all have reported to p in a view without this life.
func (m *Machine) onComplete(now int64, p *member, msg *membership.Message) {
	if msg.View.Epoch > p.complete.Epoch {
		p.complete = msg.View
	}
	if !m.accuses(p) {
		m.learnView(now, msg.View)
	}
}

// learnView takes in a view, by rule 3.1.
func (m *Machine) learnView(now int64, v membership.View) {
	me := m.me().node
	if m.round != 0 && v.Epoch > m.round {
		m.fail(now, m.in.Pause()) // the lives of v promise no lower round
	}
	switch {
	case v.Epoch <= m.in.View.Epoch:
	case v.Has(me, m.life) && v.Epoch >= m.highest && m.phase != Doubting:
		m.becomeFrozen(now, v)
	case v.Has(me, m.life): // the others wait for it in v, and it waits for a later round
		m.ask(now + m.patience())
	case m.leaving:
		// A life in no view does not know what its former lives were members of. It
		// believes only a view of the round that it has promised.
		if v.Epoch > max(m.exit.Epoch, m.stayed) && (m.in.View.Epoch > 0 || v.Epoch == m.highest) {
			m.exit = v
			m.round = 0
		}
	case m.in.View.Epoch > 0:
		m.ask(now) // the others have not waited for its reports
	}
}

// ask lets this life ask for another view, when it is its turn after the time given.
func (m *Machine) ask(at int64) {
	if !m.trouble {
		m.trouble, m.beginAt = true, min(m.beginAt, at+m.rank()*m.in.Pause())
	}
}

// tellComplete tells those outside that the view is complete. Those that are in it know it by
// the reports.
func (m *Machine) tellComplete() {
	for i := range m.members {
		p := &m.members[i]
		if p.life != 0 && m.in.View.Life(p.node) == 0 {
			m.send(membership.Message{Kind: membership.Complete, To: p.node, View: m.in.View})
		}
		if p.asked == m.highest && p.asked > m.in.View.Epoch {
			m.send(m.promise(p)) // it may decide who is excused
		}
	}
}

// flush does what an input may have made possible, and returns the output.
func (m *Machine) flush(now int64) membership.Output {
	if !m.ended() && m.in.MayComplete() {
		m.tellComplete()
	}
	m.doubt(now)
	if m.phase == Frozen && m.in.IsComplete() {
		m.becomeActing()
	}
	switch {
	case m.round != 0 || !m.wants():
		m.beginAt = due.Never
	case m.beginAt == due.Never:
		m.beginAt = now + m.rank()*m.in.Pause()
	}
	if m.beginAt <= now {
		if far := m.tooFar(); far > 0 {
			m.beginAt = now + far
		} else {
			m.begin(now)
		}
	}
	m.mayDecide(now)
	m.mayEnd()
	return m.in.Said()
}
