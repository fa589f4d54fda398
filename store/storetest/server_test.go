package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/storetest"
)

// RunServer must catch stores that cannot bear what happens to their connections.
func TestRunServerCatches(t *testing.T) {
	const lost, silent, deleted = "the answer to a Swap", "a connection dies", "an operator deletes"
	for _, test := range []struct{ mutant, check, says string }{
		{"repeats a Swap", lost, "does the client library send a Swap again"},
		{"repeats a Swap with another revision", lost, "was sent again, although the record had changed"},
		{"says conflict for no answer", lost, "nobody else has changed the record"},
		{"does without the proxy", lost, "does the store connect to the address"},
		{"ignores contexts", silent, "test timed out"},
		{"keeps a dead connection", silent, "test timed out"},
		{"says unusable for no answer", silent, "Target error should not be in err chain"},
		{"makes a record again", deleted, "the record that was loaded is gone"},
		{"counts from the beginning", deleted, "Should not be"},
		{"takes a missing record for an error", deleted, "Received unexpected error"},
	} {
		t.Run(test.mutant, func(t *testing.T) {
			t.Parallel() // some end by a timeout
			timeout := "1m"
			if test.says == "test timed out" {
				timeout = "2s"
			}
			machinetest.Catches(t, "TestMutantServer", test.mutant, test.check, test.says, timeout)
		})
	}
}

// TestMutantServer runs in the process of a mutant. Without a mutant it tests a good store.
func TestMutantServer(t *testing.T) {
	s := &server{name: machinetest.Mutant(), records: make(map[string]state)}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	address := strings.TrimPrefix(web.URL, "http://")
	storetest.RunServer(t, address, func(t *testing.T, proxy, group string) store.Store {
		if s.name == "does without the proxy" {
			proxy = address
		}
		c := &remote{name: s.name, url: "http://" + proxy + "/" + group}
		t.Cleanup(c.http.CloseIdleConnections)
		c.http.Transport = new(http.Transport)
		return c
	}, func(_ *testing.T, group string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.records["/"+group] = state{}
	})
}

// A server has records. Its revisions are numbers.
type server struct {
	name    string // of the rule that it breaks
	mu      sync.Mutex
	records map[string]state
	last    int
}

type state struct {
	value []byte
	rev   string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.records[r.URL.Path]
	if r.Method == http.MethodPut {
		again := was.rev == "" && s.name == "makes a record again"
		if r.Header.Get("If-Match") != was.rev && !again {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		s.last++
		if was.rev == "" && s.name == "counts from the beginning" {
			s.last = 1
		}
		was = state{body, fmt.Sprint(s.last)}
		s.records[r.URL.Path] = was
	}
	if was.rev == "" && s.last > 0 && s.name == "takes a missing record for an error" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("ETag", was.rev)
	_, _ = w.Write(was.value)
}

// A remote is a store whose record a server has.
type remote struct {
	name, url string // the first is the rule that it breaks
	http      http.Client
	mu        sync.Mutex
	dead      bool // it has found its connection so
}

func (c *remote) Load(ctx context.Context) ([]byte, store.Revision, error) {
	return c.ask(ctx, http.MethodGet, nil, "")
}

func (c *remote) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	_, next, err := c.ask(ctx, http.MethodPut, value, rev)
	if err != nil && !errors.Is(err, store.ErrConflict) {
		switch c.name {
		case "repeats a Swap":
			_, next, err = c.ask(ctx, http.MethodPut, value, rev)
		case "repeats a Swap with another revision":
			_, rev, _ = c.Load(ctx)
			_, next, err = c.ask(ctx, http.MethodPut, value, rev)
		case "says conflict for no answer":
			err = store.ErrConflict
		case "says unusable for no answer":
			err = store.ErrUnusable
		}
	}
	return next, err
}

func (c *remote) ask(ctx context.Context, method string, value []byte, rev store.Revision) ([]byte, store.Revision, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.name == "ignores contexts":
		ctx = context.WithoutCancel(ctx)
	case c.name == "keeps a dead connection" && c.dead:
		<-ctx.Done()
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url, bytes.NewReader(value))
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("If-Match", string(rev))
	answer, err := c.http.Do(r)
	if err != nil {
		c.dead = errors.Is(err, context.DeadlineExceeded)
		return nil, "", err
	}
	defer answer.Body.Close()
	value, err = io.ReadAll(answer.Body)
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusPreconditionFailed:
		err = store.ErrConflict
	default:
		err = errors.New(answer.Status)
	}
	return value, store.Revision(answer.Header.Get("ETag")), err
}
