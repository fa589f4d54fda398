//go:build unix

package faults

import (
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/child"
)

const (
	// patience is long, because only a failing test waits for so long.
	patience = 2 * time.Minute

	workerArg = "worker"
)

// TestMain makes this program the worker as well.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		work()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == memberArg {
		obey()
		return
	}
	// The tests mostly wait. A flag on the command line takes precedence.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

// A process is a worker as the group sees it.
type process struct {
	id      dmutex.NodeID
	child   *child.Process
	reports chan report // closed when the process has ended
	status  error       // of its end
	paused  bool
	job     task
	ended   chan struct{}
	cable   *cable // with leases: all that comes to it, over NATS also all that it sends
}

// A group is some processes, the cables between them, and the referee.
type group struct {
	t         *testing.T
	referee   *referee
	processes []*process
	cables    []*cable
	server    *natsServer // nil for TCP

	mu    sync.Mutex
	where map[dmutex.NodeID]map[string]string                   // the addresses of each process, by algorithm
	peers map[dmutex.NodeID]map[string]map[dmutex.NodeID]string // the addresses that each process gets
}

// newGroup starts the processes, and they begin to work.
func newGroup(t *testing.T, link string, n int, seed uint64, algorithms ...string) *group {
	return newGroupOf(t, link, n, task{Seed: seed, Algorithms: algorithms})
}

func newGroupOf(t *testing.T, link string, n int, job task) *group {
	t.Logf("seed %d", job.Seed)
	r := &group{t: t, referee: newReferee(t), where: make(map[dmutex.NodeID]map[string]string)}
	if link == "nats" {
		r.server = newNATSServer(t, "")
	}
	job.Referee, job.Authority = r.referee.listener.Addr().String(), newAuthority(t)
	algorithms := job.Algorithms
	for i := range n {
		job.Members = append(job.Members, dmutex.NodeID(i+1))
	}
	for _, job.Self = range job.Members {
		if r.server != nil {
			job.NATS = r.cable().to(t, r.server.address)
		}
		r.processes = append(r.processes, r.start(job))
	}
	peers := make(map[dmutex.NodeID]map[string]map[dmutex.NodeID]string)
	r.peers = peers
	for _, p := range r.processes {
		peers[p.id] = make(map[string]map[dmutex.NodeID]string)
		for _, a := range algorithms {
			peers[p.id][a] = make(map[dmutex.NodeID]string)
		}
	}
	for _, p := range r.processes {
		where := r.await(p).Addresses
		r.mu.Lock()
		r.where[p.id] = where
		r.mu.Unlock()
		for _, q := range r.processes[p.id:] { // they have higher ids, so they dial
			if r.server != nil {
				break
			}
			c := r.cable()
			for _, a := range algorithms {
				peers[q.id][a][p.id] = c.to(t, func() string { return r.address(p.id, a) })
				peers[p.id][a][q.id] = ""
			}
		}
	}
	r.all(func(p *process) order { return order{Word: wordWork, Peers: peers[p.id]} })
	return r
}

func (r *group) address(id dmutex.NodeID, algorithm string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.where[id][algorithm]
}

// restart ends a process by a signal, and starts another with its number.
func (r *group) restart(i int, by syscall.Signal) {
	r.t.Helper()
	r.end(i, by)
	r.begin(i)
}

// end ends a process by a signal.
func (r *group) end(i int, by syscall.Signal) {
	r.t.Helper()
	p := r.processes[i]
	require.NoError(r.t, p.child.Signal(by))
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.FailNow(r.t, "a process does not end", "process %d", p.id)
	}
	if by == syscall.SIGTERM {
		require.NoError(r.t, p.status)
	}
}

// begin starts a process with the number of one that has ended.
func (r *group) begin(i int) {
	r.t.Helper()
	p := r.start(r.processes[i].job)
	r.processes[i] = p
	where := r.await(p).Addresses
	r.mu.Lock()
	r.where[p.id] = where
	r.mu.Unlock()
	require.NoError(r.t, p.child.Tell(order{Word: wordWork, Peers: r.peers[p.id]}))
	r.await(p)
}

