package lease

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
	"github.com/dmutex/dmutex/internal/protocol"
)

// A ledger is a store that does what it is told at once.
type ledger struct{ value []byte }

// serve carries out a machine's operations until there are none, and returns its
// messages.
func (l *ledger) serve(m *Machine, now int64) (out []membership.Message) {
	do := func(o membership.Output) { out = append(out, o.Messages...) }
	for {
		switch op, value := m.Operation(); op {
		case Load:
			do(m.Done(now, l.value, nil))
		case Swap:
			l.value = value
			do(m.Done(now, nil, nil))
		case Live:
			do(m.Done(now, []byte(storeLife(m.cfg.Life)), nil))
		default:
			if m.Phase() == Frozen && !m.in.Reported {
				do(m.Report(now, nil, nil))
				continue
			}
			if m.Spent() {
				do(m.Rejoin(now, m.cfg.Life+1<<32))
				continue
			}
			return out
		}
	}
}

// tick lets a machine look at its clock, and serves it.
func (l *ledger) tick(m *Machine, now int64) {
	m.Tick(now)
	l.serve(m, now)
}

func (l *ledger) record(t *testing.T) (r Record) {
	t.Helper()
	require.NoError(t, r.UnmarshalText(l.value))
	return r
}

func (l *ledger) put(t *testing.T, r Record) {
	t.Helper()
	var err error
	l.value, err = r.MarshalText()
	require.NoError(t, err)
}

// exclude excludes all members. The machine finds that when it renews its lease.
func (l *ledger) exclude(t *testing.T, m *Machine) (now int64) {
	r := l.record(t)
	r.Epoch++
	r.Unclean, r.Members = r.Epoch, nil
	l.put(t, r)
	now = m.now + testLease/3
	m.Tick(now)
	m.Operation()
	m.Done(now, l.value, nil)
	return now
}

const testLease = 3 * second

func someLease(t testing.TB, life uint64) *Machine {
	t.Helper()
	m, err := New(Config{Life: life, Address: fmt.Sprint("here:", life), Lease: testLease, Settings: "ricart"})
	require.NoError(t, err)
	return m
}

// joined returns an acting member, alone in its group.
func joined(t testing.TB, l *ledger, life uint64) *Machine {
	t.Helper()
	m := someLease(t, life)
	l.join(t, m)
	return m
}

// join lets a life join, and waits until it acts.
func (l *ledger) join(t testing.TB, m *Machine) {
	l.tick(m, 0)
	for m.Phase() != Acting {
		at := m.Deadline()
		require.Less(t, at, int64(due.Never))
		l.tick(m, at)
	}
}

func text(m *Machine) string {
	b, _ := m.AppendText(nil)
	return string(b)
}

// The first life begins the record with its clock or above its fence, and waits as after
// an exclusion. Then it acts.
func TestFound(t *testing.T) {
	for _, tt := range []struct {
		fence, clock uint64
		epoch        uint64
	}{
		{0, 0, 1}, {0, 217315200, 217315200}, {0, math.MaxUint64, epochs.MaxClock}, {7 << 22, 0, 7}, {7<<22 + 1, 0, 8}, {300000000 << 22, 217315200, 300000000},
	} {
		m, err := New(Config{Life: 9, Address: "here", Lease: testLease, Settings: "ricart", Fence: tt.fence, Clock: tt.clock})
		require.NoError(t, err)
		var l ledger
		l.tick(m, 0)
		require.Equal(t, Record{Epoch: tt.epoch, Unclean: tt.epoch, Unproved: tt.epoch, Highest: 1, Lease: testLease, Settings: "ricart", Members: []Entry{{membership.Member{Node: 1, Life: 9}, protocol.Spoken, "", "here", ""}}}, l.record(t))
		require.Equal(t, dmutex.NodeID(1), m.Self())
		require.Equal(t, Frozen, m.Phase())
		require.Empty(t, m.Missing(nil))
		for m.Phase() == Frozen {
			l.tick(m, m.Deadline())
		}
		require.Equal(t, leases.Drain(testLease), m.now)
	}
}

// A process that joins with the address of a member has taken its place: the member is excluded at once.
// Its lease is waited for.
func TestJoinInPlace(t *testing.T) {
	var l ledger
	a, _, now := pair(t, &l)
	m, err := New(Config{Life: 99, Address: a.cfg.Address, Lease: testLease, Settings: "ricart"})
	require.NoError(t, err)
	l.tick(m, now)
	r := l.record(t)
	require.Len(t, r.Members, 2)
	require.Equal(t, []dmutex.NodeID{2, 3}, []dmutex.NodeID{r.Members[0].Node, m.Self()})
	require.Equal(t, []uint64{r.Epoch, r.Epoch}, []uint64{r.Unclean, r.Unproved})
	until, _, _ := m.Waits()
	require.Equal(t, now+leases.Drain(testLease), until)
}

// LESSONS L9, L14: the lease runs from when an operation was asked for. It is renewed
// after a third, and late after two thirds. An operation that is under way when the lease
// ends does not count before it has succeeded.
func TestTimes(t *testing.T) {
	var l ledger
	m := joined(t, &l, 9)
	begin := m.LeaseEnd() - testLease
	at := m.Deadline()
	require.Equal(t, begin+testLease/3, at)
	require.Equal(t, []membership.Event{Ask{Op: Load}}, m.Tick(at).Events)
	require.Empty(t, m.Tick(at), "once")
	require.Equal(t, begin+testLease/3*2, m.Deadline(), "late")
	m.Tick(m.Deadline())
	require.Equal(t, m.term.Until(), m.Deadline(), "ended")
	m.Done(begin+testLease, nil, errUnknown)
	require.Equal(t, begin+testLease, m.LeaseEnd())
	require.GreaterOrEqual(t, m.now, m.LeaseEnd())
	m.Tick(m.Deadline())
	sent := m.now
	require.Equal(t, []membership.Event{Renewed{leases.From(sent, testLease)}}, m.Done(sent+second/2, l.value, nil).Events)
	require.Equal(t, sent+testLease, m.LeaseEnd())
	require.Less(t, m.now, m.LeaseEnd())
	m.Done(m.now+second, l.value, nil)
	require.Equal(t, sent+testLease, m.LeaseEnd(), "a result of no operation")
}

