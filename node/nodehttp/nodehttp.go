// Package nodehttp shows a node in a browser, and as JSON to programs: its view of
// the group, its peers, and the locks that are held or waited for.
//
//	http.Handle("/debug/dmutex", nodehttp.Handler(n))
//	http.Handle("/ready", nodehttp.Ready(n))
//
// The page shows the names of locks, and each request for it looks at all locks: keep
// it where your other debug pages are, not on the open network. [Evict] is a
// handler of its own, because it changes the group.
package nodehttp

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
)

const (
	defaultLimit = 200
	maxLimit     = 10_000
)

// Handler returns a handler that shows how the node stands: a page of plain
// HTML, or JSON if the query has format=json or the request accepts
// application/json and not text/html. The query may also have
//
//	prefix=invoices/   only locks whose names begin with this
//	limit=50           how many locks, the oldest first, and clients; 1 to 10000, default 200
//
// It counts those left out. Names that look like others are quoted on the page;
// in JSON hex has the bytes of a name that is not UTF-8. It answers GET and HEAD, and
// a query that it does not understand with status 400.
func Handler(n *node.Node) http.Handler {
	return only("GET, HEAD", "this page can only be read", func(w http.ResponseWriter, r *http.Request) {
		v, asJSON, err := parse(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var body bytes.Buffer
		kind := "text/html; charset=utf-8"
		v.look(n)
		if asJSON {
			kind = "application/json"
			out := json.NewEncoder(&body)
			out.SetIndent("", "  ")
			err = out.Encode(v)
		} else {
			err = page.Execute(&body, v)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'")
		_, _ = w.Write(body.Bytes())
	})
}

// parse returns what a request asks for: a status with nothing but Prefix and Limit.
func parse(r *http.Request) (v status, asJSON bool, err error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return v, false, err
	}
	for key := range values {
		if key != "format" && key != "prefix" && key != "limit" {
			return v, false, fmt.Errorf("the query may have format, prefix and limit, not %q", key)
		}
	}
	v.Prefix, v.Limit = values.Get("prefix"), defaultLimit
	if text := values.Get("limit"); text != "" {
		v.Limit, err = strconv.Atoi(text)
		if err != nil || v.Limit < 1 || v.Limit > maxLimit {
			return v, false, fmt.Errorf("limit is 1 to %d, not %q", maxLimit, text)
		}
	}
	switch format := values.Get("format"); format {
	case "":
		return v, accepts(r, "application/json") && !accepts(r, "text/html"), nil
	case "json", "html":
		return v, format == "json", nil
	default:
		return v, false, fmt.Errorf("format is json or html, not %q", format)
	}
}

// accepts reports whether the request names the media type among those that it accepts.
func accepts(r *http.Request, media string) bool {
	return slices.ContainsFunc(strings.Split(strings.Join(r.Header.Values("Accept"), ","), ","), func(part string) bool {
		kind, _, err := mime.ParseMediaType(part)
		return err == nil && kind == media
	})
}

// A status is what is shown, as JSON and to the template.
type status struct {
	Node      dmutex.NodeID     `json:"node"`
	Name      string            `json:"name"`
	Life      string            `json:"life"` // hexadecimal
	Error     string            `json:"error,omitempty"`
	View      view              `json:"view"`
	Lease     *lease            `json:"lease,omitempty"` // of a node with a store
	Peers     []peer            `json:"peers"`
	Granted   uint64            `json:"granted"`
	Sent      map[string]uint64 `json:"sent"`
	Received  map[string]uint64 `json:"received"`
	Refused   uint64            `json:"refused"`
	Deadlocks uint64            `json:"deadlocks"`
	Locks     []lock            `json:"locks"`
	LeftOut   int               `json:"leftOut"` // locks that match and are not in Locks
	Clients   []client          `json:"clients,omitempty"`
	Others    int               `json:"clientsLeftOut,omitempty"`
	Rejected  uint64            `json:"clientsRefused,omitempty"`
	Prefix    string            `json:"prefix,omitempty"`
	Limit     int               `json:"limit"`
}

type view struct {
	Epoch   uint64          `json:"epoch"`
	Members []dmutex.NodeID `json:"members"`
	Acts    bool            `json:"acts"`
	Age     seconds         `json:"ageSeconds"` // for how long it has acted, or else for how long nothing has been granted here
	Missing []dmutex.NodeID `json:"missing,omitempty"`
	Error   string          `json:"error,omitempty"` // what else it waits for
	Changes uint64          `json:"changes"`
	Took    seconds         `json:"tookSeconds"` // the last change
}

type lease struct {
	State      string  `json:"state"`
	Left       seconds `json:"leftSeconds"`
	Error      string  `json:"error,omitempty"` // of the store
	Exclusions int     `json:"exclusions"`
}

type peer struct {
	ID        dmutex.NodeID `json:"id"`
	Name      string        `json:"name,omitempty"`
	Address   string        `json:"address,omitempty"`
	Life      string        `json:"life,omitempty"`
	Met       bool          `json:"met"`
	InView    bool          `json:"inView"`
	Missing   bool          `json:"missing"` // the node waits for it
	Left      bool          `json:"left"`
	Error     string        `json:"error,omitempty"`
	Silent    seconds       `json:"silentSeconds"`
	Unacked   uint64        `json:"unacked"`
	Backlog   int           `json:"backlogBytes"`
	Resent    uint64        `json:"resent"`
	Repeated  uint64        `json:"repeated"`
	RoundTrip seconds       `json:"roundTripSeconds"`
	acts      bool          // the view does
}

type lock struct {
	Name     string          `json:"name"`
	Hex      string          `json:"hex,omitempty"` // its bytes, if it is no UTF-8
	Phase    string          `json:"phase"`
	Holder   dmutex.NodeID   `json:"holder,omitempty"`
	Client   string          `json:"client,omitempty"`         // of this node, which holds it for the client
	HeldFor  seconds         `json:"heldForSeconds,omitempty"` // by the holder, see node.MutexStatus
	Fence    uint64          `json:"fence,omitempty"`
	Age      seconds         `json:"ageSeconds"`
	Waiters  int             `json:"waiters"`
	WaitsFor []dmutex.NodeID `json:"waitsFor,omitempty"`
	Former   []dmutex.NodeID `json:"former,omitempty"`        // excluded members that may hold it
	Drains   seconds         `json:"drainsSeconds,omitempty"` // until their leases have ended
}

type client struct {
	Name     string  `json:"name"`
	Address  string  `json:"address,omitempty"`
	Holds    names   `json:"holds,omitempty"`
	WaitsFor names   `json:"waitsFor,omitempty"`
	Left     seconds `json:"leftSeconds"` // of its session
}

// State is how the node stands, in the words that are also its classes in the style of the page.
func (v status) State() string {
	switch {
	case v.Error != "":
		return "stopped"
	case !v.View.Acts:
		return "not ready"
	case v.Lease != nil && v.Lease.State != "valid", slices.ContainsFunc(v.Peers, peer.Bad):
		return "ready, with trouble"
	default:
		return "ready"
	}
}

// At is when the page was made.
func (v status) At() string { return time.Now().UTC().Format("2006-01-02 15:04:05 UTC") }

// Shown names a node on the page, and says if it does not answer.
func (v status) Shown(id dmutex.NodeID) string {
	i := slices.IndexFunc(v.Peers, func(p peer) bool { return p.ID == id })
	switch {
	case i < 0:
		return fmt.Sprintf("node %v", id)
	case v.Peers[i].mute():
		return fmt.Sprintf("%s, silent for %v", v.Peers[i].Shown(), v.Peers[i].Silent)
	default:
		return v.Peers[i].Shown()
	}
}

// Shown names the peer on the page.
func (p peer) Shown() string { return strings.TrimSpace(fmt.Sprintf("node %v %s", p.ID, p.Name)) }

// mute reports whether messages wait for the peer, which is silent.
func (p peer) mute() bool { return p.Met && p.Unacked > 0 && p.Silent >= seconds(time.Second) }

// State is how the node stands with the peer, as it is written on the page.
func (p peer) State() string {
	switch {
	case p.Error != "":
		return p.Error
	case p.Left:
		return "has left"
	case !p.Met:
		return "never met"
	case p.Missing && p.acts:
		return "gives no sign of life for " + p.Silent.String()
	case p.Missing && p.Silent > 0:
		return "has not agreed yet, silent for " + p.Silent.String()
	case p.Missing:
		return "has not agreed yet"
	case !p.InView:
		return "in no view yet"
	case p.mute():
		return "acknowledges nothing, silent for " + p.Silent.String()
	default:
		return "in the view"
	}
}

// Bad reports whether the peer keeps the group, or a part of it, waiting.
func (p peer) Bad() bool { return p.Error != "" || p.Missing || !p.InView && !p.Left || p.mute() }

// names are written on the page so that none looks like another.
type names []string

func (n names) String() string {
	list := slices.Clone(n)
	for i, name := range list {
		list[i] = quote(name)
	}
	return strings.Join(list, ", ")
}

func quote(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// seconds is a duration: in JSON a number of seconds, on the page as one reads it.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

func (s seconds) String() string {
	switch d := time.Duration(s); {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}

func (v *status) look(n *node.Node) {
	st := n.Status()
	v.Node, v.Name, v.Life, v.Error = n.Self(), st.Name, life(st.Life), text(st.Err)
	v.View = view{
		Epoch: st.View.Epoch, Members: st.View.Members, Acts: st.View.Acts, Age: seconds(st.View.Age),
		Missing: st.View.Missing, Error: text(st.View.Err), Changes: st.View.Changes, Took: seconds(st.View.Took),
	}
	if l := st.Lease; l != nil {
		v.Lease = &lease{State: l.State, Left: seconds(l.Remains), Error: text(l.Err), Exclusions: l.Exclusions}
	}
	v.Peers = make([]peer, 0, len(st.Peers))
	for _, p := range st.Peers {
		v.Peers = append(v.Peers, newPeer(p, st.View))
	}
	v.Granted, v.Refused, v.Deadlocks = st.Granted, st.Refused, st.Deadlocks
	v.Sent, v.Received = kinds(st.Sent), kinds(st.Received)
	v.Others, v.Rejected = max(len(st.Clients)-v.Limit, 0), st.ClientsRefused
	for _, c := range st.Clients[:len(st.Clients)-v.Others] {
		v.Clients = append(v.Clients, client{c.Name, c.Address, c.Holds, c.WaitsFor, seconds(c.Remaining)})
	}
	holds := make(map[string]string)
	for _, c := range st.Clients {
		for _, name := range c.Holds {
			holds[name] = c.Name
		}
	}
	v.lookAtLocks(n, holds)
}

func newPeer(p node.PeerStatus, v node.ViewStatus) peer {
	return peer{
		ID: p.ID, Name: p.Name, Address: p.Address, Life: life(p.Life), Met: p.Met, InView: p.InView, Missing: slices.Contains(v.Missing, p.ID),
		Left: p.Left, Error: text(p.Err), Silent: seconds(p.Silent),
		Unacked: p.Unacked, Backlog: p.Backlog, Resent: p.Resent, Repeated: p.Repeated, RoundTrip: seconds(p.RoundTrip),
		acts: v.Acts,
	}
}

// lookAtLocks fills in the locks that match, the oldest first, and how many are left out.
// It keeps at most twice as many as are shown; holds has the clients that hold locks.
func (v *status) lookAtLocks(n *node.Node, holds map[string]string) {
	v.Locks = make([]lock, 0, min(v.Limit, defaultLimit))
	cut := func() {
		slices.SortFunc(v.Locks, func(a, b lock) int {
			return cmp.Or(-cmp.Compare(a.Age, b.Age), cmp.Compare(a.Name, b.Name))
		})
		if more := len(v.Locks) - v.Limit; more > 0 {
			v.LeftOut += more
			v.Locks = slices.Delete(v.Locks, v.Limit, len(v.Locks))
		}
	}
	for name, st := range n.Locks() {
		if !strings.HasPrefix(name, v.Prefix) {
			continue
		}
		raw := ""
		if !utf8.ValidString(name) {
			raw = hex.EncodeToString([]byte(name))
		}
		v.Locks = append(v.Locks, lock{
			Name: name, Hex: raw, Phase: st.Phase.String(), Holder: st.Holder, Client: holds[name], HeldFor: seconds(st.HeldFor), Fence: st.Fence, Age: seconds(st.Age),
			Waiters: st.Waiters, WaitsFor: st.WaitsFor, Former: st.Former, Drains: seconds(st.Drains),
		})
		if len(v.Locks) == 2*v.Limit {
			cut()
		}
	}
	cut()
}

// life writes the name of a process's run, which is 64 bits.
func life(life uint64) string {
	if life == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", life)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// kinds names the kinds of messages of which there were some.
func kinds(counts [dmutex.Kinds]uint64) map[string]uint64 {
	named := make(map[string]uint64)
	for k, count := range counts {
		if count > 0 {
			named[dmutex.Kind(k).String()] = count
		}
	}
	return named
}

//go:embed page.html
var source string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"quote": quote}).Parse(source))
