//go:build unix

package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/node"
)

// A rolling restart of every member, while all members lock. Every other restart is by
// SIGTERM, after which the process leaves gracefully, and the others are by SIGKILL. In the
// end all processes are killed at once and started again. No two are in a critical section
// together, fences always rise, and no Acquire fails except those of the process that ends.
func TestRollingRestartTCP(t *testing.T)  { roll(t, "tcp", 3) }
func TestRollingRestartNATS(t *testing.T) { unlessShort(t); roll(t, "nats", 3) }

// unlessLong skips a test that shows what others show in a shorter time, or with less load.
func unlessLong(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" && *length == 0 {
		t.Skip("DMUTEX_LONG=1 adds this group")
	}
}

func roll(t *testing.T, link string, n int) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(right))
	r := newGroup(t, link, n, *seed, names...)
	long := 3 * time.Second
	if os.Getenv("DMUTEX_LONG") != "" {
		long = time.Minute
	}
	if *length > 0 {
		long = *length
	}
	rng := rand.New(rand.NewPCG(*seed, 1))
	restarts := 0
	for end := time.Now().Add(long); time.Now().Before(end); restarts++ {
		<-time.After(2*time.Second + time.Duration(rng.Int64N(int64(time.Second))))
		by := syscall.SIGTERM
		if restarts%2 == 1 {
			by = syscall.SIGKILL
		}
		r.restart(restarts%n, by)
		r.check()
	}
	var stalls []time.Duration
	for _, said := range r.word(wordTell) {
		stalls = append(stalls, said.Stalls...)
	}
	for i := range r.processes {
		r.end(i, syscall.SIGKILL)
	}
	for i := range r.processes {
		r.begin(i)
	}
	<-time.After(time.Second)
	r.word(wordStop)
	r.drain()
	r.leave()
	r.verdict()
	entries := r.referee.tally(t)
	slices.Sort(stalls)
	t.Logf("%d restarts, %d view changes seen, median stall %v, longest %v; entries: %v",
		restarts, len(stalls), stalls[len(stalls)/2], stalls[len(stalls)-1], entries)
	for _, name := range names {
		require.Positive(t, entries[name+"/lock 0"]+entries[name+"/lock 1"], name)
	}
}

// check fails the test if the referee has seen something wrong.
func (r *group) check() {
	r.t.Helper()
	select {
	case err := <-r.referee.wrong:
		require.NoError(r.t, err)
	default:
	}
}

// verdict is the last check, and judges the history as a whole.
func (r *group) verdict() {
	r.t.Helper()
	r.check()
	require.NoError(r.t, r.referee.history())
}

// A process is paused. Meanwhile the others are killed and started again, and a new
// process gets the number of the paused one. When the old process resumes, it learns that
// from the first frames that it exchanges with any member, and grants nothing from then
// on. Its entries before that are counted; a resource that checks fences refuses them.
func TestReplacedNATS(t *testing.T)     { unlessLong(t); replaced(t, "nats", 0, false) }
func TestReplacedTCP(t *testing.T)      { replaced(t, "tcp", 2, false) } // the one that dials the others
func TestReplacedIdleNATS(t *testing.T) { replaced(t, "nats", 0, true) }
func TestReplacedIdleTCP(t *testing.T)  { unlessLong(t); replaced(t, "tcp", 2, true) }

func replaced(t *testing.T, link string, i int, idle bool) {
	unlessShort(t)
	t.Parallel()
	names := slices.Sorted(maps.Keys(right))
	r := newGroup(t, link, 3, *seed, names...)
	r.awaitViews() // a process that is in no view yet is refused for another reason
	if idle {      // the old process has nothing more to send
		r.word(wordStop)
		r.drain()
	}
	old := r.processes[i]
	old.pause()
	r.referee.outlive(old.name(), time.Now().Add(time.Hour))
	for j := range r.processes {
		if j != i {
			r.end(j, syscall.SIGKILL)
		}
	}
	for j := range r.processes {
		r.begin(j)
	}
	<-time.After(2 * time.Second)
	resumed := time.Now()
	r.referee.outlive(old.name(), resumed.Add(patience)) // how long it takes is logged; a busy machine may be slow
	old.resume()
	r.awaitErr(old, node.ErrReplaced)
	t.Logf("it noticed within %v", time.Since(resumed)) // 30 to 60 ms on a machine that is not busy
	r.referee.outlive(old.name(), time.Now().Add(50*time.Millisecond))
	<-time.After(time.Second)
	r.check()
	t.Logf("it entered %d times before, with fences that are refused", r.referee.entered())
	r.word(wordStop)
	r.drain()
	r.leave()
	r.verdict()
}

// Two live processes have one number: the second ends with an error that says so, and
// the group goes on with the first. The test needs a machine that is not busy, because a
// process that does not answer for a quarter of a second is replaced. The tests of
// package node show the same in virtual time.
func TestNumberTakenNATS(t *testing.T) { unlessLong(t); numberTaken(t, "nats") }
func TestNumberTakenTCP(t *testing.T)  { unlessLong(t); numberTaken(t, "tcp") }

func numberTaken(t *testing.T, link string) {
	names := slices.Sorted(maps.Keys(right))
	r := newGroup(t, link, 3, *seed, names...)
	r.awaitViews()
	first := r.processes[2]
	second := r.start(first.job)
	r.await(second)
	begun := time.Now()
	require.NoError(t, second.child.Tell(order{Word: wordWork, Peers: r.peers[second.id]}))
	r.await(second)
	r.awaitErr(second, node.ErrNumberTaken)
	t.Logf("it noticed within %v", time.Since(begun)) // 2.2 s on a machine that is not busy
	for _, s := range r.word(wordTell) {
		for name, s := range s.States {
			require.Empty(t, s.Err, name)
			require.EqualValues(t, 1, s.Changes, "%s: the group has changed", name)
		}
	}
	r.word(wordStop)
	r.drain()
	r.leave()
	r.verdict()
}

// awaitErr waits until every node of the process has stopped, for the reason given.
func (r *group) awaitErr(p *process, why error) {
	r.t.Helper()
	for late := time.After(patience); ; {
		require.NoError(r.t, p.child.Tell(order{Word: wordTell}))
		said, left := r.await(p), 0
		for name, s := range said.States {
			if s.Err == "" {
				left++
			} else {
				require.Equal(r.t, "node: "+why.Error(), s.Err, name)
			}
		}
		if left == 0 {
			return
		}
		select {
		case <-late:
			require.FailNow(r.t, "the process does not notice", "%v", said.States)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// name is how the process calls itself when it speaks to the referee.
func (p *process) name() string { return fmt.Sprintf("process %d,", p.child.Pid()) }

func (r *referee) entered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}
