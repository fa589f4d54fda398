package node_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// sight is what an observer was told.
type sight struct {
	leader dmutex.NodeID
	epoch  uint64
}

// observe collects what a node's observer is told, until the node is closed or
// the test ends.
func (g *group) observe(id dmutex.NodeID, name string) *[]sight {
	var seen []sight
	e := g.node(id).Election(name)
	go func() {
		for leader, epoch := range e.Observe(g.t.Context()) {
			seen = append(seen, sight{leader, epoch})
		}
	}()
	synctest.Wait()
	return &seen
}

// pass lets time pass, and waits until everything that was due has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A post is a candidate in the background. The test decides when and how its term ends.
type post struct {
	epoch uint64
	ctx   context.Context
	stop  chan error // what its function returns
	done  chan error // what Campaign has returned
}

// campaignLater makes a candidate; p.ctx is nil until it leads.
func (g *group) campaignLater(ctx context.Context, id dmutex.NodeID, name string) *post {
	p := &post{stop: make(chan error, 1), done: make(chan error, 1)}
	e := g.node(id).Election(name)
	go func() {
		p.done <- e.Campaign(ctx, func(ctx context.Context, epoch uint64) error {
			p.ctx, p.epoch = ctx, epoch
			return <-p.stop
		})
	}()
	pass(time.Second)
	return p
}

// returns ends the term of a leader.
func (p *post) returns(t *testing.T) {
	p.stop <- nil
	require.NoError(t, <-p.done)
}

// idle requires that an election has left nothing behind.
func (g *group) idle(name string) {
	g.t.Helper()
	pass(time.Minute)
	for _, s := range g.all {
		require.Equal(g.t, node.MutexStatus{}, s.Mutex("election/"+name).Status(), "at node %d", s.id)
	}
	for leader, epoch := range g.node(1).Election(name).Observe(nodetest.ContextFor(g.t, time.Second)) {
		require.Fail(g.t, "somebody leads", "node %d, epoch %d", leader, epoch)
	}
}

// LESSONS L18, L71: leadership ends when the function returns, not when the function is told to
// stop.
func TestLeadsUntilItReturns(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		seen := g.observe(3, "x")
		ctx, cancel := context.WithCancel(t.Context())
		first := g.campaignLater(ctx, 1, "x")
		second := g.campaignLater(t.Context(), 2, "x")
		third := g.campaignLater(t.Context(), 1, "x")
		require.NoError(t, first.ctx.Err())
		g.node(2).Election("x").Resign()
		pass(time.Second)
		require.NoError(t, first.ctx.Err(), "a Resign at 2 reached the leader at 1")
		g.node(1).Election("x").Resign()
		g.node(1).Election("x").Resign()
		pass(10 * time.Minute)
		require.ErrorIs(t, context.Cause(first.ctx), node.ErrResigned)
		require.ErrorContains(t, context.Cause(first.ctx), `node: lock "election/x": `)
		cancel()
		pass(10 * time.Minute)
		require.Nil(t, second.ctx, "elected while another leads")
		require.Nil(t, third.ctx)
		require.Equal(t, []sight{{1, first.epoch}}, *seen)

		mine := errors.New("mine")
		first.stop <- mine
		require.Equal(t, mine, <-first.done)
		pass(time.Second)
		next, leader, other := second, dmutex.NodeID(2), third
		if next.ctx == nil {
			next, leader, other = third, 1, second
		}
		require.Nil(t, other.ctx)
		require.NoError(t, next.ctx.Err(), "a former Resign reached the new leader")
		require.Greater(t, next.epoch, first.epoch)
		require.Equal(t, []sight{{1, first.epoch}, {0, first.epoch}, {leader, next.epoch}}[2], (*seen)[len(*seen)-1])
		next.stop <- nil
		other.stop <- nil
		require.NoError(t, <-next.done)
		require.NoError(t, <-other.done)
		g.node(1).Election("x").Resign() // nobody leads
		g.idle("x")
	})
}

