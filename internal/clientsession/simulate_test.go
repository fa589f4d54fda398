package clientsession

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/leases"
)

// simulate lets three clients take one lock at a member for some minutes. Their clocks and the
// member's run too fast, too slow, or right; messages are slow, connections break, clients and
// members crash and are paused, members close, and leases end. It returns how often the lock was
// granted.
func simulate(seed uint64, alter func(w *world, do string, i int, input func())) (grants uint64, err error) {
	const millisecond, minutes = int64(1_000_000), 3
	luck := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(setup{length: 1, lease: 1, sessions: 1 << 30, asks: 1 << 30, faults: faults{1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30}})
	w.alter = alter
	w.clients = append(w.clients, place{m: New("n")})
	type host struct{ rate, base, pausedTo int64 } // the rate in thousandths
	hosts := make([]host, len(w.clients)+1)        // the last is the member's
	draw := func() host { return host{rate: 990 + 10*luck.Int64N(3), base: luck.Int64N(1000 * unit)} }
	for i := range hosts {
		hosts[i] = draw()
	}
	t := int64(0)
	w.clock = func(i int) int64 {
		h := hosts[(i+len(hosts))%len(hosts)]
		return h.base + t*millisecond/1000*h.rate
	}
	often := func(ms int) bool { return luck.IntN(ms) == 0 }
	freeAt := int64(0) // in true time
	for ; t < minutes*60*1000; t++ {
		for i := range w.clients {
			p, h := &w.clients[i], &hosts[i]
			act := func(do string, input func()) { w.client(do, i, input) }
			p.slow = true
			if len(p.up) > 0 && t >= hosts[len(w.clients)].pausedTo && often(3) {
				w.deliver(i)
			}
			if len(p.late) > 0 && t%100 == 0 {
				w.greet(i)
			}
			switch {
			case t < h.pausedTo:
			case often(3000):
				h.pausedTo = t + luck.Int64N(2500)
			case often(8000):
				w.die(i)
			case p.linked && often(1500):
				w.unlink(i)
			case !p.linked && p.m.Wanting() && often(10):
				act("connects", func() { w.connect(i) })
			case len(p.down) > 0 && (often(3) || often(2) && h.rate < 1000):
				w.take(i)
			case w.at(i) >= p.m.Deadline():
				act("looks at the clock", func() { p.m.Tick(w.at(i)) })
			case len(p.m.requests) == 0 && often(200):
				act("asks", func() { p.m.Ask("l", false, false) })
			case len(p.m.requests) > 0 && often(2500):
				act("releases", func() { w.release(i) })
			}
		}
		crash := func() {
			w.succeed()
			hosts[len(w.clients)] = draw()
			w.leaseFrom = w.at(theMember)
			freeAt = t + 1011 // the longest that a lease lasts by any clock
		}
		switch h := &hosts[len(w.clients)]; {
		case t < h.pausedTo:
		case often(5000):
			h.pausedTo = t + luck.Int64N(1500)
		case often(10000):
			crash()
		case !w.closing && often(15000):
			w.closing = true
			for _, s := range append([]session(nil), w.sessions...) {
				w.member("closes", w.session(s.name), func(m *Member, _ int64) { m.Close() })
			}
		case w.closing && w.holder == (claim{}):
			w.succeed()
		case !w.lapsed && w.term() <= 0:
			w.lapse()
		case (w.lapsed || w.term() < 2*unit/3) && often(100):
			w.leaseFrom, w.lapsed = w.at(theMember), false
		default:
			for _, s := range w.sessions {
				if w.at(theMember) >= s.m.Deadline() {
					w.member("sees the session run out", w.session(s.name), (*Member).Tick)
					break
				}
			}
			if len(w.waiting) > 0 && w.holder == (claim{}) && t >= freeAt && w.term() > 0 {
				w.grant()
			}
		}
		if err := w.wrong(); err != nil {
			return w.fence, err
		}
	}
	return w.fence, nil
}

// Clocks that are wrong by 1 % do no harm.
func TestSimulate(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	total := uint64(0)
	for seed := range uint64(20) {
		grants, err := simulate(seed, nil)
		require.NoError(t, err, "seed %d", seed)
		total += grants
	}
	require.Greater(t, total, uint64(1000))

	caught := 0
	for seed := range uint64(20) {
		if _, err := simulate(seed, func(w *world, do string, i int, input func()) {
			if do == "takes a confirmation" {
				w.clients[i].m.sentAt = w.at(i)
			}
			input()
		}); err != nil {
			caught++
		}
	}
	require.Greater(t, caught, 0, "a session must not count from the receipt")
}

// The wait of a member allows for clocks that are wrong by 1 %, and hardly more: the session of
// the slowest client ends just before the wait of the fastest member.
func TestRates(t *testing.T) {
	for _, length := range []int64{unit / 10, unit, 3600 * unit} {
		client, member := length*1000/990, leases.Drain(length)*1000/1010 // in true time
		require.GreaterOrEqual(t, member, client)
		require.Less(t, member-client, length/1000)
		require.Less(t, length*1000/1010, client, "a wait of S is too short")
	}
}
