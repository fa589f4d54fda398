//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/client/natsclient"
	"github.com/dmutex/dmutex/internal/child"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/transport/tcplink"
)

const (
	hostArg  = "host"  // makes this program a member that serves clients
	guestArg = "guest" // makes it a hundred clients

	hosts, guests, clientsOfGuest = 3, 5, 100

	hostLease = 2 * time.Second
	subjects  = "faults.clients"
)

type hosting struct {
	Record string
	NATS   string // empty for TCP
}

// host runs a member. It reports where it listens. Its only order is to close, and it reports that, too.
func host() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var job hosting
	must(in.Decode(&job))
	ctx := context.Background()
	listen := func() (net.Listener, error) {
		if job.NATS == "" {
			return net.Listen("tcp", "127.0.0.1:0")
		}
		nc, err := nats.Connect("nats://"+job.NATS, nats.Timeout(patience), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
		must(err)
		return natsclient.Listen(nc, subjects)
	}
	listener, err := listen()
	must(err)
	record, err := filestore.Open(job.Record)
	must(err)
	link, err := tcplink.New(tcplink.Config{Listen: "127.0.0.1:0"})
	must(err)
	n, err := node.Open(ctx, record, link, node.Config{Lease: hostLease, Clients: &node.Clients{Listeners: []net.Listener{listener}}})
	must(err)
	must(n.Ready(ctx))
	must(out.Encode(listener.Addr().String()))
	var word string
	if in.Decode(&word) == nil {
		must(n.Close(ctx))
		must(out.Encode(word))
	}
}

type visit struct {
	Who     string
	Members []string
	NATS    string // empty for TCP
	Seed    uint64
}

// visitHosts runs the clients of one process, and reports their claims.
func visitHosts() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var job visit
	must(in.Decode(&job))
	cfg := client.Config{Members: job.Members}
	if job.NATS != "" {
		nc, err := nats.Connect("nats://"+job.NATS, nats.Timeout(patience), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
		must(err)
		cfg.Members, cfg.Dial = []string{subjects}, natsclient.Dialer(nc)
	}
	var mu sync.Mutex
	say := func(c claim) {
		mu.Lock()
		defer mu.Unlock()
		must(out.Encode(c))
	}
	for i := range clientsOfGuest {
		who := fmt.Sprint(job.Who, "/", i)
		cfg.Name = who
		c, err := client.New(cfg)
		must(err)
		luck := rand.New(rand.NewPCG(job.Seed, uint64(i)))
		pause := func(most time.Duration) { <-time.After(time.Duration(luck.Int64N(int64(most)))) }
		go func() {
			for {
				pause(2 * time.Second)
				k := luck.IntN(50)
				m, shares := lock.Mutex(c.Mutex(fmt.Sprint("lock ", k))), k < 10 && luck.IntN(4) > 0
				if shares {
					m = c.Mutex(m.Name()).Shared()
				}
				h, err := m.Acquire(context.Background())
				must(err)
				moved := c.Status().Moved
				s := stay{claim: claim{Lock: m.Name(), Who: who, Fence: h.Fence(), Shared: shares, Turn: luck.Uint64()}, err: h.Err}
				s.begin()
				say(s.claim)
				looks := 1
				if luck.IntN(40) == 0 {
					looks += luck.IntN(100)
				}
				for ; looks > 0 && !s.over; looks-- {
					pause(50 * time.Millisecond)
					s.look()
				}
				s.Leave, s.Moved, s.Lost = true, c.Status().Moved-moved, s.over
				say(s.claim)
				_ = h.Release()
			}
		}()
	}
	_ = in.Decode(new(string)) // until the input ends
}

// A house has members that serve clients in other processes, and a ledger of the clients' claims.
type house struct {
	t       *testing.T
	hosting hosting
	server  *natsServer // nil for TCP
	luck    *rand.Rand
	hosts   []*child.Process
	guests  []*child.Process
	cables  []*cable // over TCP of each host, over NATS of each guest
	reading sync.WaitGroup

	mu      sync.Mutex
	where   []string // addresses of the hosts
	ledger  *ledger
	wrong   error
	claimed map[string]int64 // by client: its last grant
	names   []string         // of the guests
	visits  []visit
	entries int
	moved   uint64 // holds that another member took over
	lost    int    // holds that ended before their clients released them
}

func newHouse(t *testing.T, overNATS bool) *house {
	t.Logf("seed %d", *seed)
	h := &house{
		t: t, luck: rand.New(rand.NewPCG(*seed, 0)), ledger: newLedger(), claimed: make(map[string]int64), where: make([]string, hosts),
		hosts: make([]*child.Process, hosts), guests: make([]*child.Process, guests), names: make([]string, guests),
	}
	t.Cleanup(h.reading.Wait)
	h.hosting.Record = filepath.Join(t.TempDir(), "record")
	visit, cables := visit{}, hosts
	if overNATS {
		h.server, cables = newNATSServer(t, ""), guests
		h.hosting.NATS = h.server.address()
	}
	for i := range cables {
		h.cables = append(h.cables, newCable(t))
		if !overNATS {
			visit.Members = append(visit.Members, h.cables[i].to(t, func() string {
				h.mu.Lock()
				defer h.mu.Unlock()
				return h.where[i]
			}))
		}
	}
	for i := range h.hosts {
		h.openHost(i)
	}
	for i := range h.guests {
		if overNATS {
			visit.NATS = h.cables[i].to(t, h.server.address)
		}
		h.visits = append(h.visits, visit)
		h.enter(i)
	}
	return h
}

