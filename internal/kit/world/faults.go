package world

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/stall"
	"github.com/dmutex/dmutex/internal/kit/storm"
	"github.com/dmutex/dmutex/internal/kit/streamnet"
	"github.com/dmutex/dmutex/internal/membership/lease"
	"github.com/dmutex/dmutex/node"
)

// A plan is what the seed draws: what the world is like, and what lasts for the whole run.
type plan struct {
	strict    bool // the mode
	algorithm algorithms.Algorithm
	members   int           // how many places for members there are
	clients   int           // 0: the members serve none
	lockers   int           // processes that take locks in records
	locks     int           // of the group
	records   int           // each is one lock
	callers   int           // of each process
	proves    bool          // the stores prove deaths
	session   time.Duration // of clients; 0 for a lease
	deadlock  time.Duration // see node.Config
	think     time.Duration // the longest pause of a caller
	events    int
	pace      time.Duration // the longest pause between two of them

	tcp      bool           // links and clients are over streams
	path     streamnet.Path // of them
	secure   bool           // TCP is
	overNATS bool           // links and clients are over NATS
	again    time.Duration  // how long nats.go waits before it connects again
	loses    float64        // of what a server of NATS carries
	frames   frames
	stores   stores

	wires       time.Duration // how long what a client and its member write takes at most
	longHolds   bool
	lateHolders bool
	panics      bool
	busy        bool
	claims      bool // clients are many, hold for long, and lose their members
	sets        bool // the wall clocks, so no record is lost: only they tell then which fences are higher
	observers   bool
	traces      bool // of members
	carries     bool // the links: a frame that was late under another number
	stalls      int  // goroutines stall at one point of the drivers in so many; 0 if they do not

	lease   atomic.Int64 // of members that begin
	differs atomic.Bool  // some process had another, or the numbers of members begin anew
	damaged atomic.Bool  // a record was deleted or put back
	evicts  atomic.Bool  // a member was evicted
}

// frames is what happens to frames: how often, and for how long.
type frames struct {
	lost, twice, veryLate float64
	late                  time.Duration
}

func (f *frames) none() bool { return *f == frames{} }

// stores is what happens to calls of a store.
type stores struct {
	slow                                         time.Duration
	lost, unanswered, later, conflicts, unusable float64
	proverErrs                                   float64
	proverLate                                   time.Duration
}

func (p *plan) String() string {
	mode := "leases"
	if p.strict {
		mode = "strict"
	}
	return fmt.Sprintf("%s, %s, %d members, %d clients (session %v), %d locks, %d users of %d records, %d callers each, proofs %v, deadlock %v, TCP %v, NATS %v (loses %v), %d events at most %v apart, frames %+v, stores %+v, stalls %d",
		mode, p.algorithm.Name, p.members, p.clients, p.session, p.locks, p.lockers, p.records, p.callers, p.proves, p.deadlock, p.tcp, p.overNATS, p.loses, p.events, p.pace, p.frames, p.stores, p.stalls)
}