func (r *group) cable() *cable {
	c := newCable(r.t)
	r.cables = append(r.cables, c)
	return c
}

// start starts this program again, as a worker.
func (r *group) start(job task) *process {
	p := &process{id: job.Self, reports: make(chan report), job: job, ended: make(chan struct{})}
	var err error
	p.child, err = child.Start(workerArg)
	require.NoError(r.t, err)
	stop := make(chan struct{})
	go func() {
		defer close(p.ended)
		defer close(p.reports)
		for {
			var said report
			if err := p.child.Hear(&said); err == io.EOF {
				return
			} else if err != nil {
				p.status = err
				return
			}
			select {
			case p.reports <- said:
			case <-stop:
			}
		}
	}()
	r.t.Cleanup(func() {
		close(stop)
		_ = p.child.Signal(os.Kill) // it may be paused, or have ended
		<-p.ended
	})
	require.NoError(r.t, p.child.Tell(job))
	return p
}

// await returns a process's next report.
func (r *group) await(p *process) report {
	r.t.Helper()
	select {
	case said, ok := <-p.reports:
		if !ok {
			require.FailNow(r.t, "a process has ended", "process %d: %v", p.id, p.status)
		}
		return said
	case <-time.After(patience):
		require.FailNow(r.t, "a process does not answer", "process %d", p.id)
	}
	panic("unreachable")
}

// all gives all processes an order and returns their reports.
func (r *group) all(o func(*process) order) []report {
	r.t.Helper()
	for _, p := range r.processes {
		require.NoError(r.t, p.child.Tell(o(p)))
	}
	var said []report
	for _, p := range r.processes {
		said = append(said, r.await(p))
	}
	return said
}

func (r *group) word(word string) []report {
	r.t.Helper()
	return r.all(func(*process) order { return order{Word: word} })
}

func (p *process) pause() {
	p.paused = true
	_ = p.child.Signal(syscall.SIGSTOP)
}

func (p *process) resume() {
	p.paused = false
	_ = p.child.Signal(syscall.SIGCONT)
}

// strangers connect to the processes, a hundred in a second, and say nothing. Over
// NATS the processes accept no connections.
func (r *group) strangers(stop <-chan struct{}) {
	var doors []string
	r.mu.Lock()
	for _, addresses := range r.where {
		doors = slices.AppendSeq(doors, maps.Values(addresses))
	}
	r.mu.Unlock()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	var waiting []net.Conn // the oldest first
	for i := 0; len(doors) > 0; i++ {
		select {
		case <-ticker.C:
		case <-stop:
			for _, c := range waiting {
				c.Close()
			}
			return
		}
		c, err := net.DialTimeout("tcp", doors[i%len(doors)], time.Second)
		if err != nil {
			continue // the backlog of a paused process is soon full
		}
		if waiting = append(waiting, c); len(waiting) > 200 {
			waiting[0].Close()
			waiting = waiting[1:]
		}
	}
}

// storm injects faults for a while, and then ends them all.
func (r *group) storm(rng *rand.Rand, length time.Duration) {
	stop := make(chan struct{})
	var crowd sync.WaitGroup
	crowd.Go(func() { r.strangers(stop) })
	defer crowd.Wait()
	defer close(stop)
	type recovery struct {
		due  time.Time
		undo func()
	}
	var (
		recoveries []recovery
		counts     = make(map[string]int)
		end        = time.Now().Add(length)
		ticker     = time.NewTicker(10 * time.Millisecond)
	)
	defer ticker.Stop()
	for now := range ticker.C {
		over := now.After(end)
		recoveries = slices.DeleteFunc(recoveries, func(c recovery) bool {
			if !over && now.Before(c.due) {
				return false
			}
			c.undo()
			return true
		})
		select {
		case err := <-r.referee.wrong:
			require.NoError(r.t, err)
		default:
		}
		if over {
			break
		}
		if rng.IntN(10) > 0 {
			continue
		}
		kind, undo := r.fault(rng)
		counts[kind]++
		if undo == nil {
			continue
		}
		mean := 150 * time.Millisecond
		if rng.IntN(10) == 0 {
			mean *= 10
		}
		lasts := time.Duration(rng.ExpFloat64() * float64(mean))
		recoveries = append(recoveries, recovery{now.Add(min(lasts, length/3)), undo})
	}
	r.t.Logf("faults: %v", counts)
}

