package tool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/dmutex/dmutex/store"
)

// patience is how long one attempt to make something may take.
const patience = 10 * time.Second

// A Late is made when it is first needed, and tried again when it is needed after an error: a program that waits for
// a lock may begin in an outage of what the lock is in.
type Late[T any] struct {
	create func(ctx context.Context) (T, error)
	mu     sync.Mutex
	last   *making[T]
}

// A making is one attempt.
type making[T any] struct {
	over chan struct{}
	made T
	err  error
}

// NewLate returns what create makes. outage reports which of its errors may pass: the others wrap
// [store.ErrUnusable].
func NewLate[T any](outage func(error) bool, create func(ctx context.Context) (T, error)) *Late[T] {
	return &Late[T]{create: func(ctx context.Context) (T, error) {
		made, err := create(ctx)
		if err != nil && !errors.Is(err, store.ErrUnusable) && !outage(err) {
			err = fmt.Errorf("%w: %w", store.ErrUnusable, err)
		}
		return made, err
	}}
}

// Get returns what was made. An attempt goes on when the context ends.
func (l *Late[T]) Get(ctx context.Context) (made T, err error) {
	m := l.attempt()
	select {
	case <-m.over:
		return m.made, m.err
	case <-ctx.Done():
		return made, fmt.Errorf("connecting: %w", ctx.Err())
	}
}

func (l *Late[T]) attempt() *making[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil {
		select {
		case <-l.last.over:
			if l.last.err == nil {
				return l.last
			}
		default:
			return l.last
		}
	}
	m := &making[T]{over: make(chan struct{})}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		m.made, m.err = l.create(ctx)
		close(m.over)
	}()
	l.last = m
	return m
}

// Close calls f with what was made, or, later, with what is being made.
func (l *Late[T]) Close(f func(T)) {
	l.mu.Lock()
	m := l.last
	l.mu.Unlock()
	if m == nil {
		return
	}
	end := func() {
		if <-m.over; m.err == nil {
			f(m.made)
		}
	}
	select {
	case <-m.over:
		end()
	default:
		go end()
	}
}

// A LateStore is a store that is opened late.
type LateStore struct{ *Late[store.Store] }

// Load implements [store.Store].
func (l LateStore) Load(ctx context.Context) ([]byte, store.Revision, error) {
	s, err := l.Get(ctx)
	if err != nil {
		return nil, "", err
	}
	return s.Load(ctx)
}

// Swap implements [store.Store].
func (l LateStore) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	s, err := l.Get(ctx)
	if err != nil {
		return "", err
	}
	return s.Swap(ctx, value, rev)
}

// Outage reports whether an error is that of a network or a server which may work again later, and not that of a wrong
// address, of a file that cannot be read, or of two sides that do not believe each other. A name that is not known counts as an outage: a
// service that does not run has no name.
func Outage(err error) bool {
	if _, is := errors.AsType[tls.AlertError](err); is {
		return false
	}
	if _, is := errors.AsType[*net.AddrError](err); is {
		return false
	}
	if _, is := errors.AsType[*url.Error](err); is {
		return false
	}
	if _, is := errors.AsType[*fs.PathError](err); is { // of a certificate or credentials; its Errno would pass for a net.Error
		return false
	}
	_, is := errors.AsType[net.Error](err)
	return is || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
