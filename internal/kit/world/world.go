// Package world runs the whole product in one bubble of testing/synctest: a group of members in one of the two modes,
// clients of the members, locks in single records, semaphores over all of them, elections, transactions and observers,
// in processes that come, close, crash and are replaced, while links, stores, clocks and callers do what they may.
// One referee, that of package storm, judges all holds in true time, without a margin.
//
// # What is true in a world
//
// A process is one run of a program. It has ways to the others and to its stores, which are the shipped packages over
// networks and stores in memory, and nothing else in common with the other processes. What happens to a way happens
// to one process: so a member may lose its store and keep its peers, and the others do not notice. A process that has
// crashed is cut off first and closed then: nothing that it does reaches anybody any more, and what it holds does
// not count.
//
// In some worlds the links are TCP, over machines in memory, and so are the connections of clients: then nothing of a
// connection is lost or comes twice, but connections end, and machines too. In others they are NATS, over a server in memory.
//
// Each process has clocks and random numbers of its own: the rates of its clocks are wrong by up to 1 %, and change,
// machines sleep, and in some worlds somebody sets the time of day. Only where it is not set are records lost, for without
// them only the time of day tells which fences are higher.
// The bubble's clock is the true time. Nothing passes between the moment in which a call returns and the one in which it
// is judged, so what the referee sees to overlap does overlap, and a call that returns a nanosecond after its bound is
// late.
//
// In a build that the tests make, goroutines of the processes stall between two statements, for up to a lease and a half,
// also while they have a mutex: see package stall. Then a call may be late, and so may the end of a context, as who
// ends it may stall. What a handle says is judged as ever.
//
// # A run
//
// A seed draws the world (faults.go: draw): its mode, its algorithm, how many processes there are, and which faults are on
// and how often. It lasts some minutes of the bubble's time:
//
//  1. Processes begin, and their callers take locks in all ways there are (callers.go).
//  2. Faults happen, one after the other, each for a while (faults.go).
//  3. Calm: all is mended. Each process must be granted a lock soon.
//  4. The callers end. Each process must be granted each lock at once, and all must agree on who holds it.
//  5. Members are replaced in order while others hold locks, and give them back at any moment. Nobody notices (rolls.go).
//  6. All processes close in order. No goroutine may be left: a bubble panics if one is.
//
// [storm.Storm] says how to run a seed again, and with which faults. A seed does not fix the order of goroutines, so a
// failure may need several runs. The builds that build_test.go makes fix that, too.
//
// # What is not in it
//
// Child processes that inherit a life and stores over servers are in package integration.
package world

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/certtest"
	"github.com/dmutex/dmutex/internal/kit/natsnet"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/stall"
	"github.com/dmutex/dmutex/internal/kit/storm"
	"github.com/dmutex/dmutex/internal/kit/streamnet"
	"github.com/dmutex/dmutex/lock/fence"
	"github.com/dmutex/dmutex/transport/memlink"
)

const (
	leaseOf = 10 * time.Second // the lease of members and of records, and the length of the sessions of clients
	wrong   = 10_000           // millionths: the rate of a clock is wrong by at most so much, see docs/modes.md
)

// A World is a run with one seed.
type World struct {
	*storm.Storm
	*plan

	t         *testing.T
	net       *memlink.Network
	streams   *streamnet.Network // nil if there is no TCP
	machines  map[string]*machine
	authority *certtest.Authority
	nats      *natsnet.Server   // nil if there is no NATS
	calm      atomic.Bool       // nothing is lost, late or slow any more
	calmed    time.Time         // when that began
	lag       atomic.Int64      // how late a frame may be even so, in nanoseconds
	had       map[string]string // who held each lock last, while members were replaced in calm
	group     *archive          // the record of the members
	archives  []*archive        // of locks in single records
	lives     *registry         // of all processes, if stores prove deaths
	slots     []*slot           // where members are
	users     []*process        // clients, and processes that use locks in single records
	running   sync.WaitGroup

	mu     sync.Mutex
	runs   int       // of processes
	latest time.Time // that a wall clock of a member has shown
	gates  map[string]*fence.Gate
	done   map[string]int // calls that have brought something, by their kind
}

// A slot is where one member after the other runs: a number in the strict mode, and an address that clients know.
type slot struct {
	place  dmutex.NodeID
	second bool          // it is elsewhere than the others believe
	ahead  time.Duration // of the clock of its machine, when a member begins
	group  string        // that a member begins in, if it is another
	now    *process      // nil while there is none
}

