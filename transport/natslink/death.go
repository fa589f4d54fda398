package natslink

import (
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
)

// This file finds out whether the process of a peer has ended. A server answers a message with a
// reply subject at once if nobody subscribes to its subject. A link sends such a question on the
// subject of its frames to a peer, when the peer should have answered frames and has not. The answer
// comes on a subject of this node. A live peer drops the question.
//
// A process that goes from one server to another looks dead for as long, and so do all others to one
// that has just connected. So the answers count when they have come for an eighth of a lease
// with nothing from the peer in between, and when the own connection has been up for a third of it.

// questions mark the last token of the subjects of answers, before the peer.
const questions = "?"

// enough answers take an eighth of a lease. Time would not do: this process may be paused in between,
// or its queue be full.
const enough = 7

// A silence is what a link knows of a peer since it has heard from it.
type silence struct {
	frames int       // that were sent to it
	since  time.Time // when the first of them was sent
	asked  bool      // the server was asked whether anybody subscribes, and has not answered
	nobody int       // to how many questions in a row the server has said that nobody is there
	dead   bool      // the host was told that its process has ended
}

// watch looks after the peers until the link is closed.
func (l *Link) watch() {
	tick := time.NewTicker(l.host.Apart)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-tick.C:
		}
		connected, reconnects := l.nc.IsConnected(), l.nc.Stats().Reconnects // either may wait for a stuck socket
		for _, id := range l.look(time.Now(), connected, reconnects) {
			l.host.Died(id)
		}
	}
}

// look asks after the peers that are silent, and returns those whose processes have ended.
func (l *Link) look(now time.Time, connected bool, reconnects uint64) (died []dmutex.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !connected || reconnects != l.reconnects {
		l.reconnects, l.upSince = reconnects, now
	}
	up := l.host.Apart * 50 / 3 // of a lease
	for id, p := range l.peers {
		switch {
		case p.dead || p.frames < 2 || now.Sub(p.since) < l.host.Apart: // one may be the last word
			continue
		case l.upSince.Equal(now):
			p.asked, p.nobody = false, 0
			continue
		case p.asked: // somebody has got the question, or it was lost
			p.nobody = 0
		case p.nobody >= enough && now.Sub(l.upSince) >= up:
			p.dead = true
			l.log.Often(slog.LevelWarn, "natslink: no process subscribes for the peer anymore", slog.Any("node", l.self), slog.Any("peer", id))
			died = append(died, id)
			continue
		}
		p.asked = l.put(outgoing{subject: p.subject, reply: l.subject(l.self.String(), questions+id.String())}) == nil
	}
	return died
}

// answered takes a server's word that nobody has got a question, if that is what a message is.
func (l *Link) answered(m *nats.Msg) {
	id := node(strings.TrimPrefix(last(m.Subject), questions))
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[id]
	if p == nil || !p.asked || len(m.Data) != 0 || m.Header.Get("Status") != "503" {
		return
	}
	p.asked, p.nobody = false, p.nobody+1
}
