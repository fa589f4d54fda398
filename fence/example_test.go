package fence_test

import (
	"fmt"

	"github.com/dmutex/dmutex/fence"
)

// A register that keeps the fence with its value, as a server would keep both in
// one file.
func Example() {
	var (
		stored struct {
			value string
			fence uint64
		}
		gate = fence.NewGate(stored.fence) // as the server starts
	)
	write := func(f uint64, value string) error {
		return gate.Do(f, func() error {
			stored.value, stored.fence = value, f
			return nil
		})
	}
	fmt.Println(write(33, "by the holder of grant 33"))
	fmt.Println(write(34, "by the holder of grant 34"))
	fmt.Println(write(33, "by the former holder, who was paused"))
	fmt.Println(stored.value)
	// Output:
	// <nil>
	// <nil>
	// fence: stale: 33 is lower than 34, which a later holder has used
	// by the holder of grant 34
}
