package nodehttp_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/nodehttp"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// group opens nodes 1 to n in memory, within a bubble of fake time.
func group(t *testing.T, a dmutex.Algorithm, n int, test func(t *testing.T, nodes []*node.Node)) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond})
		require.NoError(t, err)
		var (
			members []dmutex.NodeID
			nodes   []*node.Node
		)
		for id := range dmutex.NodeID(n) {
			members = append(members, id+1)
		}
		for _, id := range members {
			n, err := node.OpenStrict(t.Context(), id, members, net.Link(id), node.Config{Algorithm: a, Name: fmt.Sprintf("web-<%d>", id)})
			require.NoError(t, err)
			nodes = append(nodes, n)
		}
		test(t, nodes)
		hurry, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for _, n := range nodes {
			_ = n.Close(hurry)
		}
	})
}

func get(n *node.Node, target string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header = header
	w := httptest.NewRecorder()
	nodehttp.Handler(n).ServeHTTP(w, r)
	return w
}

// golden compares got with a file in testdata, without what differs between runs: lives, epochs,
// fences and milliseconds.
func golden(t *testing.T, name, got string) {
	t.Helper()
	for _, v := range [][2]string{
		{`\b[0-9a-f]{16}\b`, "0123456789abcdef"},
		{`(View|"epoch":) \d+`, "$1 2"},
		{`\b\d{7,}\b`, "8388609"}, // a fence
		{`[\d.]+ms`, "1ms"},
		{`(RoundTripSeconds|tookSeconds)": [\d.]+`, `$1": 0.001`},
	} {
		got = regexp.MustCompile("(?i)"+v[0]).ReplaceAllString(got, v[1])
	}
	got = regexp.MustCompile(`\d+\.\d+(s|,)`).ReplaceAllStringFunc(got, func(text string) string {
		v, err := strconv.ParseFloat(text[:len(text)-1], 64)
		require.NoError(t, err)
		if v < 1 {
			return text
		}
		return fmt.Sprintf("%.0f%s", v, text[len(text)-1:])
	})
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// L78: the page says who holds what, for how long, who waits, and for whom.
func TestPage(t *testing.T) {
	group(t, ricart.New, 3, func(t *testing.T, nodes []*node.Node) {
		one := nodes[0]
		require.NoError(t, one.Ready(t.Context()))
		acquire := func(n int, name string) lock.Held {
			h, err := nodes[n-1].Mutex(name).Acquire(t.Context())
			require.NoError(t, err)
			return h
		}
		acquire(1, "invoices/42")
		time.Sleep(61 * time.Second)
		acquire(2, "invoices/43")
		acquire(1, `<script>alert("é")</script>`)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, name := range []string{"invoices/43", "invoices/42"} {
			go func() {
				_, err := one.Mutex(name).Acquire(ctx)
				require.ErrorIs(t, err, context.Canceled)
			}()
		}
		time.Sleep(2 * time.Second)
		require.NoError(t, nodes[2].Close(t.Context()))
		time.Sleep(3 * time.Second)

		w := get(one, "/", nil)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
		require.NotContains(t, w.Body.String(), "<script")
		_, body, _ := strings.Cut(w.Body.String(), "</style>\n")
		golden(t, "page.html", body)

		w = get(one, "/?format=json&prefix=invoices/", nil)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.True(t, json.Valid(w.Body.Bytes()))
		golden(t, "page.json", w.Body.String())
		cancel()
		synctest.Wait()
	})
}

// The page of a node alone says so, and the page of a coordinator names the holders at other nodes.
func TestHolders(t *testing.T) {
	group(t, central.New, 1, func(t *testing.T, nodes []*node.Node) {
		body := get(nodes[0], "/", nil).Body.String()
		require.Contains(t, body, "None in use.")
		require.Contains(t, body, "<td>this process</td>")
		require.Contains(t, get(nodes[0], "/?prefix=x", nil).Body.String(), "None in use with such a name.")
		require.NoError(t, nodes[0].Close(t.Context()))
		require.Contains(t, get(nodes[0], "/", nil).Body.String(), "Nothing is granted any more: node: the node is closed")
	})
	group(t, central.At(1), 2, func(t *testing.T, nodes []*node.Node) {
		_, err := nodes[1].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		require.Contains(t, get(nodes[0], "/", nil).Body.String(), ">web-&lt;2&gt; (node 2), held for 3.001s</td>")
		require.Contains(t, get(nodes[0], "/?format=json", nil).Body.String(), `"heldForSeconds": 3.`)
	})
}

// The page tells apart locks with names that look alike.
func TestNames(t *testing.T) {
	group(t, central.New, 1, func(t *testing.T, nodes []*node.Node) {
		for _, tt := range []struct{ name, shown, hex string }{
			{"a  b é", "a  b é", ""},
			{"a\nb", `&#34;a\nb&#34;`, ""},
			{`"a\nb"`, `&#34;\&#34;a\\nb\&#34;&#34;`, ""},
			{"user\u202egnp", `&#34;user\u202egnp&#34;`, ""},
			{"a\xff", `&#34;a\xff&#34;`, "61ff"},
			{"a\xfe", `&#34;a\xfe&#34;`, "61fe"},
		} {
			h, err := nodes[0].Mutex(tt.name).Acquire(t.Context())
			require.NoError(t, err)
			require.Contains(t, get(nodes[0], "/", nil).Body.String(), `class="name">`+tt.shown+`</th>`)
			var v struct {
				Locks []struct{ Name, Hex string }
			}
			require.NoError(t, json.Unmarshal(get(nodes[0], "/?format=json", nil).Body.Bytes(), &v))
			require.Len(t, v.Locks, 1)
			require.Equal(t, strings.ToValidUTF8(tt.name, "\uFFFD"), v.Locks[0].Name)
			require.Equal(t, tt.hex, v.Locks[0].Hex)
			require.NoError(t, h.Release())
		}
	})
}

// The page shows a limited number of locks, the oldest first, and says how many are left out.
func TestLimit(t *testing.T) {
	group(t, central.New, 1, func(t *testing.T, nodes []*node.Node) {
		n := nodes[0]
		for i := range 1000 {
			_, err := n.Mutex(fmt.Sprintf("lock/%03d", i)).Acquire(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		type view struct {
			Locks []struct {
				Name       string
				AgeSeconds float64
			}
			LeftOut int
		}
		read := func(query string) (v view) {
			require.NoError(t, json.Unmarshal(get(n, "/?format=json&"+query, nil).Body.Bytes(), &v))
			return v
		}
		for _, tc := range []struct {
			query        string
			shown, first int
			leftOut      int
		}{
			{"", 200, 0, 800},
			{"limit=1000", 1000, 0, 0},
			{"limit=10000", 1000, 0, 0},
			{"limit=3", 3, 0, 997},
			{"limit=1", 1, 0, 999},
			{"prefix=lock/5", 100, 500, 0},
			{"prefix=lock/5&limit=7", 7, 500, 93},
			{"prefix=none", 0, 0, 0},
		} {
			v := read(tc.query)
			require.Len(t, v.Locks, tc.shown, tc.query)
			require.Equal(t, tc.leftOut, v.LeftOut, tc.query)
			for i, l := range v.Locks {
				require.Equal(t, fmt.Sprintf("lock/%03d", tc.first+i), l.Name)
				require.EqualValues(t, 1000-tc.first-i, l.AgeSeconds)
			}
		}
		require.Contains(t, get(n, "/?limit=3", nil).Body.String(), "And 997 more")
	})
}

// A peer that is configured differently is shown as such.
func TestOtherConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		var nodes []*node.Node
		for id := range dmutex.NodeID(2) {
			n, err := node.OpenStrict(t.Context(), id+1, []dmutex.NodeID{1, 2}, net.Link(id+1), node.Config{Deadlock: time.Duration(id)})
			require.NoError(t, err)
			nodes = append(nodes, n)
		}
		time.Sleep(time.Second)
		require.Contains(t, get(nodes[0], "/", nil).Body.String(), "here &#34;deadlock 0s&#34;, there &#34;deadlock 1ns&#34;</td>")
		require.Contains(t, get(nodes[0], "/?format=json", nil).Body.String(), `here \"deadlock 0s\", there \"deadlock 1ns\"",`)
		for _, n := range nodes {
			require.NoError(t, n.Close(t.Context()))
		}
	})
}

