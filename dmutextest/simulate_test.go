package dmutextest_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
)

// Package repotest checks the formulas against simulations. These tests check the
// simulator itself.

func simulate(t *testing.T, c dmutextest.SimConfig) dmutextest.SimReport {
	t.Helper()
	r, err := dmutextest.Simulate(c)
	require.NoError(t, err)
	require.Equal(t, c.Entries, r.Entries)
	require.Equal(t, c.Entries, r.Wait.Count)
	sum := 0
	for _, k := range r.ByNode {
		sum += k
	}
	require.Equal(t, c.Entries, sum)
	return r
}

// A run that can be computed by hand: all nodes request at once, again and again. The
// first enters after two hops, each other node one hop after a release.
func TestSimulateByHand(t *testing.T) {
	const hold, entries = 3, 12
	r := simulate(t, dmutextest.SimConfig{
		Algorithm: ricart.New, Members: dmutextest.Nodes(4), Hold: hold, Entries: entries,
	})
	took := float64(2 + entries*hold + (entries - 1))
	require.Equal(t, took, r.Time)
	require.Equal(t, entries/took, r.Throughput)
	require.Equal(t, entries*2*3, r.Messages)
	require.Equal(t, 6.0, perEntry(r))
	require.Equal(t, []int{3, 3, 3, 3}, r.ByNode)
	require.Equal(t, 1.0, r.Fairness)
	require.Equal(t, dmutextest.Spread{Count: entries - 1, Mean: 1, Least: 1, Greatest: 1}, r.Next)
	require.Equal(t, 2.0, r.Wait.Least)
	require.Equal(t, 2.0+3*(hold+1), r.Wait.Greatest) // of the last node in the first round
	require.Zero(t, r.Cost.Count)
}

// One at a time: no node ever waits for another.
func TestSimulateRare(t *testing.T) {
	r := simulate(t, dmutextest.SimConfig{
		Algorithm: central.New, Members: dmutextest.Nodes(3), Think: math.Inf(1), Hold: 7, Entries: 300, Seed: 1,
	})
	require.Zero(t, r.Next)
	require.Equal(t, 300, r.Cost.Count)
	require.Equal(t, 0.0, r.Cost.Least)
	require.Equal(t, 3.0, r.Cost.Greatest)
	require.Equal(t, 3*(300-r.ByNode[0]), r.Messages)
	require.Equal(t, 0.0, r.Wait.Least)
	require.Equal(t, 2.0, r.Wait.Greatest)
}

// Between the two extremes: the longer the nodes think, the lower the throughput, and
// no node is at a disadvantage.
func TestSimulateThink(t *testing.T) {
	last := math.Inf(1)
	for _, think := range []float64{0, 5, 50, 5000} {
		r := simulate(t, dmutextest.SimConfig{
			Algorithm: ricart.New, Members: dmutextest.Nodes(5), Think: think, Hold: 1, Entries: 2000, Seed: 3,
		})
		require.Less(t, r.Throughput, last, "think %v", think)
		require.Greater(t, r.Fairness, 0.98, "think %v", think)
		last = r.Throughput
	}
}

func TestSimulateFairness(t *testing.T) {
	r := simulate(t, dmutextest.SimConfig{Algorithm: central.New, Members: dmutextest.Nodes(4), Entries: 1})
	require.Equal(t, 0.25, r.Fairness)
	r = simulate(t, dmutextest.SimConfig{Algorithm: central.New, Members: dmutextest.Nodes(4), Entries: 2})
	require.Equal(t, 0.5, r.Fairness)
}

// The same SimConfig and seed make the same run.
func TestSimulateSeed(t *testing.T) {
	for _, delay := range []dmutextest.Delay{dmutextest.Constant, dmutextest.Uniform, dmutextest.Exponential} {
		var reports []dmutextest.SimReport
		for _, seed := range []uint64{1, 1, 2} {
			reports = append(reports, simulate(t, dmutextest.SimConfig{
				Algorithm: suzukikasami.New, Members: []dmutex.NodeID{70, 3, 900}, Delay: delay, Think: 4, Entries: 100, Seed: seed,
			}))
		}
		require.Equal(t, reports[0], reports[1], delay)
		require.NotEqual(t, reports[0], reports[2], delay)
	}
}

