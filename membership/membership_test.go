package membership

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

func three(t testing.TB) *Machine {
	m, err := New(Config{Self: 1, Members: []dmutex.NodeID{3, 1, 2}, Life: 7})
	require.NoError(t, err)
	m.Met(0, 2, 5)
	return m
}

// A Config that is not lawful is refused.
func TestNewRefuses(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no members":    {Self: 1, Life: 1},
		"not a member":  {Self: 3, Members: []dmutex.NodeID{1, 2}, Life: 1},
		"nobody":        {Self: 1, Members: []dmutex.NodeID{0, 1}, Life: 1},
		"twice":         {Self: 1, Members: []dmutex.NodeID{1, 2, 2}, Life: 1},
		"without a run": {Self: 1, Members: []dmutex.NodeID{1, 2}},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, dmutex.ErrMisuse, name)
	}
}

// A message that no correct peer sends is refused and changes nothing.
// A member that claims an epoch far ahead cannot use up those that are left.
func TestEpochsAreNotUsedUp(t *testing.T) {
	m := three(t)
	m.Met(0, 2, 5)
	before, _ := m.AppendText(nil)
	_, err := m.Handle(0, Message{Kind: Prepare, From: 2, To: 1, Round: 1 << 31})
	require.NoError(t, err, "a life in no view cannot tell")
	m = three(t)
	m.Met(0, 2, 5)
	after, _ := m.AppendText(nil)
	require.Equal(t, string(before), string(after))
	m.view = View{Epoch: 1 << 31, Fence: 1 << 63}
	for round, ok := range map[uint32]bool{1<<31 + maxAhead: true, 1<<31 + maxAhead + 1: false, 1<<32 - 1: false} {
		_, err := m.Clone().Handle(0, Message{Kind: Prepare, From: 2, To: 1, Round: round})
		if ok {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, dmutex.ErrPeer)
		}
	}
	_, err = New(Config{Self: 1, Members: []dmutex.NodeID{1}, Life: 1, Fence: 1 << 63})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
}

func TestHandleRefuses(t *testing.T) {
	view := func(epoch uint32, who ...Member) View {
		return View{Epoch: epoch, Members: who, Fence: uint64(epoch) << 32}
	}
	for name, msg := range map[string]Message{
		"from itself":        {Kind: Prepare, From: 1, To: 1, Round: 1},
		"from no member":     {Kind: Prepare, From: 9, To: 1, Round: 1},
		"not met":            {Kind: Prepare, From: 3, To: 1, Round: 1},
		"for another":        {Kind: Prepare, From: 2, To: 3, Round: 1},
		"no kind":            {From: 2, To: 1, Round: 1},
		"unknown kind":       {Kind: Complete + 1, From: 2, To: 1, Round: 1},
		"prepare round 0":    {Kind: Prepare, From: 2, To: 1},
		"promise round 0":    {Kind: Promise, From: 2, To: 1},
		"no view":            {Kind: Decide, From: 2, To: 1},
		"fence elsewhere":    {Kind: Decide, From: 2, To: 1, View: View{Epoch: 2, Fence: 1 << 32}},
		"reports from out":   {Kind: Report, From: 2, To: 1, View: view(1, Member{1, 7})},
		"complete with us":   {Kind: Complete, From: 2, To: 1, View: view(1, Member{1, 7})},
		"members twice":      {Kind: Decide, From: 2, To: 1, View: view(1, Member{2, 5}, Member{2, 5})},
		"members unordered":  {Kind: Decide, From: 2, To: 1, View: view(1, Member{2, 5}, Member{1, 7})},
		"unknown member":     {Kind: Decide, From: 2, To: 1, View: view(1, Member{9, 1})},
		"life 0":             {Kind: Promise, From: 2, To: 1, Round: 1, Installed: view(1, Member{2, 0})},
		"floor too high":     {Kind: Promise, From: 2, To: 1, Round: 1, Fence: 1 << 63},
		"clock too high":     {Kind: Promise, From: 2, To: 1, Round: 1, Clock: 1 << 63},
		"completed is wrong": {Kind: Promise, From: 2, To: 1, Round: 1, Completed: view(1, Member{9, 1})},
	} {
		m := three(t)
		before, _ := m.AppendText(nil)
		out, err := m.Handle(0, msg)
		require.ErrorIs(t, err, dmutex.ErrPeer, name)
		require.Empty(t, out, name)
		after, _ := m.AppendText(nil)
		require.Equal(t, string(before), string(after), name)
	}
}

