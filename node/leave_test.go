package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A departure is a group some of whose members close while the others go on. It
// notes what must not be.
type departure struct {
	*group
	leavers []dmutex.NodeID
	mu      sync.Mutex
	wrong   error
}

// note notes an error, with what it was about.
func (d *departure) note(err error, about ...any) {
	if err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.wrong = errors.Join(d.wrong, fmt.Errorf("%s: %w", fmt.Sprint(about...), err))
	}
}

// leave closes a member, if it is not closed, which takes less than an hour.
func (d *departure) leave(id dmutex.NodeID) {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Hour)
	defer cancel()
	d.note(d.nodes[id].Close(ctx), "close ", id)
}

// ended takes the end of an Acquire and releases what it got. The error is nil
// if it ended as it may while somebody leaves.
func (d *departure) ended(id dmutex.NodeID, h *node.Held, err error) error {
	var peer *node.PeerError
	switch {
	case err == nil:
		err = h.Release()
		fallthrough
	case errors.Is(err, node.ErrClosed):
		if !slices.Contains(d.leavers, id) {
			return err
		}
	case errors.As(err, &peer) && peer.Err == node.ErrLeft && slices.Contains(d.leavers, peer.Peer):
	default:
		return err
	}
	return nil
}

func depart(t *testing.T, a dmutex.Algorithm, net memlink.Config, leavers []dmutex.NodeID, test func(d *departure)) error {
	d := &departure{leavers: leavers}
	bubble(t, a, net, func(_ *testing.T, g *group) {
		d.group = g
		test(d)
		for _, id := range g.members {
			d.leave(id)
		}
	})
	return d.wrong
}

// One node holds and releases, one waits, one withdraws, and one of the four
// closes a little before or after the release: whatever its part is, nobody
// waits for ever, and neither does its Close.
func TestLeftAtAnyMoment(t *testing.T) {
	const steps = 24
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			for first := range dmutex.NodeID(4) {
				part := func(i dmutex.NodeID) dmutex.NodeID { return (first+i)%4 + 1 }
				for last := range dmutex.NodeID(4) {
					for step := range time.Duration(steps) {
						after := step * time.Millisecond / 4
						require.NoError(t, leftAt(t, a.Algorithm, part(0), part(1), part(2), part(last), after),
							"%d holds, %d waits, %d withdraws, and %d closes after %v", part(0), part(1), part(2), part(last), after)
					}
				}
			}
		})
	}
}

func leftAt(t *testing.T, a dmutex.Algorithm, holder, waiter, quitter, leaver dmutex.NodeID, after time.Duration) error {
	slow := memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond}
	return depart(t, a, slow, []dmutex.NodeID{leaver}, func(d *departure) {
		d.open(4)
		held := d.acquire(holder, "x")
		ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
		defer cancel()
		waiting := d.acquireLater(ctx, waiter, "x")
		time.Sleep(20 * time.Millisecond)
		short, cancel := context.WithTimeout(d.t.Context(), 2*time.Millisecond)
		defer cancel()
		quitting := d.acquireLater(short, quitter, "x")
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(4 * time.Millisecond)
			d.note(d.ended(holder, held, nil), "the holder")
		})
		wg.Go(func() {
			time.Sleep(after)
			d.leave(leaver)
		})
		o := <-waiting
		d.note(d.ended(waiter, o.held, o.err), "the waiter")
		o = <-quitting
		if !errors.Is(o.err, context.DeadlineExceeded) {
			d.note(d.ended(quitter, o.held, o.err), "the quitter")
		}
		wg.Wait()
		if after%time.Millisecond > 0 {
			for _, id := range d.members {
				h, err := d.mutex(id, "x").Acquire(ctx)
				d.note(d.ended(id, h, err), "later, node ", id)
			}
		}
	})
}

// Members acquire, withdraw, try and release at random, and one or two of them
// close at a random moment, over a network that is slow and sometimes loses and
// repeats frames: every Acquire of the others ends, and so does every Close.
func TestLeftAtRandom(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			for seed := range uint64(60) {
				require.NoError(t, leftAtRandom(t, a.Algorithm, seed), "seed %d", seed)
			}
		})
	}
}

func leftAtRandom(t *testing.T, a dmutex.Algorithm, seed uint64) error {
	net := memlink.Config{MinDelay: time.Millisecond / 2, MaxDelay: 2 * time.Millisecond, Seed: seed}
	if seed%3 == 0 {
		net.Loss, net.Duplicate = 0.1, 0.05
	}
	luck := rand.New(rand.NewPCG(seed, 0))
	var leavers []dmutex.NodeID
	for _, i := range luck.Perm(5)[:1+luck.IntN(2)] {
		leavers = append(leavers, dmutex.NodeID(i+1))
	}
	return depart(t, a, net, leavers, func(d *departure) {
		d.open(5)
		var wg sync.WaitGroup
		for _, id := range d.members {
			luck := rand.New(rand.NewPCG(seed, uint64(id)))
			wg.Go(func() {
				for range 12 {
					d.turn(luck, id)
				}
			})
		}
		for _, id := range leavers {
			time.Sleep(upTo(luck, 40*time.Millisecond))
			wg.Go(func() { d.leave(id) })
		}
		wg.Wait()
	})
}