// A message takes T on average under every distribution; a request and its
// grant take two of them.
func TestSimulateDelay(t *testing.T) {
	for _, tt := range []struct {
		delay           dmutextest.Delay
		least, greatest float64
	}{
		{dmutextest.Constant, 2, 2},
		{dmutextest.Uniform, 0, 4},
		{dmutextest.Exponential, 0, math.Inf(1)},
	} {
		r := simulate(t, dmutextest.SimConfig{
			Algorithm: central.At(1), Members: dmutextest.Nodes(300), Delay: tt.delay, Think: math.Inf(1), Entries: 10_000, Seed: 1,
		})
		require.InDelta(t, 2, r.Wait.Mean, 0.05, tt.delay)
		require.LessOrEqual(t, r.Wait.Greatest, tt.greatest, tt.delay)
		require.GreaterOrEqual(t, r.Wait.Least, 0.0)
		if tt.delay == dmutextest.Exponential {
			require.Greater(t, r.Wait.Greatest, 8.0)
		}
	}
}

// Under all delays the messages from one node to another keep their order.
func TestSimulateOrder(t *testing.T) {
	for _, delay := range []dmutextest.Delay{dmutextest.Constant, dmutextest.Uniform, dmutextest.Exponential} {
		heard := make(map[dmutex.NodeID][]uint64)
		chatty := spoil(func(n *spoiled) {
			n.request = func() ([]dmutex.Message, error) {
				out, err := n.Machine.Request()
				for k := range uint64(100) {
					out = append(out, dmutex.Message{Kind: dmutex.Reply, From: n.self, To: 3 - n.self, Clock: k})
				}
				return out, err
			}
			n.handle = func(m dmutex.Message) ([]dmutex.Message, error) {
				if m.Kind == dmutex.Reply {
					heard[m.To] = append(heard[m.To], m.Clock)
					return nil, nil
				}
				return n.Machine.Handle(m)
			}
		})
		simulate(t, dmutextest.SimConfig{Algorithm: chatty, Members: dmutextest.Nodes(2), Delay: delay, Entries: 2, Seed: 8})
		for _, to := range dmutextest.Nodes(2) {
			require.Len(t, heard[to], 100, delay)
			require.IsIncreasing(t, heard[to], delay)
		}
	}
}

// So Lamport's algorithm, which needs the order, runs under all delays.
func TestSimulateRandomDelays(t *testing.T) {
	for seed := range uint64(20) {
		for _, delay := range []dmutextest.Delay{dmutextest.Uniform, dmutextest.Exponential} {
			r := simulate(t, dmutextest.SimConfig{
				Algorithm: lamport.OmitReplies, Members: dmutextest.Nodes(7), Delay: delay, Entries: 100, Seed: seed,
			})
			require.LessOrEqual(t, perEntry(r), 18.0, "seed %d", seed)
		}
	}
}

// Ticks are what moves a circulating token: the faster the nodes tick, the more
// often it goes around.
func TestSimulateTick(t *testing.T) {
	last := math.Inf(1)
	for _, tick := range []float64{0.5, 2, 8} {
		r := simulate(t, dmutextest.SimConfig{
			Algorithm: ring.Circulate(1), Members: dmutextest.Nodes(6), Think: math.Inf(1), Tick: tick, Entries: 300, Seed: 1,
		})
		require.Zero(t, r.Cost.Count)
		require.Less(t, perEntry(r), last)
		require.LessOrEqual(t, r.Wait.Greatest, 6+5*tick)
		last = perEntry(r)
	}
	simulate(t, dmutextest.SimConfig{ // many ticks while no node waits are not a livelock
		Algorithm: ring.Circulate(1), Members: dmutextest.Nodes(2), Think: 1e6, Hold: 1e6, Tick: 10, Entries: 5, Seed: 1,
	})
	_, err := dmutextest.Simulate(dmutextest.SimConfig{
		Algorithm: ring.Circulate(1), Members: dmutextest.Nodes(6), Think: math.Inf(1), Entries: 20,
	})
	require.ErrorIs(t, err, dmutextest.ErrDeadlock, "no ticks")
}

