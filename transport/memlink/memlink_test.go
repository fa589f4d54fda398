package memlink_test

import (
	"fmt"
	"math"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
	"github.com/dmutex/dmutex/transport/memlink"
)

// The limits of package memlink.
const maxFrame, backlog = 64 << 10, 4 << 20

// links describes links of networks with the given faults.
func links(config memlink.Config) linktest.Links {
	return linktest.Links{
		New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
			network, err := memlink.New(config)
			require.NoError(t, err)
			return func(id dmutex.NodeID) transport.Link { return network.Link(id) }
		},
		Ordered:  config.MinDelay == config.MaxDelay,
		Synctest: true,
	}
}

// Tests need no server: a network in memory keeps the contract of links. (L80)
func TestLink(t *testing.T) {
	for _, config := range []memlink.Config{
		{},
		{MinDelay: time.Millisecond, MaxDelay: time.Millisecond},
		{MaxDelay: time.Millisecond},
	} {
		t.Run(fmt.Sprintf("delay %v to %v", config.MinDelay, config.MaxDelay), func(t *testing.T) {
			linktest.TestLink(t, links(config))
			linktest.TestDynamicLink(t, links(config))
		})
	}
}

// Streams repair loss, duplication and delay. DMUTEX_LONG=1 runs 500 seeds.
func TestStream(t *testing.T) {
	seeds := uint64(20)
	if os.Getenv("DMUTEX_LONG") != "" {
		seeds = 500
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			for _, bad := range []memlink.Config{
				{Seed: seed, Loss: 0.1, Duplicate: 0.1, MaxDelay: 10 * time.Millisecond},
				{Seed: seed, Loss: 0.2, Duplicate: 0.2},
				{Seed: seed, Loss: 0.2, Duplicate: 0.2, MaxDelay: 10 * time.Millisecond},
			} {
				linktest.TestStream(t, links(bad), nil)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	for _, test := range []struct {
		config memlink.Config
		says   string // part of the refusal; empty if accepted
	}{
		{memlink.Config{Loss: 1, Duplicate: 1}, ""},
		{memlink.Config{Loss: -0.1}, "Config.Loss"},
		{memlink.Config{Loss: 1.1}, "Config.Loss"},
		{memlink.Config{Loss: math.NaN()}, "Config.Loss"},
		{memlink.Config{Duplicate: 2}, "Config.Duplicate"},
		{memlink.Config{MinDelay: 1, MaxDelay: 1}, ""},
		{memlink.Config{MinDelay: -1, MaxDelay: 1}, "Config.MinDelay"},
		{memlink.Config{MinDelay: 2, MaxDelay: 1}, "Config.MinDelay"},
	} {
		_, err := memlink.New(test.config)
		if test.says == "" {
			require.NoError(t, err, "%+v", test.config)
			continue
		}
		require.ErrorIs(t, err, dmutex.ErrMisuse, "%+v", test.config)
		require.ErrorContains(t, err, test.says)
	}
}

// A receiver lists the frames that arrive. Read the list after synctest.Wait.
type receiver struct {
	transport.Link
	got []arrival
}

type arrival struct {
	from dmutex.NodeID
	n    byte
	at   time.Duration
}

// open opens a link for each of nodes 1 to n.
func open(t *testing.T, network *memlink.Network, n int) []*receiver {
	t.Helper()
	birth := time.Now()
	nodes := make([]*receiver, n)
	for i := range nodes {
		r := &receiver{Link: network.Link(dmutex.NodeID(i + 1))}
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		require.NoError(t, r.Open(transport.Host{Deliver: linktest.Each(func(from dmutex.NodeID, frame []byte) {
			r.got = append(r.got, arrival{from, frame[0], time.Since(birth)})
		})}))
		nodes[i] = r
	}
	return nodes
}

// fates sends 200 frames from node 1 to node 2. It returns how often each arrived, and
// all arrivals.
func fates(t *testing.T, config memlink.Config) (times [200]int, got []arrival) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(config)
		require.NoError(t, err)
		nodes := open(t, network, 2)
		for i := range times {
			require.NoError(t, nodes[0].Send(2, []byte{byte(i)}))
		}
		time.Sleep(config.MaxDelay) // of the bubble's clock
		synctest.Wait()
		got = nodes[1].got
	})
	for _, a := range got {
		times[a.n]++
	}
	return times, got
}

