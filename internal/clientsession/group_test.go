package clientsession

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
	"github.com/dmutex/dmutex/internal/search"
)

// A group is a state of some members, the record that says who they are, and their clients. The sides of
// the sessions, the machines of the locks, and what decides which former members may hold a lock are
// those that are shipped. Messages of members arrive at once, in a view in which all members act; the
// exploration of package membership has the others. Time passes in units, for all at once, but one clock
// may fall behind. Everybody may look at the clock late, or not at all.
type group struct {
	*plan
	now     int64
	behind  int // the process whose clock is a unit behind: a member by its place, a client by -1 and below; none if 99
	left    troubles
	record  card
	members []life
	clients []guest
	top     [2]uint64 // highest fence of each lock that a client was told
}

// A plan says what is done, and what may go wrong.
type plan struct {
	members, locks int
	second         int   // the member by which the second client waits for the first lock
	later          bool  // the second client asks later
	excluded       bool  // the second member has excluded the first one, and the first client has lost its connection
	unheard        bool  // and then the second member has granted it a claim, and it has not heard so
	closed         bool  // as excluded, but the first member has said its last word, and closed
	length, lease  int64 // S and L, in units
	drain, wait    int64 // D of the leases and of the sessions
	witnessed      bool
	troubles       troubles

	mutant string // the rule that is left out
}

// troubles are how often each may happen.
type troubles struct{ time, asks, releases, breaks, slow, ops, exclusions, joins, closes, skews, connects, lies int }

// A card is a record.
type card struct {
	epoch, unclean uint64
	members        []dmutex.NodeID
}

func (c card) has(id dmutex.NodeID) bool { return slices.Contains(c.members, id) }

// A life is a member, or was one.
type life struct {
	id        dmutex.NodeID
	knows     card
	gone      bool                // it has closed
	parting   *membership.Parting // its last word, which the others have
	leaseFrom int64               // when the last operation that has shown it as a member was sent
	lapsed    bool
	op        int64 // when the slow operation was sent, 0 if there is none
	shown     card  // what that has shown; no epoch before
	sessions  []session
	held      [2]taken
	waits     [2][]taken
	machines  [2]dmutex.Machine // while the view acts
	own       membership.Word   // of the view that it has acted in last
	past      membership.Past
	cleared   uint64
	since     int64 // when it knew the last exclusion first
}

// A taken is a request of a session: one that holds the lock, or waits for it.
type taken struct {
	session string
	number  uint64
	of      []dmutex.NodeID // of a claim
	via     string          // likewise
	lost    bool            // the session has ended without the client's word
	lostAt  int64
}

func (t taken) is(session string, number uint64) bool {
	return t.session == session && t.number == number
}

// A guest is a client.
type guest struct {
	m        *Client
	sessions int
	at, home int // the member that it is connected with, -1 if with none, and that of its session
	slow     bool
	up, down []Message
	held     [2]uint64 // the requests by which the driver holds the locks
	told     told
}

var names = [2]string{"l", "k"}

// newGroup has a group in which the first client holds all locks by the first member.
func newGroup(p plan) *group {
	w := &group{plan: &p, now: 8 * unit, behind: 99, left: p.troubles}
	w.record = card{epoch: 1}
	for i := range p.members {
		w.record.members = append(w.record.members, dmutex.NodeID(i+1))
	}
	for _, id := range w.record.members {
		w.members = append(w.members, life{id: id, leaseFrom: w.now})
	}
	for i := range w.members {
		w.members[i].knows = w.record
	}
	for range 2 {
		m := New("n")
		m.term.Length, m.trial.term.Length = p.length*unit, p.length*unit
		w.clients = append(w.clients, guest{m: m, at: -1, home: -1})
	}
	w.flow()
	for l := range p.locks {
		w.client("asks", 0, func() { w.clients[0].m.Ask(names[l], false, false) })
	}
	w.connect(0, 0)
	w.flow()
	if !p.later {
		w.client("asks", 1, func() { w.clients[1].m.Ask(names[0], false, false) })
		w.connect(1, p.second)
		w.flow()
	}
	if p.excluded {
		if w.unlink(0); p.closed {
			w.part(0)
			w.close(0)
		} else {
			w.change(1, 1, true)
		}
		w.flow()
	}
	if p.unheard {
		w.clients[0].slow = true
		w.connect(0, 1)
		for _, step := range []func(int){w.deliver, w.take, w.deliver, w.unlink} {
			step(0)
		}
	}
	return w
}