// crash cuts a node off and closes it, so that its peers hear no farewell. Then it heals the
// network.
func crash(net *memlink.Network, nodes []*node.Node, id dmutex.NodeID) {
	for i := range nodes {
		net.Cut(id, dmutex.NodeID(i+1))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = nodes[id-1].Close(ctx)
	net.Heal()
}

// The page says when no view acts, since when, and who is missing.
func TestViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond})
		require.NoError(t, err)
		nodes := make([]*node.Node, 3)
		open := func(id dmutex.NodeID) {
			var err error
			nodes[id-1], err = node.OpenStrict(t.Context(), id, []dmutex.NodeID{1, 2, 3}, net.Link(id), node.Config{Algorithm: ricart.New})
			require.NoError(t, err)
		}
		page := func(id int) string { return get(nodes[id-1], "/", nil).Body.String() }
		open(1)
		open(2)
		time.Sleep(5 * time.Second)
		require.Contains(t, page(1), "Nothing has been granted for 5s: this node waits for node 3.")
		require.Contains(t, page(1), `<th scope="row">node 3</th><td class="bad">never met</td>`)
		require.Regexp(t, `<th scope="row">.* \(node 2\)</th><td class="bad">in no view yet</td>`, page(1))
		open(3)
		require.NoError(t, nodes[0].Ready(t.Context()))
		time.Sleep(time.Minute)
		require.Regexp(t, `View \d+ has granted locks for 1m0s. Its members are node 1, 2, 3.`, page(1))
		require.Regexp(t, `, views so far 1; the last change took \d`, page(1))
		require.Regexp(t, `<th scope="row">.* \(node 2\)</th><td>in the view</td>`, page(1))

		crash(net, nodes, 3)
		waits, stop := context.WithCancel(t.Context())
		go func() {
			_, err := nodes[0].Mutex("x").Acquire(waits)
			require.ErrorIs(t, err, context.Canceled)
		}()
		time.Sleep(5 * time.Second)
		require.Contains(t, page(1), `<p class="ready, with trouble">`)
		require.Regexp(t, `<b>.* \(node 3\)</b>: <span class="bad">acknowledges nothing, silent for 1m5`, page(1))
		require.Regexp(t, `data-l="waits for">.* \(node 3\), silent for 1m5`, page(1))
		stop()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.Error(t, nodes[1].Close(ctx), "3 does not agree")
		require.Contains(t, page(1), "has granted locks for 1m15s. Its members are node 1, 2, 3.", "nobody is presumed dead")
		open(2)
		time.Sleep(10 * time.Second)
		require.Contains(t, page(2), "Nothing has been granted for 10s: this node waits for node 3.")
		open(3)
		require.NoError(t, nodes[1].Ready(t.Context()))
		require.NoError(t, nodes[0].Ready(t.Context()))
		require.Contains(t, page(1), "views so far 2;")
		require.NoError(t, nodes[2].Close(t.Context()))
		time.Sleep(5 * time.Second)
		require.Regexp(t, `<th scope="row">.* \(node 3\)</th><td>has left</td>`, page(1))
		require.Contains(t, page(1), "Its members are node 1, 2.")
		for _, n := range nodes[:2] {
			require.NoError(t, n.Close(t.Context()))
		}
		require.Contains(t, page(1), "Nothing is granted any more: node: the node is closed")
	})
}

