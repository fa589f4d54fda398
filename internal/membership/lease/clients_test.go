package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
)

// A simClient is a client of the group, with its side of the session as it is shipped and a clock of its own.
// What it holds may outlive the process of its member: it claims that at another one.
type simClient struct {
	*clientsession.Client
	rate     float64
	pausedTo int64
	line     *simLine // its connection, nil if it has none
	home     *simNode // where its session is
	sessions int
	request  uint64 // that it waits for or holds, 0 if none
	held     bool
}

// A simLine is a connection. What was sent on it arrives in order, also after one side has closed it.
type simLine struct {
	client   int
	node     int
	process  uint64
	session  string
	up, down []clientsession.Message
	cut      bool // nothing arrives any more
}

// A simSession is a member's side of a session, as it is shipped.
type simSession struct {
	*clientsession.Member
	name string
	line *simLine // the newest connection
}

// A simLoan is a request of a session: one that waits, or has the lock.
type simLoan struct {
	session string
	number  uint64
	of      []dmutex.NodeID // of a claim
	key     string          // likewise
	lost    bool
	over    int64 // if it is lost: from when on its client surely holds it no more
}

func (l *simLoan) is(session string, number uint64) bool {
	return l != nil && l.session == session && l.number == number
}

// invite brings the clients.
func (w *sim) invite(seed uint64) {
	w.luck = rand.New(rand.NewPCG(seed, 2))
	for i := range w.clients {
		w.guests = append(w.guests, &simClient{Client: clientsession.New("c"), rate: 1 + w.rate*(2*w.luck.Float64()-1)})
		w.after(0, 0, 0, func(*simNode) { w.act(i) })
	}
}

func (w *sim) time(c *simClient) int64 { return int64(float64(w.now) * c.rate) }

// steady is a node's clock without its leaps. It times sessions.
func (w *sim) steady(x *simNode) int64 { return w.clock(x) - x.leapt }

// keeps reports whether a client may rely on what it holds.
func (w *sim) keeps(c *simClient) bool {
	term := c.TermOf(c.request)
	return c.held && w.time(c) < term.Until()
}

// begins checks a hold that begins: nobody else has one.
func (w *sim) begins(who string, view uint64, mine func(x *simNode, c *simClient) bool) {
	for j, y := range w.nodes {
		if !mine(y, nil) && y.Machine != nil && y.holds && w.valid(y) {
			w.wrong = fmt.Sprintf("two holders: %s in %d, and %d in %v", who, view, j+1, viewtest.View(y.View()))
		}
	}
	for j, c := range w.guests {
		if !mine(nil, c) && w.keeps(c) {
			w.wrong = fmt.Sprintf("two holders: %s in %d, and client %d", who, view, j)
		}
	}
	if view < w.highest {
		w.wrong = fmt.Sprintf("a fence falls: %d after %d", view, w.highest)
	}
	w.highest = max(w.highest, view)
}

// act lets a client do something, again and again.
func (w *sim) act(i int) {
	c := w.guests[i]
	if c.pausedTo <= w.now {
		w.client(i, func(now int64) {
			switch {
			case now >= c.Deadline():
				c.Tick(now)
			case c.line != nil && w.luck.IntN(4) == 0 && w.gone(c.line):
				c.Disconnect()
			case c.line == nil && c.Wanting():
				w.connect(i, now)
			case c.request == 0:
				c.request = c.Ask("x", false, false)
			case c.held && w.luck.IntN(60) == 0:
				c.Drop(now, c.request)
				c.request, c.held = 0, false
			case !w.calm && w.luck.IntN(100) == 0:
				w.disturb(c)
			}
		})
	}
	w.after(w.luck.Int64N(20*millisecond), 0, 0, func(*simNode) { w.act(i) })
}

// disturb lets something go wrong: often at the member by which the client holds the lock.
func (w *sim) disturb(c *simClient) {
	switch x := c.home; w.luck.IntN(8) {
	case 0:
		c.pausedTo = w.now + w.luck.Int64N(2*simLease)
	case 1:
		if c.line != nil {
			c.line.cut = true
		}
	case 2:
		c.Disconnect()
	default:
		if !c.held || x.Machine == nil || x.deaf {
			return
		}
		w.after(0, w.index(x), x.process, func(x *simNode) {
			switch i := w.index(x); w.luck.IntN(4) {
			case 0:
				w.crash(i)
			case 1:
				x.awayTo = w.now + w.luck.Int64N(2*simLease)
			default:
				w.leave(i)
			}
		})
	}
}

