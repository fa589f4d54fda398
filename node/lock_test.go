package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/stream"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// LESSONS L2, L45: one node at a time holds the lock, and every grant has a higher fence than the
// one before.
func TestExclusionAndFences(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		const goroutines, rounds = 4, 10
		var (
			wg     sync.WaitGroup
			mu     sync.Mutex
			inside int
			fences []uint64
		)
		for _, id := range g.members {
			for range goroutines {
				wg.Go(func() {
					for range rounds {
						h := g.acquire(id, "account")
						mu.Lock()
						inside++
						require.Equal(t, 1, inside)
						fences = append(fences, h.Fence())
						mu.Unlock()
						time.Sleep(time.Millisecond) // fake time: lets everybody else try
						mu.Lock()
						inside--
						mu.Unlock()
						require.NoError(t, h.Release())
					}
				})
			}
		}
		wg.Wait()
		require.Len(t, fences, 3*goroutines*rounds)
		require.True(t, slices.IsSorted(fences))
		require.Len(t, slices.Compact(fences), 3*goroutines*rounds, "a fence was used twice")
	})
}

// LESSONS L40, L51: goroutines of one node queue like remote nodes: none of
// them is served twice while another has waited all along.
func TestGoroutinesQueueFairly(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		first := g.acquire(1, "x")
		var waits []<-chan outcome
		for range 3 {
			for _, id := range g.members {
				waits = append(waits, g.acquireLater(t.Context(), id, "x"))
				time.Sleep(10 * time.Millisecond)
			}
		}
		require.NoError(t, first.Release())
		served := make(map[int]bool)
		for range waits {
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
			for i, w := range waits {
				select {
				case o := <-w:
					require.NoError(t, o.err)
					if i >= 3 {
						require.True(t, served[i-3], "waiter %d overtook the earlier one of its node", i)
						for j := range i/3*3 - 3 {
							require.True(t, served[j], "waiter %d overtook %d by a round", i, j)
						}
					}
					served[i] = true
					require.NoError(t, o.held.Release())
				default:
				}
			}
		}
		require.Len(t, served, len(waits))
	})
}

// LESSONS L3, L20, L23, L35: a canceled wait returns at once with the context's error, leaves
// nothing behind, and costs no other caller its turn.
func TestCancel(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(1, "x")
		ctx, cancel := context.WithCancel(t.Context())
		quitter := g.acquireLater(ctx, 2, "x")
		patient := g.acquireLater(t.Context(), 3, "x")
		before := time.Now()
		cancel()
		o := <-quitter
		require.Equal(t, before, time.Now(), "it waited for something")
		require.Nil(t, o.held)
		require.ErrorIs(t, o.err, context.Canceled)
		require.NoError(t, held.Release())
		require.NoError(t, granted(t, patient).Release())
		g.acquire(2, "x").Release()
		time.Sleep(time.Second)
		for _, n := range g.all {
			require.Equal(t, node.MutexStatus{}, n.Mutex("x").Status())
		}
	})
}

// LESSONS L21: a canceled wait needs no answer, so it never hangs on an unreachable peer. Its
// request is withdrawn there when the peer is back.
func TestCancelUnreachable(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		g.net.Partition([]dmutex.NodeID{1}, []dmutex.NodeID{2}, []dmutex.NodeID{3})
		for _, id := range g.members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			before := time.Now()
			h, err := g.mutex(id, "x").Acquire(ctx)
			if err == nil { // the algorithm needed no peer
				require.NoError(t, h.Release())
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, time.Second, time.Since(before))
			}
			cancel()
		}
		g.net.Heal()
		for _, id := range g.members {
			require.NoError(t, g.acquire(id, "x").Release())
		}
		time.Sleep(time.Minute)
		for _, n := range g.all {
			require.Equal(t, dmutex.Idle, n.Mutex("x").Status().Phase)
		}
	})
}