func TestFaults(t *testing.T) {
	count := func(times [200]int, want int) (n int) {
		for _, n1 := range times {
			if n1 == want {
				n++
			}
		}
		return n
	}
	times, _ := fates(t, memlink.Config{})
	require.Equal(t, 200, count(times, 1))
	times, _ = fates(t, memlink.Config{Loss: 1})
	require.Equal(t, 200, count(times, 0))
	times, _ = fates(t, memlink.Config{Duplicate: 1})
	require.Equal(t, 200, count(times, 2))

	config := memlink.Config{Seed: 1, Loss: 0.3, Duplicate: 0.2}
	times, _ = fates(t, config)
	require.InDelta(t, 200*0.3, count(times, 0), 25, "seed 1")
	require.InDelta(t, 200*0.7*0.2, count(times, 2), 25, "seed 1")
	again, _ := fates(t, config)
	require.Equal(t, times, again, "the same seed loses and repeats the same frames")
	config.MaxDelay = time.Second
	delayed, _ := fates(t, config)
	require.Equal(t, times, delayed, "a delay does not change which")
	config.Seed = 2
	other, _ := fates(t, config)
	require.NotEqual(t, times, other)
}

func TestDelay(t *testing.T) {
	_, got := fates(t, memlink.Config{MinDelay: time.Second, MaxDelay: time.Second})
	for i, a := range got {
		require.Equal(t, arrival{1, byte(i), time.Second}, a)
	}
	config := memlink.Config{Seed: 1, MinDelay: time.Second, MaxDelay: 3 * time.Second}
	_, got = fates(t, config)
	overtaken := 0
	for i, a := range got {
		require.True(t, config.MinDelay <= a.at && a.at < config.MaxDelay, "arrives after %v", a.at)
		if i > 0 && a.n < got[i-1].n {
			overtaken++
		}
	}
	require.Greater(t, overtaken, 50, "seed 1")
	_, again := fates(t, config)
	require.Equal(t, got, again)
}

// reached lets every node send to every other and tells who heard whom.
func reached(t *testing.T, nodes []*receiver) string {
	t.Helper()
	for i, from := range nodes {
		for j := range nodes {
			if i != j {
				require.NoError(t, from.Send(dmutex.NodeID(j+1), []byte{0}))
			}
		}
	}
	synctest.Wait()
	var s string
	for i := range nodes {
		for j, to := range nodes {
			for _, a := range to.got {
				if a.from == dmutex.NodeID(i+1) {
					s += fmt.Sprintf("%d>%d ", i+1, j+1)
				}
			}
		}
	}
	for _, n := range nodes {
		n.got = nil
	}
	return s
}

func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		nodes := open(t, network, 4)
		const all = "1>2 1>3 1>4 2>1 2>3 2>4 3>1 3>2 3>4 4>1 4>2 4>3 "
		require.Equal(t, all, reached(t, nodes))

		network.Partition([]dmutex.NodeID{1, 4}, []dmutex.NodeID{2})
		require.Equal(t, "1>4 4>1 ", reached(t, nodes))
		network.Partition([]dmutex.NodeID{1}) // the others are a group too
		require.Equal(t, "2>3 2>4 3>2 3>4 4>2 4>3 ", reached(t, nodes))
		network.Cut(2, 3) // in one direction
		require.Equal(t, "2>4 3>2 3>4 4>2 4>3 ", reached(t, nodes))
		network.Partition()
		require.Equal(t, "1>2 1>3 1>4 2>1 2>4 3>1 3>2 3>4 4>1 4>2 4>3 ", reached(t, nodes))
		network.Partition([]dmutex.NodeID{1})
		network.Heal()
		require.Equal(t, all, reached(t, nodes))
	})
}

