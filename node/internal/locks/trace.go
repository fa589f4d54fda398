package locks

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
)

// trace records what happened to the lock.
func (l *lock) trace(e trace.Event) {
	if r := l.table.cfg.Trace; r != nil {
		e.Lock, e.Time = l.name, l.table.cfg.Mail.Now()
		r.Record(&e)
	}
}

// A step is an input of a machine and its output. It begins before the output is
// sent, so its time is before any of the messages can arrive.
type step struct {
	at   int64
	what trace.What
	in   trace.Message
	out  []trace.Message // scratch
}

// input begins the step. The machine has taken the input, and nothing was
// sent yet.
func (l *lock) input(what trace.What, in *trace.Message) {
	if l.table.cfg.Trace != nil {
		step := &l.table.step
		step.at, step.what, step.in, step.out = l.table.cfg.Mail.Now(), what, trace.Message{}, step.out[:0]
		if in != nil {
			step.in = *in
		}
	}
}

// output adds a message to the step. It has no number if it was not sent.
func (l *lock) output(seq uint64, m *dmutex.Message) {
	if l.table.cfg.Trace != nil {
		l.table.step.out = append(l.table.step.out, trace.Message{Seq: seq, Message: *m})
	}
}

// refused records an input that the machine has refused.
func (l *lock) refused(what trace.What, in *trace.Message, why error) {
	l.input(what, in)
	l.traced(why)
}

// traced records the step; why is nil unless the machine has refused the input.
func (l *lock) traced(why error) {
	r := l.table.cfg.Trace
	if r == nil {
		return
	}
	step := &l.table.step
	e := trace.Event{
		Time: step.at, What: step.what, Lock: l.name, In: step.in, Out: step.out,
		Phase: l.machine.Phase(), Fence: l.machine.Fence(),
	}
	if why != nil {
		e.Err = why.Error()
	}
	r.Record(&e)
}
