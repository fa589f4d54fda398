package demo

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// An outcome is the result of one run of tellers. Money is in cents, times are in
// nanoseconds.
type outcome struct {
	Algorithm string `json:"algorithm"`
	About     string `json:"about"`
	Locked    bool   `json:"locked"`
	OK        bool   `json:"ok"` // nothing happened that a lock has to prevent

	evidence

	Messages *messages     `json:"messages,omitempty"`
	Acquire  *quantiles    `json:"acquire,omitempty"`
	HandOff  *quantiles    `json:"hand_off,omitempty"`
	Took     time.Duration `json:"took_ns"`
	Faults   []string      `json:"faults,omitempty"` // what a lock has to prevent and did not, in words
}

// evidence is what a run of tellers has left behind, independent of the lock.
type evidence struct {
	Entries     int   `json:"entries"` // into the critical section: deposits made
	Expected    int64 `json:"expected_cents"`
	Actual      int64 `json:"actual_cents"`
	Overlaps    int   `json:"overlaps"`     // deposits that found another teller inside
	FenceErrors int   `json:"fence_errors"` // deposits whose fence had not risen
}

// messages compares what was sent with the formula.
type messages struct {
	tool.Messages
	Tellers []tally `json:"tellers"`
}

// A work is what the tellers of a run did, by teller.
type work struct {
	records [][]record
	counts  []counts
	took    time.Duration // from the first deposit to the last
}

type tally struct {
	Node     dmutex.NodeID     `json:"node"`
	Entries  int               `json:"entries"`
	Sent     map[string]uint64 `json:"sent"`
	Received map[string]uint64 `json:"received"`
}

// quantiles of some durations; Count is how many they were.
type quantiles struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
}

// audit judges a run by its passbook, its records and its counters.
func audit(alg tool.Algorithm, nodes int, book evidence, w work) outcome {
	records := slices.Concat(w.records...)
	o := outcome{Algorithm: alg.Name, About: alg.About, Locked: alg.New != nil, evidence: book, Took: w.took}
	o.Expected = int64(len(records)) * deposit
	if o.Locked {
		o.Messages = countMessages(alg, nodes, w)
		var acquired []time.Duration
		for _, r := range records {
			acquired = append(acquired, time.Duration(r.Granted-r.Called))
		}
		o.Acquire, o.HandOff = newQuantiles(acquired), handOffTimes(records)
		o.Faults = o.faults()
	} else {
		o.FenceErrors = 0 // there are no fences
	}
	o.OK = len(o.Faults) == 0
	return o
}

// countMessages sums up what all tellers sent. No message is in flight when they
// are counted, so each belongs to an entry that was made.
func countMessages(alg tool.Algorithm, nodes int, w work) *messages {
	var m messages
	var all uint64
	entries := 0
	for i, c := range w.counts {
		t := tally{dmutex.NodeID(i + 1), len(w.records[i]), make(map[string]uint64), make(map[string]uint64)}
		for k := range dmutex.Kinds {
			if c.Sent[k]+c.Received[k] > 0 {
				t.Sent[dmutex.Kind(k).String()] = c.Sent[k]
				t.Received[dmutex.Kind(k).String()] = c.Received[k]
			}
			all += c.Sent[k]
		}
		if !alg.OwnFree || c.Sent[dmutex.Request] > 0 {
			entries += t.Entries
		}
		m.Tellers = append(m.Tellers, t)
	}
	m.Messages = alg.Count(nodes, all, entries)
	return &m
}

// handOffTimes are from the call of Release to the return of the next Acquire, if
// that one was waiting already.
func handOffTimes(records []record) *quantiles {
	byFence := slices.SortedFunc(slices.Values(records), func(a, b record) int { return cmp.Compare(a.Fence, b.Fence) })
	var d []time.Duration
	for i, next := range byFence[min(1, len(byFence)):] {
		if last := byFence[i]; next.Called < last.Left {
			d = append(d, time.Duration(next.Granted-last.Left))
		}
	}
	return newQuantiles(d)
}

// newQuantiles returns nil if there is nothing to measure.
func newQuantiles(d []time.Duration) *quantiles {
	if len(d) == 0 {
		return nil
	}
	slices.Sort(d)
	at := func(percent int) time.Duration { return d[(len(d)*percent+99)/100-1] }
	return &quantiles{len(d), at(50), at(99)}
}

// faults says what a lock has to prevent and did not.
func (o *evidence) faults() (f []string) {
	if o.Actual != o.Expected {
		f = append(f, fmt.Sprintf("the account has %s instead of %s", money(o.Actual), money(o.Expected)))
	}
	if o.Overlaps > 0 {
		f = append(f, fmt.Sprintf("%d of %d deposits found another teller inside", o.Overlaps, o.Entries))
	}
	if o.FenceErrors > 0 {
		f = append(f, fmt.Sprintf("%d fences had not risen", o.FenceErrors))
	}
	return f
}

// faults says also whether the messages were too many or too few.
func (o *outcome) faults() []string {
	f := o.evidence.faults()
	if m := o.Messages; !m.Fit() {
		f = append(f, fmt.Sprintf("%d messages for %d entries, where %s says %s an entry", m.Sent, m.Entries, m.Formula, m.Span()))
	}
	return f
}

// money writes cents as units.
func money(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }
