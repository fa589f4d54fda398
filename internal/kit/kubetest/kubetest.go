// Package kubetest is the part of an API server of Kubernetes that has Leases, as strict as the original where
// a store may go wrong: an update to an equal object is none, an update of an object that is gone
// makes it anew unless the UID forbids it, and what an update must name it must name.
package kubetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// A Server has the Leases of one namespace.
type Server struct {
	URL       string
	Namespace string

	mu      sync.Mutex
	token   string // of the only user; empty lets everybody in
	role    []string
	objects map[string]map[string]any
	version int
	server  *httptest.Server
}

// New starts a server, which stops with the test.
func New(t testing.TB) *Server {
	s := &Server{Namespace: "locks", role: []string{"get", "create", "update"}, objects: make(map[string]map[string]any), version: 100}
	s.server = httptest.NewServer(s)
	s.URL = s.server.URL
	t.Cleanup(s.server.Close)
	return s
}

// Admit lets only those in that have the token.
func (s *Server) Admit(token string) { s.locked(func() { s.token = token }) }

// Allow lets users do only this: get, create, update.
func (s *Server) Allow(verbs ...string) { s.locked(func() { s.role = verbs }) }

// Delete deletes a Lease, as an operator.
func (s *Server) Delete(name string) { s.locked(func() { delete(s.objects, name) }) }

// Lease returns the object, as JSON has it; nil if it is not there.
func (s *Server) Lease(name string) (o map[string]any) {
	s.locked(func() { o = s.objects[name] })
	return o
}

// Put writes an object, as another program.
func (s *Server) Put(name string, annotations map[string]any) {
	s.locked(func() {
		s.store(name, map[string]any{"metadata": map[string]any{"name": name, "annotations": annotations}}, "")
	})
}

func (s *Server) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	code, answer := s.handle(r)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *Server) handle(r *http.Request) (code int, answer map[string]any) {
	verb, known := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update"}[r.Method]
	name, inLeases := strings.CutPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/"+s.Namespace+"/leases")
	name = strings.TrimPrefix(name, "/")
	switch {
	case s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token:
		return status(http.StatusUnauthorized, "Unauthorized", "", "Unauthorized")
	case !known:
		return status(http.StatusMethodNotAllowed, "MethodNotAllowed", name, "the server does not allow this method on the requested resource")
	case !inLeases, !strings.Contains(strings.Join(s.role, " "), verb):
		return status(http.StatusForbidden, "Forbidden", name, fmt.Sprintf("leases.coordination.k8s.io %q is forbidden: User %q cannot %s resource %q", name, "web", verb, "leases"))
	}
	old, exists := s.objects[name]
	if verb == "get" {
		if !exists {
			return notFound(name)
		}
		return http.StatusOK, old
	}
	var o map[string]any
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o["kind"] != "Lease" || o["apiVersion"] != "coordination.k8s.io/v1" {
		return status(http.StatusBadRequest, "BadRequest", name, "the object provided is unrecognized")
	}
	meta, _ := o["metadata"].(map[string]any)
	size := 0
	annotations, _ := meta["annotations"].(map[string]any)
	for key, value := range annotations {
		size += len(key) + len(value.(string))
	}
	uid, _ := meta["uid"].(string)
	version, _ := meta["resourceVersion"].(string)
	if size > 256<<10 {
		return status(http.StatusUnprocessableEntity, "Invalid", name, "metadata.annotations: Too long: may not be more than 262144 bytes")
	}
	if verb == "create" {
		name, _ = meta["name"].(string)
		_, exists = s.objects[name]
		switch {
		case version != "":
			return status(http.StatusBadRequest, "BadRequest", name, "resourceVersion should not be set on objects to be created")
		case exists:
			return status(http.StatusConflict, "AlreadyExists", name, fmt.Sprintf("leases.coordination.k8s.io %q already exists", name))
		}
		return http.StatusCreated, s.store(name, o, "")
	}
	if !exists {
		if uid != "" {
			return status(http.StatusConflict, "Conflict", name, "StorageError: invalid object, Code: 4: Precondition failed: UID in precondition: "+uid+", UID in object meta: ")
		}
		return http.StatusCreated, s.store(name, o, "") // a Lease may be made by an update
	}
	has := old["metadata"].(map[string]any)
	switch {
	case uid != "" && uid != has["uid"], version != has["resourceVersion"] && version != "":
		return status(http.StatusConflict, "Conflict", name, "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again")
	case version == "":
		return status(http.StatusUnprocessableEntity, "Invalid", name, "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update")
	case reflect.DeepEqual(annotations, has["annotations"]):
		return http.StatusOK, old
	}
	return http.StatusOK, s.store(name, o, has["uid"].(string))
}

func (s *Server) store(name string, o map[string]any, uid string) map[string]any {
	s.version++
	if uid == "" {
		uid = fmt.Sprintf("9b2a-%d", s.version)
	}
	meta := o["metadata"].(map[string]any)
	meta["uid"], meta["resourceVersion"], meta["namespace"] = uid, fmt.Sprint(s.version), s.Namespace
	s.objects[name] = o
	return o
}

func notFound(name string) (int, map[string]any) {
	return status(http.StatusNotFound, "NotFound", name, fmt.Sprintf("leases.coordination.k8s.io %q not found", name))
}

func status(code int, reason, name, message string) (int, map[string]any) {
	return code, map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
		"details": map[string]any{"name": name, "group": "coordination.k8s.io", "kind": "leases"},
	}
}
