package membership

import (
	"errors"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// errUnknown is the error of an operation with an unknown outcome.
var errUnknown = errors.New("unknown")

// AppendText appends the canonical state: machines of equal text behave alike, except for
// the ends of leases, waits and pauses. The error is always nil.
func (m *LeaseMachine) AppendText(b []byte) ([]byte, error) {
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
	b = canon.Flag(b, " hinted", m.hintAt != never)
	if m.due != m.record.Unclean {
		b = canon.Number(b, " due=", m.due)
	}
	b = canon.Number(b, " cleared=", m.cleared)
	b = appendView(b, " view=", m.view)
	b = canon.Flag(b, " reported", m.reported)
	b = canon.Flag(b, " complete", m.isComplete())
	b = appendReport(b, m.reportOf(m.self))
	b = canon.Flag(b, " leaving", m.leaving)
	for _, g := range m.gone {
		b = canon.Number(append(append(b, " gone "...), g.proof...), " unclean=", g.unclean)
	}
	b = canon.Flag(b, " trouble", m.troubleAt != never)
	for _, h := range carried(m.holdings...) {
		b = canon.Number(b, " carried=", uint64(h.Node))
		b = appendHolds(b, []Hold{h.Hold})
	}
	for i := range m.peers {
		p := &m.peers[i]
		b = append(b, " ["...)
		b = strconv.AppendUint(b, uint64(p.node), 10)
		b = canon.Number(b, " life=", p.life)
		b = canon.Flag(b, " here", p.here)
		b = canon.Flag(b, " dead", p.dead)
		b = canon.Number(b, " heard=", p.heard)
		r := m.reportOf(p.node)
		b = canon.Flag(b, " report", r.node != 0)
		b = append(appendReport(b, r), ']')
	}
	return m.memory.append(b), nil
}

// String returns the name in lower case.
func (o Operation) String() string { return [...]string{"nothing", "load", "swap", "live", "look"}[o] }

// Operation returns the operation under way, and for a swap the value to write.
func (m *LeaseMachine) Operation() (op Operation, value []byte) {
	switch {
	case m.ended != Outside:
		return NoOperation, nil
	case m.op == Swap:
		value = []byte(m.next.text())
	}
	return m.op, value
}

// Spent reports whether this life was excluded. It does nothing more until Rejoin.
func (m *LeaseMachine) Spent() bool { return m.spent && m.ended == Outside }

// Clone returns an independent copy.
func (m *LeaseMachine) Clone() *LeaseMachine {
	c := *m
	c.installation, c.peers, c.met = m.installation.clone(), slices.Clone(m.peers), slices.Clone(m.met)
	return &c
}

func appendReport(b []byte, r holding) []byte {
	if b = appendHolds(b, r.holds); r.past != nil {
		b = r.past.append(append(b, " past"...))
	}
	return b
}

func (m *memory) append(b []byte) []byte {
	if m.earlier != nil {
		b = m.own.append(m.earlier.append(append(b, " earlier"...)))
	}
	for _, a := range m.met {
		b = canon.Number(b, " met ", uint64(a.node))
		b = canon.Number(b, " told=", a.told)
		b = canon.Number(b, " gone=", a.gone)
		b = a.parting.append(b)
	}
	b = m.past.append(append(b, " past"...))
	return canon.Number(b, " blind=", m.blind)
}

func (p *Past) append(b []byte) []byte {
	for _, f := range p.Former {
		b = canon.Number(b, " former ", uint64(f.Node))
		b = canon.Number(b, " until=", f.Epoch)
		b = f.Parting.append(b)
	}
	for i := range p.Words {
		b = p.Words[i].append(b)
	}
	return b
}

func (w *Parting) append(b []byte) []byte {
	if w == nil {
		return b
	}
	b = append(b, " lent"...)
	for _, l := range w.Lent {
		b = append(append(append(append(b, ' '), l.Lock...), '='), l.Key...)
	}
	return b
}

func (w *Word) append(b []byte) []byte {
	b = canon.Number(b, " word of ", uint64(w.Node))
	b = canon.Number(b, " epoch=", w.Epoch)
	b = canon.Number(b, " about=", w.Of)
	for _, d := range w.Differs {
		b = append(append(b, " differs "...), d.Lock...)
		b = canon.Number(b, "=", d.Bits)
	}
	for _, d := range w.Alone {
		b = append(append(b, " alone "...), d.Lock...)
		b = canon.Number(b, "=", d.Bits)
	}
	return b
}

// appendRecord appends what changes in a record: its view, the last exclusions, the last
// cleared exclusion, and the highest number.
func appendRecord(b []byte, name string, r *Record) []byte {
	if r.Epoch == 0 {
		return b
	}
	b = appendView(b, name, r.view())
	b = canon.Number(b, " unclean=", r.Unclean)
	b = canon.Number(b, " unproved=", r.Unproved)
	b = canon.Number(b, " cleared=", r.Cleared)
	return canon.Number(b, " highest=", uint64(r.Highest))
}
