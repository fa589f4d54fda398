package draw

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/trace"
)

// An event is one of a trace, on the clock of the drawing.
type event struct {
	*trace.Event
	file  *file
	time  int64
	depth int      // one more than that of any event that it depends on
	sent  *event   // of a Handle: the event that sent the message, if it is known
	known bool     // of a Restarted: the new life has a trace, too
	out   []*arrow // the messages that it sent
	x     float64  // see layout
}

func (e *event) node() dmutex.NodeID { return e.file.trace.Header.Self }

// A file is a trace, on the clock of the drawing.
type file struct {
	trace  *trace.Trace
	events []*event
	offset int64  // to be added to its times
	life   uint64 // of the process
	epoch  uint64 // of the last view that it has installed
	closed bool   // the process shut down gracefully
	whole  bool   // the trace has every message that came: it has no gap, and was not cut off before the shutdown
}

// An arrow is a message.
type arrow struct {
	trace.Message
	lock       string
	send       *event   // nil if it is not in the traces
	recv       []*event // one, unless the network repeats; none if it did not arrive, or not in the traces
	unfollowed bool     // the receiver's trace would not tell whether it arrived
	stale      bool     // the receiver had a later view, so it dropped the message if it arrived
}

// A number says which message it is, in all traces.
type number struct {
	from, to         dmutex.NodeID
	fromLife, toLife uint64
	seq              uint64
}

// The events that the beginning and the end of a file stand for.
const (
	started trace.What = "started"
	crashed trace.What = "crashed" // it ended without a Close, and a later life has begun
)

// align brings the traces to one clock and finds out what belongs together.
//
// The files are first aligned by their wall clocks. Then each file is shifted to
// later by the least amount that makes every message arrive no earlier than it was
// sent. If the clocks drift so much that no shift is enough, the events that are still
// too early are moved alone.
func align(traces []*trace.Trace) ([]*file, []*arrow, error) {
	files, err := open(traces)
	if err != nil {
		return nil, nil, err
	}
	arrows := match(files)
	shift(files, arrows)
	return files, arrows, follow(files)
}

func open(traces []*trace.Trace) ([]*file, error) {
	var files []*file
	virtual := slices.ContainsFunc(traces, func(t *trace.Trace) bool { return t.Header.Opened == 0 })
	for _, t := range traces {
		f := &file{trace: t}
		for _, other := range files {
			switch h, o := &t.Header, &other.trace.Header; {
			case h.Group != o.Group || !slices.Equal(h.Members, o.Members):
				return nil, fmt.Errorf("%s and %s are of different groups: draw one group at a time", other.trace.Name, t.Name)
			case h.Self == o.Self && h.Life == o.Life:
				return nil, fmt.Errorf("%s and %s are both of node %d", other.trace.Name, t.Name, h.Self)
			}
		}
		if !virtual {
			f.offset = t.Header.Opened - traces[0].Header.Opened
		}
		for i := range t.Events {
			f.events = append(f.events, &event{Event: &t.Events[i], file: f})
		}
		slices.SortStableFunc(f.events, func(a, b *event) int { return cmp.Compare(a.Time, b.Time) })
		f.life = t.Header.Life
		gap := false
		for _, e := range f.events {
			switch e.What {
			case trace.Gap:
				gap = true
			case trace.Close:
				f.closed = true
			case trace.View:
				f.life, f.epoch = e.Life, e.N // before the first it had no locks
			}
		}
		f.whole = !gap && !t.Cut && (f.closed || t.Header.Opened == 0) // there is no end to a script
		files = append(files, f)
	}
	if !virtual {
		for _, f := range files {
			f.bound(files)
		}
	}
	return files, nil
}