// draw draws a plan. Each draw is made whatever the ones before it have brought, so that a fault that is left out changes
// nothing else.
func draw(s *storm.Storm) (p *plan) {
	luck := s.Luck
	p = &plan{strict: s.Seed()%4 == 3, algorithm: algorithm(s)}
	p.lease.Store(int64(leaseOf))
	p.members, p.locks, p.callers = 2+luck.IntN(4), 1+luck.IntN(4), 2+luck.IntN(3)
	p.clients, p.records, p.lockers = luck.IntN(8), luck.IntN(3), 2+luck.IntN(2)
	p.session = []time.Duration{0, 0, leaseOf / 2}[luck.IntN(3)]
	p.deadlock = []time.Duration{0, time.Second}[luck.IntN(2)]
	p.think = []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, leaseOf / 10}[luck.IntN(3)]
	p.events, p.pace = 20+luck.IntN(30), []time.Duration{time.Second, 4 * time.Second, leaseOf * 3 / 2}[luck.IntN(3)]
	rate := func(on bool, most float64) float64 {
		r := luck.Float64() * most
		if !on {
			return 0
		}
		return r
	}
	long := func(on bool, of ...time.Duration) time.Duration {
		d := of[luck.IntN(len(of))]
		if !on {
			return 0
		}
		return d
	}
	p.proves = s.On("stores prove deaths", 3)
	p.frames = frames{
		lost: rate(s.On("frames are lost", 2), 0.1), twice: rate(s.On("frames come twice", 2), 0.1),
		late:     long(s.On("frames are late", 2), time.Millisecond, 20*time.Millisecond, 100*time.Millisecond),
		veryLate: rate(s.On("some frames are very late", 3), 0.02),
	}
	p.stores = stores{
		slow: long(s.On("stores are slow", 2), 30*time.Millisecond, 300*time.Millisecond, leaseOf/5),
		lost: rate(s.On("calls of a store get lost", 3), 0.2), unanswered: rate(s.On("answers of a store get lost", 3), 0.2),
		later: rate(s.On("swaps take effect later", 3), 0.05), conflicts: rate(s.On("stores see conflicts", 3), 0.2),
		unusable:   rate(s.On("stores are unusable now and then", 8), 0.02),
		proverErrs: rate(s.On("the prover errs", 2), 0.3), proverLate: long(s.On("the prover is late", 2), 50*time.Millisecond, leaseOf/10),
	}
	p.longHolds, p.lateHolders, p.panics, p.observers = s.On("locks are held for long", 2), s.On("holders notice late", 2), s.On("functions panic", 2), s.On("observers dawdle", 4)
	p.wires = long(s.On("connections of clients are slow", 2), 10*time.Millisecond, 300*time.Millisecond, leaseOf/8)
	p.tcp, p.path = s.On("links are TCP", 3), drawPath(s)
	p.overNATS, p.again = s.On("links are NATS", 3), []time.Duration{leaseOf / 40, leaseOf / 5}[luck.IntN(2)]
	p.tcp = p.tcp && !p.overNATS
	p.secure = s.On("TCP is secured", 2) && p.tcp
	if p.overNATS {
		p.loses = p.frames.lost / 10
	}
	if p.tcp || p.overNATS {
		p.frames = frames{}
	}
	p.carries = s.On("frames of former members are still under way", 4)
	p.traces = s.On("members are traced", 4)
	p.sets = s.On("wall clocks are set", 2)
	if p.claims = s.On("clients lose their members while they hold", 3); p.claims && !p.strict {
		p.members, p.clients, p.locks, p.callers = 3+luck.IntN(3), 4+luck.IntN(4), 3+luck.IntN(6), 2
		p.longHolds = true
		if luck.IntN(2) == 0 {
			p.wires = cmp.Or(p.session, leaseOf) / 4
		}
		switch late := luck.IntN(2) == 0; {
		case late && p.overNATS:
			p.path.MaxDelay = leaseOf / 20
		case late && !p.tcp:
			p.frames.late = leaseOf / 20 // so that something happens while a claim is on its way
		}
	}
	if p.busy = s.On("callers hardly rest", 10); p.busy && !p.claims {
		p.locks, p.callers, p.think, p.longHolds = 1+luck.IntN(100), 4+luck.IntN(8), 5*time.Millisecond, false
		p.events, p.pace = 10, leaseOf/20
	}
	if s.On("clients are many", 20) {
		p.clients, p.callers, p.locks = 20+luck.IntN(40), 2, 5+luck.IntN(20)
	}
	if p.proves && !p.claims && luck.IntN(2) == 0 {
		p.clients = 0 // members with clients do not use the proof
	}
	if p.strict {
		p.clients, p.proves = 0, false
	}
	p.stalls = []int{0, 10, 30, 100, 300}[luck.IntN(5)] // where nothing stalls, late calls are judged
	if !s.On("goroutines stall", 1) || stall.Points == 0 {
		p.stalls = 0
	}
	return p
}

// pause draws the time between two faults.
func (w *World) pause() time.Duration { return w.UpTo(w.pace) }

// for draws how long a fault lasts, and mends it then.
func (w *World) forAWhile(most time.Duration, mend func()) {
	time.AfterFunc(w.UpTo(most), mend)
}

// mend ends all that lasts.
func (w *World) mend() {
	w.heal()
	if w.nats != nil {
		w.nats.Lose(0)
		w.nats.Start()
	}
	for _, p := range w.all() {
		p.goesOn()
		if p.way != nil {
			p.way.Hold(false, false)
			p.way.Refuse(false)
		}
		p.isolate(false)
		p.outlives.Store(false)
		p.hangs.Store(false)
		p.unstick()
	}
}

// some draws a member that is there, nil if there is none.
func (w *World) some() *slot {
	var there []*slot
	for _, s := range w.slots {
		if s.now != nil {
			there = append(there, s)
		}
	}
	if len(there) == 0 {
		return nil
	}
	return there[w.Luck.IntN(len(there))]
}