// A request that was withdrawn is taken up again by the next caller.
func TestAcquireAfterCancel(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		held := g.acquire(1, "x")
		ctx, cancel := context.WithCancel(t.Context())
		first := g.acquireLater(ctx, 2, "x")
		cancel()
		require.ErrorIs(t, (<-first).err, context.Canceled)
		second := g.acquireLater(t.Context(), 2, "x")
		require.NoError(t, held.Release())
		h := granted(t, second)
		require.Equal(t, held.Fence()+1, h.Fence())
		require.NoError(t, h.Release())
	})
}

// LESSONS L36, L43, L44: TryAcquire takes a free lock at once, and reports a busy one.
func TestTryAcquire(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		for _, id := range g.members {
			h, err := g.mutex(id, "x").TryAcquire(t.Context())
			require.NoError(t, err, "it is free")
			for _, other := range g.members {
				before := time.Now()
				_, err := g.mutex(other, "x").TryAcquire(t.Context())
				require.ErrorIs(t, err, node.ErrBusy, "node %d, held by %d", other, id)
				require.Less(t, time.Since(before), 100*time.Millisecond)
				var busy *node.Error
				require.ErrorAs(t, err, &busy)
				require.Equal(t, "x", busy.Lock)
				if other == id {
					require.Equal(t, id, busy.Holder)
				}
				if busy.Holder != dmutex.None {
					require.Equal(t, id, busy.Holder)
				}
			}
			require.NoError(t, h.Err())
			require.NoError(t, h.Release())
			time.Sleep(time.Second)
		}
	})
}

// A TryAcquire that finds the lock busy leaves a withdrawn request. While that request is open, the
// lock is busy for another TryAcquire, too.
func TestTryAcquireTwice(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		h := g.acquire(1, "x")
		for range 3 {
			_, err := g.mutex(2, "x").TryAcquire(t.Context())
			require.ErrorIs(t, err, node.ErrBusy)
		}
		require.NoError(t, h.Release())
		time.Sleep(time.Second)
		h, err := g.mutex(2, "x").TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Release())
	})
}

func TestTryAcquireUnreachable(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		require.NoError(t, g.node(2).Ready(t.Context()))
		g.net.Cut(1, 2)
		_, err := g.mutex(2, nameAt(1, g.members)).TryAcquire(nodetest.ContextFor(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded, "nobody said busy")
	})
}

// LESSONS L1, L7, L10, L22, L26, L27, L31: the holders and waiters of a node that closes get an
// error with the reason. Nothing of the node stays in the way of the others.
func TestClose(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(1, "x")
		other := g.acquire(2, "y")
		waiting := g.acquireLater(t.Context(), 1, "y")
		remote := g.acquireLater(t.Context(), 3, "x")
		ctx := held.Context()

		closed := make(chan error)
		go func() { closed <- g.node(1).Close(t.Context()) }()
		synctest.Wait()
		require.ErrorIs(t, (<-waiting).err, node.ErrClosed)
		require.ErrorIs(t, held.Err(), node.ErrLost)
		require.ErrorIs(t, context.Cause(ctx), node.ErrClosed)
		require.ErrorIs(t, held.Release(), node.ErrLost)
		require.NoError(t, granted(t, remote).Release())

		require.NoError(t, <-closed, "the withdrawn request for y does not delay Close")
		require.NoError(t, other.Err())
		require.NoError(t, other.Release())
		_, err := g.mutex(1, "z").Acquire(t.Context())
		require.ErrorIs(t, err, node.ErrClosed)
		require.NoError(t, g.node(1).Close(t.Context()), "once more")
	})
}

// LESSONS L31: everybody may leave at once.
func TestCloseTogether(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(5)
		g.acquire(3, "x")
		var wg sync.WaitGroup
		for _, n := range g.all {
			wg.Go(func() { require.NoError(t, n.Close(t.Context())) })
		}
		wg.Wait()
	})
}