// The simulator runs a thousand machines.
func TestSimulateThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a moment")
	}
	r := simulate(t, dmutextest.SimConfig{
		Algorithm: suzukikasami.New, Members: dmutextest.Nodes(1000), Hold: 1, Entries: 200, Seed: 1,
	})
	require.LessOrEqual(t, r.Messages, 200*1000)
	require.GreaterOrEqual(t, r.Messages, 199*1000) // one may have the token already
	require.Equal(t, 0.2, r.Fairness)               // 200 nodes once each
}

// The simulator finds faults, and reports them with the seed.
func TestSimulateViolations(t *testing.T) {
	stranger := dmutex.Message{Kind: dmutex.Reply, From: 1, To: 77, Attempt: 1}
	for _, tt := range []struct {
		name  string
		spoil func(*spoiled)
		want  error
		why   string
	}{
		{"everybody enters", func(n *spoiled) { n.request = n.enter }, dmutextest.ErrMutualExclusion, "1 and 2 both hold the lock"},
		{"fences repeat", func(n *spoiled) { n.fence = func(uint64) uint64 { return 1 } }, dmutextest.ErrFenceOrder, "with fence 1 after a grant with fence 1"},
		{"grants are dropped", func(n *spoiled) {
			n.handle = func(m dmutex.Message) ([]dmutex.Message, error) {
				if m.Kind == dmutex.Grant {
					return nil, nil
				}
				return n.Machine.Handle(m)
			}
		}, dmutextest.ErrDeadlock, "waits, no node holds the lock"},
		{"messages are refused", func(n *spoiled) {
			n.handle = func(dmutex.Message) ([]dmutex.Message, error) { return nil, errors.New("no") }
		}, dmutextest.ErrRefused, "no"},
		{"strangers get messages", func(n *spoiled) {
			n.request = func() ([]dmutex.Message, error) {
				_, err := n.Machine.Request()
				return []dmutex.Message{{Kind: dmutex.Request, From: n.self, To: stranger.To, Attempt: 1}}, err
			}
		}, dmutextest.ErrContract, "77"},
		{"they chat forever", func(n *spoiled) {
			n.handle = func(m dmutex.Message) ([]dmutex.Message, error) {
				return []dmutex.Message{{Kind: dmutex.Reply, From: m.To, To: m.From, Attempt: 1}}, nil
			}
		}, dmutextest.ErrLivelock, "events since"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := dmutextest.Simulate(dmutextest.SimConfig{
				Algorithm: spoil(tt.spoil), Members: dmutextest.Nodes(2), Hold: 1, Entries: 10, Seed: 5,
			})
			require.ErrorIs(t, err, tt.want)
			require.ErrorContains(t, err, tt.why)
			require.ErrorContains(t, err, "(seed 5, after ")
		})
	}
}

// A machine whose ticks achieve nothing is caught, too.
func TestSimulateTicksInVain(t *testing.T) {
	_, err := dmutextest.Simulate(dmutextest.SimConfig{
		Algorithm: func(s dmutex.Start) (dmutex.Machine, error) {
			m, err := spoil(func(n *spoiled) {
				n.handle = func(dmutex.Message) ([]dmutex.Message, error) { return nil, nil }
			})(s)
			return idler{m}, err
		},
		Members: dmutextest.Nodes(2), Tick: 1, Entries: 10, Seed: 2,
	})
	require.ErrorIs(t, err, dmutextest.ErrLivelock)
}