func serve(h http.Handler, r *http.Request) (code int, body string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// Ready answers 200 while a view acts, and otherwise names the missing members.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond})
		require.NoError(t, err)
		open := func(id dmutex.NodeID) *node.Node {
			n, err := node.OpenStrict(t.Context(), id, []dmutex.NodeID{1, 2, 3}, net.Link(id), node.Config{})
			require.NoError(t, err)
			return n
		}
		nodes := []*node.Node{open(1), open(2)}
		probe := nodehttp.Ready(nodes[0])
		get := httptest.NewRequest(http.MethodGet, "/", nil)
		time.Sleep(5 * time.Second)
		code, body := serve(probe, get)
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, "not ready for 5s\nwaiting for node 3: never met\n", body)

		nodes = append(nodes, open(3))
		require.NoError(t, nodes[0].Ready(t.Context()))
		code, body = serve(probe, get)
		require.Equal(t, http.StatusOK, code)
		require.Regexp(t, `^ready: view \d+ of nodes \[1 2 3\]\n$`, body)
		require.NotContains(t, body, "not ready")

		// A view is installed and does not act, because 1 does not hear the report of 3.
		time.Sleep(5 * time.Second)
		crash(net, nodes, 2)
		net.Cut(3, 1)
		nodes[1] = open(2)
		time.Sleep(5 * time.Second)
		code, body = serve(probe, get)
		require.Equal(t, http.StatusServiceUnavailable, code, body)
		require.Regexp(t, `^not ready for \S+s\nwaiting for node 3: has not agreed yet, silent for \S+\n$`, body)
		net.Heal()
		require.NoError(t, nodes[0].Ready(t.Context()))
		code, _ = serve(probe, httptest.NewRequest(http.MethodHead, "/", nil))
		require.Equal(t, http.StatusOK, code)
		code, _ = serve(probe, httptest.NewRequest(http.MethodPost, "/", nil))
		require.Equal(t, http.StatusMethodNotAllowed, code)
		for _, n := range nodes {
			require.NoError(t, n.Close(t.Context()))
		}
		code, body = serve(probe, get)
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, "nothing is granted any more: node: the node is closed\n", body)
	})
}

