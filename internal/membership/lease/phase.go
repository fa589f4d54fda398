package lease

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
)

// Phase is the state of a life. The package comment says what each phase promises.
type Phase uint8

// The phases.
const (
	Outside Phase = iota // no member: it joins, or was excluded
	Frozen               // in a view that does not act yet
	Acting               // in a view that acts
	Left                 // no member any more, since it was to leave
	Stopped              // it cannot be a member: see Err
	phases
)

// A row is what a life does with a message of one kind: by its phase, unless the message is wrong.
type row struct {
	by    [phases]reaction
	wrong func(m *Machine, p *peer, msg *membership.Message) string // why no correct peer sends it, "" if one may
}

// A reaction is what a life does with a message of a peer.
type reaction func(m *Machine, now int64, p *peer, msg *membership.Message)

var (
	knowsOf reaction = (*Machine).knowsOf
	reports reaction = (*Machine).reports
	cleared reaction = (*Machine).hearsCleared
	parting reaction = (*Machine).hearsParting
	movesTo reaction = (*Machine).hearsMove

	ignored reaction // it was for the member that this process was, or is to be
)

// table has the kinds of the lease mode. A life refuses all others, and sends a kind in the phases in which it
// takes it. It is filled as the program begins, since reactions send, and what is sent is looked up here.
var table map[membership.Kind]row

func init() {
	table = map[membership.Kind]row{
		//                                 Outside  Frozen   Acting   Left     Stopped
		membership.Decide:  {[...]reaction{ignored, knowsOf, knowsOf, ignored, ignored}, (*Machine).wrongView},
		membership.Report:  {[...]reaction{ignored, reports, reports, ignored, ignored}, (*Machine).wrongReport},
		membership.Cleared: {[...]reaction{ignored, cleared, cleared, ignored, ignored}, (*Machine).wrongMessage},
		membership.Part:    {[...]reaction{ignored, parting, parting, ignored, ignored}, (*Machine).wrongMessage},
		membership.Moved:   {[...]reaction{ignored, movesTo, movesTo, ignored, ignored}, (*Machine).wrongMove},
	}
}

// Handle takes a message from a member, which is a sign of life, too; if the member is proved to be dead, it changes
// nothing. It returns [dmutex.ErrPeer] for a message that no correct peer sends, if its phase reacts to the
// kind, and then has changed nothing.
func (m *Machine) Handle(now int64, msg membership.Message) (membership.Output, error) {
	p, r, why := m.peer(msg.From), table[msg.Kind], ""
	react := r.by[m.phase]
	switch {
	case r.wrong == nil:
		why = "its kind is not of the lease mode"
	case p != nil && p.proved: // it sent this before it died
		react = nil
	case react != nil:
		why = r.wrong(m, p, &msg)
	}
	if why != "" {
		return membership.Output{}, dmutex.PeerMistake("membership: " + why)
	}
	if react != nil {
		if !p.here && m.meets(now, p.node, p.life) {
			m.tellView(p) // as Met does
		}
		react(m, now, p, &msg)
	}
	return m.flush(now), nil
}

// wrongMessage says what is wrong with a message of any kind.
func (m *Machine) wrongMessage(p *peer, msg *membership.Message) string {
	switch {
	case p == nil:
		return "the sender is no member"
	case msg.To != m.self:
		return "it is not for this node"
	case msg.Cleared > max(m.cfg.Clock, m.record.Epoch)+epochs.Day:
		return "it tells of the end of leases that are yet to be given"
	case (&membership.Parting{Lent: msg.Lent}).Wrong():
		return "it tells of locks in no order"
	}
	return ""
}

func (m *Machine) wrongView(p *peer, msg *membership.Message) string {
	if why := m.wrongMessage(p, msg); why != "" {
		return why
	}
	if msg.View.Epoch == 0 || msg.View.Epoch > epochs.Max {
		return "its view has no epoch"
	}
	return ""
}

func (m *Machine) wrongReport(p *peer, msg *membership.Message) string {
	if why := m.wrongView(p, msg); why != "" {
		return why
	}
	if v := &msg.View; !v.Has(p.node, p.life) || !v.Has(m.self, m.cfg.Life) {
		return "the sender or this life is not in the view of the report"
	}
	return cmp.Or(m.in.Impossible(&msg.View), msg.Past.Impossible(msg.View.Epoch))
}

func (m *Machine) wrongMove(p *peer, msg *membership.Message) string {
	if why := m.wrongMessage(p, msg); why != "" {
		return why
	}
	if len(msg.Lent) != 1 {
		return "it does not name exactly one lock"
	}
	return ""
}

