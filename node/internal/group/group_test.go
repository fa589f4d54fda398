package group

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/lease"
	"github.com/dmutex/dmutex/internal/stream"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// face is an Up that ignores all calls.
type face struct{}

func (face) Message(dmutex.NodeID, []byte) {}
func (face) Parting(context.Context)       {}
func (face) Acts(View)                     {}
func (face) Lease(Lease)                   {}

// alone opens a group of one in a bubble, and waits until it acts.
func alone(t *testing.T, cfg Config, test func(g *Group)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour) // from the year 2000 to a time after 2020, when epochs begin
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		cfg.Algorithm, cfg.Link, cfg.Up = ricart.New, net.Link(cfg.Self), face{}
		g, err := New(cfg)
		require.NoError(t, err)
		require.NoError(t, g.Open())
		defer func() {
			_, err := g.Close(context.Background())
			require.NoError(t, err)
		}()
		require.NoError(t, g.Ready(t.Context()))
		test(g)
	})
}

// half returns a group of two that is not open, and has not met the other one.
func half(t *testing.T) *Group {
	net, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	g, err := New(Config{Self: 1, Members: []dmutex.NodeID{1, 2}, Algorithm: ricart.New, Link: net.Link(1), Up: face{}})
	require.NoError(t, err)
	return g
}

// The trouble of a view is not forgotten for trouble of an older view that is reported later. A
// report can be late because the epoch is read under no mutex when a message cannot be decoded.
func TestLateTrouble(t *testing.T) {
	alone(t, Config{Self: 1, Members: []dmutex.NodeID{1}}, func(g *Group) {
		epoch := g.Locks.Epoch()
		g.mu.Lock() // so that the group handles neither yet
		g.Trouble(epoch, dmutex.PeerMistake("test"))
		g.Trouble(epoch-1, dmutex.PeerMistake("test"))
		g.mu.Unlock()
		time.Sleep(time.Minute)
		require.Greater(t, g.Locks.Epoch(), epoch)
	})
}

// The time of an input contains exactly the sleep that the machine was told of, even if another
// goroutine sees a sleep at the same moment. If the machine were told too early, its next wait for
// the leases of others would be too short.
func TestLeaseSleepIsToldWithItsTime(t *testing.T) {
	alone(t, Config{Store: new(store.Memory)}, func(g *Group) {
		l := g.who.(*record)
		var stepping sync.WaitGroup
		stepping.Go(func() {
			for range 100_000 {
				g.StepWall(time.Second)
				l.group.clocks.Now() // as Held.Err does
			}
		})
		g.mu.Lock()
		awake, wrong := l.now()-l.slept, 0
		for range 100_000 {
			if now := l.now(); now != awake+l.slept { // only sleep has passed
				wrong++
			}
		}
		g.mu.Unlock()
		stepping.Wait()
		require.Zero(t, wrong)
	})
}

// A call that sees the end of a lease at the moment when the lease is renewed is still granted its
// lock.
func TestLeaseRenewedAtItsEnd(t *testing.T) {
	alone(t, Config{Store: new(store.Memory)}, func(g *Group) {
		l := g.who.(*record)
		time.Sleep(leases.Default / 10)
		var w *locks.Waiter
		for w == nil {
			g.mu.Lock()
			now := g.who.now()
			out := l.Hint(now) // begins a load, now or when its pause is over
			if slices.ContainsFunc(out.Events, func(e membership.Event) bool { ask, asks := e.(lease.Ask); return asks && ask.Op == lease.Load }) {
				g.StepWall(g.Locks.Left() + time.Millisecond)
				w, _, _ = g.Locks.Join(t.Context(), "fresh", locks.Want{}, nil)
				require.False(t, w.Over())
				value, _, _ := g.cfg.Store.Load(t.Context())
				out = l.Done(now, value, nil)
			}
			g.apply(now, out)
			g.mu.Unlock()
		}
		<-w.Ready()
		h, err := w.Result()
		require.NoError(t, err)
		require.NoError(t, h.Release())
	})
}

// slowLife is a store.Life. Its Close takes as long as the test.
type slowLife struct {
	store.Life
	over, end chan struct{}
}

func (s *slowLife) Close() error {
	close(s.over)
	<-s.end
	return nil
}

// A process that stops before it was a member has held nothing, so its store.Life ends at once. The
// group is not locked while the store takes long to end it.
func TestLifeEndsWithTheNode(t *testing.T) {
	for _, released := range []bool{true, false} {
		alone(t, Config{Store: new(store.Memory)}, func(g *Group) {
			l, life := g.who.(*record), &slowLife{over: make(chan struct{}), end: make(chan struct{})}
			time.Sleep(time.Second)
			g.mu.Lock()
			l.life, l.lasts = life, math.MinInt64
			g.mu.Unlock()
			var closing sync.WaitGroup
			closing.Go(func() {
				g.mu.Lock()
				defer g.mu.Unlock()
				l.close(l.group.clocks.Now(), released)
			})
			select {
			case <-life.over:
			case <-time.After(time.Second):
				t.Error("the life was not ended")
			}
			synctest.Wait() // close may begin the end from a timer, a moment before it unlocks
			free := g.mu.TryLock()
			if free {
				g.mu.Unlock()
			}
			close(life.end)
			closing.Wait()
			require.True(t, free)
		})
	}
}

