package consent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/search"
)

// An event is an action that can be found again when something before it is left
// out: a delivery is of the oldest message between two members.
type event struct {
	do   verb
	i, j int
}

func (w *world) event(a action) event {
	if a.do == deliver {
		f := w.flight(w.wire[a.i])
		return event{deliver, f.from, f.to}
	}
	return event(a)
}

// find returns the action that an event is now.
func (w *world) find(e event) (action, bool) {
	for _, a := range w.Steps(nil) {
		if w.event(a) == e {
			return a, true
		}
	}
	return action{}, false
}

// wander makes a random run, first with faults, and then without, until nothing moves. It
// returns the run, and what is wrong.
func (w *world) wander(random *rand.Rand) (run []event, err error) {
	const faulty, most = 2000, 20_000 // steps
	var list, usual, late, rare []action
	for len(run) < most {
		if len(run) == faulty {
			w.left = faults{}
		}
		list, usual, late, rare = w.Steps(list[:0]), usual[:0], late[:0], rare[:0]
		calm := w.left == faults{}
		rests := true
		for _, a := range list {
			fair := w.fair(a)
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
		if rests && !w.good() {
			return run, w.stuck()
		}
		if rests && calm {
			return run, nil
		}
		from := usual
		if len(late) > 0 && (len(usual) == 0 || random.IntN(20) == 0) {
			from = late
		}
		if len(rare) > 0 && (len(from) == 0 || random.IntN(20) == 0) {
			from = rare
		}
		if len(from) == 0 {
			return run, nil
		}
		a := from[random.IntN(len(from))]
		run = append(run, w.event(a))
		if err := w.Do(a); err == search.ErrOutside {
			return run, nil
		} else if err != nil {
			return run, err
		}
	}
	return run, viewtest.Wrongf("it never comes to rest")
}

// replay repeats a run, skips steps that are no longer possible, and tells it. It returns
// the events that happened, and what is wrong then.
func (w *world) replay(run []event) (done []event, text string, err error) {
	var told []byte
	for _, e := range run {
		a, ok := w.find(e)
		if !ok {
			continue
		}
		done = append(done, e)
		after := w.Clone(nil)
		err = after.Do(a)
		if told = w.Tell(told, a, after); err != nil {
			break
		}
		w = after
	}
	if err == nil && !slices.ContainsFunc(w.Steps(nil), w.fair) && !w.good() {
		err = w.stuck()
	}
	return done, fmt.Sprintf("%s\n%s\n", told, why(err)), err
}

// why returns what is wrong, without the run.
func why(err error) string {
	if v, ok := errors.AsType[*search.Violation](err); ok {
		return v.Why
	}
	return fmt.Sprint(err)
}

// shorten removes the steps that a failure does not need.
func shorten(s setup, run []event, wrong error) []event {
	kind := strings.Fields(why(wrong))[0]
	if len(run) > 5000 {
		return run
	}
	first := newWorld(s)
	run, _, _ = first.replay(run)
	for size := len(run) / 2; size > 0; {
		shorter := false
		for k := len(run) - size; k >= 0; k -= size {
			less := slices.Delete(slices.Clone(run), k, k+size)
			if done, _, now := first.replay(less); now != nil && strings.Fields(why(now))[0] == kind {
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

// roam wanders until something is wrong. It returns the number of steps.
func roam(s setup, seed uint64, steps int) (done int, run []event, err error) {
	random := rand.New(rand.NewPCG(seed, 0))
	first := newWorld(s)
	for done < steps {
		if len(first.lives.All)+len(first.flights.All) > 300_000 {
			first = newWorld(s)
		}
		run, err = first.Clone(nil).wander(random)
		if done += len(run); err != nil {
			return done, run, err
		}
	}
	return done, nil, nil
}

// Random runs of three to five members with many faults. Nothing goes wrong, and each run comes to
// rest in a view of all lives that are there, unless a clock was set back (see outlived).
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
	done, run, err := roam(s, seed, steps)
	if err != nil {
		_, text, _ := newWorld(s).replay(shorten(s, run, err))
		t.Fatalf("seed %d, after %d steps: %s\n%s", seed, done, why(err), text)
	}
	require.Positive(t, done)
}
