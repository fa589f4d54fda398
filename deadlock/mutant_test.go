package deadlock

import (
	"errors"
	"flag"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

var _ = flag.Bool("update", false, "rewrite the golden files")

// anyProbe passes on probes along waits that are granted.
type anyProbe struct{ *And }

func (m anyProbe) Handle(msg Message) ([]Message, error) {
	asked := slices.Clone(m.asked)
	for j := range m.asked {
		m.asked[j] = j != m.me
	}
	out, err := m.And.Handle(msg)
	copy(m.asked, asked)
	return out, err
}

func (m anyProbe) copy() detector { return anyProbe{m.Clone()} }

// dependent has a flag for each initiator, which nobody resets, instead of a
// number.
type dependent struct{ *And }

func (m dependent) Handle(msg Message) ([]Message, error) {
	if _, i, err := m.check(msg); err == nil && i != m.me && m.seen[i] > 0 {
		return nil, nil
	}
	return m.And.Handle(msg)
}

func (m dependent) copy() detector { return dependent{m.Clone()} }

// deaf keeps its wait flags when it becomes active.
type deaf struct{ *Or }

func (m deaf) Granted(by dmutex.NodeID) error {
	kept := slices.Clone(m.computations)
	err := m.Or.Granted(by)
	m.computations = kept
	return err
}

func (m deaf) Handle(msg Message) ([]Message, error) {
	out, err := m.Or.Handle(msg)
	if errors.Is(err, dmutex.ErrPeer) {
		return nil, nil // it comes of flags that are kept
	}
	return out, err
}

func (m deaf) copy() detector { return deaf{m.Clone()} }

// unnumbered takes part in each initiator's first computation only.
type unnumbered struct{ *Or }

func (m unnumbered) Handle(msg Message) ([]Message, error) {
	if msg.Kind == Query {
		if _, i, err := m.check(msg); err == nil && i != m.me && m.computations[i].latest > 0 {
			msg.Number = m.computations[i].latest
		}
	}
	return m.Or.Handle(msg)
}

func (m unnumbered) copy() detector { return unnumbered{m.Clone()} }

// Every rule and every assumption is needed: without it a deadlock is missed,
// or one is declared that is none, and the shortest run that shows it is in
// testdata.
func TestMutants(t *testing.T) {
	type born = func(dmutex.NodeID, []dmutex.NodeID) detector
	and := func(mutant func(*And) detector) born {
		return func(self dmutex.NodeID, members []dmutex.NodeID) detector {
			return mutant(newAnd(self, members).(*And))
		}
	}
	or := func(mutant func(*Or) detector) born {
		return func(self dmutex.NodeID, members []dmutex.NodeID) detector {
			return mutant(newOr(self, members).(*Or))
		}
	}
	for _, tt := range []struct {
		name  string
		trial trial
		kind  error
	}{
		{"and-unordered", trial{born: newAnd, waits: []int{1, 1}, unordered: true}, errMissed},
		{"and-withdrawn", trial{born: newAnd, waits: []int{1, 1}, withdraws: 1}, errPhantom},
		{"and-granted-waits", trial{born: and(func(m *And) detector { return anyProbe{m} }), waits: []int{2, 1, 1}}, errPhantom},
		{"and-no-numbers", trial{born: and(func(m *And) detector { return dependent{m} }), waits: []int{2, 2, 2}, atOnce: true}, errMissed},
		{"or-unordered", trial{born: newOr, or: true, waits: []int{2, 2}, unordered: true}, errPhantom},
		{"or-flags-kept", trial{born: or(func(m *Or) detector { return deaf{m} }), or: true, waits: []int{2, 1, 1}}, errPhantom},
		{"or-no-numbers", trial{born: or(func(m *Or) detector { return unnumbered{m} }), or: true, waits: []int{2, 2}, atOnce: true}, errMissed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, run, err := tt.trial.explore()
			require.ErrorIs(t, err, tt.kind, "%+v", r)
			dmutextest.Golden(t, "testdata/mutant-"+tt.name+".txt", run)
		})
	}
}
