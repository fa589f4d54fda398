package node_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/streamnet"
	"github.com/dmutex/dmutex/internal/outside"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// second is the place on the network of another process with the number 1.
const second dmutex.NodeID = 9

// forked is a link to two processes with the number 1, as if both had the same address: frames to
// node 1 reach both.
type forked struct{ transport.DynamicLink }

func (l forked) Open(host transport.Host) error {
	deliver := host.Deliver
	host.Deliver = func(from dmutex.NodeID, frames [][]byte) {
		if from == second {
			from = 1
		}
		deliver(from, frames)
	}
	return l.DynamicLink.Open(host)
}

func (l forked) Send(to dmutex.NodeID, frame []byte) error {
	if to == 1 {
		_ = l.DynamicLink.Send(second, frame) // it may not have started
	}
	return l.DynamicLink.Send(to, frame)
}

// startForked starts a member that has a link to both processes.
func (g *group) startForked(id dmutex.NodeID) {
	g.wrapLink = func(l transport.DynamicLink) transport.DynamicLink { return forked{l} }
	g.start(id)
	g.wrapLink = nil
}

// startSecond starts another process with the number 1.
func (g *group) startSecond() *member {
	s := &member{group: g, id: second, self: 1}
	return s.open(g.config(s))
}

// openForked starts three nodes. startSecond starts another process with the number 1.
func (g *group) openForked() (startSecond func() *member) {
	g.members = []dmutex.NodeID{1, 2, 3}
	g.start(1)
	g.startForked(2)
	g.startForked(3)
	for _, n := range g.all {
		require.NoError(g.t, n.Ready(g.t.Context()))
	}
	time.Sleep(time.Minute) // after a calm time the next view acts at once
	return g.startSecond
}

// taken lets a peer say that it has met another process with the node's number, and a higher life.
func (g *group) taken(id, by dmutex.NodeID) {
	g.node(id).host.Taken(by, g.node(id).Status().Life+1)
}

// A second process with a number that is in use stops within 5 seconds and says why. The first
// process and the other members go on.
func TestNumberTaken(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		startSecond := g.openForked()
		held := g.acquire(1, "x")
		begun := time.Now()
		other := startSecond()
		_, err := other.Mutex("x").Acquire(nodetest.ContextFor(t, time.Minute))
		require.ErrorIs(t, err, node.ErrNumberTaken)
		require.Less(t, time.Since(begun), 5*time.Second)
		time.Sleep(time.Minute)
		require.NoError(t, held.Err())
		require.NoError(t, held.Release())
		require.NoError(t, g.acquire(2, "x").Release())
		for _, id := range g.members {
			require.NoError(t, g.node(id).Status().Err)
			require.EqualValues(t, 1, g.node(id).Status().View.Changes)
		}
	})
}

// A process that was cut off while another took its number stops within two seconds of
// its first contact with anybody. Until then it believes that it holds its lock, but
// the other process has a higher fence.
func TestReplaced(t *testing.T) {
	for _, contact := range []dmutex.NodeID{2, 3} {
		each(t, strict, func(t *testing.T, g *group) {
			startSecond := g.openForked()
			lost := g.acquire(1, "x")
			g.net.Partition([]dmutex.NodeID{1}, []dmutex.NodeID{2, 3, second})
			other := startSecond()
			next, err := other.Mutex("x").Acquire(nodetest.ContextFor(t, time.Minute))
			require.NoError(t, err)
			require.Greater(t, next.Fence(), lost.Fence())
			require.NoError(t, lost.Err(), "it cannot know yet")

			g.net.Heal()
			g.net.Cut(1, 5-contact) // the other one of 2 and 3
			g.net.Cut(5-contact, 1)
			require.NoError(t, g.mutex(1, "y").Ask(t.Context())) // the contact: Ask sends to all
			time.Sleep(2 * time.Second)
			_, err = g.mutex(1, "y").Acquire(nodetest.ContextFor(t, time.Minute))
			require.ErrorIs(t, err, node.ErrReplaced)
			require.ErrorIs(t, lost.Err(), node.ErrReplaced)
			require.ErrorIs(t, lost.Err(), node.ErrLost)
			require.NoError(t, next.Err())
			require.NoError(t, next.Release())
			require.NoError(t, g.acquire(3, "x").Release())
			require.NoError(t, g.acquire(2, "x").Release())
		})
	}
}

