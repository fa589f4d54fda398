package lease

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/protocol"
)

// storeLife returns what the store calls a life.
func storeLife(life uint64) string { return "life" + dmutex.NodeID(life).String() }

// proving returns a life in a store that can prove that a process is dead.
func proving(t *testing.T, life uint64) *Machine {
	t.Helper()
	m, err := New(Config{Life: life, Lease: testLease, Settings: "ricart", Proves: true})
	require.NoError(t, err)
	return m
}

// The founder of a record, and a member that has excluded another, act at once if only
// members are alive.
func TestProved(t *testing.T) {
	var l ledger
	m := proving(t, 9)
	l.tick(m, 0)
	require.Equal(t, []Entry{{membership.Member{Node: 1, Life: 9}, protocol.Spoken, "life9", "", ""}}, l.record(t).Members)
	require.Equal(t, Frozen, m.Phase())
	unclean := m.Record().Unclean
	require.NotZero(t, unclean)
	require.Zero(t, m.Record().Unproved)
	m.Living(1, unclean, []string{"life9", "life7"}) // life7 is to join, or was a member of a lost record
	require.Equal(t, Frozen, m.Phase())
	m.Living(2, unclean, []string{"life9"})
	require.Equal(t, Acting, m.Phase())

	two := proving(t, 7)
	l.tick(two, 2)
	m.Hint(second)
	l.serve(m, second)
	require.Equal(t, Frozen, m.Phase())
	m.Met(second, two.Self(), 7)
	out := m.Dead(second, two.Self(), false)
	require.Empty(t, out.Messages)
	l.serve(m, second)
	require.Len(t, m.View().Members, 1)
	require.Equal(t, Frozen, m.Phase(), "the lease of the other may run")
	require.Equal(t, []dmutex.NodeID{two.Self()}, waits(m))
	m.Living(second, unclean, []string{"life9"}) // it was asked before the exclusion was known
	require.Equal(t, Frozen, m.Phase())
	m.Living(second, m.Record().Unclean, []string{"life9", "life7"})
	require.Equal(t, Frozen, m.Phase(), "life7 is no member, and lives")
	m.Living(second, m.Record().Unclean, []string{"life9"})
	require.Equal(t, Acting, m.Phase())
	require.Empty(t, waits(m))
}

// An excluded process that is stopped for longer than its lease does not delay a member that
// waits for another process.
func TestProvedBesideStopped(t *testing.T) {
	var l ledger
	m := proving(t, 9)
	l.tick(m, 0)
	m.Living(0, m.Record().Unclean, []string{"life9"})
	now := int64(0)
	for i, living := range [][]string{{"life7", "life9"}, {"life7", "life9"}, {"life6", "life7", "life9"}} {
		other := proving(t, 7-uint64(i))
		now += second
		l.comeAndGo(other, m, now)
		m.Living(now, m.Record().Unclean, living)
		if i == 0 { // life7 is stopped
			require.Equal(t, Frozen, m.Phase())
			now += leases.Drain(testLease)
			l.tick(m, now)
		}
		require.Equal(t, Acting, m.Phase())
	}
	for i := range 3 * membership.MaxMembers { // the memory of them is bounded
		other := proving(t, 100+uint64(i))
		now += second
		l.comeAndGo(other, m, now)
	}
	require.Len(t, m.gone, membership.MaxMembers)
}

// comeAndGo lets a life join, and the other one exclude it.
func (l *ledger) comeAndGo(other, m *Machine, now int64) {
	l.tick(other, now)
	m.Hint(now)
	l.serve(m, now)
	m.Dead(now, other.Self(), false)
	l.serve(m, now)
}

func waits(m *Machine) []dmutex.NodeID {
	_, members, _ := m.Waits()
	return members
}

// A life tells the others what the store has proved.
func TestProvedIsTold(t *testing.T) {
	var l ledger
	m, two := proving(t, 9), proving(t, 7)
	for _, m := range []*Machine{m, two} {
		l.tick(m, 0)
	}
	m.Hint(second)
	l.serve(m, second)
	m.Met(second, two.Self(), 7)
	out := m.Living(second, m.Record().Unclean, []string{"life7", "life9"})
	require.Equal(t, []membership.Message{{Kind: membership.Cleared, From: m.Self(), To: two.Self(), Cleared: m.Record().Unclean}}, out.Messages)
	require.Empty(t, m.Living(second, m.Record().Unclean, []string{"life7", "life9"}), "once")
}

// A member without a life of the store is never presumed dead: the others wait, and a later
// exclusion does not prove its death either.
func TestUnproved(t *testing.T) {
	var l ledger
	m := proving(t, 9)
	l.tick(m, 0)
	m.Living(0, m.Record().Unclean, []string{"life9"})
	for i, other := range []*Machine{someLease(t, 7), proving(t, 8)} {
		now := int64(i+1) * second
		l.comeAndGo(other, m, now)
		require.Len(t, m.View().Members, 1)
		m.Living(now, m.Record().Unclean, []string{"life9"})
		require.Equal(t, Frozen, m.Phase())
	}
	require.Less(t, m.Record().Unproved, m.Record().Unclean)
	l.tick(m, 2*second+leases.Drain(testLease))
	require.Equal(t, Acting, m.Phase())
}

