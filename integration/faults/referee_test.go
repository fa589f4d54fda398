//go:build unix

package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A claim is what a process says to the referee after it was granted a lock, and
// again before it releases the lock. The process waits for the answer, so it is inside for
// longer than the referee thinks: an overlap that the referee sees is real.
type claim struct {
	Lock  string
	Who   string
	Fence uint64
	Leave bool

	Shared bool   // with others that share the lock
	Turn   uint64 // tells stays of Who apart that have one fence, because the process shared the lock meanwhile

	// The lock was held at both instants of the machine's clock, and so between them. With
	// leases, the holder sets them while its handle is good; Until is before From if the handle
	// was never seen to be good. Without leases, the referee sets them when it hears the claims.
	From, Until int64

	Moved uint64 // of a client that leaves: 1 if another member had taken the hold over
	Lost  bool   // likewise: whether the hold was lost before
}

// A referee watches critical sections, over sockets of its own that no fault
// tampers with.
type referee struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	inside map[string][]claim // by lock
	stays  map[string][]claim // by lock, as they began; with leases the ledger has them
	last   map[string]claim   // by lock: of those that had it alone the one with the highest fence
	shared map[string]claim   // likewise, of those that shared it
	wrong  chan error         // the first fault
	ledger *ledger            // with leases

	outlived string           // a part of Who: a process that has been replaced
	before   map[string]claim // last, when it was replaced
	until    time.Time        // by then it must have noticed
	late     int              // its entries since
}

func newReferee(t *testing.T) *referee {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &referee{
		listener: l,
		inside:   make(map[string][]claim),
		stays:    make(map[string][]claim),
		last:     make(map[string]claim),
		shared:   make(map[string]claim),
		wrong:    make(chan error, 1),
	}
	r.running.Go(r.accept)
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			c.Close()
		}
		r.conns = nil
		r.mu.Unlock()
		r.running.Wait()
	})
	return r
}

func (r *referee) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.conns = append(r.conns, c)
		r.mu.Unlock()
		r.running.Go(func() { r.listen(c) })
	}
}

func (r *referee) listen(c net.Conn) {
	defer c.Close()
	var inside []claim // of this connection, which ends with the process
	defer func() { r.gone(inside) }()
	in, out := json.NewDecoder(c), json.NewEncoder(c)
	for {
		var said claim
		if in.Decode(&said) != nil {
			return
		}
		if said.Leave {
			inside = slices.DeleteFunc(inside, func(c claim) bool { return c.Lock == said.Lock })
		} else {
			inside = append(inside, said)
		}
		if err := r.judge(said); err != nil {
			select {
			case r.wrong <- err:
			default:
			}
		}
		if out.Encode(struct{}{}) != nil {
			return
		}
	}
}

// judge says what is wrong with a claim, nil if nothing is.
func (r *referee) judge(c claim) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ledger != nil {
		return r.ledger.judge(c)
	}
	if r.outlived != "" && strings.Contains(c.Who, r.outlived) {
		return r.judgeOutlived(c)
	}
	r.note(c)
	if c.Leave {
		if !r.leave(c.Lock, func(o claim) bool { return o.Who == c.Who && o.Fence == c.Fence }) {
			return fmt.Errorf("%s: %s leaves with fence %d, but has not entered", c.Lock, c.Who, c.Fence)
		}
		return nil
	}
	for _, other := range r.inside[c.Lock] {
		if c.conflicts(other) {
			return fmt.Errorf("%s: overlap: %s enters with fence %d while %s is inside with %d", c.Lock, c.Who, c.Fence, other.Who, other.Fence)
		}
	}
	r.inside[c.Lock] = append(r.inside[c.Lock], c)
	before, last := r.last[c.Lock], r.last
	if shared := r.shared[c.Lock]; c.Shared {
		last = r.shared
	} else if shared.Fence > before.Fence {
		before = shared
	}
	if c.Fence <= before.Fence {
		return fmt.Errorf("%s: the fence of %s is %d, after %d of %s", c.Lock, c.Who, c.Fence, before.Fence, before.Who)
	}
	if c.Fence > last[c.Lock].Fence {
		last[c.Lock] = c
	}
	return nil
}

// conflicts reports whether two claims of a lock cannot be inside at the same time.
func (c claim) conflicts(other claim) bool { return !c.Shared || !other.Shared }

