package tuslock_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/dmutex/dmutex/examples/internal/three"
	"github.com/dmutex/dmutex/examples/tuslock"
	"github.com/dmutex/dmutex/node"
)

// serve runs a tusd with its uploads in a folder.
func serve(t *testing.T, folder string, n *node.Node) *httptest.Server {
	composer := handler.NewStoreComposer()
	filestore.New(folder).UseIn(composer)
	composer.UseLocker(tuslock.Locker{Node: n})
	h, err := handler.NewHandler(handler.Config{StoreComposer: composer, BasePath: "/"})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func send(t *testing.T, method, url string, body io.Reader, header map[string]string) *http.Response {
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	r.Header.Set("Tus-Resumable", "1.0.0")
	for key, value := range header {
		r.Header.Set(key, value)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer
}

// An upload hangs at one server. The client resumes it at another, which need not wait for the first
// one's timeout, and a third has all of it.
func TestResumeElsewhere(t *testing.T) {
	folder, members := t.TempDir(), three.Open(t)
	var servers []*httptest.Server
	for _, n := range members {
		servers = append(servers, serve(t, folder, n))
	}
	made := send(t, http.MethodPost, servers[0].URL, nil, map[string]string{"Upload-Length": "10"})
	require.Equal(t, http.StatusCreated, made.StatusCode)
	path := made.Header.Get("Location")[len(servers[0].URL):]

	body, write := io.Pipe()
	hung := make(chan *http.Response)
	go func() {
		hung <- send(t, http.MethodPatch, servers[0].URL+path, body, map[string]string{"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"})
	}()
	_, err := write.Write([]byte("hello"))
	require.NoError(t, err)
	for { // until that has arrived, and the first server waits for more
		h, err := members[1].Mutex("tus" + path).Holder(t.Context())
		require.NoError(t, err)
		if h.Node == members[0].Self() {
			break
		}
	}

	head := send(t, http.MethodHead, servers[1].URL+path, nil, nil)
	require.Equal(t, http.StatusOK, head.StatusCode)
	require.Equal(t, "5", head.Header.Get("Upload-Offset"))
	require.NoError(t, write.Close())
	require.NotEqual(t, http.StatusNoContent, (<-hung).StatusCode)

	rest := send(t, http.MethodPatch, servers[1].URL+path, strings.NewReader("world"), map[string]string{"Upload-Offset": "5", "Content-Type": "application/offset+octet-stream"})
	require.Equal(t, http.StatusNoContent, rest.StatusCode)
	require.Equal(t, "10", send(t, http.MethodHead, servers[2].URL+path, nil, nil).Header.Get("Upload-Offset"))
}
