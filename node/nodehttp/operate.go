package nodehttp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
)

// Ready returns a handler for a readiness probe: status 200 while the node is in a
// view that acts, so that it can grant locks, and else 503 with a text that names
// the members it waits for, or says why the node has stopped. With a store the text also
// names, at once, a member that gives no sign of life, and excluded members whose leases are
// waited for. It answers GET and HEAD, and shows the name of no lock.
//
//	readinessProbe:
//	  httpGet: {path: /ready, port: 8080}
//
// In a Kubernetes StatefulSet a rolling update then replaces the next pod only when
// the last one is back in the group. Two settings are needed with it, because
// members must find each other before any of them can be ready: publishNotReadyAddresses:
// true in the headless Service, and podManagementPolicy: Parallel in the
// StatefulSet.
//
// For a liveness probe use [Alive]: a node that waits for another member is healthy, and
// a restart of it does not help. Without a store, the others stay ready when a
// member crashes, although locks that need the member wait for its return. With one,
// they are unready for about a lease. They are unready for some round trips when the
// group changes.
func Ready(n *node.Node) http.Handler {
	return probe(func() (ok bool, text string) {
		switch st := n.Status(); {
		case st.Err != nil:
			return false, fmt.Sprintf("nothing is granted any more: %v", st.Err)
		case !st.View.Acts:
			return false, notReady(st)
		default:
			return true, fmt.Sprintf("ready: view %d of nodes %v%s", st.View.Epoch, st.View.Members, missing(st))
		}
	})
}

// Alive returns a handler for a liveness probe: status 503 with the reason once the node has
// stopped by itself ([node.ErrStopped]), because only a restart of the process helps then, and
// else status 200. A node that waits for other members or for its store is alive, and so is
// one that was closed: its program is on its way out. It answers GET and HEAD.
//
//	livenessProbe:
//	  httpGet: {path: /alive, port: 8080}
func Alive(n *node.Node) http.Handler {
	return probe(func() (ok bool, text string) {
		if err := n.Status().Err; errors.Is(err, node.ErrStopped) {
			return false, err.Error()
		}
		return true, "alive"
	})
}

// probe answers with the text, and with status 200 or 503.
func probe(look func() (ok bool, text string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this probe can only be read", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		ok, text := look()
		if !ok {
			http.Error(w, text, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, text)
	})
}

// notReady names the members that the node waits for.
func notReady(st node.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "not ready for %v", seconds(st.View.Age))
	switch {
	case st.View.Err != nil:
		fmt.Fprintf(&b, ": %v", st.View.Err)
	case len(st.View.Missing) == 0:
		b.WriteString(": the members agree on a view just now")
	}
	return b.String() + missing(st)
}

// missing has a line for each member that the node waits for.
func missing(st node.Status) string {
	var b strings.Builder
	for _, p := range st.Peers {
		if slices.Contains(st.View.Missing, p.ID) {
			fmt.Fprintf(&b, "\nwaiting for node %v: %s", p.ID, newPeer(p, st.View).State())
		}
	}
	return b.String()
}

// Evict returns a handler by which an operator vouches that the process of a member
// is dead:
//
//	curl -d member=3 http://localhost:8080/evict
//
// If several members are gone, name all of them in one request, as in
// -d member=3 -d member=4: each alone would have to wait for the other.
//
// The others then go on without the member until a new process with its number starts,
// and the locks that it held are free. The handler answers with status 200 when a view
// without the member acts. If the client gives up before that, it is not certain whether
// anything has changed, and the request can be repeated. If the member restarts
// before the others have agreed, the answer is an error that says so, and the group
// takes the new process in. See [node.Node.Evict].
//
// If the operator is wrong and the process still runs, two processes may hold one
// lock until that process hears from a member. Until then only a resource that checks
// fences is safe. Make sure first, for example by cutting the power of its machine.
//
// The handler takes only POST, and no request from a page of another site. It is not
// part of [Handler], and it asks for no password: serve it only where operators are.
func Evict(n *node.Node) http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", "POST")
			http.Error(w, "POST member=NUMBER, if the process of that member is dead: what it holds becomes free", http.StatusMethodNotAllowed)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 1<<10)
		err := r.ParseForm()
		var ids []dmutex.NodeID
		for _, number := range r.PostForm["member"] {
			id, wrong := strconv.ParseUint(number, 10, 64)
			ids, err = append(ids, dmutex.NodeID(id)), errors.Join(err, wrong)
		}
		if err != nil || len(ids) == 0 {
			http.Error(w, "the form needs member=NUMBER: the member whose process is dead", http.StatusBadRequest)
			return
		}
		switch err := n.Evict(r.Context(), ids...); {
		case errors.Is(err, dmutex.ErrMisuse):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			v := n.Status().View
			fmt.Fprintf(w, "evicted %v: view %d goes on with nodes %v\n", ids, v.Epoch, v.Members)
		}
	}))
}