func (w *group) Clone(*group) *group {
	c := *w
	c.members, c.clients = slices.Clone(w.members), slices.Clone(w.clients)
	for i := range c.members {
		m := &c.members[i]
		m.sessions = slices.Clone(m.sessions)
		for k := range m.sessions {
			s := *m.sessions[k].m
			s.requests, s.out, s.news = slices.Clone(s.requests), nil, nil
			m.sessions[k].m = &s
		}
		m.past.Former = slices.Clone(m.past.Former)
		for k := range m.past.Former {
			if word := m.past.Former[k].Parting; word != nil {
				m.past.Former[k].Parting = &membership.Parting{Lent: slices.Clone(word.Lent)}
			}
		}
		for l := range m.machines {
			m.waits[l] = slices.Clone(m.waits[l])
			if m.machines[l] != nil {
				m.machines[l] = m.machines[l].Clone()
			}
		}
	}
	for i := range c.clients {
		g := &c.clients[i]
		m := *g.m
		m.requests, m.out, m.news = slices.Clone(m.requests), nil, nil
		g.m, g.up, g.down = &m, slices.Clone(g.up), slices.Clone(g.down)
	}
	return &c
}

// AppendState writes times relative to now.
func (w *group) AppendState(b []byte) []byte {
	ago := func(t int64) int64 { return min((w.now-t)/unit, 9) }
	to := func(t int64) int64 { return max(t-w.now, -unit) }
	b = fmt.Appendf(b, "%v %v %v %v|", w.behind, w.left, w.record, w.top)
	for i := range w.members {
		m := &w.members[i]
		b = fmt.Appendf(b, "\n%d %v %d %v ", m.knows.epoch, m.gone, ago(m.leaseFrom), m.lapsed)
		b = appendParting(b, m.parting)
		if m.op != 0 {
			b = fmt.Appendf(b, "op %d %d ", ago(m.op), m.shown.epoch)
		}
		for _, s := range m.sessions {
			b = fmt.Appendf(b, "%s %d %v %d ", s.name, to(s.m.overAt), s.m.leaving, s.m.link)
			b = appendRequests(b, s.m.requests, w.now)
		}
		for l := range w.locks {
			h := m.held[l]
			b = fmt.Appendf(b, "%s %d %v %v,", h.session, h.number, h.of, h.lost)
			if h.lost {
				b = fmt.Appendf(b, "%d", ago(h.lostAt))
			}
			b = fmt.Appendf(b, "%v ", m.waits[l])
			if m.machines[l] != nil {
				b, _ = m.machines[l].AppendText(b)
			}
		}
		b = fmt.Appendf(b, "%v %v %d", m.own, m.past.Words, m.cleared)
		for _, f := range m.past.Former {
			b = appendParting(fmt.Appendf(b, " %d %d", f.Node, f.Epoch), f.Parting)
		}
		if m.knows.unclean > m.cleared {
			b = fmt.Appendf(b, " %d", ago(m.since))
		}
	}
	for i := range w.clients {
		g := &w.clients[i]
		b = fmt.Appendf(b, "\n%d %d %d %v %v ", g.sessions, g.at, g.home, g.slow, g.held)
		b = appendClient(b, g.m, w.now)
		for _, q := range [][]Message{g.up, g.down} {
			for _, msg := range q {
				b = fmt.Appendf(b, "%d %d %s %v %d %d %v,", msg.Kind, msg.Number, msg.Session, msg.Wants, msg.Fence, msg.For, msg.Of)
			}
			b = append(b, '/')
		}
	}
	return b
}

func appendParting(b []byte, word *membership.Parting) []byte {
	if word != nil {
		b = fmt.Appendf(b, "last %v ", word.Lent)
	}
	return b
}

// appendClient appends the state of a client.
func appendClient(b []byte, m *Client, now int64) []byte {
	to := func(t int64) int64 { return max(t-now, 0) }
	b = fmt.Appendf(b, "%s %v%v%v%v%v %d ", m.session, m.known(), m.leaving, m.connected, m.heard, m.elsewhere, m.last)
	for _, s := range []*stay{&m.stay, &m.trial} {
		if s.session == "" {
			continue
		}
		if b = fmt.Appendf(b, "%s %v ", s.session, s.confirmed); s.known() {
			b = fmt.Appendf(b, "%d %d %v ", to(s.term.Expiry()), to(s.overAt), s.term.Runs())
		}
		if m.connected && s == m.on() {
			b = fmt.Appendf(b, "%d ", min(now-s.sentAt, 4*unit))
		}
	}
	return appendRequests(b, m.requests, now)
}

func appendRequests(b []byte, list []request, now int64) []byte {
	for _, r := range list {
		b = fmt.Appendf(b, "[%d %s %v %d %v %d %v%v", r.number, r.lock, r.try, r.fence, r.of, r.by, r.claimed, r.released)
		if r.left.Runs() {
			b = fmt.Appendf(b, " %d", max(r.left.Expiry()-now, 0))
		}
		b = append(b, ']')
	}
	return b
}

