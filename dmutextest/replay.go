package dmutextest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
)

// ErrDiffers marks a replay that differs from the trace. The error names file, line and
// difference.
var ErrDiffers = errors.New("dmutextest: replays differently")

// Replayed counts what [Replay] has done.
type Replayed struct {
	Machines int // machines made
	Inputs   int // inputs given to them
	Skipped  int // events of locks whose machine or view is unknown because of a gap
}

// Replay gives the recorded inputs to new machines. It stops with [ErrDiffers] at
// the first event after which the output, the phase, the fence or the error is not
// as recorded.
//
// Each machine is made with the members and the number of the view that was installed last. If
// events are missing ([trace.Gap]), Replay skips each lock until its machine is born
// again, in a known view.
func Replay(t *trace.Trace, algorithm dmutex.Algorithm) (Replayed, error) {
	r := replay{trace: t, algorithm: algorithm, self: t.Header.Self, members: t.Header.Members, machines: make(map[string]dmutex.Machine)}
	for i := range t.Events {
		e := &t.Events[i]
		if why := r.event(e); why != "" {
			return r.Replayed, fmt.Errorf("%s:%d: %w: %s: %s", t.Name, e.Line, ErrDiffers, doing(e), why)
		}
	}
	return r.Replayed, nil
}

type replay struct {
	Replayed
	trace     *trace.Trace
	algorithm dmutex.Algorithm
	self      dmutex.NodeID
	members   []dmutex.NodeID // of the view
	limit     uint64          // of its fences
	machines  map[string]dmutex.Machine
	gap       bool // events were missing
}

// event returns what is different.
func (r *replay) event(e *trace.Event) (why string) {
	m := r.machines[e.Lock]
	switch {
	case e.What == trace.Gap:
		r.gap = true
		clear(r.machines)
		return ""
	case e.What == trace.View:
		r.self, r.members, r.limit = e.Peer, e.Members, e.Limit
		if len(r.machines) > 0 {
			return fmt.Sprintf("the machine of lock %q is still there", slices.Min(slices.Collect(maps.Keys(r.machines))))
		}
		return ""
	case e.Lock == "" || e.What == trace.Waits || e.What == trace.Lose:
		return ""
	case e.What == trace.Born && m != nil:
		return "it is there already"
	case e.What == trace.Born && r.gap && e.Limit != r.limit: // the gap has its view
		r.Skipped++
		return ""
	case e.What == trace.Born:
		return r.born(e)
	case m == nil && r.gap:
		r.Skipped++
		return ""
	case m == nil:
		return "it was never born"
	case e.What == trace.Forget:
		delete(r.machines, e.Lock)
		return ""
	}
	r.Inputs++
	out, err := given(m, e)
	shared := m.Phase() == dmutex.Held && shares(m)
	switch want, got := wrote(e.Out), wrote(out); {
	case (err != nil) != (e.Err != ""):
		return fmt.Sprintf("recorded error %q, now %v", e.Err, err)
	case err == nil && got != want:
		return fmt.Sprintf("recorded %s, now %s", want, got)
	case shared != e.Shared:
		return fmt.Sprintf("recorded shared: %v, now %v", e.Shared, shared)
	case m.Phase() != e.Phase || m.Fence() != e.Fence:
		return fmt.Sprintf("recorded %v with fence %d, now %v with fence %d", e.Phase, e.Fence, m.Phase(), m.Fence())
	}
	return ""
}

// born makes a machine.
func (r *replay) born(e *trace.Event) (why string) {
	m, err := r.algorithm(dmutex.Start{
		Self: r.self, Members: r.members, Holder: e.Holder, Sharers: e.Sharers, Home: e.Home, Fence: e.Fence, Limit: e.Limit, Clock: e.Clock, Known: e.Known,
	})
	if err != nil {
		return err.Error()
	}
	r.machines[e.Lock] = m
	r.Machines++
	if m.Phase() != e.Phase {
		return fmt.Sprintf("recorded %v, now %v", e.Phase, m.Phase())
	}
	return ""
}

// given gives a machine the input of an event.
func given(m dmutex.Machine, e *trace.Event) ([]dmutex.Message, error) {
	do := deliver
	if i := slices.Index(verbs[:], string(e.What)); i >= 0 {
		do = verb(i)
	}
	_, shares := m.(dmutex.Sharer)
	_, ticks := m.(dmutex.Ticker)
	if do == share && !shares || do == tick && !ticks {
		return nil, fmt.Errorf("this machine has no %s", e.What)
	}
	return input(m, do, e.In.Message)
}

// doing says what the event is.
func doing(e *trace.Event) string {
	switch {
	case e.Lock == "":
		return string(e.What)
	case e.What == trace.Handle:
		return fmt.Sprintf("lock %q, %v", e.Lock, e.In.Message)
	default:
		return fmt.Sprintf("lock %q, %s", e.Lock, e.What)
	}
}

func wrote[M fmt.Stringer](list []M) string {
	if len(list) == 0 {
		return "no message"
	}
	var words []string
	for _, m := range list {
		words = append(words, m.String())
	}
	return strings.Join(words, ", ")
}
