package lease

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
	"github.com/dmutex/dmutex/internal/search"
)

// A sim is a group with a record, with one lock, in true time. Its members have
// clocks of their own. The store may be slow, away, or silent about what it has done.
// Links come and go, and processes pause, crash and leave.
type sim struct {
	simSetup
	*rand.Rand
	now    int64
	events search.Agenda[simEvent]
	count  int
	nodes  []*simNode
	cut    [][]bool // the link between two nodes is down
	calm   bool     // nothing goes wrong any more

	value   []byte // what the store has
	version int
	history int                      // how often it lost everything
	swaps   int                      // that were tried
	awayTo  int64                    // until when it answers nobody
	numbers map[uint64]dmutex.NodeID // that it has given, by life
	living  map[string]int64         // its lives, and until when each lasts

	locks   map[uint64]*simLock // by epoch
	highest uint64              // in which something was granted
	grants  int
	lives   uint64
	wrong   string

	guests  []*simClient
	luck    *rand.Rand // of what they do
	loans   int        // grants to clients
	claims  int        // that other members have taken
	orphans int        // holds that have outlived the process of their member
}

type simSetup struct {
	n     int
	rate  float64 // how wrong a clock's rate may be
	drain int64   // in place of D, if not 0
	leaps bool    // now and then a clock is set forward by up to two leases
	mute  bool    // and the machine is not told

	proves  bool // the store can prove that a process is dead
	loses   int  // so many of a hundred answers of the store are lost
	forgets bool // a life forgets that an earlier join may have been done
	wipes   bool // now and then the store loses everything, and says so
	silent  bool // but does not say it to a process that may have a record from before

	clients int    // that the members serve
	mutant  string // a rule of theirs that is left out
}

const simLease int64 = 2 * second

// A simLock is the lock of one view; it is perfect.
type simLock struct{ holder uint64 } // a life, 0 if it is free

// A simNode is a place for one life after the other, and the driver of the present one.
type simNode struct {
	*Machine
	process  uint64 // its first life
	born     int64
	rate     float64
	leapt    int64 // that the clock was set forward
	pausedTo int64
	awayTo   int64 // until when the store does not answer it
	version  int   // the one that the life saw last
	history  int   // that of the store when it last answered the process; -1 if it has not
	op       int   // the count of the operation under way
	holds    bool
	fence    uint64
	lost     int // how often a lease ended under a lock
	phase    Phase
	view     uint64
	whole    bool             // what it tells of that is to be
	acted    uint64           // the view that acted last here, since another was frozen; 0 if none did
	word     *membership.Word // about the view that acted last; nil while it acts
	timerAt  int64            // true time of the next Tick, if it is not superseded

	sessions []*simSession
	waits    []*simLoan
	lent     *simLoan // the hold of a client, nil if there is none
	lentTo   int64    // no client was confirmed a hold for longer, by the steady clock
	askedAt  int64    // when the operation under way was sent, likewise
	deaf     bool     // it has said its last word
}

type simEvent struct {
	n       int
	node    int
	process uint64 // 0 for any
	do      func(x *simNode)
}

func newSim(s simSetup, seed uint64) *sim {
	w := &sim{simSetup: s, Rand: rand.New(rand.NewPCG(seed, 1)), locks: map[uint64]*simLock{},
		numbers: map[uint64]dmutex.NodeID{}, living: map[string]int64{}}
	for i := range s.n {
		w.cut = append(w.cut, make([]bool, s.n))
		w.nodes = append(w.nodes, &simNode{})
		w.start(i)
	}
	w.after(w.between(0, second), 0, 0, func(*simNode) { w.chaos() })
	w.invite(seed)
	return w
}

func (w *sim) between(low, high int64) int64 { return low + w.Int64N(high-low) }

// after lets something happen at a node, if the same process is there then. It waits while
// the process is paused.
func (w *sim) after(delay int64, node int, process uint64, do func(x *simNode)) {
	w.count++
	w.events.Plan(w.now+delay, simEvent{w.count, node, process, do})
}