// LESSONS L19, L71, L75: however a campaign ends, the leadership is given up and the candidate
// leaves nothing behind.
func TestEveryWayOut(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		e := g.node(1).Election("x")
		last := uint64(0)
		for _, out := range []func(){
			func() {
				mine := errors.New("mine")
				require.Equal(t, mine, e.Campaign(t.Context(), func(context.Context, uint64) error { return mine }))
			},
			func() {
				require.PanicsWithValue(t, "oops", func() {
					_ = e.Campaign(t.Context(), func(context.Context, uint64) error { panic("oops") })
				})
			},
			func() {
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = e.Campaign(t.Context(), func(context.Context, uint64) error {
						runtime.Goexit()
						return nil
					})
				}()
				<-done
			},
			func() {
				require.Panics(t, func() { _ = e.Campaign(t.Context(), func(context.Context, uint64) error { panic("lead") }) })
			},
			func() {
				leader := g.campaignLater(t.Context(), 2, "x")
				ctx, cancel := context.WithCancel(t.Context())
				candidate := g.campaignLater(ctx, 1, "x")
				cancel()
				require.ErrorIs(t, <-candidate.done, context.Canceled)
				leader.returns(t)
			},
		} {
			out()
			g.idle("x")
			require.NoError(t, g.node(2).Election("x").Campaign(t.Context(), func(_ context.Context, epoch uint64) error {
				require.Greater(t, epoch, last)
				last = epoch
				return nil
			}))
			g.idle("x")
		}
	})
}

// LESSONS L72: the function runs once for each election that is won, and never otherwise. The error
// tells whether the candidate has led.
func TestNeverLed(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		never := func(context.Context, uint64) error {
			require.Fail(t, "it leads")
			return nil
		}
		e := g.node(2).Election("x")
		leader := g.campaignLater(t.Context(), 1, "x")
		err := e.Campaign(nodetest.ContextFor(t, time.Minute), never)
		require.ErrorIs(t, err, node.ErrNotElected)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "not elected")
		leader.returns(t)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		err = e.Campaign(ended, never)
		require.ErrorIs(t, err, node.ErrNotElected)
		require.ErrorIs(t, err, context.Canceled)

		for _, name := range []string{"", strings.Repeat("x", lock.MaxName-8)} {
			err = g.node(2).Election(name).Campaign(t.Context(), never)
			require.ErrorIs(t, err, node.ErrNotElected)
			require.ErrorIs(t, err, dmutex.ErrMisuse)
		}
		led := 0
		long := g.node(2).Election(strings.Repeat("x", lock.MaxName-9))
		require.NoError(t, long.Campaign(t.Context(), func(context.Context, uint64) error { led++; return nil }))
		require.Equal(t, 1, led)

		ctx, cancel := context.WithCancel(t.Context())
		err = e.Campaign(ctx, func(ctx context.Context, _ uint64) error {
			cancel()
			return ctx.Err()
		})
		require.Equal(t, context.Canceled, err, "it did lead")

		require.NoError(t, g.node(2).Close(t.Context()))
		err = e.Campaign(t.Context(), never)
		require.ErrorIs(t, err, node.ErrNotElected)
		require.ErrorIs(t, err, node.ErrClosed)
	})
}

// LESSONS L73: the context ends a candidacy and a term. A former leader may lead again.
func TestCampaignContext(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		e := g.node(1).Election("x")
		for range 3 {
			ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
			why := errors.New("enough")
			err := e.Campaign(ctx, func(ctx context.Context, _ uint64) error {
				require.Equal(t, "value", ctx.Value(key{}))
				time.AfterFunc(time.Minute, func() { cancel(why) })
				<-ctx.Done()
				return context.Cause(ctx)
			})
			require.Equal(t, why, err)
		}
		var kept context.Context
		require.NoError(t, e.Campaign(t.Context(), func(ctx context.Context, _ uint64) error { kept = ctx; return nil }))
		require.ErrorIs(t, kept.Err(), context.Canceled, "it outlives the term")
		g.idle("x")
	})
}

// LESSONS L74: announcements of different nodes overtake each other, but no observer hears of an
// older epoch after a newer one.
func TestObserveOvertaken(t *testing.T) {
	bubble(t, both, central.At(2), memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		seen := g.observe(3, "x")
		g.net.Cut(1, 3)
		one := g.campaignLater(t.Context(), 1, "x")
		one.returns(t)
		two := g.campaignLater(t.Context(), 2, "x")
		require.Equal(t, []sight{{2, two.epoch}}, *seen)
		g.net.Heal()
		pass(time.Minute)
		require.Equal(t, []sight{{2, two.epoch}}, *seen)
		late := g.observe(3, "x")
		require.Equal(t, []sight{{2, two.epoch}}, *late)
		two.returns(t)
		pass(time.Minute)
		require.Equal(t, []sight{{2, two.epoch}, {0, two.epoch}}, *seen)
		require.Equal(t, *seen, *late)
		require.Empty(t, *g.observe(3, "x"), "nobody leads")
	})
}