// LESSONS L14: a member whose operations fail, or come too late, again and again still renews in
// time.
func TestRenewalIsNotPutOff(t *testing.T) {
	var l ledger
	a, _, now := pair(t, &l)
	for k := range 20 {
		a.Lost(now, 2)
		for op := NoOperation; op != Swap; { // the other one is to be excluded
			now = a.Deadline()
			a.Tick(now)
			if op, _ = a.Operation(); op == Load {
				a.Done(now, l.value, nil)
			}
		}
		require.Less(t, now, a.LeaseEnd())
		if a.Done(now, nil, ErrConflict); k%2 == 0 {
			now = a.Deadline()
			a.Tick(now)
			a.Operation()
			a.Done(now, nil, errUnknown)
		}
		require.LessOrEqual(t, a.Deadline(), now+testLease/6)
	}
}

// A join whose outcome is unknown is found by reading.
func TestUnknownJoin(t *testing.T) {
	for _, done := range []bool{true, false} {
		var l ledger
		m := someLease(t, 9)
		m.Tick(0)
		m.Operation()
		m.Done(0, nil, nil)
		op, value := m.Operation()
		require.Equal(t, Swap, op)
		if done {
			l.value = value
		}
		m.Done(second, nil, errUnknown)
		require.Equal(t, dmutex.None, m.Self())
		require.Equal(t, int64(math.MinInt64), m.LeaseEnd())
		m.Tick(m.Deadline())
		sent := m.now
		l.serve(m, sent+1)
		require.Equal(t, dmutex.NodeID(1), m.Self())
		require.Len(t, l.record(t).Members, 1)
		if done {
			require.Equal(t, sent+testLease, m.LeaseEnd())
		}
	}
}

// Rule 5.5: a life whose join has an unknown outcome is followed by another if the number that it asked for
// was given and nobody has it. Else it joins itself, and other settings stop only one that may have been a member.
func TestUnknownJoinIsMissed(t *testing.T) {
	other := func(node dmutex.NodeID) Entry {
		return Entry{membership.Member{Node: node, Life: 5}, protocol.Spoken, "life5", "", ""}
	}
	for name, tt := range map[string]struct {
		shown    []Record // one by one, after the swap
		excluded int
		stops    bool
		life     uint64
	}{
		"not done":                    {[]Record{{Highest: 1, Members: []Entry{other(1)}}}, 0, false, 9},
		"not done, nobody is left":    {[]Record{{Highest: 1}}, 0, false, 9},
		"another has the number":      {[]Record{{Highest: 2, Members: []Entry{other(2)}}}, 0, false, 9},
		"another had it, and left":    {[]Record{{Highest: 2, Members: []Entry{other(2)}}, {Highest: 2}}, 0, false, 9},
		"excluded":                    {[]Record{{Highest: 2, Members: []Entry{other(1)}}}, 1, false, 9 + 1<<32},
		"excluded, others joined":     {[]Record{{Highest: 4, Members: []Entry{other(4)}}}, 1, false, 9 + 1<<32},
		"excluded later":              {[]Record{{Highest: 1, Members: []Entry{other(1)}}, {Highest: 2}}, 1, false, 9 + 1<<32},
		"excluded, and settings":      {[]Record{{Highest: 3, Settings: "ring", Members: []Entry{other(3)}}}, 1, true, 0},
		"excluded, settings, no life": {[]Record{{Highest: 2, Settings: "ring"}}, 1, false, 9 + 1<<32},
	} {
		t.Run(name, func(t *testing.T) {
			l, m := ledger{}, proving(t, 9)
			l.put(t, Record{Epoch: 6, Unclean: 4, Cleared: 4, Highest: 1, Lease: testLease, Settings: "ricart", Members: []Entry{other(1)}})
			m.Tick(0)
			l.untilSwap(t, m)
			for k, r := range tt.shown {
				m.Done(m.now, nil, errUnknown)
				r.Epoch, r.Unclean, r.Cleared, r.Lease, r.Settings = uint64(7+k), 7, 7, testLease, cmp.Or(r.Settings, "ricart")
				l.put(t, r)
				m.Tick(m.Deadline())
				if k+1 < len(tt.shown) {
					l.untilSwap(t, m)
				}
			}
			for range 20 {
				switch op, _ := m.Operation(); {
				case op == Look:
					m.Done(m.now, nil, nil) // nobody lives
				case m.Self() == dmutex.None && m.Phase() != Stopped:
					l.serve(m, m.now)
				}
			}
			require.Equal(t, tt.stops, m.Phase() == Stopped)
			if !tt.stops {
				require.Equal(t, tt.excluded, m.Exclusions())
				require.NotEqual(t, dmutex.None, m.Self())
				require.Equal(t, tt.life, m.cfg.Life)
			}
		})
	}
}

// untilSwap serves all operations before the next swap.
func (l *ledger) untilSwap(t *testing.T, m *Machine) {
	t.Helper()
	for op, _ := m.Operation(); op != Swap; op, _ = m.Operation() {
		require.NotEqual(t, NoOperation, op)
		value := l.value
		if op == Live {
			value = []byte(storeLife(m.cfg.Life))
		}
		m.Done(m.now, value, nil)
	}
}

// forget tells a machine that the store has begun anew, when it asks next.
func (l *ledger) forget(t *testing.T, m *Machine) {
	t.Helper()
	l.value = nil
	m.Tick(max(m.now, m.Deadline()))
	op, _ := m.Operation()
	require.Equal(t, Load, op)
	m.Done(m.now, nil, ErrForgotten)
}

// A process whose store has begun anew goes on as another life. It makes a new record, above all that it has seen, and
// waits as after an exclusion, whatever had been cleared before.
func TestForgotten(t *testing.T) {
	var l ledger
	m := joined(t, &l, 9)
	before := l.record(t)
	require.Equal(t, before.Epoch, m.cleared)
	l.forget(t, m)
	require.Equal(t, Outside, m.Phase())
	require.True(t, m.Spent())
	require.Equal(t, dmutex.None, m.Self())
	require.Empty(t, m.View())
	at := m.now
	require.Equal(t, 1, m.Exclusions())
	l.serve(m, at)
	after := l.record(t)
	require.Equal(t, before.Epoch+1, after.Epoch)
	require.Equal(t, after.Epoch, after.Unclean)
	require.Equal(t, []membership.Member{{Node: 2, Life: 9 + 1<<32}}, after.view().Members, "no number is given twice")
	require.Equal(t, Frozen, m.Phase())
	for m.Phase() == Frozen {
		l.tick(m, m.Deadline())
	}
	require.Equal(t, at+leases.Drain(testLease), m.now)
}

