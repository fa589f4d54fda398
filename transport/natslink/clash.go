package natslink

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
)

// This file finds out whether another group uses the prefix. Within a group the record
// gives each number to one link only, so a dynamic link asks on the subject of frames from
// itself to itself, and any other link that answers belongs to another group.

// clashPause is how long a link waits for an answer, and before it asks again.
const clashPause = time.Second

// What links with the same number say to each other, before the name of the link.
const (
	asks    = '?'
	answers = '!'
)

// A clash is what a link knows about another one with its number.
type clash struct {
	heardAt    time.Time // when it spoke last; zero if there is none
	askedAt    time.Time // when it was asked since then; zero if it was not
	answeredAt time.Time // when it was answered last
}

// say queues a word for the other links with the number of this one. The caller has l.mu.
func (l *Link) say(word byte) {
	self := l.self.String()
	_ = l.put(l.subject(self, self), binary.BigEndian.AppendUint64([]byte{word}, l.name))
}

// namesake handles a word from the subject of frames from this node to itself, which may be
// an echo.
func (l *Link) namesake(m *nats.Msg, self dmutex.NodeID) {
	if len(m.Data) != 9 || !l.dynamic {
		l.unread.Add(1)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.self != self || binary.BigEndian.Uint64(m.Data[1:]) == l.name {
		return
	}
	now := time.Now()
	first := l.clash.heardAt.IsZero()
	if m.Data[0] == asks && now.Sub(l.clash.answeredAt) >= clashPause {
		l.clash.answeredAt = now
		l.say(answers)
	}
	l.clash.heardAt, l.clash.askedAt = now, time.Time{}
	if first {
		l.log.Warn("natslink: two groups use one prefix", "err", l.clashError())
	}
}

func (l *Link) clashError() error {
	return fmt.Errorf("natslink: another group also has a node %v under Config.Prefix %q: give each group a prefix of its own", l.self, l.prefix)
}

// clashes says that another group uses the prefix, and asks whether it still does. The
// caller has l.mu.
func (l *Link) clashes() error {
	c, now := &l.clash, time.Now()
	switch {
	case c.heardAt.IsZero():
		return nil
	case c.askedAt.IsZero() && now.Sub(c.heardAt) > clashPause:
		c.askedAt = now
		l.say(asks)
	case !c.askedAt.IsZero() && now.Sub(c.askedAt) > clashPause: // it does not answer
		*c = clash{}
		return nil
	}
	return l.clashError()
}