// at returns the time of a process.
func (w *group) at(process int) int64 {
	if process == w.behind {
		return w.now - unit
	}
	return w.now
}

// stand lets time pass for all but one process.
func (w *group) stand(process int) {
	w.left.skews--
	w.left.time--
	w.now += unit
	w.behind = process
}

// person is the process of a client.
func person(i int) int { return -1 - i }

// term is for how long a member's lease still runs, without the margin.
func (w *group) term(i int) int64 {
	m := &w.members[i]
	if m.lapsed || m.gone || !m.knows.has(m.id) {
		return 0
	}
	return max(m.leaseFrom+w.lease*unit-unit/16-w.at(i), 0)
}

// holds reports whether the driver of a client has a valid hold of a lock.
func (w *group) holds(i, l int) bool {
	m := w.clients[i].m
	k := m.find(w.clients[i].held[l])
	if k < 0 || w.clients[i].held[l] == 0 {
		return false
	}
	term := m.TermOf(m.requests[k].number)
	return w.at(person(i)) < term.Until()
}

func (w *group) Steps(steps []search.Event[*group]) []search.Event[*group] {
	add := func(do func(w *group), format string, args ...any) {
		steps = append(steps, search.NewEvent(func(w *group) error {
			do(w)
			w.flow()
			return w.wrong()
		}, format, args...))
	}
	if w.left.time > 0 {
		add(func(w *group) { w.left.time--; w.now += unit }, "time passes")
	}
	for i, g := range w.clients {
		w.clientSteps(i, g, func(do func(w *group), format string, args ...any) {
			add(do, string(rune('a'+i))+" "+format, args...)
		})
	}
	for i := range w.members {
		if !w.members[i].gone {
			w.memberSteps(i, &w.members[i], func(do func(w *group), format string, args ...any) {
				add(do, string(rune('A'+i))+" "+format, args...)
			})
		}
	}
	if w.left.joins > 0 {
		add((*group).join, "a process joins")
	}
	return steps
}

func (w *group) clientSteps(i int, g guest, add func(do func(w *group), format string, args ...any)) {
	m := g.m
	act := func(do string, input func(w *group)) {
		add(func(w *group) { w.client(do, i, func() { input(w) }) }, do)
	}
	if g.at < 0 && m.Wanting() && i == 1 && !w.members[w.second].gone {
		add(func(w *group) { w.connect(i, w.second) }, "connects")
	}
	if g.at < 0 && m.Wanting() && i == 0 && w.left.connects > 0 {
		for j := range w.members {
			if w.members[j].gone {
				continue
			}
			add(func(w *group) { w.left.connects--; w.connect(i, j) }, "connects with %c", 'A'+j)
			if w.left.slow > 0 {
				add(func(w *group) { w.left.connects--; w.left.slow--; w.clients[i].slow = true; w.connect(i, j) }, "connects slowly with %c", 'A'+j)
			}
		}
	}
	if len(g.up) > 0 {
		add(func(w *group) { w.deliver(i) }, "reaches its member with %s", words[g.up[0].Kind])
	}
	if len(g.down) > 0 {
		add(func(w *group) { w.take(i) }, "takes %s", words[g.down[0].Kind])
	}
	if w.at(person(i)) >= m.Deadline() {
		act("looks at the clock", func(w *group) { w.clients[i].m.Tick(w.at(person(i))) })
	}
	if len(m.requests) == 0 && (i == 0 || w.later) && w.left.asks > 0 {
		act("asks", func(w *group) { w.left.asks--; w.clients[i].m.Ask(names[0], false, false) })
	}
	for l := range w.locks {
		if g.held[l] != 0 && w.left.releases > 0 {
			act("releases "+names[l], func(w *group) {
				w.left.releases--
				number := w.clients[i].held[l]
				w.clients[i].held[l] = 0
				w.clients[i].m.Drop(w.at(person(i)), number)
			})
		}
	}
	if g.at >= 0 && i == 0 && w.left.breaks > 0 {
		add(func(w *group) { w.left.breaks--; w.unlink(i) }, "is disconnected")
	}
	if w.left.skews > 0 && w.left.time > 0 {
		add(func(w *group) { w.stand(person(i)) }, "has a clock that stands still while time passes")
	}
}