func upTo(luck *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(luck.Int64N(int64(most)))
}

// turn is one of a member's turns: at one of three locks it acquires, acquires
// with little patience, or tries.
func (d *departure) turn(luck *rand.Rand, id dmutex.NodeID) {
	time.Sleep(upTo(luck, 8*time.Millisecond))
	patience := time.Minute
	m := d.mutex(id, fmt.Sprint(luck.IntN(3)))
	acquire := m.Acquire
	switch luck.IntN(8) {
	case 0, 1:
		patience = upTo(luck, 10*time.Millisecond)
	case 2:
		acquire = m.TryAcquire
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	h, err := acquire(ctx)
	if patience < time.Minute && errors.Is(err, context.DeadlineExceeded) || errors.Is(err, node.ErrBusy) {
		return
	}
	if err == nil {
		time.Sleep(upTo(luck, 4*time.Millisecond))
	}
	d.note(d.ended(id, h, err), "node ", id, ", lock ", m.Name())
}

// A TryAcquire of which a leaver did not hear any more, and need not, does not wait
// for the holder.
func TestLeftWhileTried(t *testing.T) {
	bubble(t, lamport.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(2, "x")
		next := g.acquireLater(t.Context(), 3, "x")
		g.net.Cut(1, 2)
		tried := make(chan error)
		go func() {
			_, err := g.mutex(1, "x").TryAcquire(t.Context())
			tried <- err
		}()
		synctest.Wait()
		require.NoError(t, held.Release())
		closed := make(chan error)
		go func() { closed <- g.nodes[2].Close(t.Context()) }()
		o := <-next
		require.NoError(t, o.err)
		select {
		case err := <-tried:
			require.ErrorIs(t, err, node.ErrBusy)
		case <-time.After(time.Minute):
			require.Fail(t, "it waits")
		}
		require.Empty(t, g.mutex(1, "x").Status().Err)
		g.net.Heal()
		require.NoError(t, o.held.Release())
		require.NoError(t, <-closed)
	})
}

// What a leaver is not needed for goes on, though it has not heard something else:
// 2 holds, 4 waits, and 1 has said all that 4 needs of it. Where nobody knows who
// has the token, each is needed.
func TestLeftAndNotNeeded(t *testing.T) {
	for _, tc := range []struct {
		name      string
		algorithm dmutex.Algorithm
		goesOn    bool
	}{
		{"central", central.At(2), true},
		{"lamport", lamport.New, true},
		{"lamport, replies omitted", lamport.OmitReplies, true},
		{"maekawa", maekawa.New, true}, // 4's quorum is 2, 3 and 4
		{"ricart", ricart.New, true},
		{"ricart, Carvalho", ricart.Carvalho, true},
		{"ring", ring.New, false},
		{"suzukikasami", suzukikasami.New, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, tc.algorithm, memlink.Config{}, func(t *testing.T, g *group) {
				d := &departure{group: g, leavers: []dmutex.NodeID{1}}
				g.open(4)
				held := g.acquire(2, "x")
				waiting := g.acquireLater(t.Context(), 4, "x")
				time.Sleep(time.Second)
				g.net.Cut(4, 1)
				other := g.acquireLater(t.Context(), 4, "y")
				closed := make(chan error)
				go func() { closed <- g.nodes[1].Close(t.Context()) }()
				synctest.Wait()
				g.net.Heal()
				require.NoError(t, <-closed)
				require.NoError(t, held.Release())
				o := <-other
				require.NoError(t, d.ended(4, o.held, o.err))
				o = <-waiting
				require.NoError(t, d.ended(4, o.held, o.err))
				require.Equal(t, tc.goesOn, o.err == nil)
			})
		})
	}
}

// A polite machine asks one peer after the other, and lets everybody in.
type polite struct {
	dmutex.Site
	asked int // peers
}

func newPolite(s dmutex.Start) (dmutex.Machine, error) {
	site, err := dmutex.NewSite(s)
	return &polite{Site: site}, err
}

func (m *polite) Request() ([]dmutex.Message, error) {
	fresh, err := m.Ask()
	if fresh {
		m.asked = 0
		m.ask()
	}
	return m.Out(), err
}

