package lease

import (
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/membership"
)

// leaseMutants are the lease mode with one rule broken, in the machine, its driver or
// the store.
var mutants = []struct {
	name  string
	setup setup
}{
	// The lease runs from the answer of the operation.
	{"runs-from-the-receipt", setup{n: 2, lease: 1, wait: 1, epochs: 1, faults: faults{slow: 2}, alter: func(m *Machine, do verb, input func() membership.Output) membership.Output {
		out := input()
		if do == answer && m.self != dmutex.None && !m.stale {
			m.endsAt(m.cfg.Lease)
		}
		return out
	}}},

	// An operation without an answer renews the lease.
	{"runs-by-an-unknown-outcome", setup{n: 2, lease: 1, wait: 1, epochs: 2, faults: faults{slow: 1}, alter: func(m *Machine, do verb, input func() membership.Output) membership.Output {
		sent := m.sentAt
		out := input()
		if do == lose && m.self != dmutex.None {
			m.endsAt(max(m.term.Expiry(), sent+m.cfg.Lease))
		}
		return out
	}}},

	// A life still holds after the end of its lease.
	{"end-not-checked", setup{n: 2, lease: 1, wait: 1, epochs: 2, unchecked: true}},

	// A lock that was lost is held again after a renewal.
	{"loss-revived", setup{n: 2, lease: 1, wait: 1, epochs: 2, revive: true}},

	// The wait is shorter than the lease.
	{"wait-too-short", setup{n: 2, lease: 2, wait: 1, epochs: 2}},

	// There is no wait.
	{"no-wait", setup{n: 2, lease: 1, wait: 0, epochs: 2}},

	// The wait counts from when the exclusion was asked for.
	{"wait-from-the-request", setup{n: 2, lease: 1, wait: 1, epochs: 2, faults: faults{slow: 1}, alter: func(m *Machine, do verb, input func() membership.Output) membership.Output {
		sent, unclean := m.sentAt, m.record.Unclean
		out := input()
		if m.record.Unclean > unclean && do == answer {
			m.since, m.dueSince = sent, sent
			out = out.And(m.flush(0))
		}
		return out
	}}},

	// A life says that it has waited before it has.
	{"cleared-at-once", setup{n: 3, lease: 1, wait: 1, epochs: 1, alter: func(m *Machine, _ verb, input func() membership.Output) membership.Output {
		out := input()
		for i := range out.Messages {
			if out.Messages[i].Kind == membership.Report {
				out.Messages[i].Cleared = m.record.Unclean
			}
		}
		return out
	}}},

	// The record says at once that an exclusion is cleared.
	{"record-cleared-at-once", setup{n: 2, lease: 1, wait: 1, epochs: 2, alter: func(m *Machine, _ verb, input func() membership.Output) membership.Output {
		return rewrite(m, input(), func(next *Record) {
			next.Cleared = next.Unclean
		})
	}}},

	// A life that leaves says in the record that it has waited before it has.
	{"record-cleared-by-leaving", setup{n: 2, lease: 1, wait: 1, epochs: 3, faults: faults{exits: 1, returns: 1}, alter: func(m *Machine, _ verb, input func() membership.Output) membership.Output {
		return rewrite(m, input(), func(next *Record) {
			if m.leaving {
				next.Cleared = next.Unclean
			}
		})
	}}},

	// The record does not mark an exclusion.
	{"exclusion-not-marked", setup{n: 2, lease: 1, wait: 1, epochs: 2, alter: func(m *Machine, _ verb, input func() membership.Output) membership.Output {
		return rewrite(m, input(), func(next *Record) {
			next.Unclean, next.Unproved = m.record.Unclean, m.record.Unproved
		})
	}}},

	// A new record is taken for the first.
	{"founded-without-a-wait", setup{n: 2, lease: 1, wait: 1, epochs: 2, faults: faults{crashes: 1, wipes: 1}, alter: func(m *Machine, _ verb, input func() membership.Output) membership.Output {
		return rewrite(m, input(), func(next *Record) {
			if m.record.Epoch == 0 {
				next.Unclean, next.Unproved = 0, 0
			}
		})
	}}},

	// A look at who lives counts for an exclusion that was not known when the look began.
	{"looked-before-the-exclusion", setup{n: 2, lease: 1, wait: 1, epochs: 3, fresh: true, proves: true, alter: func(m *Machine, do verb, input func() membership.Output) membership.Output {
		cleared := m.cleared
		out := input()
		if do == see && m.cleared > cleared {
			m.clear(m.record.Unclean)
			out = out.And(m.flush(0))
		}
		return out
	}}},

	// A former member counts as a member.
	{"former-member-counts", setup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, former: true}},

	// An excluded life is taken for harmless before its exclusion is cleared.
	{"excluded-is-harmless", setup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, alter: func(m *Machine, _ verb, input func() membership.Output) membership.Output {
		out := input()
		for i := range m.gone {
			m.gone[i].unclean = 0
		}
		return out
	}}},

	// A life of the store begins when its member acts.
	{"life-begun-late", setup{n: 2, lease: 1, wait: 1, epochs: 3, fresh: true, proves: true, late: true}},

	// A life whose join was done without its knowledge, and which was excluded, joins again.
	{"joins-twice", setup{n: 2, lease: 1, wait: 1, epochs: 4, joining: true, swift: true, proves: true, faults: faults{slow: 1}, alter: func(m *Machine, _ verb, input func() membership.Output) membership.Output {
		m.asked = dmutex.None
		return input()
	}}},

	// A life that the store has not begun is taken for dead.
	{"unproved-counts", setup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, unproved: 2, alter: func(m *Machine, _ verb, input func() membership.Output) membership.Output {
		return rewrite(m, input(), func(next *Record) {
			next.Unproved = 0
		})
	}}},

	// A swap writes over whatever the store has.
	{"blind-write", setup{n: 3, lease: 1, wait: 1, epochs: 2, blind: true}},

	// A life acts as soon as it has reported itself.
	{"acts-before-all-reports", setup{n: 2, lease: 1, wait: 1, epochs: 2, faults: faults{alarms: 1}, alter: func(m *Machine, _ verb, input func() membership.Output) membership.Output {
		out := input()
		if m.in.View.Epoch > 0 && m.in.Reported && !m.in.IsComplete() {
			m.in.Complete = m.in.View
			out = out.And(m.flush(0))
		}
		return out
	}}},

	// A lock that is held is missing from the report.
	{"holds-not-reported", setup{n: 2, lease: 1, wait: 1, epochs: 2, faults: faults{alarms: 1}, forget: true}},

	// The old view grants after the new one is installed.
	{"old-view-grants", setup{n: 2, lease: 1, wait: 1, epochs: 2, faults: faults{alarms: 1}, thaw: true}},
}

// rewrite changes what a swap that was asked for just now writes.
func rewrite(m *Machine, out membership.Output, change func(next *Record)) membership.Output {
	for i := range out.Events {
		if e, asks := out.Events[i].(Ask); asks && e.Op == Swap {
			change(&m.next)
			e.Value = []byte(m.next.text())
			out.Events[i] = e
		}
	}
	return out
}

// Each rule of the lease mode is needed: without it something goes wrong. The shortest
// run to it is in testdata.
//
// LESSONS L59, L64.
func TestMutants(t *testing.T) {
	for _, tt := range mutants {
		t.Run(tt.name, func(t *testing.T) {
			_, err := explore(tt.setup, 1_000_000)
			goldentest.Violation(t, "testdata/mutant-"+tt.name+".txt", err, nil)
		})
	}
}