// What is cleared is about epochs that another record may count again: one that others have made, with clocks that stand behind.
func TestForgottenEpochs(t *testing.T) {
	var l ledger
	l.put(t, Record{Epoch: 100, Unclean: 100, Unproved: 100, Cleared: 100, Lease: testLease, Settings: "ricart"})
	m := joined(t, &l, 9)
	l.forget(t, m)
	l.put(t, Record{Epoch: 6, Unclean: 6, Unproved: 6, Lease: testLease, Settings: "ricart"})
	l.serve(m, m.now)
	require.Equal(t, Frozen, m.Phase())
	require.Greater(t, l.record(t).Epoch, uint64(101))
	until, _, all := m.Waits()
	require.Equal(t, m.now+leases.Drain(testLease), until)
	require.True(t, all)
}

// A life that was no member goes on, but not if it may have been one. It waits before it makes a record if a longer lease than its own
// may run.
func TestForgottenBeforeItJoins(t *testing.T) {
	var l ledger
	m := someLease(t, 9)
	m.Tick(0)
	m.Operation()
	m.Done(0, nil, ErrForgotten)
	l.serve(m, 0)
	require.Equal(t, dmutex.NodeID(1), m.Self())
	require.EqualValues(t, 9, m.cfg.Life, "there was nothing to forget")

	m = someLease(t, 9)
	m.Tick(0)
	m.Operation()
	m.Done(0, nil, nil)
	op, _ := m.Operation()
	require.Equal(t, Swap, op)
	m.Done(0, nil, errUnknown)
	l.forget(t, m)
	require.True(t, m.Spent(), "the swap may have been done")

	l.put(t, Record{Epoch: 6, Unclean: 6, Unproved: 6, Lease: 10 * testLease, Settings: "ricart", Highest: 1})
	m = someLease(t, 9)
	m.Tick(0)
	m.Operation()
	m.Done(0, l.value, nil)
	l.forget(t, m)
	require.False(t, m.Spent())
	l.serve(m, m.now)
	require.Empty(t, l.value)
	at := m.now + leases.Drain(10*testLease)
	l.tick(m, at-1)
	require.Empty(t, l.value)
	l.tick(m, at)
	require.NotEmpty(t, l.value)
}

// A life that leaves has left when the store has forgotten it.
func TestForgottenWhileItLeaves(t *testing.T) {
	var l ledger
	m := joined(t, &l, 9)
	m.Tick(m.Deadline())
	op, _ := m.Operation()
	require.Equal(t, Load, op)
	m.Leave(m.now)
	m.Done(m.now, nil, ErrForgotten)
	require.Equal(t, Left, m.Phase())
}

// A record that cannot be relied on stops a life for good, and the error says why.
func TestAlarm(t *testing.T) {
	for why, change := range map[string]func(r *Record){
		"it is gone":            nil,
		"it went back":          func(r *Record) { r.Epoch-- },
		"within epoch":          func(r *Record) { r.Highest++ },
		"it has changed within": func(r *Record) { r.Cleared++ },
		"it has forgotten":      func(r *Record) { r.Epoch, r.Unclean, r.Unproved = r.Epoch+1, 5, 5 },
		"it has forgotten wha":  func(r *Record) { r.Epoch, r.Unproved = r.Epoch+1, 5 },
		"it has forgotten what": func(r *Record) { r.Epoch, r.Cleared = r.Epoch+1, 4 },
		"it has given a number": func(r *Record) { r.Epoch, r.Members[0].Life = r.Epoch+1, 8 },
		"it has renumbered":     func(r *Record) { r.Epoch, r.Highest, r.Members[0].Node = r.Epoch+1, 5, 5 },
		"it has other settings": func(r *Record) { r.Epoch, r.Settings = r.Epoch+1, "ring" },
		"it names a life twice": func(r *Record) {
			r.Epoch, r.Highest, r.Members = r.Epoch+1, 2, append(r.Members, Entry{membership.Member{Node: 2, Life: 9}, protocol.Spoken, "", "", ""})
		},
		"its epoch is out of": func(r *Record) { r.Epoch = 0 },
	} {
		var l ledger
		l.put(t, Record{Epoch: 6, Unclean: 6, Unproved: 6, Cleared: 5, Lease: testLease, Settings: "ricart"})
		m := joined(t, &l, 9)
		m.Tick(m.now + testLease/3)
		op, _ := m.Operation()
		require.Equal(t, Load, op)
		r := l.record(t)
		switch {
		case change == nil:
			l.value = nil
		default:
			change(&r)
			l.value = []byte(r.text())
		}
		m.Done(m.now, l.value, nil)
		require.Equal(t, Stopped, m.Phase(), why)
		require.ErrorIs(t, m.Err(), ErrRecord)
		require.ErrorContains(t, m.Err(), why)
		require.Equal(t, int64(math.MinInt64), m.LeaseEnd())
		require.Equal(t, int64(due.Never), m.Deadline())
		op, _ = m.Operation()
		require.Equal(t, NoOperation, op)
	}
}

// A life reports that the epochs are used up, or that there is no room for another member.
func TestNoRoom(t *testing.T) {
	for why, r := range map[string]Record{
		"its epoch is out of range":         {Epoch: epochs.Max, Lease: testLease, Settings: "ricart"},
		"it has no room for another member": {Epoch: 1, Highest: 1, Lease: testLease, Settings: "ricart", Members: []Entry{{membership.Member{Node: 1, Life: 1}, protocol.Spoken, "", string(make([]byte, maxRecord/4-31)), ""}}},
	} {
		var l ledger
		l.put(t, r)
		m := someLease(t, 9)
		l.tick(m, 0)
		require.Equal(t, Stopped, m.Phase())
		require.ErrorIs(t, m.Err(), ErrRecord)
		require.ErrorContains(t, m.Err(), why)
	}
}

