package client_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/child"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/transport/tcplink"
)

var (
	asMember = flag.String("member", "", "be a member with the record in this file")
	asClient = flag.String("client", "", "be a client of these members")
)

// A grant is what a process reports: the address of a member, or a grant of a client.
type grant struct {
	Address string
	Lock    string
	Fence   uint64
}

func TestMain(m *testing.M) {
	flag.Parse()
	report := json.NewEncoder(os.Stdout).Encode
	if *asMember+*asClient != "" { // a child does not outlive the test
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	var err error
	switch {
	case *asMember != "":
		err = beMember(report)
	case *asClient != "":
		err = beClient(report)
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func beMember(report func(any) error) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	link, err := tcplink.New(tcplink.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	s, err := filestore.Open(*asMember)
	if err != nil {
		return err
	}
	n, err := node.Open(context.Background(), s, link, node.Config{Lease: 2 * time.Second, Clients: &node.Clients{Listeners: []net.Listener{listener}}})
	if err != nil {
		return err
	}
	if err := n.Ready(context.Background()); err != nil {
		return err
	}
	if err := report(grant{Address: listener.Addr().String()}); err != nil {
		return err
	}
	<-n.Done()
	return n.Status().Err
}

func beClient(report func(any) error) error {
	c, err := client.New(client.Config{Members: strings.Split(*asClient, ",")})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		m := c.Mutex(fmt.Sprint("l", i%3))
		err := m.Do(context.Background(), func(_ context.Context, fence uint64) error {
			return report(grant{Lock: m.Name(), Fence: fence})
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err) // the lock was lost
		}
	}
}

// Processes over TCP: two members and a client are killed, and the other clients go on. No fence is
// granted twice.
func TestProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var hearing sync.WaitGroup
	t.Cleanup(hearing.Wait)
	start := func(args ...string) *child.Process {
		p, err := child.Start(args...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = p.Signal(os.Kill) })
		return p
	}
	record := filepath.Join(t.TempDir(), "record")
	var members []*child.Process
	var addresses []string
	for range 3 {
		p, g := start("-member", record), grant{}
		require.NoError(t, p.Hear(&g))
		hearing.Go(func() { _ = p.Hear(new(grant)) })
		members, addresses = append(members, p), append(addresses, g.Address)
	}
	type report struct {
		client int
		grant
	}
	reports := make(chan report)
	var clients []*child.Process
	for i := range 4 {
		p := start("-client", strings.Join(addresses, ","))
		clients = append(clients, p)
		hearing.Go(func() {
			for {
				r := report{client: i}
				if p.Hear(&r.grant) != nil {
					return
				}
				select {
				case reports <- r:
				case <-t.Context().Done():
				}
			}
		})
	}
	seen := make(map[grant]bool)
	hear := func(of []int) { // 20 grants of each of these clients
		left := make(map[int]int)
		for _, i := range of {
			left[i] = 20
		}
		for len(left) > 0 {
			r := <-reports
			require.False(t, seen[r.grant], "%+v", r)
			seen[r.grant] = true
			if left[r.client]--; left[r.client] <= 0 {
				delete(left, r.client)
			}
		}
	}
	hear([]int{0, 1, 2, 3})
	require.NoError(t, members[0].Signal(os.Kill))
	require.NoError(t, clients[0].Signal(os.Kill))
	hear([]int{1, 2, 3})
	require.NoError(t, members[1].Signal(os.Kill))
	hear([]int{1, 2, 3})
}
