package draw

import (
	"fmt"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
)

// mark returns what is written at an event that concerns the node or the lock as a
// whole.
func (e *event) mark() string {
	switch e.What {
	case trace.Down:
		if e.Err == "" {
			return "closing"
		}
		return "down: " + e.Err
	case trace.Close:
		return "closed"
	case started:
		did := "joins"
		switch {
		case !e.numbered():
			did = "started"
		case e.file.former != dmutex.None:
			did = "joins again; was N" + e.file.former.String()
		}
		return strings.TrimLeft(e.file.trace.Header.Name+" "+did, " ")
	case crashed:
		return "crashed"
	case lapsed:
		return "its lease has ended"
	case trace.Silent:
		return "N" + e.Peer.String() + " is silent"
	case trace.Dead:
		switch {
		case e.Peer == dmutex.None:
			return ""
		case e.N > 0:
			return "N" + e.Peer.String() + " has ended, as the store proves"
		}
		return "N" + e.Peer.String() + " seems to have ended"
	case trace.Excluded:
		if e.Peer == e.node() {
			return "excluded"
		}
		return "" // the view says it
	case trace.Trouble:
		return "asks for another view: " + e.Err
	case trace.Met:
		if e.again {
			return "node " + e.Peer.String() + " has restarted"
		}
		return ""
	case trace.Gap:
		return fmt.Sprintf("%d events missing", e.N)
	case trace.Born, trace.Request, trace.Share, trace.Cancel, trace.Release, trace.Handle, trace.Tick, trace.Forget, trace.Lose, trace.Waits,
		trace.Left, trace.View, trace.Ready, trace.Lease:
		return "" // bars and arrows show these, or nothing need
	}
	return string(e.What) // a new kind of event
}