// step lets the next thing happen.
func (w *sim) step() {
	at, e := w.events.Take()
	w.now = max(w.now, at)
	switch x := w.nodes[e.node]; {
	case e.process == 0:
		e.do(nil)
	case x.Machine == nil || x.process != e.process:
	case x.pausedTo > w.now:
		w.after(x.pausedTo-w.now+int64(e.n%1000), e.node, e.process, e.do)
	default:
		e.do(x)
	}
}

// life draws a life for a place.
func (w *sim) life(i int) uint64 {
	w.lives++
	return w.lives<<8 | uint64(i+1)
}

func (w *sim) start(i int) {
	life := w.life(i)
	x := &simNode{process: life, born: w.now, history: -1, rate: 1 + w.rate*[]float64{-1, 1, 2*w.Float64() - 1}[w.IntN(3)]}
	m, err := New(Config{Life: life, Lease: simLease, Proves: w.proves, Serves: w.clients > 0})
	if err != nil {
		panic(err)
	}
	if x.Machine = m; w.drain != 0 {
		m.drain, m.wait = w.drain, w.drain
	}
	w.nodes[i] = x
	w.input(i, func(now int64) membership.Output { return m.Tick(now) })
	w.after(0, i, life, func(x *simNode) { w.use(i, x) })
	w.after(0, i, life, func(x *simNode) { w.probe(i, x) })
	if w.proves {
		w.after(0, i, life, func(x *simNode) { w.look(i, x) })
	}
	if w.leaps {
		w.after(w.between(0, 20*second), i, life, func(x *simNode) { w.leap(i, x) })
	}
}

// leap sets the clock of a life forward.
func (w *sim) leap(i int, x *simNode) {
	by := w.between(0, 2*simLease)
	x.leapt += by
	if !w.mute {
		x.Leapt(by)
	}
	w.input(i, x.Tick)
	w.after(w.between(0, 20*second), i, x.process, func(x *simNode) { w.leap(i, x) })
}

// clock returns what a node's clock shows now.
func (w *sim) clock(x *simNode) int64 { return int64(float64(w.now-x.born)*x.rate) + x.leapt }

// valid reports whether a node may hold something.
func (w *sim) valid(x *simNode) bool { return w.clock(x) < x.LeaseEnd() }

// place returns where a life runs, nil if it does not.
func (w *sim) place(life uint64) (int, *simNode) {
	i := int(life&0xff) - 1
	if x := w.nodes[i]; x.Machine != nil && x.cfg.Life == life {
		return i, x
	}
	return i, nil
}

// input gives a machine an input, and does what a driver does.
func (w *sim) input(i int, do func(now int64) membership.Output) {
	x := w.nodes[i]
	w.check(x)
	if w.wipes { // else a new record would have the epochs of a lost one
		x.Clock(uint64(w.now / millisecond))
	}
	if w.forgets {
		x.asked = dmutex.None
	}
	var ask Ask
	out := do(w.clock(x))
	for next := w.follow(i, x, out, &ask); next != nil; next = w.follow(i, x, next(), &ask) {
	}
	if ask.Op != NoOperation {
		w.operate(i, x, ask.Op, ask.Value)
	}
	if x.phase = x.Phase(); x.phase == Left || x.phase == Stopped {
		if x.phase == Stopped {
			w.wrong = "stopped: " + x.Err().Error()
		}
		w.retire(x)
		w.nodes[i].Machine = nil
		w.after(w.between(0, second), 0, 0, func(*simNode) { w.start(i) })
		return
	}
	if at := x.Deadline(); at != due.Never {
		if due := x.born + int64(float64(at-x.leapt)/x.rate) + 1; due != x.timerAt {
			x.timerAt = due
			w.after(max(due-w.now, 0), i, x.process, func(x *simNode) {
				if x.timerAt == due {
					x.timerAt = 0
					w.input(i, x.Tick)
				}
			})
		}
	}
}

