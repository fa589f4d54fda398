package dmutextest

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
)

// A Network says what may happen to messages in flight. The zero Network delivers
// each message once, and keeps the order of messages from one node to another.
//
// The Network is part of every result: "unordered, 1 duplicate" says under which
// assumption something was proved.
type Network struct {
	Unordered  bool // messages may overtake each other
	Duplicates int  // how often in a run a message is delivered and yet stays in flight
	Losses     int  // how often in a run a message is lost

	// Channel is how many messages may be in flight from one node to another at
	// a time. More is a violation, ErrChannel. 0 means 250, and the Duplicates: enough for
	// any algorithm that does not answer without end.
	Channel int
}

// String returns the network as scripts write it, such as
// "fifo, 1 duplicate, 2 losses, channel 8".
func (n Network) String() string {
	s := "fifo"
	if n.Unordered {
		s = "unordered"
	}
	if n.Duplicates > 0 {
		s += ", " + count(n.Duplicates, "duplicate", "duplicates")
	}
	if n.Losses > 0 {
		s += ", " + count(n.Losses, "loss", "losses")
	}
	if n.Channel > 0 {
		s += ", channel " + strconv.Itoa(n.Channel)
	}
	return s
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// ParseNetwork reads what [Network.String] writes. It refuses anything else with
// [dmutex.ErrMisuse].
func ParseNetwork(s string) (Network, error) {
	written := strings.Join(strings.Fields(strings.ReplaceAll(s, ",", ", ")), " ")
	var n Network
	for part := range strings.SplitSeq(written, ", ") {
		first, second, _ := strings.Cut(part, " ")
		switch {
		case first == "unordered":
			n.Unordered = true
		case first == "channel":
			n.Channel, _ = strconv.Atoi(second)
		case strings.HasPrefix(second, "duplicate"):
			n.Duplicates, _ = strconv.Atoi(first)
		case strings.HasPrefix(second, "loss"):
			n.Losses, _ = strconv.Atoi(first)
		}
	}
	if n.String() != written || max(n.Channel, n.Duplicates, n.Losses) > math.MaxUint16 {
		return Network{}, fmt.Errorf("%w: network %q: want fifo or unordered, and perhaps"+
			" \", 2 duplicates\", \", 1 loss\" and \", channel 8\"", dmutex.ErrMisuse, s)
	}
	return n, nil
}
