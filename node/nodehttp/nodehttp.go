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
	"maps"
	"net/http"
	"net/url"
	"reflect"
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
//	limit=50           how many locks, first those that are waited for and the oldest, and clients; 1 to 10000, default 200
//
// It counts those left out. Names that look like others are quoted on the page.
// It answers GET and HEAD, and a query that it does not understand with status 400.
//
// The JSON has the fields of [node.Status], and of [node.MutexStatus] for each lock, such as
// view.ageSeconds: durations are numbers of seconds, errors are texts, lives are hexadecimal, and
// hex has the bytes of a lock's name that is not UTF-8.
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
			err = out.Encode(plain(reflect.ValueOf(v)))
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
		accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
		return v, strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html"), nil
	case "json", "html":
		return v, format == "json", nil
	default:
		return v, false, fmt.Errorf("format is json or html, not %q", format)
	}
}

// A status is what is shown: as JSON, and to the template.
type status struct {
	node.Status
	Node           dmutex.NodeID
	Peers          []peer
	Locks          []lock
	LeftOut        int                 // locks that match and are not in Locks
	former         map[string]bool     // for whose leases locks wait
	waits          map[string][]string // the clients that wait for a lock
	ClientsLeftOut int
	Prefix         string
	Limit          int
}

type peer struct {
	node.PeerStatus
	Missing bool // the node waits for it
	acts    bool // the view does
}

type lock struct {
	Name string
	Hex  string // its bytes, if it is no UTF-8
	node.MutexStatus
}

// State is how the node stands, in the words that are also its classes in the style of the page.
func (v status) State() string {
	switch {
	case v.Err != nil:
		return "stopped"
	case !v.View.Acts:
		return "not ready"
	case v.Lease != nil && v.Lease.State != node.LeaseValid, v.Draining > 0, slices.ContainsFunc(v.Peers, peer.Bad):
		return "ready, with trouble"
	default:
		return "ready"
	}
}

// Former names those for whose leases locks wait.
func (v status) Former() string { return strings.Join(slices.Sorted(maps.Keys(v.former)), ", ") }

// Death returns how long a lock waits after its holder's process has died.
func (v status) Death() time.Duration { return v.Lease.Length * 3 / 2 }

// Waits names the clients that wait for a lock.
func (v status) Waits(lock string) string { return names(v.waits[lock]) }

// Shown names a node on the page, and says if it does not answer.
func (v status) Shown(id dmutex.NodeID) string {
	i := slices.IndexFunc(v.Peers, func(p peer) bool { return p.ID == id })
	switch {
	case i < 0:
		return called("", id)
	case v.Peers[i].mute():
		return fmt.Sprintf("%s, silent for %s", v.Peers[i].Shown(), age(v.Peers[i].Silent))
	default:
		return v.Peers[i].Shown()
	}
}

// Shown names the peer on the page.
func (p peer) Shown() string {
	return called(strings.TrimSuffix(p.Name, fmt.Sprintf(" (%v)", p.ID)), p.ID) // which tells names apart elsewhere
}

// called names a node as errors do.
func called(name string, id dmutex.NodeID) string {
	if name == "" {
		return fmt.Sprintf("node %v", id)
	}
	return fmt.Sprintf("%s (node %v)", name, id)
}

// mute reports whether messages wait for the peer, which is silent.
func (p peer) mute() bool { return p.Met && p.Unacked > 0 && p.Silent >= time.Second }

// State is how the node stands with the peer, as it is written on the page.
func (p peer) State() string {
	switch {
	case p.Err != nil:
		return p.Err.Error()
	case p.Left:
		return "has left"
	case !p.Met:
		return "never met"
	case p.Missing && p.acts:
		return "gives no sign of life for " + age(p.Silent)
	case p.Missing && p.Silent > 0:
		return "has not agreed yet, silent for " + age(p.Silent)
	case p.Missing:
		return "has not agreed yet"
	case !p.InView:
		return "in no view yet"
	case p.mute():
		return "acknowledges nothing, silent for " + age(p.Silent)
	default:
		return "in the view"
	}
}

// Bad reports whether the peer keeps the group, or a part of it, waiting.
func (p peer) Bad() bool { return p.Err != nil || p.Missing || !p.InView && !p.Left || p.mute() }

// names are written on the page so that none looks like another.
func names(list []string) string {
	quoted := make([]string, len(list))
	for i, name := range list {
		quoted[i] = quote(name)
	}
	return strings.Join(quoted, ", ")
}

