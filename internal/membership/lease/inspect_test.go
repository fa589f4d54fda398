package lease

import (
	"errors"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/membership"
)

// errUnknown is the error of an operation with an unknown outcome.
var errUnknown = errors.New("unknown")

// AppendText appends the canonical state: machines of equal text behave alike, except for
// the ends of leases, waits and pauses. The error is always nil.
func (m *Machine) AppendText(b []byte) ([]byte, error) {
	if m.given > 0 {
		b = canon.Number(b, "given=", uint64(m.given))
	}
	b = strconv.AppendUint(b, uint64(m.self), 10)
	b = append(b, '#')
	b = strconv.AppendUint(b, m.cfg.Life, 10)
	b = append(append(b, ' '), m.Phase().String()...)
	b = appendRecord(b, " record=", &m.record)
	if m.op != NoOperation {
		b = append(append(b, ' '), m.op.String()...)
	}
	if m.op == Swap {
		b = appendRecord(b, " next=", &m.next)
	}
	b = canon.Flag(b, " spent", m.spent)
	b = canon.Flag(b, " begun", m.begun)
	b = canon.Flag(b, " unsure", m.unsure)
	if m.asked != dmutex.None {
		b = canon.Number(b, " asked=", uint64(m.asked))
	}
	b = canon.Flag(b, " stale", m.stale)
	b = canon.Flag(b, " hinted", m.hintAt != due.Never)
	if m.due != m.record.Unclean {
		b = canon.Number(b, " due=", m.due)
	}
	b = canon.Number(b, " cleared=", m.cleared)
	b = viewtest.AppendView(b, " view=", m.in.View)
	b = canon.Flag(b, " reported", m.in.Reported)
	b = canon.Flag(b, " complete", m.in.IsComplete())
	b = viewtest.AppendReport(b, m.in.ReportOf(m.self))
	b = canon.Flag(b, " leaving", m.leaving)
	for _, g := range m.gone {
		b = canon.Number(append(append(b, " gone "...), g.proof...), " unclean=", g.unclean)
	}
	b = canon.Flag(b, " trouble", m.troubleAt != due.Never)
	for _, h := range viewtest.Carried(m.in.Holdings...) {
		b = canon.Number(b, " carried=", uint64(h.Node))
		b = viewtest.AppendHolds(b, []membership.Hold{h.Hold})
	}
	for i := range m.peers {
		p := &m.peers[i]
		b = append(b, " ["...)
		b = strconv.AppendUint(b, uint64(p.node), 10)
		b = canon.Number(b, " life=", p.life)
		b = canon.Flag(b, " here", p.here)
		b = canon.Flag(b, " dead", p.dead)
		b = canon.Number(b, " heard=", p.heard)
		r := m.in.ReportOf(p.node)
		b = canon.Flag(b, " report", r.Node != 0)
		b = append(viewtest.AppendReport(b, r), ']')
	}
	return m.memory.append(b), nil
}

// String returns the name in lower case.
func (o Operation) String() string { return [...]string{"nothing", "load", "swap", "live", "look"}[o] }

// Operation returns the operation under way, and for a swap the value to write.
func (m *Machine) Operation() (op Operation, value []byte) {
	switch {
	case m.ended():
		return NoOperation, nil
	case m.op == Swap:
		value = []byte(m.next.text())
	}
	return m.op, value
}

// Spent reports whether this life was excluded. It does nothing more until Rejoin.
func (m *Machine) Spent() bool { return m.spent && !m.ended() }

// Clone returns an independent copy.
func (m *Machine) Clone() *Machine {
	c := *m
	c.in.Reports, c.in.Out = slices.Clone(m.in.Reports), membership.Output{} // what they point to never changes
	c.peers, c.met = slices.Clone(m.peers), slices.Clone(m.met)
	return &c
}

func (m *memory) append(b []byte) []byte {
	if m.earlier != nil {
		b = viewtest.AppendWord(viewtest.AppendPast(append(b, " earlier"...), m.earlier), &m.own)
	}
	for _, a := range m.met {
		b = canon.Number(b, " met ", uint64(a.node))
		b = canon.Number(b, " told=", a.told)
		b = canon.Number(b, " gone=", a.gone)
		b = viewtest.AppendParting(b, a.parting)
	}
	b = viewtest.AppendPast(append(b, " past"...), &m.past)
	return canon.Number(b, " blind=", m.blind)
}

// appendRecord appends what changes in a record: its view, the last exclusions, the last
// cleared exclusion, and the highest number.
func appendRecord(b []byte, name string, r *Record) []byte {
	if r.Epoch == 0 {
		return b
	}
	b = viewtest.AppendView(b, name, r.view())
	b = canon.Number(b, " unclean=", r.Unclean)
	b = canon.Number(b, " unproved=", r.Unproved)
	b = canon.Number(b, " cleared=", r.Cleared)
	return canon.Number(b, " highest=", uint64(r.Highest))
}

// String returns the name in lower case.
func (p Phase) String() string {
	return [...]string{"outside", "frozen", "acting", "left", "stopped"}[p]
}
