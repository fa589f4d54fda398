// Package storecall calls a store within a bounded time, also one that breaks its contract and does not
// return when its context ends.
package storecall

import (
	"context"
	"errors"
	"time"
)

// patience is how long a store may take to return after its context has ended.
const patience = time.Second

// ErrStuck is the outcome of an operation from which the store has not returned.
var ErrStuck = errors.New("the store does not return, although the context of the operation has ended: it breaks the contract of package store")

// Within returns what the store does, or ErrStuck if it has not returned a moment after ctx has
// ended. What it returns later is dropped.
func Within[T any](ctx context.Context, call func(context.Context) (T, error)) (got T, err error) {
	type outcome struct {
		got T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		got, err := call(ctx)
		done <- outcome{got, err}
	}()
	select {
	case o := <-done:
		return o.got, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		return o.got, o.err
	case <-time.After(patience):
		return got, ErrStuck
	}
}

// A Line lets one call through at a time, so at most one is left behind by a store that does not return. Make
// it with [NewLine].
type Line chan struct{}

// NewLine returns a Line in which nobody stands.
func NewLine() Line { return make(Line, 1) }

// Ask is Within, when the call before has returned. It returns ErrStuck if that has not when ctx ends.
func Ask[T any](ctx context.Context, l Line, call func(context.Context) (T, error)) (got T, err error) {
	select {
	case l <- struct{}{}:
	case <-ctx.Done():
		return got, ErrStuck
	}
	if err := ctx.Err(); err != nil { // both were so
		<-l
		return got, err
	}
	return Within(ctx, func(ctx context.Context) (T, error) {
		defer func() { <-l }()
		return call(ctx)
	})
}