func (w *group) memberSteps(i int, m *life, add func(do func(w *group), format string, args ...any)) {
	for _, s := range m.sessions {
		if w.at(i) >= s.m.Deadline() {
			add(func(w *group) { w.member("sees the session run out", i, s.name, (*Member).Tick) }, "sees %s run out", s.name)
		}
	}
	if !m.knows.has(m.id) {
		return
	}
	if m.knows.epoch != w.record.epoch || m.leaseFrom < w.at(i) || m.lapsed {
		add(func(w *group) { w.learn(i, w.at(i), w.record) }, "asks the record")
	}
	switch {
	case m.op != 0 && m.shown.epoch == 0:
		add(func(w *group) { w.members[i].shown = w.record }, "is shown the record")
	case m.op != 0:
		add(func(w *group) {
			m := &w.members[i]
			op, shown := m.op, m.shown
			m.op, m.shown = 0, card{}
			w.learn(i, op, shown)
		}, "learns of the record")
	case w.left.ops > 0:
		add(func(w *group) { w.left.ops--; w.members[i].op = w.at(i) }, "asks the record slowly")
	}
	if !m.lapsed && w.term(i) == 0 {
		add(func(w *group) { w.lapse(i) }, "has no lease any more")
	}
	if m.knows.unclean > m.cleared && w.at(i) >= m.since+w.drain*unit {
		add(func(w *group) {
			for k := range w.members {
				if w.members[k].knows.has(w.members[k].id) {
					w.members[k].cleared = max(w.members[k].cleared, w.members[i].knows.unclean)
				}
			}
			for k := range w.members {
				for l := range w.locks {
					w.settle(k, l)
				}
			}
		}, "has waited for the leases")
	}
	if m.knows.epoch == w.record.epoch {
		for _, x := range w.record.members {
			if x != m.id && w.left.exclusions > 0 {
				add(func(w *group) { w.left.exclusions--; w.change(i, x, true) }, "excludes %c", 'A'+int(x)-1)
			}
		}
		if w.left.closes > 0 && len(w.record.members) > 1 {
			add(func(w *group) { w.left.closes--; w.close(i) }, "closes")
			if m.parting == nil {
				add(func(w *group) { w.part(i) }, "says its last word")
			}
		}
		if w.left.lies > 0 {
			add(func(w *group) { w.left.lies--; w.lie(i, true) }, "has a false claim, which the client gives back")
			add(func(w *group) { w.left.lies--; w.lie(i, false) }, "has a false claim")
		}
	}
	if w.left.skews > 0 && w.left.time > 0 {
		add(func(w *group) { w.stand(i) }, "has a clock that stands still while time passes")
	}
}

// change takes a member out of the record.
func (w *group) change(by int, x dmutex.NodeID, unclean bool) {
	next := card{epoch: w.record.epoch + 1, unclean: w.record.unclean}
	if unclean {
		next.unclean = next.epoch
	}
	next.members = slices.DeleteFunc(slices.Clone(w.record.members), func(id dmutex.NodeID) bool { return id == x })
	w.record = next
	w.learn(by, w.at(by), next)
}

// part is rule 11: a member that closes says what it has lent. From then on it hears no client.
func (w *group) part(i int) {
	m := &w.members[i]
	m.parting = new(membership.Parting)
	for l := range w.locks {
		for _, t := range slices.Clone(m.waits[l]) {
			w.drop(i, l, t, None)
		}
		if t := m.held[l]; t.session != "" && w.mutant != "forgets-what-it-has-lent" {
			m.parting.Lent = append(m.parting.Lent, membership.Loan{Lock: names[l], Key: t.session})
		}
	}
	slices.SortFunc(m.parting.Lent, func(a, b membership.Loan) int { return strings.Compare(a.Lock, b.Lock) })
}

// moved is rule 12: a client goes on with a member by a claim. All members hear so.
func (w *group) moved(i, l int, t taken) {
	former, loan := t.of[len(t.of)-1], membership.Loan{Lock: names[l], Key: t.via}
	for k := range w.members {
		m := &w.members[k]
		m.past.Free(former, loan)
		if w.mutant == "frees-by-any-claim" || w.mutant == "believes-a-false-claim" {
			m.past.Former = slices.DeleteFunc(slices.Clone(m.past.Former), func(f membership.Former) bool { return f.Node == former })
		}
	}
	for k := range w.members {
		w.settle(k, l)
	}
}

// lie lets a client that may have the first lock claim it falsely, with a session that it has made up. It says
// that it has moved, and may give the lock back.
func (w *group) lie(i int, gives bool) {
	m := NewMember(w.at(i), w.length*unit)
	m.drain = w.wait * unit
	w.members[i].sessions = append(w.members[i].sessions, session{"z", m})
	says := []Message{{Kind: Hello, Session: "z", Number: 1, Fresh: true}, {Kind: Ask, Number: 1, Lock: names[0], Of: []uint64{1}, Session: "y"}, {Kind: Moved, Number: 1}}
	if gives {
		says = append(says, Message{Kind: Bye})
	}
	for _, msg := range says {
		w.member("hears a lie", i, "z", func(m *Member, now int64) { m.Handle(now, w.term(i), &msg) })
	}
}