// Sending to a node that is known but absent is no error, as on any network.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		nodes := open(t, network, 2)
		third := network.Link(3)
		require.NoError(t, nodes[0].Send(3, []byte{1}))
		second := network.Link(2)
		require.ErrorIs(t, second.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}), dmutex.ErrMisuse)
		require.NoError(t, nodes[1].Close())
		require.NoError(t, nodes[0].Send(2, []byte{1}))
		require.NoError(t, second.Open(transport.Host{Deliver: linktest.Each(func(dmutex.NodeID, []byte) { t.Error("a frame from before the restart arrives") })}))
		synctest.Wait()
		require.NoError(t, second.Close())
		require.NoError(t, third.Close())
	})
}

func TestNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		for range 2 {
			nobody := network.Link(dmutex.None)
			require.NoError(t, nobody.Open(transport.Host{Deliver: linktest.Each(func(dmutex.NodeID, []byte) { t.Error("delivered to nobody") })}))
			t.Cleanup(func() { require.NoError(t, nobody.Close()) })
		}
		one := open(t, network, 1)[0]
		require.ErrorIs(t, one.Send(dmutex.None, []byte{1}), transport.ErrUnknownNode)
	})
}

func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{MinDelay: time.Second, MaxDelay: time.Second})
		require.NoError(t, err)
		nodes := open(t, network, 3)
		frame := make([]byte, maxFrame)
		for range backlog / (maxFrame + 64) {
			require.NoError(t, nodes[0].Send(2, frame))
		}
		require.ErrorIs(t, nodes[0].Send(2, frame), transport.ErrFull)
		require.NoError(t, nodes[0].Send(3, frame))
		time.Sleep(time.Second) // of the bubble's clock
		synctest.Wait()
		require.NoError(t, nodes[0].Send(2, frame))
	})
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	network, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	one, two := network.Link(1), network.Link(2)
	pong := make(chan struct{}, 1)
	require.NoError(t, one.Open(transport.Host{Deliver: linktest.Each(func(dmutex.NodeID, []byte) { pong <- struct{}{} })}))
	require.NoError(t, two.Open(transport.Host{Deliver: linktest.Each(func(from dmutex.NodeID, frame []byte) { _ = two.Send(from, frame) })}))
	frame := make([]byte, 32)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		_ = one.Send(2, frame)
		<-pong
	}))
	require.NoError(t, one.Close())
	require.NoError(t, two.Close())
}

func BenchmarkPingPong(b *testing.B) {
	network, err := memlink.New(memlink.Config{})
	require.NoError(b, err)
	one, two := network.Link(1), network.Link(2)
	pong := make(chan struct{}, 1)
	require.NoError(b, one.Open(transport.Host{Deliver: linktest.Each(func(dmutex.NodeID, []byte) { pong <- struct{}{} })}))
	require.NoError(b, two.Open(transport.Host{Deliver: linktest.Each(func(from dmutex.NodeID, frame []byte) { _ = two.Send(from, frame) })}))
	frame := make([]byte, 32)
	b.ReportAllocs()
	for b.Loop() {
		_ = one.Send(2, frame)
		<-pong
	}
	require.NoError(b, one.Close())
	require.NoError(b, two.Close())
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		nodes := open(t, network, 3)
		network.Pause(2)
		require.Equal(t, "1>3 3>1 ", reached(t, nodes))
		time.Sleep(time.Hour) // of the bubble's clock
		require.Empty(t, nodes[1].got)
		network.Resume(2)
		synctest.Wait()
		require.Equal(t, []arrival{{1, 0, time.Hour}, {3, 0, time.Hour}}, nodes[1].got)
		require.Empty(t, nodes[0].got, "a paused node sends nothing")
		for _, n := range nodes {
			n.got = nil
		}
		require.Equal(t, "1>2 1>3 2>1 2>3 3>1 3>2 ", reached(t, nodes))
		network.Pause(2)
		network.Heal() // ends cuts, not pauses
		require.Equal(t, "1>3 3>1 ", reached(t, nodes))
		require.NoError(t, nodes[1].Close())
		network.Resume(2)
		synctest.Wait()
		require.Empty(t, nodes[1].got, "what waited is dropped with the closed link")
		network.Resume(7) // no such node
	})
}