// LESSONS L52: the members may start in any order. Acquire waits for them, and its error names
// those that are missing.
func TestReady(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{3, 1, 2}
		n := g.start(2)
		_, err := n.Mutex("x").Acquire(nodetest.ContextFor(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "waiting for members 1 (never heard), 3 (never heard)")
		early := g.acquireLater(t.Context(), 2, "x")
		g.start(3)
		time.Sleep(time.Minute)
		g.start(1)
		require.NoError(t, granted(t, early).Release())
	})
}

// A liar is a machine whose messages are altered on their way out.
type liar struct {
	dmutex.Machine
	alter func(*dmutex.Message)
}

func (l liar) Handle(m dmutex.Message) ([]dmutex.Message, error) {
	out, err := l.Machine.Handle(m)
	for i := range out {
		l.alter(&out[i])
	}
	return out, err
}

// An impossible or unreadable message costs only time. The view is replaced, ever more rarely, and
// the lock is granted once the peer is correct.
func TestLiar(t *testing.T) {
	for name, alter := range map[string]func(*dmutex.Message){
		"wrong kind":  func(m *dmutex.Message) { m.Kind = dmutex.Grant },
		"never asked": func(m *dmutex.Message) { m.Attempt += 1000 },
		"unreadable":  func(m *dmutex.Message) { m.Kind = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
				g.members = []dmutex.NodeID{1, 2}
				g.start(1)
				var honest atomic.Bool
				g.algorithm = func(s dmutex.Start) (dmutex.Machine, error) {
					m, err := ricart.New(s)
					return liar{m, func(m *dmutex.Message) {
						if !honest.Load() {
							alter(m)
						}
					}}, err
				}
				g.start(2)
				require.NoError(t, g.acquire(2, "held by the liar").Release())
				waiting := g.acquireLater(t.Context(), 1, "x")
				time.Sleep(10 * time.Minute)
				st := g.node(1).Status()
				require.NoError(t, st.Err)
				require.Greater(t, st.View.Changes, uint64(1))
				require.Less(t, st.View.Changes, uint64(30))
				require.Positive(t, st.Refused)
				honest.Store(true)
				require.NoError(t, granted(t, waiting).Release())
			})
		})
	}
}

// Random frames of a stranger change nothing.
func TestGarbage(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		held := g.acquire(1, "x")
		stranger := g.net.Link(7)
		require.NoError(t, stranger.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
		rng := rand.New(rand.NewPCG(1, 2))
		for range 1000 {
			frame := make([]byte, 1+rng.IntN(100))
			for i := range frame {
				frame[i] = byte(rng.Uint32())
			}
			require.NoError(t, stranger.Send(1, frame))
		}
		synctest.Wait()
		require.NoError(t, stranger.Close())
		require.NoError(t, held.Release())
		require.NoError(t, g.acquire(2, "x").Release())
		require.NoError(t, g.node(1).Status().Err)
	})
}

// OpenStrict refuses these arguments, and closes the link.
func TestStrictMisuse(t *testing.T) {
	net, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	var crowd []dmutex.NodeID
	for id := range dmutex.NodeID(membership.MaxMembers + 1) {
		crowd = append(crowd, id+1)
	}
	members, link := []dmutex.NodeID{1, 2}, func() transport.DynamicLink { return net.Link(1) }
	for _, tc := range []struct {
		says    string
		self    dmutex.NodeID
		members []dmutex.NodeID
		link    transport.Link
		config  node.Config
	}{
		{"OpenStrict needs a link", 1, members, nil, node.Config{}},
		{"Self 3 is not among Members", 3, members, link(), node.Config{}},
		{"Self 1 is not among Members", 1, nil, link(), node.Config{}},
		{"names a node twice", 1, []dmutex.NodeID{1, 2, 2}, link(), node.Config{}},
		{"names nobody", 1, []dmutex.NodeID{1, 0}, link(), node.Config{}},
		{"a group has at most 64 members, not 65: let fewer processes be members, and take locks for the others", 1, crowd, link(), node.Config{}},
		{"the link has no address for member 2", 1, members, bookless{link()}, node.Config{}},
		{"made without a number", 1, members, net.Link(dmutex.None), node.Config{}},
		{"takes frames of 1023 bytes", 1, members, framed{link(), 1023}, node.Config{}},
		{"such as ring.New", 1, members, link(), node.Config{Algorithm: ring.Circulate(1)}},
		{"Config.Lease has no meaning without a store", 1, members, link(), node.Config{Lease: time.Second}},
		{"Config.Fence is 9223372036854775808: give the highest fence that your resources have stored, which is below 1<<63", 1, members, link(), node.Config{Fence: 1 << 63}},
		{"Config.Deadlock is at least 0", 1, members, link(), node.Config{Deadlock: -1}},
		{"choose a shorter Config.Group", 1, members, link(), node.Config{Group: strings.Repeat("g", 5000)}},
	} {
		_, err := node.OpenStrict(t.Context(), tc.self, tc.members, tc.link, tc.config)
		require.ErrorIs(t, err, dmutex.ErrMisuse, tc.says)
		require.ErrorContains(t, err, tc.says)
		if tc.link != nil {
			require.ErrorIs(t, tc.link.Open(transport.Host{}), transport.ErrClosed, tc.says)
		}
	}
}

