package dmutextest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
)

// In a trace, a step of a script and a T of a simulation take a second.
const second = 1_000_000_000

// A tracer makes the events of a group and passes them to tell. If tell is nil, it does nothing
// and numbers no messages.
type tracer struct {
	tell func(dmutex.NodeID, *trace.Event)
	sent map[[2]dmutex.NodeID]uint64
	out  []trace.Message // since the last event
}

func newTracer(tell func(dmutex.NodeID, *trace.Event)) tracer {
	return tracer{tell: tell, sent: make(map[[2]dmutex.NodeID]uint64)}
}

// send numbers a message, which is part of the next event.
func (t *tracer) send(m dmutex.Message) trace.Message {
	sent := trace.Message{Message: m}
	if t.tell != nil {
		way := [2]dmutex.NodeID{m.From, m.To}
		t.sent[way]++
		sent.Seq = t.sent[way]
		t.out = append(t.out, sent)
	}
	return sent
}

func (t *tracer) event(now int64, self dmutex.NodeID, e *trace.Event) {
	e.Time, e.Lock, e.Out = now, "x", t.out
	t.tell(self, e)
	t.out = nil
}

func (t *tracer) born(now int64, s dmutex.Start, m dmutex.Machine) {
	if t.tell != nil {
		t.event(now, s.Self, &trace.Event{
			What: trace.Born, Clock: s.Clock, Known: s.Known, Limit: s.Limit, Holder: s.Holder, Sharers: s.Sharers, Home: s.Home, Fence: s.Fence, Phase: m.Phase(), Shared: sharing(m),
		})
	}
}

// did reports an input, after its output was sent.
func (t *tracer) did(now int64, self dmutex.NodeID, do verb, in trace.Message, m dmutex.Machine) {
	if t.tell != nil {
		e := trace.Event{What: trace.What(do.String()), In: in, Phase: m.Phase(), Fence: m.Fence(), Shared: sharing(m)}
		if !do.local() {
			e.What = trace.Handle
		}
		t.event(now, self, &e)
	}
}

// lost reports that a message was lost on its way to a node.
func (t *tracer) lost(now int64, self dmutex.NodeID, in trace.Message) {
	if t.tell != nil {
		t.event(now, self, &trace.Event{What: trace.Lose, In: in})
	}
}

// sharing reports whether a machine is Held to share.
func sharing(m dmutex.Machine) bool {
	s, ok := m.(dmutex.Sharer)
	return ok && m.Phase() == dmutex.Held && s.Shared()
}

// TraceScript runs a script as [RunScript] does, and returns the trace that each
// member would have recorded, in the order of the group. The lock is "x". A
// delivery takes a second; local inputs of different nodes in a row happen at the
// same time. If a check fails, TraceScript returns that as an error, with the traces.
func TraceScript(algorithm dmutex.Algorithm, script string) ([]*trace.Trace, error) {
	events := make(map[dmutex.NodeID][]trace.Event)
	p := &play{config: Config{Algorithm: algorithm}}
	p.tracer = newTracer(func(self dmutex.NodeID, e *trace.Event) { events[self] = append(events[self], *e) })
	if _, err := p.run(script); err != nil {
		return nil, err
	}
	var traces []*trace.Trace
	members := slices.Sorted(slices.Values(p.config.Members))
	for _, self := range p.config.Members {
		text, err := trace.Describe(algorithm, self, members)
		if err != nil {
			return nil, err
		}
		header := trace.Header{Self: self, Members: members, Algorithm: text}
		traces = append(traces, &trace.Trace{Name: self.String(), Header: header, Events: events[self]})
	}
	if v := p.failed; v != nil {
		return traces, fmt.Errorf("%w: %s", v.Kind, v.Why)
	}
	return traces, nil
}

// SaveTrace writes what [TraceScript] returns into the files 1.trace, 2.trace and so on of a directory, which it makes.
// The command "dmutex trace draw" draws them, so a violation of any machine can be looked at:
//
//	var v *dmutextest.Violation
//	if errors.As(err, &v) {
//		dmutextest.SaveTrace("run", newMachine, v.Script)
//	}
//
// A check that fails, as it does in the script of a violation, is no error of SaveTrace.
func SaveTrace(dir string, algorithm dmutex.Algorithm, script string) error {
	traces, err := TraceScript(algorithm, script)
	if len(traces) == 0 {
		return err
	}
	err = os.MkdirAll(dir, 0o755)
	for _, t := range traces {
		var b bytes.Buffer
		err = errors.Join(err, t.Write(&b), os.WriteFile(filepath.Join(dir, t.Name+".trace"), b.Bytes(), 0o644))
	}
	return err
}
