// Package latelog lets code log where it must not wait, such as under a mutex.
package latelog

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	room   = 256         // how many records may wait; later ones are left out and counted
	period = time.Minute // after what time the counts of repeated records are written
	most   = 20          // how many different records of a level are written in a period
)

// A Log is a [slog.Handler] whose Handle never waits. While there are records, a goroutine
// passes them on.
type Log struct {
	out   slog.Handler
	often bool
	queue *queue
}

type queue struct {
	out     slog.Handler
	running sync.WaitGroup // the goroutine that writes

	mu      sync.Mutex
	waiting []entry
	lost    int // records that there was no room for
	writing bool
	closed  bool

	// The records of each level in this period, and those repeated in the last. The one
	// behind the first 20 stands for all others, and is the last of them.
	seen map[slog.Level][]repeated
}

type entry struct {
	to     slog.Handler
	record slog.Record
}

type repeated struct {
	entry
	text string // what equal records have in common
	came int    // how often
}

// New returns a Log that passes its records on to out.
func New(out slog.Handler) *Log {
	return &Log{out, false, &queue{out: out, seen: make(map[slog.Level][]repeated)}}
}

// Often returns the Log for records that others can cause as often as they like. A record
// that equals an earlier one of the minute is only counted, and written with the count at
// its end. Of each level 20 different records are written in a minute, followed by the
// count of those left out and the last of them.
func (l *Log) Often() *Log { return &Log{l.out, true, l.queue} }

// Close writes what waits and what was counted, and returns when that is done. Nothing is
// logged afterwards. A nil Log needs no Close.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.queue.mu.Lock()
	l.queue.sumUp()
	l.queue.closed = true
	l.queue.mu.Unlock()
	l.queue.running.Wait()
}

// Enabled implements [slog.Handler]. Only the goroutine that writes asks the handler
// behind, because its Enabled may be slow, too.
func (l *Log) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements [slog.Handler].
func (l *Log) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Log{l.out.WithAttrs(attrs), l.often, l.queue}
}

// WithGroup implements [slog.Handler].
func (l *Log) WithGroup(name string) slog.Handler {
	return &Log{l.out.WithGroup(name), l.often, l.queue}
}

// Handle implements [slog.Handler].
func (l *Log) Handle(_ context.Context, r slog.Record) error {
	q, e := l.queue, entry{l.out, r.Clone()}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !l.often || q.first(e) {
		q.put(e)
	}
	return nil
}

// put lets a record wait for the goroutine that writes. The caller has q.mu.
func (q *queue) put(e entry) {
	switch {
	case q.closed:
		return
	case len(q.waiting) >= room:
		q.lost++
		return
	}
	q.waiting = append(q.waiting, e)
	if !q.writing {
		q.writing = true
		q.running.Go(q.write)
	}
}

// write passes records on until none waits.
func (q *queue) write() {
	ctx := context.Background()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		e := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		if e.to.Enabled(ctx, e.record.Level) {
			_ = e.to.Handle(ctx, e.record) // slog ignores it, too
		}
		q.mu.Lock()
		if q.lost > 0 {
			r := slog.NewRecord(time.Now(), slog.LevelWarn, "records left out", 0)
			r.AddAttrs(slog.Int("count", q.lost))
			q.waiting, q.lost = slices.Insert(q.waiting, 0, entry{q.out, r}), 0
		}
	}
	q.writing = false
}

// first counts a record, and reports whether it is to be written now. The caller has q.mu.
func (q *queue) first(e entry) bool {
	if len(q.seen) == 0 && !q.closed {
		time.AfterFunc(period, q.endPeriod)
	}
	text := e.record.Message
	e.record.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	seen := q.seen[e.record.Level]
	i := slices.IndexFunc(seen, func(s repeated) bool { return s.text == text })
	if i < 0 {
		i = min(len(seen), most)
	}
	if i == len(seen) {
		seen = append(seen, repeated{})
		q.seen[e.record.Level] = seen
	}
	seen[i] = repeated{e, text, seen[i].came + 1}
	return seen[i].came == 1 && i < most
}

func (q *queue) endPeriod() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sumUp(); len(q.seen) > 0 {
		time.AfterFunc(period, q.endPeriod)
	}
}

// sumUp logs the counts of a period. Records that were repeated count as written in the
// next one. The caller has q.mu.
func (q *queue) sumUp() {
	ended := q.seen
	q.seen = make(map[slog.Level][]repeated)
	for level, seen := range ended {
		for i, s := range seen {
			r := s.record.Clone()
			r.Time = time.Now()
			switch {
			case i == most:
				r = slog.NewRecord(r.Time, level, "records left out", 0)
				r.AddAttrs(slog.Int("count", s.came), slog.String("last", s.text))
			case s.came == 1:
				continue
			default:
				r.AddAttrs(slog.Int("again", s.came-1))
				q.seen[level] = append(q.seen[level], repeated{s.entry, s.text, 1})
			}
			q.put(entry{s.to, r})
		}
	}
}
