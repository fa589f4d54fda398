// Package s3test is the part of S3 that has objects and conditions, and services like it that are wrong.
package s3test

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Server has one bucket, "locks", and one user, "web".
type Server struct {
	URL string

	// Wrong is how it is wrong: "" if it is not, ignores if it does not know the conditions, hurries if it looks at
	// them before others have written, weakens if nobody can write by the ETags that it tells. So does a proxy before it
	// that may compress.
	Wrong string

	// Between happens to a Get after it has read the ETag, and before it reads the bytes. Opaque ETags are no MD5.
	Between func()
	Opaque  bool

	mu      sync.Mutex
	objects map[string][]byte
	refuse  int // the status of all answers, 0 if there is none
}

// New starts a server, which stops with the test.
func New(t testing.TB) *Server {
	s := &Server{objects: make(map[string][]byte)}
	server := httptest.NewServer(s)
	s.URL = server.URL
	t.Cleanup(server.Close)
	return s
}

// Objects returns the names of all objects.
func (s *Server) Objects() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.objects {
		names = append(names, name)
	}
	return names
}

// Put writes an object, as another program.
func (s *Server) Put(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name] = []byte(text)
}

// Delete deletes an object, as an operator.
func (s *Server) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
}

// Refuse answers everything with that status; 0 is to serve again.
func (s *Server) Refuse(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = status
}

func (s *Server) tag(value []byte) string {
	sum := md5.Sum(value)
	if s.Opaque {
		sum[0]++
	}
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if s.Wrong == "hurries" && r.Method == http.MethodPut {
		s.mu.Lock()
		code := s.condition(r)
		s.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		if code != "" {
			fail(w, http.StatusPreconditionFailed, code)
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, ours := strings.CutPrefix(r.URL.Path, "/locks/")
	switch {
	case s.refuse != 0:
		fail(w, s.refuse, http.StatusText(s.refuse))
	case !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=web/"):
		fail(w, http.StatusForbidden, "AccessDenied")
	case !ours:
		fail(w, http.StatusNotFound, "NoSuchBucket")
	case r.Method == http.MethodGet:
		value, exists := s.objects[name]
		if !exists {
			fail(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", s.tag(value))
		if s.Wrong == "weakens" || r.Header.Get("Accept-Encoding") != "identity" {
			w.Header().Set("ETag", "W/"+s.tag(value))
		}
		if s.Between != nil {
			s.mu.Unlock()
			s.Between()
			s.mu.Lock()
		}
		_, _ = w.Write(s.objects[name])
	case r.Method == http.MethodDelete:
		delete(s.objects, name)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut:
		if code := s.condition(r); code != "" && (s.Wrong == "" || s.Wrong == "weakens") {
			status := http.StatusPreconditionFailed
			if code == "NoSuchKey" {
				status = http.StatusNotFound
			}
			fail(w, status, code)
			return
		}
		s.objects[name] = body
		w.Header().Set("ETag", s.tag(body))
	default:
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

// condition returns the code of the error if a condition does not hold.
func (s *Server) condition(r *http.Request) string {
	value, exists := s.objects[strings.TrimPrefix(r.URL.Path, "/locks/")]
	match := r.Header.Get("If-Match")
	switch {
	case match != "" && !exists:
		return "NoSuchKey"
	case match != "" && match != s.tag(value), r.Header.Get("If-None-Match") == "*" && exists:
		return "PreconditionFailed"
	}
	return ""
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<?xml version=\"1.0\"?>\n<Error><Code>%s</Code><Message>no</Message></Error>", code)
}