func (s *slot) name() string {
	if s.second {
		return fmt.Sprint("second", s.place)
	}
	return fmt.Sprint("m", s.place)
}

// Run runs a world, and returns how many grants it has judged.
func Run(t *testing.T, seed uint64) (w *World) {
	s := storm.New(t, seed)
	nodetest.Today()
	time.Sleep(time.Duration(seed % 1e6)) // in a build with a fixed order, the time decides what math/rand draws
	network, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	w = &World{Storm: s, t: t, net: network, plan: draw(s), gates: make(map[string]*fence.Gate), done: make(map[string]int)}
	t.Logf("seed %d: %v", seed, w.plan)
	if w.stalls > 0 {
		stall.Begin(s.Random(), w.stalls, leaseOf*3/2)
	}
	if w.secure {
		w.authority = certtest.New(t)
	}
	if w.tcp {
		w.streams, w.machines = streamnet.New(seed), make(map[string]*machine)
	}
	if w.overNATS {
		w.nats = natsnet.New(seed)
		w.nats.Lose(w.loses)
		if waits {
			w.nats.Wait()
		}
	}
	w.lives = newRegistry()
	w.group = newArchive("group", w.lives)
	for i := range w.records {
		w.archives = append(w.archives, newArchive(fmt.Sprint("record ", i), w.lives))
	}
	for i := range w.members {
		w.slots = append(w.slots, &slot{place: dmutex.NodeID(i + 1)})
	}
	for _, s := range w.slots {
		w.begin(s)
	}
	for i := range w.clients {
		w.use(fmt.Sprint("client", i), w.beginClient)
	}
	if w.records > 0 {
		for i := range w.lockers {
			w.use(fmt.Sprint("locker", i), w.beginLocker)
		}
	}
	if first := leaseOf + s.UpTo(leaseOf/5); !w.strict { // a new record makes the first member wait
		time.Sleep(first)
	}
	w.Blow(w.events, w.pause, w.faults()...)
	w.settle()
	return w
}

// settle lets everything become well, asks for all that must be true then, and ends all processes.
func (w *World) settle() {
	w.mend()
	w.calmed = time.Now()
	w.calm.Store(true)
	w.stalled(stall.End())
	w.paths()
	time.Sleep(2 * leaseOf)
	w.replaceAll()
	time.Sleep(4 * leaseOf)
	var who []string
	for _, p := range w.all() {
		who = append(who, p.who)
	}
	w.Goes(8*leaseOf, who...)
	if w.t.Failed() { // what follows would only repeat it
		for _, p := range w.memberProcesses() {
			st := p.node.Status()
			w.t.Logf("%s: node %v, error %v, view %+v, lease %+v", p.who, p.node.Self(), st.Err, st.View, st.Lease)
			for name, l := range p.node.Locks() {
				w.t.Logf("    %s: %+v", name, l)
			}
		}
		w.closeAll()
		return
	}
	for _, p := range w.all() {
		p.stop()
	}
	for _, p := range w.all() {
		p.callers.Wait()
	}
	time.Sleep(2 * leaseOf) // withdrawn requests run their course
	w.agree()
	w.rolls()
	w.closeAll()
}

