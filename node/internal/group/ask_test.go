package group

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// No operation of the store begins once the node has ended what it asks of a store, which Close does before it waits.
func TestNothingBeginsAfterClose(t *testing.T) {
	done, finish := context.WithCancel(t.Context())
	finish()
	l := &record{group: &Group{done: done}, busy: make(chan struct{}, 1), length: int64(time.Minute)}
	for range 100 {
		_, err := l.ask(func(context.Context) (result, error) {
			t.Error("it began")
			return result{}, nil
		})
		require.Error(t, err)
	}
	require.Empty(t, l.busy)
}