// follow does what an output says, and returns the input that it calls for. It notes what the store is asked.
func (w *sim) follow(i int, x *simNode, out membership.Output, ask *Ask) (next func() membership.Output) {
	w.post(x, out.Messages)
	for _, e := range out.Events {
		switch e := e.(type) {
		case Excluded:
			x.holds, x.acted, x.word, x.view, x.lent, x.waits = false, 0, nil, 0, nil, nil
			w.lapse(x)
			w.retire(x)
			next = func() membership.Output { return x.Rejoin(w.clock(x), w.life(i)) }
		case membership.Installed:
			x.view, x.whole = e.View.Epoch, e.Whole
			next = func() membership.Output { return w.report(x) }
		case membership.Acts:
			x.word = nil
			if x.acted = x.view; w.locks[x.view] == nil {
				w.locks[x.view] = &simLock{}
				if holders := viewtest.Carried(e.Holdings...); len(holders) > 0 {
					w.locks[x.view].holder = e.View.Life(holders[0].Node)
				}
			}
		case Renewed:
			w.renewed(x, e.Term)
		case Ask:
			*ask = e
		}
	}
	return next
}

// report freezes the former view.
func (w *sim) report(x *simNode) membership.Output {
	var holds []membership.Hold
	held := x.holds || x.lent != nil
	if held {
		holds = []membership.Hold{{Lock: "x", Fence: x.fence}}
	}
	if x.acted != 0 {
		x.word = &membership.Word{Node: x.self, Epoch: x.acted, Members: x.in.Complete.Nodes()}
		if x.acted = 0; held {
			x.word.Differs = []membership.Differ{{Lock: "x", Bits: math.MaxUint64}}
		}
	}
	word := x.word
	if word != nil && !x.whole {
		word = &membership.Word{Node: word.Node, Epoch: word.Epoch, Members: word.Members, Brief: true}
		if len(x.word.Differs) == 0 { // what it says must not matter
			word.Differs = []membership.Differ{{Lock: "x", Bits: math.MaxUint64}}
		}
	}
	return x.Report(w.clock(x), holds, word)
}

// check ends a hold without a valid lease.
func (w *sim) check(x *simNode) {
	if x.holds && !w.valid(x) {
		x.holds = false
		x.lost++
	}
	if len(x.sessions) > 0 && !w.valid(x) {
		w.lapse(x)
	}
}

func (w *sim) post(x *simNode, out []membership.Message) {
	for _, msg := range out {
		from, to := x.cfg.Life, x.peer(msg.To).life
		w.after(w.between(0, 3*millisecond), 0, 0, func(*simNode) { w.arrive(from, to, msg) })
	}
}

// arrive delivers a message, or keeps it while the link is down, or its sender is not
// known yet.
func (w *sim) arrive(from, to uint64, msg membership.Message) {
	i, x := w.place(from)
	j, y := w.place(to)
	later := func() { w.after(50*millisecond, 0, 0, func(*simNode) { w.arrive(from, to, msg) }) }
	switch {
	case y == nil:
	case w.cut[i][j] || y.pausedTo > w.now:
		later()
	case y.Self() != msg.To:
	case y.peer(msg.From) == nil:
		if x != nil && x.Self() == msg.From && x.peer(msg.To) != nil {
			later()
		}
		w.input(j, y.Hint)
	default:
		w.input(j, func(now int64) membership.Output {
			out, err := y.Handle(now, msg)
			if err != nil {
				w.wrong = "refused: " + err.Error()
			}
			return out
		})
	}
}