// An idler has ticks that do nothing.
type idler struct{ dmutex.Machine }

func (idler) Tick() ([]dmutex.Message, error) { return nil, nil }
func (i idler) Clone() dmutex.Machine         { return i }

// A spoiled machine is one of central with some methods replaced.
type spoiled struct {
	dmutex.Machine
	self    dmutex.NodeID
	request func() ([]dmutex.Message, error)
	handle  func(dmutex.Message) ([]dmutex.Message, error)
	fence   func(uint64) uint64
	entered bool
}

func spoil(how func(*spoiled)) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := central.New(s)
		if err != nil {
			return nil, err
		}
		n := &spoiled{Machine: m, self: s.Self}
		n.request, n.handle, n.fence = n.Machine.Request, n.Machine.Handle, func(f uint64) uint64 { return f }
		how(n)
		return n, nil
	}
}

func (n *spoiled) enter() ([]dmutex.Message, error) {
	n.entered = true
	return nil, nil
}

func (n *spoiled) Request() ([]dmutex.Message, error)                { return n.request() }
func (n *spoiled) Handle(m dmutex.Message) ([]dmutex.Message, error) { return n.handle(m) }
func (n *spoiled) Clone() dmutex.Machine                             { return n }

func (n *spoiled) Phase() dmutex.Phase {
	if n.entered {
		return dmutex.Held
	}
	return n.Machine.Phase()
}

func (n *spoiled) Fence() uint64 {
	if n.Phase() != dmutex.Held {
		return 0
	}
	return n.fence(max(1, n.Machine.Fence()))
}

func TestSimulateRefuses(t *testing.T) {
	good := dmutextest.SimConfig{Algorithm: central.New, Members: dmutextest.Nodes(3), Entries: 1}
	_, err := dmutextest.Simulate(good)
	require.NoError(t, err)
	for _, tt := range []struct {
		why  string
		harm func(*dmutextest.SimConfig)
	}{
		{"Members is empty", func(c *dmutextest.SimConfig) { c.Members = nil }},
		{"names a node twice", func(c *dmutextest.SimConfig) { c.Members = []dmutex.NodeID{1, 1} }},
		{"Entries is 0", func(c *dmutextest.SimConfig) { c.Entries = 0 }},
		{"Think may be +Inf", func(c *dmutextest.SimConfig) { c.Think = -1 }},
		{"Think may be +Inf", func(c *dmutextest.SimConfig) { c.Think = math.NaN() }},
		{"Think may be +Inf", func(c *dmutextest.SimConfig) { c.Hold = math.Inf(1) }},
		{"Think may be +Inf", func(c *dmutextest.SimConfig) { c.Tick = 1e300 }},
		{"Delay is 9", func(c *dmutextest.SimConfig) { c.Delay = 9 }},
	} {
		c := good
		tt.harm(&c)
		_, err := dmutextest.Simulate(c)
		require.ErrorIs(t, err, dmutex.ErrMisuse, tt.why)
		require.ErrorContains(t, err, tt.why)
	}
}

func perEntry(r dmutextest.SimReport) float64 { return float64(r.Messages) / float64(r.Entries) }

func ExampleSimulate() {
	for _, think := range []float64{math.Inf(1), 0} { // rare, and saturated
		r, err := dmutextest.Simulate(dmutextest.SimConfig{
			Algorithm: suzukikasami.New,
			Members:   dmutextest.Nodes(100),
			Think:     think,
			Hold:      1,
			Entries:   2000,
			Seed:      1,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%.2f messages an entry, %.2f T from request to entry, %.2f T from release to entry\n",
			float64(r.Messages)/float64(r.Entries), r.Wait.Mean, r.Next.Mean)
	}
	// Output:
	// 99.20 messages an entry, 1.98 T from request to entry, 0.00 T from release to entry
	// 99.95 messages an entry, 194.00 T from request to entry, 1.00 T from release to entry
}
