package dmutextest

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
)

// Package repotest checks the formulas against simulations. These tests check the
// simulator itself.

func simulate(t *testing.T, c SimConfig) SimReport {
	t.Helper()
	r, err := Simulate(c)
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
	r := simulate(t, SimConfig{
		Algorithm: ricart.New, Members: Nodes(4), Hold: hold, Entries: entries,
	})
	took := float64(2 + entries*hold + (entries - 1))
	require.Equal(t, took, r.Time)
	require.Equal(t, entries/took, r.Throughput)
	require.Equal(t, entries*2*3, r.Messages)
	require.Equal(t, 6.0, perEntry(r))
	require.Equal(t, []int{3, 3, 3, 3}, r.ByNode)
	require.Equal(t, 1.0, r.Fairness)
	require.Equal(t, Spread{Count: entries - 1, Mean: 1, Least: 1, Greatest: 1}, r.Next)
	require.Equal(t, 2.0, r.Wait.Least)
	require.Equal(t, 2.0+3*(hold+1), r.Wait.Greatest) // of the last node in the first round
	require.Zero(t, r.Cost.Count)
}

// One at a time: no node ever waits for another.
func TestSimulateRare(t *testing.T) {
	r := simulate(t, SimConfig{
		Algorithm: central.New, Members: Nodes(3), Think: math.Inf(1), Hold: 7, Entries: 300, Seed: 1,
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
		r := simulate(t, SimConfig{
			Algorithm: ricart.New, Members: Nodes(5), Think: think, Hold: 1, Entries: 2000, Seed: 3,
		})
		require.Less(t, r.Throughput, last, "think %v", think)
		require.Greater(t, r.Fairness, 0.98, "think %v", think)
		last = r.Throughput
	}
}

func TestSimulateFairness(t *testing.T) {
	r := simulate(t, SimConfig{Algorithm: central.New, Members: Nodes(4), Entries: 1})
	require.Equal(t, 0.25, r.Fairness)
	r = simulate(t, SimConfig{Algorithm: central.New, Members: Nodes(4), Entries: 2})
	require.Equal(t, 0.5, r.Fairness)
}

// The same SimConfig and seed make the same run.
func TestSimulateSeed(t *testing.T) {
	for _, delay := range []Delay{Constant, Uniform, Exponential} {
		var reports []SimReport
		for _, seed := range []uint64{1, 1, 2} {
			reports = append(reports, simulate(t, SimConfig{
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
		delay           Delay
		least, greatest float64
	}{
		{Constant, 2, 2},
		{Uniform, 0, 4},
		{Exponential, 0, math.Inf(1)},
	} {
		r := simulate(t, SimConfig{
			Algorithm: central.At(1), Members: Nodes(300), Delay: tt.delay, Think: math.Inf(1), Entries: 10_000, Seed: 1,
		})
		require.InDelta(t, 2, r.Wait.Mean, 0.05, tt.delay)
		require.LessOrEqual(t, r.Wait.Greatest, tt.greatest, tt.delay)
		require.GreaterOrEqual(t, r.Wait.Least, 0.0)
		if tt.delay == Exponential {
			require.Greater(t, r.Wait.Greatest, 8.0)
		}
	}
}

// Under all delays the messages from one node to another keep their order.
func TestSimulateOrder(t *testing.T) {
	for _, delay := range []Delay{Constant, Uniform, Exponential} {
		heard := make(map[dmutex.NodeID][]uint64)
		chatty := broken{
			request: func(b *broken) ([]dmutex.Message, error) {
				out, err := b.Machine.Request()
				for k := range uint64(100) {
					out = append(out, dmutex.Message{Kind: dmutex.Reply, From: b.self, To: 3 - b.self, Clock: k})
				}
				return out, err
			},
			handle: func(b *broken, m dmutex.Message) ([]dmutex.Message, error) {
				if m.Kind == dmutex.Reply {
					heard[m.To] = append(heard[m.To], m.Clock)
					return nil, nil
				}
				return b.Machine.Handle(m)
			},
		}
		simulate(t, SimConfig{Algorithm: chatty.of(central.New), Members: Nodes(2), Delay: delay, Entries: 2, Seed: 8})
		for _, to := range Nodes(2) {
			require.Len(t, heard[to], 100, delay)
			require.IsIncreasing(t, heard[to], delay)
		}
	}
}

// So Lamport's algorithm, which needs the order, runs under all delays.
func TestSimulateRandomDelays(t *testing.T) {
	for seed := range uint64(20) {
		for _, delay := range []Delay{Uniform, Exponential} {
			r := simulate(t, SimConfig{
				Algorithm: lamport.OmitReplies, Members: Nodes(7), Delay: delay, Entries: 100, Seed: seed,
			})
			require.LessOrEqual(t, perEntry(r), 18.0, "seed %d", seed)
		}
	}
}

// Ticks move a circulating token: the faster the nodes tick, the more often it goes
// around.
func TestSimulateTick(t *testing.T) {
	last := math.Inf(1)
	for _, tick := range []float64{0.5, 2, 8} {
		r := simulate(t, SimConfig{
			Algorithm: ring.Circulate(1), Members: Nodes(6), Think: math.Inf(1), Tick: tick, Entries: 300, Seed: 1,
		})
		require.Zero(t, r.Cost.Count)
		require.Less(t, perEntry(r), last)
		require.LessOrEqual(t, r.Wait.Greatest, 6+5*tick)
		last = perEntry(r)
	}
	simulate(t, SimConfig{ // many ticks while no node waits are not a livelock
		Algorithm: ring.Circulate(1), Members: Nodes(2), Think: 1e6, Hold: 1e6, Tick: 10, Entries: 5, Seed: 1,
	})
	_, err := Simulate(SimConfig{
		Algorithm: ring.Circulate(1), Members: Nodes(6), Think: math.Inf(1), Entries: 20,
	})
	require.ErrorIs(t, err, ErrDeadlock, "no ticks")
}

// The simulator runs a thousand machines.
func TestSimulateThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a moment")
	}
	r := simulate(t, SimConfig{
		Algorithm: suzukikasami.New, Members: Nodes(1000), Hold: 1, Entries: 200, Seed: 1,
	})
	require.LessOrEqual(t, r.Messages, 200*1000)
	require.GreaterOrEqual(t, r.Messages, 199*1000) // one may have the token already
	require.Equal(t, 0.2, r.Fairness)               // 200 nodes once each
}

// The simulator finds faults, and reports them with the seed.
func TestSimulateViolations(t *testing.T) {
	type messages = []dmutex.Message
	alone := func(s dmutex.Start) (dmutex.Machine, error) {
		return central.New(dmutex.Start{Self: s.Self, Members: []dmutex.NodeID{s.Self}})
	}
	for _, tt := range []struct {
		name      string
		algorithm dmutex.Algorithm
		want      error
		why       string
	}{
		{"everybody enters", alone, ErrMutualExclusion, "1 and 2 both hold the lock"},
		{"fences repeat", broken{
			fence: func(b *broken) uint64 { return min(1, b.Machine.Fence()) },
		}.of(central.New), ErrFenceOrder, "with fence 1 after a grant with fence 1"},
		{"grants are dropped", broken{
			handle: func(b *broken, m dmutex.Message) (messages, error) {
				if m.Kind == dmutex.Grant {
					return nil, nil
				}
				return b.Machine.Handle(m)
			},
		}.of(central.New), ErrDeadlock, "waits, no node holds the lock"},
		{"messages are refused", broken{
			handle: func(*broken, dmutex.Message) (messages, error) { return nil, errors.New("no") },
		}.of(central.New), ErrRefused, "no"},
		{"strangers get messages", broken{
			request: func(b *broken) (messages, error) {
				_, err := b.Machine.Request()
				return messages{{Kind: dmutex.Request, From: b.self, To: 77, Attempt: 1}}, err
			},
		}.of(central.New), ErrContract, "77"},
		{"they chat forever", catch.of(central.New), ErrLivelock, "events since"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Simulate(SimConfig{Algorithm: tt.algorithm, Members: Nodes(2), Hold: 1, Entries: 10, Seed: 5})
			require.ErrorIs(t, err, tt.want)
			require.ErrorContains(t, err, tt.why)
			require.ErrorContains(t, err, "(seed 5, after ")
		})
	}
}

// A machine whose ticks achieve nothing is caught, too.
func TestSimulateTicksInVain(t *testing.T) {
	deaf := broken{handle: func(*broken, dmutex.Message) ([]dmutex.Message, error) { return nil, nil }}
	_, err := Simulate(SimConfig{
		Algorithm: func(s dmutex.Start) (dmutex.Machine, error) {
			m, err := deaf.of(central.New)(s)
			return idler{m}, err
		},
		Members: Nodes(2), Tick: 1, Entries: 10, Seed: 2,
	})
	require.ErrorIs(t, err, ErrLivelock)
}

// An idler has ticks that do nothing.
type idler struct{ dmutex.Machine }

func (idler) Tick() ([]dmutex.Message, error) { return nil, nil }
func (i idler) Clone() dmutex.Machine         { return i }

func TestSimulateRefuses(t *testing.T) {
	good := SimConfig{Algorithm: central.New, Members: Nodes(3), Entries: 1}
	_, err := Simulate(good)
	require.NoError(t, err)
	for _, tt := range []struct {
		why  string
		harm func(*SimConfig)
	}{
		{"Members is empty", func(c *SimConfig) { c.Members = nil }},
		{"the Algorithm is nil", func(c *SimConfig) { c.Algorithm = nil }},
		{"names a node twice", func(c *SimConfig) { c.Members = []dmutex.NodeID{1, 1} }},
		{"Entries is 0", func(c *SimConfig) { c.Entries = 0 }},
		{"Think may be +Inf", func(c *SimConfig) { c.Think = -1 }},
		{"Think may be +Inf", func(c *SimConfig) { c.Think = math.NaN() }},
		{"Think may be +Inf", func(c *SimConfig) { c.Hold = math.Inf(1) }},
		{"Think may be +Inf", func(c *SimConfig) { c.Tick = 1e300 }},
		{"Delay is 9", func(c *SimConfig) { c.Delay = 9 }},
	} {
		c := good
		tt.harm(&c)
		_, err := Simulate(c)
		require.ErrorIs(t, err, dmutex.ErrMisuse, tt.why)
		require.ErrorContains(t, err, tt.why)
	}
}

func perEntry(r SimReport) float64 { return float64(r.Messages) / float64(r.Entries) }

// Nodes that share are inside together: with requests to share only, the next one is served as if
// there were no others. Writers among them are apart, or Simulate would say so.
func TestSimulateShares(t *testing.T) {
	c := SimConfig{Algorithm: central.New, Members: Nodes(9), Entries: 2000, Seed: 1, Hold: 50, Think: 50, Shares: 1}
	readers, err := Simulate(c)
	require.NoError(t, err)
	require.LessOrEqual(t, readers.Wait.Greatest, 2.0, "a round trip")
	c.Shares = 0.9
	mixed, err := Simulate(c)
	require.NoError(t, err)
	c.Shares = 0
	alone, err := Simulate(c)
	require.NoError(t, err)
	require.Greater(t, mixed.Throughput, 1.2*alone.Throughput)
	for _, shares := range []float64{-1, 2, math.NaN()} {
		c.Shares = shares
		_, err = Simulate(c)
		require.ErrorIs(t, err, dmutex.ErrMisuse)
	}
	c.Shares, c.Algorithm = 1, suzukikasami.New
	_, err = Simulate(c)
	require.ErrorIs(t, err, dmutex.ErrMisuse)
}
