package kubestore_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/kubetest"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/kubestore"
	"github.com/dmutex/dmutex/store/storetest"
)

func TestStore(t *testing.T) {
	s := kubetest.New(t)
	open := func(t *testing.T, address, group string) store.Store {
		r, err := kubestore.Open(t.Context(), kubestore.Config{Server: "http://" + address, Namespace: s.Namespace}, group)
		require.NoError(t, err)
		return r
	}
	server := strings.TrimPrefix(s.URL, "http://")
	storetest.Run(t, func(t *testing.T, group string) store.Store { return open(t, server, group) })
	storetest.RunServer(t, server, open, func(_ *testing.T, group string) { s.Delete(group) })
}
