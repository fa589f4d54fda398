package leases

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/search"
)

var _ = flag.Bool("update", false, "rewrite the files in testdata")

// A world is a state of a holder with a Term, and of a granter that may give what the lease stands
// for to another. Time passes for both at once. Questions and answers arrive at any time, or never.
type world struct {
	*setup
	now     int64
	term    Term
	asks    question   // the last, zero if it was answered or given up
	strays  []question // that were given up, and may still arrive
	takenAt int64      // when the granter took the last question
	other   bool       // another has it
	lost    bool       // another has had it since the term began
}

type question struct {
	sent  int64 // 0 if there is none
	taken bool
}

type setup struct {
	length, wait int64                               // L and D
	strays       int                                 // at most
	confirm      func(w *world, sent int64)          // how an answer counts
	giveUp       func(w *world, unanswered question) // how the lack of one counts
}

type event = search.Event[*world]

func (w *world) Clone(*world) *world {
	c := *w
	c.strays = append([]question(nil), w.strays...)
	return &c
}

// AppendState writes times relative to now, as far as they matter.
func (w *world) AppendState(b []byte) []byte {
	ago := func(t int64) int64 { return min(w.now-t, w.length+w.wait) }
	q := func(q question) string {
		if q.sent == 0 {
			return "-"
		}
		return fmt.Sprint(ago(q.sent), q.taken)
	}
	end := int64(0)
	if w.term.runs {
		end = max(w.term.expiry-w.now, 0)
	}
	b = fmt.Appendf(b, "%d %v %v %s %d %v %v", end, w.term.runs, w.term.over, q(w.asks), ago(w.takenAt), w.other, w.lost)
	for range w.strays {
		b = append(b, '.') // when they were sent no longer matters
	}
	return b
}

func (w *world) Steps(steps []event) []event {
	add := func(do func(w *world), what string) {
		steps = append(steps, search.NewEvent(func(w *world) error { do(w); return w.wrong() }, what))
	}
	add(func(w *world) { w.now++ }, "time passes")
	if w.asks.sent == 0 {
		add(func(w *world) { w.asks = question{sent: w.now} }, "the holder asks")
	} else {
		if !w.asks.taken && !w.other {
			add(func(w *world) { w.asks.taken, w.takenAt = true, w.now }, "the granter takes the question")
		}
		if w.asks.taken {
			add(func(w *world) {
				sent := w.asks.sent
				w.asks = question{}
				w.confirm(w, sent)
			}, "the holder gets the answer")
		}
		if len(w.strays) < w.setup.strays || w.asks.taken {
			add(func(w *world) {
				q := w.asks
				if w.asks = (question{}); !q.taken {
					w.strays = append(w.strays, q)
				}
				w.giveUp(w, q)
			}, "the holder waits no longer for an answer")
		}
	}
	if len(w.strays) > 0 && !w.other {
		add(func(w *world) { w.strays, w.takenAt = w.strays[1:], w.now }, "the granter takes a question that was given up")
	}
	switch {
	case w.other:
		add(func(w *world) { w.other = false }, "the other gives it back")
	case w.now >= w.takenAt+w.wait:
		add(func(w *world) { w.other, w.lost = true, w.lost || w.term.runs || w.term.over }, "the granter gives it to another")
	}
	if w.term.runs && w.now >= w.term.Until() {
		add(func(w *world) { w.term.Over(w.now) }, "the holder looks at the clock")
	}
	if w.term.over {
		add(func(w *world) { w.term, w.lost = Term{Length: w.length}, false }, "the holder begins again")
	}
	return steps
}

var errTwo = errors.New("the term runs though another has it, or has had it")

func (w *world) wrong() error {
	if w.term.runs && w.now < w.term.Until() && (w.other || w.lost) {
		return search.Wrong(errTwo, "%d before its end", w.term.Until()-w.now)
	}
	return nil
}

func (w *world) Do(step event) error { return step.Do(w) }

func (w *world) Tell(b []byte, step event, after *world) []byte {
	b = fmt.Appendf(b, "%v\n", step)
	runs := func(w *world) string {
		if w.term.runs && w.now < w.term.Until() {
			return "runs"
		}
		return "does not run"
	}
	if runs(w) != runs(after) {
		b = fmt.Appendf(b, "    the term %s\n", runs(after))
	}
	return b
}