// A slow observer delays nobody, and sees the newest leader.
func TestObserveSlowly(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		var (
			seen  []sight
			again = make(chan bool)
		)
		go func() {
			for leader, epoch := range g.node(2).Election("x").Observe(t.Context()) {
				seen = append(seen, sight{leader, epoch})
				if !<-again {
					return
				}
			}
		}()
		last := uint64(0)
		for range 100 {
			require.NoError(t, g.node(1).Election("x").Campaign(t.Context(), func(_ context.Context, epoch uint64) error {
				last = epoch
				time.Sleep(time.Second)
				return nil
			}))
		}
		leader := g.campaignLater(t.Context(), 1, "x")
		require.Len(t, seen, 1)
		again <- true
		synctest.Wait()
		require.Equal(t, []sight{seen[0], {1, last + 1}}, seen)
		again <- true
		leader.returns(t)
		pass(time.Second)
		require.Equal(t, []sight{seen[0], {1, last + 1}, {0, last + 1}}, seen)
		again <- false
	})
}

// Observers learn at once that a leader begins, and that it ends.
func TestObserveAtOnce(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		require.NoError(t, g.acquire(1, "x").Release())
		pass(time.Second)
		seen := g.observe(3, "x")
		before := time.Now()
		require.NoError(t, g.node(1).Election("x").Campaign(t.Context(), func(context.Context, uint64) error {
			synctest.Wait()
			require.Len(t, *seen, 1)
			return nil
		}))
		synctest.Wait()
		require.Len(t, *seen, 2)
		require.Equal(t, before, time.Now())
	})
}

// A campaign or an observation may begin before the members have met.
func TestElectionBeforeReady(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		g.start(1)
		g.start(2)
		seen := g.observe(2, "x")
		leader := g.campaignLater(t.Context(), 1, "x")
		require.Nil(t, leader.ctx)
		g.net.Cut(3, 2) // 2 does not hear that 3 has met everybody
		g.start(3)
		g.net.Cut(1, 2)
		pass(time.Minute)
		g.net.Heal()
		pass(time.Minute)
		require.NotNil(t, leader.ctx)
		require.Equal(t, []sight{{1, leader.epoch}}, *seen)
		leader.returns(t)
	})
}

// When the node of a leader closes, the context of the leader ends. It still leads until its
// function returns, and Close waits for that.
func TestLeaderCloses(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		seen, own := g.observe(3, "x"), g.observe(1, "x")
		leader := g.campaignLater(t.Context(), 1, "x")
		next := g.campaignLater(t.Context(), 2, "x")
		closed := make(chan error, 1)
		go func() { closed <- g.node(1).Close(t.Context()) }()
		pass(10 * time.Minute)
		require.ErrorIs(t, context.Cause(leader.ctx), node.ErrLost)
		require.ErrorIs(t, context.Cause(leader.ctx), node.ErrClosed)
		require.Nil(t, next.ctx, "the closing leader's function still runs")
		require.Empty(t, closed)
		require.Equal(t, []sight{{1, leader.epoch}}, *seen)

		mine := errors.New("mine")
		leader.stop <- mine
		err := <-leader.done
		require.ErrorIs(t, err, mine)
		require.ErrorIs(t, err, node.ErrLost)
		require.ErrorIs(t, err, node.ErrClosed)
		require.NoError(t, <-closed)
		pass(time.Second)
		require.Equal(t, []sight{{1, leader.epoch}}, *own)
		require.Equal(t, []sight{{2, next.epoch}}, (*seen)[len(*seen)-1:])
		require.NoError(t, next.ctx.Err())
		next.returns(t)
	})
}

// A leader that is alone in its group can close.
func TestLonelyLeaderCloses(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(1)
		leader := g.campaignLater(t.Context(), 1, "x")
		closed := make(chan error, 1)
		go func() { closed <- g.node(1).Close(t.Context()) }()
		synctest.Wait()
		require.Empty(t, closed)
		leader.stop <- nil
		require.ErrorIs(t, <-leader.done, node.ErrClosed)
		require.NoError(t, <-closed)
	})
}

// Close may time out while the function of a leader still runs. Then no other leader is elected
// until the process has restarted, because only that proves that the function has ended.
func TestLeaderClosesInAHurry(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		seen := g.observe(3, "x")
		leader := g.campaignLater(t.Context(), 1, "x")
		next := g.campaignLater(t.Context(), 2, "x")
		err := g.node(1).Close(nodetest.ContextFor(t, time.Minute))
		require.EqualError(t, err, `node: close: the function that runs under lock "election/x" has not returned: context deadline exceeded`)
		pass(time.Hour)
		require.Nil(t, next.ctx, "the function may still run")
		require.Equal(t, []sight{{1, leader.epoch}}, *seen)
		leader.stop <- nil
		require.ErrorIs(t, <-leader.done, node.ErrClosed)
		g.start(1)
		pass(time.Minute)
		require.NotNil(t, next.ctx)
		require.Greater(t, next.epoch, leader.epoch)
		require.Equal(t, sight{2, next.epoch}, (*seen)[len(*seen)-1])
		next.returns(t)
	})
}