// faults is the table of what happens. A rate says how often, compared with the others.
func (w *World) faults() (table []storm.Fault) {
	const long = leaseOf * 5 / 2 // what is cut stays so for at most that long, or until all is well
	on := func(name string, rate int, do func()) {
		table = append(table, storm.Fault{Name: name, Rate: rate, Do: do})
	}
	member := func(do func(s *slot, p *process)) func() {
		return func() {
			if s := w.some(); s != nil {
				do(s, s.now)
			}
		}
	}
	user := func(do func(i int, p *process)) func() {
		return func() {
			if len(w.users) > 0 {
				i := w.Luck.IntN(len(w.users))
				do(i, w.users[i])
			}
		}
	}
	client := func(do func(i int, p *process)) func() {
		return user(func(i int, p *process) {
			if p.client != nil {
				do(i, p)
			}
		})
	}
	cut := func(flags ...func(p *process) *atomic.Bool) func() {
		return member(func(_ *slot, p *process) {
			for _, f := range flags {
				f(p).Store(true)
			}
			w.forAWhile(long, func() {
				for _, f := range flags {
					if !p.dead.Load() {
						f(p).Store(false)
					}
				}
			})
		})
	}
	mute := func(p *process) *atomic.Bool { return &p.mute }
	deaf := func(p *process) *atomic.Bool { return &p.deaf }
	cutOff := func(p *process) *atomic.Bool { return &p.cutOff }
	shut := func(p *process) *atomic.Bool { return &p.shut }
	hangs := func(p *process) *atomic.Bool { return &p.hangs }
	outlives := func(p *process) *atomic.Bool { return &p.outlives }

	on("members begin", 3, w.replaceAll)
	on("a member crashes", 2, member(func(s *slot, _ *process) { w.leave(s).kill() }))
	on("a member crashes and is replaced", 2, member(func(s *slot, _ *process) {
		w.leave(s).kill()
		time.Sleep(2*time.Millisecond + w.UpTo(50*time.Millisecond))
		w.begin(s)
	}))
	on("a member closes", 1, member(func(s *slot, _ *process) {
		w.leave(s).close(1+w.UpTo(leaseOf), w.Luck.IntN(2) == 0)
	}))
	on("a member is replaced in order", 2, member(func(s *slot, _ *process) {
		w.leave(s).close(leaseOf, w.Luck.IntN(2) == 0)
		w.begin(s)
	}))
	on("all members roll", 1, func() {
		for _, s := range w.slots {
			if s.now != nil {
				w.leave(s).close(leaseOf, false)
				w.begin(s)
				time.Sleep(w.UpTo(leaseOf / 5))
			}
		}
	})
	on("two members close at once", 1, func() {
		var closing sync.WaitGroup
		for range 2 {
			if s := w.some(); s != nil {
				p, patience, stop := w.leave(s), leaseOf, w.Luck.IntN(2) == 0
				closing.Go(func() { p.close(patience, stop) })
			}
		}
		closing.Wait()
	})
	on("a member is cut off from the others", 1, cut(mute, deaf))
	on("a member is mute", 1, cut(mute))
	on("a member is deaf", 1, cut(deaf))
	on("a member is cut off", 2, cut(mute, deaf, cutOff, shut))
	on("two members do not reach each other", 1, func() {
		a, b := w.some(), w.some()
		if a == nil || a == b {
			return
		}
		from, to := a.now.node.Self(), b.now.node.Self()
		if from == dmutex.None || to == dmutex.None {
			return
		}
		w.cut(a.now, b.now)
		if w.Luck.IntN(2) == 0 {
			w.cut(b.now, a.now)
		}
	})
	on("the network parts", 1, func() {
		var part []*process
		for _, p := range w.memberProcesses() {
			if id := p.node.Self(); id != dmutex.None && w.Luck.IntN(2) == 0 {
				part = append(part, p)
			}
		}
		w.part(part)
	})
	on("the network heals", 2, w.heal)
	on("a log handler is stuck", 1, func() {
		if all := w.all(); len(all) > 0 {
			p := all[w.Luck.IntN(len(all))]
			p.stick()
			w.forAWhile(long, p.unstick)
		}
	})
	on("a member is paused", 1, member(func(_ *slot, p *process) { w.stutters(p) }))
	on("a user is paused", 1, user(func(_ int, p *process) { w.stutters(p) }))
	on("the machine of a member sleeps", 1, member(func(_ *slot, p *process) { w.sleeps(p) }))
	on("the machine of a user sleeps", 1, user(func(_ int, p *process) { w.sleeps(p) }))
	on("the rate of a clock changes", 1, func() {
		if all := w.all(); len(all) > 0 {
			all[w.Luck.IntN(len(all))].clock.Drift(w.Luck.Int64N(2*wrong+1) - wrong)
		}
	})
	if w.sets {
		set := func(p *process) {
			d := 1 + w.UpTo([]time.Duration{50 * time.Millisecond, leaseOf / 2, leaseOf * 3 / 2}[w.Luck.IntN(3)])
			if w.Luck.IntN(3) == 0 {
				d = -d
			}
			w.setWall(p, d)
		}
		on("the wall clock of a member is set", 3, member(func(_ *slot, p *process) { set(p) }))
		on("the wall clock of a user is set", 1, user(func(_ int, p *process) { set(p) }))
	}
	if w.sets && w.strict {
		on("a member begins with its clock ahead", 2, w.beginsAhead)
	}
	if w.tcp {
		w.streamFaults(on)
		on("a stranger connects with a member", 2, member(func(_ *slot, p *process) { w.scan(p) }))
	}
	if w.overNATS {
		w.natsFaults(on)
	}
	if w.secure {
		on("a member gets another certificate", 1, member(w.renew))
		on("a member gets a wrong certificate", 1, member(w.blunders))
	}
	if w.strict {
		on("a dead member is evicted", 1, func() { w.evict() })
		on("a process of another group begins", 1, w.misplaces)
		on("a member is taken for dead, or its number given twice", 2, w.mistakes)
		on("all members crash", 1, func() {
			for _, s := range w.slots {
				if s.now != nil {
					w.leave(s).kill()
				}
			}
			time.Sleep(2 * time.Millisecond)
			w.replaceAll()
		})
	} else {
		w.leaseFaults(on, member, cut, cutOff, outlives)
	}
	if w.clients > 0 {
		on("a member lets no client in", 1, cut(shut))
		on("a member does not answer clients", 1, cut(hangs))
		on("a client loses its connections", 3, client(func(_ int, p *process) { p.hangUp(nil) }))
		on("the connections of a client lose everything", 2, client(func(_ int, p *process) {
			way := w.Luck.IntN(3)
			p.silence(way != 1, way != 2)
			if w.tcp || w.overNATS {
				w.forAWhile(leaseOf, func() {
					if !p.dead.Load() {
						p.silence(false, false)
					}
				})
			}
		}))
		on("a member crashes and its clients are cut off", 3, member(func(s *slot, p *process) { // within their sessions
			w.leave(s).kill()
			time.Sleep(w.UpTo(leaseOf / 4))
			if w.Luck.IntN(2) == 0 {
				w.begin(s)
			}
		}))
		most := 4
		if w.claims {
			most = 40
		}
		on("a member goes while its clients hold", most, w.goesWhileLent)
		on("a client hears late, and is cut off then", most/4, w.hearsLate)
		on("two members go, one after the other, while a client holds", most/2, w.twoGo)
		on("a member goes, and the next one leaps", most/4, w.leaps)
		on("a client is cut off", 2, client(func(_ int, p *process) {
			p.isolate(true)
			p.isBack(w.UpTo(long))
		}))
	}
	on("a process is misconfigured", 2, w.misconfigures)
	on("a user crashes and is replaced", 2, user(func(i int, _ *process) { w.replace(i, (*process).kill) }))
	on("a user closes and is replaced", 1, user(func(i int, _ *process) {
		stop := w.Luck.IntN(2) == 0
		w.replace(i, func(p *process) { p.close(leaseOf, stop || p.client == nil) })
	}))
	on("a user is cut off from its stores", 1, user(func(_ int, p *process) {
		p.cutOff.Store(true)
		w.forAWhile(long, func() {
			if !p.dead.Load() {
				p.cutOff.Store(false)
			}
		})
	}))
	return table
}