// An eviction that makes no sense is refused and changes nothing.
func TestEvictRefuses(t *testing.T) {
	m := three(t)
	before, _ := m.AppendText(nil)
	for _, node := range []dmutex.NodeID{0, 1, 2, 9} { // 2 would do if there was a view
		_, err := m.Evict(0, node)
		require.ErrorIs(t, err, dmutex.ErrMisuse)
	}
	after, _ := m.AppendText(nil)
	require.Equal(t, string(before), string(after))
}

// Later clocks are higher fences, in the epoch of their second.
func TestClockFence(t *testing.T) {
	const second = 1_000_000_000
	require.Zero(t, ClockFence(math.MinInt64))
	require.Zero(t, ClockFence(-1))
	require.Zero(t, ClockFence(0))
	require.Equal(t, uint64(1<<32), ClockFence(second))
	require.Equal(t, uint64(7<<32|128<<20), ClockFence(7*second+second/2))
	require.Equal(t, uint64(7<<32|255<<20), ClockFence(8*second-1))
	require.Equal(t, uint64(math.MaxUint32)<<32, ClockFence(math.MaxUint32*second), "in the year 2156")
}

// A round above all that any member will ever promise, as a hostile peer may name
// it, is answered, and costs no memory.
func TestHighestRound(t *testing.T) {
	m := three(t)
	for range 100 {
		_, err := m.Handle(0, Message{Kind: Prepare, From: 2, To: 1, Round: math.MaxUint32})
		require.NoError(t, err)
		out := m.Tick(m.Deadline())
		require.Less(t, len(out), 10)
	}
}

// Whatever a peer sends, the machine neither panics nor keeps what it refuses, and
// a deadline in the past has work for Tick.
func FuzzHandle(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{2, 1, 0, 0, 1, 0, 0, 0, 3, 0, 0, 1, 7, 4, 0, 0, 0, 1, 0, 0, 0, 0, 3, 0, 0, 1, 7})
	f.Fuzz(nonsense)
}

// nonsense lets a peer say whatever the data make of it.
func nonsense(t *testing.T, data []byte) {
	m := three(t)
	for len(data) >= 13 {
		b := data[:13]
		data = data[13:]
		v := View{Epoch: uint32(b[8] & 7)}
		v.Fence = uint64(v.Epoch) << 32
		for i, life := range b[9:12] {
			if life != 0 {
				v.Members = append(v.Members, Member{dmutex.NodeID(i + 1), uint64(life)})
			}
		}
		msg := Message{Kind: Kind(b[0]), From: 2, To: 1, Round: binary.LittleEndian.Uint32(b[4:8]), Leaving: b[1]&1 != 0, Life: uint64(b[2])}
		switch msg.View = v; msg.Kind {
		case Promise:
			msg.Installed, msg.Completed, msg.View = v, View{}, View{}
		case Prepare, Refuse:
			msg.View = View{}
		}
		before, _ := m.AppendText(nil)
		if _, err := m.Handle(0, msg); err != nil {
			after, _ := m.AppendText(nil)
			require.Equal(t, string(before), string(after))
		}
		if m.View().Epoch > 0 {
			m.Report(0, nil)
		}
		switch b[12] {
		case 1:
			m.Leave(0)
		case 2:
			m.Met(0, 3, uint64(b[3]))
		case 3:
			m.Lost(0, 2)
			m.Met(0, 2, 5)
		}
		m.Missing(nil)
		m.Holders()
		if at := m.Deadline(); at < never {
			m.Tick(at)
		}
	}
}
