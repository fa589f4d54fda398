package storetest_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/store/storetest"
)

// RunProver must catch stores whose proofs are wrong. Each mutant runs in a process of its own,
// because its tests must fail.
func TestRunProverCatches(t *testing.T) {
	for _, test := range []struct{ mutant, check, says string }{
		{"takes all for dead", "a life is over when its process", "elements differ"},
		{"says at once that it is over", "a life is over when its process", "the life is not over"},
		{"takes none for dead", "a life is over when its process", "context deadline exceeded"},
		{"repeats a name", "a life is over when it is closed", "Should not be"},
		{"proves what it does not know", "a life that nobody knows", "but got nil"},
		{"forgets", "a life is over when its process", "no proof"},
		{"sees all groups", "a life that nobody knows", "Not equal"},
		{"ignores contexts", "a context that ends", "test timed out"},
		{"ends a life with its context", "a context that ends", "--- FAIL: TestMutantProver/a_context_that_ends"}, // in one of two ways
	} {
		t.Run(test.mutant, func(t *testing.T) {
			timeout := "1m"
			switch test.mutant {
			case "takes none for dead", "ignores contexts":
				timeout, test.says = "1s", "test timed out"
			}
			machinetest.Catches(t, "TestMutantProver", test.mutant, test.check, test.says, timeout)
		})
	}
}

// TestMutantProver runs in that process. Without a mutant it tests a good store.
func TestMutantProver(t *testing.T) {
	storetest.RunProver(t, t.TempDir(), func(t *testing.T, dir, group string) store.Prover {
		s, err := filestore.Open(filepath.Join(dir, group))
		require.NoError(t, err)
		return &mutantProver{s.(store.Prover), machinetest.Mutant(), dir}
	})
}

// A mutantProver is a store that breaks one rule.
type mutantProver struct {
	store.Prover
	name, dir string
}

func (m *mutantProver) Live(ctx context.Context) (store.Life, error) {
	l, err := m.Prover.Live(ctx)
	switch {
	case err != nil:
	case m.name == "repeats a name":
		return namesake{l}, nil
	case m.name == "ends a life with its context":
		context.AfterFunc(ctx, func() { _ = l.Close() })
	}
	return l, err
}

type namesake struct{ store.Life }

func (namesake) Name() string { return "A" }

func (m *mutantProver) Over(ctx context.Context, name string) error {
	switch m.name {
	case "says at once that it is over":
		return nil
	case "takes none for dead":
		<-ctx.Done()
		return ctx.Err()
	case "forgets":
		names, err := m.Living(ctx)
		if err == nil && len(names) == 0 {
			return store.ErrNoProof
		}
	case "ignores contexts":
		ctx = context.WithoutCancel(ctx)
	}
	err := m.Prover.Over(ctx, name)
	if m.name == "proves what it does not know" {
		return nil
	}
	return err
}

func (m *mutantProver) Living(ctx context.Context) ([]string, error) {
	names, err := m.Prover.Living(ctx)
	switch m.name {
	case "takes all for dead":
		return nil, err
	case "sees all groups":
		names = nil
		files, _ := filepath.Glob(filepath.Join(m.dir, ".lives", "*"))
		for _, file := range files {
			names = append(names, filepath.Ext(file)[1:])
		}
	}
	return names, err
}
