package lockrecord

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/leases"
)

// A value that is no record of this lock is refused, and never overwritten.
func TestRecord(t *testing.T) {
	good := string((&Record{"l", 7, unit, "A1", "web/7"}).AppendText(nil))
	require.Equal(t, "dmutex lock 1\nlock \"l\"\nfence 7\nlease 1000000000\nholder A1\nname \"web/7\"\n", good, "what CONTRIBUTING.md says of a change")
	r, err := parse([]byte(good), "l")
	require.NoError(t, err)
	require.Equal(t, Record{"l", 7, unit, "A1", "web/7"}, r)
	for _, bad := range []string{
		"x", "Dear Sir,\nyours", "dmutex record 2\nepoch 1\n", good + "x", good[1:], strings.TrimSuffix(good, "\n"),
		strings.Replace(good, "7", "0", 1), strings.Replace(good, "7", "07", 1), strings.Replace(good, "7", "9223372036854775808", 1),
		strings.Replace(good, "1000000000", "99999999", 1), strings.Replace(good, "A1", "A 1", 1),
		strings.Replace(good, "A1", strings.Repeat("A", 65), 1), strings.Replace(good, "web", strings.Repeat("w", 256), 1), strings.Replace(good, "web", "w\\n", 1), strings.Replace(good, `"l"`, `"m"`, 1),
		strings.Repeat("\n", 9), strings.Repeat("x", 100_000),
	} {
		_, err := parse([]byte(bad), "l")
		require.ErrorIs(t, err, ErrRecord, "%q", bad)
		m := New("l", "A", "", unit)
		op, _, _ := m.Operation(0, 0)
		require.Equal(t, Load, op)
		m.Loaded(0, []byte(bad), "1")
		require.Equal(t, Over, m.Phase(0))
		require.ErrorIs(t, m.Err(), ErrRecord)
	}
}

// A fence has at most 63 bits. After the highest one, the lock is refused.
func TestLastFence(t *testing.T) {
	m := New("l", "A", "", unit)
	m.Operation(0, 0)
	m.Loaded(0, (&Record{Lock: "l", Fence: maxFence, Lease: unit}).AppendText(nil), "1")
	op, _, _ := m.Operation(0, 0)
	require.Equal(t, None, op)
	require.ErrorContains(t, m.Err(), "its fences are used up")
}

// A clock that is set forward does not shorten a wait.
func TestLeapt(t *testing.T) {
	m := New("l", "A", "", unit)
	m.Operation(0, 0)
	m.Loaded(0, (&Record{Lock: "l", Fence: 1, Lease: unit, Holder: "B"}).AppendText(nil), "1")
	at := m.Deadline()
	require.Equal(t, leases.Drain(unit), at)
	m.Leapt(5 * unit)
	require.Equal(t, at+5*unit, m.Deadline())
	op, _, _ := m.Operation(at, 0)
	require.Equal(t, None, op)
	op, _, _ = m.Operation(at+5*unit, 0)
	require.Equal(t, Swap, op)
}

// A hold that was lost, and is not released, needs its driver until the lease has ended.
func TestLostUntilTheEnd(t *testing.T) {
	m := New("l", "A", "", unit)
	m.Operation(0, 0)
	m.Loaded(0, nil, "")
	op, _, _ := m.Operation(0, 0)
	require.Equal(t, Swap, op)
	m.Swapped(0, "1")
	require.Equal(t, Held, m.Phase(0))
	require.EqualValues(t, unit/leases.Renew, m.Deadline())
	m.End()
	require.Equal(t, Ended, m.Phase(0))
	require.EqualValues(t, unit, m.Deadline())
}

// A store that can prove death is asked first, however long the driver pauses before that. From when it
// says that it does not know the life, the lease decides.
func TestProofFirst(t *testing.T) {
	m := New("l", "A", "", unit)
	m.Prover(true)
	m.Operation(0, 0)
	m.Loaded(0, (&Record{Lock: "l", Fence: 1, Lease: unit, Holder: "B"}).AppendText(nil), "1")
	op, _, _ := m.Operation(100*unit, 0)
	require.Equal(t, None, op)
	for now := range int64(3) {
		m.Unprovable((100+now)*unit, "B")
		require.Equal(t, 100*unit+leases.Drain(unit), m.Deadline())
	}
	m.Provable()
	op, _, _ = m.Operation(200*unit, 0)
	require.Equal(t, None, op, "it knows the life after all")
	m.Unprovable(200*unit, "B")
	require.Equal(t, 200*unit+leases.Drain(unit), m.Deadline())
	m.Poll()
	m.Operation(201*unit, 0)
	m.Loaded(201*unit, (&Record{Lock: "l", Fence: 2, Lease: unit, Holder: "C"}).AppendText(nil), "2")
	op, _, _ = m.Operation(300*unit, 0)
	require.Equal(t, None, op, "another life, which the store may know")
}
