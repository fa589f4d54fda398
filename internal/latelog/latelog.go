// Package latelog lets code log where it must not wait, such as under a mutex.
// Another goroutine writes the records.
package latelog

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// room is how many records may wait. Later ones are left out and counted.
const room = 256

// A Log is a [slog.Handler] whose Handle never waits. Run passes the records on.
type Log struct {
	out   slog.Handler
	queue *queue
}

type queue struct {
	entries  chan entry
	lost     atomic.Uint64
	stop     chan struct{}
	once     sync.Once // closes stop
	throttle throttle
}

type entry struct {
	to     slog.Handler
	record slog.Record
}

// New returns a Log that passes its records on to out.
func New(out slog.Handler) *Log {
	return &Log{out, &queue{entries: make(chan entry, room), stop: make(chan struct{})}}
}

// Run passes records on until Stop, and then those that still wait. It is called
// once.
func (l *Log) Run() {
	minute := time.NewTicker(period)
	defer minute.Stop()
	for {
		select {
		case <-minute.C:
			l.queue.throttle.sumUp()
		case e := <-l.queue.entries:
			l.write(e)
		case <-l.queue.stop:
			l.queue.throttle.sumUp()
			for len(l.queue.entries) > 0 {
				l.write(<-l.queue.entries)
			}
			return
		}
	}
}

// Stop lets Run return. Nothing is logged afterwards.
func (l *Log) Stop() { l.queue.once.Do(func() { close(l.queue.stop) }) }

func (l *Log) write(e entry) {
	ctx := context.Background()
	if e.to.Enabled(ctx, e.record.Level) {
		_ = e.to.Handle(ctx, e.record) // slog ignores it, too
	}
	if lost := l.queue.lost.Swap(0); lost > 0 {
		slog.New(l.out).Warn("records left out", "count", lost)
	}
}

// Enabled implements [slog.Handler]. Only Run asks the handler that writes, because
// its Enabled may be slow, too.
func (l *Log) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (l *Log) Handle(_ context.Context, r slog.Record) error {
	select {
	case l.queue.entries <- entry{l.out, r.Clone()}:
	default:
		l.queue.lost.Add(1)
	}
	return nil
}

// WithAttrs implements [slog.Handler].
func (l *Log) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Log{l.out.WithAttrs(attrs), l.queue}
}

// WithGroup implements [slog.Handler].
func (l *Log) WithGroup(name string) slog.Handler {
	return &Log{l.out.WithGroup(name), l.queue}
}