// operate carries an operation to the store, and its outcome back, unless the driver has
// given it up before.
func (w *sim) operate(i int, x *simNode, op Operation, value []byte) {
	x.op++
	x.askedAt = w.steady(x)
	n, process, version := x.op, x.process, x.version
	ended := func(delay int64, do func(x *simNode)) {
		w.after(delay, i, process, func(x *simNode) {
			if x.op == n {
				x.op++
				do(x)
			}
		})
	}
	trip := func() int64 {
		if !w.calm && w.IntN(30) == 0 {
			return w.between(0, 2*simLease)
		}
		return w.between(0, 3*millisecond)
	}
	answer := func(do func(x *simNode)) {
		if w.loses == 0 || w.IntN(100) >= w.loses {
			ended(trip(), do)
		}
	}
	done := func(x *simNode, value []byte, err error) {
		w.input(i, func(now int64) membership.Output { return x.Done(now, value, err) })
	}
	ended(simLease/4, func(x *simNode) { done(x, nil, errUnknown) })
	w.after(trip(), 0, 0, func(*simNode) {
		if op == Swap {
			w.swaps++
		}
		switch {
		case w.now < w.awayTo || w.now < w.nodes[i].awayTo:
		case op == Load:
			value, version, history := w.value, w.version, w.history
			answer(func(x *simNode) {
				before := x.history
				x.version, x.history = version, history
				switch {
				case before >= 0 && before != history && !w.silent, value == nil && history > 0:
					if value != nil {
						x.version = -1 // it is for a new record
					}
					done(x, nil, ErrForgotten)
				default:
					done(x, value, nil)
				}
			})
		case op == Live:
			answer(func(x *simNode) {
				name := storeLife(x.cfg.Life)
				w.living[name] = math.MaxInt64
				done(x, []byte(name), nil)
			})
		case w.version != version:
			answer(func(x *simNode) { done(x, nil, ErrConflict) })
		default:
			w.version++
			w.writes(value)
			version := w.version
			answer(func(x *simNode) {
				x.version = version
				done(x, nil, nil)
			})
		}
	})
}

// writes writes a record. Some of the lives that it excludes lose the store just then: it is the worst
// moment. No life is given two numbers.
func (w *sim) writes(value []byte) {
	var r Record
	if err := r.UnmarshalText(value); err != nil {
		panic(err)
	}
	w.value = value
	for _, e := range r.Members {
		if number := w.numbers[e.Life]; number != dmutex.None && number != e.Node {
			w.wrong = fmt.Sprintf("a life is a member twice: %d, as %v and %v", e.Life, number, e.Node)
		}
		w.numbers[e.Life] = e.Node
	}
	for _, x := range w.nodes {
		if x.Machine != nil && x.self != dmutex.None && r.number(x.cfg.Life) == dmutex.None && !w.calm && w.IntN(2) == 0 {
			x.awayTo = w.now + 2*simLease
		}
	}
}

// look tells a machine which lives of the store there are, again and again.
func (w *sim) look(i int, x *simNode) {
	if x.Provable() {
		unclean := x.record.Unclean
		w.after(w.between(0, 3*millisecond), 0, 0, func(*simNode) {
			var names []string
			for name, until := range w.living {
				if until > w.now {
					names = append(names, name)
				}
			}
			w.after(w.between(0, 3*millisecond), i, x.process, func(x *simNode) {
				w.input(i, func(now int64) membership.Output { return x.Living(now, unclean, names) })
			})
		})
	}
	w.after(w.between(10*millisecond, 100*millisecond), i, x.process, func(x *simNode) { w.look(i, x) })
}

// retire ends a life of the store when nothing can be held by it any more.
func (w *sim) retire(x *simNode) {
	if x.proof != "" {
		w.living[x.proof] = w.now + simLease
	}
}

// use lets a node use the lock, again and again.
func (w *sim) use(i int, x *simNode) {
	w.check(x)
	w.serve(x)
	lock := w.locks[x.view]
	switch {
	case x.lent != nil:
	case x.phase != Acting || lock == nil:
	case x.holds:
		if w.IntN(10) == 0 {
			x.holds, lock.holder = false, 0
		}
	case lock.holder == x.cfg.Life:
		lock.holder = 0
	case lock.holder == 0 && w.mayGrant(x) && len(carryover.About(&x.past).Holders("x", false, x.cleared, unborn)) == 0:
		lock.holder, x.holds, x.fence = x.cfg.Life, true, epochs.First(x.view)+1
		w.grants++
		w.begins(fmt.Sprint(i+1), x.view, func(y *simNode, _ *simClient) bool { return y == x })
	}
	w.after(w.between(millisecond, 10*millisecond), i, x.process, func(x *simNode) { w.use(i, x) })
}

