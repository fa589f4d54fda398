package session

import "math"

// Config configures a session. Life, MaxLife and MaxFrame must be set.
type Config struct {
	// Life is the number of this run of the process: not 0, and higher than those of all
	// former runs with the number of its node. A second session with the same peer needs
	// a higher one.
	Life uint64

	MaxLife  uint64 // the highest life that is believed, see [Session.SetMaxLife]
	Group    uint64 // a digest of what both ends must agree on: a peer with another one is refused
	MaxFrame int    // the size of the largest frame that the link takes, in bytes, at least 64
}

const (
	// Buffer bounds the messages that were accepted and not yet acknowledged, in bytes.
	Buffer = 4 << 20

	// largeFrame is the size above which a frame is acknowledged at once.
	largeFrame = 16 << 10

	millisecond = 1_000_000

	// firstTimeout is used until a round trip was measured.
	firstTimeout = 200 * millisecond

	// patience is how often the acknowledgement of a FIN is repeated to a peer that is
	// perhaps gone, twice after each timeout: many in a short time.
	patience = 12

	// keep is the size up to which an empty buffer is kept, and keepMessages how
	// many messages a list of them may have room for.
	keep         = 64 << 10
	keepMessages = 4 << 10

	never  = math.MaxInt64
	always = math.MinInt64
)

// A pace is what the tests change, in nanoseconds. ackDelay is several ticks of an operating
// system's clock, because parking with a nearer timer costs microseconds in a virtual machine.
type pace struct {
	window     int   // bytes of messages that may be in flight, rounded up to a frame: as many as the link can queue at once
	ackDelay   int64 // how long an acknowledgement waits for a message to travel with
	pushDelay  int64 // the same for a PUSH: it gives an answer time that takes more than one hop
	minTimeout int64 // the bounds of the time until unacknowledged messages are sent again; this one is well above
	maxTimeout int64 // ackDelay, and also the least time between two answers to strangers
	grace      int64 // how long a peer has to answer before a higher life replaces it
}

var defaultPace = pace{256 << 10, 20 * millisecond, 5 * millisecond, 50 * millisecond, 2000 * millisecond, 250 * millisecond}
