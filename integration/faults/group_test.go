//go:build unix

package faults

import (
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/internal/child"
	"github.com/dmutex/dmutex/internal/kit/certtest"
)

const (
	// patience is long, because only a failing test waits for so long.
	patience = 2 * time.Minute

	// starving is how long a lock may go without a grant while some place has no fault. A process that was excluded
	// again and again pauses for about a minute.
	starving = 70 * time.Second

	workerArg = "worker"
)

// TestMain makes this program the worker as well.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		work()
		return
	}
	// The tests mostly wait. A flag on the command line takes precedence.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

// A place is where one process after the other runs. In the strict mode they have its number.
type place struct {
	task
	cable   *cable
	where   atomic.Pointer[map[string]string] // the addresses of the present process, by algorithm
	process *process
	busy    bool // there is a fault that will end
}

// A process is a worker as the group sees it.
type process struct {
	child  *child.Process
	last   report
	ended  chan struct{}
	status error // of its end
	dying  bool  // it was told to end

	// The referee has these.
	inside   map[uint64]stay
	replaced bool
	late     []stay // since then
}

// A group is some processes, what connects them, and the referee.
type group struct {
	t       *testing.T
	luck    *rand.Rand
	names   []string // of algorithms
	referee *referee
	places  []*place
	server  interface { // of NATS or of records; nil if it does not crash
		Start()
		Crash()
	}
	down    bool          // the server is
	well    int64         // when all places had a fault, last
	longest time.Duration // that a lock went without a grant
	begun   int           // how many processes have
	lasts   []report      // of processes that ended in order
}

// newGroup starts the processes. A lease of 0 stands for the strict mode.
func newGroup(t *testing.T, over setting, lease time.Duration, n int, names ...string) *group {
	t.Logf("seed %d", *seed)
	g := &group{
		t: t, luck: rand.New(rand.NewPCG(*seed, 0)), names: names,
		referee: newReferee(), well: instant(),
	}
	job := task{Algorithms: names, Seed: *seed, Lease: lease, Book: make(map[string]map[dmutex.NodeID]string), Store: over.store}
	remote := "" // where there are records that a process reaches through its cable
	switch over.store {
	case "file", "prover":
		job.Where = t.TempDir()
	case "postgres":
		db := servers.StartPostgres(t)
		job.Where, g.server = db.DSN("postgres"), db
	case "mariadb":
		db := servers.StartMariaDB(t)
		job.Where, g.server = db.Socket(), db
	case "etcd":
		remote, _ = servers.StartEtcd(t, t.TempDir())
	case "redis": // whose record is gone when it starts again
		r := servers.StartRedis(t)
		remote, g.server = r.Address, r
	}
	var ns *natsServer
	if over.nats {
		ns = newNATSServer(t)
		g.server = ns
	}
	for _, name := range names {
		job.Book[name] = make(map[dmutex.NodeID]string)
	}
	authority := certtest.New(t)
	for i := range n {
		job.Number = dmutex.NodeID(i + 1)
		job.Members = append(job.Members, job.Number)
		job.Papers = issue(t, authority, job.Number)
		p := &place{task: job, cable: newCable(t)}
		if remote != "" {
			p.Where = p.cable.to(t, func() string { return remote })
		}
		if over.nats {
			p.NATS = p.cable.to(t, ns.address)
		}
		for i, name := range names {
			if !over.nats && (lease == 0 || secured(i)) { // the others have a port that refuses connections when they are dead
				job.Book[name][p.Number] = p.cable.to(t, func() string { return p.address(name) })
			}
		}
		g.places = append(g.places, p)
	}
	for _, p := range g.places {
		p.Members = job.Members
		g.begin(p)
	}
	return g
}

func (p *place) address(algorithm string) string {
	if where := p.where.Load(); where != nil {
		return (*where)[algorithm]
	}
	return ""
}

