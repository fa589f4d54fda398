package session

import (
	"math"

	"github.com/dmutex/dmutex"
)

// Config configures a session. Only the first three fields must be set. Times
// are in nanoseconds.
type Config struct {
	// Incarnation names this life of this process: not zero, and never used by
	// another life of any node. 64 random bits will do. The sessions of a
	// process with different peers may share it; a second one with the same
	// peer is another life.
	Incarnation uint64

	// Group is a digest of what both ends must agree on. A peer with another
	// one is refused.
	Group uint64

	// MaxFrame is the size of the largest frame that the link takes, in bytes,
	// at least 64.
	MaxFrame int

	// Window is how many DATA frames may be unacknowledged, and how many may
	// be kept that arrived too early: 1 to 65536. Default 64.
	Window int

	// Buffer bounds the messages that were accepted and not yet acknowledged,
	// and separately the frames that arrived too early, in bytes. At least
	// MaxFrame. Default 4 MiB, or MaxFrame if that is more.
	Buffer int

	// AckDelay is how long an acknowledgement waits for a message that it can
	// travel with. Default 5 ms.
	AckDelay int64

	// MinTimeout and MaxTimeout bound the time after which an unacknowledged
	// frame is sent again. MinTimeout, which should be well above AckDelay, is
	// also the least time between two challenges. Defaults 20 ms and 2 s.
	MinTimeout, MaxTimeout int64

	// Grace is how long a peer has to answer a challenge when another life of its
	// node has, before that one is adopted. Default 250 ms.
	Grace int64
}

const (
	millisecond = 1_000_000

	defaultWindow     = 64
	maxWindow         = 1 << 16
	defaultBuffer     = 4 << 20
	defaultAckDelay   = 5 * millisecond
	defaultMinTimeout = 20 * millisecond
	defaultMaxTimeout = 2000 * millisecond
	defaultGrace      = 250 * millisecond

	minFrame = 64

	// firstTimeout is used until a round trip was measured.
	firstTimeout = 200 * millisecond

	// patience is how often a session repeats what a peer may wait for that is
	// perhaps gone, twice after each timeout: many in a short time.
	patience = 12

	// keep is the size up to which an empty buffer is kept, and keepMessages how
	// many messages a list of them may have room for.
	keep         = 64 << 10
	keepMessages = 4 << 10

	// formerPeers is how many former peers are remembered.
	formerPeers = 256

	never  = math.MaxInt64
	always = math.MinInt64
)

func (c *Config) complete() error {
	fill(&c.Window, defaultWindow)
	fill(&c.Buffer, max(defaultBuffer, c.MaxFrame))
	fill(&c.AckDelay, defaultAckDelay)
	fill(&c.MinTimeout, defaultMinTimeout)
	fill(&c.MaxTimeout, max(defaultMaxTimeout, c.MinTimeout))
	fill(&c.Grace, defaultGrace)
	switch {
	case c.Incarnation == 0:
		return dmutex.Misuse("session: Config.Incarnation is 0: draw 64 random bits at each start of the process")
	case c.MaxFrame < minFrame:
		return dmutex.Misuse("session: Config.MaxFrame is below 64 bytes: give Link.MaxFrame")
	case c.Window < 1 || c.Window > maxWindow:
		return dmutex.Misuse("session: Config.Window is not between 1 and 65536")
	case c.Buffer < c.MaxFrame:
		return dmutex.Misuse("session: Config.Buffer is below Config.MaxFrame: it must hold at least one frame")
	case c.AckDelay < 0:
		return dmutex.Misuse("session: Config.AckDelay is negative")
	case c.MinTimeout < 0 || c.MaxTimeout < c.MinTimeout:
		return dmutex.Misuse("session: Config.MinTimeout and MaxTimeout are not in order")
	case c.MaxTimeout > math.MaxInt64/4:
		return dmutex.Misuse("session: Config.MaxTimeout is too long: give it in nanoseconds")
	case c.Grace < 0 || c.Grace > math.MaxInt64/4:
		return dmutex.Misuse("session: Config.Grace is negative or too long: give it in nanoseconds")
	}
	return nil
}

// fill sets a value that was not given.
func fill[T int | int64](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}
