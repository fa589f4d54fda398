package store_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"testing"

	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/storetest"
)

func TestMemory(t *testing.T) {
	groups := make(map[string]*store.Memory)
	storetest.Run(t, func(t *testing.T, group string) store.Store {
		if groups[group] == nil {
			groups[group] = new(store.Memory)
		}
		return groups[group]
	})
}

// A counter that any number of processes may increment.
func Example() {
	var s store.Store = new(store.Memory)
	increment := func(ctx context.Context) error {
		for {
			value, rev, err := s.Load(ctx)
			if err != nil {
				return err
			}
			n, _ := strconv.Atoi(string(value)) // 0 before the first Swap
			_, err = s.Swap(ctx, []byte(strconv.Itoa(n+1)), rev)
			if errors.Is(err, store.ErrConflict) {
				continue // another process was faster
			}
			return err // if it is not nil, the increment may have happened
		}
	}
	if err := increment(context.Background()); err != nil {
		log.Fatal(err)
	}
	value, _, err := s.Load(context.Background())
	fmt.Println(string(value), err)
	// Output: 1 <nil>
}
