package dmutextest

import (
	"fmt"
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
	// a time. More is a violation, ErrChannel. 0 means no limit.
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
	var n Network
	for i, part := range strings.Split(s, ",") {
		words := strings.Fields(part)
		var err error
		switch {
		case i == 0 && len(words) == 1 && words[0] == "fifo":
		case i == 0 && len(words) == 1 && words[0] == "unordered":
			n.Unordered = true
		case i > 0 && len(words) == 2 && words[0] == "channel":
			n.Channel, err = atLeastOne(words[1])
		case i > 0 && len(words) == 2 && (words[1] == "duplicate" || words[1] == "duplicates"):
			n.Duplicates, err = atLeastOne(words[0])
		case i > 0 && len(words) == 2 && (words[1] == "loss" || words[1] == "losses"):
			n.Losses, err = atLeastOne(words[0])
		default:
			err = strconv.ErrSyntax
		}
		if err != nil {
			return Network{}, fmt.Errorf("%w: network %q: want fifo or unordered, and perhaps"+
				" \", 2 duplicates\", \", 1 loss\" and \", channel 8\"", dmutex.ErrMisuse, s)
		}
	}
	return n, nil
}

func atLeastOne(word string) (int, error) {
	n, err := strconv.ParseUint(word, 10, 16)
	if err == nil && n == 0 {
		err = strconv.ErrRange
	}
	return int(n), err
}
