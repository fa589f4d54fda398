package fence_test

import (
	"fmt"

	"github.com/dmutex/dmutex/lock/fence"
)

// A register that keeps the fence with its value, as a server would keep both in
// one file.
func Example() {
	var (
		stored struct {
			value string
			fence uint64
		}
		gate = fence.NewGate(fence.Seen{Alone: stored.fence}) // as the server starts
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

// A file that is written by those that hold the lock alone, and annotated by those that share it, goes on
// after a restart with both numbers.
func ExampleSeen() {
	none := func() error { return nil }
	var gate fence.Gate
	fmt.Println(gate.Do(33, none), gate.Share(35, none), gate.Share(34, none))
	stored := gate.Seen()
	fmt.Printf("%+v\n", stored)

	again := fence.NewGate(stored)
	fmt.Println(again.Share(34, none))
	fmt.Println(again.Do(34, none))
	// Output:
	// <nil> <nil> <nil>
	// {Alone:33 Shared:35}
	// <nil>
	// fence: stale: 34 is lower than 35, which a later holder has used
}
