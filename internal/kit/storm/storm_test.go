package storm

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/lock"
)

// A hold is a handle that a test ends.
type hold struct {
	until  time.Time
	ctx    context.Context
	lose   context.CancelCauseFunc
	forgot bool // its context has not ended, and its Err says that it has
}

func (h *hold) Err() error {
	if h.forgot {
		return lock.ErrLost
	}
	return context.Cause(h.ctx)
}
func (h *hold) Until() time.Time         { return h.until }
func (h *hold) Context() context.Context { return h.ctx }

// The referee notices each of the faults that it watches for, and nothing else.
func TestReferee(t *testing.T) {
	type step struct {
		who    string
		fence  uint64
		shared bool
		do     string // enter; leave, or lose the lock; a moment passes, or more than the holds have
	}
	for _, tt := range []struct {
		says  string
		steps []step
	}{
		{"", []step{{"a", 1, false, "enter"}, {"a", 1, false, "leave"}, {"b", 2, false, "enter"}}},
		{"a and b hold x, with the fences 1 and 2", []step{{"a", 1, false, "enter"}, {"b", 2, false, "enter"}}},
		{"b and a hold x", []step{{"b", 1, true, "enter"}, {"a", 2, false, "enter"}}},
		{"b and a hold x", []step{{"b", 1, false, "enter"}, {"a", 2, true, "enter"}}},
		{"", []step{{"a", 2, true, "enter"}, {"b", 1, true, "enter"}, {"a", 2, true, "leave"}, {"b", 1, true, "leave"}, {"c", 3, false, "enter"}}},
		{"b holds x with the fence 1, after 1", []step{{"a", 1, false, "enter"}, {"a", 1, false, "leave"}, {"b", 1, false, "enter"}}},
		{"b holds x with the fence 1, after 0, and 1", []step{{"a", 1, true, "enter"}, {"a", 1, true, "leave"}, {"b", 1, false, "enter"}}},
		{"b holds x with the fence 1, after 2", []step{{"a", 2, false, "enter"}, {"a", 2, false, "leave"}, {"b", 1, true, "enter"}}},
		{"b holds x 2s too early: a has not given it back", []step{{"a", 1, false, "enter"}, {"a", 1, false, "lose"}, {"b", 2, false, "enter"}}},
		{"", []step{{"a", 1, false, "enter"}, {"a", 1, false, "lose"}, {"a", 1, false, "leave"}, {"b", 2, false, "enter"}}},
		{"b holds x 1s too early: a has not given it back", []step{{"a", 1, false, "enter"}, {"a", 1, false, "lose"}, {"", 0, false, "moment"}, {"b", 2, false, "enter"}}},
		{"", []step{{"a", 1, false, "enter"}, {"a", 1, false, "lose"}, {"", 0, false, "outlast"}, {"b", 2, false, "enter"}}},
		{"a still holds x 1s after its Until", []step{{"a", 1, false, "enter"}, {"", 0, false, "outlast"}, {"a", 1, false, "leave"}}},
		{"b holds x with the fence 2, and the context of a has not ended", []step{{"a", 1, false, "enter"}, {"a", 1, false, "forget"}, {"b", 2, false, "enter"}}},
		{"b holds x 2s too early: a has not given it back", []step{{"a", 1, false, "enter"}, {"a", 1, false, "renew"}, {"a", 1, false, "lose"}, {"", 0, false, "moment"}, {"b", 2, false, "enter"}}},
		{"", []step{{"a", 1, false, "enter"}, {"a", 1, false, "renew"}, {"a", 1, false, "lose"}, {"a", 1, false, "leave"}, {"b", 2, false, "enter"}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			says := ""
			r := &Referee{wrong: func(format string, args ...any) { says = fmt.Sprintf(format, args...) }, note: func(string, ...any) {}}
			stays, holds := make(map[string]*Stay), make(map[string]*hold)
			for i, s := range tt.steps {
				require.Empty(t, says, "step %d", i)
				switch s.do {
				case "enter":
					h := &hold{until: time.Now().Add(time.Second)}
					h.ctx, h.lose = context.WithCancelCause(t.Context())
					holds[s.who] = h
					stays[s.who] = &Stay{
						Who: s.who, Lock: "x", Fence: s.fence, Shared: s.shared, Hold: holds[s.who],
						Margin: time.Second,
					}
					require.True(t, r.enter(stays[s.who]))
				case "leave":
					r.leave(stays[s.who])
				case "lose":
					holds[s.who].lose(lock.ErrLost)
					synctest.Wait()
				case "forget":
					holds[s.who].forgot = true
				case "renew":
					holds[s.who].until = time.Now().Add(2 * time.Second)
					r.Look("x")
				case "outlast":
					time.Sleep(2 * time.Second)
				case "moment":
					time.Sleep(time.Second)
				}
			}
			if require.Contains(t, says, tt.says); tt.says == "" {
				require.Empty(t, says)
			}
			over, end := context.WithCancelCause(t.Context())
			end(lock.ErrReleased)
			late := Stay{Who: "late", Lock: "x", Fence: 1, Hold: over}
			r.Judge(late, func() { t.Error("a hold that has ended is not counted") })
		})
	}
}

// quiet is a test that remembers whether it has failed.
type quiet struct {
	testing.TB
	failed []string
}

func (q *quiet) Errorf(format string, args ...any) {
	q.failed = append(q.failed, fmt.Sprintf(format, args...))
}

// A seed draws the same faults each time, and what is wrong names it.
func TestStorm(t *testing.T) {
	run := func() (happened, failed []string) {
		synctest.Test(t, func(t *testing.T) {
			q := &quiet{TB: t}
			s := New(q, 1)
			s.Blow(100, func() time.Duration { return s.UpTo(time.Second) },
				Fault{"one", 3, func() {}}, Fault{"another", 1, func() {}})
			s.Goes(time.Second, "nobody")
			happened, failed = s.happens, q.failed
		})
		return happened, failed
	}
	first, failed := run()
	again, _ := run()
	require.Equal(t, first, again)
	require.Len(t, failed, 1)
	require.Regexp(t, "seed 1, after .*: nobody was granted no lock for 1s", failed[0])
}

// A seed may leave faults out, but not all.
func TestNoSeedIsCalm(t *testing.T) {
	for seed := range uint64(64) {
		happened := 0
		harm := Fault{Name: "harm", Rate: 1, Do: func() { happened++ }}
		New(t, seed).Blow(3, func() time.Duration { return 0 }, harm, harm)
		require.Equal(t, 3, happened, seed)
	}
}
