package membership

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// An Installation is how a life comes from a view that was decided to one that acts: it freezes
// all that is older, reports what it holds, and acts when all have reported (rules 3.1 and 3.2). Only
// the machine of a mode has one, and changes its fields by the methods.
type Installation struct {
	View        View // installed
	InstalledAt int64
	Reported    bool      // rule 3.1: all older views are frozen, and the holds of this life are known
	Reports     []Holding // of the members of View, as they came
	Complete    View      // rule 3.2: the last view that all of its members have reported in
	Holdings    []Holding // of that
	Quarrel     int       // views in a row that trouble has ended soon
	Trip        int64     // how long the last answer to this life took, of a member or of the store

	Acting bool // the view has begun to act, so it is complete

	Out Output
}

// Times, in nanoseconds.
const (
	second = 1_000_000_000

	// MinPause is the least time that a member waits, for each lower member that is there,
	// before it changes the view itself. Patience is how long it waits for the outcome of what
	// another has begun. Both double with each failure, up to MaxFails times.
	MinPause = second / 50
	Patience = second / 2
	MaxFails = 6

	// Calm: a view that trouble ends is replaced at once, and after twice as long each time,
	// unless it was calm for so long.
	Calm       = second
	maxQuarrel = 11
)

// Install begins with a newer view, and says whether what is reported is to be whole.
func (in *Installation) Install(now int64, v View, whole bool) {
	in.View, in.InstalledAt, in.Reported, in.Reports, in.Holdings, in.Acting = v, now, false, nil, nil, false
	if v.Epoch > 0 {
		in.Emit(Installed{v, whole})
	}
}

// Report is rule 3.1 for this life. It reports whether it was due, and keeps the holds.
func (in *Installation) Report(self dmutex.NodeID, holds []Hold, past *Past) bool {
	if in.View.Epoch == 0 || in.Reported {
		return false
	}
	in.Reported = true
	in.Take(self, holds, past)
	return true
}

// Take takes the report of a member of the view. The first counts.
func (in *Installation) Take(node dmutex.NodeID, holds []Hold, past *Past) {
	if in.ReportOf(node).Node != node {
		in.Reports = append(in.Reports, Holding{node, holds, past})
	}
}

// ReportOf returns the report of a member, the zero Holding if it has not reported.
func (in *Installation) ReportOf(node dmutex.NodeID) (report Holding) {
	if i := slices.IndexFunc(in.Reports, func(r Holding) bool { return r.Node == node }); i >= 0 {
		report = in.Reports[i]
	}
	return report
}

// Lacks reports whether the view lacks the report of a member of it.
func (in *Installation) Lacks(node dmutex.NodeID) bool {
	return in.View.Life(node) != 0 && in.ReportOf(node).Node != node
}

// IsComplete reports whether all members of the view have reported.
func (in *Installation) IsComplete() bool {
	return in.View.Epoch > 0 && in.Complete.Epoch == in.View.Epoch
}

// MayComplete is rule 3.2. It reports whether the view has become complete.
func (in *Installation) MayComplete() bool {
	if in.View.Epoch == 0 || in.IsComplete() || slices.ContainsFunc(in.View.Members, func(who Member) bool { return in.Lacks(who.Node) }) {
		return false
	}
	in.Complete = in.View
	in.Holdings = slices.Clone(in.Reports)
	return true
}

// ReplaceAt returns when to replace the view, because of trouble in it.
func (in *Installation) ReplaceAt(now int64) int64 {
	if now-in.InstalledAt > Calm {
		in.Quarrel = 0
	}
	at := max(now, in.InstalledAt+MinPause<<in.Quarrel)
	in.Quarrel = min(in.Quarrel+1, maxQuarrel)
	return at
}

// Pause is how long a member waits for each that goes before it: long enough for the message of
// that member to arrive.
func (in *Installation) Pause() int64 { return min(max(MinPause, in.Trip), 10*MinPause) }

// Said returns the output, once.
func (in *Installation) Said() Output {
	out := in.Out
	in.Out = Output{}
	return out
}

// Emit adds an event to the output.
func (in *Installation) Emit(e Event) { in.Out.Events = append(in.Out.Events, e) }

// Act lets the view act.
func (in *Installation) Act(past *Past) {
	if !in.Acting {
		in.Acting = true
		in.Emit(Acts{in.View, in.Holdings, past})
	}
}

// Impossible says why no correct peer tells these views, and "" if one may. The first one was
// decided.
func (in *Installation) Impossible(views ...*View) string {
	if v := views[0]; v.Epoch == in.View.Epoch && !slices.Equal(v.Members, in.View.Members) {
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