// A leader stays the leader while the group changes, and is announced to the processes that join.
// Its successor is elected in the new view.
func TestLeaderInAChangingGroup(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		leader := g.campaignLater(t.Context(), 2, "x")
		next := g.campaignLater(t.Context(), 3, "x")
		watched := g.observe(3, "x")
		g.crash(1)
		pass(time.Minute)
		g.start(1)
		pass(time.Minute)
		require.NoError(t, leader.ctx.Err())
		require.Nil(t, next.ctx)
		require.Equal(t, []sight{{2, leader.epoch}}, *g.observe(1, "x"))
		leader.returns(t)
		pass(time.Minute)
		require.NotNil(t, next.ctx)
		require.Greater(t, next.epoch, leader.epoch)
		require.Equal(t, []sight{{3, next.epoch}}, *g.observe(1, "x"))
		require.Equal(t, sight{3, next.epoch}, (*watched)[len(*watched)-1])
		next.returns(t)
	})
}

// An observation ends with its context, and with the loop.
func TestObserveEnds(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(1)
		e := g.node(1).Election("x")
		for range e.Observe(nodetest.ContextFor(t, time.Minute)) {
			require.Fail(t, "nobody leads")
		}
		leader := g.campaignLater(t.Context(), 1, "x")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range e.Observe(ended) {
			require.Fail(t, "it has ended")
		}
		for l, epoch := range e.Observe(t.Context()) {
			require.Equal(t, sight{1, leader.epoch}, sight{l, epoch})
			break
		}
		leader.returns(t)
	})
}

// Elections of different names are independent of each other, and of locks.
func TestElectionNames(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		require.Equal(t, "x", g.node(1).Election("x").Name())
		var leaders []*post
		for i := range 10 {
			leaders = append(leaders, g.campaignLater(t.Context(), dmutex.NodeID(1+i%2), fmt.Sprint(i)))
			h := g.acquire(dmutex.NodeID(2-i%2), fmt.Sprint(i))
			require.NoError(t, h.Release())
		}
		for i, l := range leaders {
			require.NotNil(t, l.ctx)
			require.Equal(t, []sight{{dmutex.NodeID(1 + i%2), l.epoch}}, *g.observe(2, fmt.Sprint(i)))
			l.returns(t)
		}
	})
}

// A candidate that is elected at the moment when its node closes either leads or leaves nothing
// behind. Close never waits for a candidate that does not know of its election.
func TestElectedWhileClosing(t *testing.T) {
	for range 50 { // a select chooses at random
		bubble(t, both, central.New, memlink.Config{}, func(t *testing.T, g *group) {
			g.open(1)
			h := g.acquire(1, "election/x")
			done := make(chan error, 1)
			go func() {
				done <- g.node(1).Election("x").Campaign(t.Context(), func(ctx context.Context, _ uint64) error {
					<-ctx.Done()
					return nil
				})
			}()
			synctest.Wait()
			require.NoError(t, h.Release())
			require.NoError(t, g.node(1).Close(nodetest.ContextFor(t, time.Hour)))
			require.ErrorIs(t, <-done, node.ErrClosed)
		})
	}
}

// LESSONS L51: candidates of one node lead in the order of their campaigns. When a leader returns,
// its node requests the lock again for the next candidate, behind the other nodes.
func TestOrderOfCandidates(t *testing.T) {
	bubble(t, both, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(5)
		var led []int
		var wg sync.WaitGroup
		for i, id := range []dmutex.NodeID{4, 1, 5, 2, 3, 1, 4} {
			wg.Go(func() {
				require.NoError(t, g.node(id).Election("x").Campaign(t.Context(), func(context.Context, uint64) error {
					led = append(led, i)
					time.Sleep(time.Second)
					return nil
				}))
			})
			time.Sleep(10 * time.Millisecond)
		}
		wg.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4, 6, 5}, led)
	})
}

