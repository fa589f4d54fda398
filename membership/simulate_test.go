package membership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/machinetest"
)

// An event is an action that can be found again when something before it is left
// out: a delivery is of the oldest message between two members.
type event struct {
	do   verb
	i, j int
}

func (w *world) event(s []uint32, a action) event {
	if a.do == deliver {
		f := &w.flights[s[a.i]]
		return event{deliver, f.from, f.to}
	}
	return event(a)
}

// find returns the action that an event is now.
func (w *world) find(s []uint32, e event) (action, bool) {
	for _, a := range w.possible(s) {
		if w.event(s, a) == e {
			return a, true
		}
	}
	return action{}, false
}

// wander goes a random way, first with faults, and then until nothing moves any
// more. It returns the run, and what is wrong.
func (w *world) wander(random *rand.Rand) (run []event, wrong string) {
	const faulty, most = 2000, 20_000 // steps
	s := slices.Clone(w.first)
	for len(run) < most {
		if len(run) == faulty {
			w.setFaults(s, faults{})
		}
		list := w.possible(s)
		calm := s[2*w.n] == 0
		var usual, late, rare []action
		rests := true
		for _, a := range list {
			fair := w.fair(s, a)
			rests = rests && !fair
			switch {
			case a.do == tick: // pauses are long
				late = append(late, a)
			case fair || a.do == acquire && !calm:
				usual = append(usual, a)
			case a.do > acquire || a.do == start:
				rare = append(rare, a)
			}
		}
		if rests && !w.good(s) {
			return run, w.complaint(s)
		}
		if rests && calm {
			return run, ""
		}
		from := usual
		if len(late) > 0 && (len(usual) == 0 || random.IntN(20) == 0) {
			from = late
		}
		if len(rare) > 0 && (len(from) == 0 || random.IntN(20) == 0) {
			from = rare
		}
		if len(from) == 0 {
			return run, ""
		}
		a := from[random.IntN(len(from))]
		run = append(run, w.event(s, a))
		t, wrong := w.apply(s, a)
		if wrong == outside {
			return run, ""
		}
		if wrong != "" {
			return run, wrong
		}
		s = append(s[:0], t...)
	}
	return run, "it never comes to rest"
}

// replay goes the way of a run, as far as it is one, and tells it. It returns the
// events that happened, and what is wrong then.
func (w *world) replay(run []event) (done []event, text, wrong string) {
	var b strings.Builder
	s := slices.Clone(w.first)
	for _, e := range run {
		a, ok := w.find(s, e)
		if !ok {
			continue
		}
		done = append(done, e)
		var t []uint32
		t, wrong = w.apply(s, a)
		t = slices.Clone(t)
		if w.tell(&b, s, t, a); wrong != "" {
			break
		}
		s = t
	}
	if wrong == "" && !slices.ContainsFunc(w.possible(s), func(a action) bool { return w.fair(s, a) }) && !w.good(s) {
		wrong = w.complaint(s)
	}
	return done, fmt.Sprintf("%s\n%s\n", b.String(), wrong), wrong
}

// shorten leaves out of a run what is not needed for that which is wrong with it.
func (w *world) shorten(run []event, wrong string) []event {
	kind := strings.Fields(wrong)[0]
	if len(run) > 5000 {
		return run
	}
	run, _, _ = w.replay(run)
	for size := len(run) / 2; size > 0; {
		shorter := false
		for k := len(run) - size; k >= 0; k -= size {
			less := slices.Delete(slices.Clone(run), k, k+size)
			if done, _, now := w.replay(less); now != "" && strings.Fields(now)[0] == kind {
				run, shorter = done, true
				k = min(k, len(run))
			}
		}
		if !shorter {
			size /= 2
		}
	}
	return run
}

// search wanders until something is wrong. It returns the number of steps.
func search(s setup, seed uint64, steps int) (done int, run []event, wrong string) {
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(s)
	for done < steps {
		if len(w.lives)+len(w.flights) > 300_000 {
			w = newWorld(s)
		}
		run, wrong = w.wander(random)
		if done += len(run); wrong != "" {
			return done, run, wrong
		}
	}
	return done, nil, ""
}

// Groups of three to five members with many faults, in random runs, do nothing
// wrong, and always come to rest in a view of all that are there.
// DMUTEX_LONG=1 makes ten million steps.
func TestSimulate(t *testing.T) {
	for _, s := range simulated {
		t.Run(s.name(), func(t *testing.T) {
			requireRight(t, s, 1, 100_000/len(simulated))
		})
	}
}

func TestSimulateLong(t *testing.T) {
	machinetest.Long(t)
	for _, s := range simulated {
		t.Run(s.name(), func(t *testing.T) {
			requireRight(t, s, 2, 10_000_000/len(simulated))
		})
	}
}

var simulated = []setup{
	{n: 3, clocks: true, faults: faults{crashes: 5, exits: 4}},
	{n: 3, clocks: true, faults: faults{crashes: 4, exits: 4, evicts: 2, alarms: 2}},
	{n: 3, clocks: true, faults: faults{crashes: 2, exits: 4, evicts: 3}},
	{n: 3, faults: faults{crashes: 5, exits: 4}},
	{n: 3, clocks: true, behind: true, faults: faults{crashes: 5, exits: 4, evicts: 1}},
	{n: 3, clocks: true, fresh: true, faults: faults{crashes: 3, exits: 2}},
	{n: 3, clocks: true, reports: true, faults: faults{crashes: 3, exits: 2, alarms: 1}},
	{n: 3, clocks: true, faults: faults{crashes: 3, cuts: 5}},
	{n: 4, clocks: true, away: 2, faults: faults{crashes: 6, exits: 5, evicts: 1}},
	{n: 4, faults: faults{crashes: 6, exits: 5}},
	{n: 5, clocks: true, faults: faults{crashes: 10, exits: 7}},
	{n: 5, clocks: true, faults: faults{crashes: 7, exits: 7, evicts: 3, alarms: 2}},
	{n: 5, away: 2, faults: faults{crashes: 10, exits: 7}},
}

func (s setup) name() string {
	return fmt.Sprintf("%d, %d away, fresh %v, clocks %v, behind %v, reports %v, rounds %d, %+v", s.n, s.away, s.fresh, s.clocks, s.behind, s.reports, s.rounds, s.faults)
}

func requireRight(t *testing.T, s setup, seed uint64, steps int) {
	t.Helper()
	s.rounds = 1 << 20
	done, run, wrong := search(s, seed, steps)
	if wrong != "" {
		w := newWorld(s)
		_, text, _ := w.replay(w.shorten(run, wrong))
		t.Fatalf("seed %d, after %d steps: %s\n%s", seed, done, wrong, text)
	}
	require.Positive(t, done)
}