// close is rule 5: a member with lent locks excludes itself.
func (w *group) close(i int) {
	m := &w.members[i]
	lent := false
	for l := range w.locks {
		for _, t := range slices.Clone(m.waits[l]) {
			w.drop(i, l, t, None)
		}
		lent = lent || m.held[l].session != ""
	}
	w.change(i, m.id, lent && w.mutant != "closes-as-if-nothing-were-lent")
	w.members[i].gone = true
	for c := range w.clients {
		if w.clients[c].at == i {
			w.unlink(c)
		}
	}
	w.members[i].sessions, w.members[i].held = nil, [2]taken{}
}

// join lets a process join: a new one, or one that was excluded.
func (w *group) join() {
	w.left.joins--
	id := dmutex.NodeID(len(w.members) + 1)
	w.record = card{w.record.epoch + 1, w.record.unclean, append(slices.Clone(w.record.members), id)}
	w.members = append(w.members, life{id: id, knows: w.record, leaseFrom: w.now, since: w.now})
}

// learn is an operation on the record that was sent then, and has shown this.
func (w *group) learn(i int, sent int64, r card) {
	m := &w.members[i]
	if r.epoch < m.knows.epoch {
		return
	}
	if m.leaseFrom+w.lease*unit-unit/16 <= w.at(i) && !m.lapsed {
		w.lapse(i) // what a lease has not covered until now ends first
	}
	former := m.knows
	if m.knows = r; !r.has(m.id) {
		m.machines = [2]dmutex.Machine{} // first, so that no message is sent
		if !m.lapsed {
			w.lapse(i)
		}
		m.machines, m.held, m.waits = [2]dmutex.Machine{}, [2]taken{}, [2][]taken{}
		return
	}
	m.leaseFrom = max(m.leaseFrom, sent)
	m.lapsed = w.term(i) == 0 && m.lapsed
	if m.leaseFrom+w.lease*unit-unit/16 > w.at(i) {
		m.lapsed = false
	}
	if r.unclean > former.unclean {
		m.since = w.at(i)
	}
	for l := range w.locks {
		if h := m.held[l]; h.lost && (h.lostAt < sent || w.mutant == "shown-by-an-earlier-operation") {
			w.free(i, l)
		}
	}
	if r.epoch > former.epoch {
		w.freeze(i, former)
	}
}

// freeze ends the machines of the former view, and notes what they know.
func (w *group) freeze(i int, former card) {
	m := &w.members[i]
	if m.machines[0] != nil {
		m.own = membership.Word{Node: m.id, Epoch: former.epoch, Members: former.members}
		for l := range w.locks {
			carryover.Note(&m.own, names[l], m.machines[l], w.newborn(&m.own))
		}
		slices.SortFunc(m.own.Differs, func(a, b membership.Differ) int { return strings.Compare(a.Lock, b.Lock) })
	}
	for k, id := range m.own.Members {
		if !m.knows.has(id) {
			m.own.Of |= 1 << k
		}
	}
	for _, id := range former.members {
		if !m.knows.has(id) && m.knows.unclean > former.unclean {
			f := membership.Former{Node: id, Epoch: m.knows.unclean}
			if word := w.members[id-1].parting; word != nil {
				f.Parting = &membership.Parting{Lent: slices.Clone(word.Lent)}
			}
			m.past.Former = append(slices.Clone(m.past.Former), f)
		}
	}
	for l := range w.locks {
		m.machines[l] = nil
		for _, t := range slices.Clone(m.waits[l]) {
			if t.of != nil {
				w.refuse(i, l, t)
			}
		}
	}
}

// newborn returns what the new machine of a free lock excludes.
func (w *group) newborn(word *membership.Word) uint64 {
	bits, _ := carryover.Excluding(w.machine(word.Node, card{epoch: word.Epoch, members: word.Members}, dmutex.None), word.Members)
	return bits
}

func (w *group) machine(self dmutex.NodeID, view card, holder dmutex.NodeID) dmutex.Machine {
	algorithm := central.New
	if w.witnessed {
		algorithm = central.Witnessed
	}
	m, err := algorithm(dmutex.Start{Self: self, Members: view.members, Holder: holder, Fence: epochs.First(view.epoch), Limit: epochs.Last(view.epoch)})
	if err != nil {
		panic(err)
	}
	return m
}

