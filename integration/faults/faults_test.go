//go:build unix

package faults

import (
	"flag"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
)

var (
	seed   = flag.Uint64("seed", 1, "of the faults and of what the processes do")
	length = flag.Duration("length", 0, "of the faults in each setting; the default is 4s, and 10m with DMUTEX_LONG=1")
	lease  = flag.Duration("lease", time.Second, "of the members; it is short, so that much happens")
)

// right are the names of the correct algorithms; either has these and the wrong ones, which must be caught.
var (
	right    []string
	typical  []string // of these: enough where there is little time
	canShare = make(map[string]bool)
	either   = map[string]dmutex.Algorithm{
		"alone": func(s dmutex.Start) (dmutex.Machine, error) {
			s.Members, s.Home = []dmutex.NodeID{s.Self}, s.Self // it asks no other node
			return ricart.New(s)
		},
		"unfenced": func(s dmutex.Start) (dmutex.Machine, error) {
			m, err := ricart.New(s)
			return unfenced{m}, err
		},
	}
)

func init() {
	for _, a := range algorithms.All {
		right = append(right, a.Name)
		if a.Typical() {
			typical = append(typical, a.Name)
		}
		canShare[a.Name], either[a.Name] = a.Shares, a.Algorithm
	}
}

type unfenced struct{ dmutex.Machine }

func (unfenced) Fence() uint64 { return 1 }

// A setting is what carries the frames and the records of a group.
type setting struct {
	name  string
	nats  bool   // and not TCP
	store string // empty in the strict mode
	long  bool   // it shows what others show in a shorter time
}

var settings = []setting{
	{name: "StrictTCP"},
	{name: "StrictNATS", nats: true},
	{name: "TCP", store: "file"},
	{name: "NATS", store: "file", nats: true},
	{name: "Proof", store: "prover"},
	{name: "JetStream", store: "jetstream", nats: true, long: true},
	{name: "PostgreSQL", store: "postgres", long: true},
	{name: "MariaDB", store: "mariadb", long: true},
	{name: "Etcd", store: "etcd", long: true},
	{name: "Redis", store: "redis", long: true},
}

// Five processes, each with a node for every algorithm, or some in the short form, are killed, leave, are paused and cut off, while the server that they
// need crashes. No two handles of a lock are good at one instant, unless they share it, fences rise, no process
// is stuck, and all leave in order.
//
// LESSONS L12: among the faults are processes that are stopped and resumed.
func TestStorm(t *testing.T) {
	for _, over := range settings {
		t.Run(over.name, func(t *testing.T) {
			long, names := 4*time.Second, right
			switch {
			case *length > 0:
				long = *length
			case os.Getenv("DMUTEX_LONG") != "":
				long = 10 * time.Minute
			case over.long:
				t.Skip("DMUTEX_LONG=1 adds this group")
			case testing.Short() && over.name != "StrictTCP": // members that are too slow for their lease exclude each other
				t.Skip("takes seconds")
			default:
				names = typical
			}
			t.Parallel() // it mostly waits
			of := *lease
			if over.store == "" {
				of = 0
			}
			g := newGroup(t, over, of, 5, names...)
			t.Logf("after the founding every process was granted every lock within %v", g.settle())
			g.storm(*lease, long)
			t.Logf("after the faults within %v", g.settle())
			g.end()
		})
	}
}

// The kernel tells at once that a process is dead. So with the record in a file no process waits for the lease of a dead
// one. The bounds are long, because the machine may be slow.
func TestProof(t *testing.T) {
	t.Parallel()
	const lease = time.Minute
	soon := func(what string, took time.Duration) {
		t.Helper()
		t.Logf("%s %v", what, took.Round(time.Millisecond/10))
		require.Less(t, took, lease/3)
	}
	g := newGroup(t, setting{store: "prover"}, lease, 3, right...)
	soon("a new record: every process is granted every lock within", g.settle())
	for range 5 {
		p, lock := g.awaitHolder()
		died := instant()
		g.kill(p.process)
		g.await("the lock is granted", func() bool { return g.referee.granted(nil, lock) > died })
		soon("the holder is killed: the next grant after", time.Duration(g.referee.granted(nil, lock)-died))
		g.begin(p)
		g.settle()
	}
	g.killAll()
	soon("after the death of all: every process is granted every lock within", g.settle())
	g.end()
}

// A process that is paused for longer than its lease learns that it has lost its locks from its first look at a handle,
// before any timer fires.
func TestPaused(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	g := newGroup(t, setting{store: "file"}, *lease, 3, right...)
	for range 2 {
		g.settle()
		p, _ := g.awaitHolder()
		p.process.signal(syscall.SIGSTOP)
		<-time.After(2**lease + *lease/2) // the others exclude it, and go on
		p.process.signal(syscall.SIGCONT)
	}
	g.settle()
	g.end()
}

// In the strict mode a process is paused. Meanwhile the others are killed and started again, and a new process gets the
// number of the paused one. When the old process resumes, it learns that from the first frames that it exchanges with any
// member, and ends. What it was granted before that has old fences, and a resource that checks them refuses it.
func TestReplaced(t *testing.T) {
	for _, over := range settings[:2] {
		t.Run(over.name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("takes seconds")
			}
			t.Parallel()
			g := newGroup(t, over, 0, 3, right...)
			g.settle()
			p := g.places[2] // over TCP it dials the others
			old := p.process
			old.signal(syscall.SIGSTOP)
			g.referee.gone(old, true)
			for _, other := range g.places[:2] { // they might say on a busy machine that the old one answers
				g.kill(other.process)
			}
			for _, at := range g.places {
				g.begin(at)
			}
			g.settle()
			fences := make(map[string]uint64)
			for _, lock := range g.locks() {
				fences[lock] = g.referee.fence(lock)
			}
			resumed := time.Now()
			old.signal(syscall.SIGCONT)
			select {
			case <-old.ended:
			case <-time.After(patience):
				require.FailNow(t, "the process does not notice")
			}
			t.Logf("it noticed within %v, and entered %d times before", time.Since(resumed), len(old.late))
			require.ErrorContains(t, old.status, node.ErrReplaced.Error())
			for _, s := range old.late {
				require.Less(t, s.Fence, fences[s.Lock])
			}
			g.settle()
			g.end()
		})
	}
}

// A lock that lets all in is noticed, and so are fences that do not rise.
func TestWrong(t *testing.T) {
	for name, says := range map[string]string{"alone": "alone/", "unfenced": "one fence was granted twice"} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, settings[0], 0, 5, name)
			var err error
			g.await("the referee has seen something", func() bool { _, err = g.referee.verdict(); return err != nil })
			require.ErrorContains(t, err, says)
		})
	}
}
