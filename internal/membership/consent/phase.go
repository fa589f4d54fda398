package consent

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/membership"
)

// Phase is the state of a life. It keeps its holds until it is Stopped.
type Phase uint8

// The phases.
const (
	Outside  Phase = iota // in no view yet
	Frozen                // in a view that does not act yet
	Acting                // in a view that acts
	Doubting              // in a view, and told that the others go on without it: nothing is granted
	Left                  // it was leaving, and no member needs it any more
	Older                 // a later life of its number is known, and this one was in no view: begin anew as a life above Later
	Stopped               // what it held is lost: the others go on without it
	phases
)

// A row is what a life does with a message of one kind: by its phase, unless the message is wrong. And it has the
// phases in which a life sends one.
type row struct {
	by    [phases]reaction
	wrong func(m *Machine, p *member, msg *membership.Message) string // why no correct peer sends it, "" if one may
	sent  []Phase
}

// A reaction is what a life does with a message of a peer, beside learning what lives there are.
type reaction func(m *Machine, now int64, p *member, msg *membership.Message)

var (
	prepare reaction = (*Machine).onPrepare
	decline reaction = (*Machine).decline
	promise reaction = (*Machine).onPromise
	answers reaction = (*Machine).onAnswer
	refusal reaction = (*Machine).onRefusal
	decided reaction = (*Machine).onView
	reports reaction = (*Machine).onReport
	goingOn reaction = (*Machine).onComplete

	ignored reaction // nobody needs this life any more
)

// table has the kinds of the strict mode. A life refuses all others. It is filled as the program begins, since
// reactions send, and what is sent is looked up here. A promise that is sent in doubt was made before.
var table map[membership.Kind]row

func init() {
	table = map[membership.Kind]row{
		//                                  Outside  Frozen   Acting   Doubting Left     Older    Stopped
		membership.Prepare:  {[...]reaction{prepare, prepare, prepare, decline, ignored, ignored, ignored}, (*Machine).wrongPrepare, []Phase{Outside, Frozen, Acting, Doubting}},
		membership.Promise:  {[...]reaction{promise, promise, promise, answers, ignored, ignored, ignored}, (*Machine).wrongPromise, []Phase{Outside, Frozen, Acting, Doubting}},
		membership.Refuse:   {[...]reaction{refusal, refusal, refusal, refusal, ignored, ignored, ignored}, (*Machine).wrongViews, []Phase{Outside, Frozen, Acting, Doubting, Left, Older, Stopped}},
		membership.Decide:   {[...]reaction{decided, decided, decided, decided, ignored, ignored, ignored}, (*Machine).wrongView, []Phase{Outside, Frozen, Acting}},
		membership.Report:   {[...]reaction{reports, reports, reports, reports, ignored, ignored, ignored}, (*Machine).wrongReport, []Phase{Frozen, Acting, Doubting}},
		membership.Complete: {[...]reaction{goingOn, goingOn, goingOn, goingOn, ignored, ignored, ignored}, (*Machine).wrongComplete, []Phase{Frozen, Acting, Doubting}},
	}
}

// Handle takes a message from the life of the peer that was met last. It returns [dmutex.ErrPeer]
// for a message that no correct peer sends, and then has changed nothing.
func (m *Machine) Handle(now int64, msg membership.Message) (membership.Output, error) {
	p, r, why := m.member(msg.From), table[msg.Kind], "its kind is unknown"
	if r.wrong != nil {
		why = cmp.Or(m.wrongMessage(p, &msg), r.wrong(m, p, &msg))
	}
	if why != "" {
		return membership.Output{}, dmutex.PeerMistake("membership: " + why)
	}
	m.seen = max(m.seen, msg.Round, msg.View.Epoch)
	if msg.Kind == membership.Prepare { // what its view says is hearsay
		m.heard(now, p, msg.View)
		msg.View = membership.View{}
	}
	for _, who := range slices.Concat(msg.Installed.Members, msg.Completed.Members, msg.View.Members) {
		if q := m.member(who.Node); q == m.me() && who.Life > m.life {
			m.accused(p, who.Life)
		} else {
			m.learn(q, who.Life)
		}
	}
	if react := r.by[m.phase]; react != nil {
		react(m, now, p, &msg)
	}
	return m.flush(now), nil
}

