package draw

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/trace"
)

// An event is one of a trace, on the clock of the drawing.
type event struct {
	*trace.Event
	file   *file
	time   int64
	depth  int             // one more than that of any event that it depends on
	sent   *event          // of a Handle: the event that sent the message, if it is known
	causes []*event        // that, and of a Ready: where the members have installed the view
	before []dmutex.NodeID // who were the members, as far as is known: of a View, before it
	again  bool            // of a Met: the peer has restarted, and the new life has no trace
	late   bool            // the lease had ended before
	turns  bool            // a bar begins or ends here
	out    []*arrow        // the messages that it sent
	x      float64         // see layout
}

func (e *event) node() dmutex.NodeID { return e.file.self }

// A file is one life of a trace, on the clock of the drawing. With a store, a process that was
// excluded goes on as another life.
type file struct {
	trace    *trace.Trace
	self     dmutex.NodeID
	events   []*event
	placed   int             // events that have a time on the clock of the drawing
	offset   *int64          // to be added to the times of the trace
	life     uint64          // of the process
	former   dmutex.NodeID   // the number of the life before it in the trace
	epoch    uint64          // of the last view that it has installed
	excluded []dmutex.NodeID // that it has seen go
	leased   bool            // it has a lease
	until    int64           // when the lease ends, by the clock of the trace
	closed   bool            // the life ended in good order, or was excluded
	gap      bool            // events are missing
	lost     []trace.Message // on their way here, by a script
	whole    bool            // the trace has every message that came: it has no gap, and was not cut off before the end
}

// An arrow is a message.
type arrow struct {
	trace.Message
	lock       string
	send       *event   // nil if it is not in the traces
	recv       []*event // one, unless the network repeats; none if it did not arrive, or not in the traces
	unfollowed bool     // the receiver's trace would not tell whether it arrived
	lost       bool     // a script loses it
	flying     bool     // it is of a script, which ends before it arrives
	unsent     bool     // it came, and the sender's trace does not have it, although it is whole
	stale      bool     // the receiver had a later view, so it dropped the message if it arrived
}

// A number says which message it is, in all traces.
type number struct {
	from, to         dmutex.NodeID
	fromLife, toLife uint64
	seq              uint64
}

// The events that a trace does not have.
const (
	started trace.What = "started"
	crashed trace.What = "crashed" // it ended without a Close, and a later life has begun, or the others have excluded it
	lapsed  trace.What = "lapsed"  // its lease has ended
)

// align brings the traces to one clock and finds out what belongs together.
//
// The traces are first aligned by their wall clocks. Then each is shifted to later by the
// least amount that makes every message arrive no earlier than it was sent, and every view act
// no earlier than its members have installed it. If the clocks drift so much that no shift is
// enough, the events that are still too early are moved alone.
func align(traces []*trace.Trace) ([]*file, []*arrow, error) {
	files, err := open(traces)
	if err != nil {
		return nil, nil, err
	}
	arrows := match(files)
	shift(files)
	return files, arrows, follow(files)
}

func open(traces []*trace.Trace) (files []*file, err error) {
	virtual := slices.ContainsFunc(traces, func(t *trace.Trace) bool { return t.Header.Opened == 0 })
	for i, t := range traces {
		for _, other := range traces[:i] {
			switch h, o := &t.Header, &other.Header; {
			case h.Group != o.Group || !slices.Equal(h.Members, o.Members):
				return nil, fmt.Errorf("%s and %s are of different groups: take one at a time", other.Name, t.Name)
			case h.Self == o.Self && h.Life == o.Life:
				return nil, fmt.Errorf("%s and %s are both of one run of a process", other.Name, t.Name)
			}
		}
		offset := new(int64)
		if !virtual {
			*offset = t.Header.Opened - traces[0].Header.Opened
		}
		files = append(files, lives(t, offset)...)
	}
	for _, f := range files {
		if !virtual {
			f.bound(files)
		}
		slices.SortStableFunc(f.events, func(a, b *event) int { return cmp.Compare(a.Time, b.Time) })
	}
	return files, nil
}

// lives returns the lives of a trace that had a number.
func lives(t *trace.Trace, offset *int64) (files []*file) {
	var f *file
	next := func(former dmutex.NodeID) {
		f = &file{trace: t, self: t.Header.Self, life: t.Header.Life, former: former, offset: offset}
		files = append(files, f)
	}
	next(dmutex.None)
	members, met := t.Header.Members, make(map[dmutex.NodeID]uint64)
	events := slices.Clone(t.Events)
	slices.SortStableFunc(events, func(a, b trace.Event) int { return cmp.Compare(a.Time, b.Time) })
	for i := range events {
		e := &events[i]
		if e.What == trace.View && f.self != dmutex.None && f.self != e.Peer { // a gap has the end of that life
			next(f.self)
		}
		if e.What == trace.Lose {
			f.lost = append(f.lost, e.In)
			continue
		}
		own := &event{Event: e, file: f, late: f.leased && e.Time > f.until, before: members}
		f.events = append(f.events, own)
		switch e.What {
		case trace.Met:
			own.again = met[e.Peer] != 0 && met[e.Peer] != e.Life
			met[e.Peer] = e.Life
		case trace.Gap:
			f.gap = true
		case trace.Close:
			f.lapse(e.Time)
			f.closed = true
		case trace.View:
			f.self, f.life, f.epoch = e.Peer, e.Life, e.N // before the first it had no locks
			if t.Header.Members == nil {
				members = e.Members
			}
		case trace.Lease:
			f.lapse(e.Time)
			f.leased, f.until = true, e.Time+int64(min(e.N, 1<<62))
		case trace.Excluded:
			if f.excluded = append(f.excluded, e.Peer); e.Peer == f.self {
				f.lapse(e.Time)
				f.closed = true
				next(f.self)
				members = nil
			}
		}
	}
	for _, f := range files {
		f.whole = !f.gap && !t.Cut && (f.closed || t.Header.Opened == 0) // there is no end to a script
	}
	return slices.DeleteFunc(files, func(f *file) bool { return f.self == dmutex.None })
}

