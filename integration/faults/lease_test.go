//go:build unix

package faults

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/store/natsstore"
)

// lease is short, so that much happens.
var lease = time.Second

func init() { flag.DurationVar(&lease, "lease", lease, "of the members") }

const (
	// starving is how long a lock may go without a grant while a process lives and reaches the
	// store. A process that was excluded again and again pauses for about a minute.
	starving = 70 * time.Second

	most = 8 // processes at a time
)

// A leaseGroup is a group with leases: its processes come and go.
type leaseGroup struct {
	*group
	outside service // that carries its links or its store; nil if it cannot stop
	rng     *rand.Rand
	born    dmutex.NodeID // number of the last process
	job     task
	leaving []*process
	busy    map[*process]bool // those with a fault that will end
	counts  map[string]int
	well    int64            // since when some process was always able to get a lock
	longest map[string]int64 // time without a grant, by lock
	known   map[dmutex.NodeID]map[string]state
}

// A setting is what carries the frames and the records of a leaseGroup.
type setting string

const (
	overTCP        setting = "TCP, files"
	withProof      setting = "TCP, files with proof"
	overNATS       setting = "NATS, files"
	overJetStream  setting = "NATS, JetStream"
	withPostgreSQL setting = "TCP, PostgreSQL"
	withEtcd       setting = "TCP, etcd"
	withMariaDB    setting = "TCP, MariaDB"
	withRedis      setting = "TCP, Redis"
)

// A service can be stopped and started.
type service interface {
	start()
	stop() bool // whether it was running
	isRunning() bool
}

func newLeaseGroup(t *testing.T, over setting, n int, algorithms ...string) *leaseGroup {
	t.Logf("seed %d", *seed)
	r := &group{t: t, referee: newReferee(t), where: make(map[dmutex.NodeID]map[string]string)}
	r.referee.ledger = newLedger()
	f := &leaseGroup{
		group: r, rng: rand.New(rand.NewPCG(*seed, 2)), busy: make(map[*process]bool),
		well: instant(), counts: make(map[string]int), longest: make(map[string]int64), known: make(map[dmutex.NodeID]map[string]state),
		job: task{
			Seed: *seed, Algorithms: algorithms, Lease: lease,
			Referee: r.referee.listener.Addr().String(), Authority: newAuthority(t),
		},
	}
	switch dir := t.TempDir(); over {
	case overTCP:
		f.job.Store = "file:" + dir
	case withProof:
		f.job.Store = "prover:" + dir
	case overNATS:
		f.job.Store, f.server = "file:"+dir, newNATSServer(t, "")
		f.outside = f.server
	case overJetStream:
		f.server = newNATSServer(t, dir)
		f.outside = f.server
		f.createBucket()
	case withPostgreSQL:
		db := servers.StartPostgres(t)
		f.job.Store, f.outside = "postgres:"+db.DSN("postgres"), &crashing{db, true}
	case withEtcd:
		address, _ := servers.StartEtcd(t, dir)
		f.job.Store = "etcd:" + address
	case withMariaDB:
		db := servers.StartMariaDB(t)
		f.job.Store, f.outside = "mariadb:"+db.Socket(), &crashing{db, true}
	case withRedis: // whose record is gone when it starts again
		r := servers.StartRedis(t)
		f.job.Store, f.outside = "redis:"+r.Address, &crashing{r, true}
	}
	for range n {
		f.join()
	}
	return f
}

// A crashing is a server that is a service: it is stopped by a crash.
type crashing struct {
	server interface {
		Start()
		Crash()
	}
	running bool
}

func (d *crashing) start()          { d.server.Start(); d.running = true }
func (d *crashing) isRunning() bool { return d.running }

func (d *crashing) stop() bool {
	if !d.running {
		return false
	}
	d.server.Crash()
	d.running = false
	return true
}

