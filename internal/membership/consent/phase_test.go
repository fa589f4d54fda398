package consent

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/membership"
)

// A life does with each kind of message what the table says for its phase: a kind without a row is refused, and
// what is ignored changes nothing but what lives it knows of.
func TestTable(t *testing.T) {
	lives := map[Phase]*soloist{Outside: solo(t, 10, 0), Frozen: solo(t, 10, 0), Acting: acting(t, 10), Doubting: acting(t, 10), Left: exiting(t), Older: solo(t, 10, 0), Stopped: acting(t, 10)}
	for phase, s := range lives {
		if s.View().Epoch == 0 {
			s.met(20, 30)
		}
		switch phase {
		case Frozen:
			s.enters(20, first)
		case Doubting:
			s.hears(from(30).refuse(1, 11))
		case Left:
			s.hears(from(20).complete(view(2, 20, 30)), from(30).complete(view(2, 20, 30)))
		case Older:
			s.hears(from(30).refuse(1, 11))
		case Stopped:
			s.outlived()
		}
		s.is(phase)
	}
	for phase, s := range lives {
		for kind := range membership.Kinds + 1 {
			what := fmt.Sprintf("kind %d in phase %v", kind, phase)
			row := table[kind]
			msg := membership.Message{Kind: kind, From: 2, To: 1}
			_, err := s.Clone().Handle(0, msg)
			switch {
			case row.wrong == nil:
				require.ErrorContains(t, err, "its kind is unknown", what)
				require.Empty(t, row.sent, what)
				continue
			case err != nil:
				require.NotContains(t, err.Error(), "kind", what)
			}
			require.NotEmpty(t, row.sent, what)
			require.Equal(t, phase < Left, row.by[phase] != nil, what)
			if row.by[phase] == nil {
				msg.Round, msg.View = 1, first
				if kind == membership.Complete {
					msg.View = view(2, 20, 30)
				}
				out, err := s.Handle(0, msg)
				require.NoError(t, err, what)
				require.Empty(t, out.Messages, what)
				s.is(phase)
			}
		}
	}
}

// A life that has left, is older or has stopped turns to nothing. A life in no view has nothing to doubt.
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
	require.Empty(t, slices.Concat(turns[Left], turns[Older], turns[Stopped]))
	require.Panics(t, func() { acting(t, 10).becomeActing() })
}

// A life sends nothing that the table does not let it send in its phase.
func TestSendsInItsPhase(t *testing.T) {
	s := acting(t, 10)
	s.outlived()
	require.Panics(t, func() { s.send(membership.Message{Kind: membership.Report, To: 2}) })
	s.send(membership.Message{Kind: membership.Refuse, To: 2})
}
