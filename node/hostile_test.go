package node

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/membership"
	wiremessage "github.com/dmutex/dmutex/internal/message"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node/internal/group"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport/memlink"
)

// Nonsense about views is refused, and buffered messages of views that never come are bounded.
func TestNonsenseAboutViews(t *testing.T) {
	pair(t, func(t *testing.T, one, two *Node) {
		held, err := one.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		life := two.Status().Life
		strange := membership.View{Epoch: 9, Members: []membership.Member{{Node: 7, Life: 1}}}
		present := one.group.Status().Lives
		present.Members = present.Members[:1]
		seq := uint64(1 << 20)
		hear := func(b []byte) {
			seq++
			one.group.Message(2, seq, b)
		}
		nonsense := [][]byte{{2}, {2, byte(membership.Promise), 1}, {2, byte(membership.Decide), 0xff}, {15}, {127}}
		for _, m := range []membership.Message{
			{Kind: membership.Prepare},
			{Kind: membership.Decide, View: strange},
			{Kind: membership.Decide, View: present},
			{Kind: membership.Report, View: strange, Holds: []membership.Hold{{Lock: "x", Fence: math.MaxUint64}}},
			{Kind: membership.Complete, View: present},
			{Kind: membership.Promise, Round: 9, Installed: strange},
			{Kind: membership.Decide, View: membership.View{Epoch: present.Epoch + 1, Members: []membership.Member{{Node: 2, Life: math.MaxUint64}}}},
			{Kind: membership.Refuse, Round: 1, Life: math.MaxUint64},
			{Kind: membership.Prepare, Round: 1 << 41},
		} {
			nonsense = append(nonsense, group.Parts(&m, 1<<16)...)
		}
		for i, b := range nonsense {
			before := one.Status().Refused
			hear(b)
			require.Equal(t, before+1, one.Status().Refused, "%d: %q", i, b)
		}
		refused := one.Status().Refused
		hear([]byte{3})                 // the first part of a message
		hear(nonsense[len(nonsense)-1]) // the last one: it is thrown away
		require.Equal(t, refused+1, one.Status().Refused)
		for round := range uint64(1000) { // a peer may begin as many rounds as it likes
			hear(group.Parts(&membership.Message{Kind: membership.Prepare, Round: 1000 + round}, 1<<16)[0])
		}
		name := strings.Repeat("x", lock.MaxName-8)
		for i := range 100_000 { // and send messages of a view that is far away
			hear(wiremessage.Append(nil, fmt.Sprint(name, i%100), dmutex.Message{
				Kind: dmutex.Request, From: 2, To: 1, Attempt: 1, Fence: epochs.First(1 << 30),
			}))
		}
		require.NoError(t, held.Err())
		require.NoError(t, held.Release())
		require.Equal(t, life, two.Status().Life)
		time.Sleep(time.Hour)
		next, err := two.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, next.Release())
		require.NoError(t, one.Status().Err)
	})
}

// Messages of a view that is far away leave room for messages of the next view: a faulty member
// cannot make the others miss a request.
func TestFarMessagesLeaveRoom(t *testing.T) {
	met(t, ricart.New, []dmutex.NodeID{1, 2, 3}, func(t *testing.T, net *memlink.Network, nodes []*Node) {
		one, two := nodes[0], nodes[1]
		far := trace.Message{Message: dmutex.Message{Kind: dmutex.Request, From: 3, To: 1, Attempt: 1, Fence: epochs.First(1 << 30)}}
		hear := func(name string, m trace.Message) {
			one.locks.Handle([]byte(name), &m)
		}
		for range locks.EarlyBuffer / 192 {
			hear("x", far)
		}
		huge := far
		huge.Numbers = make([]uint64, locks.EarlyBuffer/8)
		hear("y", huge)
		net.Cut(3, 1) // 1 does not hear that 3 has reported, and 2 does
		before := two.Status().View
		two.group.Trouble(before.Epoch, dmutex.PeerMistake("test"))
		time.Sleep(3 * time.Second)
		require.Greater(t, two.Status().View.Epoch, before.Epoch)
		require.True(t, two.Status().View.Acts)
		require.False(t, one.Status().View.Acts)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error)
		go func() {
			h, err := two.Mutex("x").Acquire(ctx)
			if err == nil {
				err = h.Release()
			}
			done <- err
		}()
		time.Sleep(time.Second)
		net.Heal()
		require.NoError(t, <-done)
	})
}