// LESSONS L55. A life of the store ends with the lease of this life. If the clock leaps beyond that, it ends
// when code that has lost a lock then has had time to stop.
func TestRetire(t *testing.T) {
	for _, leaps := range []bool{true, false} {
		alone(t, Config{Store: new(store.Memory)}, func(g *Group) {
			l, life := g.who.(*record), &slowLife{over: make(chan struct{}), end: make(chan struct{})}
			close(life.end)
			began, wait := time.Now(), time.Duration(leases.Default/leases.Margin)
			g.mu.Lock()
			now := l.now()
			if leaps {
				g.StepWall(2 * leases.Default)
				now = l.now()
			} else {
				wait = time.Duration(l.lasts - now)
			}
			l.life = life
			l.retire(now)
			g.mu.Unlock()
			<-life.over
			require.Equal(t, wait, time.Since(began))
		})
	}
}

// A report that never ends takes bounded memory, in bytes that wait for the rest of them and in what they are
// read as.
func TestEndlessReport(t *testing.T) {
	g := half(t)
	p := g.peer(2)
	part := append([]byte{saysMore}, make([]byte, 1<<10)...)
	most := 0
	for range maxPart/len(part) + 2 {
		g.Message(2, 0, part)
		most = max(most, len(p.part))
	}
	require.Greater(t, most, maxPart/2)
	require.LessOrEqual(t, most, maxPart)
	require.EqualValues(t, 1, g.refused.Load())

	p.again()
	m := &membership.Message{Kind: membership.Report, Past: &membership.Past{}}
	for range 1000 {
		m.Holds = append(m.Holds, membership.Hold{Lock: "x"})
		m.Past.Words = append(m.Past.Words, membership.Word{})
	}
	some := Parts(m, 1<<20)[0]
	some[0] = saysSome
	g.Message(2, 0, some)
	size := p.size
	require.Greater(t, size, 1000*int(unsafe.Sizeof(membership.Hold{})+unsafe.Sizeof(membership.Word{})))
	p.size = maxReport - size
	g.Message(2, 0, some)
	require.Len(t, p.some, 2)
	require.Len(t, join(p.some).Holds, 2000)
	g.Message(2, 0, some)
	require.Nil(t, p.some)
	require.EqualValues(t, 2, g.refused.Load())

	p.again()
	least := Parts(&membership.Message{Kind: membership.Report}, 1<<20)[0]
	least[0] = saysSome
	g.Message(2, 0, least)
	require.Greater(t, p.size, int(unsafe.Sizeof(membership.Message{})))
}

// What follows a part that was refused is no message of its own: a report without its first holds would free them.
func TestRestOfRefusedReport(t *testing.T) {
	for _, refused := range []byte{saysSome, saysMore} {
		g := half(t)
		p := g.peer(2)
		if refused == saysSome {
			g.Message(2, 0, []byte{refused, 0xc1})
		} else {
			g.Message(2, 0, append([]byte{refused}, make([]byte, maxPart+1)...))
		}
		require.EqualValues(t, 1, g.refused.Load())
		some := Parts(someReport(), 1<<20)[0]
		for _, says := range []byte{saysMore, saysSome, saysLast} {
			require.True(t, p.refused)
			some[0] = says
			g.Message(2, 0, some)
			require.Empty(t, p.part)
			require.Empty(t, p.some)
		}
		require.False(t, p.refused)
		require.EqualValues(t, 1, g.refused.Load(), "nothing of the rest was read")
		some[0] = saysSome
		g.Message(2, 0, some)
		require.Len(t, p.some, 1)
	}
}

// The parts of two messages are not joined.
func TestPartsOfTwoMessages(t *testing.T) {
	g := half(t)
	some := Parts(someReport(), 1<<20)[0]
	some[0] = saysSome
	g.Message(2, 0, some)
	require.NotNil(t, g.peer(2).some)
	g.Message(2, 0, Parts(&membership.Message{Kind: membership.Decide}, 1<<20)[0])
	require.Nil(t, g.peer(2).some)
	require.EqualValues(t, 1, g.refused.Load())
}

// A report in parts does not crash a node if only some of the parts tell of the past.
func TestPartsWithoutPast(t *testing.T) {
	with, without := membership.Message{Past: &membership.Past{Former: make([]membership.Former, 1)}}, membership.Message{}
	require.Len(t, join([]membership.Message{with, without, with}).Past.Former, 2)
	join([]membership.Message{with, without})
	join([]membership.Message{without, with})
}

