// Command natskv guards a JetStream key-value bucket by the fences of a lock,
// with both over one NATS server.
//
// The fence is stored in the value. A key-value store cannot check values, but it
// can check revisions, and that is enough: [put] reads a fence, and writes only if
// the value is still the same.
//
// The command shows the case that no lock can prevent: a holder is paused, and
// writes long after an operator has declared it dead. The command starts a server
// of its own, so it runs anywhere.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/lock/fence"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/natslink"
)

// An entry is what the bucket keeps under a key.
type entry struct {
	Fence uint64
	Text  string
}

// get returns the entry and its revision, both zero if there is none.
func get(ctx context.Context, kv jetstream.KeyValue, key string) (e entry, revision uint64, err error) {
	stored, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return entry{}, 0, nil
	}
	if err != nil {
		return entry{}, 0, err
	}
	return e, stored.Revision(), json.Unmarshal(stored.Value(), &e)
}

// errDeleted says that a key was deleted. Its fence is gone too, so a former holder
// can no longer be recognized. Write an empty entry instead.
var errDeleted = errors.New("the key was deleted, and its fence with it")

// put writes the entry, unless a later holder of the key's lock has written
// before.
func put(ctx context.Context, kv jetstream.KeyValue, key string, e entry) error {
	value, err := json.Marshal(e)
	if err != nil {
		return err
	}
	for again := false; ; again = true {
		stored, revision, err := get(ctx, kv, key)
		if err != nil {
			return err
		}
		if err := fence.NewGate(fence.Seen{Alone: stored.Fence}).Admit(e.Fence); err != nil {
			return err
		}
		if again && revision == 0 {
			return errDeleted
		}
		_, err = kv.Update(ctx, key, value, revision)
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return err
		}
		// Another write, perhaps a later holder's, came first.
	}
}

// member joins a group of two nodes, which in production are two processes. It also
// returns the connection of the node.
func member(ctx context.Context, url string, self dmutex.NodeID, last uint64) (*node.Node, *nats.Conn) {
	nc, err := nats.Connect(url,
		nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond), // else 2 s
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2)) // else it takes four minutes to leave a server that hangs
	check(err)
	link, err := natslink.New(nc, natslink.Config{Self: self, Prefix: "locks.config"})
	check(err)
	n, err := node.OpenStrict(ctx, self, []dmutex.NodeID{1, 2}, link, node.Config{Fence: last})
	check(err)
	return n, nc
}

// kill ends a node without an orderly close.
func kill(n *node.Node) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.Close(ctx)
}

// startServer runs a NATS server on the loopback interface that keeps the bucket
// in memory.
func startServer(dir string) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return nil, errors.New("the NATS server does not start")
	}
	return s, nil
}

func bucket(ctx context.Context, url string) (jetstream.KeyValue, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "config", Storage: jetstream.MemoryStorage})
}

func main() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "natskv")
	check(err)
	defer os.RemoveAll(dir)
	s, err := startServer(dir)
	check(err)
	defer s.WaitForShutdown()
	defer s.Shutdown()
	kv, err := bucket(ctx, s.ClientURL())
	check(err)

	one, _ := member(ctx, s.ClientURL(), 1, 0)
	two, wire := member(ctx, s.ClientURL(), 2, 0)
	held, err := two.Mutex("mode").Acquire(ctx)
	check(err)
	check(put(ctx, kv, "mode", entry{held.Fence(), "maintenance"}))
	fmt.Println("node 2 holds the lock and writes maintenance")
	wake, done := make(chan struct{}), make(chan error)
	go func() { // the rest of node 2's work
		<-wake // its machine hangs here
		done <- put(ctx, kv, "mode", entry{held.Fence(), "normal"})
	}()

	wire.Close()                         // a machine that hangs is silent
	kill(one)                            // and the operator believes that node 2 is dead too
	last, _, err := get(ctx, kv, "mode") // all new fences are to be higher, whatever the clocks say
	check(err)
	newOne, _ := member(ctx, s.ClientURL(), 1, last.Fence)
	newTwo, _ := member(ctx, s.ClientURL(), 2, last.Fence)
	check(newTwo.Mutex("mode").Do(ctx, func(ctx context.Context, f uint64) error {
		fmt.Println("node 2 of the new group has a higher fence:", f > held.Fence())
		fmt.Println("it writes repair")
		return put(ctx, kv, "mode", entry{f, "repair"})
	}))

	close(wake)
	refusal := <-done
	fmt.Println("the former node 2 wakes up and writes")
	fmt.Println("but the bucket refuses:", errors.Is(refusal, fence.ErrStale))
	stored, _, err := get(ctx, kv, "mode")
	check(err)
	fmt.Println("the mode is", stored.Text)

	kill(two)
	kill(newOne)
	kill(newTwo)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
