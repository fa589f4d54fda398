package serve

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A pipes is a listener that accepts the ends of pipes.
type pipes chan net.Conn

func (l pipes) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (l pipes) Close() error   { close(l); return nil }

// A client of the page that says nothing, reads nothing or asks for nothing more is disconnected.
func TestServerEndsIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(pipes)
		large := bytes.Repeat([]byte("x"), 1<<20)
		s := webServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/large" {
				_, _ = w.Write(large)
			}
		}))
		go func() { _ = s.Serve(l) }()
		defer s.Close()
		for _, request := range []string{"", "GET /large HTTP/1.1\r\nHost: a\r\n\r\n", "GET /small HTTP/1.1\r\nHost: a\r\n\r\n"} {
			c, other := net.Pipe()
			l <- other
			_, err := io.WriteString(c, request)
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
