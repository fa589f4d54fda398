package latelog

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// period is after what time the counts are written.
	period = time.Minute

	// most is how many different records of a level are written in a period.
	most = 20
)

// A throttle counts the records of a period.
type throttle struct {
	mu   sync.Mutex
	seen []told // in this period, or repeated in the last
}

// told is a record and how often it came again. The one after the first 20 of a level
// was not written: it stands for all that there is no room for, and is the last of them.
type told struct {
	log    *Log
	record slog.Record
	text   string
	again  int
	extra  bool
}

// Often returns a handler for records that others can cause as often as they like. Run
// counts by the minute. A record that equals an earlier one of the minute is only
// counted, and written with the count at its end. Of each level 20 different records are
// written in a minute, followed by the count of those left out and the last of them.
func (l *Log) Often() slog.Handler { return often{l} }

type often struct{ *Log }

func (o often) WithAttrs(attrs []slog.Attr) slog.Handler {
	return often{o.Log.WithAttrs(attrs).(*Log)}
}

func (o often) WithGroup(name string) slog.Handler { return often{o.Log.WithGroup(name).(*Log)} }

func (o often) Handle(ctx context.Context, r slog.Record) error {
	now := told{log: o.Log, record: r.Clone(), text: text(&r)}
	t := &o.queue.throttle
	t.mu.Lock()
	defer t.mu.Unlock()
	same := 0 // how many are of this level
	for i := range t.seen {
		s := &t.seen[i]
		switch {
		case s.record.Level != r.Level:
			continue
		case s.extra:
			now.again, now.extra = s.again+1, true
			*s = now
			return nil
		case s.text == now.text:
			s.again++
			return nil
		}
		same++
	}
	if same == most {
		now.again, now.extra = 1, true
		t.seen = append(t.seen, now)
		return nil
	}
	t.seen = append(t.seen, now)
	return o.Log.Handle(ctx, r)
}

// text is what equal records have in common.
func text(r *slog.Record) string {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	return b.String()
}

// sumUp ends a period and logs its counts. Records that were repeated count as written in
// the next one.
func (t *throttle) sumUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var kept []told
	for _, s := range t.seen {
		if s.again == 0 {
			continue
		}
		r := s.record.Clone()
		if s.extra {
			r = slog.NewRecord(time.Now(), r.Level, "records left out", 0)
			r.AddAttrs(slog.Int("count", s.again), slog.String("last", s.text))
		} else {
			r.Time = time.Now()
			r.AddAttrs(slog.Int("again", s.again))
			s.again = 0
			kept = append(kept, s)
		}
		_ = s.log.Handle(context.Background(), r)
	}
	t.seen = kept
}