// Alive fails only when a restart of the process would help.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		get := httptest.NewRequest(http.MethodGet, "/", nil)
		for _, byItself := range []bool{false, true} {
			link := net.Link(1)
			n, err := node.OpenStrict(t.Context(), 1, []dmutex.NodeID{1, 2}, link, node.Config{})
			require.NoError(t, err)
			code, body := serve(nodehttp.Alive(n), get)
			require.Equal(t, http.StatusOK, code, "it waits for 2")
			require.Equal(t, "alive\n", body)
			code, _ = serve(nodehttp.Alive(n), httptest.NewRequest(http.MethodPost, "/", nil))
			require.Equal(t, http.StatusMethodNotAllowed, code)
			if byItself {
				require.NoError(t, link.Close())
				<-n.Done()
				code, body = serve(nodehttp.Alive(n), get)
				require.Equal(t, http.StatusServiceUnavailable, code)
				require.Contains(t, body, "the link was closed before the node")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = n.Close(ctx)
			cancel()
			code, _ = serve(nodehttp.Alive(n), get)
			require.Equal(t, byItself, code != http.StatusOK)
		}
	})
}

// An operator evicts by a POST with the member's number, and by nothing else.
func TestEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond})
		require.NoError(t, err)
		var nodes []*node.Node
		for id := range dmutex.NodeID(3) {
			n, err := node.OpenStrict(t.Context(), id+1, []dmutex.NodeID{1, 2, 3}, net.Link(id+1), node.Config{})
			require.NoError(t, err)
			nodes = append(nodes, n)
		}
		_, err = nodes[2].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		post := func(form string) *http.Request {
			r := httptest.NewRequest(http.MethodPost, "/evict?member=2", strings.NewReader(form))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return r
		}
		foreign := post("member=3")
		foreign.Header.Set("Sec-Fetch-Site", "cross-site")
		for _, tt := range []struct {
			r    *http.Request
			code int
			body string
		}{
			{httptest.NewRequest(http.MethodGet, "/evict?member=3", nil), http.StatusMethodNotAllowed, "POST member=NUMBER"},
			{post(""), http.StatusBadRequest, "the form needs member=NUMBER"},
			{post("member=two"), http.StatusBadRequest, "the form needs member=NUMBER"},
			{post("member=" + strings.Repeat("0", 2000) + "3"), http.StatusBadRequest, "the form needs"},
			{post("member=4"), http.StatusBadRequest, "4 is not a member"},
			{post("member=1"), http.StatusBadRequest, "1 is this node itself"},
			{foreign, http.StatusForbidden, "cross-origin"},
		} {
			code, body := serve(nodehttp.Evict(nodes[0]), tt.r)
			require.Equal(t, tt.code, code, body)
			require.Contains(t, body, tt.body)
		}
		require.Len(t, nodes[0].Status().View.Members, 3, "nothing has happened")

		crash(net, nodes, 3)
		code, body := serve(nodehttp.Evict(nodes[0]), post("member=3"))
		require.Equal(t, http.StatusOK, code, body)
		require.Regexp(t, `^evicted \[3\]: view \d+ goes on with nodes \[1 2\]\n$`, body)
		h, err := nodes[1].Mutex("x").Acquire(t.Context())
		require.NoError(t, err, "what it held is free")
		require.NoError(t, h.Release())

		crash(net, nodes, 2)
		code, body = serve(nodehttp.Evict(nodes[0]), post("member=2"))
		require.Equal(t, http.StatusOK, code, body)
		require.Contains(t, body, "goes on with nodes [1]")
		require.NoError(t, nodes[0].Close(t.Context()))
		code, body = serve(nodehttp.Evict(nodes[0]), post("member=2"))
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Contains(t, body, "node: the node is closed")
	})
}