// A life with other settings is refused while there are members, and its error has theirs. When there are none it brings its own settings, but not before the leases of
// excluded lives have ended.
func TestSettings(t *testing.T) {
	l := &ledger{}
	a := someLease(t, 9)
	l.tick(a, 0)
	require.Equal(t, Frozen, a.Phase(), "it leaves before it has waited")
	b, err := New(Config{Life: 10, Lease: testLease, Settings: "ring"})
	require.NoError(t, err)
	l.tick(b, 0)
	require.Equal(t, Stopped, b.Phase())
	require.Equal(t, SettingsError{1, protocol.Spoken, testLease, "ricart"}, b.Err())
	a.Leave(a.now)
	l.serve(a, a.now)
	require.Equal(t, Left, a.Phase())

	c, err := New(Config{Life: 11, Lease: second, Settings: "ring"})
	require.NoError(t, err)
	l.tick(c, 0)
	require.Equal(t, Outside, c.Phase())
	for c.Phase() == Outside {
		require.LessOrEqual(t, c.Deadline(), c.now+second/leases.Retry, "another may join first")
		l.tick(c, c.Deadline())
	}
	require.Equal(t, leases.Drain(testLease), c.now, "the longer lease")
	require.Equal(t, Acting, c.Phase())
	r := l.record(t)
	require.Equal(t, "ring", r.Settings)
	require.Equal(t, int64(second), r.Lease)
	require.Equal(t, dmutex.NodeID(2), c.Self(), "no number is given twice")
}

// Rule 5.7: a life that was excluded stops when the record has members with other settings, or one
// that speaks no common version, and leaves the record alone. If there is none, it joins again.
func TestExcludedFindsOtherSettings(t *testing.T) {
	for name, change := range map[string]func(r *Record){
		"lease":    func(r *Record) { r.Lease *= 10 },
		"settings": func(r *Record) { r.Settings = "ring" },
		"versions": func(r *Record) { r.Members[0].Speaks = protocol.Versions{Oldest: 7, Newest: 8} },
		"none":     func(r *Record) { r.Lease, r.Settings, r.Members = second, "ring", nil },
	} {
		for _, m := range []*Machine{someLease(t, 9), proving(t, 9)} {
			var l ledger
			l.join(t, m)
			r := l.record(t)
			r.Epoch += 3
			r.Unclean, r.Highest = r.Epoch-2, 2
			r.Members = []Entry{{membership.Member{Node: 2, Life: 10}, protocol.Spoken, "", "", ""}}
			change(&r)
			l.put(t, r)
			l.tick(m, m.now+testLease/3)
			for m.Phase() != Acting && m.Deadline() < due.Never {
				l.tick(m, m.Deadline())
			}
			if name == "none" {
				require.Equal(t, Acting, m.Phase())
				continue
			}
			require.Equal(t, Stopped, m.Phase(), name)
			require.IsType(t, SettingsError{}, m.Err(), name)
			require.Equal(t, r, l.record(t), name)
		}
	}
}

// Rule 5b.4: a member that serves clients renews its lease every sixth of it.
func TestServingRenewsMoreOften(t *testing.T) {
	var l ledger
	m, err := New(Config{Life: 9, Lease: testLease, Serves: true})
	require.NoError(t, err)
	l.tick(m, 0)
	require.Equal(t, int64(testLease/6), m.Deadline())
}

// A life that was excluded loses everything, and joins again under a new number, after a pause that
// grows with each exclusion.
func TestJoinAgain(t *testing.T) {
	l := &ledger{}
	m := joined(t, l, 9)
	pause := int64(0)
	for k := 1; k < 10; k++ {
		now := l.exclude(t, m)
		require.Equal(t, k, m.Exclusions())
		require.Zero(t, m.View())
		require.Equal(t, int64(math.MinInt64), m.LeaseEnd())
		if pause > 0 {
			require.Equal(t, Outside, m.Phase())
			require.Equal(t, now+pause, m.joinAt)
			now += pause
			m.Tick(now)
		}
		pause = min(2*pause+second, 63*second)
		l.serve(m, now)
		require.Equal(t, dmutex.NodeID(k+1), m.Self())
		require.Equal(t, m.cleared < m.record.Unclean, m.Phase() == Frozen)
	}
}

// pair returns two members that have met and act.
func pair(t *testing.T, l *ledger) (a, b *Machine, now int64) {
	a, b = joined(t, l, 9), someLease(t, 10)
	now = a.now
	l.tick(b, now)
	a.Hint(now)
	l.tick(a, a.Deadline())
	now = a.now
	require.Equal(t, a.View(), b.View())
	require.Equal(t, []dmutex.NodeID{2}, a.Missing(nil))
	out := a.Met(now, 2, 10).And(b.Met(now, 1, 9)).Messages
	passOn(t, now, out, a, b)
	require.Equal(t, Acting, a.Phase())
	require.Equal(t, Acting, b.Phase())
	return a, b, now
}

// passOn delivers messages, and the answers to them.
func passOn(t *testing.T, now int64, out []membership.Message, machines ...*Machine) {
	t.Helper()
	for len(out) > 0 {
		msg := out[0]
		out = out[1:]
		for _, m := range machines {
			if m.Self() == msg.To {
				more, err := m.Handle(now, msg)
				require.NoError(t, err)
				out = append(out, more.Messages...)
			}
		}
	}
}

// A member that has waited is a witness for a member that learns of the exclusion later: b acts at once.
func TestWitness(t *testing.T) {
	var l ledger
	_, b, _ := pair(t, &l)
	require.Equal(t, b.record.Unclean, b.cleared)
	require.Less(t, b.now, b.since+b.wait)
}

// The record is a witness when nobody else is there: a life that joins after all have
// left acts at once, whatever its own lease is.
func TestRecordIsWitness(t *testing.T) {
	for _, lease := range []int64{testLease, second, 2 * testLease} {
		var l ledger
		a, b, now := pair(t, &l)
		for _, m := range []*Machine{a, b} {
			m.Leave(now)
			for m.Phase() != Left {
				require.NotEqual(t, Stopped, m.Phase())
				l.serve(m, m.now)
				m.Tick(m.Deadline())
			}
		}
		r := l.record(t)
		require.Empty(t, r.Members)
		require.Equal(t, r.Unclean, r.Cleared)

		c, err := New(Config{Life: 11, Lease: lease, Settings: "ricart"})
		require.NoError(t, err)
		l.tick(c, 0)
		require.Equal(t, Acting, c.Phase())
	}
}