// OpenStrict closes a link that it cannot open, or need not open any more.
func TestStrictOpenFails(t *testing.T) {
	net, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	first := net.Link(1)
	require.NoError(t, first.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
	ended, end := context.WithCancel(t.Context())
	end()
	for _, ctx := range []context.Context{t.Context(), ended} {
		link := net.Link(1)
		_, err := node.OpenStrict(ctx, 1, []dmutex.NodeID{1}, link, node.Config{})
		require.Error(t, err)
		require.ErrorIs(t, link.Open(transport.Host{}), transport.ErrClosed)
	}
	require.NoError(t, first.Close())
}

// The default algorithm is that of package central.
func TestDefaultAlgorithm(t *testing.T) {
	bubble(t, strict, nil, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		g.start(1)
		g.algorithm = central.New
		g.start(2)
		require.NoError(t, g.acquire(1, "x").Release())
		require.NoError(t, g.acquire(2, "x").Release())
	})
}

// bookless is a link that knows no other node.
type bookless struct{ transport.Link }

func (bookless) Trouble(dmutex.NodeID) error { return transport.ErrUnknownNode }

// framed is a link with another limit for its frames.
type framed struct {
	transport.DynamicLink
	size int
}

func (l framed) MaxFrame() int { return l.size }

// A link may take frames that are larger than the send buffer of a node.
func TestLargeFrames(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.wrapLink = func(l transport.DynamicLink) transport.DynamicLink { return framed{l, 1 << 30} }
		g.open(2)
		require.NoError(t, g.acquire(1, "x").Release())
	})
}

func TestNames(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		for _, name := range []string{"", string(make([]byte, 256))} {
			_, err := g.mutex(1, name).Acquire(t.Context())
			require.ErrorIs(t, err, dmutex.ErrMisuse)
		}
		require.NoError(t, g.acquire(1, string(make([]byte, 255))).Release())
	})
}

// LESSONS L32: a request that is too much for the buffer to a peer is refused before anything is
// changed. Requests work again when the peer is back.
func TestOverflow(t *testing.T) {
	bubble(t, leased, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		require.NoError(t, g.acquire(1, "x").Release())
		g.net.Cut(1, 2)
		var (
			err  = context.DeadlineExceeded
			long = string(make([]byte, 240))
		)
		for i := 0; errors.Is(err, context.DeadlineExceeded); i++ {
			require.Less(t, i, 100_000, "no bound")
			ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
			_, err = g.mutex(1, fmt.Sprint(long, i)).Acquire(ctx)
			cancel()
		}
		require.ErrorIs(t, err, node.ErrOverflow)
		var peer *node.Error
		require.ErrorAs(t, err, &peer)
		require.EqualValues(t, 2, peer.Peer)
		require.NoError(t, g.node(1).Status().Err, "the node itself is well")
		backlog := g.node(1).Status().Peers[0].Backlog
		require.Greater(t, backlog, 2<<20)
		require.Less(t, backlog, 2<<20+1<<10, "at most one request more than the bound")
		g.net.Heal()
		time.Sleep(time.Minute)
		require.NoError(t, g.acquire(1, "x").Release())
		require.LessOrEqual(t, g.node(1).Status().Locks, 64*8, "nothing is left behind")
	})
}

