// Package central is the algorithm of the central coordinator: one node grants
// the lock to one request at a time, first come, first served.
//
// Tanenbaum and van Steen, "Distributed Systems", section "Mutual exclusion: a
// centralized algorithm". It is folklore; no paper claims it.
//
// # Theory of operation
//
// A node that wants the critical section sends REQUEST to the coordinator and
// enters when GRANT comes back; when it leaves it sends RELEASE. The
// coordinator grants at once if no node holds the lock, and queues the
// request otherwise. When RELEASE arrives, it grants the head of the queue.
// Any member may be the coordinator, and the coordinator may lock, too: every
// machine has the client's half, one of them also has the coordinator's half,
// and a node sends itself no messages.
//
// Mutual exclusion. The coordinator grants only when the last holder's RELEASE has arrived.
//
// Sharing. Several nodes may be in the critical section together if all of them asked by
// SHARE. A request fits if no node holds the lock alone, and if it shares or no node shares the
// lock. The coordinator grants a request at once if it fits and no other one waits; when RELEASE
// arrives, it grants the head of the queue while that fits. So a request to hold the lock alone
// waits for all that share it, and those that come later wait behind it. While a request
// waits, each node that shares the lock gets one INQUIRE, which tells it that it keeps others out.
//
// A withdrawn REQUEST still gets its turn, which costs nothing. But it must not keep out nodes that
// share. So a node whose REQUEST waits while nodes share the lock gets one INQUIRE, too. From then on
// the request, once it is withdrawn, is over: its node sends RELEASE, which takes it out of the queue. If
// no request waits then, each node that shares the lock gets a second INQUIRE, which says so, and a third
// when another request waits. So that they may overtake each other, each has its number in Clock, counted
// from 0.
//
// Progress. Every GRANT is answered by a RELEASE, and then the head of the queue is
// granted. Requests are granted in the order in which they reach the coordinator.
//
// Order and count. The channels may reorder messages, but not repeat them. An
// entry costs exactly 3 messages, and none for the coordinator's own; sharing adds an INQUIRE for
// each node that shares the lock while another request waits, and one for a REQUEST that waits for
// them. The delay
// is two message hops when no other node is interested, two hops from a release
// to the next entry, and half of that where one end is the coordinator. A crash
// of the coordinator or of the holder stops all nodes. So does a crash of a
// client with a request, withdrawn or not, once its turn comes. A crash of any
// other client stops no other node.
//
// Every message names its request, so that an answer to an earlier request is
// ignored. Fences and canceled requests are as [site.Site] describes.
//
// # The witness
//
// If the coordinator dies, nobody else can tell whether it was in the critical section. In a
// group that excludes dead members, all locks at home with it would wait for its lease. So
// [Witnessed] has a witness for each coordinator, the next member after it, round the end;
// a group of one has none. Where the coordinator would grant the lock to itself, it sends
// REQUEST to the witness, and enters when REPLY comes back. When it leaves, or when REPLY finds
// the request withdrawn, it sends RELEASE. From the REQUEST to its RELEASE the witness
// remembers the request. While it remembers none, the coordinator is not in the critical
// section, and cannot enter without another REPLY: the witness excludes it. A RELEASE of another
// request than the one remembered has been overtaken by that, and is ignored. If the request
// shares, it is SHARE in place of REQUEST.
//
// So the coordinator's entry costs 3 messages, too, and two hops, in addition to those that
// its turn takes. After a crash of the coordinator its locks are known to be free, except
// those that it held, was about to enter, or had granted; only a crash of both, at
// one time, leaves them in doubt. A crash of the witness stops the coordinator's own request,
// and all that wait behind it.
package central

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

type machine struct {
	site.Site
	rule        *rule
	coordinator dmutex.NodeID
	witness     dmutex.NodeID // of the coordinator, or none
	// How many INQUIREs about our request were sent, as far as we know. If it shares, another request waits
	// while this is odd; if not, it keeps out nodes that share unless this is 0.
	inquiries uint64
	// The coordinator's half: the requests that have the lock, one alone or several that share it, and behind them
	// those that wait, first come first, at most one a node. The witness has that of the coordinator.
	asks []ask
	has  int // how many of them have the lock
}

// A rule is what the algorithm was made with. All machines of it share it: there may be many.
type rule struct {
	given     dmutex.NodeID // by At: the coordinator of all locks, or none
	witnessed bool          // by Witnessed; even so, a group of one has no witness
}

// An ask is a request in one of the two modes.
type ask struct {
	dmutex.Stamp
	shares    bool
	inquiries uint64 // how many INQUIREs about it were sent
}

var plain, witnessed = &rule{}, &rule{witnessed: true}

// New is a [dmutex.Algorithm]. [dmutex.Start.Home] is the coordinator.
func New(s dmutex.Start) (dmutex.Machine, error) { return newMachine(s, plain) }