// The record is no witness of a wait that was not over, such as the wait of the last member to
// leave, or of a group that has crashed.
func TestRecordIsNoWitness(t *testing.T) {
	acts := func(t *testing.T, l *ledger) (waited int64) {
		t.Helper()
		c := someLease(t, 11)
		l.tick(c, 0)
		for c.Phase() != Acting {
			require.NotEqual(t, Stopped, c.Phase())
			l.tick(c, c.Deadline())
		}
		return c.now - c.since
	}

	var l ledger
	a, _, now := pair(t, &l)
	a.Lost(now, 2)
	for len(l.record(t).Members) == 2 {
		require.NotEqual(t, Stopped, a.Phase())
		l.tick(a, a.Deadline())
	}
	a.Leave(a.now)
	l.serve(a, a.now)
	require.Equal(t, Left, a.Phase())
	require.Less(t, l.record(t).Cleared, l.record(t).Unclean)
	require.Equal(t, leases.Drain(testLease), acts(t, &l))

	l = ledger{}
	pair(t, &l)
	require.Equal(t, leases.Drain(testLease), acts(t, &l))
	require.Len(t, l.record(t).Members, 1)
}

// No member can claim that the leases of members that are excluded later have ended.
func TestClearedTooEarly(t *testing.T) {
	var l ledger
	a, _, now := pair(t, &l)
	before := text(a)
	for _, msg := range []membership.Message{{Kind: membership.Cleared}, {Kind: membership.Report, View: a.View()}} {
		msg.From, msg.To, msg.Cleared = 2, 1, max(a.cfg.Clock, a.record.Epoch)+epochs.Day+1
		_, err := a.Handle(now, msg)
		require.ErrorIs(t, err, dmutex.ErrPeer)
		require.Equal(t, before, text(a))
	}
}

// A life that excludes others records only earlier exclusions as cleared, even if a peer
// has told it of an exclusion that it has not read.
func TestExclusionClearsNothing(t *testing.T) {
	var l ledger
	a, _, now := pair(t, &l)
	before := l.record(t)
	_, err := a.Handle(now, membership.Message{Kind: membership.Cleared, From: 2, To: 1, Cleared: before.Epoch + 1})
	require.NoError(t, err)
	a.Lost(now, 2)
	for a.op != Swap {
		require.NotEqual(t, Stopped, a.Phase())
		a.Tick(a.Deadline())
		if op, _ := a.Operation(); op == Load {
			a.Done(a.now, l.value, nil)
		}
	}
	require.Equal(t, before.Epoch+1, a.next.Unclean)
	require.Equal(t, before.Unclean, a.next.Cleared)
}

// A leaving member tells the others to load the record, and they go on without a wait.
func TestLeaveCleanly(t *testing.T) {
	var l ledger
	a, b, now := pair(t, &l)
	unclean := l.record(t).Unclean
	out := append(b.Leave(now).Messages, l.serve(b, now)...)
	require.Equal(t, Left, b.Phase())
	require.Empty(t, b.Met(now, 1, 9).Messages, "it has no more to say")
	passOn(t, now, out, a)
	l.tick(a, a.Deadline())
	require.Less(t, a.now-now, int64(50*millisecond))
	require.Equal(t, Acting, a.Phase())
	require.Len(t, a.View().Members, 1)
	require.Equal(t, unclean, l.record(t).Unclean)
}

// Trouble counts once, only in the present view, and only for a member.
func TestTrouble(t *testing.T) {
	outsider := someLease(t, 8)
	outsider.Trouble(0, 0)
	require.Equal(t, int64(due.Never), outsider.troubleAt)
	var l ledger
	m, _, now := pair(t, &l)
	epoch := m.View().Epoch
	m.Trouble(now, epoch-1)
	require.Equal(t, int64(due.Never), m.troubleAt, "it is about an older view")
	m.Trouble(now, epoch)
	at := m.troubleAt
	require.Equal(t, now+membership.MinPause, at)
	m.Trouble(now+membership.MinPause/2, epoch)
	require.Equal(t, at, m.troubleAt)
	require.Equal(t, 1, m.in.Quarrel)
	l.tick(m, at)
	require.Equal(t, epoch+1, m.View().Epoch)
}

// A life names the members whose leases it waits for, until it knows that they have ended.
func TestWaits(t *testing.T) {
	var l ledger
	a, b, now := pair(t, &l)
	until, dead, _ := a.Waits()
	require.Zero(t, until)
	require.Empty(t, dead)
	a.Lost(now, 2)
	for a.Record().Unclean != a.Record().Epoch {
		now = a.Deadline()
		l.tick(a, now)
	}
	until, dead, _ = a.Waits()
	require.Equal(t, now+leases.Drain(testLease), until)
	require.Equal(t, []dmutex.NodeID{2}, dead)
	c := someLease(t, 11) // does not know who was a member
	l.tick(c, now)
	until, dead, _ = c.Waits()
	require.Equal(t, now+leases.Drain(testLease), until)
	require.Empty(t, dead)
	b.Hint(now)
	b.Tick(max(now, b.Deadline()))
	l.serve(b, now)
	_, dead, _ = b.Waits()
	require.Empty(t, dead, "it is excluded itself")
	for a.Phase() != Acting {
		now = a.Deadline()
		l.tick(a, now)
		if p := a.peer(3); p != nil {
			a.Met(now, 3, 11)
			a.in.Take(3, nil, nil)
		}
	}
	until, _, _ = a.Waits()
	require.Zero(t, until)
}

