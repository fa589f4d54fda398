//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/child"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// memberArg makes this program a member that obeys orders: the program of the README, step by
// step.
const memberArg = "member"

type membership struct {
	Record string
	Lease  time.Duration
	NATS   string // empty for TCP
}

// An answer reports when an order was done, whether the lock is still held, and until when
// the lease of the member lets it hold locks.
type answer struct {
	At    int64
	Held  bool
	Until int64
}

// obey runs the member.
func obey() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var m membership
	must(in.Decode(&m))
	ctx := context.Background()
	var n *node.Node
	var held interface {
		Err() error
		Release() error
	}
	for {
		var word string
		if in.Decode(&word) != nil {
			return
		}
		switch word {
		case "open":
			record, err := filestore.Open(m.Record)
			must(err)
			var link transport.DynamicLink
			if m.NATS != "" {
				nc, err := nats.Connect("nats://" + m.NATS)
				must(err)
				link, err = natslink.New(nc, natslink.Config{Self: dmutex.None, Prefix: "proof"})
				must(err)
			} else {
				link, err = tcplink.New(tcplink.Config{Listen: "127.0.0.1:0"})
				must(err)
			}
			n, err = node.Open(ctx, record, link, node.Config{Lease: m.Lease})
			must(err)
		case "acquire":
			var err error
			held, err = n.Mutex("invoices/42").Acquire(ctx)
			must(err)
		case "release":
			must(held.Release())
		case "close":
			must(n.Close(ctx))
		}
		g := answer{At: instant(), Held: held != nil && held.Err() == nil}
		g.Until = g.At + int64(n.Status().Lease.Remains)
		must(out.Encode(g))
	}
}

// A company is the members of one group.
type company struct {
	*testing.T
	membership
}

func (c *company) start() *child.Process {
	p, err := child.Start(memberArg)
	require.NoError(c, err)
	c.Cleanup(func() {
		_ = p.Signal(os.Kill)
		_ = p.Close()
	})
	require.NoError(c, p.Tell(c.membership))
	return p
}

func (c *company) hear(p *child.Process) (g answer) {
	c.Helper()
	require.NoError(c, p.Hear(&g))
	return g
}

// do gives orders one after the other, and returns the last answer.
func (c *company) do(p *child.Process, words ...string) (g answer) {
	c.Helper()
	for _, word := range words {
		require.NoError(c, p.Tell(word))
		g = c.hear(p)
	}
	return g
}

// With the record in a file, no process waits for the lease of a dead process. The bounds are a
// third of a lease, because the machine may be slow.
func TestProof(t *testing.T) {
	for _, over := range []string{"TCP", "NATS"} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			c := company{t, membership{Record: filepath.Join(t.TempDir(), "record"), Lease: 10 * time.Second}}
			if over == "NATS" {
				c.NATS = newNATSServer(t, "").address()
			}
			soon := func(what string, since int64, g answer) {
				t.Helper()
				took := time.Duration(g.At - since)
				t.Logf("%s: %v", what, took.Round(time.Millisecond/10))
				require.Less(t, took, c.Lease/3)
			}
			all := []*child.Process{c.start(), c.start(), c.start()}
			began := instant()
			soon("first grant of a new record", began, c.do(all[0], "open", "acquire"))
			c.do(all[0], "release", "close")
			require.NoError(t, os.Remove(c.Record))

			began = instant()
			for _, p := range all {
				require.NoError(t, p.Tell("open"))
				require.NoError(t, p.Tell("acquire"))
				require.NoError(t, p.Tell("release"))
			}
			for _, p := range all {
				c.hear(p)
				soon("three that find a new record at once", began, c.hear(p))
				c.hear(p)
			}

			holder := all[0]
			for _, next := range all[1:] {
				c.do(holder, "acquire")
				require.NoError(t, next.Tell("acquire"))
				began = instant()
				require.NoError(t, holder.Signal(os.Kill))
				soon("the holder is killed", began, c.hear(next))
				c.do(next, "release")
				holder = next
			}
			began = instant()
			soon("a member closes and opens again", began, c.do(holder, "close", "open", "acquire"))
			require.NoError(t, holder.Signal(os.Kill))
			last := c.start()
			began = instant()
			soon("after the death of all", began, c.do(last, "open", "acquire"))
		})
	}
}

// A stopped process is not dead, and the others wait for its lease.
func TestProofOfStopped(t *testing.T) {
	t.Parallel()
	c := company{t, membership{Record: filepath.Join(t.TempDir(), "record"), Lease: 2 * time.Second}}
	one, two := c.start(), c.start()
	c.do(one, "open", "acquire")
	c.do(two, "open")
	require.NoError(t, two.Tell("acquire"))
	before := c.do(one, "look")
	require.True(t, before.Held)
	require.NoError(t, one.Signal(syscall.SIGSTOP))
	after := c.hear(two)
	t.Logf("the holder is stopped: the next grant after %v", time.Duration(after.At-before.At).Round(time.Millisecond))
	require.Greater(t, after.At, before.Until)
	require.NoError(t, one.Signal(syscall.SIGCONT))
	require.False(t, c.do(one, "look").Held)
	c.do(two, "release")
	c.do(one, "acquire")
}
