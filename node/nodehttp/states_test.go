package nodehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/internal/kit/servetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// states returns pages of a group of three in three states: calm; after a crash, with locks that wait
// for the lease of the dead member; and with 200 locks and 50 clients.
func states(t *testing.T) map[string]string {
	pages := make(map[string]string)
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond})
		require.NoError(t, err)
		var record store.Memory
		var nodes []*node.Node
		var last *outagetest.Store // of the last
		way := make(servetest.Door)
		var theirs servetest.Door
		for i, name := range []string{"invoices-7d4b9c-abcde", "invoices-7d4b9c-fghij", "invoices-7d4b9c-klmno"} {
			at := way // of the first
			if i > 0 {
				at = make(servetest.Door)
			}
			last, theirs = outagetest.New(t, &record, outagetest.Faults{}), at
			n, err := node.Open(t.Context(), last, network.Link(dmutex.None), node.Config{
				Name: name, Group: "invoices", Clients: &node.Clients{Listeners: []net.Listener{at}},
			})
			require.NoError(t, err)
			require.NoError(t, n.Ready(t.Context()))
			nodes = append(nodes, n)
		}
		one := nodes[0]
		time.Sleep(time.Hour)
		page := func(state string) { pages[state] = get(one, "/", nil).Body.String() }
		waits, stop := context.WithCancel(t.Context())
		take := func(i int, name string) {
			_, err := nodes[i].Mutex(name).Acquire(t.Context())
			require.NoError(t, err)
		}
		job := func(name string, lock string) *client.Client {
			c, err := client.New(client.Config{Members: []string{"m"}, Name: name, Dial: way.Dial})
			require.NoError(t, err)
			go func() { _, _ = c.Mutex(lock).Acquire(waits) }()
			synctest.Wait()
			return c
		}
		for i := range 4 {
			take(0, fmt.Sprintf("customers/%d", 4711+i))
			take(1, fmt.Sprintf("invoices/%d", 42+i))
			take(2, fmt.Sprintf("reports/2026-%02d", 8+i))
			time.Sleep(time.Second)
		}
		var jobs []*client.Client
		jobs = append(jobs, job("nightly-report", "reports/nightly"), job("nightly-backup", "reports/nightly"))
		time.Sleep(2 * time.Second)
		page("calm")

		for i := range 48 {
			jobs = append(jobs, job(fmt.Sprintf("worker-%02d", i), fmt.Sprintf("customers/%d", 4711+i/4)))
		}
		for i := range 188 {
			take(i%2, fmt.Sprintf("orders/%03d", i))
		}
		time.Sleep(time.Second)
		page("crowd")

		link, err := theirs.Dial(t.Context(), "")
		require.NoError(t, err)
		var gone atomic.Bool
		moving, err := client.New(client.Config{Members: []string{"first", "last"}, Name: "moving", Dial: func(ctx context.Context, address string) (net.Conn, error) {
			switch {
			case gone.Load() == (address == "last"):
				return nil, errors.New("not reached")
			case gone.Load():
				return way.Dial(ctx, address)
			}
			return link, nil
		}})
		require.NoError(t, err)
		jobs = append(jobs, moving)
		_, err = moving.Mutex("accounts/7").Acquire(t.Context())
		require.NoError(t, err)
		for i := range 4 {
			go func() { _, _ = one.Mutex(fmt.Sprintf("reports/2026-%02d", 8+i)).Acquire(waits) }()
		}
		last.Outage(true) // the dead member takes no leave
		crash(network, nodes, 3)
		gone.Store(true)
		require.NoError(t, link.Close())
		for len(one.Status().View.Members) == 3 || !one.Status().View.Acts {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		for one.Status().ClientsMoved == 0 { // it tries again within a second
			time.Sleep(10 * time.Millisecond)
		}
		page("crash")
		require.Positive(t, one.Status().Draining)
		stop()
		for _, c := range jobs {
			require.NoError(t, c.Close())
		}
		for _, n := range nodes[:2] {
			hurry, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = n.Close(hurry)
			cancel()
		}
	})
	return pages
}

// The page has the group as its member sees it, on one screen: members, what a death costs, who holds what for whom and who
// waits. It says so when locks wait for a former member.
func TestStates(t *testing.T) {
	pages := states(t)
	if dir := os.Getenv("DMUTEX_PAGES"); dir != "" { // to look at them
		for state, page := range pages {
			require.NoError(t, os.WriteFile(filepath.Join(dir, state+".html"), []byte(page), 0o644))
		}
	}
	require.Contains(t, pages["calm"], "<title>ready: invoices, seen by invoices-7d4b9c-abcde</title>")
	require.Contains(t, pages["calm"], `<td class="n good">held for `)
	require.Contains(t, pages["calm"], `client <span class="name">nightly-report</span>`)
	require.Contains(t, pages["calm"], `1: <span class="name">nightly-backup</span>`)
	require.Contains(t, pages["calm"], ">not here<") // others hold it
	for _, page := range pages {
		require.NotContains(t, page, "idle")
	}
	require.Contains(t, pages["crowd"], `>worker-47</th>`)
	require.Contains(t, pages["crowd"], `>orders/186</th>`)
	require.Contains(t, pages["crowd"], ">Locks held here 107, callers that wait 41<") // 40 workers, and nightly-backup
	waits, held := strings.Index(pages["crash"], ">reports/2026-08</th>"), strings.Index(pages["crash"], ">customers/4711</th>")
	require.Less(t, waits, held, "what waits is not first")
	require.Positive(t, waits)
	require.Contains(t, pages["crash"], `<title>ready, with trouble: invoices, seen by`)
	require.Regexp(t, `<b>\d locks? waits?</b> for the leases of invoices-7d4b9c-klmno \(node 3\), which may hold `, pages["crash"])
	require.Contains(t, pages["crash"], `<td class="name" data-l="holds">accounts/7 (taken over from another member: accounts/7)</td>`)
	require.Contains(t, pages["crash"], "Locks taken over from members that were gone 1, asked for ")
}
