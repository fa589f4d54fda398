package membership

import (
	"math"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
)

// An installation is how a life comes from a view that was decided to one that acts: it freezes
// all that is older, reports what it holds, and acts when all have reported. It is the same in
// both modes (rules 3.1 and 3.2): the members decide the view by consent, or a record does.
type installation struct {
	view        View // installed
	installedAt int64
	reported    bool      // rule 3.1: all older views are frozen, and the holds of this life are known
	reports     []holding // of the members of view, as they came
	complete    View      // rule 3.2: the last view that all of its members have reported in
	holdings    []Holding // of that
	quarrel     int       // views in a row that trouble has ended soon
	trip        int64     // how long the last answer to this life took, of a member or of the store

	acting bool // the view has begun to act, so it is complete

	out Output
}

// A holding is the report of a member.
type holding struct {
	node  dmutex.NodeID
	holds []Hold
	past  *Past // in the lease mode
}

// Epochs.
const (
	maxEpoch = epochs.Max

	// maxClock bounds clocks and floors, so that half of all epochs is left for later.
	// It is in the year 2089.
	maxClock = epochs.Max / 2

	minute = 60 * 1000
	day    = 24 * 60 * minute
)

// Times, in nanoseconds.
const (
	millisecond = 1_000_000
	second      = 1000 * millisecond

	// minPause is the least time that a member waits, for each lower member that is
	// there, before it begins a round, or changes the record, itself. patience is how long
	// it waits for the outcome of what another has begun. Both double with each failure.
	minPause = 20 * millisecond
	patience = 500 * millisecond
	maxFails = 6

	// maxCourtesy is how long a round waits for those that it can do without, at most.
	maxCourtesy = 10 * second

	// A view that trouble ends is replaced at once, and after twice as long each time,
	// unless it was calm for so long.
	calm       = second
	maxQuarrel = 11

	never = math.MaxInt64
)

// View returns the view that is installed: the zero View before the first, and in the lease
// mode while this life is not a member.
func (in *installation) View() View { return in.view }

// phase returns the phase of a life. Ended is Outside while its part goes on.
func (in *installation) phase(ended Phase, acts bool) Phase {
	switch {
	case ended != Outside:
		return ended
	case in.view.Epoch == 0:
		return Outside
	case acts:
		return Acting
	default:
		return Frozen
	}
}

// install begins with a newer view.
func (in *installation) install(now int64, v View) {
	in.view, in.installedAt, in.reported, in.reports, in.holdings, in.acting = v, now, false, nil, nil, false
	if v.Epoch > 0 {
		in.emit(Event{Kind: Installed, View: v})
	}
}

// report is rule 3.1 for this life. It reports whether it was due, and keeps the holds.
func (in *installation) report(self dmutex.NodeID, holds []Hold, past *Past) bool {
	if in.view.Epoch == 0 || in.reported {
		return false
	}
	in.reported = true
	in.take(self, holds, past)
	return true
}

// take takes the report of a member of the view. The first counts.
func (in *installation) take(node dmutex.NodeID, holds []Hold, past *Past) {
	if in.reportOf(node).node != node {
		in.reports = append(in.reports, holding{node, holds, past})
	}
}

// reportOf returns the report of a member, the zero holding if it has not reported.
func (in *installation) reportOf(node dmutex.NodeID) (report holding) {
	if i := slices.IndexFunc(in.reports, func(r holding) bool { return r.node == node }); i >= 0 {
		report = in.reports[i]
	}
	return report
}

// lacks reports whether the view lacks the report of a member of it.
func (in *installation) lacks(node dmutex.NodeID) bool {
	return in.view.life(node) != 0 && in.reportOf(node).node != node
}

// isComplete reports whether all members of the view have reported.
func (in *installation) isComplete() bool {
	return in.view.Epoch > 0 && in.complete.Epoch == in.view.Epoch
}

// mayComplete is rule 3.2. It reports whether the view has become complete.
func (in *installation) mayComplete() bool {
	if in.view.Epoch == 0 || in.isComplete() || slices.ContainsFunc(in.view.Members, func(who Member) bool { return in.lacks(who.Node) }) {
		return false
	}
	in.complete = in.view
	for _, r := range in.reports {
		in.holdings = append(in.holdings, Holding{r.node, r.holds})
	}
	return true
}

// replaceAt returns when to replace the view, because of trouble in it.
func (in *installation) replaceAt(now int64) int64 {
	if now-in.installedAt > calm {
		in.quarrel = 0
	}
	at := max(now, in.installedAt+minPause<<in.quarrel)
	in.quarrel = min(in.quarrel+1, maxQuarrel)
	return at
}

// pause is how long a member waits for each that goes before it: long enough for the message of
// that member to arrive.
func (in *installation) pause() int64 { return min(max(minPause, in.trip), 10*minPause) }

// said returns the output, once.
func (in *installation) said() Output {
	out := in.out
	in.out = Output{}
	return out
}

func (in *installation) emit(e Event) { in.out.Events = append(in.out.Events, e) }

// act lets the view act.
func (in *installation) act(past Past) {
	if !in.acting {
		in.acting = true
		in.emit(Event{Kind: Acts, View: in.view, Holdings: in.holdings, Past: past})
	}
}

// impossible says why no correct peer tells these views, and "" if one may. The first one was
// decided.
func (in *installation) impossible(views ...*View) string {
	if v := views[0]; v.Epoch == in.view.Epoch && !slices.Equal(v.Members, in.view.Members) {
		return "it tells another view of this epoch"
	}
	for _, v := range views {
		for i, who := range v.Members {
			if who.Node == dmutex.None || who.Life == 0 || i > 0 && v.Members[i-1].Node >= who.Node {
				return "its view is not a list of different members in order"
			}
		}
	}
	return ""
}
