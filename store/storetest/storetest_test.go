package storetest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/storetest"
)

// LESSONS L58: Run must catch stores that break the contract. Each mutant runs in a
// process of its own, because its tests are meant to fail.
func TestRunCatches(t *testing.T) {
	for _, test := range []struct{ mutant, check, says string }{
		{"begins with a value", "what was swapped", "Should be empty"},
		{"cuts off a byte", "what was swapped", "Not equal"},
		{"ends at a zero byte", "values of every size", "Not equal"},
		{"takes little", "values of every size", "too large"},
		{"keeps what is swapped", "the caller keeps", "keeps the slice that was swapped"},
		{"shows what it keeps", "the caller keeps", "keeps the slice that was loaded"},
		{"writes blindly", "a late Swap", "created twice"},
		{"writes blindly", "one of several Swaps", "have succeeded"},
		{"creates again", "a late Swap", "created twice"},
		{"creates anything", "groups are separate", "in chain"},
		{"compares values", "a late Swap", "is not the last"},
		{"compares values", "what was swapped", "has not moved"},
		{"repeats revisions", "what was swapped", "a second time"},
		{"checks, then writes", "one of several Swaps", "have succeeded"},
		{"writes, then says conflict", "what was swapped", "conflict"},
		{"loads from a cache", "what was swapped", "Not equal"},
		{"loads from a replica", "what was swapped", "Not equal"},
		{"sometimes loads what was", "Load is linearizable", "load is stale"},
		{"forgets", "the value outlives", "Not equal"},
		{"confuses groups", "groups are separate", "have one record"},
		{"says conflict for canceled", "a context that ends", "has not changed"},
		{"writes half", "a context that ends", "has left"},
		{"waits forever", "a context that ends", "test timed out"},
		{"hides that it is unusable", "unusable", "Target error should be in err chain"},
		{"says conflict when unusable", "unusable", "Target error should not be in err chain"},
		{"says it in lines", "unusable", "the text has several lines"},
	} {
		t.Run(test.mutant, func(t *testing.T) {
			timeout := "1m"
			if test.mutant == "waits forever" {
				timeout = "100ms"
			}
			machinetest.Catches(t, "TestMutant", test.mutant, test.check, test.says, timeout)
		})
	}
}

// TestMutant runs in the process of a mutant. Without a mutant it tests a good store.
func TestMutant(t *testing.T) {
	name := machinetest.Mutant()
	groups := make(map[string]*record)
	storetest.Run(t, func(t *testing.T, group string) store.Store {
		if name == "confuses groups" {
			group = ""
		}
		if groups[group] == nil || name == "forgets" {
			groups[group] = new(record)
		}
		return &mutant{record: groups[group], name: name}
	})
	t.Run("unusable", func(t *testing.T) { storetest.Unusable(t, unusable(name), "") })
}

// An unusable store is one that only an operator can mend.
type unusable string

func (u unusable) err() error {
	switch u {
	case "hides that it is unusable":
		return errors.New("permission denied")
	case "says conflict when unusable":
		return fmt.Errorf("%w: %w", store.ErrUnusable, store.ErrConflict)
	case "says it in lines":
		return fmt.Errorf("%w:\npermission denied", store.ErrUnusable)
	}
	return store.ErrUnusable
}

func (u unusable) Load(context.Context) ([]byte, store.Revision, error) { return nil, "", u.err() }

func (u unusable) Swap(context.Context, []byte, store.Revision) (store.Revision, error) {
	return "", u.err()
}

// A record is what the mutants of a group share.
type record struct {
	store.Memory
	mu     sync.Mutex
	before []byte // the value before the last Swap
	rev    store.Revision
	loads  int
	swaps  int
	kept   []byte
}

// A mutant is a store that breaks one rule.
type mutant struct {
	*record
	name   string
	cached []byte
	rev    store.Revision
}

func (m *mutant) Load(ctx context.Context) ([]byte, store.Revision, error) {
	if m.name == "waits forever" && ctx.Err() != nil {
		select {}
	}
	value, rev, err := m.Memory.Load(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads++
	switch m.name {
	case "begins with a value":
		if len(value) == 0 {
			value = []byte{0}
		}
	case "ends at a zero byte":
		value, _, _ = bytes.Cut(value, []byte{0})
	case "keeps what is swapped", "shows what it keeps":
		value = m.kept
	case "compares values":
		rev = revisionOf(value)
	case "repeats revisions":
		rev = m.repeated()
	case "loads from a cache":
		if m.cached == nil {
			m.cached, m.rev = value, rev
		}
		return m.cached, m.rev, err
	case "loads from a replica":
		if m.loads%2 == 0 && m.before != nil {
			return m.before, m.record.rev, err
		}
	case "sometimes loads what was":
		if m.loads%3 == 0 && m.before != nil {
			return m.before, rev, err
		}
	}
	return value, rev, err
}

func (m *mutant) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	if m.name == "writes half" && ctx.Err() != nil {
		ctx, value = context.WithoutCancel(ctx), value[:1]
		_, _ = m.Memory.Swap(ctx, value, rev)
		return "", context.Canceled
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was, last, err := m.Memory.Load(ctx)
	if err != nil {
		if m.name == "says conflict for canceled" {
			return "", store.ErrConflict
		}
		return "", err
	}
	switch m.name {
	case "cuts off a byte":
		value = value[1:]
	case "takes little":
		if len(value) > 1<<10 {
			return "", errors.New("too large")
		}
	case "keeps what is swapped":
		m.kept = value
	case "shows what it keeps":
		m.kept = bytes.Clone(value)
	case "writes blindly":
		rev = last
	case "creates again":
		if rev == "0" {
			rev = last
		}
	case "creates anything":
		if last == "0" {
			rev = last
		}
	case "compares values":
		if rev == revisionOf(was) {
			rev = last
		}
	case "repeats revisions":
		if rev == m.repeated() {
			rev = last
		}
	case "checks, then writes":
		if rev == last {
			m.mu.Unlock()
			for range 100 {
				runtime.Gosched()
			}
			m.mu.Lock()
			_, rev, _ = m.Memory.Load(ctx)
		}
	}
	next, err := m.Memory.Swap(ctx, value, rev)
	if err != nil {
		return "", err
	}
	m.before, m.record.rev = was, last
	m.swaps++
	switch m.name {
	case "compares values":
		next = revisionOf(value)
	case "repeats revisions":
		next = m.repeated()
	case "writes, then says conflict":
		return "", store.ErrConflict
	}
	return next, nil
}

func (m *mutant) repeated() store.Revision {
	return store.Revision(fmt.Sprint(m.swaps % 7))
}

func revisionOf(value []byte) store.Revision {
	return store.Revision(fmt.Sprintf("%x", sha256.Sum256(value)))
}
