package serve

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/servetest"
)

// A client of the page that says nothing, does not say all, reads nothing or asks for nothing more is disconnected.
func TestServerEndsIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(servetest.Door)
		large := bytes.Repeat([]byte("x"), 1<<20)
		s := webServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/large" {
				_, _ = w.Write(large)
			}
		}))
		go func() { _ = s.Serve(l) }()
		defer s.Close()
		for _, request := range []string{
			"", "POST /large HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", "GET /large HTTP/1.1\r\nHost: a\r\n\r\n", "GET /small HTTP/1.1\r\nHost: a\r\n\r\n",
		} {
			c, err := l.Dial(t.Context(), "")
			require.NoError(t, err)
			_, err = io.WriteString(c, request)
			require.NoError(t, err)
			if request != "" && request[5] == 's' {
				answer, err := http.ReadResponse(bufio.NewReader(c), nil)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
			}
			began := time.Now()
			synctest.Wait()
			time.Sleep(time.Minute)
			synctest.Wait()
			_, err = io.Copy(io.Discard, c)
			require.NoError(t, err)
			require.Equal(t, time.Minute, time.Since(began), "it was not closed before")
			c.Close()
		}
	})
}