// setWall sets the wall clock of a process forward, or back.
func (w *World) setWall(p *process, by time.Duration) {
	w.shown(p)
	p.leapt.Store(p.leapt.Load() || by > 0)
	p.clock.Step(by)
}

// leaseFaults are those of members with leases.
func (w *World) leaseFaults(on func(string, int, func()), member func(func(*slot, *process)) func(), cut func(...func(*process) *atomic.Bool) func(), cutOff, outlives func(*process) *atomic.Bool) {
	on("a member crashes, and is excluded at once", 1, member(func(s *slot, p *process) {
		p.isolate(true)
		w.exclude(p.node.Self())
		w.leave(s).kill()
	}))
	on("a member is excluded", 1, member(func(_ *slot, p *process) { w.exclude(p.node.Self()) }))
	lasts := func(p *process, flags ...*atomic.Bool) {
		for _, f := range flags {
			f.Store(true)
		}
		w.forAWhile(leaseOf*5/2, func() {
			for _, f := range flags {
				if !p.dead.Load() {
					f.Store(false)
				}
			}
		})
	}
	on("a member without the store is excluded", 1, member(func(_ *slot, p *process) {
		lasts(p, &p.cutOff)
		w.exclude(p.node.Self())
	}))
	on("a member that is cut off is excluded", 1, member(func(_ *slot, p *process) {
		lasts(p, &p.cutOff, &p.mute, &p.deaf)
		w.exclude(p.node.Self())
	}))
	on("a member is taken for dead", 1, member(func(_ *slot, p *process) { takeForDead(w.some().now, p) }))
	on("a member is taken for dead as soon as it is confirmed, and cut off", 2, member(func(_ *slot, p *process) {
		lasts(p) // nothing else, but it draws as the others do
		other := w.some()
		p.trap.Store(new(func() { // its lease is as fresh as can be
			p.cutOff.Store(true)
			takeForDead(other.now, p)
			time.AfterFunc(leaseOf*2, func() {
				if !p.dead.Load() {
					p.cutOff.Store(false)
				}
			})
		}))
	}))
	on("a member is cut off from the store", 2, cut(cutOff))
	on("the store outlives the contexts of a member", 1, cut(cutOff, outlives))
	on("nobody reaches the store", 1, func() {
		for _, p := range w.memberProcesses() {
			p.cutOff.Store(true)
			w.forAWhile(leaseOf*5/2, func() {
				if !p.dead.Load() {
					p.cutOff.Store(false)
				}
			})
		}
	})
	on("a stranger begins", 1, w.stranger)
	on("the settings change while a member is away", 1, w.changes)
	on("the record is damaged", 1, func() {
		if w.sets || w.damaged.Swap(true) { // once: it ends everything
			return
		}
		w.mend() // a member that does not know the present record cannot tell that an old one is out of date
		for _, p := range w.memberProcesses() {
			p.trap.Store(nil)
		}
		time.Sleep(leaseOf)
		w.damages()
		for _, s := range w.slots { // as the page for operators says: stop all members, delete it, and start them again
			if s.now != nil {
				w.leave(s).close(leaseOf, false)
			}
		}
		w.group.delete()
		w.replaceAll()
	})
	if !w.proves && !w.sets {
		on("the store forgets", 1, func() {
			w.differs.Store(true)
			w.group.forget()
			for _, a := range w.archives {
				a.forget()
			}
		})
	}
}