// leave forgets claims that are inside, and reports whether there were any.
func (r *referee) leave(lock string, which func(claim) bool) bool {
	before := len(r.inside[lock])
	r.inside[lock] = slices.DeleteFunc(r.inside[lock], which)
	left := len(r.inside[lock])
	if left == 0 {
		delete(r.inside, lock)
	}
	return left < before
}

// note records a claim, right or wrong.
func (r *referee) note(c claim) {
	now, stays := instant(), r.stays[c.Lock]
	if !c.Leave {
		r.stays[c.Lock] = append(stays, claim{Who: c.Who, Fence: c.Fence, Shared: c.Shared, From: now, Until: now})
	}
	for i := len(stays) - 1; c.Leave && i >= 0; i-- {
		if stays[i].Who == c.Who {
			stays[i].Until = now
			break
		}
	}
}

// outlive counts the process as replaced: its claims are no overlaps, but its fences
// must be low enough that a resource refuses them, and it must stop in time.
func (r *referee) outlive(process string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outlived == "" {
		r.before = maps.Clone(r.last)
	}
	r.outlived, r.until = process, until
	for lock := range maps.Clone(r.inside) {
		r.leave(lock, func(c claim) bool { return strings.Contains(c.Who, process) })
	}
}

func (r *referee) judgeOutlived(c claim) error {
	switch last := r.last[c.Lock]; {
	case c.Leave:
	case time.Now().After(r.until):
		return fmt.Errorf("%s: %s was replaced, and still enters with fence %d", c.Lock, c.Who, c.Fence)
	case last != r.before[c.Lock] && c.Fence >= last.Fence:
		return fmt.Errorf("%s: %s was replaced, and its fence %d would not be refused after %d", c.Lock, c.Who, c.Fence, last.Fence)
	default:
		r.late++
	}
	return nil
}

// gone forgets claims of a process that has been killed.
func (r *referee) gone(inside []claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range inside {
		if r.ledger != nil {
			r.ledger.gone(c)
		}
		r.leave(c.Lock, func(o claim) bool { return o == c })
	}
}

// history says what is wrong with the stays in any lock.
func (r *referee) history() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.stays
	if r.ledger != nil {
		all = r.ledger.stays
	}
	for lock, stays := range all {
		if err := judgeHistory(lock, stays); err != nil {
			return err
		}
	}
	return nil
}

// tally returns how often each lock was entered, once no process is inside.
func (r *referee) tally(t *testing.T) map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Empty(t, r.inside)
	entries := make(map[string]int)
	for lock, stays := range r.stays {
		entries[lock] = len(stays)
	}
	return entries
}

// The referee notices each of the faults that it watches for.
func TestReferee(t *testing.T) {
	enter := func(lock, who string, fence uint64) claim { return claim{Lock: lock, Who: who, Fence: fence} }
	leave := func(c claim) claim { c.Leave = true; return c }
	share := func(c claim) claim { c.Shared = true; return c }
	one, two, three := enter("x", "one", 1), enter("x", "two", 2), enter("x", "three", 3)
	for _, tc := range []struct {
		says   string
		claims []claim
	}{
		{"", []claim{one, leave(one), two, leave(two)}},
		{"", []claim{two, enter("y", "one", 1)}},
		{"overlap: two enters with fence 2 while one is inside with 1", []claim{one, two}},
		{"the fence of one is 1, after 2 of two", []claim{two, leave(two), one}},
		{"the fence of two is 2, after 2 of two", []claim{two, leave(two), two}},
		{"", []claim{share(one), share(two), leave(share(one)), leave(share(two)), three}},
		{"", []claim{share(two), leave(share(two)), share(one)}},
		{"overlap: three enters", []claim{share(one), share(two), leave(share(two)), three}},
		{"overlap: two enters", []claim{one, share(two)}},
		{"the fence of one is 1, after 2 of two", []claim{share(two), leave(share(two)), one}},
		{"the fence of one is 1, after 2 of two", []claim{two, leave(two), share(one)}},
		{"has not entered", []claim{leave(one)}},
		{"has not entered", []claim{one, leave(two)}},
	} {
		r := newReferee(t)
		for i, c := range tc.claims {
			err := r.judge(c)
			if i < len(tc.claims)-1 || tc.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.says)
			}
		}
	}
}
