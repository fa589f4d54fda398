package locks

import "github.com/dmutex/dmutex/trace"

// trace records what happened to the lock, now unless e says when.
func (l *lock) trace(e trace.Event) {
	if r := l.table.cfg.Trace; r != nil {
		if e.Time == 0 {
			e.Time = l.table.cfg.Mail.Now()
		}
		e.Lock = l.name
		r.Record(&e)
	}
}

// step returns an input of the machine, which has taken or refused it, or nil without a recorder.
// in is the message of a Handle, else nil. The time is before that of the output's arrival.
func (l *lock) step(what trace.What, in *trace.Message) *trace.Event {
	if l.table.cfg.Trace == nil {
		return nil
	}
	e := &trace.Event{Time: l.table.cfg.Mail.Now(), What: what, Phase: l.machine.Phase(), Fence: l.machine.Fence()}
	if in != nil {
		e.In = *in
	}
	return e
}

// refused records an input that the machine has refused.
func (l *lock) refused(what trace.What, in *trace.Message, why error) {
	if e := l.step(what, in); e != nil {
		e.Err = why.Error()
		l.trace(*e)
	}
}
