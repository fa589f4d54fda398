package lease

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// A life does with each kind of message what the table says for its phase: a kind without a row is refused, and
// what is ignored changes nothing.
func TestTable(t *testing.T) {
	var l, gone ledger
	acting, _, _ := pair(t, &l)
	frozen := someLease(t, 11)
	l.tick(frozen, acting.now)
	left := joined(t, &gone, 12)
	left.Leave(left.now)
	gone.serve(left, left.now)
	stopped := joined(t, new(ledger), 13)
	stopped.becomeStopped(dmutex.ErrMisuse)
	for phase, m := range map[Phase]*Machine{Outside: someLease(t, 14), Frozen: frozen, Acting: acting, Left: left, Stopped: stopped} {
		require.Equal(t, phase, m.Phase())
		m.Tick(m.now)
		for kind := range membership.Kinds + 1 {
			what := fmt.Sprintf("kind %d in phase %v", kind, phase)
			before, row := text(m), table[kind]
			out, err := m.Handle(m.now, membership.Message{Kind: kind, From: 3 - m.Self()%2, To: m.Self()})
			switch {
			case row.wrong == nil:
				require.ErrorContains(t, err, "its kind is not of the lease mode", what)
			case row.by[phase] == nil:
				require.NoError(t, err, what)
				require.Empty(t, out.Messages, what)
				require.Equal(t, before, text(m), what)
			case err != nil:
				require.NotContains(t, err.Error(), "kind", what)
			}
			require.Equal(t, row.wrong != nil && m.member(), m.sends(kind), what)
		}
	}
}

// A life that has left or stopped turns to nothing, and a member does not turn to the phase that it is in, but from one
// view to the next.
func TestTurns(t *testing.T) {
	for from := range phases {
		for to := range phases {
			m := &Machine{phase: from}
			if slices.Contains(turns[from], to) {
				m.become(to)
				require.Equal(t, to, m.Phase())
			} else {
				require.Panics(t, func() { m.become(to) })
				require.Equal(t, from, m.Phase())
			}
		}
	}
	require.Empty(t, slices.Concat(turns[Left], turns[Stopped]))
	require.Panics(t, func() { joined(t, new(ledger), 9).becomeActing() })
}

// A life sends nothing in a phase in which it is no member.
func TestSendsInItsPhase(t *testing.T) {
	var l ledger
	m, _, _ := pair(t, &l)
	m.becomeStopped(dmutex.ErrMisuse)
	require.Panics(t, func() { m.sendAll(membership.Message{Kind: membership.Cleared}) })
	require.Empty(t, m.Part(m.now, nil).Messages)
	require.Empty(t, m.Move(m.now, 7, membership.Loan{}).Messages)
}
