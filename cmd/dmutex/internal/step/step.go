// Package step serves a page on which a person steps a group of machines by hand.
package step

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/step/byhand"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// Cmd is dmutex step.
type Cmd struct {
	Algorithm string `default:"${one}" help:"The algorithm to begin with: one of ${algorithms}; broken, or maekawa-plain, which are wrong on purpose."`
	Nodes     int    `default:"3" least:"2" most:"9" help:"The number of nodes to begin with, 2 to 9."`
	Listen    string `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Where to serve the page. The default is a free port that only this machine reaches."`
}

// Help is the text of step --help.
func (Cmd) Help() string {
	return `Open the address that it prints. On the page you are the network, and the users: let a node request, share, cancel or release; ` +
		`deliver a message, lose it, or deliver it and keep a copy; crash a node. Below are the state of each node in the words of its paper, what is in flight, ` +
		`and the space-time diagram of the run. A node in the critical section is black; two at once are red, with the rule that is broken.

Every step can be undone, and done again. "until somebody waits in vain" tries random steps, and shows the shortest run that it finds. ` +
		`The run is a golden script, to copy into a test; a script, or a counterexample of dmutex check, can be pasted to begin from.

The page needs no JavaScript and works by keyboard: after a step its button has the focus, so Enter does it again. The address of the page has the whole run, ` +
		`so it can be kept as a bookmark. Nothing is kept here. docs/tool.md says how to write the page as a file that needs no server.`
}

// Validate refuses what no page can begin with.
func (c *Cmd) Validate() error {
	_, err := byhand.Find(c.Algorithm)
	return err
}

// Run implements kong's command.
func (c *Cmd) Run(con *tool.Console) error {
	ctx, stop := tool.Interruptible()
	defer stop()
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(con, "http://%s/?algorithm=%s&nodes=%d\nCtrl-C ends it.\n", l.Addr(), c.Algorithm, c.Nodes)
	server := &http.Server{Handler: Handler(), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 2 * byhand.MostText}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if err := server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Handler serves the page. It keeps nothing: the address, or the form, has the whole run.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'")
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		switch {
		case r.URL.Path != "/":
			http.NotFound(w, r)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
			h.Set("Allow", "GET, HEAD, POST")
			http.Error(w, "the page is got, or posted to", http.StatusMethodNotAllowed)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 4*byhand.MostText) // a form escapes what it sends
		if err := r.ParseForm(); err != nil {
			http.Error(w, "the form is too long, or is none", http.StatusBadRequest)
			return
		}
		body, err := byhand.Page(r.Form)
		h.Set("Content-Type", "text/html; charset=utf-8")
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = w.Write([]byte(byhand.Document("", body)))
	})
}