// At returns the algorithm with the given coordinator, for all locks. While that is not a
// member, [dmutex.Start.Home] takes its place. All nodes of a group must give the same one.
func At(coordinator dmutex.NodeID) dmutex.Algorithm {
	at := &rule{given: coordinator}
	return func(s dmutex.Start) (dmutex.Machine, error) { return newMachine(s, at) }
}

// Witnessed is New with a witness for each coordinator. It is a [dmutex.Algorithm], for groups
// that exclude dead members: a crash costs only the locks that the dead member held or asked for.
func Witnessed(s dmutex.Start) (dmutex.Machine, error) { return newMachine(s, witnessed) }

func newMachine(s dmutex.Start, rule *rule) (dmutex.Machine, error) {
	own, err := site.NewShared(s)
	if err != nil {
		return nil, err
	}
	m := &machine{Site: own, rule: rule, coordinator: site.Home(s, rule.given)}
	home, _ := slices.BinarySearch(m.Members(), m.coordinator)
	if next := m.Members()[(home+1)%len(m.Members())]; rule.witnessed && next != m.coordinator {
		m.witness = next
	}
	for _, id := range m.Members() {
		carried := ask{Stamp: dmutex.Stamp{Clock: site.Carried, Node: id}, shares: slices.Contains(s.Sharers, id)}
		switch {
		case id != s.Holder && !carried.shares:
		case m.coordinates():
			m.let(carried)
		case m.witnesses() && id == m.coordinator:
			m.let(carried)
		}
	}
	return m, nil
}

func (m *machine) coordinates() bool { return m.Self() == m.coordinator }

func (m *machine) witnesses() bool { return m.Self() == m.witness }

// granted returns the requests that have the lock, and queue those that wait.
func (m *machine) granted() []ask { return m.asks[:m.has] }
func (m *machine) queue() []ask   { return m.asks[m.has:] }

// let adds a request to those that have the lock, while none waits.
func (m *machine) let(r ask) { m.asks, m.has = append(m.asks, r), m.has+1 }

func (m *machine) Request() ([]dmutex.Message, error) { return m.ask(dmutex.Request) }

// Share implements [dmutex.Sharer].
func (m *machine) Share() ([]dmutex.Message, error) { return m.ask(dmutex.Share) }

func (m *machine) ask(kind dmutex.Kind) ([]dmutex.Message, error) {
	if fresh, err := m.Ask(kind); err != nil || !fresh {
		return nil, err
	}
	m.say(kind, m.coordinator, m.Stamp())
	return m.Out(), nil
}

func (m *machine) Release() ([]dmutex.Message, error) {
	over, err := m.Leave()
	if err != nil {
		return nil, err
	}
	m.leave(over)
	return m.Out(), nil
}

// Cancel implements [dmutex.Machine].
func (m *machine) Cancel() ([]dmutex.Message, error) {
	if _, err := m.Site.Cancel(); err != nil {
		return nil, err
	}
	m.tryWithdraw()
	return m.Out(), nil
}

func (m *machine) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if _, err := m.Check(msg, m.impossible); err != nil {
		return nil, err
	}
	m.Witness(0, msg.Fence)
	about := dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}
	if msg.Kind == dmutex.Grant || msg.Kind == dmutex.Reply || msg.Kind == dmutex.Inquire {
		about.Node = msg.To
	}
	if msg.Kind == dmutex.Inquire {
		m.inquired(about, msg.Clock+1)
	} else {
		m.hear(msg.Kind, about)
	}
	return m.Out(), nil
}

func (m *machine) say(kind dmutex.Kind, to dmutex.NodeID, r dmutex.Stamp) {
	if to == m.Self() {
		m.hear(kind, r)
	} else {
		m.Send(kind, to, r.Clock)
	}
}

func (m *machine) hear(kind dmutex.Kind, r dmutex.Stamp) {
	switch {
	case kind == dmutex.Grant || kind == dmutex.Reply:
		m.enter(r)
	case kind == dmutex.Release && m.coordinates():
		m.release(r)
	case kind == dmutex.Release: // this node is the witness
		m.forget(r)
	case m.coordinates():
		m.request(ask{Stamp: r, shares: kind == dmutex.Share})
	default:
		m.remember(ask{Stamp: r, shares: kind == dmutex.Share})
	}
}

// The client's half.

// enter enters if the GRANT, or the witness's REPLY, is for the pending request.
func (m *machine) enter(r dmutex.Stamp) {
	if !m.Pending() || m.Stamp() != r {
		return
	}
	if withdrawn := m.Enter(); withdrawn {
		m.leave(r)
	}
}

// leave tells the nodes that know of the grant that it is over.
func (m *machine) leave(over dmutex.Stamp) {
	m.inquiries = 0
	m.say(dmutex.Release, m.coordinator, over)
	if m.coordinates() && m.witness != dmutex.None {
		m.Send(dmutex.Release, m.witness, over.Clock)
	}
}

