package lease

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/protocol"
)

// A fleet is a store and processes of the lease mode, which come and go one at a time.
type fleet struct {
	ledger
	t       *testing.T
	now     int64
	lives   uint64
	highest uint64 // epoch that a process has had
}

// join lets a process with this clock join. Its epoch must be higher than all before.
func (f *fleet) join(ahead int64) *Machine {
	f.t.Helper()
	f.lives++
	m, err := New(Config{Life: f.lives, Lease: testLease, Clock: uint64(f.now+ahead) / millisecond})
	require.NoError(f.t, err)
	f.tick(m, f.now)
	require.Greater(f.t, m.View().Epoch, f.highest)
	f.highest = m.View().Epoch
	return m
}

func (f *fleet) leave(m *Machine) {
	m.Hint(f.now) // the record may have changed
	f.now = max(f.now, m.Deadline())
	f.tick(m, f.now)
	m.Leave(f.now)
	f.serve(m, f.now)
	require.Equal(f.t, Left, m.Phase())
	f.highest = max(f.highest, f.record(f.t).Epoch)
}

// The highest number of members join at the same instant. If the record is lost after that, the
// fences of the next record are higher.
func TestLostAfterManyHaveJoined(t *testing.T) {
	f := &fleet{t: t, now: aDay}
	for range membership.MaxMembers {
		f.join(0)
	}
	f.value = nil
	f.now += second / 10
	f.join(0)
}

// Two processes that join and leave in a loop raise the epoch no faster than the clock.
func TestLostAfterShortLives(t *testing.T) {
	f := &fleet{t: t, now: aDay}
	for range 5000 {
		a, b := f.join(0), f.join(0)
		f.leave(a)
		f.leave(b)
		f.now += 5 * millisecond
	}
	require.LessOrEqual(t, f.highest, uint64(f.now/millisecond))
	f.value = nil
	f.join(0)
}

// The epochs of joining processes rise over a thousand restarts of all. Their clocks
// differ by up to a second. They find the record as it was or, after a second, lost or
// replaced by an old one.
func TestFencesRise(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		f := &fleet{t: t, now: aDay}
		ahead := make([]int64, 1+rng.IntN(5))
		for i := range ahead {
			ahead[i] = rng.Int64N(second)
		}
		var old [][]byte
		for range 20 {
			for _, i := range rng.Perm(len(ahead)) {
				m := f.join(ahead[i])
				f.now += rng.Int64N(20 * millisecond)
				if rng.IntN(2) == 0 {
					f.leave(m)
				}
				old = append(old, f.value)
			}
			switch rng.IntN(3) {
			case 0:
				f.value = nil
				f.now += second
			case 1: // a supervisor starts a process before an operator deletes the record
				f.value = old[rng.IntN(len(old))]
				f.now += second
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// After a wait for the longer leases of former members, the next crash costs no more than
// the present lease of the group.
func TestLengthIsChanged(t *testing.T) {
	var l ledger
	l.put(t, Record{Epoch: 5, Unclean: 4, Highest: 2, Lease: 10 * second, Settings: "ricart"})
	m := joined(t, &l, 9)
	require.GreaterOrEqual(t, m.now, leases.Drain(10*second))
	r := l.record(t)
	require.Equal(t, int64(testLease), r.Lease)
	r.Epoch++
	r.Highest++
	r.Members = append(r.Members, Entry{membership.Member{Node: r.Highest, Life: 77}, protocol.Spoken, "", "", ""})
	l.put(t, r)
	l.tick(m, m.now+testLease/3)
	require.Len(t, m.View().Members, 2)
	for m.Phase() != Acting { // the other is not there
		l.tick(m, m.Deadline())
	}
	require.Len(t, m.View().Members, 1)
	require.Equal(t, leases.Drain(testLease), m.now-m.in.InstalledAt)
}

// The 65th process waits, looks at the record now and then, and joins when there is room.
func TestFull(t *testing.T) {
	f := &fleet{t: t, now: aDay}
	var all []*Machine
	for range membership.MaxMembers {
		all = append(all, f.join(0))
	}
	before := f.value
	m, err := New(Config{Life: 1000, Lease: testLease, Clock: uint64(f.now) / millisecond})
	require.NoError(t, err)
	f.tick(m, f.now)
	for range 3 {
		require.Equal(t, Outside, m.Phase())
		require.Equal(t, string(before), string(f.value))
		require.LessOrEqual(t, m.Deadline(), m.now+testLease/leases.Retry)
		f.tick(m, m.Deadline())
	}
	f.now = m.now
	f.leave(all[0])
	f.tick(m, m.Deadline())
	require.EqualValues(t, membership.MaxMembers+1, m.Self())
}
