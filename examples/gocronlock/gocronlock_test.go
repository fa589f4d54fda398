package gocronlock_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/examples/gocronlock"
	"github.com/dmutex/dmutex/examples/internal/three"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
)

// schedule runs a scheduler with a job until the test ends.
func schedule(t *testing.T, o gocron.SchedulerOption, when gocron.JobDefinition, job func()) {
	t.Helper()
	s, err := gocron.NewScheduler(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Shutdown()) })
	_, err = s.NewJob(when, gocron.NewTask(job), gocron.WithName("nightly"))
	require.NoError(t, err)
	s.Start()
}

func locker(n *node.Node) *gocronlock.Locker {
	return &gocronlock.Locker{Mutex: func(job string) lock.Mutex { return n.Mutex(job) }}
}

// A job of three schedulers never runs twice at a time, and each run has a higher fence.
func TestLocker(t *testing.T) {
	var running, runs atomic.Int32
	var last atomic.Uint64
	done := make(chan struct{})
	var once sync.Once
	members := three.Open(t)
	for i, n := range members {
		l := locker(n)
		schedule(t, gocron.WithDistributedLocker(l), gocron.DurationJob(5*time.Millisecond), func() {
			require.EqualValues(t, 1, running.Add(1))
			defer running.Add(-1)
			fence := l.Held("nightly").Fence()
			require.Greater(t, fence, last.Swap(fence))
			if runs.Add(1) == 50 {
				once.Do(func() { close(done) })
			}
			_, err := locker(members[(i+1)%3]).Lock(t.Context(), "nightly") // a message there and back
			require.Error(t, err)
		})
	}
	<-done
}

// With Keep a short job runs once, although the schedulers begin it one after the other.
func TestKeep(t *testing.T) {
	for _, tt := range []struct {
		keep time.Duration
		runs int32
	}{{0, 3}, {time.Hour, 1}} {
		var runs atomic.Int32
		for _, n := range three.Open(t) {
			l := locker(n)
			l.Keep = tt.keep
			before := runs.Load()
			held, err := l.Lock(t.Context(), "nightly")
			for err != nil && tt.keep == 0 { // the release of the one before is on its way
				held, err = l.Lock(t.Context(), "nightly")
			}
			if err == nil {
				runs.Add(1)
				require.NoError(t, held.Unlock(t.Context()))
			}
			require.LessOrEqual(t, runs.Load(), before+1)
		}
		require.Equal(t, tt.runs, runs.Load())
	}
}

// A lock that is lost while its job runs is told at once.
func TestLost(t *testing.T) {
	n := three.Open(t)[0]
	lost := make(chan error, 1)
	l := locker(n)
	l.Lost = func(_ string, why error) { lost <- why }
	begun, stop := make(chan struct{}), make(chan struct{})
	schedule(t, gocron.WithDistributedLocker(l), gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), func() {
		close(begun)
		<-stop
	})
	<-begun
	held := l.Held("nightly")
	three.Close(n)
	<-held.Context().Done()
	require.ErrorIs(t, <-lost, lock.ErrLost)
	close(stop)
}

// One of three schedulers runs all jobs, and another goes on when it has gone.
func TestElector(t *testing.T) {
	members := three.Open(t)
	ran := make(chan int)
	electors := make([]*gocronlock.Elector, 3)
	for i, n := range members {
		electors[i] = &gocronlock.Elector{Mutex: n.Mutex("jobs")}
		schedule(t, gocron.WithDistributedElector(electors[i]), gocron.DurationJob(5*time.Millisecond), func() {
			select {
			case ran <- i:
			case <-t.Context().Done():
			}
		})
	}
	leader := <-ran
	for range 20 {
		require.Equal(t, leader, <-ran)
	}
	first := electors[leader].Held().Fence()
	three.Close(members[leader])
	for next := leader; next == leader; {
		next = <-ran
		require.Equal(t, next != leader, electors[next].Held().Fence() > first)
	}
	for _, e := range electors {
		_ = e.Resign()
	}
}
