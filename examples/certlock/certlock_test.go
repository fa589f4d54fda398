package certlock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/examples/certlock"
	"github.com/dmutex/dmutex/examples/internal/three"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// An authority signs what it is asked to, and counts that.
type authority struct {
	key    *ecdsa.PrivateKey
	issued atomic.Int32
	before func() error // signing
}

func (a *authority) IssuerKey() string { return "test" }

func (a *authority) Issue(_ context.Context, r *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	a.issued.Add(1)
	if a.before != nil {
		if err := a.before(); err != nil {
			return nil, err
		}
	}
	what := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: r.DNSNames, NotBefore: time.Now(), NotAfter: time.Now().Add(90 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, what, what, r.PublicKey, a.key)
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}

func config(t *testing.T, folder string, n *node.Node, a *authority) *certmagic.Config {
	cache := certmagic.NewCache(certmagic.CacheOptions{GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return nil, nil }})
	t.Cleanup(cache.Stop)
	storage := certlock.New(&certmagic.FileStorage{Path: folder}, func(name string) lock.Mutex { return n.Mutex(name) })
	return certmagic.New(cache, certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{a}})
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return &authority{key: key}
}

// Three processes need a certificate at once: one obtains it, and the others find it.
func TestObtain(t *testing.T) {
	folder, a := t.TempDir(), newAuthority(t)
	var all sync.WaitGroup
	for _, n := range three.Open(t) {
		cfg := config(t, folder, n, a)
		all.Go(func() { require.NoError(t, cfg.ObtainCertSync(t.Context(), "example.com")) })
	}
	all.Wait()
	require.EqualValues(t, 1, a.issued.Load())
}

// A process that goes while it obtains a certificate keeps nobody else from it, and is told that it has
// lost the lock.
func TestLost(t *testing.T) {
	members, folder, a := three.Open(t), t.TempDir(), newAuthority(t)
	var once sync.Once
	a.before = func() (err error) {
		once.Do(func() {
			three.Close(members[0])
			err = certmagic.ErrNoRetry{Err: lock.ErrLost}
		})
		return err
	}
	require.ErrorIs(t, config(t, folder, members[0], a).ObtainCertSync(t.Context(), "example.com"), lock.ErrLost)
	require.NoError(t, config(t, folder, members[1], a).ObtainCertSync(t.Context(), "example.com"))
	require.EqualValues(t, 2, a.issued.Load())

	storage := certlock.New(&certmagic.FileStorage{Path: folder}, func(name string) lock.Mutex { return members[1].Mutex(name) })
	require.NoError(t, storage.Lock(t.Context(), "x"))
	taken, err := storage.TryLock(t.Context(), "x")
	require.NoError(t, err)
	require.False(t, taken)
	require.NoError(t, storage.RenewLockLease(t.Context(), "x", time.Hour))
	three.Close(members[1])
	require.ErrorIs(t, storage.RenewLockLease(t.Context(), "x", time.Hour), node.ErrClosed)
	require.ErrorIs(t, storage.Unlock(t.Context(), "x"), lock.ErrLost)
	require.ErrorIs(t, storage.Unlock(t.Context(), "x"), lock.ErrReleased)
}

// An attempt fails because its member is cut off. Before the next one certmagic has the lock again, after
// another process that took it meanwhile.
func TestTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		var record store.Memory
		cut := &cuttable{Store: &record}
		var members []*node.Node
		for _, s := range []store.Store{cut, &record, &record} {
			n, err := node.Open(t.Context(), s, network.Link(0), node.Config{})
			require.NoError(t, err)
			t.Cleanup(func() { three.Close(n) })
			members = append(members, n)
		}
		for _, n := range members {
			require.NoError(t, n.Ready(t.Context()))
		}
		folder, a := t.TempDir(), newAuthority(t)
		other := certlock.New(&certmagic.FileStorage{Path: folder}, func(name string) lock.Mutex { return members[1].Mutex(name) })
		a.before = func() error {
			if a.issued.Load() > 1 {
				return nil
			}
			cut.off.Store(true)
			require.NoError(t, other.Lock(t.Context(), "issue_cert_example.com"))
			cut.off.Store(false)
			time.AfterFunc(10*time.Minute, func() { require.NoError(t, other.Unlock(t.Context(), "issue_cert_example.com")) })
			return errors.New("the authority does not answer")
		}
		begun := time.Now()
		require.NoError(t, config(t, folder, members[0], a).ObtainCertAsync(t.Context(), "example.com"))
		require.EqualValues(t, 2, a.issued.Load())
		require.WithinRange(t, time.Now(), begun.Add(10*time.Minute), begun.Add(11*time.Minute))
	})
}

// A cuttable store answers its member only while it is not cut off.
type cuttable struct {
	store.Store
	off atomic.Bool
}

func (c *cuttable) Load(ctx context.Context) ([]byte, store.Revision, error) {
	if c.off.Load() {
		return nil, "", errors.New("cut off")
	}
	return c.Store.Load(ctx)
}

func (c *cuttable) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	if c.off.Load() {
		return "", errors.New("cut off")
	}
	return c.Store.Swap(ctx, value, rev)
}
