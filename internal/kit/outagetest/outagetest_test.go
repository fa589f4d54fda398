package outagetest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/store"
)

func TestStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var good store.Memory
		_, none, err := good.Load(ctx)
		require.NoError(t, err)

		unanswered := outagetest.New(t, &good, outagetest.Faults{Unanswered: 1})
		_, err = unanswered.Swap(ctx, []byte("a"), none)
		require.ErrorIs(t, err, outagetest.ErrLost)
		_, _, err = unanswered.Load(ctx)
		require.ErrorIs(t, err, outagetest.ErrLost)
		value, rev, err := good.Load(ctx)
		require.NoError(t, err)
		require.Equal(t, "a", string(value))

		lost := outagetest.New(t, &good, outagetest.Faults{Lost: 1})
		_, err = lost.Swap(ctx, []byte("b"), rev)
		require.ErrorIs(t, err, outagetest.ErrLost)

		s := outagetest.New(t, &good, outagetest.Faults{})
		s.Outage(true)
		short, cancel := context.WithCancel(ctx)
		var waiting sync.WaitGroup
		waiting.Go(func() { _, err = s.Swap(short, []byte("b"), rev) })
		synctest.Wait()
		cancel()
		waiting.Wait()
		require.ErrorIs(t, err, context.Canceled)
		s.Outage(false)
		value, again, err := s.Load(ctx)
		require.NoError(t, err)
		require.Equal(t, "a", string(value))
		require.Equal(t, rev, again)
		_, err = s.Swap(ctx, []byte("b"), rev)
		require.NoError(t, err)
	})
}