// If one peer says that the number of a member is taken, the member does not stop: on a plain link
// anybody can forge that. While the member asks the others it is granted nothing, is not ready, and
// says why. It goes on when another member denies the claim.
func TestOneWordEndsNobody(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(1, "x")
		cut := func(do func(from, to dmutex.NodeID)) {
			for _, peer := range []dmutex.NodeID{2, 3} {
				do(1, peer)
				do(peer, 1)
			}
		}
		cut(g.net.Cut)
		g.taken(1, 3)
		g.taken(1, 3) // a copy
		waiting := g.acquireLater(t.Context(), 1, "y")
		err := g.node(1).Ready(nodetest.ContextFor(t, 300*time.Millisecond))
		require.ErrorContains(t, err, "node: member 3 says that another process took this node's number: nothing is granted until another member denies it")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = g.mutex(1, "z").TryAcquire(nodetest.ContextFor(t, 300*time.Millisecond))
		require.ErrorContains(t, err, "member 3 says")
		require.Empty(t, waiting, "granted in doubt")
		g.net.Heal()
		require.NoError(t, granted(t, waiting).Release())
		require.NoError(t, g.node(1).Ready(t.Context()))
		require.NoError(t, held.Err())
		require.EqualValues(t, 1, g.node(1).Status().View.Changes)

		time.Sleep(time.Second) // so that it asks again at once
		cut(g.net.Cut)          // and nobody can answer
		g.taken(1, 2)
		time.Sleep(time.Millisecond)
		require.NoError(t, held.Err())
		g.taken(1, 3)
		require.ErrorIs(t, held.Err(), node.ErrReplaced, "two members said so")
		g.net.Heal()
	})
}

// If no other member answers, the claim of one is believed after a second.
func TestOneWordAlone(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(1, "x")
		g.crash(2)
		g.crash(3)
		g.taken(1, 3)
		time.Sleep(900 * time.Millisecond)
		require.NoError(t, held.Err())
		time.Sleep(200 * time.Millisecond)
		require.ErrorIs(t, held.Err(), node.ErrReplaced)
		require.ErrorIs(t, g.node(1).Ready(t.Context()), node.ErrReplaced)
	})
}

// A process was paused before it was ever in a view, and another has taken its number. When the
// first process goes on, it stops. It takes no life above that of its healthy successor, even if a
// member hears only the paused one.
func TestPausedBeforeAnyView(t *testing.T) {
	for _, heard := range []bool{true, false} {
		bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
			nodetest.Today()
			g.members = []dmutex.NodeID{1, 2, 3}
			g.start(1)
			g.net.Partition([]dmutex.NodeID{1}, []dmutex.NodeID{2, 3, second})
			time.Sleep(time.Minute)
			g.startSecond()
			g.startForked(2)
			g.startForked(3)
			for _, id := range []dmutex.NodeID{second, 2, 3} {
				require.NoError(t, g.node(id).Ready(t.Context()))
			}
			held := g.acquire(second, "x")
			g.net.Heal()
			if !heard {
				g.net.Cut(second, 3)
				g.net.Cut(3, second)
			}
			_, err := g.mutex(1, "x").Acquire(nodetest.ContextFor(t, time.Minute))
			require.ErrorIs(t, err, node.ErrNumberTaken)
			time.Sleep(time.Minute)
			require.NoError(t, held.Err())
			require.NoError(t, held.Release())
			g.net.Heal()
			require.NoError(t, g.acquire(3, "x").Release())
			for _, id := range []dmutex.NodeID{second, 2, 3} {
				require.NoError(t, g.node(id).Status().Err)
			}
		})
	}
}

// If the clock of a process gives it a lower life than the former process had, a member tells it,
// and it takes a higher one. (The clock of a bubble gives random lives.)
func TestLivesRise(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		g.start(1)
		former := uint64(0)
		for range 10 {
			g.start(2)
			require.NoError(t, g.node(2).Ready(nodetest.ContextFor(t, 3*time.Second)))
			require.Greater(t, g.node(2).Status().Life, former)
			former = g.node(2).Status().Life
			g.crash(2)
		}
		g.start(2) // so that 1 can leave
		require.NoError(t, g.node(2).Ready(t.Context()))
	})
}

// A second process has met member 2 alone, during a partition, and has closed. Member 2 can talk to no
// earlier process any more. So the first process stops within ten seconds, though member 3 knows nothing of
// the second, and its successor takes part again.
func TestShortLivedSecondProcess(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		startSecond := g.openForked()
		g.net.Partition([]dmutex.NodeID{1, 3}, []dmutex.NodeID{2, second})
		startSecond()
		time.Sleep(10 * time.Second)
		g.close(second)
		g.net.Heal()
		require.NoError(t, g.mutex(1, "y").Ask(t.Context())) // the contact: Ask sends to all
		time.Sleep(12 * time.Second)
		require.ErrorIs(t, g.node(1).Status().Err, node.ErrReplaced)
		g.close(1)
		g.start(1)
		for _, id := range g.members {
			require.NoError(t, g.acquire(id, "x").Release())
		}
	})
}

