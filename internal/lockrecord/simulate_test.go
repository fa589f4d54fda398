package lockrecord

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/leases"
)

// simulate lets three places contend for some minutes. Their clocks run too fast, too slow, or
// right; operations are slow, lost, or done after they were given up; lives crash, are paused,
// and release. It returns how often the lock was granted.
func simulate(seed uint64, drain func(lease int64) int64) (grants int, err error) {
	const millisecond, minutes = int64(1_000_000), 3
	luck := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(setup{lease: 1, grants: 1 << 30})
	w.places = make([]place, 3)
	type host struct {
		rate, base               int64 // in thousandths, and at the beginning
		pausedTo, doneAt, nextAt int64
	}
	hosts := make([]host, len(w.places))
	for i := range hosts {
		hosts[i] = host{rate: 990 + 10*luck.Int64N(3), base: luck.Int64N(1000 * unit)}
	}
	soon := func(t int64) int64 {
		if luck.IntN(15) == 0 {
			return t + luck.Int64N(900)
		}
		return t + luck.Int64N(3)
	}
	often := func(ms int) bool { return luck.IntN(ms) == 0 }
	for t := int64(0); t < minutes*60*1000; t++ {
		clock := func(i int) int64 { return hosts[i].base + t*millisecond/1000*hosts[i].rate }
		if len(w.ghosts) > 0 && often(200) {
			if g := w.ghosts[0]; g.rev == w.rev {
				w.write([]byte(g.value))
			}
			w.ghosts = w.ghosts[1:]
		}
		for i := range w.places {
			p, h := &w.places[i], &hosts[i]
			if p.op.op != None && !p.op.done && t >= h.doneAt { // the store does not pause
				w.effect(i)
				h.doneAt = soon(t)
			}
			if t < h.pausedTo {
				continue
			}
			w.now = clock(i)
			do, input := "", func() {}
			switch {
			case p.m == nil:
				if often(500) {
					_ = w.start(i)
					p.m.drain = drain
				}
				continue
			case often(3000):
				h.pausedTo = t + luck.Int64N(2500)
			case often(6000):
				w.abandon(i)
				p.m = nil
				continue
			case p.op.op != None && often(400):
				do, input = "gives up", func() { w.lose(i) }
				h.nextAt = t + luck.Int64N(100)
			case p.op.op != None && p.op.done && t >= h.doneAt:
				do, input = "is answered", func() { w.answer(i) }
			case p.op.op == None && t >= h.nextAt && p.m.due(w.now):
				do, input = "asks", func() { w.ask(i) }
				h.doneAt = soon(t)
			case !p.m.leaving && p.m.phase != Waiting && often(2500):
				do, input = "releases", func() { p.m.Release(w.now) }
			case often(20):
				do, input = "polls", p.m.Poll
			}
			if err := w.input(i, do, input); err != nil {
				return w.grants, err
			}
		}
		holders := 0
		for i := range w.places {
			if w.now = clock(i); w.holds(i) {
				holders++
			}
		}
		if holders > 1 {
			return w.grants, errTwo
		}
	}
	return w.grants, nil
}

// Clocks that are wrong by 1 % do no harm, and the wait allows for no more than that.
func TestSimulate(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	total := 0
	for seed := range uint64(20) {
		grants, err := simulate(seed, leases.Drain)
		require.NoError(t, err, "seed %d", seed)
		total += grants
	}
	require.Greater(t, total, 200)

	caught := 0
	for seed := range uint64(20) {
		if _, err := simulate(seed, func(lease int64) int64 { return lease }); err != nil {
			caught++
		}
	}
	require.Greater(t, caught, 0, "a wait as long as the lease is too short")
}