// lapse notes that the lease had ended by then, if it had.
func (f *file) lapse(by int64) {
	if f.leased && f.until < by {
		f.events = append(f.events, &event{Event: &trace.Event{What: lapsed, Time: f.until}, file: f})
	}
}

// bound adds the beginning and the end of the process to its events, and finds out
// which of the other nodes' lives in the file have a file, too.
func (f *file) bound(files []*file) {
	if len(f.events) == 0 {
		return
	}
	for _, e := range f.events {
		e.again = e.again && !slices.ContainsFunc(files, func(o *file) bool {
			return o.self == e.Peer && (o.life == e.Life || o.trace.Header.Life == e.Life)
		})
	}
	first, last := f.events[0].Time, f.events[len(f.events)-1]
	gone := func(o *file) bool { return slices.Contains(o.excluded, f.self) } // its number is not given again
	if f.trace.Header.Self != dmutex.None {
		first = min(first, 0)
		gone = func(o *file) bool { return o.self == f.self && o.trace.Header.Opened > f.trace.Header.Opened }
	}
	f.events = slices.Insert(f.events, 0, &event{Event: &trace.Event{What: started, Time: first}, file: f})
	if !f.closed && slices.ContainsFunc(files, gone) {
		f.events = append(f.events, &event{Event: &trace.Event{What: crashed, Time: max(last.Time, last.Time+1), Line: last.Line}, file: f})
		f.lapse(math.MaxInt64)
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
	installed := make(map[uint64][]*event)    // where each view was, once a life
	for _, f := range files {
		anyLife[f.self] = f.life
		last := uint64(0)
		for _, e := range f.events {
			if e.What == trace.View && e.N > last {
				installed[e.N], last = append(installed[e.N], e), e.N
			}
		}
	}
	for _, f := range files {
		self, lives := f.self, maps.Clone(anyLife)
		for _, e := range f.events {
			switch e.What {
			case trace.Met:
				lives[e.Peer] = e.Life
			case trace.Handle:
				receipts = append(receipts, receipt{e, number{e.In.From, self, lives[e.In.From], f.life, e.In.Seq}})
			case trace.Ready:
				e.causes = installed[e.N]
			}
			for i := range e.Out {
				a := &arrow{Message: e.Out[i], lock: e.Lock, send: e, unfollowed: true}
				for _, o := range files {
					if o.self == a.To && o.life == lives[a.To] {
						a.unfollowed, a.flying, a.stale = !o.whole, o.whole && !o.closed, epochs.Of(a.Fence) < o.epoch
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
	for _, f := range files {
		for _, m := range f.lost {
			if a := byNumber[number{m.From, f.self, anyLife[m.From], f.life, m.Seq}]; a != nil {
				a.lost = true
			}
		}
	}
	for _, r := range receipts {
		e, a := r.event, byNumber[r.number]
		if a == nil || a.lock != e.Lock {
			a = &arrow{Message: e.In, lock: e.Lock}
			for _, o := range files {
				a.unsent = a.unsent || o.whole && o.self == a.From && o.life == r.number.fromLife
			}
			arrows = append(arrows, a)
		}
		a.recv = append(a.recv, e)
		if e.sent = a.send; e.sent != nil {
			e.causes = []*event{e.sent}
		}
	}
	return arrows
}

// shift moves traces to later until no event comes before what it depends on. No trace
// moves further than it must. Unless clocks drift, this takes at most as many rounds
// as there are traces.
func shift(files []*file) {
	for range files {
		moved := false
		for _, f := range files {
			for _, e := range f.events {
				for _, c := range e.causes {
					if late := c.Time + *c.file.offset - e.Time - *f.offset; late > 0 {
						*f.offset += late
						moved = true
					}
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
	for progress := true; progress; {
		progress = false
		for _, f := range files {
			before := f.placed
			f.follow()
			progress = progress || f.placed > before
		}
	}
	if slices.ContainsFunc(files, func(f *file) bool { return f.placed < len(f.events) }) {
		return fmt.Errorf("%w: the traces contradict each other: some events would have to come before each other", trace.ErrFormat)
	}
	return nil
}

// follow goes on up to an event that depends on one without a time.
func (f *file) follow() {
	for _, e := range f.events[f.placed:] {
		if slices.ContainsFunc(e.causes, func(c *event) bool { return c.depth == 0 }) {
			return
		}
		e.time, e.depth = e.Time+*f.offset, 1
		if f.placed > 0 {
			e.after(f.events[f.placed-1])
		}
		for _, c := range e.causes {
			e.after(c)
		}
		f.placed++
	}
}

func (e *event) after(cause *event) {
	e.time = max(e.time, cause.time)
	e.depth = max(e.depth, cause.depth+1)
}
