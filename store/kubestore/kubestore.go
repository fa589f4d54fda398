// Package kubestore keeps the record of a group in a Lease of Kubernetes, an object that each cluster has. It
// talks to the API server by net/http, so it needs no other module.
//
// A pod needs nothing but permissions for its service account:
//
//	apiVersion: rbac.authorization.k8s.io/v1
//	kind: Role
//	metadata: {name: locks}
//	rules:
//	  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
//
// The record is an annotation, so kubectl get lease -o yaml shows it. What others add to the object is
// lost with the next change of the record. To begin with a new record, stop all members and delete the
// Lease.
//
// # What it relies on
//
// The API server reads an object from a majority of etcd unless it is asked for less, and
// changes one only if it still has the resourceVersion that was sent. Three habits of the server and its
// clients would break the contract of package store, and each is met:
//
//   - An update to an equal object changes nothing, the resourceVersion included. So each state
//     has a random name in another annotation.
//   - An update of a Lease that is gone makes it anew. So an update names the UID of the object, and is a
//     conflict then.
//   - client-go sends a request again after some errors, and may then conflict with itself. And over
//     HTTP/2 all requests wait for one connection, also if it is dead. So this package
//     sends each request once, over HTTP/1.1.
//
// The record is as durable as the etcd of the cluster. A cluster that is restored from a backup has an older
// record: the members stop with an error then.
package kubestore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/dmutex/dmutex/internal/onerequest"
	"github.com/dmutex/dmutex/store"
)

// Config says which cluster it is. The zero Config is for a pod: that of its service account.
type Config struct {
	// Server is the URL of the API server, such as https://10.0.0.1:6443, or http://127.0.0.1:8001 of
	// kubectl proxy. Empty means the one that the environment of a pod names.
	Server string

	// Client sends the requests, and authenticates them. It must not send one again by itself. nil means that of
	// [InCluster], or, with another Server, a client that does not authenticate.
	Client *http.Client

	// Namespace is where the Lease is; empty means the namespace of the pod.
	Namespace string
}

// account is where a pod finds its service account.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

type record struct {
	client *http.Client
	leases string // the URL of the Leases of the namespace
	name   string
}

// lawful are the names that Kubernetes allows for a Lease.
var lawful = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// Open returns the record in the Lease of that name: lower-case letters, digits, and - and . between them, at
// most 253. The Lease need not exist. Open asks the server once, so that missing permissions are known at once:
// such an error wraps [store.ErrUnusable].
func Open(ctx context.Context, cfg Config, name string) (store.Store, error) {
	if len(name) > 253 || !lawful.MatchString(name) {
		return nil, fmt.Errorf("kubestore: %q is no name of a Lease: it may have lower-case letters, digits, and - and . between them, at most 253", name)
	}
	if cfg.Client == nil {
		cfg.Client = onerequest.Client(nil)
		if cfg.Server == "" {
			var err error
			if cfg.Client, err = InCluster(); err != nil {
				return nil, err
			}
		}
	}
	if cfg.Server == "" {
		host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
		if host == "" || port == "" {
			return nil, errNoPod("KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set")
		}
		cfg.Server = "https://" + net.JoinHostPort(host, port)
	}
	if u, err := url.Parse(cfg.Server); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("kubestore: %q is no URL of an API server, such as https://10.0.0.1:6443", cfg.Server)
	}
	if cfg.Namespace == "" {
		namespace, err := os.ReadFile(filepath.Join(account, "namespace"))
		if err != nil {
			return nil, errNoPod(err.Error())
		}
		cfg.Namespace = strings.TrimSpace(string(namespace))
	}
	s := &record{cfg.Client, strings.TrimSuffix(cfg.Server, "/") + "/apis/coordination.k8s.io/v1/namespaces/" + url.PathEscape(cfg.Namespace) + "/leases", name}
	if _, _, err := s.Load(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func errNoPod(why string) error {
	return fmt.Errorf("kubestore: this process runs in no pod (%s): set Config.Server and Config.Namespace, for example to http://127.0.0.1:8001 while kubectl proxy runs", why)
}

// InCluster returns a client with the service account of the pod. It reads the token for each request, because
// Kubernetes replaces it now and then.
func InCluster() (*http.Client, error) { return inAccount(account) }

func inAccount(dir string) (*http.Client, error) {
	authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, errNoPod(err.Error())
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("kubestore: %s/ca.crt has no certificate in PEM", dir)
	}
	c := onerequest.Client(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots})
	c.Transport = bearer{c.Transport, filepath.Join(dir, "token")}
	return c, nil
}

type bearer struct {
	http.RoundTripper
	token string // a file
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := os.ReadFile(b.token)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return b.RoundTripper.RoundTrip(r)
}