// A member that is away is excluded after a third of a lease, and a member that does not
// report after four thirds. The others wait until its lease has ended.
func TestExclude(t *testing.T) {
	var l ledger
	a, _, now := pair(t, &l)
	a.Lost(now, 2)
	require.Equal(t, []dmutex.NodeID{2}, a.Missing(nil))
	goOn := func(until int64) {
		for a.Deadline() <= until {
			l.tick(a, a.Deadline())
		}
	}
	goOn(now + membership.MinPause) // the store has answered
	now = a.peer(2).awayAt
	goOn(now + testLease/3 - 1)
	require.Len(t, l.record(t).Members, 2)
	goOn(now + testLease/3)
	require.Len(t, l.record(t).Members, 1)
	require.Equal(t, Frozen, a.Phase())
	goOn(now + testLease/3 + leases.Drain(testLease) - 1)
	require.Equal(t, Frozen, a.Phase())
	goOn(now + testLease/3 + leases.Drain(testLease))
	require.Equal(t, Acting, a.Phase())

	l = ledger{}
	a, _, now = pair(t, &l)
	a.Trouble(now, a.View().Epoch)
	goOn(now + 2*second)
	require.Equal(t, Frozen, a.Phase())
	begin := a.in.InstalledAt
	goOn(begin + testLease + testLease/3 - 1)
	require.Len(t, l.record(t).Members, 2)
	goOn(begin + testLease + testLease/3)
	require.Len(t, l.record(t).Members, 1)
}

// A member that is reported dead is excluded at once, unless it was met since and its death is not
// proved. The others wait as after any exclusion.
func TestDead(t *testing.T) {
	var l ledger
	a, b, now := pair(t, &l)
	a.Dead(now, 3, false) // not a member
	require.Equal(t, NoOperation, a.op)
	a.Dead(now, 2, false)
	l.serve(a, now)
	require.Len(t, l.record(t).Members, 1)
	require.Equal(t, Frozen, a.Phase())
	until, dead, _ := a.Waits()
	require.Equal(t, now+leases.Drain(testLease), until)
	require.Equal(t, []dmutex.NodeID{2}, dead)
	l.serve(b, now)

	for _, proved := range []bool{false, true} {
		l = ledger{}
		a, _, now = pair(t, &l)
		a.Hint(now)
		a.Tick(a.Deadline()) // the store is busy
		require.Equal(t, Load, a.op)
		now = a.now
		a.Dead(now, 2, proved)
		a.Met(now, 2, 10)
		here, since := a.Here(2)
		require.Equal(t, !proved, here)
		require.Equal(t, now, since)
		l.serve(a, now)
		require.Equal(t, proved, len(l.record(t).Members) == 1)
	}
}

// A member whose number another process uses is excluded like a silent member.
func TestOtherLife(t *testing.T) {
	var l ledger
	a, _, now := pair(t, &l)
	for end := now + testLease; now < end; now += testLease / 100 {
		a.Met(now, 2, 77)
		l.tick(a, now)
	}
	require.Len(t, l.record(t).Members, 1)
}

// A message that no correct peer sends is refused and changes nothing.
func TestHandleRefuses(t *testing.T) {
	view := func(epoch uint64, who ...membership.Member) membership.View {
		return membership.View{Epoch: epoch, Members: who}
	}
	for name, msg := range map[string]membership.Message{
		"from itself":       {Kind: membership.Cleared, From: 1, To: 1},
		"no member":         {Kind: membership.Cleared, From: 3, To: 1},
		"for another":       {Kind: membership.Cleared, From: 2, To: 3},
		"no kind":           {From: 2, To: 1},
		"of the other mode": {Kind: 1, From: 2, To: 1, Round: 1},
		"unknown kind":      {Kind: membership.Moved + 1, From: 2, To: 1},
		"loans unordered":   {Kind: membership.Part, From: 2, To: 1, Lent: []membership.Loan{{Lock: "b", Key: "k"}, {Lock: "a", Key: "k"}}},
		"loans twice":       {Kind: membership.Part, From: 2, To: 1, Lent: []membership.Loan{{Lock: "a", Key: "k"}, {Lock: "a", Key: "l"}}},
		"moves nothing":     {Kind: membership.Moved, From: 2, To: 1},
		"no view":           {Kind: membership.Report, From: 2, To: 1},
		"epoch 0":           {Kind: membership.Decide, From: 2, To: 1, View: view(0, membership.Member{Node: 1, Life: 9}, membership.Member{Node: 2, Life: 10})},
		"epoch too high":    {Kind: membership.Decide, From: 2, To: 1, View: membership.View{Epoch: epochs.Max + 1}},
		"report of epoch 0": {Kind: membership.Report, From: 2, To: 1, View: view(0, membership.Member{Node: 1, Life: 9}, membership.Member{Node: 2, Life: 10})},
		"reports from out":  {Kind: membership.Report, From: 2, To: 1, View: view(9, membership.Member{Node: 1, Life: 9})},
		"to a former life":  {Kind: membership.Report, From: 2, To: 1, View: view(9, membership.Member{Node: 1, Life: 8}, membership.Member{Node: 2, Life: 10})},
		"another view":      {Kind: membership.Report, From: 2, To: 1, View: view(2, membership.Member{Node: 2, Life: 10})},
		"members twice":     {Kind: membership.Report, From: 2, To: 1, View: view(9, membership.Member{Node: 1, Life: 9}, membership.Member{Node: 2, Life: 10}, membership.Member{Node: 2, Life: 10})},
		"members unordered": {Kind: membership.Report, From: 2, To: 1, View: view(9, membership.Member{Node: 2, Life: 10}, membership.Member{Node: 1, Life: 9})},
		"life 0":            {Kind: membership.Report, From: 2, To: 1, View: view(9, membership.Member{Node: 1, Life: 9}, membership.Member{Node: 2, Life: 10}, membership.Member{Node: 3, Life: 0})},
	} {
		var l ledger
		m, _, now := pair(t, &l)
		before := text(m)
		out, err := m.Handle(now, msg)
		require.ErrorIs(t, err, dmutex.ErrPeer, name)
		require.Empty(t, out, name)
		require.Equal(t, before, text(m), name)
	}
}

// A message to the member that this process was, or is about to be, is no mistake of its peer.
func TestHandleOutside(t *testing.T) {
	var l ledger
	gone := joined(t, &l, 9)
	gone.Leave(gone.now)
	l.serve(gone, gone.now)
	require.Equal(t, Left, gone.Phase())
	for name, m := range map[string]*Machine{"unjoined": someLease(t, 9), "left": gone} {
		out, err := m.Handle(m.now, membership.Message{Kind: membership.Cleared, From: 2, To: 1})
		require.NoError(t, err, name)
		require.Empty(t, out.Messages, name)
	}
}

