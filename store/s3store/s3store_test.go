package s3store_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/s3test"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/s3store"
	"github.com/dmutex/dmutex/store/storetest"
)

func web(context.Context) (s3store.Credentials, error) {
	return s3store.Credentials{AccessKeyID: "web", SecretAccessKey: "secret"}, nil
}

func config(s *s3test.Server) s3store.Config {
	return s3store.Config{Endpoint: s.URL, Bucket: "locks", Credentials: web}
}

func open(t *testing.T, s *s3test.Server, name string) store.Store {
	t.Helper()
	r, err := s3store.Open(t.Context(), config(s), name)
	require.NoError(t, err)
	return r
}

func TestStore(t *testing.T) {
	s := s3test.New(t)
	storetest.Run(t, func(t *testing.T, group string) store.Store { return open(t, s, "locks/"+group) })
	at := func(t *testing.T, address, group string) store.Store {
		cfg := config(s)
		cfg.Endpoint = "http://" + address
		r, err := s3store.Open(t.Context(), cfg, group)
		require.NoError(t, err)
		return r
	}
	storetest.RunServer(t, strings.TrimPrefix(s.URL, "http://"), at, func(_ *testing.T, group string) { s.Delete(group) })
}

// A service that reads the ETag and then the bytes, as versitygw 1.8.0 does, may tell those of two states. Who swaps by such an
// ETag would overwrite what it has not seen.
func TestEtagOfAnotherState(t *testing.T) {
	for _, opaque := range []bool{false, true} {
		s := s3test.New(t)
		s.Opaque = opaque
		r, other := open(t, s, "invoices"), open(t, s, "invoices")
		rev, err := r.Swap(t.Context(), []byte("1"), "")
		require.NoError(t, err)
		swaps := 1
		s.Between = func() {
			if swaps < 4 {
				swaps++
				rev, err = other.Swap(context.Background(), fmt.Append(nil, swaps), rev)
			}
		}
		value, loaded, e := r.Load(t.Context())
		require.NoError(t, e)
		require.NoError(t, err)
		require.Equal(t, "4", string(value))
		require.Equal(t, rev, loaded)

		s.Between = func() { rev, err = other.Swap(context.Background(), []byte("next"), rev) }
		_, _, e = r.Load(t.Context())
		require.NoError(t, err)
		require.ErrorContains(t, e, "no two of 10 loads in a row agree")
		require.NotErrorIs(t, e, store.ErrUnusable)
	}
}

// Open refuses a service that ignores the conditions, one that looks at them before others have written, and one whose
// record could never be changed. It leaves nothing behind.
func TestServicesThatAreWrong(t *testing.T) {
	for wrong, says := range map[string]string{
		"ignores": "the service ignores If-Match, so two could write the record",
		"hurries": "the service takes more than one of several conditional writes at once",
		"weakens": "the service refuses a write by the ETag that it tells",
	} {
		for range 5 {
			s := s3test.New(t)
			s.Wrong = wrong
			_, err := s3store.Open(t.Context(), config(s), "invoices")
			require.ErrorIs(t, err, store.ErrUnusable)
			require.ErrorContains(t, err, says)
			require.Empty(t, s.Objects())
		}
	}
	s := s3test.New(t)
	open(t, s, "invoices")
	require.Empty(t, s.Objects())
}

// Open returns soon after its context has ended, also if the service stops answering while it is tried.
func TestOpenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		silent := roundTrip(func(r *http.Request) (*http.Response, error) {
			if asked.Add(1) == 1 {
				return &http.Response{StatusCode: http.StatusPreconditionFailed, Body: http.NoBody}, nil
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		_, err := s3store.Open(ctx, s3store.Config{
			Endpoint: "http://s3.example.com", Bucket: "locks", Credentials: web, Client: &http.Client{Transport: silent},
		}, "invoices")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(begin), 11*time.Second)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What only an operator can mend is said at once, and what passes is not taken for it.
func TestErrors(t *testing.T) {
	s := s3test.New(t)
	r := open(t, s, "invoices")
	rev, err := r.Swap(t.Context(), []byte("value"), "")
	require.NoError(t, err)
	for _, status := range []int{301, 400, 401, 403, 404, 405, 501} {
		s.Refuse(status)
		storetest.Unusable(t, r, rev)
	}
	for _, status := range []int{429, 500, 503} {
		s.Refuse(status)
		_, _, loading := r.Load(t.Context())
		_, swapping := r.Swap(t.Context(), []byte("value"), rev)
		for _, err := range []error{loading, swapping} {
			require.Error(t, err)
			require.NotErrorIs(t, err, store.ErrConflict)
			require.NotErrorIs(t, err, store.ErrUnusable)
		}
	}
	s.Refuse(0)
	s.Put("invoices", "hello")
	_, _, err = r.Load(t.Context())
	require.ErrorIs(t, err, store.ErrUnusable)
	require.ErrorContains(t, err, "another program uses it")
	other := httptest.NewServer(http.NotFoundHandler()) // whose 404 is no missing record
	defer other.Close()
	_, err = s3store.Open(t.Context(), s3store.Config{Endpoint: other.URL, Bucket: "locks", Credentials: web}, "invoices")
	require.ErrorIs(t, err, store.ErrUnusable)
	_, err = s3store.Open(t.Context(), s3store.Config{Endpoint: s.URL, Bucket: "missing", Credentials: web}, "invoices")
	require.ErrorIs(t, err, store.ErrUnusable)
	require.ErrorContains(t, err, "NoSuchBucket")
}

func TestRefused(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	for _, tt := range []struct {
		cfg  s3store.Config
		name string
		says string
	}{
		{s3store.Config{Endpoint: "s3.example.com", Bucket: "locks"}, "x", "is no URL of a service"},
		{s3store.Config{Endpoint: "https://s3.example.com", Bucket: "a/b"}, "x", "is no name of a bucket"},
		{s3store.Config{Endpoint: "https://s3.example.com"}, "x", "is no name of a bucket"},
		{s3store.Config{Endpoint: "https://s3.example.com", Bucket: "locks"}, "a b", "the name \"a b\" of an object may have"},
		{s3store.Config{Endpoint: "https://s3.example.com", Bucket: "locks"}, "../x", "of an object may have"},
		{s3store.Config{Endpoint: "https://s3.example.com", Bucket: "locks"}, "a//b", "of an object may have"},
		{s3store.Config{Endpoint: "https://s3.example.com", Bucket: "locks"}, strings.Repeat("a", 513), "of an object may have"},
		{s3store.Config{Endpoint: "https://s3.example.com", Bucket: "locks"}, "x", "set AWS_ACCESS_KEY_ID"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := s3store.Open(ctx, tt.cfg, tt.name)
		cancel()
		require.ErrorContains(t, err, tt.says)
	}
}