// A leader that has crashed leads no more when its process is back, even at a node that was in no active
// view with the former life.
func TestElectionUnknownLeader(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond}, func(t *testing.T, g *group) {
		g.open(3)
		g.close(3)
		g.net.Cut(1, 3)
		g.start(3)
		seen := g.observe(3, "e")
		for g.node(2).Status().Peers[1].Left || !g.node(2).Status().Peers[1].Met {
			time.Sleep(100 * time.Microsecond)
		}
		go func() {
			_ = g.node(2).Election("e").Campaign(t.Context(), func(ctx context.Context, _ uint64) error {
				<-ctx.Done()
				return nil
			})
		}()
		pass(8 * time.Millisecond)
		require.False(t, g.node(3).Status().View.Acts)
		require.Len(t, *seen, 1)
		require.EqualValues(t, 2, (*seen)[0].leader)
		g.crash(2)
		g.start(2)
		pass(10 * time.Second)
		require.True(t, g.node(3).Status().View.Acts)
		require.Equal(t, dmutex.None, (*seen)[len(*seen)-1].leader)
	})
}

// A leader that crashes is replaced after its lease, and observers see the change.
func TestLeaseElection(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		g.open(3)
		first := g.campaignLater(t.Context(), 1, "boss")
		second := g.campaignLater(t.Context(), 2, "boss")
		seen := g.observe(3, "boss")
		g.node(1).crash()
		pass(leaseOf * 17 / 10)
		require.Error(t, first.ctx.Err())
		require.Greater(t, second.epoch, first.epoch)
		require.Equal(t, []sight{{1, first.epoch}, {dmutex.None, first.epoch}, {2, second.epoch}}, *seen)
		first.stop <- nil
		require.Error(t, <-first.done)
		second.returns(t)
	})
}

// LESSONS L71: when the node of an excluded leader is back, observers see no leader, even if the
// function of the former leader still runs.
func TestLeaseElectionLost(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := g.open(3)
		leader := g.campaignLater(t.Context(), 1, "boss")
		all[0].cut.Store(true)
		time.Sleep(2 * leaseOf)
		all[0].cut.Store(false)
		time.Sleep(2 * leaseOf)
		fresh := g.join()
		fresh.acquire("x")
		for who := range fresh.Election("boss").Observe(nodetest.ContextFor(t, leaseOf)) {
			require.Equal(t, dmutex.None, who)
		}
		leader.stop <- nil
		require.ErrorIs(t, <-leader.done, node.ErrLost)
	})
}

// A leader that returns in the last sixteenth of its lease leads alone.
func TestLeaseLeaderMargin(t *testing.T) {
	for name, end := range map[string]func(s *member){
		"outage":    func(s *member) { s.store.Outage(true) },
		"clock set": func(s *member) { s.StepWall(int64(2 * leaseOf)) },
		"clock set twice": func(s *member) {
			for range 2 {
				s.StepWall(int64(2 * leaseOf))
				time.Sleep(leaseOf / 100)
				s.Status() // reads the clock
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
				all := slices.Clone(g.open(2))
				var leads, most atomic.Int32
				lead := func(ctx context.Context, epoch uint64) error {
					most.Store(max(most.Load(), leads.Add(1)))
					<-ctx.Done()
					time.Sleep(leaseOf / 17) // nearly all of the time that it has
					leads.Add(-1)
					return nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 2)
				for _, s := range all {
					go func() { done <- s.Election("e").Campaign(ctx, lead) }()
					time.Sleep(leaseOf / 100)
					require.EqualValues(t, 1, leads.Load())
				}
				end(all[0])
				time.Sleep(leaseOf)
				all[0].store.Outage(false)
				cancel()
				<-done
				<-done
				require.EqualValues(t, 1, most.Load(), "leaders at the same instant")
			})
		})
	}
}

// Close waits for the function of a leader that has lost its lease.
func TestLeaseCloseLeader(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		s := g.open(1)[0]
		leader := g.campaignLater(t.Context(), 1, "e")
		s.store.Outage(true)
		time.Sleep(leaseOf * 3 / 2)
		s.store.Outage(false)
		require.Error(t, leader.ctx.Err())
		closed := make(chan error, 1)
		go func() { closed <- s.Close(t.Context()) }()
		time.Sleep(leaseOf)
		require.Empty(t, closed)
		leader.stop <- nil
		require.ErrorIs(t, <-leader.done, node.ErrLost)
		require.NoError(t, <-closed)
	})
}

// A leader that is gone leads no more, even at a node that was in no active view with it. Such a
// node has heard of the leader before its own view acted, and then that view was replaced.
func TestLeaseUnknownLeader(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		s := g.open(1)[0]
		s.Hear("boss", 77, epochs.First(s.Status().View.Epoch))
		g.open(2)
		for who := range s.Election("boss").Observe(nodetest.ContextFor(t, leaseOf)) {
			require.Equal(t, dmutex.None, who)
		}
	})
}
