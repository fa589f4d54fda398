package kubestore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/kubetest"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/kubestore"
	"github.com/dmutex/dmutex/store/storetest"
)

func TestStore(t *testing.T) {
	s := kubetest.New(t)
	storetest.Run(t, func(t *testing.T, group string) store.Store {
		r, err := kubestore.Open(t.Context(), kubestore.Config{Server: s.URL, Namespace: s.Namespace}, group)
		require.NoError(t, err)
		return r
	})
}