// A process that was replaced while it was cut off, and that one peer tells of it, does not go on, though it
// asks for nothing: also if the peer said so before, and another one denied it.
func TestAccusedWhileIdle(t *testing.T) {
	for _, before := range []bool{false, true} {
		each(t, strict, func(t *testing.T, g *group) {
			startSecond := g.openForked()
			held := g.acquire(1, "x")
			if before {
				g.taken(1, 3)
				time.Sleep(3 * time.Second)
				require.NoError(t, g.node(1).Status().Err)
			}
			g.net.Partition([]dmutex.NodeID{1}, []dmutex.NodeID{2, 3, second})
			require.NoError(t, startSecond().Mutex("x").Do(nodetest.ContextFor(t, time.Minute), nodetest.Nothing))
			time.Sleep(10 * time.Minute)
			require.NoError(t, held.Err(), "it cannot know yet")
			g.net.Heal()
			g.taken(1, 3) // as a link says when it connects
			time.Sleep(2 * time.Second)
			require.ErrorIs(t, g.node(1).Status().Err, node.ErrReplaced)
			require.False(t, g.node(1).Status().View.Acts)
			require.ErrorIs(t, held.Err(), node.ErrReplaced)
		})
	}
}

// A stranger on a plain link takes the place of member 3 at member 1 while the two are not connected. It claims
// a life of tomorrow and says nothing. Member 3 is refused there again and again. It grants nothing meanwhile,
// keeps what it holds, and goes on when the stranger has gone. Another stranger does not end it either.
func TestSilentStrangerInAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodetest.Today()
		network, members := streamnet.New(1), []dmutex.NodeID{1, 2, 3}
		peers := map[dmutex.NodeID]string{1: "10.0.0.1:7000", 2: "10.0.0.2:7000", 3: "10.0.0.3:7000"}
		var hosts []*streamnet.Host
		var nodes []*node.Node
		for i, id := range members {
			hosts = append(hosts, network.Host(fmt.Sprint("10.0.0.", id)))
			(&outside.Process{Network: hosts[i].Process()}).Open(func() {
				l, err := tcplink.New(tcplink.Config{Self: id, Listen: peers[id], Peers: peers, AllowPlain: true})
				require.NoError(t, err)
				n, err := node.OpenStrict(t.Context(), id, members, l, node.Config{Algorithm: central.New})
				require.NoError(t, err)
				nodes = append(nodes, n)
			})
		}
		defer func() { // at once: a Close may wait for the others
			var closing sync.WaitGroup
			defer closing.Wait()
			for _, n := range nodes {
				closing.Go(func() { _ = n.Close(nodetest.ContextFor(t, time.Minute)) })
			}
		}()
		one, three := hosts[0], hosts[2]
		elsewhere := network.Host("10.0.0.4").Process()
		held, err := nodes[2].Mutex("held").Acquire(t.Context())
		require.NoError(t, err)
		for range 2 {
			network.Cut(three, one) // so that the stranger is first
			network.Reset(one, three, 0)
			synctest.Wait()
			stranger, err := elsewhere.Dial(t.Context(), peers[1])
			require.NoError(t, err)
			greeting, err := binary.Append([]byte("dmutex\x00\x02"), binary.BigEndian, [4]uint64{3, 1, nodes[2].Status().Life + uint64(23*time.Hour), 0})
			require.NoError(t, err)
			_, err = stranger.Write(greeting)
			require.NoError(t, err)
			_, err = io.ReadFull(stranger, greeting)
			require.NoError(t, err)
			require.Zero(t, binary.BigEndian.Uint64(greeting[len(greeting)-8:]), "it has no place")
			network.Mend(three, one)
			for idle := 0; idle < 2000; idle++ { // after the first refusal member 2 denies it at once
				if time.Sleep(time.Millisecond); nodes[2].Status().View.Acts {
					idle = 0
				}
			}
			stranger.Close()
			for i, n := range nodes {
				require.NoError(t, n.Mutex(fmt.Sprint("free ", i)).Do(nodetest.ContextFor(t, time.Minute), nodetest.Nothing))
			}
			require.NoError(t, held.Err())
			require.NoError(t, nodes[2].Status().Err)
		}
		require.NoError(t, held.Release())
	})
}
