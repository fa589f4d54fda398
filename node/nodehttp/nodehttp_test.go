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
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/nodehttp"
	"github.com/dmutex/dmutex/ricart"
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
			n, err := node.Open(t.Context(), node.Config{Self: id, Members: members, Algorithm: a, Link: net.Link(id)})
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

// golden compares with a file in testdata. Incarnations are drawn anew each time.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = regexp.MustCompile(`\b[0-9a-f]{16}\b`).ReplaceAllString(got, "0123456789abcdef")
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
		acquire := func(n int, name string) *node.Held {
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
		_, err := one.Mutex("orders").Acquire(t.Context())
		require.ErrorIs(t, err, node.ErrLeft)

		w := get(one, "/", nil)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
		require.NotContains(t, w.Body.String(), "<script")
		golden(t, "page.html", w.Body.String())

		w = get(one, "/?format=json&prefix=invoices/", nil)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.True(t, json.Valid(w.Body.Bytes()))
		golden(t, "page.json", w.Body.String())
		cancel()
		synctest.Wait()
	})
}

// A node alone, and a coordinator that knows of the others.
func TestHolders(t *testing.T) {
	group(t, central.New, 1, func(t *testing.T, nodes []*node.Node) {
		body := get(nodes[0], "/", nil).Body.String()
		require.Contains(t, body, "None in use.")
		require.Contains(t, body, "this node alone")
		require.Contains(t, get(nodes[0], "/?prefix=x", nil).Body.String(), "None in use with such a name.")
		require.NoError(t, nodes[0].Close(t.Context()))
		require.Contains(t, get(nodes[0], "/", nil).Body.String(), "Nothing is granted: node is closed")
	})
	group(t, central.New, 2, func(t *testing.T, nodes []*node.Node) {
		_, err := nodes[1].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.Contains(t, get(nodes[0], "/", nil).Body.String(), "<td>node 2</td>")
	})
}

// Whoever reads of a lock knows which: names that look alike are told apart.
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
			require.Contains(t, get(nodes[0], "/", nil).Body.String(), `<td class="name">`+tt.shown+`</td>`)
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

// However many locks there are, the page has an end: the oldest are on it, and it
// says how many are not.
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
			n, err := node.Open(t.Context(), node.Config{Self: id + 1, Members: []dmutex.NodeID{1, 2}, Fence: uint64(id), Algorithm: central.New, Link: net.Link(id + 1)})
			require.NoError(t, err)
			nodes = append(nodes, n)
		}
		time.Sleep(time.Second)
		const text = "here and there are different: Fence"
		require.Contains(t, get(nodes[0], "/", nil).Body.String(), text+"</span>")
		require.Contains(t, get(nodes[0], "/?format=json", nil).Body.String(), text+`",`)
		for _, n := range nodes {
			require.NoError(t, n.Close(t.Context()))
		}
	})
}

// Deadlocks that were broken here are counted.
func TestDeadlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		n, err := node.Open(t.Context(), node.Config{Self: 1, Members: []dmutex.NodeID{1}, Algorithm: central.New, Link: net.Link(1), Deadlock: time.Second})
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
		require.Contains(t, get(n, "/", nil).Body.String(), "waits ended to break deadlocks 1<")
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
