package node

import (
	"errors"

	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// An Observer has functions that are called with the outcome of each Acquire and each hold. A nil
// function costs nothing. More frequent events, such as messages, are counted in [Status].
//
// Wait and Hold run in the goroutine that called Acquire, TryAcquire, Release or Close, before
// that call returns. They may use the node and its locks. Several may run at the same time. If a
// function panics, the panic reaches the caller, which then holds no lock. Hold runs in a goroutine of
// the node for a hold lost with its lease, and then must not call Close, which waits for it.
//
// For one handle Wait is called before Hold, except that if the node is closed while Acquire
// returns, Hold may come first or alone. The holds of one lock may be reported in any order; their
// fences tell which was first.
type Observer struct {
	Wait func(Event) // an Acquire or TryAcquire has ended; not called for misuse
	Hold func(Event) // a hold has ended

	// View: the group has changed, and the locks go on. It is called in a goroutine of its own,
	// in order. A slow function delays only Close, which it must not call, and misses changes
	// when it is more than 64 behind.
	View func(ViewStatus)

	// Lease: the State of the lease has changed. It is called as View is, and only in the
	// lease mode.
	Lease func(LeaseStatus)
}

// An Event is the end of a wait for a lock, or of a hold.
type Event = lock.Event

// Observers returns an Observer that calls the functions of each of these, in this order; those that
// are nil are left out. A panic of one keeps the event from those after it.
func Observers(all ...*Observer) *Observer {
	o := new(Observer)
	for _, more := range all {
		if more != nil {
			o.Wait, o.Hold = both(o.Wait, more.Wait), both(o.Hold, more.Hold)
			o.View, o.Lease = both(o.View, more.View), both(o.Lease, more.Lease)
		}
	}
	return o
}

func both[E any](f, g func(E)) func(E) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(e E) { f(e); g(e) }
}

// event has the goroutine of Open tell the Observer.
func (n *Node) event(tell func()) {
	select {
	case n.events <- tell:
	default:
	}
}

// observe tells the Observer, if there is one, how a wait that began at this time has ended.
func (m *Mutex) observe(called clock.Steady, h *locks.Held, err error) {
	n := m.node
	if n.cfg.Observer == nil || n.cfg.Observer.Wait == nil {
		return
	}
	e := Event{Lock: m.name, Err: err, Took: n.mail.Now().Sub(called), Outcome: hold.Outcome(err)}
	if errors.Is(err, ErrDeadlock) {
		e.Outcome = "deadlock"
	}
	hold.Tell(n.cfg.Observer.Wait, e, h)
}
