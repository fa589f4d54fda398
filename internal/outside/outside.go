// Package outside lets a simulation replace what a process takes from its machine: the network, the clocks and chance.
//
// A simulation runs many processes in one program. It opens what a process consists of within [Process.Open], and the
// constructors ask [Current] for the network, and package clock for the rest. So no public name shows that this
// exists, and the packages between pass nothing on. Only tests call Open: in a program that ships, Current returns nil.
package outside

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/dmutex/dmutex/internal/clock"
)

// A Process is what a simulated process has. A field that is nil stands for the machine.
type Process struct {
	Network Network
	Clock   clock.Source
}

// A Network is TCP, as a process uses it.
type Network interface {
	Listen(ctx context.Context, address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
	LookupHost(ctx context.Context, host string) (addresses []string, err error)
}

var (
	opening sync.Mutex
	current atomic.Pointer[Process]
)

// Open calls f. What f makes belongs to this process, and so does what any other goroutine makes meanwhile: a simulation
// makes everything within Open. f must not wait: meanwhile another Open waits for a mutex, and the time of a bubble
// of testing/synctest stands still while any of its goroutines does.
func (p *Process) Open(f func()) {
	opening.Lock()
	defer opening.Unlock()
	current.Store(p)
	defer current.Store(nil)
	if p.Clock != nil {
		clock.Simulate(&p.Clock)
		defer clock.Simulate(nil)
	}
	f()
}

// Current returns the process that is being opened, nil if that is the program itself.
func Current() *Process { return current.Load() }
