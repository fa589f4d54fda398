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
// waited for. It answers GET and HEAD, and shows the name of no lock. docs/operating.md has what a
// deployment on Kubernetes needs besides.
//
// For a liveness probe use [Alive]: a node that waits for another member is healthy. Members
// are unready for some round trips when the group changes. When a member crashes, the others
// stay ready, although some locks wait: without a store, those that need the member wait for its
// return; with one, those that it may hold wait until its lease has ended. The members of a new
// record are unready for about a lease, unless the store proves deaths.
func Ready(n *node.Node) http.Handler {
	return probe(func() (ok bool, text string) {
		st := n.Status()
		var b strings.Builder
		switch {
		case st.Err != nil:
			return false, fmt.Sprintf("nothing is granted any more: %v", st.Err)
		case st.View.Acts:
			fmt.Fprintf(&b, "ready: view %d of nodes %v", st.View.Epoch, st.View.Members)
		case st.View.Err != nil:
			fmt.Fprintf(&b, "not ready for %s: %v", age(st.View.Age), st.View.Err)
		case len(st.View.Missing) == 0:
			fmt.Fprintf(&b, "not ready for %s: the members are agreeing on a view", age(st.View.Age))
		default:
			fmt.Fprintf(&b, "not ready for %s", age(st.View.Age))
		}
		for _, p := range st.Peers {
			if slices.Contains(st.View.Missing, p.ID) {
				fmt.Fprintf(&b, "\nwaiting for node %v: %s", p.ID, newPeer(p, st.View).State())
			}
		}
		return st.View.Acts, b.String()
	})
}

// Alive returns a handler for a liveness probe: status 503 with the reason once the node has
// stopped by itself ([node.ErrStopped]), because only a restart of the process helps then, and
// else status 200. A node that waits for other members or for its store is alive, and so is
// one that was closed: its program is on its way out. It answers GET and HEAD.
func Alive(n *node.Node) http.Handler {
	return probe(func() (ok bool, text string) {
		if err := n.Status().Err; errors.Is(err, node.ErrStopped) {
			return false, err.Error()
		}
		return true, "alive"
	})
}

func probe(look func() (ok bool, text string)) http.Handler {
	return only("GET, HEAD", "this probe can only be read", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		ok, text := look()
		if !ok {
			http.Error(w, text, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, text)
	})
}

// only refuses other methods, with a text that says what to do.
func only(methods, text string, serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(strings.Split(methods, ", "), r.Method) {
			w.Header().Set("Allow", methods)
			http.Error(w, text, http.StatusMethodNotAllowed)
			return
		}
		serve(w, r)
	})
}

// Evict returns a handler by which an operator vouches that the processes of members
// are dead; see [node.Node.Evict] for what that means, and make sure first:
//
//	curl -d member=3 http://localhost:8080/evict
//
// If several members are gone, name all of them in one request, as in
// -d member=3 -d member=4: each alone would have to wait for the other. The handler answers
// with status 200 when a view without the members acts. If the client gives up before that, it
// is not certain whether anything has changed, and the request can be repeated.
//
// The handler takes only POST, and no request from a page of another site. It is not
// part of [Handler], and it asks for no password: serve it only where operators are.
func Evict(n *node.Node) http.Handler {
	const usage = "POST member=NUMBER, if the process of that member is dead: what it holds becomes free"
	return http.NewCrossOriginProtection().Handler(only(http.MethodPost, usage, func(w http.ResponseWriter, r *http.Request) {
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