// damages puts an old record of the group back, or deletes it. Each member that knows a later one stops when it reads it,
// and has no lease if it did not reach the store meanwhile.
func (w *World) damages() {
	before := make(map[*process]uint64)
	for _, p := range w.memberProcesses() {
		if st := p.node.Status(); st.Err == nil && st.Lease.Err == nil {
			before[p] = st.View.Epoch
		}
	}
	var r lease.Record
	_ = r.UnmarshalText([]byte(w.group.back(w.Luck))) // it stays empty if there is none
	time.Sleep(2 * leaseOf)
	for p, epoch := range before {
		if st := p.node.Status(); epoch > r.Epoch && st.Err == nil && st.Lease.State != node.LeaseEnded {
			w.Wrong("%s goes on in view %x, though the record has gone back to %x", p.who, epoch, r.Epoch)
		}
	}
}

// takeForDead lets a member have evidence, which is wrong, that another one is dead. It excludes that at once.
func takeForDead(by, p *process) {
	if by == nil || by == p || by.dead.Load() || p.node.Self() == dmutex.None {
		return
	}
	if died := by.host.Load().Died; died != nil {
		go died(p.node.Self())
	}
}

// exclude removes a member from the record, as another member would.
func (w *World) exclude(id dmutex.NodeID) {
	w.group.edit(func(value []byte) []byte {
		var r lease.Record
		if id == dmutex.None || r.UnmarshalText(value) != nil {
			return nil
		}
		i := slices.IndexFunc(r.Members, func(e lease.Entry) bool { return e.Node == id })
		if i < 0 {
			return nil
		}
		r.Epoch++
		r.Unclean = r.Epoch
		if r.Members[i].Proof == "" {
			r.Unproved = r.Epoch
		}
		r.Members = slices.Delete(r.Members, i, i+1)
		next, err := r.MarshalText()
		if err != nil {
			return nil
		}
		return next
	})
}

// evict evicts a member of the strict mode that is dead.
func (w *World) evict() {
	var dead []dmutex.NodeID
	for _, s := range w.slots {
		if s.now == nil {
			dead = append(dead, s.place)
		}
	}
	if s := w.some(); s != nil && len(dead) == 1 {
		w.evicts.Store(true)
		_ = s.now.node.Evict(nodetest.ContextFor(w.t, leaseOf), dead...)
	}
}