// begin lets the view of the record act, when all of its members have installed it.
func (w *group) begin() (begun bool) {
	view := w.record
	var past membership.Past
	spoken, cleared := view.unclean == 0, uint64(0)
	holders := [2]dmutex.NodeID{}
	for i := range w.members {
		m := &w.members[i]
		if !view.has(m.id) {
			continue
		}
		if m.gone || m.knows.epoch != view.epoch || m.machines[0] != nil {
			return false
		}
		cleared = max(cleared, m.cleared)
		for l := range w.locks {
			if m.held[l].session != "" {
				holders[l] = m.id
			}
		}
		if m.own.Epoch == 0 {
			continue
		}
		spoken = true
		for _, word := range append(slices.Clone(m.past.Words), m.own) {
			if word.Of != 0 && !slices.ContainsFunc(past.Words, func(o membership.Word) bool { return o.Node == word.Node && o.Epoch == word.Epoch && o.Of == word.Of }) {
				past.Words = append(past.Words, word)
			}
		}
		for _, f := range m.past.Former {
			if !slices.ContainsFunc(past.Former, func(o membership.Former) bool { return o.Node == f.Node }) {
				past.Former = append(past.Former, f)
			}
		}
	}
	if !spoken && cleared < view.unclean {
		return false
	}
	for i := range w.members {
		m := &w.members[i]
		if !view.has(m.id) {
			continue
		}
		m.past = past // all may share its words, so what one hears of a loan that is over, all know
		for l := range w.locks {
			m.machines[l] = w.machine(m.id, view, holders[l])
		}
	}
	for i := range w.members {
		for l := range w.locks {
			if m := &w.members[i]; view.has(m.id) {
				if m.machines[l].Phase() == dmutex.Held && m.held[l].session == "" {
					w.release(i, l) // it was released since the report
				}
				w.settle(i, l)
			}
		}
	}
	return true
}

// former returns the former members that may hold a lock.
func (w *group) former(i, l int) (ids []dmutex.NodeID) {
	m := &w.members[i]
	for _, f := range carryover.About(&m.past).Holders(names[l], false, m.cleared, w.newborn) {
		ids = append(ids, f.Node)
	}
	return ids
}

// send brings the messages of a machine to those of the same view.
func (w *group) send(i, l int, out []dmutex.Message) {
	for _, msg := range slices.Clone(out) {
		to := int(msg.To) - 1
		if r := &w.members[to]; r.machines[l] != nil && r.knows.epoch == w.members[i].knows.epoch && !r.gone {
			back, err := r.machines[l].Handle(msg.Clone())
			if err != nil {
				panic(err)
			}
			w.send(to, l, back)
			w.settle(to, l)
		}
	}
}

func (w *group) release(i, l int) {
	m := &w.members[i]
	m.held[l] = taken{}
	if m.machines[l] != nil && m.machines[l].Phase() == dmutex.Held {
		out, _ := m.machines[l].Release()
		w.send(i, l, out)
	}
}

// settle follows a machine, as package locks does.
func (w *group) settle(i, l int) {
	m := &w.members[i]
	for m.machines[l] != nil && len(m.waits[l]) > 0 {
		switch m.machines[l].Phase() {
		case dmutex.Held:
			switch {
			case m.held[l].session != "":
				return
			case w.term(i) > 0:
				t := m.waits[l][0]
				m.held[l], m.waits[l] = t, m.waits[l][1:]
				fence := m.machines[l].Fence()
				w.member("is granted", i, t.session, func(s *Member, _ int64) { s.Granted(t.number, fence, uint64(m.id)) })
				return
			default:
				w.release(i, l)
			}
		case dmutex.Waiting:
			return
		case dmutex.Idle:
			if w.term(i) == 0 || m.waits[l][0].of == nil && len(w.former(i, l)) > 0 && w.mutant != "others-do-not-wait" {
				return
			}
			out, err := m.machines[l].Request()
			if err != nil {
				panic(err)
			}
			w.send(i, l, out)
		}
	}
}

// ask takes the order of a session, as package locks does.
func (w *group) ask(i, l int, t taken) {
	m := &w.members[i]
	if t.of == nil {
		m.waits[l] = append(m.waits[l], t)
		w.settle(i, l)
		return
	}
	former := w.former(i, l)
	others := slices.ContainsFunc(former, func(id dmutex.NodeID) bool { return !slices.Contains(t.of, id) })
	may := carryover.MayClaim(t.of, m.knows.members, former) && (w.mutant == "believes-a-false-claim" || !carryover.About(&m.past).Refutes(t.of[len(t.of)-1], membership.Loan{Lock: names[l], Key: t.via}))
	switch w.mutant {
	case "passes-every-wait":
		may = may || others
	case "takes-any-claim":
		may = !others
	}
	if m.machines[l] == nil || w.term(i) == 0 || m.held[l].session != "" || m.machines[l].Phase() != dmutex.Idle || !may {
		m.waits[l] = append(m.waits[l], t)
		w.refuse(i, l, t)
		return
	}
	m.waits[l] = append([]taken{t}, m.waits[l]...)
	w.settle(i, l)
}

func (w *group) refuse(i, l int, t taken) {
	m := &w.members[i]
	m.waits[l] = slices.DeleteFunc(slices.Clone(m.waits[l]), func(o taken) bool { return o.is(t.session, t.number) })
	w.member("refuses a claim", i, t.session, func(s *Member, _ int64) { s.Refuse(t.number, Failed, "") })
}