// begin starts this program again, as a worker.
func (g *group) begin(at *place) {
	g.restore() // a process that starts needs its store
	p := &process{ended: make(chan struct{}), inside: make(map[uint64]stay)}
	at.process = p
	g.begun++
	var err error
	p.child, err = child.Start(workerArg)
	require.NoError(g.t, err)
	g.t.Cleanup(func() {
		_ = p.child.Signal(os.Kill) // it may be paused, or have ended
		<-p.ended
	})
	listens := make(chan map[string]string, 1)
	go func() {
		defer close(p.ended)
		defer g.referee.gone(p, false)
		for {
			var said report
			if err := p.child.Hear(&said); err != nil {
				if err != io.EOF {
					p.status = err
				}
				return
			}
			switch {
			case said.Addresses != nil:
				listens <- said.Addresses
			case said.Stay != nil:
				g.referee.hear(p, *said.Stay)
			default:
				p.last = said
			}
		}
	}()
	require.NoError(g.t, p.child.Tell(at.task))
	select {
	case where := <-listens:
		at.where.Store(&where)
	case <-p.ended:
		require.FailNow(g.t, "a process does not begin", "%v", p.status)
	}
}

// kill ends a process at once, and exit in order.
func (g *group) kill(p *process) {
	p.dying = true
	require.NoError(g.t, p.child.Signal(os.Kill))
	<-p.ended
	require.ErrorContains(g.t, p.status, "killed", "it has ended by itself before")
}

func (g *group) exit(p *process) {
	p.dying = true
	require.NoError(g.t, p.child.Signal(syscall.SIGTERM))
}

// leaves reports whether the process was told to end, and has not.
func (p *place) leaves() bool {
	select {
	case <-p.process.ended:
		return false
	default:
		return p.process.dying
	}
}