func (w *sim) gone(l *simLine) bool {
	x := w.nodes[l.node]
	return x.Machine == nil || x.process != l.process
}

func (w *sim) connect(i int, now int64) {
	c := w.guests[i]
	x := c.home
	if c.Elsewhere() {
		x = w.nodes[w.luck.IntN(w.n)]
	}
	if x == nil || x.Machine == nil || w.luck.IntN(10) == 0 {
		c.Unreached()
		return
	}
	c.sessions++
	c.line = &simLine{client: i, node: w.index(x), process: x.process}
	c.Connect(now, fmt.Sprint(i, "/", c.sessions), x != c.home)
	c.line.session = c.Session()
}

func (w *sim) index(x *simNode) int { return int(x.process&0xff) - 1 }

// client gives a client an input, and does what its driver does.
func (w *sim) client(i int, input func(now int64)) {
	c := w.guests[i]
	input(w.time(c))
	out, news := c.Output()
	for _, msg := range out {
		if c.line != nil {
			w.carry(c.line, &c.line.up, msg, w.deliver)
		}
	}
	for _, e := range news {
		switch {
		case e.Number != c.request || c.request == 0:
		case e.Kind == clientsession.Granted && c.held:
			w.claims++
		case e.Kind == clientsession.Granted:
			c.held = true
			w.loans++
			if w.keeps(c) {
				w.begins(fmt.Sprint("client ", i), epochs.Of(e.Fence), func(_ *simNode, o *simClient) bool { return o == c })
			}
		case e.Kind == clientsession.Refused:
			c.request, c.held = 0, false
		}
	}
	if c.line != nil && !c.Connected() {
		c.line = nil
	}
	if c.line != nil && !c.Trying() {
		c.home = w.nodes[c.line.node]
	}
}

// carry sends a message on a connection.
func (w *sim) carry(l *simLine, queue *[]clientsession.Message, msg clientsession.Message, arrive func(l *simLine)) {
	msg.Wants, msg.Of = slices.Clone(msg.Wants), slices.Clone(msg.Of)
	*queue = append(*queue, msg)
	w.after(w.luck.Int64N(3*millisecond), 0, 0, func(*simNode) { arrive(l) })
}

// take brings the next message of a member to the client.
func (w *sim) take(l *simLine) {
	switch c := w.guests[l.client]; {
	case c.line != l || l.cut:
	case c.pausedTo > w.now:
		w.after(c.pausedTo-w.now, 0, 0, func(*simNode) { w.take(l) })
	default:
		msg := l.down[0]
		l.down = l.down[1:]
		w.client(l.client, func(now int64) { c.Handle(now, &msg) })
	}
}

// deliver brings the next message of a client to the member.
func (w *sim) deliver(l *simLine) {
	x := w.nodes[l.node]
	switch {
	case l.cut || w.gone(l) || x.deaf:
		return
	case x.pausedTo > w.now:
		w.after(x.pausedTo-w.now, 0, 0, func(*simNode) { w.deliver(l) })
		return
	}
	w.check(x)
	msg := l.up[0]
	if l.up = l.up[1:]; msg.Kind == clientsession.Hello {
		l.session = msg.Session
	}
	s := w.session(x, l.session)
	if msg.Kind == clientsession.Hello {
		if s == nil && !msg.Fresh {
			w.carry(l, &l.down, clientsession.Message{Kind: clientsession.Over, Code: clientsession.Unknown}, w.take)
			return
		}
		if s == nil {
			s = &simSession{Member: clientsession.NewMember(w.steady(x), simLease), name: l.session}
			x.sessions = append(x.sessions, s)
		}
		if !s.Newer(msg.Number) {
			return
		}
		s.line = l
	}
	if s != nil && s.line == l {
		term := int64(0)
		if w.valid(x) && x.term.Runs() {
			term = max(x.term.Until()-w.clock(x), 0)
		}
		w.member(x, s, func(now int64) { s.Handle(now, term, &msg) })
	}
}

