package consent

import (
	"slices"

	"github.com/dmutex/dmutex/internal/canon"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/membership"
)

// AppendText appends the canonical state: machines of equal text behave alike, except for their clocks and the
// ends of their pauses. State that can no longer matter is left out. The error is always nil.
func (m *Machine) AppendText(b []byte) ([]byte, error) {
	b = canon.Number(canon.Number(b, "", uint64(m.me().node)), "#", m.life)
	b = append(append(b, ' '), m.Phase().String()...)
	b = canon.Number(b, " promised=", m.highest)
	b = canon.Number(b, " seen=", max(m.seen, m.highest))
	b = viewtest.AppendView(b, " view=", m.in.View)
	b = viewtest.AppendView(b, " complete=", m.in.Complete)
	b = canon.Flag(b, " reported", m.in.Reported)
	b = canon.Flag(b, " leaving", m.leaving)
	b = canon.Number(b, " stayed=", m.stayed)
	b = viewtest.AppendView(b, " exit=", m.exit)
	b = canon.Flag(b, " trouble", m.trouble)
	b = canon.Number(b, " round=", m.round)
	b = canon.Number(b, " later=", m.later)
	if m.phase == Doubting {
		b = canon.Number(b, " question=", m.question)
	}
	if m.denied > m.in.View.Epoch {
		b = canon.Number(b, " denied=", m.denied)
	}
	if m.round != 0 {
		b = canon.List(b, " evicted=", m.evicted)
	}
	for i := range m.members {
		p := &m.members[i]
		b = canon.Number(b, " [", uint64(p.node))
		b = canon.Number(b, " life=", p.life)
		b = canon.Number(b, " newest=", p.newest)
		b = canon.Flag(b, " told", p.told)
		b = canon.Flag(b, " leaving", p.leaving && p.life == p.newest)
		b = canon.Flag(b, " news", p.news && p.life == p.newest && !m.in.View.Has(p.node, p.life))
		if m.in.View.Epoch == 0 {
			b = canon.Number(b, " bound=", p.bound)
		}
		if p.asked == m.highest && p.asked > m.in.View.Epoch && !m.in.IsComplete() {
			b = canon.Number(b, " asked=", p.asked)
		}
		b = canon.Number(b, " accuses=", p.later)
		b = canon.Flag(b, " denied", p.denied)
		if m.outside(p.rumor) {
			b = viewtest.AppendView(b, " rumor=", p.rumor)
		}
		if p.complete.Epoch > m.in.View.Epoch {
			b = viewtest.AppendView(b, " complete=", p.complete)
		}
		r := m.in.ReportOf(p.node)
		b = canon.Flag(b, " report", r.Node != 0)
		b = viewtest.AppendHolds(b, r.Holds)
		if m.round != 0 && p.promise != nil && i != m.self {
			b = append(append(append(b, " ("...), viewtest.Message(p.promise)...), ')')
		}
		b = append(b, ']')
	}
	return b, nil
}

// Clone returns an independent copy.
func (m *Machine) Clone() *Machine {
	c := *m
	c.in.Reports, c.in.Out = slices.Clone(m.in.Reports), membership.Output{} // what they point to never changes
	c.members = slices.Clone(m.members)                                      // what they point to never changes
	c.evicted = slices.Clone(m.evicted)
	return &c
}

// String returns the name in lower case.
func (p Phase) String() string {
	return [...]string{"outside", "frozen", "acting", "doubting", "left", "older", "stopped"}[p]
}
