package node

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/chase"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// long is the longest chase that there can be in a group of three.
func long() *chase.Chase {
	c := &chase.Chase{Began: math.MaxUint64, Checked: chase.MaxPath, Lent: true, Ask: []dmutex.NodeID{1, math.MaxUint64, 3}}
	for range chase.MaxPath {
		c.Path = append(c.Path, chase.Wait{Node: math.MaxUint64, Txn: math.MaxUint64, Number: math.MaxUint64, Lock: strings.Repeat("x", 255)})
	}
	return c
}

func probe(c *chase.Chase) []byte { return (&message{says: saysProbe, probe: *c}).encode() }

func TestProbeOnTheWire(t *testing.T) {
	for _, c := range []*chase.Chase{
		{Path: []chase.Wait{{Node: 1, Txn: 2, Number: 3, Lock: "a"}}},
		{Began: 7, Path: []chase.Wait{{Node: 1, Txn: 2, Number: 3, Lock: "a"}, {Node: 300, Lock: "b"}}, Ask: []dmutex.NodeID{2, 3}},
		long(),
	} {
		b := probe(c)
		require.EqualValues(t, saysProbe, b[0])
		got, err := readMessage(b, 3)
		require.NoError(t, err)
		require.Equal(t, *c, got.probe)
		for n := 1; n < len(b); n++ {
			_, err := readMessage(b[:n], 3)
			require.ErrorIs(t, err, dmutex.ErrPeer, "%d bytes of %d", n, len(b))
		}
		_, err = readMessage(append(b, 0), 3)
		require.ErrorIs(t, err, dmutex.ErrPeer, "a byte too many")
	}
	require.Less(t, len(probe(long())), 20<<10)
}

// A probe beyond the bounds is refused.
func TestProbeRefused(t *testing.T) {
	wait := chase.Wait{Node: 1, Txn: 2, Number: 3, Lock: "a"}
	for why, c := range map[string]*chase.Chase{
		"a long path":    {Path: append(long().Path, wait)},
		"an empty name":  {Path: []chase.Wait{{Node: 1, Txn: 2, Number: 3}}},
		"a long name":    {Path: []chase.Wait{{Node: 1, Txn: 2, Number: 3, Lock: strings.Repeat("x", 256)}}},
		"asks too many":  {Path: []chase.Wait{wait}, Ask: []dmutex.NodeID{1, 2, 3, 4}},
		"checked beyond": {Path: []chase.Wait{wait}, Checked: chase.MaxPath + 1},
	} {
		_, err := readMessage(probe(c), 3)
		require.ErrorIs(t, err, dmutex.ErrPeer, why)
	}
}

// A nonsensical probe, or one in a group that does not look for deadlocks, is
// refused and harms nothing.
func TestProbeFromAStranger(t *testing.T) {
	for hours, message := range map[int][]byte{
		0: probe(&chase.Chase{Path: []chase.Wait{{Node: 1, Txn: 2, Number: 3, Lock: "a"}}}),
		1: {saysProbe, 1, 2},
	} {
		n := lone(t, hours)
		up{n}.Message(2, message)
		require.EqualValues(t, 1, n.Status().Refused)
		require.NoError(t, n.Status().Err)
	}
}

// lone opens a node without peers that looks for a deadlock after a wait of that many hours, or
// never with 0.
func lone(t testing.TB, hours int) *Node {
	net, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	n, err := OpenStrict(t.Context(), 1, []dmutex.NodeID{1}, net.Link(1), Config{Algorithm: ricart.New, Deadlock: time.Duration(hours) * time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close(t.Context())) })
	return n
}

// A cycle ends only the wait in which it was found, not a later one.
func TestBreakCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := lone(t, 1)
		first, second := n.Txn(), n.Txn()
		for txn, name := range map[*Txn]string{first: "a", second: "b"} {
			_, err := txn.Acquire(t.Context(), name)
			require.NoError(t, err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := first.Acquire(t.Context(), "b")
			ended <- err
		}()
		synctest.Wait()
		path := func(number uint64, held string) []chase.Wait {
			return []chase.Wait{{Node: 1, Txn: first.id, Number: number, Lock: "b"}, {Node: 1, Txn: second.id, Number: 1, Lock: held}}
		}
		n.breakCycle(path(2, "a"))
		n.breakCycle(path(1, "b"))
		n.breakCycle(path(1, "nowhere"))
		former := path(1, "a")
		former[0].Txn = 7 // transaction 7 held a when the cycle was found
		n.breakCycle(former)
		synctest.Wait()
		require.Empty(t, ended)
		n.breakCycle(path(1, "a"))
		require.ErrorIs(t, <-ended, ErrDeadlock)
		n.breakCycle(path(1, "a"))
		require.NoError(t, first.Release())
		require.NoError(t, second.Release())
		require.EqualValues(t, 1, n.Status().Deadlocks)
	})
}

// A wait that has ended does not count, even if its goroutine has not noticed yet.
func TestWaitIsOver(t *testing.T) {
	n := lone(t, 1)
	h, err := n.Mutex("a").Acquire(t.Context())
	require.NoError(t, err)
	txn := n.Txn()
	txn.number = 1
	txn.waiting, _, _ = n.locks.Join(t.Context(), "a", locks.Want{}, nil)
	w, _ := txn.waits()
	require.EqualValues(t, 1, w.Number)
	require.NoError(t, h.Release())
	w, _ = txn.waits()
	require.Equal(t, chase.Wait{Node: 1, Txn: txn.id}, w)
}

// No message of a peer about transactions crashes a node. A message that was read stays the same
// when it is written and read again.
func FuzzProbe(f *testing.F) {
	f.Add(probe(long()))
	f.Add(probe(&chase.Chase{Path: []chase.Wait{{Node: 1, Txn: 1, Number: 1, Lock: "a"}}, Checked: 1}))
	f.Add([]byte{saysProbe})
	n := lone(f, 1)
	txn := n.Txn()
	for _, name := range []string{"a", "b"} {
		_, err := txn.Acquire(f.Context(), name)
		require.NoError(f, err)
	}
	txn.number = 1
	f.Fuzz(func(t *testing.T, message []byte) {
		if txn.waiting == nil || txn.waiting.Over() {
			txn.waiting, _, _ = n.locks.Join(t.Context(), "b", locks.Want{}, nil)
		}
		if len(message) == 0 {
			return
		}
		up{n}.Message(2, message)
		if m, err := readMessage(message, 3); err == nil {
			again, err := readMessage(m.encode(), 3)
			require.NoError(t, err)
			require.Equal(t, m, again)
		}
	})
}
