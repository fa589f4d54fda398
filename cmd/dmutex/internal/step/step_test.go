package step

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/step/byhand"
)

// The page is got and posted to, at one address. It may load nothing, and send forms to itself only.
func TestHandler(t *testing.T) {
	for _, c := range []struct {
		method, target, body string
		status               int
		says                 string
	}{
		{"GET", "/?algorithm=maekawa&nodes=4", "", 200, "maekawa, 4 nodes, messages in order"},
		{"HEAD", "/", "", 200, ""},
		{"POST", "/", url.Values{"algorithm": {"central"}, "script": {"group 1 2\nrequest 2\n"}}.Encode(), 200, "0 of 1 steps are done"},
		{"GET", "/?run=q1", "", 400, "Not done"},
		{"POST", "/", "script=" + strings.Repeat("x", 5*byhand.MostText), 400, "too long"},
		{"GET", "/?%zz", "", 400, "the form"},
		{"GET", "/favicon.ico", "", 404, "404"},
		{"PUT", "/", "", 405, "the page is got"},
	} {
		r := httptest.NewRequest(c.method, c.target, strings.NewReader(c.body))
		if c.method == "POST" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		w := httptest.NewRecorder()
		Handler().ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code, c.target)
		require.Contains(t, w.Body.String(), c.says)
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	}
}

func TestValidate(t *testing.T) {
	require.NoError(t, (&Cmd{Algorithm: "maekawa-plain"}).Validate())
	require.ErrorContains(t, (&Cmd{Algorithm: "raymond"}).Validate(), `there is no algorithm "raymond": choose one of central`)
}
