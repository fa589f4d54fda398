package tool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
)

// A Late is made once, after the outage, and its callers wait no longer than they want. An error that does not pass says so.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, wrong := errors.New("broken"), errors.New("wrong")
		attempts, err := 0, broken
		l := NewLate(func(err error) bool { return errors.Is(err, broken) }, func(context.Context) (store.Store, error) {
			attempts++
			time.Sleep(time.Second)
			return new(store.Memory), err
		})
		l.Close(func(store.Store) { t.Error("nothing was made") })
		s := LateStore{l}
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _, failed := s.Load(brief)
		require.ErrorIs(t, failed, context.DeadlineExceeded)
		_, _, failed = s.Load(t.Context())
		require.ErrorIs(t, failed, broken)
		require.NotErrorIs(t, failed, store.ErrUnusable)
		require.Equal(t, 1, attempts, "the second call waits for the first attempt")
		err = wrong
		_, failed = s.Swap(t.Context(), []byte("a"), "")
		require.ErrorIs(t, failed, wrong)
		require.ErrorIs(t, failed, store.ErrUnusable)
		err = nil
		_, rev, failed := s.Load(t.Context())
		require.NoError(t, failed)
		_, failed = s.Swap(t.Context(), []byte("a"), rev)
		require.NoError(t, failed)
		require.Equal(t, 3, attempts)
		closed := false
		l.Close(func(store.Store) { closed = true })
		require.True(t, closed)
	})
}

// Which errors of a network may pass.
func TestOutage(t *testing.T) {
	for _, c := range []struct {
		err    error
		passes bool
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, true},
		{io.EOF, true},
		{context.DeadlineExceeded, true},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(42)}, false},
		{&net.OpError{Op: "dial", Err: &net.AddrError{Err: "invalid port"}}, false},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, false},
		{&url.Error{Op: "parse", Err: errors.New("invalid port")}, false},
		{errors.New("no nkey seed found"), false},
		{&fs.PathError{Op: "open", Path: "seed", Err: syscall.ENOENT}, false},
	} {
		require.Equal(t, c.passes, Outage(fmt.Errorf("connecting: %w", c.err)), "%v", c.err)
	}
}
