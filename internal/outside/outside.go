// Package outside has what a process gets from its machine where a simulation gives it something else.
//
// A simulation runs many processes in one program, each with a network of its own. It opens what a process
// consists of within [Process.Open], and the constructors ask [Current]. So no public name shows that this exists,
// and the packages between pass nothing on. Only tests call Open: a program that ships has no Process, and
// all that it pays is one look at a nil pointer in each constructor.
package outside

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Process is what a simulated process has. A field that is nil stands for the machine.
type Process struct {
	Network Network
	Clock   Clock
}

// A Network is TCP, as a process uses it.
type Network interface {
	Listen(ctx context.Context, address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
	LookupHost(ctx context.Context, host string) (addresses []string, err error)
}

// A Clock is what a process can learn of time.
type Clock interface {
	// Read returns the monotonic clock and the wall clock, in nanoseconds, the second since 1970.
	Read() (steady, wall int64)

	// Span returns how long a timer of this program must run until so much has passed by the monotonic clock.
	Span(time.Duration) time.Duration
}

var (
	opening sync.Mutex
	current atomic.Pointer[Process]
)

// Open calls f. What f makes is of this process, and likewise what any other goroutine makes meanwhile: so all
// that a simulation makes, it makes within Open. f must not wait, as constructors do not: the next Open waits for a mutex,
// during which the time of a bubble stands still.
func (p *Process) Open(f func()) {
	opening.Lock()
	defer opening.Unlock()
	current.Store(p)
	defer current.Store(nil)
	f()
}

// Current returns the process that is being opened, nil if that is the program itself.
func Current() *Process { return current.Load() }
