package consent

import "github.com/dmutex/dmutex/internal/due"

type verb uint8

const (
	deliver verb = iota
	meet
	tick
	report
	release
	rename
	end
	start
	acquire
	crash
	leave
	evict
	alarm
	cut
	slander
)

func (v verb) String() string {
	return [...]string{"deliver", "meets", "tick", "reports", "releases", "takes a higher number", "ends", "starts", "acquires", "crashes", "leaves", "evicts", "has trouble", "loses its session with", "lies to"}[v]
}

// An action is something that may happen next.
type action struct {
	do   verb
	i, j int // members, or of deliver the place on the wire
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func later(at int64, now bool) int64 {
	switch {
	case at == due.Never:
		return due.Never
	case now:
		return 1
	default:
		return 2
	}
}

// aDay is when a history begins, by a right clock.
const aDay = 200_000_000 * second
