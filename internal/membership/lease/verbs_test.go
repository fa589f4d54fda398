package lease

type verb uint8

const (
	deliver verb = iota
	tick
	report
	release
	end
	start
	acquire
	crash
	leave
	alarm
	load    // the record is loaded again
	answer  // the store answers
	lose    // the answer is given up
	swap    // the swap takes effect
	land    // the swap takes effect after it was given up
	serve   // the store carries out an operation and answers at once
	slow    // the store does not do so at once
	suspect // one life gives another up
	settle  // a hold that ended between the report and the view's first act ends in the view
	pass    // a unit of time passes
	wipe    // the record is gone
	look    // one life asks the store who lives
	see     // the store answers who lives
)

func (v verb) String() string {
	return [...]string{"deliver", "tick", "reports", "releases", "ends", "starts", "acquires", "crashes", "leaves", "has trouble"}[v]
}

// An action is something that may happen next.
type action struct {
	do   verb
	i, j int // places, or of deliver the place on the wire
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// aDay is when a history begins, by a right clock.
const aDay = 200_000_000 * second
