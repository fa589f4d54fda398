package membership

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex/internal/canon"
	"github.com/dmutex/dmutex/internal/epochs"
)

// AppendText appends the canonical state: machines of equal text behave alike, except for their clocks and the
// ends of their pauses. State that can no longer matter is left out. The error is always nil.
func (m *Machine) AppendText(b []byte) ([]byte, error) {
	b = canon.Number(canon.Number(b, "", uint64(m.me().node)), "#", m.life)
	b = append(append(b, ' '), m.Phase().String()...)
	b = canon.Number(b, " promised=", m.highest)
	b = canon.Number(b, " seen=", max(m.seen, m.highest))
	b = appendView(b, " view=", m.view)
	b = appendView(b, " complete=", m.complete)
	b = canon.Flag(b, " reported", m.reported)
	b = canon.Flag(b, " leaving", m.leaving)
	b = canon.Number(b, " stayed=", m.stayed)
	b = appendView(b, " exit=", m.exit)
	b = canon.Flag(b, " trouble", m.trouble)
	b = canon.Number(b, " round=", m.round)
	b = canon.Number(b, " later=", m.later)
	if m.inDoubt() {
		b = canon.Number(b, " question=", m.question)
	}
	if m.denied > m.view.Epoch {
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
		b = canon.Flag(b, " news", p.news && p.life == p.newest && !m.view.Has(p.node, p.life))
		if m.view.Epoch == 0 {
			b = canon.Number(b, " bound=", p.bound)
		}
		if p.asked == m.highest && p.asked > m.view.Epoch && !m.isComplete() {
			b = canon.Number(b, " asked=", p.asked)
		}
		b = canon.Number(b, " accuses=", p.later)
		b = canon.Flag(b, " denied", p.denied)
		if m.outside(p.rumor) {
			b = appendView(b, " rumor=", p.rumor)
		}
		if p.complete.Epoch > m.view.Epoch {
			b = appendView(b, " complete=", p.complete)
		}
		r := m.reportOf(p.node)
		b = canon.Flag(b, " report", r.node != 0)
		b = appendHolds(b, r.holds)
		if m.round != 0 && p.promise != nil && i != m.self {
			b = append(append(append(b, " ("...), p.promise.String()...), ')')
		}
		b = append(b, ']')
	}
	return b, nil
}

// carried returns what goes on of the holdings, in the order of the locks' names.
func carried(holdings ...Holding) (holders []Holder) {
	c := Carry(holdings)
	var locks []string
	for lock := range c.All() {
		locks = append(locks, lock)
	}
	slices.Sort(locks)
	for _, lock := range locks {
		if p := c.at[lock]; c.goes[p.of][p.at] {
			holders = append(holders, c.holder(p))
		}
		holders = append(holders, c.several[lock]...)
	}
	return holders
}

func (in *installation) clone() installation {
	c := *in
	c.reports, c.out = slices.Clone(in.reports), Output{} // what they point to never changes
	return c
}

// Clone returns an independent copy.
func (m *Machine) Clone() *Machine {
	c := *m
	c.installation = m.installation.clone()
	c.members = slices.Clone(m.members) // what they point to never changes
	c.evicted = slices.Clone(m.evicted)
	return &c
}

// String returns the name in lower case.
func (p Phase) String() string {
	return [...]string{"outside", "frozen", "acting", "left", "older", "stopped"}[p]
}

// String returns the kind as the package comment writes it.
func (k Kind) String() string {
	return canon.Kind(k, "PREPARE", "PROMISE", "REFUSE", "VIEW", "REPORT", "COMPLETE", "CLEARED")
}

// String returns the view as its epoch and members with their lives, such as
// "5{1#7,2#9}".
func (v View) String() string { return string(appendView(nil, "", v)) }

// String returns the message as golden runs write it. Fields that are zero are
// left out.
func (msg Message) String() string {
	b := canon.Way(nil, msg.From, msg.To, msg.Kind.String())
	b = canon.Number(b, " round=", msg.Round)
	b = canon.Flag(b, " leaving", msg.Leaving)
	b = canon.Number(b, " life=", msg.Life)
	b = appendView(b, " installed=", msg.Installed)
	b = appendView(b, " completed=", msg.Completed)
	b = appendView(b, " ", msg.View)
	b = canon.Number(b, " cleared=", msg.Cleared)
	return string(appendReport(b, holding{holds: msg.Holds, past: msg.Past}))
}

func appendView(b []byte, name string, v View) []byte {
	if v.Epoch == 0 {
		return b
	}
	b = strconv.AppendUint(append(b, name...), v.Epoch, 10)
	b = append(b, '{')
	for i, who := range v.Members {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(who.Node), 10)
		b = strconv.AppendUint(append(b, '#'), who.Life, 10)
	}
	return append(b, '}')
}

func appendHolds(b []byte, holds []Hold) []byte {
	for _, h := range holds {
		b = append(append(b, " holds "...), h.Lock...)
		b = canon.Flag(appendFence(b, " by ", h.Fence), ", shared", h.Shared)
	}
	return b
}

func appendFence(b []byte, name string, fence uint64) []byte {
	if fence == 0 {
		return b
	}
	b = append(strconv.AppendUint(append(b, name...), epochs.Of(fence), 10), "<<22"...)
	return canon.Number(b, "+", fence-epochs.First(epochs.Of(fence)))
}

// installs reports whether an input has installed a view: then Report is due.
func installs(out Output) bool {
	return slices.ContainsFunc(out.Events, func(e Event) bool { return e.Kind == Installed })
}