// bound adds the beginning and the end of the process to its events, and finds out
// which of the other nodes' lives in the file have a file, too.
func (f *file) bound(files []*file) {
	if len(f.events) == 0 {
		return
	}
	for _, e := range f.events {
		e.known = e.What == trace.Restarted && slices.ContainsFunc(files, func(o *file) bool {
			return o.trace.Header.Self == e.Peer && (o.life == e.Life || o.trace.Header.Life == e.Life)
		})
	}
	replaced := slices.ContainsFunc(files, func(o *file) bool {
		return o.trace.Header.Self == f.trace.Header.Self && o.trace.Header.Opened > f.trace.Header.Opened
	})
	first, last := f.events[0].Time, f.events[len(f.events)-1].Time
	f.events = slices.Insert(f.events, 0, &event{Event: &trace.Event{What: started, Time: min(first, 0)}, file: f})
	if replaced && !f.closed {
		f.events = append(f.events, &event{Event: &trace.Event{What: crashed, Time: max(last, last+1)}, file: f})
	}
}

// match finds for each message where it was sent and where it was received.
func match(files []*file) (arrows []*arrow) {
	type receipt struct {
		event  *event
		number number
	}
	var receipts []receipt
	byNumber := make(map[number]*arrow)
	anyLife := make(map[dmutex.NodeID]uint64) // of each node, for files that do not say which they have met
	for _, f := range files {
		anyLife[f.trace.Header.Self] = f.life
	}
	for _, f := range files {
		self, lives := f.trace.Header.Self, maps.Clone(anyLife)
		for _, e := range f.events {
			switch e.What {
			case trace.Met, trace.Restarted:
				lives[e.Peer] = e.Life
			case trace.Handle:
				receipts = append(receipts, receipt{e, number{e.In.From, self, lives[e.In.From], f.life, e.In.Seq}})
			}
			for i := range e.Out {
				a := &arrow{Message: e.Out[i], lock: e.Lock, send: e, unfollowed: true}
				for _, o := range files {
					if o.trace.Header.Self == a.To && o.life == lives[a.To] {
						a.unfollowed, a.stale = !o.whole, membership.EpochOf(a.Fence) < o.epoch
					}
				}
				e.out = append(e.out, a)
				arrows = append(arrows, a)
				if a.Seq > 0 {
					byNumber[number{self, a.To, f.life, lives[a.To], a.Seq}] = a
				}
			}
		}
	}
	for _, r := range receipts {
		e, a := r.event, byNumber[r.number]
		if a == nil || a.lock != e.Lock {
			a = &arrow{Message: e.In, lock: e.Lock}
			arrows = append(arrows, a)
		}
		a.recv = append(a.recv, e)
		e.sent = a.send
	}
	return arrows
}

// shift moves files to later until no message arrives before it was sent. No file
// moves further than it must. Unless clocks drift, this takes at most as many rounds
// as there are files.
func shift(files []*file, arrows []*arrow) {
	for range files {
		moved := false
		for _, a := range arrows {
			for _, r := range a.recv {
				if a.send == nil {
					continue
				}
				if late := a.send.Time + a.send.file.offset - r.Time - r.file.offset; late > 0 {
					r.file.offset += late
					moved = true
				}
			}
		}
		if !moved {
			return
		}
	}
}

// follow gives the events their times, each no earlier than what it depends on.
func follow(files []*file) error {
	next := make([]int, len(files))
	for done := false; !done; {
		done = true
		progress := false
		for i, f := range files {
			for next[i] < len(f.events) {
				e := f.events[next[i]]
				if e.sent != nil && e.sent.depth == 0 {
					done = false
					break
				}
				e.time, e.depth = e.Time+f.offset, 1
				if next[i] > 0 {
					e.after(f.events[next[i]-1])
				}
				if e.sent != nil {
					e.after(e.sent)
				}
				next[i]++
				progress = true
			}
		}
		if !done && !progress {
			return fmt.Errorf("%w: the traces contradict each other: each of some messages was received before another was sent", trace.ErrFormat)
		}
	}
	return nil
}

func (e *event) after(cause *event) {
	e.time = max(e.time, cause.time)
	e.depth = max(e.depth, cause.depth+1)
}