// agree asks each process for each lock, which nobody else uses any more, and all members for what they see.
func (w *World) agree() {
	for _, p := range w.all() {
		w.takes(p, p.names[:1]) // a client that wanted nothing for long may have no connection
	}
	before := runtime.NumGoroutine()
	for _, p := range w.all() {
		w.takes(p, p.names)
	}
	time.Sleep(leaseOf) // releases arrive
	members := w.memberProcesses()
	for _, p := range members {
		st := p.node.Status()
		switch {
		case st.Err != nil, !st.View.Acts, len(st.View.Members) != len(members), st.Lease != nil && st.Lease.Err != nil:
			w.Wrong("in calm, %s has the view %+v, its lease is %+v, and its error %v", p.who, st.View, st.Lease, st.Err)
		case st.View.Epoch != members[0].node.Status().View.Epoch:
			w.Wrong("in calm, %s has another view than %s", p.who, members[0].who)
		case st.Held+st.Waiting+st.Waiters > 0:
			w.Wrong("%s still holds %d locks and waits for %d, with %d callers", p.who, st.Held, st.Waiting, st.Waiters)
		case st.Refused > 0 && !w.carries && !w.differs.Load() && !w.damaged.Load() && w.stalls == 0: // who stalls may hear of a life that is over
			w.Wrong("%s has refused %d frames of others, which are right", p.who, st.Refused)
		case st.Locks > 512+2*(len(p.names)+8):
			w.Wrong("%s remembers %d locks", p.who, st.Locks)
		}
	}
	for _, a := range append(w.archives, w.group) {
		if size := len(a.value); size > 150+100*len(members) {
			w.Wrong("%s has %d bytes: %s", a.name, size, a.value)
		}
	}
	if grown := runtime.NumGoroutine() - before; grown > 4 {
		w.Wrong("there are %d goroutines more than before everybody had every lock", grown)
	}
	for _, p := range w.users {
		if p.client == nil {
			continue
		}
		if st := p.client.Status(); len(st.Holds)+len(st.WaitsFor) > 0 {
			w.Wrong("%s still holds %v, and waits for %v", p.who, st.Holds, st.WaitsFor)
		}
	}
}

// takes takes locks for a process, at once.
func (w *World) takes(p *process, names []string) {
	for _, name := range names {
		began := time.Now()
		ctx, cancel := context.WithTimeout(w.t.Context(), leaseOf)
		h, err := p.lock(name).Acquire(ctx)
		cancel()
		if err != nil {
			w.Wrong("in calm, %s does not get %s: %v", p.who, name, err)
			continue
		}
		if took := time.Since(began); took > w.soon(p) {
			w.Wrong("in calm, %s gets %s after %v", p.who, name, took)
		}
		w.seen(p, name, h.Fence())
		if err := h.Release(); err != nil {
			w.Wrong("in calm, %s has lost %s: %v", p.who, name, err)
		}
	}
}

// seen asks all members who holds the lock that the process holds.
func (w *World) seen(p *process, name string, fence uint64) {
	if p.node == nil {
		return
	}
	for _, o := range w.memberProcesses() {
		ctx, cancel := context.WithTimeout(w.t.Context(), leaseOf)
		h, err := o.node.Mutex(name).Holder(ctx)
		cancel()
		switch {
		case err != nil:
			w.Wrong("in calm, %s does not learn who holds %s: %v", o.who, name, err)
		case h.Node != p.node.Self() || h.Fence != fence:
			w.Wrong("%s takes %v, with the fence %x, for the holder of %s, which is %s with the fence %x", o.who, h.Node, h.Fence, name, p.who, fence)
		}
	}
}

// soon is how long the process waits for a lock that nobody has, in calm.
func (w *World) soon(p *process) time.Duration {
	if p.node != nil {
		return leaseOf / 10
	}
	return leaseOf / 5 // a client may have no session at the moment, and who waits for a record polls
}

// all returns the processes that run.
func (w *World) all() []*process {
	return append(w.memberProcesses(), w.users...)
}

func (w *World) memberProcesses() (all []*process) {
	for _, s := range w.slots {
		if s.now != nil {
			all = append(all, s.now)
		}
	}
	return all
}

// gate returns the resource that the lock guards.
func (w *World) gate(lock string) *fence.Gate {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gates[lock] == nil {
		w.gates[lock] = new(fence.Gate)
	}
	return w.gates[lock]
}

// ahead returns how far the wall clocks of members, also of former ones, were ahead of the true time at most, as it is now.
func (w *World) ahead() time.Duration {
	w.shown(w.memberProcesses()...)
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(time.Until(w.latest), 0)
}

// shown notes what the wall clocks of processes show. It is called before they are set back, or go.
func (w *World) shown(all ...*process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range all {
		_, wall := p.clock.Read()
		if t := time.Unix(0, wall); t.After(w.latest) {
			w.latest = t
		}
	}
}

// count counts what the callers do, so that a test can tell whether they do it.
func (w *World) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[what]++
}

// stalled counts how often goroutines have stalled.
func (w *World) stalled(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done["stall"] += n
}

// Done returns how often each kind of call has brought something.
func (w *World) Done() map[string]int { return w.done }

// algorithm draws an algorithm.
func algorithm(s *storm.Storm) algorithms.Algorithm {
	return algorithms.All[s.Luck.IntN(len(algorithms.All))]
}
