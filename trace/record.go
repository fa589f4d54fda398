package trace

import (
	"context"
	"io"
	"sync"

	"github.com/dmutex/dmutex"
)

// buffer is how much may wait for the writer, in bytes.
const buffer = 1 << 20

// A Recorder writes a trace without making its callers wait: events go into a buffer
// that a goroutine empties. While the buffer is full, events are only counted, and
// the trace gets a [Gap]. The goroutine runs only while events wait to be written.
// The methods are safe for concurrent use.
//
// Give one to a node as its Config.Trace; Close of the node flushes it. The caller
// opens the file, empty, and closes it: [Read] refuses what a restarted process
// appends to its old file.
type Recorder struct {
	mu     sync.Mutex
	w      io.Writer
	opened bool
	lines  encoder
	full   []byte        // waits to be written
	empty  []byte        // the other buffer, nil while it is being written
	moved  chan struct{} // closed and replaced after each write; nil while there is nothing to write
	gap    Event         // counts the events that were lost since the last one that was recorded
	lost   uint64
	err    error
}

// NewRecorder returns a Recorder that writes to w.
func NewRecorder(w io.Writer) *Recorder {
	return &Recorder{w: w, gap: Event{What: Gap}}
}

// Open writes the header. A Recorder is for one run of one node: a second Open
// returns [dmutex.ErrMisuse].
func (r *Recorder) Open(h Header) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opened {
		return dmutex.Misuse("this trace.Recorder was opened before: make one for each run of a node")
	}
	r.opened = true
	r.add(r.lines.header(&h))
	return nil
}

// Record adds an event. It never waits, and does not keep e.
func (r *Recorder) Record(e *Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil && len(r.full) < buffer {
		r.addGap()
		if line := r.lines.event(e); len(line) <= maxLine {
			r.add(line)
			return
		}
	}
	r.lost++
	r.gap.N++
	r.gap.Time = e.Time
	r.write()
}

// addGap adds the gap, if there is one.
func (r *Recorder) addGap() {
	if r.gap.N > 0 {
		r.add(r.lines.event(&r.gap))
		r.gap.N = 0
	}
}

// add adds a line, and has it written.
func (r *Recorder) add(line []byte) {
	r.full = append(r.full, line...)
	r.write()
}

// write starts the goroutine if none is running.
func (r *Recorder) write() {
	if r.moved == nil && r.err == nil {
		r.moved = make(chan struct{})
		go r.drain()
	}
}

func (r *Recorder) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		r.addGap()
		if len(r.full) == 0 || r.err != nil {
			close(r.moved)
			r.moved = nil
			return
		}
		writing := r.full
		r.full, r.empty = r.empty[:0], nil
		r.mu.Unlock()
		_, err := r.w.Write(writing)
		r.mu.Lock()
		r.empty = writing
		if err != nil {
			r.err, r.full = err, nil
		}
		close(r.moved)
		r.moved = make(chan struct{})
	}
}

// Flush waits until everything recorded so far is written, or until ctx ends. It
// returns the writer's error, after which nothing more is written.
func (r *Recorder) Flush(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addGap()
	for range 2 { // a write may be under way, and the next one takes all that waits
		moved := r.moved
		if moved == nil {
			break
		}
		r.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		}
		r.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return r.err
}

// Lost returns the number of events that are missing because the writer was
// too slow or failed.
func (r *Recorder) Lost() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}
