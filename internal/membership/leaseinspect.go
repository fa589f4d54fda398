package membership

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex/internal/canon"
)

// AppendText appends the canonical state: machines of equal text behave alike, but for
// when leases, waits and pauses end. The error is always nil.
func (m *LeaseMachine) AppendText(b []byte) ([]byte, error) {
	b = strconv.AppendUint(b, uint64(m.self), 10)
	b = append(b, '#')
	b = strconv.AppendUint(b, m.cfg.Life, 10)
	b = append(append(b, ' '), m.Phase().String()...)
	b = appendRecord(b, " record=", &m.record)
	if m.op != NoOperation {
		b = append(append(b, ' '), m.op.String()...)
		b = canon.Flag(b, " asked", m.asked)
	}
	if m.op == Swap {
		b = appendRecord(b, " next=", &m.next)
	}
	b = canon.Flag(b, " spent", m.spent)
	b = canon.Flag(b, " begun", m.begun)
	b = canon.Flag(b, " unsure", m.unsure)
	b = canon.Flag(b, " stale", m.stale)
	b = canon.Flag(b, " hinted", m.hintAt != never)
	b = canon.Number(b, " unclean=", m.unclean)
	b = canon.Number(b, " cleared=", m.cleared)
	b = appendView(b, " view=", m.view)
	b = canon.Flag(b, " reported", m.reported)
	b = canon.Flag(b, " complete", m.isComplete())
	b = appendHolds(b, m.reportOf(m.self).holds)
	b = canon.Flag(b, " acted", m.acted)
	b = canon.Flag(b, " leaving", m.leaving)
	for _, g := range m.gone {
		b = canon.Number(append(append(b, " gone "...), g.proof...), " unclean=", g.unclean)
	}
	b = canon.Flag(b, " trouble", m.troubleAt != never)
	for _, h := range m.holders {
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
		r := m.reportOf(p.node)
		b = canon.Number(b, " epoch=", r.epoch)
		b = appendHolds(b, r.holds)
		b = append(b, ']')
	}
	return b, nil
}

// Clone returns an independent copy.
func (m *LeaseMachine) Clone() *LeaseMachine {
	c := *m
	c.installation, c.peers = m.installation.clone(), slices.Clone(m.peers)
	return &c
}

// appendRecord appends what changes in a record: its view, the last exclusions, the last
// that is cleared, and the highest number.
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
