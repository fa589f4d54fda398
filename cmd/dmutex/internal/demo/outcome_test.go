package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
)

// rightBook is the passbook of rightWork.
var rightBook = evidence{Entries: 4, Expected: 400, Actual: 400}

// rightWork is the work of two tellers under central, with two deposits each,
// when all is right: 3 messages for each deposit of teller 2.
func rightWork() work {
	var w work
	w.records = [][]record{
		{{Fence: 1, Called: 0, Granted: 10, Left: 20}, {Fence: 3, Called: 21, Granted: 50, Left: 60}},
		{{Fence: 2, Called: 5, Granted: 25, Left: 40}, {Fence: 4, Called: 70, Granted: 75, Left: 80}},
	}
	w.counts = make([]counts, 2)
	w.counts[0].Sent[dmutex.Grant] = 2
	w.counts[1].Sent[dmutex.Request] = 2
	w.counts[1].Sent[dmutex.Release] = 2
	w.counts[0].Received, w.counts[1].Received = w.counts[1].Sent, w.counts[0].Sent
	return w
}

func TestAuditRight(t *testing.T) {
	central, _ := catalog.Find("central")
	o := audit(central, 2, rightBook, rightWork())
	require.True(t, o.OK, o.Faults)
	require.EqualValues(t, 6, o.Messages.Sent)
	require.Equal(t, 2, o.Messages.Entries, "the coordinator's own entries are free")
	require.Equal(t, &quantiles{4, 10, 29}, o.Acquire)
	require.Equal(t, &quantiles{2, 5, 10}, o.HandOff, "from fence 1 to 2, and from 2 to 3; the holder of 4 had not waited")
}

// Each kind of fault is reported, and no other fault with it.
func TestAuditFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(book *evidence, w *work)
		fault string
	}{
		{"a cent less", func(e *evidence, _ *work) { e.Actual-- }, "the account has 3.99 instead of 4.00"},
		{"a cent more", func(e *evidence, _ *work) { e.Actual++ }, "the account has 4.01 instead of 4.00"},
		{"a line that no teller wrote", func(e *evidence, _ *work) { e.Entries++; e.Expected += 100; e.Actual += 100 }, "the account has 5.00 instead of 4.00"},
		{"overlap", func(e *evidence, _ *work) { e.Overlaps++ }, "1 of 4 deposits found another teller inside"},
		{"fence twice", func(e *evidence, _ *work) { e.FenceErrors++ }, "1 fences had not risen"},
		{"a message more", func(_ *evidence, w *work) { w.counts[0].Sent[dmutex.Grant]++ }, "7 messages for 2 entries, where 3 says 3 an entry"},
		{"a message less", func(_ *evidence, w *work) { w.counts[0].Sent[dmutex.Grant]-- }, "5 messages for 2 entries, where 3 says 3 an entry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			central, _ := catalog.Find("central")
			book, w := rightBook, rightWork()
			c.spoil(&book, &w)
			o := audit(central, 2, book, w)
			require.False(t, o.OK)
			require.Equal(t, []string{c.fault}, o.Faults)
		})
	}
}

// A run without a lock is shown, not judged.
func TestAuditNoLock(t *testing.T) {
	o := audit(catalog.NoLock, 2, evidence{Entries: 4, Expected: 400, Actual: 100, Overlaps: 1, FenceErrors: 4}, rightWork())
	require.True(t, o.OK)
	require.Equal(t, 1, o.Overlaps)
	require.Zero(t, o.FenceErrors, "there are no fences")
	require.Nil(t, o.Messages)
	require.Nil(t, o.Acquire)
}

func TestQuantiles(t *testing.T) {
	upTo := func(n int) (d []time.Duration) {
		for i := n; i > 0; i-- {
			d = append(d, time.Duration(i))
		}
		return d
	}
	require.Nil(t, newQuantiles(nil))
	require.Equal(t, &quantiles{1, 1, 1}, newQuantiles(upTo(1)))
	require.Equal(t, &quantiles{2, 1, 2}, newQuantiles(upTo(2)))
	require.Equal(t, &quantiles{100, 50, 99}, newQuantiles(upTo(100)))
	require.Equal(t, &quantiles{1000, 500, 990}, newQuantiles(upTo(1000)))
}

// A count is final when as many were received as sent, of each kind.
func TestBalanced(t *testing.T) {
	w := rightWork()
	require.True(t, balanced(w.counts))
	w.counts[0].Sent[dmutex.Grant]++
	require.False(t, balanced(w.counts))
	w.counts[1].Received[dmutex.Release]++
	require.False(t, balanced(w.counts), "a message too many of one kind does not make up for one too few of another")
}