// LESSONS L18, L24, L63, L64, L65: a partition costs time and nothing else.
func TestPartition(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(2, "x")
		g.net.Cut(2, 1)
		g.net.Cut(1, 2)
		g.net.Cut(2, 3)
		g.net.Cut(3, 2)
		waiting := g.acquireLater(t.Context(), 3, "x")
		require.NoError(t, held.Release())
		time.Sleep(time.Hour)
		require.Empty(t, waiting, "granted without the other side")
		g.net.Heal()
		h := granted(t, waiting)
		require.Equal(t, held.Fence()+1, h.Fence())
		require.NoError(t, h.Release())
	})
}

// Somebody forges frames of member 1 to member 2, which then takes the true ones for repeats. Member 1
// says so and stops, and its next process takes part again.
func TestForgedData(t *testing.T) {
	bubble(t, strict, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		g.node(2).host.Deliver(1, forge(t, g.node(1).Status().Life, g.node(2).Status().Life))
		require.NoError(t, g.mutex(1, "x").Ask(t.Context()))
		time.Sleep(5 * time.Second)
		require.ErrorContains(t, g.node(1).Status().Err, "node: member 2: dmutex: peer's mistake: for some seconds it has acknowledged only what was never sent")
		_, err := g.mutex(1, "x").Acquire(t.Context())
		require.ErrorContains(t, err, "it has acknowledged only what was never sent")
		g.close(1)
		g.start(1)
		for _, id := range g.members {
			require.NoError(t, g.mutex(id, "x").Do(nodetest.ContextFor(t, time.Minute), nodetest.Nothing))
		}
	})
}

// With a store, the peer that cannot acknowledge seems silent. One of the two is excluded, and joins as
// another process.
func TestForgedDataLease(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		two, one := g.join(), g.join()
		require.NoError(t, one.acquire("x").Release())
		require.NoError(t, two.acquire("x").Release())
		lives := func() [2]uint64 { return [2]uint64{one.Status().Life, two.Status().Life} }
		former := lives()
		two.host.Deliver(one.Self(), forge(t, former[0], former[1]))
		require.NoError(t, one.Mutex("x").Ask(t.Context())) // Ask sends to all
		time.Sleep(3 * leaseOf)
		require.NotEqual(t, former, lives())
		for _, s := range []*member{one, two} {
			require.NoError(t, s.Mutex("x").Do(nodetest.ContextFor(t, leaseOf), nodetest.Nothing))
		}
	})
}

// forge returns DATA frames that one life seems to send to another.
func forge(t *testing.T, from, to uint64) (frames [][]byte) {
	open := func(life uint64) *stream.Stream {
		return stream.New(stream.Config{Life: life, MaxLife: 1<<64 - 1, MaxFrame: 1 << 16, Versions: protocol.Spoken})
	}
	liar, victim := open(from), open(to)
	for _, s := range []*stream.Stream{victim, liar, victim} { // HELLO, and the answers
		other := map[*stream.Stream]*stream.Stream{liar: victim, victim: liar}[s]
		for frame := s.Transmit(0, nil); len(frame) > 0; frame = s.Transmit(0, nil) {
			_, err := other.Handle(0, frame)
			require.NoError(t, err)
		}
	}
	for range 1000 {
		require.NoError(t, liar.Send([]byte{127})) // a message that nobody knows
	}
	for frame := liar.Transmit(0, nil); len(frame) > 0; frame = liar.Transmit(0, nil) {
		frames = append(frames, frame)
	}
	return frames
}
