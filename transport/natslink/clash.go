package natslink

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
)

// This file finds out whether another group uses the prefix. Within a group the record
// gives each number to one link only, so a dynamic link asks on the subject of frames from
// itself to itself, and any other link that answers belongs to another group.

const (
	clashPause = time.Second // for an answer, and before a link asks again

	// What links with the same number say to each other, before the name of the link.
	asks    = '?'
	answers = '!'
)

// say queues a word for the other links with the number of this one. The caller has l.mu.
func (l *Link) say(word byte) {
	self := l.self.String()
	_ = l.put(outgoing{subject: l.subject(self, self), frame: binary.BigEndian.AppendUint64([]byte{word}, l.name)})
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
	if l.over != nil || l.self != self || binary.BigEndian.Uint64(m.Data[1:]) == l.name {
		return
	}
	now := time.Now()
	if m.Data[0] == asks && now.Sub(l.heardAt) > clashPause/2 { // it asks at most each clashPause
		l.say(answers)
	}
	if l.heardAt.IsZero() {
		l.log.Often(slog.LevelWarn, "natslink: two groups use one prefix", slog.Any("err", l.clashError()))
	}
	l.heardAt = now
}

func (l *Link) clashError() error {
	return fmt.Errorf("natslink: another group also has a node %v under Config.Prefix %q: give each group a prefix of its own", l.self, l.prefix)
}

// clash says that another group uses the prefix, and asks whether it still does. The
// caller has l.mu.
func (l *Link) clash() error {
	now := time.Now()
	switch {
	case l.heardAt.IsZero():
		return nil
	case l.askedAt.Before(l.heardAt):
		if now.Sub(l.heardAt) > clashPause {
			l.askedAt = now
			l.say(asks)
		}
	case now.Sub(l.askedAt) > clashPause: // it does not answer
		l.heardAt = time.Time{}
		return nil
	}
	return l.clashError()
}