// knowsOf notes that a peer knows of a view.
func (m *Machine) knowsOf(now int64, p *peer, msg *membership.Message) {
	if msg.View.Epoch > m.record.Epoch {
		m.hint(now, membership.MinPause)
	}
	if msg.View.Epoch > p.heard {
		if p.heard = msg.View.Epoch; p.heard == m.in.View.Epoch {
			m.tellView(p)
		}
	}
}

// reports takes what a peer holds. A peer reports in a view only after this life has spoken of that view.
func (m *Machine) reports(now int64, p *peer, msg *membership.Message) {
	m.knowsOf(now, p, msg)
	if msg.View.Epoch == m.in.View.Epoch {
		m.in.Take(p.node, msg.Holds, msg.Past)
	}
	m.hearsCleared(now, p, msg)
}

// hearsCleared notes that the leases of lives that were excluded have ended.
func (m *Machine) hearsCleared(_ int64, _ *peer, msg *membership.Message) {
	if msg.Cleared > m.cleared {
		m.cleared = msg.Cleared
		m.tellWait()
	}
}

// hearsParting takes the last word of a peer.
func (m *Machine) hearsParting(_ int64, p *peer, msg *membership.Message) {
	m.parts(p.node, &membership.Parting{Lent: msg.Lent})
}

// hearsMove notes that a client has gone on with a peer.
func (m *Machine) hearsMove(_ int64, _ *peer, msg *membership.Message) {
	m.freed(msg.Former, msg.Lent[0])
}

// send sends a message to a peer that is here.
func (m *Machine) send(p *peer, msg membership.Message) {
	if !m.sends(msg.Kind) {
		panic("membership: message of kind " + strconv.Itoa(int(msg.Kind)) + " in phase " + strconv.Itoa(int(m.phase)))
	}
	if p.here {
		msg.From, msg.To = m.self, p.node
		m.in.Out.Messages = append(m.in.Out.Messages, msg)
	}
}

func (m *Machine) sendAll(msg membership.Message) {
	for i := range m.peers {
		m.send(&m.peers[i], msg)
	}
}

// sends reports whether this life sends messages of a kind in its phase.
func (m *Machine) sends(kind membership.Kind) bool { return table[kind].by[m.phase] != nil }

// turns has the phases that a life may turn to. From Outside it turns to the same if it was excluded before it
// knew that it had joined.
var turns = [phases][]Phase{
	Outside: {Outside, Frozen, Left, Stopped},
	Frozen:  {Outside, Frozen, Acting, Left, Stopped},
	Acting:  {Outside, Frozen, Left, Stopped},
}

func (m *Machine) become(p Phase) {
	if !slices.Contains(turns[m.phase], p) {
		panic("membership: a turn from phase " + strconv.Itoa(int(m.phase)) + " to " + strconv.Itoa(int(p)))
	}
	m.phase = p
}

// becomeFrozen installs the view of the record.
func (m *Machine) becomeFrozen(now int64) {
	m.become(Frozen)
	m.in.Install(now, m.record.view(), m.needsWord())
	m.troubleAt = due.Never
	m.adopt(now, &m.in.View, m.self)
}

// becomeActing lets the installed view act.
func (m *Machine) becomeActing() {
	m.become(Acting)
	past := m.past.Apart()
	m.in.Act(&past)
}

// becomeOutside ends this life: by rule 5.5, or because the store has forgotten it (5.6). What it held is lost.
func (m *Machine) becomeOutside(now int64, forgotten bool) {
	m.become(Outside)
	m.spend(now)
	m.in.Install(now, membership.View{}, false)
	m.peers, m.renewAt, m.troubleAt, m.memory, m.term = nil, due.Never, due.Never, memory{}, leases.Term{Length: m.cfg.Lease}
	m.in.Emit(Excluded{forgotten})
}

// becomeAnother lets the process go on as another life.
func (m *Machine) becomeAnother(life uint64) {
	m.spent, m.begun, m.proof, m.cfg.Life = false, false, "", life
}

// becomeLeft ends the role of this life, which was to leave.
func (m *Machine) becomeLeft() {
	m.become(Left)
	m.in.Emit(Ended{})
}

// becomeStopped ends the role of this life, which cannot be a member.
func (m *Machine) becomeStopped(err error) {
	m.become(Stopped)
	m.err = err
	m.in.Emit(Ended{err})
}

// ended reports whether the role of this life is over.
func (m *Machine) ended() bool { return m.phase >= Left }

// member reports whether this life is a member.
func (m *Machine) member() bool { return m.phase == Frozen || m.phase == Acting }