// Rule 5.7 with proofs: a life with other settings takes members out of the record that are all proved
// dead, and joins when the store shows nobody else. It stops if one lives, or has no life of the store.
func TestDeadOfOtherSettings(t *testing.T) {
	other := Entry{membership.Member{Node: 2, Life: 8}, protocol.Spoken, "life8", "", ""}
	for name, tt := range map[string]struct {
		second Entry
		living string
		joins  bool
	}{
		"all dead":     {other, "life5", true},
		"one lives":    {other, "life5 life8", false},
		"one unproved": {Entry{membership.Member{Node: 2, Life: 8}, protocol.Spoken, "", "", ""}, "life5", false},
	} {
		t.Run(name, func(t *testing.T) {
			var l ledger
			r := Record{Epoch: 6, Unclean: 4, Unproved: 4, Cleared: 4, Highest: 2, Lease: 10 * second, Settings: "ring", Members: []Entry{
				{membership.Member{Node: 1, Life: 7}, protocol.Spoken, "life7", "", ""}, tt.second,
			}}
			l.put(t, r)
			m := proving(t, 9)
			m.Tick(0)
			op, _ := m.Operation()
			require.Equal(t, Load, op)
			m.Done(0, l.value, nil)
			op, _ = m.Operation()
			require.Equal(t, Look, op)
			m.Done(0, nil, errUnknown)
			m.Tick(m.Deadline())
			m.Operation()
			m.Done(m.now, l.value, nil)
			op, _ = m.Operation()
			require.Equal(t, Look, op, "again")
			m.Done(m.now, []byte(tt.living), nil)
			if l.serve(m, m.now); !tt.joins {
				require.Equal(t, SettingsError{2, protocol.Spoken, 10 * second, "ring"}, m.Err())
				require.Equal(t, r, l.record(t))
				return
			}
			require.Equal(t, Record{Epoch: 7, Unclean: 7, Unproved: 4, Cleared: 4, Highest: 2, Lease: 10 * second, Settings: "ring"}, l.record(t))
			m.Living(m.now, 7, []string{"life5"})
			l.serve(m, m.now)
			require.Equal(t, dmutex.None, m.Self(), "another process may be a member soon")
			m.Living(m.now, 7, nil)
			l.serve(m, m.now)
			require.Equal(t, Acting, m.Phase())
			require.Equal(t, Record{Epoch: 8, Unclean: 7, Unproved: 4, Cleared: 7, Highest: 3, Lease: testLease, Settings: "ricart", Members: []Entry{
				{membership.Member{Node: 3, Life: 9}, protocol.Spoken, "life9", "", ""},
			}}, l.record(t))
		})
	}
}

// A life joins when its life of the store has begun, or the store has said that it proves
// nothing. The next life begins its own.
func TestBegun(t *testing.T) {
	var l ledger
	m := proving(t, 9)
	m.Tick(0)
	op, _ := m.Operation()
	require.Equal(t, Load, op)
	m.Done(0, nil, nil)
	op, _ = m.Operation()
	require.Equal(t, Live, op)
	m.Done(0, nil, errUnknown) // the record may change before the next try
	m.Tick(m.Deadline())
	op, _ = m.Operation()
	require.Equal(t, Load, op)
	m.Done(m.now, nil, nil)
	op, _ = m.Operation()
	require.Equal(t, Live, op)
	m.Done(m.now, nil, nil)
	op, l.value = m.Operation()
	require.Equal(t, Swap, op)
	m.Done(m.now, nil, ErrConflict) // it keeps its life of the store
	l.value = nil
	l.tick(m, m.Deadline())
	require.Equal(t, []Entry{{membership.Member{Node: 1, Life: 9}, protocol.Spoken, "", "", ""}}, l.record(t).Members)
	require.Equal(t, m.Record().Unclean, m.Record().Unproved)

	r := l.record(t)
	r.Epoch, r.Members = r.Epoch+1, nil
	r.exclude("")
	l.put(t, r)
	m.Hint(m.now + second)
	l.serve(m, m.now)
	for m.Self() == dmutex.None {
		l.tick(m, m.Deadline())
	}
	require.Equal(t, []Entry{{membership.Member{Node: 2, Life: 9 + 1<<32}, protocol.Spoken, storeLife(9 + 1<<32), "", ""}}, l.record(t).Members)
}

// A store that gives a life a name that no record takes stops the life.
func TestBegunRefuses(t *testing.T) {
	for _, name := range []string{"life 9", "life\n", "lïfe", strings.Repeat("9", 65)} {
		m := proving(t, 9)
		m.Tick(0)
		m.Operation()
		m.Done(0, nil, nil)
		m.Done(0, []byte(name), nil)
		require.Equal(t, Stopped, m.Phase())
		require.ErrorContains(t, m.Err(), "the store names a life ")
	}
}