// drop ends a request.
func (w *group) drop(i, l int, t taken, code Code) {
	m := &w.members[i]
	if m.held[l].is(t.session, t.number) {
		if code == None || w.mutant == "frees-at-once" || code == Lapsed && w.mutant == "frees-what-has-lapsed" {
			w.free(i, l)
		} else {
			m.held[l].lost, m.held[l].lostAt = true, w.at(i)
		}
		return
	}
	k := slices.IndexFunc(m.waits[l], func(o taken) bool { return o.is(t.session, t.number) })
	if k < 0 {
		return
	}
	claim := m.waits[l][k].of != nil
	m.waits[l] = slices.Delete(slices.Clone(m.waits[l]), k, k+1)
	if m.machines[l] != nil && m.machines[l].Phase() == dmutex.Waiting && (claim || len(m.waits[l]) == 0) {
		out, _ := m.machines[l].Cancel()
		w.send(i, l, out)
	}
	w.settle(i, l)
}

// free gives a lock back.
func (w *group) free(i, l int) {
	m := &w.members[i]
	if claim := m.held[l].of != nil; claim && len(m.waits[l]) > 0 && w.mutant == "passes-the-grant-on" {
		m.held[l] = taken{} // the machine stays Held
	} else {
		w.release(i, l)
	}
	w.settle(i, l)
}

// lapse ends a member's lease, and with it all sessions.
func (w *group) lapse(i int) {
	m := &w.members[i]
	m.lapsed = true
	for _, s := range slices.Clone(m.sessions) {
		w.member("has lost its locks", i, s.name, func(m *Member, _ int64) { m.End(Lapsed, "") })
	}
}

// member gives a member's side of a session an input, and carries out its output.
func (w *group) member(_ string, i int, name string, input func(m *Member, now int64)) {
	s := w.session(i, name)
	if s == nil {
		return
	}
	m := s.m
	input(m, w.at(i))
	out, orders := m.Output()
	if name != "z" {
		if g := &w.clients[name[0]-'a']; g.at == i && g.m.on().session == name {
			g.down = append(g.down, out...)
		}
	}
	if m.Over() {
		w.members[i].sessions = slices.DeleteFunc(w.members[i].sessions, func(s session) bool { return s.name == name })
	}
	for _, o := range slices.Clone(orders) {
		t := taken{session: name, number: o.Number}
		if o.Kind == Ask {
			for _, id := range o.Of {
				t.of = append(t.of, dmutex.NodeID(id))
			}
			t.via = o.Session
			w.ask(i, slices.Index(names[:], o.Lock), t)
			continue
		}
		if o.Kind == Moved {
			for l := range w.locks {
				if h := w.members[i].held[l]; h.is(name, o.Number) {
					w.moved(i, l, h)
				}
			}
			continue
		}
		for l := range w.locks {
			w.drop(i, l, t, o.Code)
		}
	}
}

func (w *group) session(i int, name string) *session {
	for k := range w.members[i].sessions {
		if s := &w.members[i].sessions[k]; s.name == name {
			return s
		}
	}
	return nil
}

// client gives a client an input, and carries out its output.
func (w *group) client(_ string, i int, input func()) {
	g := &w.clients[i]
	session, home, name := g.m.session, g.home, g.m.on().session
	if w.mutant == "T-does-not-end" && g.m.Trying() {
		g.m.term.Confirm(g.m.overAt-1, w.at(person(i)), g.m.term.Length)
		g.m.overAt = g.m.term.Until()
	}
	input()
	out, news := g.m.Output()
	g.told.hear(g.m, news)
	for _, msg := range out {
		if msg.Kind == Bye { // the connection is closed behind it
			for j := range w.members {
				if j == g.at {
					w.member("ends", j, name, func(m *Member, now int64) { m.Handle(now, w.term(j), &msg) })
				}
			}
		} else if g.at >= 0 {
			g.up = append(g.up, msg)
		}
	}
	for _, e := range news {
		for l := range w.locks {
			switch k := g.m.find(e.Number); {
			case e.Kind == Granted && k >= 0 && g.m.requests[k].lock == names[l] && g.held[l] != e.Number:
				g.held[l] = e.Number
				if e.Fence <= w.top[l] {
					w.top[l] = math.MaxUint64
				} else if w.top[l] != math.MaxUint64 {
					w.top[l] = e.Fence
				}
			case e.Kind == Refused && g.held[l] == e.Number:
				g.held[l] = 0
			}
		}
	}
	if g.at >= 0 && !g.m.Connected() {
		w.unlink(i)
	}
	if g.at >= 0 && !g.m.Trying() {
		g.home = g.at
	}
	if w.mutant == "says-goodbye" && session != "" && g.m.session != session && g.m.session != "" && home >= 0 {
		w.member("ends", home, session, func(m *Member, now int64) { m.Handle(now, w.term(home), &Message{Kind: Bye}) })
	}
}