// probe tells a machine which peers are there, again and again.
func (w *sim) probe(i int, x *simNode) {
	for _, e := range x.Record().Members {
		if p := x.peer(e.Node); p != nil {
			j, y := w.place(p.life)
			switch there := y != nil && !w.cut[i][j] && y.pausedTo <= w.now; {
			case there && !p.here:
				w.input(i, func(now int64) membership.Output { return x.Met(now, e.Node, e.Life) })
			case !there && p.here:
				w.input(i, func(now int64) membership.Output { return x.Lost(now, e.Node) })
			}
			if x.Machine == nil {
				return
			}
		}
	}
	w.after(w.between(10*millisecond, 100*millisecond), i, x.process, func(x *simNode) { w.probe(i, x) })
}

// chaos does something bad, or mends something, again and again.
func (w *sim) chaos() {
	if w.calm {
		return
	}
	i, j := w.IntN(w.n), w.IntN(w.n)
	x := w.nodes[i]
	if w.wipes && w.IntN(20) == 0 {
		w.value, w.version, w.history = nil, w.version+1, w.history+1
	}
	switch w.IntN(8) {
	case 0, 1, 2: // a node can reach the store and nobody else, or all others
		down := w.IntN(2) == 0
		for j := range w.n {
			w.cut[i][j], w.cut[j][i] = down && i != j, down && i != j
		}
	case 3:
		w.cut[i][j] = w.IntN(2) == 0 && i != j
		w.cut[j][i] = w.cut[i][j]
	case 4:
		x.pausedTo = w.now + w.between(0, 3*simLease)
	case 5:
		if x.Machine != nil {
			w.crash(i)
		}
	case 6:
		if x.Machine != nil && x.pausedTo <= w.now {
			if w.IntN(2) == 0 {
				w.leave(i)
			} else {
				w.input(i, func(now int64) membership.Output { return x.Trouble(now, x.view) })
			}
		}
	case 7:
		w.awayTo = w.now + w.between(0, 2*simLease)
	}
	oldest := w.highest
	for _, x := range w.nodes {
		if x.Machine != nil && x.view > 0 {
			oldest = min(oldest, x.view)
		}
	}
	for epoch := range w.locks {
		if epoch < oldest {
			delete(w.locks, epoch)
		}
	}
	most := simLease
	if w.clients > 0 { // which bring about enough
		most *= 5
	}
	w.after(w.between(0, most), 0, 0, func(*simNode) { w.chaos() })
}

// leave lets a node release the lock and leave.
func (w *sim) leave(i int) {
	x := w.nodes[i]
	if lock := w.locks[x.view]; lock != nil && lock.holder == x.cfg.Life && x.lent == nil {
		lock.holder = 0
	}
	x.holds = false
	if w.clients > 0 {
		w.close(i)
		return
	}
	w.input(i, x.Leave)
}

func (w *sim) crash(i int) {
	for _, c := range w.guests {
		if c.home == w.nodes[i] && w.keeps(c) {
			w.orphans++
		}
	}
	delete(w.living, w.nodes[i].proof)
	w.nodes[i].Machine = nil
	w.after(w.between(0, 3*simLease), 0, 0, func(*simNode) { w.start(i) })
}

// well reports whether all lives are the members of one view and act in it.
func (w *sim) well() bool {
	return !slices.ContainsFunc(w.nodes, func(x *simNode) bool {
		return x.Machine == nil || x.phase != Acting || x.view != w.nodes[0].view || len(x.View().Members) != w.n || !w.valid(x)
	})
}