// left waits for the end of a process that was told to exit.
func (g *group) left(p *process) {
	select {
	case <-p.ended:
		require.NoError(g.t, p.status)
		g.lasts = append(g.lasts, p.last)
	case <-time.After(patience):
		require.FailNow(g.t, "a process does not end")
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.child.Signal(s) } // it may have ended

// free returns the places that have no fault.
func (g *group) free() (free []*place) {
	for _, p := range g.places {
		if !p.busy {
			free = append(free, p)
		}
	}
	return free
}

// holder returns a place whose process has held a lock for a while, and the lock. If there is none, it returns any place.
func (g *group) holder(among []*place) (p *place, lock string) {
	for _, i := range g.luck.Perm(len(among)) {
		if p = among[i]; g.referee.holds(p.process) != "" {
			break
		}
	}
	return p, g.referee.holds(p.process)
}

// harm lets a fault happen, and returns the function that ends it.
func (g *group) harm(at *place, kind string) (end func()) {
	p := at.process
	switch kind {
	case "killed":
		g.kill(p)
		return func() { g.begin(at) }
	case "left":
		g.exit(p)
		return func() { g.left(p); g.begin(at) }
	case "paused":
		p.signal(syscall.SIGSTOP)
		return func() { p.signal(syscall.SIGCONT) }
	default: // unplugged
		at.cable.plug(false)
		return func() { at.cable.plug(true) }
	}
}

// crash ends the server, unless it is down.
func (g *group) crash() {
	if !g.down {
		g.server.Crash()
		g.down = true
	}
}

// restore starts the server again, if it is down.
func (g *group) restore() {
	if g.down {
		g.server.Start()
		g.down = false
	}
}

// watch fails the test if a process has ended by itself, or if nobody is granted a lock.
func (g *group) watch() {
	g.t.Helper()
	for _, p := range g.places {
		select {
		case <-p.process.ended:
			require.True(g.t, p.process.dying, "process %d has ended: %v", p.Number, p.process.status)
		default:
		}
	}
	now := instant()
	if len(g.free()) == 0 {
		g.well = now
	}
	for _, lock := range g.locks() {
		gap := time.Duration(now - max(g.well, g.referee.granted(nil, lock)))
		g.longest = max(g.longest, gap)
		require.Less(g.t, gap, starving, "nobody gets %s", lock)
	}
}

func (g *group) locks() (names []string) {
	for _, a := range g.names {
		for i := range locks {
			names = append(names, fmt.Sprintf("%s/lock %d", a, i))
		}
	}
	return names
}

// await waits until something is true.
func (g *group) await(what string, is func() bool) {
	g.t.Helper()
	for late := time.After(patience); !is(); g.watch() {
		select {
		case <-late:
			require.FailNow(g.t, "it is not true that "+what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// awaitHolder returns a place whose process has held a lock for a while.
func (g *group) awaitHolder() (p *place, lock string) {
	g.await("a process holds a lock", func() bool { p, lock = g.holder(g.places); return lock != "" })
	return p, lock
}

// settle waits until every process is granted every lock again, and returns how long that takes.
func (g *group) settle() time.Duration {
	g.t.Helper()
	begun := instant()
	g.await("every process is granted every lock", func() bool {
		return !slices.ContainsFunc(g.places, func(p *place) bool {
			return slices.ContainsFunc(g.locks(), func(lock string) bool { return g.referee.granted(p.process, lock) < begun })
		})
	})
	return time.Duration(instant() - begun)
}

// storm lets faults happen for a while, one every half a unit on average, each for up to two and a half, and then ends
// them all. In the middle it kills all processes at once.
func (g *group) storm(unit, long time.Duration) {
	type fault struct {
		due time.Time
		at  *place // nil if it is one of the server
		end func()
	}
	var faults []fault
	heal := func(until time.Time) {
		faults = slices.DeleteFunc(faults, func(f fault) bool {
			if f.due.After(until) || f.at != nil && f.at.leaves() {
				return false
			}
			if f.at != nil {
				f.at.busy = false
			}
			f.end()
			return true
		})
	}
	calm := func() {
		g.await("all faults end", func() bool { heal(time.Now().Add(patience)); return len(faults) == 0 })
	}
	kinds := []string{"killed", "left", "paused", "unplugged"}
	if g.server != nil {
		kinds = append(kinds, "server crashed")
	}
	upTo := func(d time.Duration) time.Duration { return time.Duration(g.luck.Int64N(int64(d))) }
	count := make(map[string]int)
	begun := time.Now()
	end, next, middle := begun.Add(long), begun, begun.Add(long/2)
	for i := 0; time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		g.watch()
		now := time.Now()
		heal(now)
		if now.After(middle) {
			middle = end
			calm()
			g.killAll()
		}
		free, kind := g.free(), kinds[i%len(kinds)]
		if now.Before(next) || len(free) == 0 || kind == "left" && slices.ContainsFunc(g.places, (*place).leaves) {
			continue // in the strict mode those who leave may wait for each other, one in this group and one in that
		}
		next = now.Add(upTo(unit))
		if i++; i%len(kinds) == 0 { // each comes once, before any comes again
			g.luck.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		}
		count[kind]++
		f := fault{due: now.Add(upTo(5 * unit / 2))}
		if kind == "server crashed" {
			g.crash()
			f.end = g.restore
		} else {
			f.at, _ = g.holder(free)
			f.at.busy = true
			f.end = g.harm(f.at, kind)
		}
		faults = append(faults, f)
	}
	calm()
	g.t.Logf("faults: %v", count)
}

func (g *group) killAll() {
	for _, p := range g.places {
		g.kill(p.process)
	}
	for _, p := range g.places {
		g.begin(p)
	}
}

// end lets all processes leave, and asks the referee.
func (g *group) end() {
	g.t.Helper()
	for _, p := range g.places {
		g.exit(p.process)
	}
	var took []time.Duration
	exclusions := 0
	for _, p := range g.places {
		g.left(p.process)
	}
	for _, last := range g.lasts {
		took = append(took, last.Took...)
		exclusions += last.Exclusions
	}
	slices.Sort(took)
	stays, err := g.referee.verdict()
	require.NoError(g.t, err)
	g.t.Logf("%d processes, %d grants; the longest time without a grant of a lock was %v", g.begun, stays, g.longest)
	g.t.Logf("%d processes that ended in order saw %d exclusions of theirs, and %d views; these stopped grants for %v (median), %v (longest)",
		len(g.lasts), exclusions, len(took), took[len(took)/2], took[len(took)-1])
}
