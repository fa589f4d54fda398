package node_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
)

// A forgetful store does the first swap and loses its answer, and answers nothing more until it is told to.
type forgetful struct {
	store.Store
	swapped, answers atomic.Bool
}

func (s *forgetful) Load(ctx context.Context) ([]byte, store.Revision, error) {
	if s.swapped.Load() && !s.answers.Load() {
		<-ctx.Done()
		return nil, "", ctx.Err()
	}
	return s.Store.Load(ctx)
}

func (s *forgetful) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	next, err := s.Store.Swap(ctx, value, rev)
	if err == nil && !s.swapped.Swap(true) {
		return "", errors.New("the answer is lost")
	}
	return next, err
}

// Rule 5.5: a process whose join was done without an answer, and which the others have excluded before it knew,
// goes on as another life: it joins under another number, and its callers get their locks.
func TestJoinMissed(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		one := g.open(1)[0]
		way := &forgetful{Store: &g.store}
		g.wrapStore = func(store.Store) store.Store { return way }
		s := g.join()
		next := s.acquireLater(t.Context(), "x")
		for len(one.Status().View.Members) < 2 { // which does not act
			time.Sleep(time.Millisecond)
		}
		one.sees(1)
		way.answers.Store(true)
		h := granted(t, next)
		require.Equal(t, dmutex.NodeID(3), s.Self(), "the number 2 was that of the life that it missed")
		require.Equal(t, 1, s.Status().Lease.Exclusions)
		require.NoError(t, h.Release())
		require.NoError(t, one.acquire("x").Release())
	})
}
