package linktest

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// Faults says how often a link disturbs a frame. All fields but the seed
// are probabilities, 0 to 1.
type Faults struct {
	Seed      uint64
	Loss      float64 // the frame is lost
	Duplicate float64 // the frame is sent twice
	Reorder   float64 // the frame is held back until another one to the same node was sent
}

// disturb adds faults to a link: it applies them to the frames that are sent. What
// happens to a frame depends on the seed, the receiver and how many frames were sent
// to it before. If the test fails, the faults are logged.
func disturb(t testing.TB, good transport.Link, faults Faults) transport.Link {
	t.Helper()
	for _, p := range []float64{faults.Loss, faults.Duplicate, faults.Reorder} {
		require.True(t, p >= 0 && p <= 1, "a probability is 0 to 1: %+v", faults)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the link had faults: %+v", faults)
		}
	})
	return &faulty{Link: good, faults: faults, routes: make(map[dmutex.NodeID]*badRoute)}
}

type faulty struct {
	transport.Link
	faults Faults

	mu     sync.Mutex
	routes map[dmutex.NodeID]*badRoute
}

type badRoute struct {
	luck *rand.Rand
	held []byte // nil if no frame is held back
}

// Send implements [transport.Link]. It returns nil for a frame that is lost.
func (l *faulty) Send(to dmutex.NodeID, frame []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.routes[to]
	if r == nil {
		r = &badRoute{luck: rand.New(rand.NewPCG(l.faults.Seed, uint64(to)))}
		l.routes[to] = r
	}
	happens := func(p float64) bool { return r.luck.Float64() < p }
	lost, twice, later := happens(l.faults.Loss), happens(l.faults.Duplicate), happens(l.faults.Reorder)
	switch {
	case lost:
		return nil
	case later && r.held == nil:
		r.held = bytes.Clone(frame)
		return nil
	}
	err := l.Link.Send(to, frame)
	if twice {
		_ = l.Link.Send(to, frame)
	}
	if r.held != nil {
		_ = l.Link.Send(to, r.held)
		r.held = nil
	}
	return err
}
