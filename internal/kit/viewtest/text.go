// Package viewtest is what the worlds of the two view machines share: locks, catalogs, and how views and
// messages are written.
package viewtest

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
)

// kindText returns the kind as the package comments write it.
func kindText(k membership.Kind) string {
	return canon.Kind(k, "PREPARE", "PROMISE", "REFUSE", "VIEW", "REPORT", "COMPLETE", "CLEARED")
}

// View returns the view as its epoch and members with their lives, such as
// "5{1#7,2#9}".
func View(v membership.View) string { return string(AppendView(nil, "", v)) }

// Message returns the message as golden runs write it. Fields that are zero are
// left out.
func Message(msg *membership.Message) string {
	b := canon.Way(nil, msg.From, msg.To, kindText(msg.Kind))
	b = canon.Number(b, " round=", msg.Round)
	b = canon.Flag(b, " leaving", msg.Leaving)
	b = canon.Number(b, " life=", msg.Life)
	b = AppendView(b, " installed=", msg.Installed)
	b = AppendView(b, " completed=", msg.Completed)
	b = AppendView(b, " ", msg.View)
	b = canon.Number(b, " cleared=", msg.Cleared)
	return string(AppendReport(b, membership.Holding{Holds: msg.Holds, Past: msg.Past}))
}

// AppendView appends a view, after a name.
func AppendView(b []byte, name string, v membership.View) []byte {
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

// AppendHolds appends what is held.
func AppendHolds(b []byte, holds []membership.Hold) []byte {
	for _, h := range holds {
		b = append(append(b, " holds "...), h.Lock...)
		b = canon.Flag(AppendFence(b, " by ", h.Fence), ", shared", h.Shared)
	}
	return b
}

// AppendFence appends a fence, after a name.
func AppendFence(b []byte, name string, fence uint64) []byte {
	if fence == 0 {
		return b
	}
	b = append(strconv.AppendUint(append(b, name...), epochs.Of(fence), 10), "<<22"...)
	return canon.Number(b, "+", fence-epochs.First(epochs.Of(fence)))
}

// Installs reports whether an input has installed a view: then Report is due.
func Installs(out membership.Output) bool {
	return slices.ContainsFunc(out.Events, func(e membership.Event) bool { _, ok := e.(membership.Installed); return ok })
}

// AppendReport appends what a member has reported.
func AppendReport(b []byte, r membership.Holding) []byte {
	if b = AppendHolds(b, r.Holds); r.Past != nil {
		b = AppendPast(append(b, " past"...), r.Past)
	}
	return b
}

// AppendPast appends what is known of lives that are gone.
func AppendPast(b []byte, p *membership.Past) []byte {
	for _, f := range p.Former {
		b = canon.Number(b, " former ", uint64(f.Node))
		b = canon.Number(b, " until=", f.Epoch)
		b = AppendParting(b, f.Parting)
	}
	for i := range p.Words {
		b = AppendWord(b, &p.Words[i])
	}
	return b
}

// AppendParting appends a last word.
func AppendParting(b []byte, w *membership.Parting) []byte {
	if w == nil {
		return b
	}
	b = append(b, " lent"...)
	for _, l := range w.Lent {
		b = append(append(append(append(b, ' '), l.Lock...), '='), l.Key...)
	}
	return b
}

// AppendWord appends what a life knows of a view.
func AppendWord(b []byte, w *membership.Word) []byte {
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

// Carried returns what goes on of the holdings, in the order of the locks' names.
func Carried(holdings ...membership.Holding) (holders []carryover.Holder) {
	var starts []string
	carry := carryover.Of(holdings)
	for lock := range carry.All() {
		starts = append(starts, lock)
	}
	slices.Sort(starts)
	for _, lock := range starts {
		var start dmutex.Start
		carry.Start(lock, &start)
		var goes []carryover.Holder
		for _, of := range holdings {
			shares := slices.Contains(start.Sharers, of.Node)
			for _, h := range of.Holds {
				k := slices.IndexFunc(goes, func(g carryover.Holder) bool { return g.Node == of.Node })
				switch {
				case h.Lock != lock || h.Shared != shares || !shares && start.Holder != of.Node:
				case k < 0:
					goes = append(goes, carryover.Holder{Node: of.Node, Hold: h})
				case h.Fence > goes[k].Fence:
					goes[k] = carryover.Holder{Node: of.Node, Hold: h}
				}
			}
		}
		slices.SortFunc(goes, func(a, b carryover.Holder) int {
			return cmp.Or(cmp.Compare(b.Fence, a.Fence), cmp.Compare(a.Node, b.Node))
		})
		holders = append(holders, goes...)
	}
	return holders
}
