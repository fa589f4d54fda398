package membership

import (
	"slices"
	"strconv"
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
		b = appendFlag(b, " asked", m.asked)
	}
	if m.op == Swap {
		b = appendRecord(b, " next=", &m.next)
	}
	b = appendFlag(b, " spent", m.spent)
	b = appendFlag(b, " unsure", m.unsure)
	b = appendFlag(b, " stale", m.stale)
	b = appendFlag(b, " hinted", m.hintAt != never)
	b = appendNumber(b, " unclean=", m.unclean)
	b = appendNumber(b, " cleared=", m.cleared)
	b = appendView(b, " view=", m.view)
	b = appendFlag(b, " reported", m.reported)
	b = appendFlag(b, " complete", m.complete)
	b = appendHolds(b, m.holding)
	b = appendFlag(b, " acted", m.acted)
	b = appendFlag(b, " leaving", m.leaving)
	b = appendFlag(b, " trouble", m.troubleAt != never)
	for _, h := range m.holders {
		b = appendNumber(b, " carried=", uint64(h.Node))
		b = appendHolds(b, []Hold{h.Hold})
	}
	for i := range m.peers {
		p := &m.peers[i]
		b = append(b, " ["...)
		b = strconv.AppendUint(b, uint64(p.node), 10)
		b = appendNumber(b, " life=", p.life)
		b = appendFlag(b, " here", p.here)
		b = appendNumber(b, " epoch=", p.epoch)
		b = appendHolds(b, p.holding)
		b = append(b, ']')
	}
	return b, nil
}

// Clone returns an independent copy.
func (m *LeaseMachine) Clone() *LeaseMachine {
	c := *m
	c.peers = slices.Clone(m.peers) // what they point to never changes
	c.out = nil
	return &c
}

// appendRecord appends what changes in a record: its view, the last exclusion, the last
// that is cleared, and the highest number.
func appendRecord(b []byte, name string, r *Record) []byte {
	if r.Epoch == 0 {
		return b
	}
	b = appendView(b, name, r.view())
	b = appendNumber(b, " unclean=", r.Unclean)
	b = appendNumber(b, " cleared=", r.Cleared)
	return appendNumber(b, " highest=", uint64(r.Highest))
}