// simulateLeases takes so many steps, or stops when something is wrong. After each
// hundred thousand steps faults pause, and all must be well soon.
func simulate(s simSetup, seed uint64, steps int) (w *sim, done int) {
	w = newSim(s, seed)
	for done < steps && w.wrong == "" {
		for range min(100_000, steps) {
			w.step()
			if done++; w.wrong != "" {
				return w, done
			}
		}
		w.calm, w.awayTo = true, 0
		for i := range w.cut {
			clear(w.cut[i])
		}
		for until := w.now + 120*second; !w.well() && w.wrong == ""; done++ {
			if w.step(); w.now > until {
				w.wrong = "stuck: the members do not act in one view"
			}
		}
		w.calm = false
		w.after(0, 0, 0, func(*simNode) { w.chaos() })
	}
	return w, done
}

// LESSONS L8: of five members whose clocks run wrong by up to 1 %, at most one holds the lock at a
// time, whatever happens to them, the links and the store. Once nothing more goes wrong, all act
// again. DMUTEX_LONG=1 makes a hundred million steps.
func TestSimulate(t *testing.T) {
	requireRight(t, simSetup{n: 5, rate: 0.01}, 1, 1_000_000)
}

// The same holds if clocks are set forward and the machine is told. If it is not told, two
// members hold the lock.
func TestSimulateLeaps(t *testing.T) {
	requireRight(t, simSetup{n: 5, rate: 0.01, leaps: true}, 1, 300_000)
	w, _ := simulate(simSetup{n: 5, rate: 0.01, leaps: true, mute: true}, 7, 300_000)
	require.Contains(t, w.wrong, "two holders")
}

// The same holds if the store can prove that a process is dead, and a third of its answers is lost. A life is
// a member twice if it forgets that a join without an answer may have been done.
func TestSimulateLostAnswers(t *testing.T) {
	requireRight(t, simSetup{n: 5, rate: 0.01, proves: true, loses: 30}, 1, 300_000)
	w, _ := simulate(simSetup{n: 5, rate: 0.01, proves: true, loses: 30, forgets: true}, 1, 300_000)
	require.Contains(t, w.wrong, "a life is a member twice")
}

// The same holds if the store loses everything now and then, and says so. A process that is not told stops.
func TestSimulateForgotten(t *testing.T) {
	requireRight(t, simSetup{n: 5, rate: 0.01, wipes: true}, 1, 300_000)
	requireRight(t, simSetup{n: 5, rate: 0.01, wipes: true, proves: true, loses: 30}, 1, 300_000)
	requireRight(t, simSetup{n: 5, rate: 0.01, wipes: true, leaps: true}, 1, 300_000)
	w, _ := simulate(simSetup{n: 5, rate: 0.01, wipes: true, silent: true}, 1, 300_000)
	require.Contains(t, w.wrong, "stopped: ")
}

func TestSimulateLong(t *testing.T) {
	machinetest.Long(t)
	for seed := range uint64(10) {
		requireRight(t, simSetup{n: 5, rate: 0.01, wipes: true, leaps: seed%2 > 0, proves: seed%4 > 1, loses: int(seed%3) * 20}, 100+seed, 3_000_000)
		requireRight(t, simSetup{n: 5, rate: 0.01, leaps: seed%2 > 0, proves: seed%4 > 1, loses: int(seed%3) * 20}, 2+seed, 10_000_000)
	}
}

func requireRight(t *testing.T, setup simSetup, seed uint64, steps int) {
	t.Helper()
	w, done := simulate(setup, seed, steps)
	require.Empty(t, w.wrong, "seed %d, after %d steps", seed, done)
	require.Greater(t, w.grants, steps/200)
	require.Greater(t, int(w.highest), steps/2500)
	t.Logf("seed %d: %d steps, %v, %d epochs, %d lives, %d grants", seed, done, w.now/second, w.highest, w.lives, w.grants)
}

// Two members hold the lock if the wait lacks the factor for the rates of the clocks, or if the rates exceed their bound.
func TestRatesMatter(t *testing.T) {
	for _, tt := range []struct {
		setup simSetup
		seed  uint64
	}{
		{simSetup{n: 5, rate: 0.01, drain: simLease}, 16},
		{simSetup{n: 5, rate: 0.05}, 4},
	} {
		w, _ := simulate(tt.setup, tt.seed, 1_000_000)
		require.Contains(t, w.wrong, "two holders")
	}
}
