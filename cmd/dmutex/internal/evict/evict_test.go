package evict

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/nodehttp"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

type grammar struct {
	Evict Cmd `cmd:""`
}

func TestMain(m *testing.M) { tooltest.Main(m, new(grammar)) }

func invoke(stdin string, args ...string) (status int, stdout, stderr string) {
	return tooltest.Run(new(grammar), stdin, append([]string{"evict"}, args...)...)
}

// A dead member is evicted when the user confirms that it is dead, and the others continue.
func TestEvict(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	net, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	members := []dmutex.NodeID{1, 2, 3}
	nodes := make(map[dmutex.NodeID]*node.Node)
	links := make(map[dmutex.NodeID]transport.Link)
	for _, id := range members {
		links[id] = net.Link(id)
		n, err := node.OpenStrict(t.Context(), id, members, links[id], node.Config{Algorithm: ricart.New})
		require.NoError(t, err)
		t.Cleanup(func() { n.Close(t.Context()) }) // the context has ended by then
		nodes[id] = n
	}
	for _, n := range nodes {
		require.NoError(t, n.Ready(t.Context()))
	}
	_, err = nodes[3].Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, links[3].Close())

	server := httptest.NewServer(nodehttp.Evict(nodes[1]))
	defer server.Close()
	for _, answer := range []string{"", "no\n", "y\n"} {
		status, stdout, stderr := invoke(answer, "--at", server.URL, "3")
		require.Equal(t, tool.StatusIncomplete, status)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "Are the processes of the members [3] dead, and will they stay so?")
		require.Contains(t, stderr, "nothing was done")
	}
	require.Len(t, nodes[1].Status().View.Members, 3)
	status, stdout, stderr := invoke("yes\n", "--at", server.URL, "3")
	require.Equal(t, tool.StatusOK, status, stderr)
	require.Contains(t, stdout, "evicted [3]")
	held, err := nodes[2].Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, held.Release())

	status, _, stderr = invoke("", "--at", server.URL, "--yes", "3")
	require.Equal(t, tool.StatusOK, status, stderr)
	status, _, stderr = invoke("", "--at", server.URL, "--yes", "1")
	require.Equal(t, tool.StatusIncomplete, status)
	require.Contains(t, stderr, "400 Bad Request: ")
}

// An answer that is no success, and no answer in time, are errors.
func TestEvictFails(t *testing.T) {
	asked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "/elsewhere", http.StatusSeeOther)
		case "/slow":
			<-asked
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	defer close(asked)
	for path, words := range map[string]string{
		"/elsewhere": "evict [3]: " + server.URL + "/elsewhere answers 404 Not Found: 404 page not found",
		"/away":      "answers 303 See Other",
		"/slow":      "evict [3]: no answer within 1ms",
	} {
		timeout := time.Minute
		if path == "/slow" {
			timeout = time.Millisecond
		}
		status, stdout, stderr := invoke("", "--yes", "--at", server.URL+path, "--timeout", timeout.String(), "3")
		require.Equal(t, tool.StatusIncomplete, status)
		require.Empty(t, stdout)
		require.Contains(t, stderr, words)
	}
}

func TestEvictUsage(t *testing.T) {
	run := func(args ...string) (status int, stdout, stderr string) {
		return tooltest.Run(new(grammar), "", args...)
	}
	tooltest.Refused(t, run, [][2]string{
		{"evict 3", "missing flags: --at=URL"},
		{"evict --at=http://h/evict", "expected \"<N> ...\""},
		{"evict --at=http://h/evict 0", "give the number of the member, from 1 on"},
		{"evict --at=localhost:8080 3", "--at=localhost:8080: give the whole address"},
		{"evict --at=http://h/evict --timeout=0s 3", "choose 1ms or more"},
	})
	status, stdout, _ := run("evict", "--help")
	require.Equal(t, tool.StatusOK, status)
	require.Contains(t, strings.Join(strings.Fields(stdout), " "), "they believe you")
}
