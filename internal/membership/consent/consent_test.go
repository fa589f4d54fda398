package consent

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/membership"
)

func three(t testing.TB) *Machine {
	m, err := New(Config{Self: 1, Members: []dmutex.NodeID{3, 1, 2}, Life: 7})
	require.NoError(t, err)
	m.Met(0, 2, 5)
	return m
}

// An invalid Config is refused.
func TestNewRefuses(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no members":   {Self: 1, Life: 1},
		"not a member": {Self: 3, Members: []dmutex.NodeID{1, 2}, Life: 1},
		"nobody":       {Self: 1, Members: []dmutex.NodeID{0, 1}, Life: 1},
		"twice":        {Self: 1, Members: []dmutex.NodeID{1, 2, 2}, Life: 1},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, dmutex.ErrMisuse, name)
	}
}

// A group that is too large is told what to do instead.
func TestFull(t *testing.T) {
	var members []dmutex.NodeID
	for id := range dmutex.NodeID(membership.MaxMembers) {
		members = append(members, id+1)
	}
	_, err := New(Config{Self: 1, Members: members, Life: 1})
	require.NoError(t, err)
	_, err = New(Config{Self: 1, Members: append(members, 65), Life: 1})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.ErrorContains(t, err, fmt.Sprintf("a group has at most %d members, not %d: let fewer", membership.MaxMembers, membership.MaxMembers+1))
}

// No peer can claim an epoch that is more than a day ahead of the clock, or of Config.Fence.
func TestEpochsAreNotUsedUp(t *testing.T) {
	const now = 200_000_000_000
	for _, tt := range []struct {
		fence, clock, most uint64
	}{
		{0, 0, epochs.Day},
		{0, now, now + epochs.Day},
		{epochs.First(now) + 1, 0, now + 1 + epochs.Day},
		{epochs.First(now), now + 7, now + 7 + epochs.Day},
		{1<<63 - 1, now, epochs.MaxClock + 1 + epochs.Day},
	} {
		m, err := New(Config{Self: 1, Members: []dmutex.NodeID{1, 2}, Life: 1, Fence: tt.fence, Clock: tt.clock})
		require.NoError(t, err)
		m.Met(0, 2, 5)
		before, _ := m.AppendText(nil)
		for _, round := range []uint64{tt.most + 1, epochs.Max, epochs.Max + 1, math.MaxUint64} {
			_, err = m.Handle(0, membership.Message{Kind: membership.Prepare, From: 2, To: 1, Round: round})
			require.ErrorIs(t, err, dmutex.ErrPeer)
			require.ErrorContains(t, err, "more than a day ahead of this node's clock")
		}
		after, _ := m.AppendText(nil)
		require.Equal(t, string(before), string(after))
		_, err = m.Handle(0, membership.Message{Kind: membership.Prepare, From: 2, To: 1, Round: tt.most})
		require.NoError(t, err)
		m.Clock(tt.clock + epochs.Day)
		_, err = m.Handle(0, membership.Message{Kind: membership.Prepare, From: 2, To: 1, Round: max(tt.most, tt.clock+2*epochs.Day)})
		require.NoError(t, err, "time has passed")
	}
	m, err := New(Config{Self: 1, Members: []dmutex.NodeID{1, 2}, Life: 1, Clock: math.MaxUint64})
	require.NoError(t, err)
	m.Met(0, 2, 5)
	_, err = m.Handle(0, membership.Message{Kind: membership.Prepare, From: 2, To: 1, Round: epochs.MaxClock + epochs.Day})
	require.NoError(t, err, "a clock that is far ahead")
}

// All views with a member are above its Config.Fence.
func TestFloor(t *testing.T) {
	for fence, least := range map[uint64]uint64{epochs.First(9): 9, epochs.First(9) + 1: 10, epochs.Last(9): 10} {
		m, err := New(Config{Self: 2, Members: []dmutex.NodeID{1, 2}, Life: 1, Fence: fence})
		require.NoError(t, err)
		m.Met(0, 1, 5)
		out, err := m.Handle(0, membership.Message{Kind: membership.Prepare, From: 1, To: 2, Round: least - 1})
		require.NoError(t, err)
		require.Equal(t, membership.Refuse, out.Messages[0].Kind)
		out, err = m.Handle(0, membership.Message{Kind: membership.Prepare, From: 1, To: 2, Round: least})
		require.NoError(t, err)
		require.Equal(t, membership.Promise, out.Messages[0].Kind)
	}
}

// The fences of a view have its epoch, and those of other views do not.
func TestFences(t *testing.T) {
	for _, epoch := range []uint64{2, 3, 217315200000, epochs.MaxClock, epochs.Max} {
		require.Equal(t, epoch, epochs.Of(epochs.First(epoch)))
		require.Equal(t, epoch, epochs.Of(epochs.Last(epoch)))
		require.Equal(t, uint64(1<<22-1), epochs.Last(epoch)-epochs.First(epoch))
		require.Equal(t, epoch-1, epochs.Of(epochs.First(epoch)-1))
		require.Equal(t, epoch, epochs.Above(epochs.First(epoch)))
		require.Equal(t, epoch, epochs.Above(epochs.Last(epoch-1)))
		require.Equal(t, epoch, epochs.Above(epochs.First(epoch-1)+1))
	}
	require.Equal(t, uint64(math.MaxUint64), epochs.Last(epochs.Max))
	require.Equal(t, uint64(epochs.Max)+1, epochs.Above(epochs.Last(epochs.Max)), "no epoch is above the last one, and none below it is taken for one")
	require.Less(t, epochs.Last(epochs.MaxClock), uint64(1<<63))
}

