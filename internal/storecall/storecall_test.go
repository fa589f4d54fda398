package storecall

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Nothing begins when the context has ended, as after Close, which ends it before it waits.
func TestNothingBeginsAfterTheEnd(t *testing.T) {
	done, finish := context.WithCancel(t.Context())
	finish()
	l := NewLine()
	for range 100 {
		_, err := Ask(done, l, func(context.Context) (int, error) {
			t.Error("it began")
			return 0, nil
		})
		require.Error(t, err)
	}
	require.Empty(t, l)
}

// A call that does not return is left behind, and the next one waits for it.
func TestOneIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, back := NewLine(), make(chan struct{})
		ask := func(call func(context.Context) (int, error)) (int, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return Ask(ctx, l, call)
		}
		begin := time.Now()
		_, err := ask(func(context.Context) (int, error) { <-back; return 1, nil })
		require.ErrorIs(t, err, ErrStuck)
		require.Equal(t, time.Minute+patience, time.Since(begin))
		_, err = ask(func(context.Context) (int, error) { t.Error("two at a time"); return 2, nil })
		require.ErrorIs(t, err, ErrStuck)
		close(back)
		synctest.Wait()
		got, err := ask(func(context.Context) (int, error) { return 3, nil })
		require.NoError(t, err)
		require.Equal(t, 3, got)
	})
}
