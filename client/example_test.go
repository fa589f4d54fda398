package client_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/filenode"
)

// Five hundred clients share an account. Three members make the group. In production each member
// and each client is a process, perhaps on a machine of its own.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "dmutex")
	check(err)
	defer os.RemoveAll(dir)

	var members []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(err)
		n, err := filenode.Open(ctx, filepath.Join(dir, "record"), node.Config{
			Lease:   3 * time.Second, // a new record waits for one lease; the default is 10 s
			Clients: &node.Clients{Listeners: []net.Listener{l}},
		})
		check(err)
		defer n.Close(ctx)
		members = append(members, l.Addr().String())
	}

	var (
		processes        sync.WaitGroup
		account, highest uint64 // guarded by the lock of the group
	)
	for range 500 {
		processes.Go(func() {
			c, err := client.New(client.Config{Members: members})
			check(err)
			defer c.Close()
			check(c.Mutex("account").Do(ctx, func(_ context.Context, fence uint64) error {
				if fence <= highest {
					return fmt.Errorf("fence %d after %d", fence, highest)
				}
				account, highest = account+1, fence
				return nil
			}))
		})
	}
	processes.Wait()
	fmt.Println("deposits:", account)
	// Output: deposits: 500
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
