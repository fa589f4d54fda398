package dmutextest

import (
	"fmt"
	"math"
	"regexp"
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

var networks = regexp.MustCompile(`^(fifo|unordered)(?:, (\d+) duplicates?)?(?:, (\d+) loss(?:es)?)?(?:, channel (\d+))?$`)

// ParseNetwork reads what [Network.String] writes. It refuses anything else with
// [dmutex.ErrMisuse].
func ParseNetwork(s string) (Network, error) {
	written := strings.Join(strings.Fields(strings.ReplaceAll(s, ",", ", ")), " ")
	parts := append(networks.FindStringSubmatch(written), make([]string, 5)...)
	number := func(i int) int { n, _ := strconv.Atoi(parts[i]); return n }
	n := Network{Unordered: parts[1] == "unordered", Duplicates: number(2), Losses: number(3), Channel: number(4)}
	if n.String() != written || max(n.Channel, n.Duplicates, n.Losses) > math.MaxUint16 {
		return Network{}, fmt.Errorf("%w: network %q: want fifo or unordered, and perhaps"+
			" \", 2 duplicates\", \", 1 loss\" and \", channel 8\"", dmutex.ErrMisuse, s)
	}
	return n, nil
}