// Deadlocks that were broken here are counted.
func TestDeadlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		n, err := node.OpenStrict(t.Context(), 1, []dmutex.NodeID{1}, net.Link(1), node.Config{Deadlock: time.Second})
		require.NoError(t, err)
		require.NotContains(t, get(n, "/", nil).Body.String(), "deadlocks")
		one, two := n.Txn(), n.Txn()
		_, err = one.Acquire(t.Context(), "a")
		require.NoError(t, err)
		_, err = two.Acquire(t.Context(), "b")
		require.NoError(t, err)
		var other sync.WaitGroup
		other.Go(func() {
			_, err := one.Acquire(t.Context(), "b")
			require.NoError(t, err)
			require.NoError(t, one.Release())
		})
		_, err = two.Acquire(t.Context(), "a")
		require.ErrorIs(t, err, node.ErrDeadlock)
		require.NoError(t, two.Release())
		other.Wait()
		require.Contains(t, get(n, "/", nil).Body.String(), "waits ended to break deadlocks 1,")
		require.Contains(t, get(n, "/?format=json", nil).Body.String(), `"deadlocks": 1`)
		require.NoError(t, n.Close(t.Context()))
	})
}

func TestRequests(t *testing.T) {
	group(t, central.New, 1, func(t *testing.T, nodes []*node.Node) {
		n := nodes[0]
		for _, query := range []string{"limit=0", "limit=-1", "limit=10001", "limit=x", "format=xml", "fromat=json", "%zz"} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.URL.RawQuery = query
			w := httptest.NewRecorder()
			nodehttp.Handler(n).ServeHTTP(w, r)
			require.Equal(t, http.StatusBadRequest, w.Code, query)
		}
		for _, tc := range []struct{ query, accept, want string }{
			{"", "", "text/html; charset=utf-8"},
			{"", "*/*", "text/html; charset=utf-8"},
			{"", "text/html,application/xhtml+xml,application/json;q=0.9", "text/html; charset=utf-8"},
			{"", "application/json", "application/json"},
			{"", "text/plain, application/json;q=0.5", "application/json"},
			{"?format=json", "text/html", "application/json"},
			{"?format=html", "application/json", "text/html; charset=utf-8"},
		} {
			w := get(n, "/"+tc.query, http.Header{"Accept": {tc.accept}})
			require.Equal(t, tc.want, w.Header().Get("Content-Type"), tc)
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		}
		w := httptest.NewRecorder()
		nodehttp.Handler(n).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("")))
		require.Equal(t, http.StatusMethodNotAllowed, w.Code)
		require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	})
}

// The page of a node with a store shows the state of its lease.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		faulty := outagetest.New(t, new(store.Memory), outagetest.Faults{})
		n, err := node.Open(t.Context(), faulty, net.Link(dmutex.None), node.Config{Algorithm: ricart.New, Lease: 16 * time.Second})
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Contains(t, get(n, "/", nil).Body.String(), "<p>The lease is valid, and ends in 14s unless it is renewed.</p>")
		require.Contains(t, get(n, "/?format=json", nil).Body.String(), `"lease": {
    "exclusions": 0,
    "lengthSeconds": 16,
    "remainsSeconds": 14,
    "state": "valid"
  }`)
		faulty.Outage(true)
		time.Sleep(11 * time.Second)
		require.Contains(t, get(n, "/", nil).Body.String(), `<p>The lease is late, and ends in 3s unless it is renewed: context deadline exceeded. What is held here is lost then.</p>`)
		time.Sleep(time.Minute)
		require.Contains(t, get(n, "/", nil).Body.String(), `<p>The lease has ended, or not begun: context deadline exceeded.</p>`)
		faulty.Outage(false)
		require.NoError(t, n.Close(t.Context()))
	})
}

// A node that has no number yet holds nothing, and neither does a caller that waits there.
func TestNumberless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		faulty := outagetest.New(t, new(store.Memory), outagetest.Faults{})
		faulty.Outage(true)
		n, err := node.Open(t.Context(), faulty, net.Link(dmutex.None), node.Config{})
		require.NoError(t, err)
		waits, stop := context.WithCancel(t.Context())
		go func() { _, _ = n.Mutex("door").Acquire(waits) }()
		synctest.Wait()
		require.Equal(t, dmutex.None, n.Self())
		require.Regexp(t, `class="name">door</th>.*<td data-l="holder"></td>`, get(n, "/", nil).Body.String())
		stop()
		faulty.Outage(false)
		require.NoError(t, n.Close(t.Context()))
	})
}

