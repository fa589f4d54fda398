package draw

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
)

// A bar is a time in which a node waits for a lock or holds it; end is nil if
// the trace does not show its end.
type bar struct {
	node       dmutex.NodeID
	sign       int // waiting, drains, held or presumed
	fence      uint64
	attempt    uint64 // of the request, if one was sent
	begin, end *event // begin is nil if the hold is over, and the machine still has the lock

	// Of a hold.
	machine uint64 // the machine's fence, which is another one after a change of the view
	frozen  *event // the view that was installed, while the hold's machine in it is not born yet
}

// barsOf returns the bars of each lock.
func barsOf(all []*event) map[string][]*bar {
	bars, open := make(map[string][]*bar), make(map[*file]map[string]*bar)
	step := func(lock string, e *event) {
		before := open[e.file][lock]
		after := before.next(e)
		if before == after {
			return
		}
		if e.turns = true; before != nil && before.begin != nil {
			bars[lock] = append(bars[lock], before)
		}
		if delete(open[e.file], lock); after != nil {
			open[e.file][lock] = after
		}
	}
	for _, e := range all {
		if open[e.file] == nil {
			open[e.file] = make(map[string]*bar)
		}
		switch {
		case e.Lock != "":
			if e.What != trace.Forget {
				step(e.Lock, e)
			}
		case e.ends():
			for lock := range open[e.file] {
				step(lock, e)
			}
		}
	}
	for _, locks := range open {
		for lock, b := range locks {
			if b.begin != nil {
				bars[lock] = append(bars[lock], b)
			}
		}
	}
	return bars
}

// ends reports whether an event of the node may end bars.
func (e *event) ends() bool {
	switch e.What {
	case trace.View, trace.Ready, trace.Close, crashed, lapsed:
		return true
	case trace.Down:
		return e.Err != "" // else Close releases what is held
	case trace.Excluded:
		return e.Peer == e.node()
	}
	return false
}

// next returns the bar after an event, which may be the same, or nil. A hold is carried over
// from view to view; what waits has to ask again in the new one.
func (b *bar) next(e *event) *bar {
	holds := b != nil && b.sign == held && b.begin != nil
	switch {
	case e.What == trace.View && holds:
		b.frozen = e
		return b
	case e.What == trace.Ready && (b == nil || b.frozen == nil):
		return b
	case e.What == lapsed && b != nil && b.sign != held && b.sign != presumed:
		return b // it waits on
	case b != nil && b.frozen != nil && e.What == trace.Born && e.Phase == dmutex.Held:
		b.frozen, b.machine = nil, e.Fence
		return b
	}
	after := e.bar()
	switch {
	case b == nil:
		return after
	case e.What == crashed && holds && e.file.leased:
		after = &bar{node: b.node, sign: presumed, fence: b.fence, begin: e}
	case e.What == lapsed && holds:
		after = &bar{sign: held, machine: b.machine}
	case after != nil && after.sign == b.sign && (after.machine == b.machine || b.sign != held):
		return b
	}
	if b.end = e; e.What == trace.Ready {
		b.end = b.frozen // it was released in between
	}
	return after
}

// bar returns the bar that would begin with an event of a lock, nil if none does.
func (e *event) bar() *bar {
	b := &bar{node: e.node(), sign: waiting, begin: e}
	switch {
	case e.What == trace.Waits:
		b.sign = drains
	case e.Phase == dmutex.Held:
		b.sign, b.fence, b.machine = held, e.Fence, e.Fence
		if e.late {
			b.begin = nil // a grant after the end of the lease is none
		}
	case e.Phase != dmutex.Waiting:
		return nil
	case e.What == trace.Request && len(e.Out) > 0 && e.Out[0].Kind == dmutex.Request:
		b.attempt = e.Out[0].Attempt
	}
	return b
}
