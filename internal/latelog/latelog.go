// Package latelog logs where code must not wait, such as under a mutex.
package latelog

import (
	"cmp"
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

// A Log passes records on to the handler of a logger, and never waits for it: while there are
// records, a goroutine calls it. A nil Log drops them.
type Log struct {
	out     slog.Handler
	running sync.WaitGroup // the goroutine that writes

	mu      sync.Mutex
	waiting []slog.Record // the first is being written
	lost    int           // records that there was no room for
	closed  bool

	// The records of each level in this period, and those repeated in the last. The one
	// behind the first 20 stands for all others, and is the last of them.
	seen map[slog.Level][]repeated
}

type repeated struct {
	record slog.Record
	text   string // what equal records have in common
	came   int    // how often
}

// New returns a Log for the first of the loggers that is not nil, or nil.
func New(loggers ...*slog.Logger) *Log {
	to := cmp.Or(loggers...)
	if to == nil {
		return nil
	}
	return &Log{out: to.Handler(), seen: make(map[slog.Level][]repeated)}
}

// Close writes what waits and what was counted, and returns when that is done. Nothing is logged afterwards.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.sumUp()
	l.closed = true
	l.mu.Unlock()
	l.running.Wait()
}

// Log writes a record.
func (l *Log) Log(level slog.Level, text string, attrs ...slog.Attr) {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.put(record(level, text, attrs...))
	}
}

// Often is Log for records that others can cause as often as they like. A record that equals an earlier one of the
// minute is only counted, and written with the count at its end. Of each level 20 different records are written in a
// minute, followed by the count of those left out and the last of them.
func (l *Log) Often(level slog.Level, text string, attrs ...slog.Attr) {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.count(record(level, text, attrs...))
	}
}

const leftOut = "records left out"

func record(level slog.Level, text string, attrs ...slog.Attr) slog.Record {
	r := slog.NewRecord(time.Now(), level, text, 0)
	r.AddAttrs(attrs...)
	return r
}

// put lets a record wait for the goroutine that writes. The caller has l.mu.
func (l *Log) put(r slog.Record) {
	switch {
	case l.closed:
	case len(l.waiting) > room:
		l.lost++
	default:
		if l.waiting = append(l.waiting, r); len(l.waiting) == 1 {
			l.running.Go(l.write)
		}
	}
}

// write passes records on until none waits.
func (l *Log) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) > 0 {
		r := l.waiting[0]
		l.mu.Unlock()
		l.pass(r)
		l.mu.Lock()
		if l.waiting = l.waiting[1:]; l.lost > 0 {
			l.waiting = slices.Insert(l.waiting, 0, record(slog.LevelWarn, leftOut, slog.Int("count", l.lost)))
			l.lost = 0
		}
	}
}

// pass calls the handler. Its Enabled may be slow, too.
func (l *Log) pass(r slog.Record) {
	if ctx := context.Background(); l.out.Enabled(ctx, r.Level) {
		_ = l.out.Handle(ctx, r) // slog ignores it, too
	}
}

// count counts a record, and puts it if it is to be written now. The caller has l.mu.
func (l *Log) count(r slog.Record) {
	if len(l.seen) == 0 && !l.closed {
		time.AfterFunc(period, l.endPeriod)
	}
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	seen := l.seen[r.Level]
	i := slices.IndexFunc(seen, func(s repeated) bool { return s.text == text })
	if i < 0 {
		i = min(len(seen), most)
	}
	if i == len(seen) {
		seen = append(seen, repeated{})
		l.seen[r.Level] = seen
	}
	seen[i] = repeated{r, text, seen[i].came + 1}
	if seen[i].came == 1 && i < most {
		l.put(r)
	}
}

func (l *Log) endPeriod() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sumUp(); len(l.seen) > 0 {
		time.AfterFunc(period, l.endPeriod)
	}
}

// sumUp logs the counts of a period. Records that were repeated count as written in the
// next one. The caller has l.mu.
func (l *Log) sumUp() {
	ended := l.seen
	l.seen = make(map[slog.Level][]repeated)
	for level, seen := range ended {
		for i, s := range seen {
			r := s.record.Clone()
			r.Time = time.Now()
			switch {
			case i == most:
				r = record(level, leftOut, slog.Int("count", s.came), slog.String("last", s.text))
			case s.came == 1:
				continue
			default:
				r.AddAttrs(slog.Int("again", s.came-1))
				l.seen[level] = append(l.seen[level], repeated{s.record, s.text, 1})
			}
			l.put(r)
		}
	}
}