// A life that is not a member only makes the machine load the record.
func TestStrangers(t *testing.T) {
	var l ledger
	m := joined(t, &l, 9)
	for node := range dmutex.NodeID(1000) {
		m.Met(m.now, node+2, 7)
	}
	require.Empty(t, m.peers)
	l.serve(m, m.now)
	at := m.Deadline()
	require.LessOrEqual(t, at, m.now+membership.MinPause, "some were met while it was loading")
	l.tick(m, at)
	require.Greater(t, m.Deadline(), at+second/2, "the record has not changed")

	l = ledger{}
	a, _, now := pair(t, &l)
	a.Lost(now, 2)
	require.Empty(t, a.Met(now, 2, 11).Messages, "another life under the number of a member")
	require.Equal(t, []dmutex.NodeID{2}, a.Missing(nil))
	require.True(t, a.hintAt != due.Never || a.op == Load)
	require.NotEmpty(t, a.Met(now, 2, 10).Messages, "it reports again")
	require.Empty(t, a.Missing(nil))
}

// A message of a member is a sign of life, unless the member is proved to be dead: then it was sent before.
func TestMessageMeets(t *testing.T) {
	var l ledger
	a, _, now := pair(t, &l)
	a.Lost(now, 2)
	out, err := a.Handle(now, membership.Message{Kind: membership.Cleared, From: 2, To: 1})
	require.NoError(t, err)
	require.NotEmpty(t, out.Messages, "it reports again")
	require.Empty(t, a.Missing(nil))
	a.Dead(now, 2, true)
	before := a.cleared
	out, err = a.Handle(now, membership.Message{Kind: membership.Cleared, From: 2, To: 1, Cleared: before + 1})
	require.NoError(t, err)
	require.Empty(t, out.Messages)
	require.Equal(t, before, a.cleared, "it takes nothing of that in")
	require.Equal(t, []dmutex.NodeID{2}, a.Missing(nil))
}

// Before a life has reported what it holds, it tells nobody a view: an empty report would free it.
func TestTellsNothingBeforeItsReport(t *testing.T) {
	var l ledger
	a, _, now := pair(t, &l)
	next := membership.View{Epoch: a.View().Epoch + 1, Members: a.View().Members}
	a.in.Install(now, next, false)
	a.Lost(now, 2)
	out, err := a.Handle(now, membership.Message{Kind: membership.Decide, From: 2, To: 1, View: membership.View{Epoch: next.Epoch}})
	require.NoError(t, err)
	require.Empty(t, out.Messages)
	require.Empty(t, a.Met(now, 2, 10).Messages)
	holds := []membership.Hold{{Lock: "x", Fence: 7}}
	out = a.Report(now, holds, nil)
	require.Len(t, out.Messages, 1)
	require.Equal(t, membership.Report, out.Messages[0].Kind)
	require.Equal(t, holds, out.Messages[0].Holds)
}

// A member reports once to each peer that has spoken of the view, even if the peer did so before
// the view was installed here.
func TestEarlyView(t *testing.T) {
	var l ledger
	a, b, now := pair(t, &l)
	now += second
	b.Trouble(now, b.View().Epoch)
	out := b.Tick(now).Messages
	for b.View().Epoch == a.View().Epoch {
		out = append(out, l.serve(b, now)...)
		now = b.Deadline()
		out = append(out, b.Tick(now).Messages...)
	}
	require.Len(t, out, 1)
	require.Equal(t, membership.Decide, out[0].Kind)
	for range 2 {
		early, err := a.Handle(now, out[0])
		require.NoError(t, err)
		require.Empty(t, early.Messages)
	}
	require.Equal(t, Acting, a.Phase())
	var late []membership.Message
	for a.View().Epoch < b.View().Epoch {
		late = append(late, l.serve(a, now)...)
		now = a.Deadline()
		late = append(late, a.Tick(now).Messages...)
	}
	require.Len(t, late, 1)
	require.Equal(t, membership.Report, late[0].Kind)
	passOn(t, now, late, a, b)
	require.Equal(t, Acting, a.Phase())
	require.Equal(t, Acting, b.Phase())
	again, err := a.Handle(now, out[0])
	require.NoError(t, err)
	require.Empty(t, again.Messages)
	again = a.Met(now, 2, 10)
	require.Len(t, again.Messages, 1)
	require.Equal(t, membership.Report, again.Messages[0].Kind, "it may have been lost")
}

// A member that has not spoken of a view gets no report of the holds in it, so it cannot have
// acted.
func TestSilentMember(t *testing.T) {
	var l ledger
	a, _, now := pair(t, &l)
	a.remember(membership.Word{Node: 1, Epoch: a.in.Complete.Epoch, Members: a.in.Complete.Nodes()})
	c := someLease(t, 11)
	c.Tick(now)
	out := append(l.serve(c, now), c.Met(now, 1, 9).Messages...)
	c.Met(now, 2, 10)
	out = append(out, a.Hint(now).Messages...)
	for a.View().Epoch < c.View().Epoch {
		now = a.Deadline()
		out = append(append(out, a.Tick(now).Messages...), l.serve(a, now)...)
	}
	out = append(out, a.Met(now, 3, 11).Messages...)
	passOn(t, now, out, a, c)
	require.Less(t, a.peer(2).heard, a.View().Epoch)
	require.Equal(t, Frozen, a.Phase())
	a.Dead(now, 2, false)
	out = append(l.serve(a, now), c.Hint(now).Messages...)
	now = c.Deadline()
	out = append(append(out, c.Tick(now).Messages...), l.serve(c, now)...)
	passOn(t, now, out, a, c)
	for _, m := range []*Machine{a, c} {
		require.Equal(t, Acting, m.Phase())
		until, formers, all := m.Waits()
		require.NotZero(t, until)
		require.Equal(t, []dmutex.NodeID{2}, formers)
		require.False(t, all)
	}
}