// A lease is what we need of the object.
type lease struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
}

type metadata struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid,omitempty"`
	Version     string            `json:"resourceVersion,omitempty"`
	Annotations map[string]string `json:"annotations"`
}

// The annotations.
const (
	inText   = "dmutex/record"        // the record, if it is text
	inBase64 = "dmutex/record.base64" // else
	random   = "dmutex/state"         // the name of this state of the record
)

func (l *lease) value() ([]byte, error) {
	if text, ok := l.Metadata.Annotations[inText]; ok {
		return []byte(text), nil
	}
	coded, ok := l.Metadata.Annotations[inBase64]
	value, err := base64.StdEncoding.DecodeString(coded)
	if !ok || err != nil {
		return nil, fmt.Errorf("%w: the Lease has no record of a group: another program uses it, so choose another name, or delete it", store.ErrUnusable)
	}
	return value, nil
}

func (l *lease) revision() store.Revision {
	return store.Revision(l.Metadata.UID + "/" + l.Metadata.Version)
}

// Load implements [store.Store].
func (s *record) Load(ctx context.Context) ([]byte, store.Revision, error) {
	l, err := s.send(ctx, http.MethodGet, s.leases+"/"+s.name, nil)
	if s.isGone(err) {
		return nil, "", nil
	}
	var value []byte
	if err == nil {
		value, err = l.value()
	}
	if err != nil {
		return nil, "", s.failed("load", err)
	}
	return value, l.revision(), nil
}

// Swap implements [store.Store].
func (s *record) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	l := &lease{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Metadata: metadata{Name: s.name, Annotations: map[string]string{random: rand.Text()}}}
	l.Metadata.UID, l.Metadata.Version, _ = strings.Cut(string(rev), "/")
	if utf8.Valid(value) {
		l.Metadata.Annotations[inText] = string(value)
	} else {
		l.Metadata.Annotations[inBase64] = base64.StdEncoding.EncodeToString(value)
	}
	method, where := http.MethodPost, s.leases
	if rev != "" {
		method, where = http.MethodPut, s.leases+"/"+s.name
	}
	next, err := s.send(ctx, method, where, l)
	if r := (*refusal)(nil); errors.As(err, &r) && r.Code == http.StatusConflict || method == http.MethodPut && s.isGone(err) {
		err = fmt.Errorf("%w: %w", store.ErrConflict, err)
	}
	if err != nil {
		return "", s.failed("swap", err)
	}
	return next.revision(), nil
}

// A refusal is a Status of Kubernetes that is no success.
type refusal struct {
	Code            int
	Reason, Message string
	Details         struct{ Name string }
}

func (r *refusal) Error() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%d %s: %s", r.Code, r.Reason, r.Message)), " ")
}

// isGone reports whether the server says that it has no Lease of this name. A proxy in between, or a server of
// another kind, may say 404 of anything.
func (s *record) isGone(err error) bool {
	r := (*refusal)(nil)
	return errors.As(err, &r) && r.Code == http.StatusNotFound && r.Reason == "NotFound" && r.Details.Name == s.name
}

// send sends a request, once.
func (s *record) send(ctx context.Context, method, where string, l *lease) (*lease, error) {
	var body []byte
	if l != nil {
		body, _ = json.Marshal(l) // strings only
	}
	request, err := http.NewRequestWithContext(ctx, method, where, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(io.LimitReader(answer.Body, 4<<20))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode/100 != 2 {
		r := new(refusal)
		_ = json.Unmarshal(got, r)
		r.Code = answer.StatusCode
		r.Reason, r.Message = cmp.Or(r.Reason, http.StatusText(r.Code)), cmp.Or(r.Message, string(got[:min(len(got), 200)]))
		return nil, r
	}
	next := new(lease)
	if err := json.Unmarshal(got, next); err != nil || next.Metadata.Version == "" {
		return nil, fmt.Errorf("%w: what answers at %s is no API server of Kubernetes", store.ErrUnusable, s.leases)
	}
	return next, nil
}

// failed says what to do about an error that recurs.
func (s *record) failed(op string, err error) error {
	if r := (*refusal)(nil); errors.As(err, &r) && !errors.Is(err, store.ErrConflict) {
		switch r.Code {
		case http.StatusUnauthorized:
			err = fmt.Errorf("%w: the server does not know this user: %w", store.ErrUnusable, err)
		case http.StatusForbidden:
			err = fmt.Errorf("%w: give the service account a Role with get, create and update of leases: %w", store.ErrUnusable, err)
		case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge, http.StatusMovedPermanently, http.StatusFound:
			err = fmt.Errorf("%w: %w", store.ErrUnusable, err)
		}
	}
	return fmt.Errorf("kubestore: %s Lease %s: %w", op, s.name, err)
}
