package dmutextest

import (
	"fmt"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
)

// The lock of a group that is traced, and the time of a step of a script and of
// a T of a simulation.
const (
	tracedLock = "x"
	tracedTime = 1_000_000_000
)

// A tracer reports what machines do. The nil tracer reports nothing, and numbers
// no message.
type tracer struct {
	tell func(dmutex.NodeID, *trace.Event)
	sent map[[2]dmutex.NodeID]uint64
	out  []trace.Message // of the present input
}

func newTracer(tell func(dmutex.NodeID, *trace.Event)) *tracer {
	if tell == nil {
		return nil
	}
	return &tracer{tell: tell, sent: make(map[[2]dmutex.NodeID]uint64)}
}

func (t *tracer) born(now int64, m dmutex.Machine, s dmutex.Start) {
	if t != nil {
		t.tell(s.Self, &trace.Event{
			Time: now, What: trace.Born, Lock: tracedLock, Clock: s.Clock, Known: s.Known, Limit: s.Limit, Holder: s.Holder, Home: s.Home, Fence: s.Fence, Phase: m.Phase(),
		})
	}
}

func (t *tracer) forget(now int64, self dmutex.NodeID) {
	if t != nil {
		t.tell(self, &trace.Event{Time: now, What: trace.Forget, Lock: tracedLock})
	}
}

// send numbers a message.
func (t *tracer) send(m dmutex.Message) trace.Message {
	if t == nil {
		return trace.Message{Message: m}
	}
	way := [2]dmutex.NodeID{m.From, m.To}
	t.sent[way]++
	sent := trace.Message{Seq: t.sent[way], Message: m}
	t.out = append(t.out, sent)
	return sent
}

// did reports an input, after its output was sent.
func (t *tracer) did(now int64, m dmutex.Machine, self dmutex.NodeID, do verb, in trace.Message) {
	if t == nil {
		return
	}
	e := trace.Event{
		Time: now, What: trace.What(do.String()), Lock: tracedLock, Out: t.out, Phase: m.Phase(), Fence: m.Fence(),
	}
	if do == deliver {
		e.What, e.In = trace.Handle, in
	}
	t.tell(self, &e)
	t.out = t.out[:0]
}

// TraceScript runs a script as [RunScript] does, and returns the trace that each
// member would have recorded, in the order of the group. The lock is "x". A
// delivery takes a second; local inputs of different nodes in a row happen at the
// same time. If a check fails, TraceScript returns that as an error.
func TraceScript(algorithm dmutex.Algorithm, script string) ([]*trace.Trace, error) {
	var traces []*trace.Trace
	p := &play{group: group{algorithm: algorithm}}
	p.tracer = newTracer(func(self dmutex.NodeID, e *trace.Event) {
		kept := *e
		kept.Out = nil
		for _, m := range e.Out {
			kept.Out = append(kept.Out, trace.Message{Seq: m.Seq, Message: m.Message.Clone()})
		}
		t := traces[slices.Index(p.members, self)]
		t.Events = append(t.Events, kept)
	})
	p.begun = func() error {
		members := slices.Sorted(slices.Values(p.members))
		for _, self := range p.members {
			text, err := trace.Describe(algorithm, self, members)
			if err != nil {
				return err
			}
			traces = append(traces, &trace.Trace{
				Name: self.String(), Header: trace.Header{Self: self, Members: members, Algorithm: text},
			})
		}
		return nil
	}
	if _, err := p.run(script); err != nil {
		return nil, err
	}
	if p.failed != nil {
		return nil, fmt.Errorf("%w: %s", p.failed.Kind, p.failed.Why)
	}
	return traces, nil
}