// Messages of older views are dropped, and are not counted as refused.
func TestLateMessagesAreDropped(t *testing.T) {
	pair(t, func(t *testing.T, one, _ *Node) {
		one.group.Trouble(one.locks.Epoch(), dmutex.PeerMistake("test"))
		time.Sleep(time.Minute)
		require.NoError(t, one.Ready(t.Context()))
		before := one.Status()
		one.group.Message(2, 1<<20, wiremessage.Append(nil, "x", dmutex.Message{
			Kind: dmutex.Request, From: 2, To: 1, Attempt: 1, Fence: epochs.First(one.locks.Epoch()) - 1,
		}))
		after := one.Status()
		require.Equal(t, before.Refused, after.Refused)
		require.Equal(t, before.Received, after.Received)
		require.Equal(t, before.Locks, after.Locks)
	})
}

// An Ask of a peer with an invalid name is refused, and does no other harm. However often a peer
// asks, no lock is created.
func TestAskedByALiar(t *testing.T) {
	pair(t, func(t *testing.T, one, _ *Node) {
		ask := func(name string) { one.group.Message(2, 1, (&message{says: saysAsk, name: name}).encode()) }
		for i, name := range []string{"", strings.Repeat("x", lock.MaxName+1), strings.Repeat("x", 60<<10)} {
			ask(name)
			require.EqualValues(t, i+1, one.Status().Refused)
		}
		for i := range 10_000 {
			ask(fmt.Sprint("name ", i))
		}
		require.Zero(t, one.Status().Locks)
		require.NoError(t, one.Status().Err)
	})
}

// The name of a peer is refused if it would break a terminal, a log or a page. The former name
// stays.
func TestNonsenseNames(t *testing.T) {
	pair(t, func(t *testing.T, one, two *Node) {
		synctest.Wait()
		for i, name := range []string{"", "\x1b[31m", "two\nlines", "\u202eleft", "\xff", strings.Repeat("n", 65)} {
			one.group.Message(2, 1<<20+uint64(i), wire.Write([]byte{15}, func(f *wire.Fields) { f.Name(&name, 64) }))
			require.EqualValues(t, i+1, one.Status().Refused, "%q", name)
			require.Equal(t, two.Status().Name+" (2)", one.Status().Peers[0].Name)
		}
	})
}

// Questions and answers about holders that no correct peer sends are refused, and answers that
// nobody waits for are dropped.
func TestNonsenseAboutHolders(t *testing.T) {
	pair(t, func(t *testing.T, one, two *Node) {
		question := func(name string) []byte { return (&message{says: saysWho, number: 7, name: name}).encode() }
		hold := func(age uint64) []byte { return (&message{says: saysHold, number: 7, fence: 5, age: age}).encode() }
		who, held := question("x"), hold(1000)
		waits := (&message{says: saysHold, number: 7, waited: maxAge + 1}).encode()
		for i, bad := range [][]byte{
			who[:len(who)-1], append(slices.Clone(who), 0), question(""), question(strings.Repeat("x", lock.MaxName+1)),
			held[:len(held)-1], append(slices.Clone(held), 0), hold(maxAge + 1), waits,
		} {
			one.group.Message(2, 1<<20, bad)
			require.EqualValues(t, i+1, one.Status().Refused, "%x", bad)
		}
		refused := one.Status().Refused
		answers := make(chan answer, 64)
		one.asks.Store(uint64(8), answers)
		for range 1000 {
			one.group.Message(2, 1<<20, held)
			one.group.Message(2, 1<<20, (&message{says: saysHold, number: 8}).encode())
		}
		require.Equal(t, refused, one.Status().Refused)
		require.Len(t, answers, 64)
	})
}