// last returns the name of the last session of a client.
func (w *group) last(i int) string { return string(rune('a'+i)) + fmt.Sprint(w.clients[i].sessions) }

func (w *group) connect(i, j int) {
	g := &w.clients[i]
	g.at = j
	w.client("connects", i, func() {
		fresh := g.m.session == "" || j != g.home
		if fresh {
			g.sessions++
		}
		g.m.Connect(w.at(person(i)), w.last(i), j != g.home)
	})
}

func (w *group) unlink(i int) {
	g := &w.clients[i]
	g.at, g.slow, g.up, g.down = -1, false, nil, nil
	g.m.Disconnect()
	_, news := g.m.Output()
	g.told.hear(g.m, news)
}

// flow lets everything arrive where the connection is not slow.
func (w *group) flow() {
	for more := true; more; {
		more = w.begin()
		for i := range w.clients {
			for g := &w.clients[i]; !g.slow && len(g.up)+len(g.down) > 0; more = true {
				if len(g.up) > 0 {
					w.deliver(i)
				} else {
					w.take(i)
				}
			}
		}
	}
}

// take brings a message of the member to a client.
func (w *group) take(i int) {
	g := &w.clients[i]
	msg := g.down[0]
	g.down = g.down[1:]
	w.client("takes", i, func() { g.m.Handle(w.at(person(i)), &msg) })
}

// deliver brings a message of a client to the member.
func (w *group) deliver(i int) {
	g := &w.clients[i]
	msg := g.up[0]
	g.up = g.up[1:]
	j, name := g.at, g.m.on().session
	if w.members[j].parting != nil {
		return // it is deaf
	}
	if msg.Kind == Hello {
		name = msg.Session
	}
	if w.session(j, name) == nil {
		if msg.Kind != Hello {
			return
		}
		if !msg.Fresh {
			g.down = append(g.down, Message{Kind: Over, Code: Unknown})
			return
		}
		m := NewMember(w.at(j), w.length*unit)
		m.drain = w.wait * unit
		m.overAt = w.at(j) + m.drain
		w.members[j].sessions = append(w.members[j].sessions, session{name, m})
		slices.SortFunc(w.members[j].sessions, func(a, b session) int { return strings.Compare(a.name, b.name) })
	}
	w.member("takes", j, name, func(m *Member, now int64) {
		if msg.Kind != Hello || m.Newer(msg.Number) {
			m.Handle(now, w.term(j), &msg)
		}
	})
}

var errFell = errors.New("a fence is not higher than one that was granted before")

// wrong checks that at most one client has a valid hold of each lock, that fences rise, and that clients tell
// of their sessions.
func (w *group) wrong() error {
	for i := range w.clients {
		if w.clients[i].told.wrong {
			return search.Wrong(errTold, "%s", w.last(i))
		}
	}
	for l := range w.locks {
		if w.holds(0, l) && w.holds(1, l) {
			return search.Wrong(errTwo, "lock %s", names[l])
		}
		if w.top[l] == math.MaxUint64 {
			return search.Wrong(errFell, "lock %s", names[l])
		}
	}
	return nil
}

func (w *group) Do(step search.Event[*group]) error { return step.Do(w) }

func (w *group) Tell(b []byte, step search.Event[*group], after *group) []byte {
	b = fmt.Appendf(b, "%v\n", step)
	for l := range w.locks {
		for i := range w.clients {
			is := func(w *group) string {
				by := "none"
				if g := &w.clients[i]; g.home >= 0 {
					by = string(rune('A' + g.home))
				}
				if !w.holds(i, l) {
					return "does not hold " + names[l]
				}
				return fmt.Sprintf("holds %s by %s", names[l], by)
			}
			if is(w) != is(after) {
				b = fmt.Appendf(b, "    %c %s\n", 'a'+i, is(after))
			}
		}
		for i := range w.members {
			has := func(w *group) string {
				switch h := w.members[i].held[l]; {
				case h.session == "":
					return "does not have " + names[l]
				case h.lost:
					return "keeps " + names[l] + ", which was lent to " + h.session
				default:
					return "has " + names[l] + " for " + h.session
				}
			}
			if has(w) != has(after) {
				b = fmt.Appendf(b, "    %c %s\n", 'A'+i, has(after))
			}
		}
	}
	return b
}

// exploreGroup visits every state within the bounds.
func exploreGroup(p plan, most int) (search.Report, error) {
	if p.troubles.time == 0 {
		p.troubles.time = 2
	}
	return search.Search[*group, search.Event[*group]]{First: newGroup(p), Limits: search.Limits{MaxStates: most}}.Run()
}
