package session

import (
	"math"

	"github.com/dmutex/dmutex"
)

// Config configures a session. Only Life and MaxFrame must be set. Times are in
// nanoseconds.
type Config struct {
	// Life is the number of this run of the process: not 0, and higher than those of all
	// former runs with the number of its node. The sessions of a process with different
	// peers may share it; a second session with the same peer needs a higher one.
	Life uint64

	// MaxLife is the highest life that is believed, see [Session.SetMaxLife]; 0 stands
	// for no bound.
	MaxLife uint64

	// Group is a digest of what both ends must agree on. A peer with another
	// one is refused.
	Group uint64

	// MaxFrame is the size of the largest frame that the link takes, in bytes,
	// at least 64.
	MaxFrame int

	// Window is how many bytes of messages may be in flight, rounded up to a frame:
	// as many as the link can queue at once. Default 256 KiB.
	Window int

	// Buffer bounds the messages that were accepted and not yet acknowledged, in bytes.
	// At least MaxFrame. Default 4 MiB, or MaxFrame if that is more.
	Buffer int

	// AckDelay is how long an acknowledgement waits for a message that it can
	// travel with. Default 5 ms.
	AckDelay int64

	// MinTimeout and MaxTimeout bound the time after which unacknowledged messages
	// are sent again. MinTimeout, which should be well above AckDelay, is also the
	// least time between two answers to strangers. Defaults 20 ms and 2 s.
	MinTimeout, MaxTimeout int64

	// Grace is how long a peer has to answer before a higher life of its node replaces
	// it. Default 250 ms.
	Grace int64
}

const (
	millisecond = 1_000_000

	defaultWindow     = 256 << 10
	defaultBuffer     = 4 << 20
	defaultAckDelay   = 5 * millisecond
	defaultMinTimeout = 20 * millisecond
	defaultMaxTimeout = 2000 * millisecond
	defaultGrace      = 250 * millisecond

	minFrame = 64

	// largeFrame is the size above which a frame is acknowledged at once.
	largeFrame = 16 << 10

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

func (c *Config) complete() error {
	fill(&c.MaxLife, math.MaxUint64)
	fill(&c.Window, defaultWindow)
	fill(&c.Buffer, max(defaultBuffer, c.MaxFrame))
	fill(&c.AckDelay, defaultAckDelay)
	fill(&c.MinTimeout, defaultMinTimeout)
	fill(&c.MaxTimeout, max(defaultMaxTimeout, c.MinTimeout))
	fill(&c.Grace, defaultGrace)
	switch {
	case c.Life == 0:
		return dmutex.Misuse("session: Config.Life is 0: give each run of the process a higher number than the last")
	case c.MaxFrame < minFrame:
		return dmutex.Misuse("session: Config.MaxFrame is below 64 bytes: give Link.MaxFrame")
	case c.Window < 0:
		return dmutex.Misuse("session: Config.Window is negative")
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
func fill[T int | int64 | uint64](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}