// L78: after a crash the survivors name the crashed member, and what they wait for, all the time.
func TestLeaseCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond})
		require.NoError(t, err)
		var record store.Memory
		var nodes []*node.Node
		var stores []*outagetest.Store
		var log nodetest.Journal
		for range 3 {
			faulty := outagetest.New(t, &record, outagetest.Faults{})
			n, err := node.Open(t.Context(), faulty, net.Link(dmutex.None), node.Config{Name: "web", Logger: log.Logger()})
			require.NoError(t, err)
			time.Sleep(time.Minute)
			nodes, stores = append(nodes, n), append(stores, faulty)
		}
		ready := func(n *node.Node) (code int, body string) {
			return serve(nodehttp.Ready(n), httptest.NewRequest(http.MethodGet, "/", nil))
		}
		code, body := ready(nodes[0])
		require.Equal(t, http.StatusOK, code)
		require.Regexp(t, `^ready: view \d+ of nodes \[1 2 3\]\n$`, body)

		_, err = nodes[2].Mutex("theirs").Acquire(t.Context())
		require.NoError(t, err)
		next := make(chan error, 1)
		go func() {
			h, err := nodes[0].Mutex("theirs").Acquire(t.Context())
			if err == nil {
				err = h.Release()
			}
			next <- err
		}()
		time.Sleep(8 * time.Second) // so that the wait is long enough to be logged while it is for a former member
		stores[2].Outage(true)
		crash(net, nodes, 3)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for _, n := range nodes[:2] {
			code, body = ready(n)
			require.Equal(t, http.StatusOK, code)
			require.Regexp(t, `\nwaiting for node 3: gives no sign of life for [12]\.\d+s\n$`, body)
			require.Contains(t, get(n, "/", nil).Body.String(), `<b>web (node 3)</b>: <span class="bad">gives no sign of life for `)
			require.Regexp(t, fmt.Sprintf(`level=WARN msg="peer gives no sign of life" node=%d peer=3 name=web silent=1\.\d+s`, n.Self()), log.String())
		}
		for len(nodes[0].Status().View.Members) == 3 || !nodes[0].Status().View.Acts {
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		for _, n := range nodes[:2] {
			require.Contains(t, log.String(), fmt.Sprintf("level=WARN msg=waiting node=%d waited=0s err=%q", n.Self(),
				"waiting until the leases of members web (node 3), which were excluded, have ended: at most 10.2s more"))
		}
		time.Sleep(8 * time.Second)
		synctest.Wait()
		require.Regexp(t, `msg="lock is waited for" .*lock=theirs .*for="waiting for the leases of former members web \(node 3\), which may hold it: at most `, log.String())
		for len(next) == 0 {
			code, _ = ready(nodes[0])
			require.Equal(t, http.StatusOK, code, "only one lock waits")
			require.Equal(t, 1, nodes[0].Status().Draining)
			require.Positive(t, nodes[0].Status().Drains)
			body := get(nodes[0], "/", nil).Body.String()
			require.Regexp(t, `>the lease of web \(node 3\), at most [\d.]+m?s more</td>`, body)
			require.Regexp(t, `<title>ready, with trouble: web</title>`, body)
			require.Regexp(t, `<div class="sum ready, with trouble">`, body)
			require.Regexp(t, `<b>1 lock waits</b> for the leases of web \(node 3\), which may hold it: until \d\d:\d\d:\d\d UTC at the latest, in [\d.]+m?s\.`, body)
			require.Regexp(t, `"drainsSeconds": \d[^}]*"former": \[\s+3\s+\]`, get(nodes[0], "/?format=json", nil).Body.String())
			time.Sleep(100 * time.Millisecond)
		}
		require.NoError(t, <-next)
		require.Zero(t, nodes[0].Status().Draining)
		code, body = ready(nodes[0])
		require.Equal(t, http.StatusOK, code)
		require.Regexp(t, `^ready: view \d+ of nodes \[1 2\]\n$`, body)
		for _, n := range nodes[:2] {
			require.NoError(t, n.Close(t.Context()))
		}
	})
}