func (f *leaseGroup) createBucket() {
	nc, err := nats.Connect("nats://" + f.server.address())
	require.NoError(f.t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(f.t, err)
	_, err = natsstore.Open(f.t.Context(), js, bucket, "first")
	require.NoError(f.t, err)
}

// join starts a process.
func (f *leaseGroup) join() {
	f.born++
	job, c := f.job, f.cable()
	job.Self = f.born
	if f.server != nil {
		job.NATS = c.to(f.t, f.server.address)
	} else {
		job.Advertise = make(map[string]string)
		for _, a := range job.Algorithms {
			job.Advertise[a] = c.to(f.t, func() string { return f.address(job.Self, a) })
		}
	}
	p := f.start(job)
	p.cable = c
	where := f.await(p).Addresses
	f.mu.Lock()
	f.where[p.id] = where
	f.mu.Unlock()
	f.order(p, order{Word: wordWork})
	f.processes = append(f.processes, p)
}

// order gives a process an order, and returns its report.
func (f *leaseGroup) order(p *process, o order) report {
	f.t.Helper()
	require.NoError(f.t, p.child.Tell(o))
	return f.await(p)
}

// exit tells a process to leave, which may take a while.
func (f *leaseGroup) exit(p *process) {
	f.drop(p)
	require.NoError(f.t, p.child.Signal(syscall.SIGTERM))
	f.leaving = append(f.leaving, p)
}

func (f *leaseGroup) kill(p *process) {
	f.drop(p)
	f.tell(p)
	require.NoError(f.t, p.child.Signal(os.Kill))
	<-p.ended
}

func (f *leaseGroup) drop(p *process) {
	f.processes = slices.DeleteFunc(f.processes, func(o *process) bool { return o == p })
}

// tell records the counters of a process before it ends.
func (f *leaseGroup) tell(p *process) {
	if !p.paused {
		f.known[p.id] = f.order(p, order{Word: wordTell}).States
	}
}

// sum adds up the counters of all processes for all groups.
func (f *leaseGroup) sum(count func(state) int) (sum int) {
	for _, states := range f.known {
		for _, s := range states {
			sum += count(s)
		}
	}
	return sum
}

// cut cuts processes off, and returns the function that reconnects them.
func (f *leaseGroup) cut(c cut, processes ...*process) (heal func()) {
	for _, p := range processes {
		f.busy[p] = true
		f.order(p, order{Word: wordCut, Cut: c})
	}
	return func() {
		for _, p := range processes {
			if delete(f.busy, p); slices.Contains(f.processes, p) {
				f.order(p, order{Word: wordCut})
			}
		}
	}
}

// free returns the processes that have no fault.
func (f *leaseGroup) free() (free []*process) {
	for _, p := range f.processes {
		if !f.busy[p] {
			free = append(free, p)
		}
	}
	return free
}

// holder returns a process that has held a lock for a while, or any process if none has.
func (f *leaseGroup) holder(among []*process) *process {
	f.referee.mu.Lock()
	defer f.referee.mu.Unlock()
	for _, i := range f.rng.Perm(len(among)) {
		for _, c := range f.referee.ledger.inside {
			if strings.Contains(c.Who, among[i].name()) && instant()-c.From > int64(20*time.Millisecond) {
				return among[i]
			}
		}
	}
	return among[f.rng.IntN(len(among))]
}

// fault injects a fault. It returns the function that ends it and when to call it, or nil
// if the fault is over.
func (f *leaseGroup) fault() (kind string, undo func(), after time.Duration) {
	free := f.free()
	if len(free) == 0 {
		return "nothing", nil, 0
	}
	p := free[f.rng.IntN(len(free))]
	length := "shorter"
	after = lease/5 + time.Duration(f.rng.Int64N(int64(lease/2)))
	if f.rng.IntN(2) == 0 {
		length = "longer"
		after += lease + time.Duration(f.rng.Int64N(int64(lease)))
	}
	awake := slices.DeleteFunc(slices.Clone(f.processes), func(p *process) bool { return p.paused })
	switch n := f.rng.IntN(14); n {
	case 0, 1, 2, 3, 4, 5, 6:
		switch {
		case n < 4 && f.outside != nil && !f.outside.isRunning(): // a process that starts needs its store
		case n < 4 && len(f.processes) < most:
			f.join()
			return "join", nil, 0
		case len(f.processes) == 2:
		case n == 4 && len(free) > 1:
			f.exit(p)
			return "exit", nil, 0
		case len(awake) > 1:
			f.kill(f.holder(awake))
			return "kill", nil, 0
		}
	case 7, 8:
		p = f.holder(free)
		f.busy[p] = true
		p.pause()
		return "pause " + length + " than the lease", func() {
			delete(f.busy, p)
			p.resume()
		}, after
	case 9:
		return "outage " + length + " than the lease for one", f.cut(cut{Store: true}, p), after
	case 10:
		return "outage " + length + " than the lease for all", f.cut(cut{Store: true}, free...), after
	case 11:
		return "cut off from all, " + length + " than the lease", f.cut(cut{Store: true, Link: true}, p), after
	case 12:
		return "partition", f.partition(free), after
	case 13:
		if f.outside != nil && f.rng.IntN(2) == 0 && f.outside.stop() {
			return "server stopped", f.outside.start, after
		}
		f.busy[p] = true
		p.cable.unplug()
		return "unplugged", func() {
			delete(f.busy, p)
			p.cable.heal()
		}, after
	}
	return "nothing", nil, 0
}

// partition drops all frames between some processes, in one direction or both.
func (f *leaseGroup) partition(free []*process) (heal func()) {
	split := 1 + f.rng.IntN(len(free))
	here, there := free[:split], free[split:]
	numbers := func(processes []*process) (numbers []dmutex.NodeID) {
		for _, p := range processes {
			numbers = append(numbers, p.id)
		}
		return numbers
	}
	first := f.cut(cut{Deaf: numbers(there)}, here...)
	if f.rng.IntN(3) == 0 {
		return first
	}
	second := f.cut(cut{Deaf: numbers(here)}, there...)
	return func() { first(); second() }
}

// watch fails the test if a process has ended by itself, if the referee has seen a fault, or
// if no process gets a lock.
func (f *leaseGroup) watch() {
	f.check()
	now := instant()
	if len(f.free()) == 0 {
		f.well = now
	}
	f.referee.mu.Lock()
	defer f.referee.mu.Unlock()
	for _, lock := range f.locks() {
		gap := now - max(f.well, f.referee.ledger.granted[lock])
		f.longest[lock] = max(f.longest[lock], gap)
		require.Less(f.t, time.Duration(gap), starving, "nobody gets %s", lock)
	}
	for _, p := range f.processes {
		select {
		case <-p.ended:
			require.FailNow(f.t, "a process has ended", "process %d: %v", p.id, p.status)
		default:
		}
	}
}

func (f *leaseGroup) locks() (names []string) {
	for _, a := range f.job.Algorithms {
		for i := range locks {
			names = append(names, fmt.Sprintf("%s/lock %d", a, i))
		}
	}
	return names
}

// storm injects faults for a while, one every half a lease on average, and then ends them all.
// In the middle it kills all processes at once.
func (f *leaseGroup) storm(long time.Duration) {
	type recovery struct {
		due  time.Time
		undo func()
	}
	var recoveries []recovery
	heal := func(all bool) {
		now := time.Now()
		recoveries = slices.DeleteFunc(recoveries, func(c recovery) bool {
			if !all && now.Before(c.due) {
				return false
			}
			c.undo()
			return true
		})
	}
	begun := time.Now()
	next, middle := begun, begun.Add(long/2)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for now := range ticker.C {
		if f.watch(); now.Sub(begun) > long {
			break
		}
		heal(false)
		if !middle.IsZero() && now.After(middle) {
			middle = time.Time{}
			heal(true)
			f.killAll()
		}
		if now.Before(next) {
			continue
		}
		next = now.Add(time.Duration(f.rng.Int64N(int64(lease))))
		kind, undo, after := f.fault()
		f.counts[kind]++
		if undo != nil {
			recoveries = append(recoveries, recovery{now.Add(after), undo})
		}
	}
	heal(true)
}

func (f *leaseGroup) killAll() {
	n := len(f.processes)
	defer func() { // the time until the new processes join is not the failover that is measured
		f.referee.mu.Lock()
		defer f.referee.mu.Unlock()
		clear(f.referee.ledger.orphans)
	}()
	for _, p := range slices.Clone(f.processes) {
		f.kill(p)
	}
	for range n {
		f.join()
	}
	f.counts["total kill"]++
}

// settle waits until every lock is granted again, and returns how long that takes.
func (f *leaseGroup) settle() time.Duration {
	begun := instant()
	for late := time.After(patience); ; {
		f.watch()
		left := f.locks()
		f.referee.mu.Lock()
		left = slices.DeleteFunc(left, func(name string) bool { return f.referee.ledger.granted[name] > begun })
		f.referee.mu.Unlock()
		if len(left) == 0 {
			return time.Duration(instant() - begun)
		}
		select {
		case <-late:
			require.FailNow(f.t, "nobody gets locks", "%v: %+v", left, f.word(wordTell))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// failover returns how long the locks of killed holders were free, ascending. It leaves out
// locks that often have no waiter.
func (f *leaseGroup) failover() (times []time.Duration) {
	for _, lock := range f.locks() {
		times = append(times, f.referee.ledger.failover[lock]...)
	}
	slices.Sort(times)
	return times
}

// end lets all processes leave gracefully.
func (f *leaseGroup) end() {
	for _, p := range f.processes {
		f.tell(p)
	}
	f.word(wordStop)
	f.leave()
	for _, p := range f.leaving {
		select {
		case <-p.ended:
			require.NoError(f.t, p.status, "process %d", p.id)
		case <-time.After(patience):
			require.FailNow(f.t, "a process does not end", "process %d", p.id)
		}
	}
	f.verdict()
}

func stormLength() time.Duration {
	switch {
	case *length > 0:
		return *length
	case os.Getenv("DMUTEX_LONG") != "":
		return 10 * time.Minute
	default:
		return 4 * time.Second
	}
}

// Two to eight processes, each with a node for every algorithm, come, go and die, while the
// store, the links and the machine have faults. No two handles of a lock are good at one
// instant, fences rise, no process is stuck, and all live processes leave gracefully.
func TestLeaseTCP(t *testing.T)   { survive(t, overTCP) }
func TestLeaseNATS(t *testing.T)  { survive(t, overNATS) }
func TestLeaseProof(t *testing.T) { survive(t, withProof) }

func TestLeaseJetStream(t *testing.T)  { unlessLong(t); survive(t, overJetStream) }
func TestLeasePostgreSQL(t *testing.T) { unlessLong(t); survive(t, withPostgreSQL) }
func TestLeaseEtcd(t *testing.T)       { unlessLong(t); survive(t, withEtcd) }
func TestLeaseMariaDB(t *testing.T)    { unlessLong(t); survive(t, withMariaDB) }
func TestLeaseRedis(t *testing.T)      { unlessLong(t); survive(t, withRedis) }

func survive(t *testing.T, over setting) {
	unlessShort(t)
	t.Parallel()
	f := newLeaseGroup(t, over, 3, slices.Sorted(maps.Keys(right))...)
	founding := f.settle()
	f.storm(stormLength())
	settled := f.settle()
	f.end()
	ledger := f.referee.ledger
	grants := 0
	for _, stays := range ledger.stays {
		grants += len(stays)
	}
	t.Logf("%d processes; faults: %v", f.born, f.counts)
	t.Logf("%d grants, %d exclusions, %d view changes, %d operations of the stores, as far as %d processes reported them", grants,
		f.sum(func(s state) int { return s.Exclusions }), f.sum(func(s state) int { return int(s.Changes) }), f.sum(func(s state) int { return int(s.Asked) }), len(f.known))
	t.Logf("after the founding all locks were granted within %v, after the faults within %v; the longest time without a grant of a lock was %v",
		founding, settled, time.Duration(slices.Max(slices.Collect(maps.Values(f.longest)))))
	if failover := f.failover(); len(failover) > 0 {
		n := len(failover)
		t.Logf("%d holders killed in the old groups, among other faults: the next grant after %.2f leases (median), %.2f (99 of 100)", n,
			failover[n/2].Seconds()/lease.Seconds(), failover[n*99/100].Seconds()/lease.Seconds())
	}
	for _, name := range f.locks() {
		require.NotEmpty(t, ledger.stays[name], name)
	}
}

// A process that is paused for longer than its lease learns that it has lost its locks from
// its first call on a handle, before any timer fires.
func TestLeasePausedTCP(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	f := newLeaseGroup(t, overTCP, 3, slices.Sorted(maps.Keys(right))...)
	f.settle()
	for range 2 {
		p := f.holder(f.processes)
		p.pause()
		<-time.After(2*lease + lease/2) // the others exclude it, and go on
		p.resume()
		f.settle()
	}
	f.end()
	t.Logf("%d exclusions", f.sum(func(s state) int { return s.Exclusions }))
}

// A member with flapping links and a slow member do not cause endless exclusions: a process
// that is excluded soon after it joined pauses for longer each time before it joins again. So
// the number of views is bounded, and the others get their locks.
func TestLeaseFlapping(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	long, bound := 5*time.Second, 20
	if os.Getenv("DMUTEX_LONG") != "" {
		long, bound = 10*time.Minute, 80
	}
	f := newLeaseGroup(t, overTCP, 5, "ricart", "suzukikasami")
	f.settle()
	flapping, slow, steady := f.processes[0], f.processes[1], f.processes[2]
	before := f.order(steady, order{Word: wordTell}).States
	var heal func()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	var flapAt, slowAt time.Time
	for end := time.Now().Add(long); time.Now().Before(end); <-ticker.C {
		f.watch()
		if now := time.Now(); now.After(flapAt) {
			flapAt = now.Add(200*time.Millisecond + time.Duration(f.rng.Int64N(int64(600*time.Millisecond))))
			if heal != nil {
				heal()
				heal = nil
			} else {
				heal = f.cut(cut{Link: true}, flapping)
			}
		}
		if now := time.Now(); now.After(slowAt) {
			if slow.paused {
				slowAt = now.Add(100 * time.Millisecond)
				slow.resume()
			} else {
				slowAt = now.Add(300*time.Millisecond + time.Duration(f.rng.Int64N(int64(300*time.Millisecond))))
				slow.pause()
			}
		}
	}
	slow.resume()
	if heal != nil {
		heal()
	}
	after := f.order(steady, order{Word: wordTell}).States
	f.settle()
	f.end()
	for name := range after {
		views := int(after[name].Changes - before[name].Changes)
		t.Logf("%s: %d views in %v; exclusions: %d of the flapping process, %d of the slow one, %d of a steady one; the longest time without a grant of a lock was %v",
			name, views, long, f.known[flapping.id][name].Exclusions, f.known[slow.id][name].Exclusions, f.known[steady.id][name].Exclusions,
			time.Duration(max(f.longest[name+"/lock 0"], f.longest[name+"/lock 1"])))
		require.LessOrEqual(t, views, bound, name)
	}
}

// The lock of a killed process goes to the next one after two waits: the others miss the process
// for a third of a lease, and then wait until its lease has ended. There are no other faults.
func TestLeaseFailover(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" {
		t.Skip("a measurement: set DMUTEX_LONG=1")
	}
	f := newLeaseGroup(t, overTCP, 3, slices.Sorted(maps.Keys(right))...)
	f.settle()
	for range 10 {
		f.kill(f.holder(f.processes))
		f.join()
		f.settle()
	}
	f.end()
	failover := f.failover()
	n := len(failover)
	require.NotZero(t, n)
	t.Logf("%d holders killed: the next grant after %.2f leases (median), %.2f (99 of 100)", n,
		failover[n/2].Seconds()/lease.Seconds(), failover[n*99/100].Seconds()/lease.Seconds())
	require.Less(t, failover[n/2], 2*lease)
}
