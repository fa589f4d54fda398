package mail

import (
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
)

// Status is the state of the session with a peer, as this node sees it.
type Status struct {
	Life  uint64 // the peer's life; 0 if none was met since this node opened, or was renamed
	Left  bool   // it has left
	Other uint64 // the Config.Group that the peer was last heard to have, if it is not ours

	// Silent is the time since the last frame of the peer arrived, or 0 if none ever
	// has. A peer with nothing to send is silent, so this is not a failure detector.
	Silent time.Duration

	Unacked  uint64 // messages that it has not acknowledged; if it has left, what was not acknowledged until then
	Backlog  int    // their size in bytes
	Resent   uint64 // frames sent to it again, because no acknowledgement came
	Repeated uint64 // frames received from it again

	// RoundTrip is the smoothed time from a frame to its acknowledgement, which may be
	// delayed by up to 20 ms so that it can travel with a message. 0 until measured.
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
		Left:      p.session.Left(),
		Other:     p.other,
		Silent:    silent,
		Unacked:   p.session.Sent() - p.session.Acked(),
		Backlog:   p.session.Backlog(),
		Resent:    stats.Resent,
		Repeated:  stats.Repeated,
		RoundTrip: time.Duration(stats.RoundTrip),
	}
}

// watch tells what the session has counted since the last time.
func (p *peer) watch() {
	w := p.mail.cfg.Watch
	if w == nil {
		return
	}
	before, after := p.watched, p.session.Stats()
	p.watched = after
	if after.Resent > before.Resent {
		w(trace.Event{Peer: p.id, What: trace.Resent, First: after.First, Last: after.Last})
	}
	for _, e := range [...]trace.Event{
		{What: trace.Repeated, N: after.Repeated - before.Repeated},
		{What: trace.Early, N: after.Early - before.Early},
		{What: trace.Stray, N: after.Strays - before.Strays},
	} {
		if e.N > 0 {
			e.Peer = p.id
			w(e)
		}
	}
}
