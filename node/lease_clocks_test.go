package node_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
)

// A door is a listener for clients in memory.
type door struct {
	calls  chan net.Conn
	closed chan struct{}
}

func newDoor() *door { return &door{make(chan net.Conn), make(chan struct{})} }

func (d *door) Accept() (net.Conn, error) {
	select {
	case nc := <-d.calls:
		return nc, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

func (d *door) Close() error   { close(d.closed); return nil }
func (d *door) Addr() net.Addr { return &net.TCPAddr{} }

func (d *door) dial(ctx context.Context, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case d.calls <- far:
		return near, nil
	case <-d.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// LESSONS L55. A client holds a lock, and the wall clock of its member is set, once or again and again. The
// member may lose what it holds itself, but nobody is granted what the client still holds. When the clock is
// set no more, the lock is free soon after the client has lost it.
func TestWallClockOfMember(t *testing.T) {
	many := func(by time.Duration) (steps []time.Duration) {
		for range 30 {
			steps = append(steps, by)
		}
		return steps
	}
	for name, steps := range map[string][]time.Duration{ // one every 200 ms
		"a little":     {leaseOf / 20},
		"half a lease": {leaseOf / 2},
		"a margin":     {leaseOf - leaseOf/16},
		"a lease":      {leaseOf},
		"more":         {leaseOf + time.Second},
		"an hour":      {time.Hour},
		"twice":        {leaseOf * 2, leaseOf * 2},
		"back":         {-time.Hour},
		"back between": {leaseOf * 2, -time.Hour, leaseOf * 2},
		"many leases":  many(leaseOf),
		"many":         many(leaseOf / 4),
	} {
		for others := range 2 {
			t.Run(name, func(t *testing.T) {
				bubbleLease(t, central.New, func(t *testing.T, g *group) {
					d := newDoor()
					g.clients = &node.Clients{Listeners: []net.Listener{d}}
					s := g.join()
					for range others {
						g.clients = &node.Clients{Listeners: []net.Listener{newDoor()}}
						g.join()
					}
					require.NoError(t, s.Ready(t.Context()))
					c, err := client.New(client.Config{Members: []string{"s"}, Dial: d.dial})
					require.NoError(t, err)
					defer c.Close()
					time.Sleep(leaseOf / 10)
					h, err := c.Mutex("x").Acquire(t.Context())
					require.NoError(t, err)
					time.Sleep(leaseOf / 10)
					next := g.all[others].acquireLater(t.Context(), "x")
					for _, by := range steps {
						s.StepWall(int64(by))
						time.Sleep(leaseOf / 50)
						synctest.Wait()
						require.True(t, len(next) == 0 || h.Err() != nil, "two hold the lock")
					}
					set := time.Now()
					select {
					case <-h.Context().Done():
					case <-next:
						t.Fatal("two hold the lock")
					case <-time.After(leaseOf * 2):
						require.NoError(t, h.Release())
					}
					lost := time.Now()
					got := granted(t, next)
					require.Error(t, h.Err())
					require.Less(t, time.Since(lost), leaseOf/2)
					require.Less(t, time.Since(set), leaseOf*3)
					require.NoError(t, got.Release())
				})
			})
		}
	}
}

// LESSONS L55. The wall clock of a member is set that holds a lock, or of one that waits for it: nobody is
// granted the lock before the holder has lost it and has had the time to stop that it always has.
func TestWallClockOfHolder(t *testing.T) {
	for name, steps := range map[string][]time.Duration{ // one every 200 ms
		"a lease":      {leaseOf},
		"an hour":      {time.Hour},
		"many":         {leaseOf, leaseOf, leaseOf, leaseOf, leaseOf, leaseOf, leaseOf, leaseOf},
		"back":         {-time.Hour},
		"back between": {leaseOf, -time.Hour, leaseOf},
	} {
		for who, stepped := range map[string]int{"holder": 0, "waiter": 1} {
			t.Run(name+", "+who, func(t *testing.T) {
				bubbleLease(t, central.New, func(t *testing.T, g *group) {
					all := g.open(2)
					held := all[0].acquire("x")
					ended, granted := make(chan time.Time, 1), make(chan time.Time, 1)
					go func() {
						<-held.Context().Done()
						ended <- time.Now()
					}()
					go func() {
						o := <-all[1].acquireLater(t.Context(), "x")
						granted <- time.Now()
						_ = o.held.Release()
					}()
					for _, by := range steps {
						all[stepped].StepWall(int64(by))
						time.Sleep(leaseOf / 50)
					}
					time.Sleep(leaseOf)
					lost, end, next := held.Release(), <-ended, <-granted
					if lost == nil {
						return
					}
					require.Zero(t, stepped, "the clock of a waiter has cost the holder the lock")
					require.GreaterOrEqual(t, next.Sub(end), leaseOf/leases.Margin)
				})
			})
		}
	}
}

// Until of a lost lock is when the lease has ended that covered it, or when the lock was lost if that was
// before, and stays so.
func TestUntilOfLostLock(t *testing.T) {
	for name, tt := range map[string]struct {
		lose func(s *member, held lock.Held)
		late time.Duration // after the end of the lease
	}{
		"lease ended":    {func(s *member, held lock.Held) { s.store.Outage(true); <-held.Context().Done() }, 0},
		"clock set":      {func(s *member, _ lock.Held) { s.StepWall(int64(s.Status().Lease.Remains + 3*time.Second)) }, 3 * time.Second},
		"closed":         {func(s *member, _ lock.Held) { s.close() }, 0},
		"a little later": {func(s *member, _ lock.Held) { s.StepWall(int64(s.Status().Lease.Remains)) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, central.New, func(t *testing.T, g *group) {
				s := g.open(1)[0]
				held := s.acquire("x")
				time.Sleep(leaseOf / 2)
				tt.lose(s, held)
				require.Error(t, held.Err())
				end := time.Now().Add(-tt.late)
				require.Equal(t, end, held.Until())
				s.store.Outage(false)
				time.Sleep(3 * leaseOf)
				require.Equal(t, end, held.Until())
				require.Error(t, held.Release())
				require.Equal(t, end, held.Until())
			})
		})
	}
}