func (h *house) start(arg string, job any) *child.Process {
	p, err := child.Start(arg)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = p.Signal(syscall.SIGKILL) })
	require.NoError(h.t, p.Tell(job))
	return p
}

func (h *house) openHost(i int) {
	p := h.start(hostArg, h.hosting)
	var where string
	require.NoError(h.t, p.Hear(&where))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hosts[i], h.where[i] = p, where
}

// enter starts the clients of a process, and hears their claims.
func (h *house) enter(i int) {
	v := h.visits[i]
	v.Seed = h.luck.Uint64()
	v.Who = fmt.Sprintf("guest %d of seed %d", i, v.Seed)
	p := h.start(guestArg, v)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.guests[i], h.names[i] = p, v.Who
	h.reading.Go(func() {
		for {
			var c claim
			if err := p.Hear(&c); err != nil {
				h.gone(v.Who, err)
				return
			}
			h.hear(c)
		}
	})
}

// gone notes that a process of clients has ended by itself.
func (h *house) gone(who string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wrong == nil && !strings.Contains(err.Error(), syscall.SIGKILL.String()) {
		h.wrong = fmt.Errorf("%s: %w", who, err)
	}
}

func (h *house) hear(c claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.ledger.judge(c); err != nil && h.wrong == nil {
		h.wrong = err
	}
	h.moved += c.Moved
	if !c.Leave {
		h.entries++
		h.claimed[c.Who] = c.From
	} else if c.Lost {
		h.lost++
	}
}

// storm kills, pauses and closes members, kills and pauses clients, and cuts connections.
func (h *house) storm(long time.Duration) {
	soon := func(most time.Duration) { <-time.After(time.Duration(h.luck.Int64N(int64(most)))) }
	for end := time.Now().Add(long); time.Now().Before(end); soon(hostLease) {
		i, k, cable := h.luck.IntN(hosts), h.luck.IntN(guests), h.cables[h.luck.IntN(len(h.cables))]
		switch h.luck.IntN(8) {
		case 0:
			require.NoError(h.t, h.hosts[i].Signal(syscall.SIGKILL))
			h.openHost(i)
		case 1:
			require.NoError(h.t, h.hosts[i].Tell("close"))
			require.NoError(h.t, h.hosts[i].Hear(new(string)))
			h.openHost(i)
		case 2:
			h.pause(h.hosts[i], soon)
		case 3:
			h.pause(h.guests[k], soon)
		case 7:
			_ = h.guests[k].Signal(syscall.SIGKILL) // gone reports a guest that has ended before
			h.enter(k)
		case 4:
			cable.drop()
		case 5:
			cable.unplug()
			soon(2 * hostLease)
			cable.heal()
		case 6:
			cable.hold()
			soon(2 * hostLease)
			cable.heal()
		}
	}
}

func (h *house) pause(p *child.Process, soon func(time.Duration)) {
	require.NoError(h.t, p.Signal(syscall.SIGSTOP))
	soon(2 * hostLease)
	require.NoError(h.t, p.Signal(syscall.SIGCONT))
}

// stuck returns how many clients have been granted nothing since then.
func (h *house) stuck(since int64) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range h.names {
		for i := range clientsOfGuest {
			if h.claimed[fmt.Sprint(name, "/", i)] < since {
				n++
			}
		}
	}
	return n
}

// Three members serve five hundred clients in five processes. Whatever happens to members and
// clients, no two clients hold a lock at one instant, fences rise, and in the end no client is stuck.
func TestClientsTCP(t *testing.T)  { visited(t, false) }
func TestClientsNATS(t *testing.T) { visited(t, true) }

func visited(t *testing.T, overNATS bool) {
	unlessShort(t)
	t.Parallel()
	h := newHouse(t, overNATS)
	long := 4 * time.Second
	if os.Getenv("DMUTEX_LONG") != "" {
		long = 10 * time.Minute
	}
	if *length > 0 {
		long = *length
	}
	h.storm(long)
	since := instant()
	for end := time.Now().Add(patience); h.stuck(since) > 0; <-time.After(10 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "seed %d: %d clients are stuck", *seed, h.stuck(since))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	require.NoError(t, h.wrong, "seed %d", *seed)
	t.Logf("%d grants; %d holds went on at another member, %d were lost; after the faults everybody had a lock within %v", h.entries, h.moved, h.lost, time.Duration(instant()-since))
}
