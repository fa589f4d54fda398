package deadlock

import (
	"errors"
	"slices"

	"github.com/dmutex/dmutex"
)

// AnyProbe passes on probes along waits that are granted.
type AnyProbe struct{ *Machine }

func (m AnyProbe) Handle(msg Message) ([]Message, error) {
	asked := slices.Clone(m.asked)
	for j := range m.asked {
		m.asked[j] = j != m.me
	}
	out, err := m.Machine.Handle(msg)
	copy(m.asked, asked)
	return out, err
}

// NewAnyProbe returns an AnyProbe.
func NewAnyProbe(self dmutex.NodeID, members []dmutex.NodeID) (AnyProbe, error) {
	m, err := NewAnd(self, members)
	return AnyProbe{m}, err
}

// Clone returns an independent copy.
func (m AnyProbe) Clone() AnyProbe { return AnyProbe{m.Machine.Clone()} }

// Dependent has a flag for each initiator instead of a number. The flag is never reset.
type Dependent struct{ *Machine }

func (m Dependent) Handle(msg Message) ([]Message, error) {
	if _, i, mistake := m.check(msg); mistake == "" && i != m.me && m.seen[i] > 0 {
		return nil, nil
	}
	return m.Machine.Handle(msg)
}

// NewDependent returns a Dependent.
func NewDependent(self dmutex.NodeID, members []dmutex.NodeID) (Dependent, error) {
	m, err := NewAnd(self, members)
	return Dependent{m}, err
}

// Clone returns an independent copy.
func (m Dependent) Clone() Dependent { return Dependent{m.Machine.Clone()} }

// Deaf gives its next wait the number of the last one.
type Deaf struct{ *Machine }

func (m Deaf) Granted(by dmutex.NodeID) error {
	err := m.Machine.Granted(by)
	m.wait--
	return err
}

func (m Deaf) Handle(msg Message) ([]Message, error) {
	out, err := m.Machine.Handle(msg)
	if errors.Is(err, dmutex.ErrPeer) {
		return nil, nil // because of flags that are kept
	}
	return out, err
}

// NewDeaf returns a Deaf.
func NewDeaf(self dmutex.NodeID, members []dmutex.NodeID) (Deaf, error) {
	m, err := NewOr(self, members)
	return Deaf{m}, err
}

// Clone returns an independent copy.
func (m Deaf) Clone() Deaf { return Deaf{m.Machine.Clone()} }

// Unnumbered takes part in each initiator's first computation only.
type Unnumbered struct{ *Machine }

func (m Unnumbered) Handle(msg Message) ([]Message, error) {
	if msg.Kind == Query {
		if _, i, mistake := m.check(msg); mistake == "" && i != m.me && m.computations[i].latest > 0 {
			msg.Number = m.computations[i].latest
		}
	}
	return m.Machine.Handle(msg)
}

// NewUnnumbered returns an Unnumbered.
func NewUnnumbered(self dmutex.NodeID, members []dmutex.NodeID) (Unnumbered, error) {
	m, err := NewOr(self, members)
	return Unnumbered{m}, err
}

// Clone returns an independent copy.
func (m Unnumbered) Clone() Unnumbered { return Unnumbered{m.Machine.Clone()} }