// A message that no correct peer sends is refused and changes nothing.
func TestHandleRefuses(t *testing.T) {
	view := func(epoch uint64, who ...membership.Member) membership.View {
		return membership.View{Epoch: epoch, Members: who}
	}
	for name, msg := range map[string]membership.Message{
		"from itself":        {Kind: membership.Prepare, From: 1, To: 1, Round: 1},
		"from no member":     {Kind: membership.Prepare, From: 9, To: 1, Round: 1},
		"not met":            {Kind: membership.Prepare, From: 3, To: 1, Round: 1},
		"for another":        {Kind: membership.Prepare, From: 2, To: 3, Round: 1},
		"no kind":            {From: 2, To: 1, Round: 1},
		"unknown kind":       {Kind: membership.Complete + 1, From: 2, To: 1, Round: 1},
		"prepare round 0":    {Kind: membership.Prepare, From: 2, To: 1},
		"promise round 0":    {Kind: membership.Promise, From: 2, To: 1},
		"no view":            {Kind: membership.Decide, From: 2, To: 1},
		"reports from out":   {Kind: membership.Report, From: 2, To: 1, View: view(1, membership.Member{Node: 1, Life: 7})},
		"complete with us":   {Kind: membership.Complete, From: 2, To: 1, View: view(1, membership.Member{Node: 1, Life: 7})},
		"members twice":      {Kind: membership.Decide, From: 2, To: 1, View: view(1, membership.Member{Node: 2, Life: 5}, membership.Member{Node: 2, Life: 5})},
		"members unordered":  {Kind: membership.Decide, From: 2, To: 1, View: view(1, membership.Member{Node: 2, Life: 5}, membership.Member{Node: 1, Life: 7})},
		"unknown member":     {Kind: membership.Decide, From: 2, To: 1, View: view(1, membership.Member{Node: 9, Life: 1})},
		"life 0":             {Kind: membership.Promise, From: 2, To: 1, Round: 1, Installed: view(1, membership.Member{Node: 2, Life: 0})},
		"round too high":     {Kind: membership.Prepare, From: 2, To: 1, Round: epochs.Day + 1},
		"epoch too high":     {Kind: membership.Decide, From: 2, To: 1, View: view(epochs.Day+1, membership.Member{Node: 1, Life: 7})},
		"view too high":      {Kind: membership.Promise, From: 2, To: 1, Round: 1, Installed: view(epochs.Day+1, membership.Member{Node: 1, Life: 7})},
		"complete too high":  {Kind: membership.Promise, From: 2, To: 1, Round: 1, Completed: view(epochs.Day+1, membership.Member{Node: 1, Life: 7})},
		"refused too high":   {Kind: membership.Refuse, From: 2, To: 1, Round: epochs.Max},
		"completed is wrong": {Kind: membership.Promise, From: 2, To: 1, Round: 1, Completed: view(1, membership.Member{Node: 9, Life: 1})},
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

// The highest round that a hostile peer may name is answered, and costs no memory.
func TestHighestRound(t *testing.T) {
	m := three(t)
	for range 100 {
		_, err := m.Handle(0, membership.Message{Kind: membership.Prepare, From: 2, To: 1, Round: epochs.Day})
		require.NoError(t, err)
		out := m.Tick(m.Deadline())
		require.Less(t, len(out.Messages), 10)
	}
}

// Whatever a peer sends, the machine does not panic, and a refused message changes
// nothing.
func FuzzHandle(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{2, 1, 0, 0, 1, 0, 0, 0, 3, 0, 0, 1, 7, 4, 0, 0, 0, 1, 0, 0, 0, 0, 3, 0, 0, 1, 7})
	f.Fuzz(nonsense)
}

// nonsense lets a peer send the messages that the data encode.
func nonsense(t *testing.T, data []byte) {
	m := three(t)
	for len(data) >= 13 {
		b := data[:13]
		data = data[13:]
		v := membership.View{Epoch: uint64(b[8] & 7)}
		for i, life := range b[9:12] {
			if life != 0 {
				v.Members = append(v.Members, membership.Member{Node: dmutex.NodeID(i + 1), Life: uint64(life)})
			}
		}
		msg := membership.Message{Kind: membership.Kind(b[0]), From: 2, To: 1, Round: uint64(binary.LittleEndian.Uint32(b[4:8])), Leaving: b[1]&1 != 0, Life: uint64(b[2])}
		switch msg.View = v; msg.Kind {
		case membership.Promise:
			msg.Installed, msg.Completed, msg.View = v, membership.View{}, membership.View{}
		case membership.Prepare, membership.Refuse:
			msg.View = membership.View{}
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
		if at := m.Deadline(); at < due.Never {
			m.Tick(at)
		}
	}
}