// The backlog of a paused node is bounded, and arrives in order.
func TestPauseBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		nodes := open(t, network, 3)
		frame := make([]byte, maxFrame)
		for range 2 { // a second time as well as the first
			network.Pause(2)
			for i := range byte(backlog / (maxFrame + 64)) {
				frame[0] = i
				require.NoError(t, nodes[0].Send(2, frame))
			}
			require.ErrorIs(t, nodes[0].Send(2, frame), transport.ErrFull)
			require.NoError(t, nodes[0].Send(3, frame[:1]))
			synctest.Wait()
			require.Len(t, nodes[2].got, 1)
			nodes[2].got = nil
			network.Resume(2)
			synctest.Wait()
			require.Len(t, nodes[1].got, backlog/(maxFrame+64))
			for i, a := range nodes[1].got {
				require.Equal(t, byte(i), a.n)
			}
			nodes[1].got = nil
		}
	})
}

// Streams repair a pause and a cut in one direction in the middle of the
// traffic.
func TestStreamOverPause(t *testing.T) {
	var network *memlink.Network
	links := linktest.Links{
		New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
			var err error
			network, err = memlink.New(memlink.Config{})
			require.NoError(t, err)
			return func(id dmutex.NodeID) transport.Link { return network.Link(id) }
		},
		Ordered:  true,
		Synctest: true,
	}
	linktest.TestStream(t, links, func() {
		network.Pause(1)
		network.Cut(2, 3)
		time.AfterFunc(5*time.Second, func() { // of the bubble's clock
			network.Resume(1)
			network.Heal()
		})
	})
}

// Faults stay with a link that changes its number.
func TestFaultsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		one, three := open(t, network, 1)[0], network.Link(3)
		defer three.Close()
		require.NoError(t, three.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
		moving := &receiver{Link: network.Link(dmutex.None)}
		defer moving.Close()
		require.NoError(t, moving.Open(transport.Host{Deliver: linktest.Each(func(from dmutex.NodeID, frame []byte) {
			moving.got = append(moving.got, arrival{from, frame[0], 0})
		})}))
		last := dmutex.NodeID(4)
		become := func() {
			l := moving.Link.(transport.DynamicLink)
			last++
			require.NoError(t, l.Become(dmutex.None))
			require.NoError(t, l.Become(last))
			require.NoError(t, l.SetPeer(1, ""))
		}
		// talks sends a frame each way and returns how many arrive.
		talks := func() (to, from int) {
			require.NoError(t, one.Send(last, []byte{1}))
			require.NoError(t, moving.Send(1, []byte{2}))
			synctest.Wait()
			to, from = len(moving.got), len(one.got)
			moving.got, one.got = nil, nil
			return to, from
		}
		expect := func(to, from int) {
			t.Helper()
			gotTo, gotFrom := talks()
			require.Equal(t, [2]int{to, from}, [2]int{gotTo, gotFrom})
		}

		network.Cut(1, 5) // the first number it will have
		become()
		expect(0, 1)
		become()
		expect(0, 1)
		network.Cut(6, 1)
		become()
		expect(0, 0)
		network.Heal()
		expect(1, 1)

		network.Partition([]dmutex.NodeID{1, 3}, []dmutex.NodeID{last})
		become()
		expect(0, 0)
		network.Heal()

		network.Pause(last)
		become()
		expect(0, 0)
		network.Resume(last - 1) // it had that number when it was paused
		synctest.Wait()
		require.Len(t, moving.got, 1)
		moving.got = nil
		expect(1, 1)

		network.Pause(last)
		expect(0, 0)
		become() // what waited under the former number is gone
		network.Resume(last)
		synctest.Wait()
		require.Empty(t, one.got)
		require.Empty(t, moving.got)
	})
}

func TestDynamicRefuses(t *testing.T) {
	network, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	fixed := network.Link(1)
	require.NoError(t, fixed.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
	require.ErrorIs(t, fixed.Become(2), dmutex.ErrMisuse)
	require.ErrorIs(t, fixed.SetPeer(2, ""), dmutex.ErrMisuse)
	l := network.Link(dmutex.None)
	require.NoError(t, l.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
	require.ErrorContains(t, l.Become(1), "another link of node 1 is open")
	require.NoError(t, l.Become(2))
	require.ErrorContains(t, l.SetPeer(1, "127.0.0.1:7000"), "another kind of link")
	require.NoError(t, l.SetPeer(1, ""))
	require.NoError(t, l.Close())
	require.NoError(t, fixed.Close())
}