func (w *sim) session(x *simNode, name string) *simSession {
	if k := slices.IndexFunc(x.sessions, func(s *simSession) bool { return s.name == name }); k >= 0 {
		return x.sessions[k]
	}
	return nil
}

// member gives a member's side of a session an input, and does what its driver does.
func (w *sim) member(x *simNode, s *simSession, input func(now int64)) {
	input(w.steady(x))
	out, orders := s.Output()
	for _, msg := range out {
		w.carry(s.line, &s.line.down, msg, w.take)
	}
	if s.Over() {
		x.sessions = slices.DeleteFunc(x.sessions, func(o *simSession) bool { return o == s })
	}
	for _, o := range slices.Clone(orders) {
		switch o.Kind {
		case clientsession.Ask:
			l := &simLoan{session: s.name, number: o.Number, key: o.Session}
			for _, id := range o.Of {
				l.of = append(l.of, dmutex.NodeID(id))
			}
			w.want(x, s, l)
		case clientsession.Moved:
			if l := x.lent; l.is(s.name, o.Number) {
				w.input(w.index(x), func(now int64) membership.Output {
					return x.Move(now, l.of[len(l.of)-1], membership.Loan{Lock: "x", Key: l.key})
				})
			}
		case clientsession.Drop:
			w.drop(x, s.name, o)
		}
	}
}

// want lets a request wait, or takes a claim at once.
func (w *sim) want(x *simNode, s *simSession, l *simLoan) {
	if l.of == nil {
		x.waits = append(x.waits, l)
		return
	}
	var former []dmutex.NodeID
	for _, f := range carryover.About(&x.past).Holders("x", false, x.cleared, unborn) {
		former = append(former, f.Node)
	}
	last, lock := l.of[len(l.of)-1], w.locks[x.view]
	if x.phase != Acting || lock == nil || lock.holder != 0 || !w.mayGrant(x) || carryover.About(&x.past).Refutes(last, membership.Loan{Lock: "x", Key: l.key}) ||
		!carryover.MayClaim(l.of, x.in.Complete.Nodes(), former) {
		w.member(x, s, func(int64) { s.Refuse(l.number, clientsession.Failed, "") })
		return
	}
	w.lend(x, s, lock, l)
}

// unborn is what a new machine excludes here: nobody.
func unborn(*membership.Word) uint64 { return 0 }

func (w *sim) mayGrant(x *simNode) bool { return w.valid(x) && !x.leaving && !x.deaf }

// lend grants the lock to a client.
func (w *sim) lend(x *simNode, s *simSession, lock *simLock, l *simLoan) {
	lock.holder, x.lent, x.fence = x.cfg.Life, l, epochs.First(x.view)+1
	w.member(x, s, func(int64) { s.Granted(l.number, x.fence, uint64(x.self)) })
}

// drop ends a request: by the client's word at once, else when the client surely holds the lock no more.
func (w *sim) drop(x *simNode, session string, o clientsession.Message) {
	x.waits = slices.DeleteFunc(x.waits, func(l *simLoan) bool { return l.is(session, o.Number) })
	if !x.lent.is(session, o.Number) {
		return
	}
	switch {
	case o.Code == clientsession.None || w.mutant == "gives back at once":
		w.repay(x)
	case o.Code == clientsession.Lapsed:
		x.lent.lost, x.lent.over = true, max(w.steady(x), x.lentTo)
		if w.mutant == "ends loans with the lease" {
			x.lent.over = w.steady(x)
		}
	default:
		x.lent.lost, x.lent.over = true, w.steady(x)
	}
}

// repay gives back what was lent.
func (w *sim) repay(x *simNode) {
	x.lent = nil
	if lock := w.locks[x.view]; lock != nil && x.phase == Acting && lock.holder == x.cfg.Life {
		lock.holder = 0 // else it does so when it acts
	}
}