// fault injects a fault, and returns the function that ends it, or nil if it is over.
func (r *group) fault(rng *rand.Rand) (kind string, undo func()) {
	if r.server != nil && rng.IntN(20) == 0 && r.server.stop() {
		return "server stopped", r.server.start
	}
	if p := r.processes[rng.IntN(len(r.processes))]; rng.IntN(4) == 0 {
		if p.paused {
			return "nothing", nil
		}
		p.pause()
		return "paused", p.resume
	}
	c := r.cables[rng.IntN(len(r.cables))]
	if c.faulty {
		c.drop()
		return "dropped", nil
	}
	c.faulty = true
	switch rng.IntN(3) {
	case 0:
		kind = "unplugged"
		c.unplug()
	case 1:
		kind = "held"
		c.hold()
	default:
		kind = "slow"
		c.slow(time.Duration(rng.Int64N(int64(30 * time.Millisecond))))
	}
	return kind, func() {
		c.faulty = false
		c.heal()
	}
}

// awaitViews waits until every node of every process is in a view.
func (r *group) awaitViews() {
	r.t.Helper()
	for late := time.After(patience); ; {
		out := 0
		for _, said := range r.word(wordTell) {
			for _, s := range said.States {
				if s.Changes == 0 {
					out++
				}
			}
		}
		if out == 0 {
			return
		}
		select {
		case <-late:
			require.FailNow(r.t, "nodes are in no view", "%d", out)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitVictim waits until a cycle has had a victim. On a slow machine that takes longer
// than the faults last.
func (r *group) awaitVictim() {
	for late := time.After(patience); ; {
		for _, said := range r.word(wordTell) {
			for _, s := range said.States {
				if s.Deadlocks > 0 {
					return
				}
			}
		}
		select {
		case <-late:
			require.FailNow(r.t, "no cycle has had a victim")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// drain waits until the group is at rest: no node holds or waits, and every message
// that was sent was received. The processes cannot all be asked at the same instant,
// so drain asks until nothing has happened between two rounds. It returns how many
// victims of cycles there were.
func (r *group) drain() (victims uint64) {
	late := time.After(patience)
	for before := map[string]state(nil); ; {
		total := make(map[string]state)
		idle := true
		victims = 0
		for i, said := range r.word(wordTell) {
			for a, s := range said.States {
				require.Empty(r.t, s.Err, "%s at %d", a, i+1)
				require.Zero(r.t, s.Refused, "%s at %d", a, i+1)
				idle = idle && len(s.Busy) == 0
				victims += s.Deadlocks
				sum := total[a]
				sum.Busy = append(sum.Busy, s.Busy...)
				for k := range dmutex.Kinds {
					sum.Sent[k] += s.Sent[k]
					sum.Received[k] += s.Received[k]
				}
				total[a] = sum
			}
		}
		for _, s := range total {
			idle = idle && s.Sent == s.Received
		}
		if idle && fmt.Sprint(total) == fmt.Sprint(before) {
			return victims
		}
		before = total
		select {
		case <-late:
			require.FailNow(r.t, "the group does not come to rest", "%+v", total)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// leave lets all processes close and end gracefully.
func (r *group) leave() {
	r.word(wordLeave)
	for _, p := range r.processes {
		_, more := <-p.reports
		require.False(r.t, more)
		require.NoError(r.t, p.status)
	}
}
