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
	// period is how long an equal record is only counted.
	period = time.Minute

	// most is how many different records of a level are written in a period.
	most = 20
)

// A throttle counts the records of a period.
type throttle struct {
	mu      sync.Mutex
	timer   *time.Timer // ends the period; nil while there is nothing to count
	stopped bool
	seen    []*told // written in this period, or repeated in the last
	left    []*told // the last one of each level for which there was no room
}

// told is a record and how often it, or one in its place, came again.
type told struct {
	log    *Log
	record slog.Record
	text   string
	again  int
}

// Often returns a handler for records that others can cause as often as they like. A
// record that equals one of the last minute is only counted, and written with the count
// at the end of the minute. Of each level 20 different records are written in a minute,
// followed by the count of those left out and the last of them.
func (l *Log) Often() slog.Handler { return often{l} }

type often struct{ *Log }

func (o often) WithAttrs(attrs []slog.Attr) slog.Handler {
	return often{o.Log.WithAttrs(attrs).(*Log)}
}

func (o often) WithGroup(name string) slog.Handler { return often{o.Log.WithGroup(name).(*Log)} }

func (o often) Handle(ctx context.Context, r slog.Record) error {
	now := &told{log: o.Log, record: r.Clone(), text: text(&r)}
	t := &o.queue.throttle
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return nil
	}
	if t.timer == nil {
		t.timer = time.AfterFunc(period, t.next)
	}
	written := 0
	for _, s := range t.seen {
		if s.record.Level == r.Level {
			written++
			if s.text == now.text {
				s.again++
				return nil
			}
		}
	}
	if written < most {
		t.seen = append(t.seen, now)
		return o.Log.Handle(ctx, r)
	}
	now.again = 1
	for i, s := range t.left {
		if s.record.Level == r.Level {
			now.again += s.again
			t.left[i] = now
			return nil
		}
	}
	t.left = append(t.left, now)
	return nil
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

// next ends a period.
func (t *throttle) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sumUp()
}

// sumUp writes the counts. Records that were repeated count as written in the next
// period. The caller has t.mu.
func (t *throttle) sumUp() {
	kept := []*told(nil)
	for _, s := range t.seen {
		if s.again > 0 {
			r := slog.NewRecord(time.Now(), s.record.Level, s.record.Message, s.record.PC)
			s.record.Attrs(func(a slog.Attr) bool { r.AddAttrs(a); return true })
			r.AddAttrs(slog.Int("again", s.again))
			_ = s.log.Handle(context.Background(), r)
			s.again = 0
			kept = append(kept, s)
		}
	}
	for _, s := range t.left {
		r := slog.NewRecord(time.Now(), s.record.Level, "records left out", 0)
		r.AddAttrs(slog.Int("count", s.again), slog.String("last", s.text))
		_ = s.log.Handle(context.Background(), r)
	}
	t.seen, t.left = kept, nil
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	if kept != nil && !t.stopped {
		t.timer = time.AfterFunc(period, t.next)
	}
}

// stop ends the last period.
func (t *throttle) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.sumUp()
}