// inquired hears of the n-th INQUIRE about a request.
func (m *machine) inquired(r dmutex.Stamp, n uint64) {
	if r == m.Stamp() {
		m.inquiries = max(m.inquiries, n)
		m.tryWithdraw()
	}
}

// tryWithdraw ends a withdrawn request that keeps out nodes that share. If it has been granted
// meanwhile, the RELEASE serves as well.
func (m *machine) tryWithdraw() {
	if m.inquiries == 0 || m.asksWitness() {
		return
	}
	if over, withdrawn := m.Withdraw(); withdrawn {
		m.inquiries = 0
		m.say(dmutex.Release, m.coordinator, over)
	}
}

// The coordinator's half.

// request grants or queues; a repeated or outdated REQUEST is ignored. A new one may have overtaken
// the RELEASE of one that was withdrawn.
func (m *machine) request(r ask) {
	if waits := m.waiting(r.Node); waits != 0 && waits < r.Clock {
		m.release(dmutex.Stamp{Clock: waits, Node: r.Node})
	}
	switch {
	case m.knows(r.Stamp):
	case len(m.queue()) == 0 && m.fits(r):
		m.let(r)
		m.grant(r)
	default:
		m.asks = append(m.asks, r)
		m.inquire()
	}
}

// fits reports whether a request conflicts with none that is granted.
func (m *machine) fits(r ask) bool {
	return len(m.granted()) == 0 || r.shares && m.granted()[0].shares
}

// knows reports whether this request of its node, or a later one, waits or is granted. A later one
// may also have overtaken the RELEASE of the one that is granted.
func (m *machine) knows(r dmutex.Stamp) bool {
	return m.waiting(r.Node) != 0 ||
		slices.ContainsFunc(m.granted(), func(g ask) bool { return g.Node == r.Node && g.Clock >= r.Clock })
}

// waiting returns the number of a node's request in the queue, 0 if none.
func (m *machine) waiting(node dmutex.NodeID) uint64 {
	for _, r := range m.queue() {
		if r.Node == node {
			return r.Clock
		}
	}
	return 0
}

// place returns the place of a request among others, -1 if it is none of them.
func place(all []ask, r dmutex.Stamp) int {
	return slices.IndexFunc(all, func(a ask) bool { return a.Stamp == r })
}

// release takes a request out, whether it is granted or waits.
func (m *machine) release(r dmutex.Stamp) {
	i := place(m.asks, r)
	if i < 0 {
		return
	}
	if m.asks = slices.Delete(m.asks, i, i+1); i < m.has {
		m.has--
	}
	for len(m.queue()) > 0 && m.fits(m.queue()[0]) {
		next := m.queue()[0]
		m.has++
		m.grant(next)
	}
	m.inquire()
}

func (m *machine) grant(r ask) {
	switch {
	case r.Node != m.Self() || m.witness == dmutex.None:
		m.say(dmutex.Grant, r.Node, r.Stamp)
	case r.shares:
		m.Send(dmutex.Share, m.witness, r.Clock)
	default:
		m.Send(dmutex.Request, m.witness, r.Clock)
	}
}

// inquire tells each node that shares the lock whether a request waits, and each node whose request
// waits for those, once, that it keeps out nodes that share.
func (m *machine) inquire() {
	waits := len(m.queue()) > 0
	for i := range m.granted() {
		if g := &m.granted()[i]; g.shares && waits != (g.inquiries%2 == 1) {
			m.tell(g)
		}
	}
	for i := 0; i < len(m.queue()) && m.granted()[0].shares; i++ {
		if q := &m.queue()[i]; !q.shares && q.inquiries == 0 {
			m.tell(q) // our own may be over now, and all was told
		}
	}
}

func (m *machine) tell(a *ask) {
	a.inquiries++
	if a.Node == m.Self() {
		m.inquired(a.Stamp, a.inquiries)
	} else {
		m.Send(dmutex.Inquire, a.Node, a.Clock).Clock = a.inquiries - 1
	}
}

// The witness's half.

// seen is the request of the coordinator that the witness remembers, or zero.
func (m *machine) seen() (r ask) {
	if m.witnesses() && m.has > 0 {
		r = m.asks[0]
	}
	return r
}

// remember agrees that the coordinator enters; a repeated or outdated request is ignored.
func (m *machine) remember(r ask) {
	if r.Clock > m.seen().Clock {
		m.forget(m.seen().Stamp)
		m.let(r)
		m.Send(dmutex.Reply, r.Node, r.Clock)
	}
}

func (m *machine) forget(r dmutex.Stamp) {
	if r == m.seen().Stamp {
		m.asks, m.has = m.asks[:0], 0
	}
}
