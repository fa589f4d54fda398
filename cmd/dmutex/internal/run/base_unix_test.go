//go:build unix

package run

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/base"
	"github.com/dmutex/dmutex/internal/kit/kubetest"
	"github.com/dmutex/dmutex/internal/kit/s3test"
)

// Runs exclude each other by a Lease of Kubernetes and by an object of S3, whatever the name of the lock. One that starts
// while its service is down waits, and one whose user may do nothing ends at once.
func TestRunAtBase(t *testing.T) {
	cluster, bucket := kubetest.New(t), s3test.New(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "web")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	kube, s3 := "kube://locks?server="+cluster.URL, "s3://locks/cron?endpoint="+bucket.URL
	for _, url := range []string{kube, s3} {
		for _, lock := range []string{"door", "Invoices/2026 \xc3\xa9", strings.Repeat("L", 200)} {
			flags := []string{"--store=" + url, "--lock=" + lock, "--lease=1s"}
			s := start(t, flags, "say:in", "wait")
			require.Equal(t, "in", s.line())
			start(t, append(flags, "-n"), "say:never").exits(statusBusy)
			s.stdin.Close()
			s.exits(0)
			start(t, append(flags, "-n"), "say:in").exits(0)
		}
	}
	require.NotNil(t, cluster.Lease("lock-door"))
	require.NotNil(t, cluster.Lease("lock--49nvoices-2f2026-20-c3-a9"))
	require.Contains(t, bucket.Objects(), "cron/door")
	require.Contains(t, bucket.Objects(), "cron/_49nvoices_2f2026_20_c3_a9")

	t.Run("down", func(t *testing.T) {
		for _, url := range []string{"kube://locks?server=http://127.0.0.1:1", "s3://locks?endpoint=http://127.0.0.1:1"} {
			said := start(t, []string{"--store=" + url, "--lock=door", "-w", "0.5"}, "say:never").exits(statusNoLock)
			require.Contains(t, said, "connection refused")
		}
	})
	t.Run("forbidden", func(t *testing.T) {
		cluster.Allow("create")
		t.Setenv("AWS_ACCESS_KEY_ID", "stranger")
		for url, words := range map[string]string{kube: "give the service account a Role", s3: "the user may not get and put the object"} {
			require.Contains(t, start(t, []string{"--store=" + url, "--lock=door"}, "say:never").exits(statusNoLock), words)
		}
	})
}

// Long names of locks have records of their own.
func TestLongNames(t *testing.T) {
	cluster := kubetest.New(t)
	b, err := base.Kube("kube://locks?server="+cluster.URL, time.Second)
	require.NoError(t, err)
	for _, last := range []string{"a", "b"} {
		_, rev, err := b.Lock(strings.Repeat("L", 199) + last).Load(context.Background())
		require.NoError(t, err)
		require.Empty(t, rev, "it is the other one")
		_, err = b.Lock(strings.Repeat("L", 199)+last).Swap(context.Background(), []byte(last), rev)
		require.NoError(t, err)
	}
}