// Whatever a peer sends and the store answers, the machine does not panic, and a refused
// message changes nothing.
func FuzzHandle(f *testing.F) {
	f.Add([]byte("00000\x030\x00\x10\x00\x00\x00\x00\x04\x00333\x13\xff\x7f330"))
	f.Add([]byte{5, 0, 3, 9, 10, 1, 0, 2, 0, 1, 1, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 5, 3, 2, 9, 1, 1, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var l ledger
		m := joined(t, &l, 9)
		now := m.now
		for len(data) >= 8 {
			b := data[:8]
			data = data[8:]
			now += int64(binary.LittleEndian.Uint16(b[6:])) * 10 * millisecond
			v := membership.View{Epoch: uint64(b[2])}
			for i, life := range b[3:5] {
				if life != 0 {
					v.Members = append(v.Members, membership.Member{Node: dmutex.NodeID(i + 1), Life: uint64(life)})
				}
			}
			msg := membership.Message{Kind: membership.Kind(b[0]), From: 2, To: 1, View: v, Cleared: uint64(b[1])}
			if b[1]&1 != 0 {
				msg.Past = &membership.Past{
					Former: []membership.Former{{Node: dmutex.NodeID(b[3]), Epoch: uint64(b[1])}},
					Words:  []membership.Word{{Node: dmutex.NodeID(b[4]), Epoch: uint64(b[2]), Members: []dmutex.NodeID{1, dmutex.NodeID(b[3])}, Of: uint64(b[1]), Differs: []membership.Differ{{Lock: "x", Bits: uint64(b[4])}}, Alone: []membership.Differ{{Lock: "x", Bits: uint64(b[5])}}}},
				}
			}
			before := text(m)
			if _, err := m.Handle(now, msg); err != nil {
				require.Equal(t, before, text(m))
			}
			switch b[5] {
			case 1:
				m.Met(now, 2, uint64(b[4]))
			case 2:
				m.Lost(now, 2)
			case 3:
				m.Trouble(now, m.View().Epoch)
			case 4:
				m.Leave(now)
			case 5:
				m.Operation()
				m.Done(now, nil, errUnknown)
			case 6:
				m.Operation()
				m.Done(now, nil, ErrConflict)
			case 7:
				var r Record
				if r.UnmarshalText(l.value) == nil { // somebody joins
					r.Epoch, r.Highest = r.Epoch+1, r.Highest+1
					r.Members = append(r.Members, Entry{membership.Member{Node: r.Highest, Life: uint64(r.Highest)<<8 | 1}, protocol.Spoken, "", "", ""})
					l.value, _ = r.MarshalText()
				}
			default:
				l.serve(m, now)
			}
			m.Missing(nil)
			carryover.About(&m.past).Holders("x", b[5]&1 != 0, m.cleared, func(w *membership.Word) uint64 { return w.Of })
			if at := m.Deadline(); at < due.Never {
				require.Greater(t, at, m.now)
			}
		}
	})
}

// LeaseEnd returns when this life holds nothing any more: the lowest number while it is not a member.
func (m *Machine) LeaseEnd() int64 {
	if m.self == dmutex.None || m.ended() {
		return math.MinInt64
	}
	return m.term.Expiry()
}

// endsAt lets the lease end then.
func (m *Machine) endsAt(end int64) { m.term = leases.From(end-m.cfg.Lease, m.cfg.Lease) }

// A life that leaves and has lent locks excludes itself: its clients may hold them for as long as its lease.
func TestLeaveHolding(t *testing.T) {
	for _, holding := range []bool{false, true} {
		var l ledger
		m, _, now := pair(t, &l)
		before := l.record(t)
		if holding {
			m.LeaveHolding(now)
		} else {
			m.Leave(now)
		}
		l.tick(m, now)
		after := l.record(t)
		require.Len(t, after.Members, len(before.Members)-1)
		require.Equal(t, holding, after.Unclean == after.Epoch)
	}
}

// Rule 5d.11: a member that closes says what it has lent, and holds nothing else. When a client goes on with
// another member, what it had from the one that has closed is free, if the last word names that loan, and the
// driver is told. A word that came from nobody counts for nobody.
func TestPartsAndMoves(t *testing.T) {
	fresh := func(*membership.Word) uint64 { return 0 }
	x, y := membership.Loan{Lock: "x", Key: "one"}, membership.Loan{Lock: "y", Key: "two"}
	var l ledger
	a, b, now := pair(t, &l)
	passOn(t, now, b.Part(now, []membership.Loan{x, y}).Messages, a)
	b.LeaveHolding(now)
	l.tick(b, now)
	a.Hint(now)
	now = a.Deadline()
	a.Tick(now)
	out := a.Done(now, l.value, nil)
	require.Equal(t, Frozen, a.Phase())
	out = out.And(a.Report(now, nil, &membership.Word{Node: 1, Epoch: a.in.Complete.Epoch, Members: []dmutex.NodeID{1, 2}}))
	acts := out.Events[slices.IndexFunc(out.Events, func(e membership.Event) bool { _, acts := e.(membership.Acts); return acts })].(membership.Acts)
	past := acts.Past
	for lock, waits := range map[string]int{"x": 1, "y": 1, "z": 0} {
		require.Len(t, carryover.About(past).Holders(lock, false, a.cleared, fresh), waits, lock)
	}

	freed := func(out membership.Output) (loans []membership.Loan) {
		for _, e := range out.Events {
			if e, freed := e.(Freed); freed {
				require.Equal(t, dmutex.NodeID(2), e.Former)
				loans = append(loans, e.Loan)
			}
		}
		return loans
	}
	waits := func(lock string) bool { return len(a.tell(a.cleared).Former[0].Parting.Key(lock)) > 0 }
	a.Move(now, 2, membership.Loan{Lock: "x", Key: "another"})
	require.True(t, waits("x"), "it was not lent by that session")
	require.Equal(t, []membership.Loan{x}, freed(a.Move(now, 2, x)))
	require.False(t, waits("x"))
	require.True(t, waits("y"))

	c := someLease(t, 11)
	l.tick(c, now)
	a.Hint(now)
	now = a.Deadline()
	a.Tick(now)
	a.Done(now, l.value, nil)
	a.Report(now, nil, &membership.Word{Node: 1, Epoch: a.in.Complete.Epoch, Members: []dmutex.NodeID{1}})
	require.Equal(t, Frozen, a.Phase(), "it waits for the report of the new member")
	more, err := a.Handle(now, membership.Message{Kind: membership.Moved, From: c.Self(), To: a.Self(), Former: 2, Lent: []membership.Loan{y}})
	require.NoError(t, err)
	require.Equal(t, []membership.Loan{y}, freed(more))
	require.Empty(t, a.in.ReportOf(a.Self()).Past.Former[0].Parting.Key("y"), "what is reported does not hold it any more")
}