// serve lets sessions run out, and grants the lock to a client if it is free.
func (w *sim) serve(x *simNode) {
	for _, s := range slices.Clone(x.sessions) {
		if w.steady(x) >= s.Deadline() {
			w.member(x, s, s.Tick)
		}
	}
	if lock := w.locks[x.view]; x.phase == Acting && lock != nil && lock.holder == 0 && w.mayGrant(x) && len(x.waits) > 0 && w.luck.IntN(3) > 0 &&
		len(carryover.About(&x.past).Holders("x", false, x.cleared, unborn)) == 0 {
		l := x.waits[0]
		x.waits = x.waits[1:]
		w.lend(x, w.session(x, l.session), lock, l)
	}
}

// lapse ends all sessions of a member that has lost its lease.
func (w *sim) lapse(x *simNode) {
	for _, s := range slices.Clone(x.sessions) {
		w.member(x, s, func(int64) { s.End(clientsession.Lapsed, "") })
	}
}

// renewed notes the end of what clients may be confirmed, and gives back what surely nobody holds.
func (w *sim) renewed(x *simNode, term leases.Term) {
	if x.lent != nil && x.lent.lost && (x.lent.over <= x.askedAt || w.mutant == "gives back by an earlier operation") {
		w.repay(x)
	}
	x.lentTo = max(x.lentTo, w.steady(x)+term.Until()-w.clock(x))
}

// close lets a member leave that serves clients: they hear of it, then the other members hear what is lent, and
// then the record changes.
func (w *sim) close(i int) {
	x := w.nodes[i]
	x.waits = nil
	for _, s := range slices.Clone(x.sessions) {
		w.member(x, s, func(int64) { s.Close() })
	}
	w.after(w.luck.Int64N(simLease/leases.Ask), i, x.process, func(x *simNode) {
		x.deaf = true
		var lent []membership.Loan
		if x.lent != nil && w.mutant != "says that nothing is lent" {
			lent = []membership.Loan{{Lock: "x", Key: x.lent.session}}
		}
		w.input(i, func(now int64) membership.Output { return x.Part(now, lent) })
		w.after(w.luck.Int64N(simLease/leases.Away), i, x.process, func(x *simNode) {
			w.input(i, func(now int64) membership.Output {
				if x.lent != nil && w.mutant != "leaves as if nothing were lent" {
					return x.LeaveHolding(now)
				}
				return x.Leave(now)
			})
		})
	})
}

// LESSONS L8: of five members and their clients, whose clocks run wrong by up to 1 %, at most one holds the lock
// at a time. Holds of clients outlive the processes of their members, which crash, close, are excluded and lose
// their leases, and clients claim them at other members. Clocks of members leap in half of the runs.
func TestSimulateClients(t *testing.T) {
	steps := 1_000_000
	if quicktest.On() {
		steps = 400_000
	}
	for _, leaps := range []bool{false, true} {
		w, done := simulate(simSetup{n: 5, rate: 0.01, leaps: leaps, clients: 4}, 1, steps)
		require.Empty(t, w.wrong, "after %d steps", done)
		t.Logf("%d steps, %v s: %d epochs, %d grants to members and %d to clients, %d claims taken, %d holds outlived their process",
			done, w.now/second, w.highest, w.grants, w.loans, w.claims, w.orphans)
		require.Greater(t, w.loans, 100)
		require.Greater(t, w.claims, 5)
		require.Greater(t, w.orphans, 5)
	}
}

func TestSimulateClientsLong(t *testing.T) {
	machinetest.Long(t)
	for seed := range uint64(10) {
		w, done := simulate(simSetup{n: 5, rate: 0.01, leaps: seed%2 > 0, clients: 4}, 2+seed, 10_000_000)
		require.Empty(t, w.wrong, "seed %d, after %d steps", seed, done)
	}
}

// Without one of the rules for what is lent, two hold the lock.
func TestSimulateClientsMutants(t *testing.T) {
	for name, leaps := range map[string]bool{
		"leaves as if nothing were lent":     false,
		"says that nothing is lent":          false,
		"gives back at once":                 true,
		"gives back by an earlier operation": true,
		"ends loans with the lease":          true,
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := simulate(simSetup{n: 5, rate: 0.01, leaps: leaps, clients: 4, mutant: name}, 1, 1_000_000)
			require.Contains(t, w.wrong, "two holders")
		})
	}
}
