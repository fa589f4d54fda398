package draw

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
)

// A bar is a time in which a node waits for a lock or holds it; end is nil if
// the trace does not show its end.
type bar struct {
	node       dmutex.NodeID
	sign       int // waiting, drains, held or presumed
	fence      uint64
	shared     bool
	attempt    uint64 // of the request, if one was sent
	begin, end *event // begin is nil if the hold is over, and the machine still has the lock

	// Of a hold.
	machine uint64 // the machine's fence, which is another one after a change of the view
	until   int64  // see over
	frozen  *event // the view that was installed, while the hold's machine in it is not born yet
}

// barsOf returns the bars of each lock.
func barsOf(all []*event) map[string][]*bar {
	type place struct {
		file *file
		lock string
	}
	bars, open := make(map[string][]*bar), make(map[place]*bar)
	step := func(lock string, e *event) {
		at := place{e.file, lock}
		before := open[at]
		after := before.next(e)
		if before == after {
			return
		}
		if e.turns = true; before != nil && before.begin != nil {
			bars[lock] = append(bars[lock], before)
		}
		if open[at] = after; after == nil { // a key that was deleted and set again might be ranged over twice
			delete(open, at)
		}
	}
	for _, e := range all {
		switch {
		case e.Lock != "":
			if e.What != trace.Forget {
				step(e.Lock, e)
			}
		case e.ends():
			for at := range open {
				if at.file == e.file {
					step(at.lock, e)
				}
			}
		}
	}
	for at, b := range open {
		if b.begin != nil {
			bars[at.lock] = append(bars[at.lock], b)
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
		after = &bar{node: b.node, sign: presumed, fence: b.fence, shared: b.shared, begin: e}
	case e.What == lapsed && holds:
		after = &bar{sign: held, shared: b.shared, machine: b.machine}
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
		b.sign, b.fence, b.machine, b.shared = held, e.Fence, e.Fence, e.Shared
		if e.late {
			b.begin = nil // a grant after the end of the lease is none
		}
	case e.Phase != dmutex.Waiting:
		return nil
	case (e.What == trace.Request || e.What == trace.Share) && len(e.Out) > 0 && (e.Out[0].Kind == dmutex.Request || e.Out[0].Kind == dmutex.Share):
		b.attempt = e.Out[0].Attempt
	}
	return b
}

// A Verdict is what the traces of a group say together.
type Verdict struct {
	Locks  int      // that were granted
	Grants int      // of these
	Faults []string // each with a file and a line; empty if all is right
}

// Judge finds out whether traces agree, and whether any two nodes held a lock at a time. Of two
// holds, unless both share the lock, the one with the lower fence must have ended before the other begins: by a release, by
// the end of the lease, or by the end of the process if it was excluded and a store has proved
// its end. What a trace that was cut off lacks is no fault. The error is that of
// [New] for traces that do not belong together.
func Judge(traces []*trace.Trace) (v Verdict, err error) {
	files, arrows, err := align(traces)
	if err != nil {
		return v, err
	}
	v.views(files)
	for _, a := range arrows {
		v.message(a)
	}
	bars, proved := barsOf(inOrder(files)), proofs(files)
	for _, lock := range slices.Sorted(maps.Keys(bars)) {
		v.lock(lock, bars[lock], proved)
	}
	return v, nil
}

func (v *Verdict) fault(at *event, format string, args ...any) {
	v.Faults = append(v.Faults, fmt.Sprintf("%s:%d: ", at.file.trace.Name, at.Line)+fmt.Sprintf(format, args...))
}

// views finds views of one epoch with different members.
func (v *Verdict) views(files []*file) {
	first := make(map[uint64]*event)
	for _, f := range files {
		for _, e := range f.events {
			switch o := first[e.N]; {
			case e.What != trace.View:
			case o == nil:
				first[e.N] = e
			case !slices.Equal(o.Members, e.Members):
				v.fault(e, "view %d has the members %v here, and %v for N%d", e.N, e.Members, o.Members, o.node())
			}
		}
	}
}

// message finds out whether what came is what was sent.
func (v *Verdict) message(a *arrow) {
	for _, e := range a.recv {
		switch {
		case a.unsent:
			v.fault(e, "lock %q: %v came here, and N%d has not sent it", e.Lock, e.In, a.From)
		case a.send != nil && a.String() != e.In.String():
			v.fault(e, "lock %q: %v came here, and N%d has sent %v", e.Lock, e.In, a.From, a)
		}
	}
}

// lock judges the holds of a lock.
func (v *Verdict) lock(lock string, bars []*bar, proved map[dmutex.NodeID]int64) {
	var holds []*bar
	for _, b := range bars {
		if b.sign == held || b.sign == presumed && b.begin.time > max(proved[b.node], proved[dmutex.None]) {
			b.until = b.over()
			holds = append(holds, b)
		}
	}
	slices.SortStableFunc(holds, func(a, b *bar) int {
		return cmp.Or(cmp.Compare(a.fence, b.fence), cmp.Compare(a.begin.time, b.begin.time))
	})
	var last [2]*bar // the ones that end last, of those before that hold it alone, and that share it
	for _, h := range holds {
		k := 0
		if h.shared {
			k = 1
		}
		if h.sign == held {
			v.Grants++
			v.follows(lock, h, last[0])
			if !h.shared {
				v.follows(lock, h, last[1])
			}
		}
		if last[k] == nil || h.until >= last[k].until {
			last[k] = h
		}
	}
	if len(holds) > 0 {
		v.Locks++
	}
}

// follows judges a hold by one before it that it conflicts with, nil if there is none.
func (v *Verdict) follows(lock string, h, last *bar) {
	switch {
	case last == nil:
	case h.fence == last.fence:
		v.fault(h.begin, "lock %q: N%d was granted fence %s, which N%d was granted before", lock, h.node, fence(h.fence), last.node)
	case h.begin.time < last.until:
		v.fault(h.begin, "lock %q: N%d was granted fence %s %s before N%d had given up fence %s (%s:%d)", lock, h.node, fence(h.fence),
			span(last.until-h.begin.time), last.node, fence(last.fence), last.begin.file.trace.Name, last.begin.Line)
	case last.end == nil && h.begin.numbered() && !h.begin.file.gap && !slices.Contains(h.begin.before, last.node):
		v.fault(h.begin, "lock %q: N%d was granted fence %s in a view without N%d, which has fence %s, and was not excluded (%s:%d)", lock, h.node, fence(h.fence),
			last.node, fence(last.fence), last.begin.file.trace.Name, last.begin.Line)
	}
}

// over returns when the bar has ended. If the trace does not show that, the bar counts up to the
// first gap or the end of the trace.
func (b *bar) over() int64 {
	f := b.begin.file
	until := f.events[len(f.events)-1].time
	if b.end != nil {
		until = b.end.time
	}
	if f.gap {
		for _, e := range f.events {
			if e.What == trace.Gap && e.time >= b.begin.time {
				return min(until, e.time)
			}
		}
	}
	return until
}

// proofs returns when a store was last seen to prove that a process has ended. None stands for all
// that are no members.
func proofs(files []*file) map[dmutex.NodeID]int64 {
	proved := make(map[dmutex.NodeID]int64)
	for _, f := range files {
		for _, e := range f.events {
			if e.What == trace.Dead && e.N > 0 {
				proved[e.Peer] = max(proved[e.Peer], e.time)
			}
		}
	}
	return proved
}

// numbered reports whether the numbers of the group come from a store.
func (e *event) numbered() bool { return e.file.trace.Header.Self == dmutex.None }