func (m *polite) ask() {
	if m.asked == len(m.Peers()) {
		m.Enter()
		return
	}
	m.asked++
	m.Send(dmutex.Request, m.Peers()[m.asked-1], m.Stamp().Clock)
}

func (m *polite) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	_, err := m.Check(msg)
	switch {
	case err == nil && msg.Kind == dmutex.Request:
		m.Send(dmutex.Reply, msg.From, msg.Attempt)
	case err == nil && m.Pending():
		m.ask()
	}
	return m.Out(), err
}

func (m *polite) Release() ([]dmutex.Message, error) {
	_, err := m.Leave()
	return nil, err
}

func (m *polite) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if m.Pending() {
		b = append(b, m.Peers()[m.asked-1])
	}
	return b
}

func (m *polite) Forget() (clock, fence uint64, ok bool) { return m.Clock(), m.Known(), m.Idle() }
func (m *polite) AppendText(b []byte) ([]byte, error)    { return m.AppendSite(b), nil }

func (m *polite) Clone() dmutex.Machine { return &polite{m.Site.Clone(), m.asked} }

// A request may come to need a leaver only when that has left.
func TestLeftAndNeededLater(t *testing.T) {
	bubble(t, newPolite, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		g.net.Cut(1, 3)
		waiting := g.acquireLater(t.Context(), 3, "x")
		require.NoError(t, g.nodes[2].Close(t.Context()))
		require.Empty(t, waiting)
		require.Equal(t, []dmutex.NodeID{1}, g.mutex(3, "x").Status().WaitsFor)
		g.net.Heal()
		require.ErrorIs(t, (<-waiting).err, node.ErrLeft)
	})
}

// The farewell of 2 does not reach 3, but 1 knows of it and loses the token to 2.
func TestTokenForALeaver(t *testing.T) {
	bubble(t, ring.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		g.net.Cut(2, 3)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.nodes[2].Close(short), context.DeadlineExceeded)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := g.mutex(3, "x").Acquire(ctx)
		require.ErrorIs(t, err, node.ErrLeft)
	})
}

// All members close within some milliseconds of each other, over a network that
// loses a third or a half of the frames: who is gone leaves nobody waiting for it.
func TestCloseTogetherOverABadNetwork(t *testing.T) {
	for _, loss := range []float64{0.3, 0.5} {
		for _, size := range []int{2, 3, 5} {
			for seed := range uint64(60) {
				require.NoError(t, closeTogether(t, true, size, loss, seed), "%d nodes, loss %v, seed %d", size, loss, seed)
			}
		}
	}
}

// Also while they are still meeting.
func TestCloseTogetherUnmet(t *testing.T) {
	for _, loss := range []float64{0, 0.1, 0.3} {
		for seed := range uint64(100) {
			require.NoError(t, closeTogether(t, false, 3, loss, seed), "loss %v, seed %d", loss, seed)
		}
	}
}

// closeTogether closes all members of a group, which may have met before.
func closeTogether(t *testing.T, met bool, size int, loss float64, seed uint64) error {
	net := memlink.Config{MinDelay: time.Millisecond / 2, MaxDelay: 2 * time.Millisecond, Loss: loss, Seed: seed}
	luck := rand.New(rand.NewPCG(seed, 0))
	return depart(t, ricart.New, net, nil, func(d *departure) {
		for id := range dmutex.NodeID(size) {
			d.members = append(d.members, id+1)
		}
		for _, id := range d.members {
			d.start(id)
		}
		if met {
			d.note(d.nodes[1].Ready(d.t.Context()), "ready")
		}
		ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for _, id := range d.members {
			after := upTo(luck, time.Millisecond<<(seed%8))
			wg.Go(func() {
				time.Sleep(after)
				d.note(d.nodes[id].Close(ctx), "close ", id)
			})
		}
		wg.Wait()
	})
}

// Where nothing is lost, the end of another costs no more than a round trip.
//
// Not under the race detector, which now and then interrupts a node between its
// session's last word and the link: the peer then misses it, and lingers.
func TestCloseTogetherSoon(t *testing.T) {
	if race {
		t.Skip("a goroutine may be interrupted at the last word")
	}
	const oneWay = time.Millisecond
	bubble(t, ricart.New, memlink.Config{MinDelay: oneWay, MaxDelay: oneWay}, func(t *testing.T, g *group) {
		g.open(5)
		time.Sleep(time.Second)
		before := time.Now()
		var wg sync.WaitGroup
		for i, id := range g.members {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * oneWay / 4)
				before := time.Now()
				require.NoError(t, g.nodes[id].Close(t.Context()))
				require.LessOrEqual(t, time.Since(before), 2*oneWay)
			})
		}
		wg.Wait()
		require.LessOrEqual(t, time.Since(before), 3*oneWay)
	})
}
