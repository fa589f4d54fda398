package lease

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// A slowStore answers each operation after some time, and not at all while it is away.
type slowStore struct {
	ledger
	takes    int64
	away     bool
	op       Operation
	value    []byte
	answerAt int64
	loads    int
}

// step lets a millisecond pass for a machine and its store.
func (s *slowStore) step(m *Machine, now int64) {
	if s.op != NoOperation && now >= s.answerAt {
		op := s.op
		s.op = NoOperation
		switch {
		case s.away:
			m.Done(now, nil, errUnknown)
		case op == Load:
			m.Done(now, s.ledger.value, nil)
		default:
			s.ledger.value = s.value
			m.Done(now, nil, nil)
		}
	}
	m.Tick(now)
	if m.Phase() == Frozen && !m.in.Reported {
		m.Report(now, nil, nil)
	}
	if op, value := m.Operation(); op != NoOperation && s.op == NoOperation {
		s.op, s.value, s.answerAt = op, value, now+s.takes
		if s.away {
			s.answerAt = now + testLease/4
		}
		if op == Load {
			s.loads++
		}
	}
}

// passing returns a function that lets time pass for a machine and its store.
func (s *slowStore) passing(m *Machine, now *int64) func(howLong int64) {
	return func(howLong int64) {
		for end := *now + howLong; *now < end; *now += millisecond {
			s.step(m, *now)
		}
	}
}

// A store that fails at every third operation does not prevent the exclusion of a crashed member.
func TestFlakyStore(t *testing.T) {
	var l ledger
	a, _, now := pair(t, &l)
	a.Lost(now, 2)
	count := 0
	for end := now + testLease; len(l.record(t).Members) == 2; now += millisecond {
		require.Less(t, now, end)
		a.Hint(now)
		switch op, value := a.Operation(); {
		case op == NoOperation:
			continue
		case count%3 == 0:
			a.Done(now, nil, errUnknown)
		case op == Load:
			a.Done(now, l.value, nil)
		default:
			l.value = value
			a.Done(now, nil, nil)
		}
		count++
	}
}

// Hints that say nothing new lead to fewer and fewer loads. The first hint with news makes loads
// frequent again, and so does a time without hints.
func TestHintsBecomeRarer(t *testing.T) {
	s := &slowStore{takes: millisecond}
	a, _, now := pair(t, &s.ledger)
	hints := func(howLong int64) (loads int) {
		loads = s.loads
		for end := now + howLong; now < end; now += millisecond {
			a.Hint(now)
			s.step(a, now)
		}
		return s.loads - loads
	}
	hints(testLease)
	require.LessOrEqual(t, hints(testLease), 7, "every sixth of the lease")

	b := someLease(t, 11)
	s.tick(b, now)
	for late := now + testLease/6 + 10*millisecond; len(a.View().Members) < 3; {
		hints(millisecond)
		require.Less(t, now, late, "the news took too long")
	}
	require.GreaterOrEqual(t, hints(150*millisecond), 2, "loads are frequent again after news")

	hints(testLease)
	s.passing(a, &now)(testLease) // without hints
	require.Zero(t, a.vain)
}

// A hint of a member is looked up in the record at once, however many false hints strangers have
// sent.
func TestWordOfMemberIsLookedUp(t *testing.T) {
	s := &slowStore{takes: millisecond}
	a, b, now := pair(t, &s.ledger)
	for end := now + testLease; now < end; now += millisecond {
		a.Hint(now)
		s.step(a, now)
	}
	require.Equal(t, membership.MaxFails, a.vain)
	b.Leave(now)
	passOn(t, now, s.serve(b, now), a)
	s.passing(a, &now)(30 * millisecond)
	require.Len(t, a.View().Members, 1)
}

// An outage that begins while a member is already silent does not exclude the member.
func TestSecondOutage(t *testing.T) {
	s := &slowStore{takes: millisecond}
	a, _, now := pair(t, &s.ledger)
	run := s.passing(a, &now)
	a.Lost(now, 2)
	run(testLease / 6)
	s.away = true
	run(testLease)
	s.away = false
	run(testLease / 3)
	require.Len(t, s.record(t).Members, 2)
	run(testLease)
	require.Len(t, s.record(t).Members, 1)
}

// A member that has not reported has as much time for its report after an outage as before.
func TestReportAfterOutage(t *testing.T) {
	s := &slowStore{takes: millisecond}
	a, _, now := pair(t, &s.ledger)
	run := s.passing(a, &now)
	epoch := a.View().Epoch
	a.Trouble(now, epoch)
	for a.View().Epoch == epoch {
		run(millisecond)
	}
	s.away = true
	a.Lost(now, 2)
	run(3 * testLease)
	s.away = false
	run(testLease / 6)
	a.Met(now, 2, 10)
	run(testLease)
	require.Len(t, s.record(t).Members, 2)
	run(testLease)
	require.Len(t, s.record(t).Members, 1)
}

// An excluded life does not come back: a new life joins in its place. Nothing is written
// before the driver has drawn the new life.
func TestRejoinAsAnotherLife(t *testing.T) {
	l := &ledger{}
	m := joined(t, l, 9)
	now := l.exclude(t, m)
	require.True(t, m.Spent())
	require.Equal(t, dmutex.None, m.Self())
	for range 100 {
		now += testLease
		m.Hint(now)
		m.Tick(m.now)
		op, _ := m.Operation()
		require.NotEqual(t, Swap, op)
		if op == Load {
			m.Done(now, l.value, nil)
		}
	}
	m.Rejoin(now, 0)
	require.True(t, m.Spent(), "0 is no life")
	m.Rejoin(now, 10)
	require.False(t, m.Spent())
	m.Rejoin(now, 11)
	l.serve(m, now)
	require.Equal(t, membership.Member{Node: 2, Life: 10}, l.record(t).Members[0].Member)
}