func explore(s setup) (search.Report, error) {
	first := &world{setup: &s, now: 1, term: Term{Length: s.length}, takenAt: 1 - s.wait}
	if s.confirm == nil {
		s.confirm = func(w *world, sent int64) { w.term.Confirm(w.now, sent, w.length) }
	}
	if s.giveUp == nil {
		s.giveUp = func(*world, question) {}
	}
	return search.Search[*world, event]{First: first, Limits: search.Limits{MaxStates: 100_000}}.Run()
}

// In every run, another has what the lease stands for only after the term has ended, and the term
// never runs again. A changed number of states is a finding.
func TestExplore(t *testing.T) {
	for _, tt := range []struct {
		setup  setup
		states int
	}{
		{setup{length: 2, wait: 2}, 249},
		{setup{length: 2, wait: 3, strays: 1}, 731},
		{setup{length: 4, wait: 4, strays: 2}, 2_570},
	} {
		t.Run(fmt.Sprintf("%d, %d, %d", tt.setup.length, tt.setup.wait, tt.setup.strays), func(t *testing.T) {
			r, err := explore(tt.setup)
			require.NoError(t, err)
			require.True(t, r.Complete)
			require.Equal(t, tt.states, r.States)
		})
	}
}

// Each rule is needed: without it something goes wrong. The shortest run to it is in testdata.
func TestMutants(t *testing.T) {
	for name, s := range map[string]setup{
		"counts-from-the-receipt":  {confirm: func(w *world, _ int64) { w.term.Confirm(w.now, w.now, w.length) }},
		"counts-without-an-answer": {giveUp: func(w *world, q question) { w.term.Confirm(w.now, q.sent, w.length) }},
		"what-has-ended-goes-on": {confirm: func(w *world, sent int64) {
			if w.term.runs {
				w.term.expiry = sent + w.length
			} else {
				w.term.Confirm(w.now, sent, w.length)
			}
		}},
		"wait-too-short": {wait: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s.length, s.wait, s.strays = 2, cmp.Or(s.wait, 2), 1
			_, err := explore(s)
			goldentest.Violation(t, "testdata/mutant-"+name+".txt", err, nil)
		})
	}
}

// The margins and the pace are shares of the lease.
func TestTerm(t *testing.T) {
	term := Term{Length: 48}
	require.False(t, term.Confirm(45, 0, 48), "too late to begin")
	require.False(t, term.Over(45))
	require.True(t, term.Confirm(44, 0, 48))
	require.Equal(t, []int64{48, 45, 16, 32}, []int64{term.Expiry(), term.Until(), term.Renew(Renew), term.Late()})
	require.True(t, term.Confirm(44, 10, 20), "an answer never shortens it")
	require.EqualValues(t, 48, term.Expiry())
	require.False(t, term.Over(44))
	require.False(t, term.Confirm(45, 44, 48))
	require.True(t, term.Over(0), "it stays over")
	require.False(t, term.Runs())
}

// How a term stands is told by the time alone, and Next says when it changes. A term that has not begun
// has ended.
func TestState(t *testing.T) {
	term := From(0, 48)
	for _, tt := range []struct {
		now  int64
		is   State
		next int64
	}{{0, Valid, 32}, {31, Valid, 32}, {32, Late, 45}, {44, Late, 45}, {45, Ended, math.MaxInt64}} {
		require.Equal(t, tt.is, term.State(tt.now), tt.now)
		require.Equal(t, tt.next, term.Next(tt.now), tt.now)
	}
	require.Equal(t, Valid, term.State(0), "to look ends nothing")
	require.True(t, term.Over(45))
	require.Equal(t, Ended, term.State(0))
	require.Equal(t, Ended, new(Term).State(-1))
	text, err := json.Marshal([]State{Ended, Valid, Late})
	require.NoError(t, err)
	require.Equal(t, `["ended","valid","late"]`, string(text))
}

// A wait by the fastest clock lasts until a lease has ended by the slowest.
func TestDrain(t *testing.T) {
	for _, length := range []int64{Min, Min + 1, 12_345_678_901, Max} {
		require.GreaterOrEqual(t, Drain(length)*99, length*101)
		require.Less(t, (Drain(length)-1)*99, length*101)
	}
}
