package metrics

import "github.com/dmutex/dmutex/client"

var (
	ofClient table

	on     = ofClient.add(Gauge, "session.up", "", "", "Whether this client has a session with a member.")
	left   = ofClient.add(Gauge, "session.remaining", "s", "", "Time until the session ends, with all that is held, unless the member confirms it; 0 without one.")
	begun  = ofClient.add(Counter, "session.begun", "{session}", "", "Sessions that have begun.")
	over   = ofClient.add(Counter, "session.lost", "{session}", "", "Sessions that ended although this client was not leaving. What it held is lost.")
	mine   = ofClient.add(Sum, "session.locks", "{lock}", "state", "Locks that this client holds (held) or waits for (waiting).")
	moved  = ofClient.add(Counter, "session.moved", "{lock}", "", "Locks that another member has taken over for this client, after the member of its session was gone. They stayed held.")
	denied = ofClient.add(Counter, "session.refused", "{request}", "", "Requests of this client that were not allowed, or too many.")
)

// Client returns the metrics of a client.
func Client(c *client.Client) Source {
	return Source{ofClient, func(see See) { readClient(c.Status(), see) }}
}

func readClient(st client.Status, see See) {
	see(on, truth(st.Member != ""))
	see(left, st.Remaining.Seconds())
	see(begun, float64(st.Sessions))
	see(over, float64(st.Lost))
	see(mine, float64(len(st.Holds)), "held")
	see(mine, float64(len(st.WaitsFor)), "waiting")
	see(moved, float64(st.Moved))
	see(denied, float64(st.Refused))
}