// wrongMessage says what is wrong with a message of any kind.
func (m *Machine) wrongMessage(p *member, msg *membership.Message) string {
	switch {
	case p == nil || p == m.me():
		return "the sender is not a peer"
	case p.life == 0:
		return "the sender was not met"
	case msg.To != m.me().node:
		return "it is not for this node"
	case max(msg.Round, msg.View.Epoch, msg.Installed.Epoch, msg.Completed.Epoch) > m.latest():
		return "it claims an epoch that is more than a day ahead of this node's clock: set the clocks right, or Config.Fence to the highest fence that was granted"
	case msg.Life > m.latestLife():
		return "it tells of a life" + farAhead
	}
	for _, who := range slices.Concat(msg.Installed.Members, msg.Completed.Members, msg.View.Members) {
		switch {
		case m.member(who.Node) == nil:
			return "its view has a node that is not in Config.Members"
		case who.Life > m.latestLife():
			return "it tells of a life" + farAhead
		}
	}
	return ""
}

func (m *Machine) wrongPrepare(_ *member, msg *membership.Message) string {
	if msg.Round == 0 {
		return "it names no round"
	}
	return m.in.Impossible(&membership.View{}, &msg.View) // it has only heard of the view
}

func (m *Machine) wrongPromise(p *member, msg *membership.Message) string {
	if msg.Round == 0 {
		return "it names no round"
	}
	return m.wrongViews(p, msg)
}

func (m *Machine) wrongViews(_ *member, msg *membership.Message) string {
	return m.in.Impossible(&msg.View, &msg.Installed, &msg.Completed)
}

func (m *Machine) wrongView(p *member, msg *membership.Message) string {
	if msg.View.Epoch == 0 {
		return "its view has no epoch"
	}
	return m.wrongViews(p, msg)
}

func (m *Machine) wrongReport(p *member, msg *membership.Message) string {
	if msg.View.Epoch > 0 && !msg.View.Has(p.node, p.life) {
		return "the sender reports in a view in which it is not"
	}
	return m.wrongView(p, msg)
}

func (m *Machine) wrongComplete(p *member, msg *membership.Message) string {
	if msg.View.Has(m.me().node, m.life) {
		return "it is for those outside of the view"
	}
	return m.wrongView(p, msg)
}

func (m *Machine) send(msg membership.Message) {
	if !slices.Contains(table[msg.Kind].sent, m.phase) {
		panic("membership: message of kind " + strconv.Itoa(int(msg.Kind)) + " in phase " + strconv.Itoa(int(m.phase)))
	}
	msg.From = m.me().node
	m.in.Out.Messages = append(m.in.Out.Messages, msg)
}

// turns has the phases that a life may turn to.
var turns = [phases][]Phase{
	Outside:  {Frozen, Left, Older},
	Frozen:   {Frozen, Acting, Doubting, Left, Stopped},
	Acting:   {Frozen, Doubting, Left, Stopped},
	Doubting: {Frozen, Stopped},
}

func (m *Machine) become(p Phase) {
	if !slices.Contains(turns[m.phase], p) {
		panic("membership: a turn from phase " + strconv.Itoa(int(m.phase)) + " to " + strconv.Itoa(int(p)))
	}
	m.phase = p
}

// becomeFrozen installs a view.
func (m *Machine) becomeFrozen(now int64, v membership.View) {
	m.become(Frozen)
	m.round = 0
	m.in.Install(now, v, false)
	m.highest, m.trouble = max(m.highest, v.Epoch), false
	m.fails, m.beginAt = 0, due.Never
	for i := range m.members {
		m.members[i].news = false
		m.admonish(&m.members[i])
	}
}

// becomeActing lets the installed view act, for the first time or again after a doubt.
func (m *Machine) becomeActing() {
	m.become(Acting)
	m.in.Act(nil)
}

// becomeDoubting notes a claim that the others go on without this life. Uncontradicted, it ends this life after later.
func (m *Machine) becomeDoubting(now, later int64) {
	m.become(Doubting)
	m.round, m.doubtAt = 0, now+later
	m.in.Emit(Doubted{})
}

// becomeTrusted ends the doubt, as somebody has contradicted.
func (m *Machine) becomeTrusted() {
	m.become(Frozen) // until flush
	m.doubtAt = due.Never
	m.in.Emit(Trusted{})
}

// becomeLeft ends the role of this life, which was leaving.
func (m *Machine) becomeLeft() { m.end(Left) }

// becomeOlder ends the role of this life, which was in no view: there is a later one of its number.
func (m *Machine) becomeOlder() { m.end(Older) }

// becomeStopped ends the role of this life, without which the others go on.
func (m *Machine) becomeStopped() { m.end(Stopped) }

func (m *Machine) end(p Phase) {
	m.become(p)
	m.round, m.doubtAt = 0, due.Never
	m.in.Emit(Ended{p, m.later})
}

// ended reports whether the role of this life is over.
func (m *Machine) ended() bool { return m.phase >= Left }
