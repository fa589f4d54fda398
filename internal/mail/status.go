package mail

import (
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/session"
)

// Status is the state of the session with a peer, as this node sees it.
type Status struct {
	Life  uint64 // the peer's life that was met last; 0 if none was
	Met   bool   // a life of the peer was met since this node opened, or was renamed
	Left  bool   // it has left
	Other uint64 // the Config.Group that the peer was last heard to have, if it is not ours

	// Silent is the time since the last frame of the peer arrived, or 0 if none ever
	// has. A peer with nothing to send is silent, so this is not a failure detector.
	Silent time.Duration

	Unacked  uint64 // messages that it has not acknowledged; if it has left, those that came too late for it
	Backlog  int    // their size in bytes
	Resent   uint64 // frames sent to it again, because no acknowledgement came
	Repeated uint64 // frames received from it again

	// RoundTrip is the smoothed time from a frame to its acknowledgement, which may be
	// delayed by up to 5 ms so that it can travel with a message. 0 until measured.
	RoundTrip time.Duration
}

// Status returns the present Status of the peer, or the zero Status for an unknown
// peer.
func (m *Mail) Status(peer dmutex.NodeID) Status {
	p := m.peer(peer)
	if p == nil {
		return Status{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := p.session.Stats()
	var silent time.Duration
	if p.spoke != 0 {
		silent = time.Duration(max(m.Now()-p.spoke, 1))
	}
	return Status{
		Life:      p.session.Peer(),
		Met:       p.session.Peer() != 0,
		Left:      p.left,
		Other:     p.other,
		Silent:    silent,
		Unacked:   p.session.Sent() - p.session.Acked(),
		Backlog:   p.session.Backlog(),
		Resent:    stats.Resent,
		Repeated:  stats.Repeated,
		RoundTrip: time.Duration(stats.RoundTrip),
	}
}

// An Event is something that the network did to frames. Config.Watch receives it.
type Event struct {
	Peer dmutex.NodeID
	What What

	First, Last uint64 // of Resent: the numbers of the messages in the frame
	N           uint64 // of Repeated, Early and Stray: how many frames
	Err         error  // of Unsent
}

// What says what an [Event] is.
type What uint8

// The events.
const (
	Resent   What = iota + 1 // a frame was sent again
	Unsent                   // the link did not take a frame
	Repeated                 // frames came again
	Early                    // frames came before their turn: one before them is late or lost
	Stray                    // frames came from or for another life
)

// String returns resent, unsent, repeated, early or stray.
func (w What) String() string {
	switch w {
	case Resent:
		return "resent"
	case Unsent:
		return "unsent"
	case Repeated:
		return "repeated"
	case Early:
		return "early"
	case Stray:
		return "stray"
	default:
		return "none"
	}
}

// look returns what the session has counted, for watch. The caller holds p.mu.
func (p *peer) look() session.Stats {
	if p.mail.cfg.Watch == nil {
		return session.Stats{}
	}
	return p.session.Stats()
}

// watch tells what the session has counted since look.
func (p *peer) watch(before session.Stats) {
	w := p.mail.cfg.Watch
	if w == nil {
		return
	}
	after := p.session.Stats()
	if after.Resent > before.Resent {
		w(Event{Peer: p.id, What: Resent, First: after.First, Last: after.Last})
	}
	for _, e := range [...]Event{
		{What: Repeated, N: after.Repeated - before.Repeated},
		{What: Early, N: after.Early - before.Early},
		{What: Stray, N: after.Strays - before.Strays},
	} {
		if e.N > 0 {
			e.Peer = p.id
			w(e)
		}
	}
}