func quote(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// age writes a duration as one reads it.
func age(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		d = d.Round(time.Second)
	case d >= 10*time.Millisecond:
		d = d.Round(time.Millisecond)
	default:
		d = d.Round(time.Microsecond)
	}
	return d.String()
}

func (v *status) look(n *node.Node) {
	v.Status, v.Node = n.Status(), n.Self()
	for _, p := range v.Status.Peers {
		v.Peers = append(v.Peers, newPeer(p, v.View))
	}
	v.former, v.waits = make(map[string]bool), make(map[string][]string)
	for _, c := range v.Clients {
		for _, lock := range c.WaitsFor {
			v.waits[lock] = append(v.waits[lock], c.Name)
		}
	}
	v.ClientsLeftOut = max(len(v.Clients)-v.Limit, 0)
	v.Clients = v.Clients[:len(v.Clients)-v.ClientsLeftOut]
	v.lookAtLocks(n)
}

func newPeer(p node.PeerStatus, v node.ViewStatus) peer {
	return peer{p, slices.Contains(v.Missing, p.ID), v.Acts}
}

// lookAtLocks fills in the locks that match, those that are waited for before the others, the oldest
// first, and how many are left out.
// It keeps at most twice as many as are shown.
func (v *status) lookAtLocks(n *node.Node) {
	later := func(l lock) int {
		if l.Phase == dmutex.Waiting {
			return 0
		}
		return 1
	}
	cut := func() {
		slices.SortFunc(v.Locks, func(a, b lock) int {
			return cmp.Or(cmp.Compare(later(a), later(b)), -cmp.Compare(a.Age, b.Age), cmp.Compare(a.Name, b.Name))
		})
		if more := len(v.Locks) - v.Limit; more > 0 {
			v.LeftOut += more
			v.Locks = slices.Delete(v.Locks, v.Limit, len(v.Locks))
		}
	}
	for name, st := range n.Locks() {
		for _, former := range st.FormerNames {
			if st.Waiters > 0 {
				v.former[former] = true
			}
		}
		if !strings.HasPrefix(name, v.Prefix) {
			continue
		}
		raw := ""
		if !utf8.ValidString(name) {
			raw = hex.EncodeToString([]byte(name))
		}
		v.Locks = append(v.Locks, lock{name, raw, st})
		if len(v.Locks) == 2*v.Limit {
			cut()
		}
	}
	cut()
}

// kinds maps the name of each kind to its count, without the kinds whose count is 0.
func kinds(counts [dmutex.Kinds]uint64) map[string]uint64 {
	named := make(map[string]uint64)
	for k, count := range counts {
		if count > 0 {
			named[dmutex.Kind(k).String()] = count
		}
	}
	return named
}

// life writes the name of a process's run, which is 64 bits.
func life(life uint64) string { return fmt.Sprintf("%016x", life) }

// plain returns a value as JSON has it: a struct as an object of its fields and of those that it
// embeds, a duration in seconds, and an error as its text.
func plain(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.Seconds()
	case error:
		return x.Error()
	case dmutex.Phase:
		return x.String()
	case [dmutex.Kinds]uint64:
		return kinds(x)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return plain(v.Elem())
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(v.Index(i))
		}
		return list
	case reflect.Struct:
		return object(v)
	default:
		return v.Interface()
	}
}

// object leaves out what is nil, and a text that is empty.
func object(v reflect.Value) map[string]any {
	all := make(map[string]any)
	for f, v := range v.Fields() {
		key := strings.ToLower(f.Name[:1]) + f.Name[1:]
		switch {
		case !f.IsExported(), v.IsZero() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface || v.Kind() == reflect.String):
		case f.Anonymous:
			maps.Copy(all, object(v))
		case f.Name == "ID":
			all["id"] = plain(v)
		case f.Name == "Err":
			all["error"] = plain(v)
		case f.Name == "Life":
			all[key] = life(v.Uint())
		case f.Type == reflect.TypeFor[time.Duration]():
			all[key+"Seconds"] = plain(v)
		default:
			all[key] = plain(v)
		}
	}
	return all
}

//go:embed page.html
var source string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"age": age, "called": called, "kinds": kinds, "life": life, "names": names, "quote": quote,
	"now": func() time.Time { return time.Now().UTC() },
}).Parse(source))