// Half a report from a crashed process is not merged into its successor's report.
func TestHalfAReport(t *testing.T) {
	members := []dmutex.NodeID{1, 2}
	met(t, central.New, members, func(t *testing.T, net *memlink.Network, nodes []*Node) {
		one, view := nodes[0], nodes[0].group.Status().Lives
		holds := []membership.Hold{{Lock: "x", Fence: epochs.First(view.Epoch)}, {Lock: strings.Repeat("x", 500)}}
		report := &membership.Message{Kind: membership.Report, View: view, Holds: holds}
		one.group.Message(2, 0, group.Parts(report, 500)[0]) // it announces another part
		net.Cut(2, 1)
		hurry, cancel := context.WithCancel(t.Context())
		cancel()
		_ = nodes[1].Close(hurry) // without a farewell
		net.Heal()
		next, err := OpenStrict(t.Context(), 2, members, net.Link(2), Config{Algorithm: central.New})
		require.NoError(t, err)
		defer next.Close(t.Context())
		require.NoError(t, next.Ready(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		h, err := one.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, h.Release())
	})
}

// If the buffer had no room for an early message, the view of that message is replaced once, as
// soon as it acts.
func TestEarlyWithoutRoom(t *testing.T) {
	pair(t, func(t *testing.T, one, two *Node) {
		before := one.Status().View
		one.locks.Handle([]byte("x"), &trace.Message{Message: dmutex.Message{
			From: 2, To: 1, Fence: epochs.First(before.Epoch + 1), Numbers: make([]uint64, locks.EarlyBuffer/8),
		}})
		time.Sleep(time.Minute)
		require.Equal(t, before.Changes, one.Status().View.Changes, "the message is of a later view")
		two.group.Trouble(before.Epoch, dmutex.PeerMistake("test"))
		time.Sleep(time.Hour)
		require.Equal(t, before.Changes+2, one.Status().View.Changes)
	})
}

// A machine that has used up its fences costs a view change, and no call fails.
func TestExhausted(t *testing.T) {
	var next atomic.Bool
	algorithm := func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := ricart.New(s)
		if next.Swap(false) {
			m = exhausted{m}
		}
		return m, err
	}
	pairOf(t, algorithm, func(t *testing.T, one, two *Node) {
		before := one.Status().View
		next.Store(true)
		h, err := one.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, before.Changes+1, one.Status().View.Changes)
		require.NoError(t, h.Release())
		h, err = two.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Release())
		time.Sleep(time.Hour)
		require.Equal(t, before.Changes+1, one.Status().View.Changes)
	})
}

// exhausted is a machine that has used up the fences of its epoch.
type exhausted struct{ dmutex.Machine }

func (exhausted) Request() ([]dmutex.Message, error) { return nil, dmutex.ErrExhausted }

// pair opens two nodes that have met, in a bubble.
func pair(t *testing.T, test func(t *testing.T, one, two *Node)) { pairOf(t, ricart.New, test) }

func pairOf(t *testing.T, algorithm dmutex.Algorithm, test func(t *testing.T, one, two *Node)) {
	met(t, algorithm, []dmutex.NodeID{1, 2}, func(t *testing.T, _ *memlink.Network, nodes []*Node) { test(t, nodes[0], nodes[1]) })
}

// met opens nodes that have met, in a bubble.
func met(t *testing.T, algorithm dmutex.Algorithm, members []dmutex.NodeID, test func(t *testing.T, net *memlink.Network, nodes []*Node)) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		var nodes []*Node
		for _, id := range members {
			n, err := OpenStrict(t.Context(), id, members, net.Link(id), Config{Algorithm: algorithm})
			require.NoError(t, err)
			nodes = append(nodes, n)
		}
		t.Cleanup(func() {
			net.Heal()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			for _, n := range nodes {
				_ = n.Close(ctx)
			}
		})
		for _, n := range nodes {
			require.NoError(t, n.Ready(t.Context()))
		}
		test(t, net, nodes)
	})
}