// A long message leaves the locks room in the mail, also if the peer takes nothing in.
func TestLongReportLeavesRoom(t *testing.T) {
	g := half(t)
	m := membership.Message{Kind: membership.Report}
	for i := range 200_000 {
		m.Holds = append(m.Holds, membership.Hold{Lock: fmt.Sprintf("lock/%011d", i), Fence: 1 << 50})
	}
	p := g.peer(2)
	p.pending = []membership.Message{m}
	for now := range int64(100) {
		g.send(now)
	}
	require.Greater(t, g.Mail.Backlog(2), roomAhead)
	require.Less(t, g.Mail.Backlog(2), stream.Buffer/2)
	require.Equal(t, 99+int64(sendAgain), g.timers[send])
}

// In the strict mode the name of a former process is not shown for the next one with its number. Nothing is
// left of what the former one has said in part, or was to be told.
func TestAnotherProcess(t *testing.T) {
	g := half(t)
	g.remember(map[dmutex.NodeID]About{2: {Name: "web-2"}})
	require.Equal(t, "web-2 (node 2)", g.Called(2))
	p := g.peer(2)
	for _, ends := range []func(){func() { g.Met(2, 7) }, func() { g.Left(2) }} {
		g.Message(2, 1, []byte{saysMore, 1})
		require.NotEmpty(t, p.part)
		p.some, p.size = make([]membership.Message, 1), 2
		p.parts, p.pending = [][]byte{make([]byte, 1000)}, make([]membership.Message, 1)
		ends()
		require.Equal(t, "node 2", g.Called(2))
		require.Empty(t, p.part)
		require.Nil(t, p.some)
		require.Zero(t, p.size)
		require.Less(t, g.Mail.Backlog(2), 1000)
	}
}

// A message about views that finds no room in the mail waits, and those behind it do. They are tried again.
func TestNoRoom(t *testing.T) {
	g := half(t)
	large, small := make([]byte, 1000), []byte{saysLast}
	var err error
	for err == nil {
		_, err = g.Mail.Send(2, large)
	}
	require.ErrorIs(t, err, stream.ErrFull)
	p := g.peer(2)
	p.parts = [][]byte{large, small}
	for now := range int64(2) {
		g.send(now)
		require.Equal(t, [][]byte{large, small}, p.parts)
		require.Equal(t, now+int64(sendAgain), g.timers[send])
	}
	g.Mail.Rename(g.life + 1) // drops what is not acknowledged
	g.send(2)
	require.Empty(t, p.parts)
	require.EqualValues(t, int64(due.Never), g.timers[send])
}

// The Status of a peer tells for a lease that another process with its number was heard.
func TestClash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		g, err := New(Config{Store: new(store.Memory), Algorithm: ricart.New, Link: net.Link(dmutex.None), Up: face{}})
		require.NoError(t, err)
		g.setPeers([]dmutex.NodeID{2})
		trouble := func() error {
			_, err := g.Peer(2)
			return err
		}
		time.Sleep(time.Second)
		g.Refused(2, dmutex.PeerMistake("test"))
		g.Refused(3, stream.ErrOther)
		require.NoError(t, trouble())
		g.Refused(2, stream.ErrOther)
		time.Sleep(leases.Default - 1)
		require.Equal(t, stream.ErrOther, trouble())
		time.Sleep(time.Nanosecond)
		require.NoError(t, trouble())
	})
}

// A group keeps the names of its members, and of as many former ones as there can be: the last that joined.
func TestNamesAreBounded(t *testing.T) {
	g := half(t)
	for id := dmutex.NodeID(2); id < 10+membership.MaxFormer; id++ {
		g.remember(map[dmutex.NodeID]About{id: {Name: fmt.Sprint("web-", id)}})
	}
	require.Equal(t, "web-2 (node 2)", g.Called(2), "a member")
	require.Equal(t, "node 9", g.Called(9))
	require.Equal(t, "web-10 (node 10)", g.Called(10))
	require.Len(t, *g.known.Load(), 1+membership.MaxFormer)
}

// What is told of former members has their names, and what the machine keeps has none.
func TestNamesAreNotKept(t *testing.T) {
	alone(t, Config{Self: 1, Members: []dmutex.NodeID{1}}, func(g *Group) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.remember(map[dmutex.NodeID]About{3: {Name: "web-3"}})
		g.setPeers([]dmutex.NodeID{2})
		kept := &membership.Past{Former: []membership.Former{{Node: 3, Epoch: 5}}}
		require.Equal(t, "web-3", g.withNames(kept).Former[0].Name)
		g.post(0, &membership.Output{Messages: []membership.Message{{Kind: membership.Report, From: 1, To: 2, Past: kept}}})
		require.Empty(t, kept.Former[0].Name)
		require.Nil(t, g.withNames(nil))
	})
}
