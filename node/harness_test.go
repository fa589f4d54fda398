package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// leaseOf is the lease in these tests.
const leaseOf = 10 * time.Second

// A mode is how the members of a group agree on who is one.
type mode int

const (
	leased mode = 1 << iota // by the record of a store, see node.Open
	strict                  // by the consent of all, see node.OpenStrict
	both   = leased | strict
)

// each runs a test in a synctest bubble (fake time; no goroutine may be left), over a network without delay, in
// each of the modes and with every algorithm, or with some where tests are to be quick.
func each(t *testing.T, modes mode, test func(t *testing.T, g *group)) {
	for _, a := range algorithms.Some() {
		modes := modes
		if modes == both && (racetest.On || !a.Typical()) { // what differs between the modes is not the algorithm
			modes = leased
		}
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			bubble(t, modes, a.Algorithm, memlink.Config{}, test)
		})
	}
}

// bubble runs a test in each of the modes.
func bubble(t *testing.T, modes mode, a dmutex.Algorithm, cfg memlink.Config, test func(t *testing.T, g *group)) {
	for _, m := range []mode{leased, strict} {
		if modes&m == 0 {
			continue
		}
		run := func(t *testing.T) {
			if m == leased {
				nodetest.Today()
			}
			net, err := memlink.New(cfg)
			require.NoError(t, err)
			g := &group{t: t, mode: m, net: net, algorithm: a}
			t.Cleanup(func() { // also if the test fails
				for len(g.all) > 0 {
					g.all[0].close()
				}
			})
			test(t, g)
		}
		if modes == m {
			synctest.Test(t, run)
		} else {
			t.Run(m.String(), func(t *testing.T) { synctest.Test(t, run) })
		}
	}
}

func (m mode) String() string { return map[mode]string{leased: "leased", strict: "strict"}[m] }

// eachLease runs a test with leases, over a network that takes a millisecond.
func eachLease(t *testing.T, test func(t *testing.T, g *group)) {
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			bubbleLease(t, a.Algorithm, test)
		})
	}
}

func bubbleLease(t *testing.T, a dmutex.Algorithm, test func(t *testing.T, g *group)) {
	bubble(t, leased, a, memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond}, test)
}

// A group is some processes on one memlink network.
type group struct {
	t         *testing.T
	mode      mode
	net       *memlink.Network
	store     store.Memory // in the mode with leases
	algorithm dmutex.Algorithm
	deadlock  time.Duration
	detour                                                      // of each process, on its way to the store
	wrapStore func(store.Store) store.Store                     // of each process, unless this is nil
	wrapLink  func(transport.DynamicLink) transport.DynamicLink // likewise
	log       *slog.Logger
	trace     *trace.Recorder // of the next process
	name      string          // likewise
	clients   *node.Clients   // likewise
	observer  *node.Observer  // likewise, instead of the one that records the member's states and holds
	recorders []*trace.Recorder
	members   []dmutex.NodeID // in the strict mode those of the group, else those that open has begun

	mu  sync.Mutex // guards observer, trace and all, where several goroutines start processes, or look for one
	all []*member  // those that were not closed, as they began
}

// A member is a process with a link and a store that can be cut off.
type member struct {
	*node.Node
	group  *group
	id     dmutex.NodeID // its number when the group began, and its place on the network in the strict mode
	self   dmutex.NodeID // its number in the strict mode
	store  *outagetest.Store
	link   transport.DynamicLink
	host   transport.Host // what the link tells may be told by the test, too
	cut    atomic.Bool
	frames atomic.Int64 // that it has sent, and their bytes
	bytes  atomic.Int64
	stuck  atomic.Pointer[chan struct{}] // unless nil, Send waits until the channel is closed
	told   told
	mu     sync.Mutex
	states []node.LeaseState
	holds  []node.Event
}

// A tapped link can be cut off, and records what it was told.
type tapped struct {
	outagetest.Link
	s *member
}

// told is what a link was told.
type told struct {
	mu     sync.Mutex
	selves []dmutex.NodeID
	peers  map[dmutex.NodeID]bool
}

func (l tapped) Open(host transport.Host) error {
	l.s.host = host
	return l.Link.Open(host)
}

func (l tapped) Send(to dmutex.NodeID, frame []byte) error {
	l.s.frames.Add(1)
	l.s.bytes.Add(int64(len(frame)))
	if stuck := l.s.stuck.Load(); stuck != nil {
		<-*stuck
	}
	return l.Link.Send(to, frame)
}

func (l tapped) Become(self dmutex.NodeID) error {
	l.s.told.mu.Lock()
	defer l.s.told.mu.Unlock()
	l.s.told.selves, l.s.told.peers = append(l.s.told.selves, self), make(map[dmutex.NodeID]bool)
	return l.DynamicLink.Become(self)
}

func (l tapped) SetPeer(id dmutex.NodeID, address string) error {
	l.s.told.mu.Lock()
	defer l.s.told.mu.Unlock()
	l.s.told.peers[id] = true
	return l.DynamicLink.SetPeer(id, address)
}

func (l tapped) RemovePeer(id dmutex.NodeID) {
	l.s.told.mu.Lock()
	defer l.s.told.mu.Unlock()
	delete(l.s.told.peers, id)
	l.DynamicLink.RemovePeer(id)
}

// open starts the members 1..n, or n more in a group with leases, and waits until all are one group.
func (g *group) open(n int) []*member {
	first := len(g.all)
	for i := range n {
		g.members = append(g.members, dmutex.NodeID(first+i+1))
	}
	for _, id := range g.members[len(g.members)-n:] {
		g.start(id)
	}
	for _, s := range g.all {
		require.NoError(g.t, s.Ready(g.t.Context()))
		for len(s.Status().View.Members) < len(g.all) || !s.Status().View.Acts {
			time.Sleep(leaseOf / 100)
		}
	}
	return g.all
}

// start starts the member with that number. With leases, a new group gives the numbers in this order, and the
// process of a member that has ended gets another number.
func (g *group) start(id dmutex.NodeID) *member {
	s := &member{group: g, id: id, self: id}
	return s.open(g.config(s))
}

// startWith starts a member with other settings.
func (g *group) startWith(id dmutex.NodeID, cfg node.Config) *member {
	s := &member{group: g, id: id, self: id}
	if g.mode == leased {
		cfg.Lease = leaseOf
	}
	return s.open(cfg)
}

// join starts one more process of a group with leases, perhaps with other settings.
func (g *group) join(alter ...func(*node.Config)) *member {
	s := &member{group: g}
	cfg := g.config(s)
	for _, f := range alter {
		f(&cfg)
	}
	return s.open(cfg)
}

// sees waits until the member acts in a view with so many members.
func (s *member) sees(members int) {
	for v := s.Status().View; len(v.Members) != members || !v.Acts; v = s.Status().View {
		time.Sleep(time.Millisecond)
	}
	synctest.Wait()
}

// rejoins waits until the member acts under another number than its former one.
func (s *member) rejoins(former dmutex.NodeID) {
	for s.Self() == former || !s.Status().View.Acts {
		time.Sleep(time.Millisecond)
	}
	synctest.Wait()
}

// open starts the process.
func (s *member) open(cfg node.Config) *member {
	g := s.group
	if s.id != dmutex.None { // the test has closed it
		g.mu.Lock()
		g.all = slices.DeleteFunc(g.all, func(o *member) bool { return o.id == s.id })
		g.mu.Unlock()
	}
	var err error
	if g.mode == strict {
		s.Node, err = node.OpenStrict(g.t.Context(), s.self, g.members, s.newLink(), cfg)
	} else {
		if s.store == nil {
			s.store = outagetest.New(g.t, &g.store, outagetest.Faults{})
		}
		way := store.Store(distant{s.store, g.detour})
		if g.wrapStore != nil {
			way = g.wrapStore(way)
		}
		s.Node, err = node.Open(g.t.Context(), way, s.newLink(), cfg)
	}
	require.NoError(g.t, err)
	g.mu.Lock()
	g.all = append(g.all, s)
	g.mu.Unlock()
	if g.mode == leased && s.id != dmutex.None {
		synctest.Wait() // the record has its number
	}
	return s
}

// place is where the process is on the network. With leases, the link learns that from the record.
func (s *member) place() dmutex.NodeID {
	if s.group.mode == strict {
		return s.id
	}
	return dmutex.None
}

// A detour is what happens before and after each call of a store, unless these are nil. Their errors are those of the call.
type detour struct {
	before, after func(ctx context.Context, swaps bool) error
}

// A distant store is behind a detour.
type distant struct {
	store.Store
	detour
}

func (d distant) Load(ctx context.Context) (value []byte, rev store.Revision, err error) {
	err = d.by(ctx, false, func() (err error) {
		value, rev, err = d.Store.Load(ctx)
		return err
	})
	return value, rev, err
}

func (d distant) Swap(ctx context.Context, value []byte, rev store.Revision) (next store.Revision, err error) {
	err = d.by(ctx, true, func() (err error) {
		next, err = d.Store.Swap(ctx, value, rev)
		return err
	})
	return next, err
}

func (d detour) by(ctx context.Context, swaps bool, call func() error) (err error) {
	if d.before != nil {
		err = d.before(ctx, swaps)
	}
	if err == nil {
		err = call()
	}
	if d.after != nil && err == nil {
		err = d.after(ctx, swaps)
	}
	return err
}

// delayed makes the stores of processes that start later answer after that time.
func (g *group) delayed(d time.Duration) {
	then := g.before
	g.before = func(ctx context.Context, swaps bool) error {
		if time.Sleep(d); then != nil {
			return then(ctx, swaps)
		}
		return nil
	}
}

// counted counts the calls of the stores of processes that start later.
func (g *group) counted() (loads, swaps *atomic.Int64) {
	loads, swaps = new(atomic.Int64), new(atomic.Int64)
	g.before = func(_ context.Context, swap bool) error {
		map[bool]*atomic.Int64{false: loads, true: swaps}[swap].Add(1)
		return nil
	}
	return loads, swaps
}

// newLink makes the link of a process.
func (s *member) newLink() transport.DynamicLink {
	s.link = tapped{outagetest.Link{DynamicLink: s.group.net.Link(s.place()), Cut: &s.cut}, s}
	if s.group.wrapLink != nil {
		return s.group.wrapLink(s.link)
	}
	return s.link
}

func (g *group) config(s *member) node.Config {
	g.mu.Lock()
	defer g.mu.Unlock()
	cfg := node.Config{
		Name: g.name, Algorithm: g.algorithm, Deadlock: g.deadlock, Logger: g.log, Trace: g.trace, Clients: g.clients, Observer: g.observer,
	}
	g.observer, g.trace = nil, nil
	if s.id != dmutex.None {
		cfg.Name = fmt.Sprint("web-", s.id)
	}
	if g.mode == strict {
		return cfg
	}
	cfg.Lease = leaseOf
	if cfg.Observer == nil {
		cfg.Observer = &node.Observer{
			Lease: func(l node.LeaseStatus) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.states = append(s.states, l.State)
			},
			Hold: func(h node.Event) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.holds = append(s.holds, h)
			},
		}
	}
	return cfg
}

// node returns the member with that number, nil if it was closed.
func (g *group) node(id dmutex.NodeID) *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.IndexFunc(g.all, func(s *member) bool { return s.id == id }); i >= 0 {
		return g.all[i]
	}
	return nil
}

// isolate cuts a process off from the others and from the store.
func (s *member) isolate(on bool) {
	s.cut.Store(on)
	if s.store != nil {
		s.store.Outage(on)
	}
}

// crash ends a process without a farewell.
func (s *member) crash() {
	s.isolate(true)
	began := time.Now()
	s.close()
	require.Less(s.group.t, time.Since(began), time.Second) // Close does not wait for the store
	if s.group.mode == strict {
		time.Sleep(2 * time.Millisecond) // two lives that are drawn in one millisecond may be the same
	}
}

// forget leaves a process to the test that has closed it.
func (s *member) forget() {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	s.group.all = slices.DeleteFunc(s.group.all, func(o *member) bool { return o == s })
}

// close closes a process. In the strict mode peers or the link may be gone, so it does not insist on the
// farewell.
func (s *member) close() {
	defer s.forget()
	patience := time.Minute
	if s.group.mode == strict {
		patience = time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dead := s.cut.Load() || s.group.t.Failed()
	if dead {
		cancel()
	}
	switch err := s.Close(ctx); {
	case err == nil, dead, errors.Is(err, node.ErrRecord):
	case s.group.mode == strict && errors.Is(err, transport.ErrClosed):
	case s.group.mode == strict:
		require.ErrorIs(s.group.t, err, context.DeadlineExceeded)
	default:
		require.NoError(s.group.t, err)
	}
}

// close closes a process.
func (g *group) close(id dmutex.NodeID) { g.node(id).close() }

// crash ends a process without a farewell. Then it heals the network.
func (g *group) crash(id dmutex.NodeID) {
	g.node(id).crash()
	g.net.Heal()
}

// closeLink closes the link of a node, which notices it when it sends to all.
func (g *group) closeLink(id dmutex.NodeID) {
	require.NoError(g.t, g.node(id).link.Close())
	_ = g.mutex(id, "x").Ask(g.t.Context())
	synctest.Wait()
}

func (g *group) mutex(id dmutex.NodeID, name string) *node.Mutex { return g.node(id).Mutex(name) }

func (g *group) acquire(id dmutex.NodeID, name string) lock.Held {
	g.t.Helper()
	return g.node(id).acquire(name)
}

func (s *member) acquire(name string) lock.Held {
	s.group.t.Helper()
	h, err := s.Mutex(name).Acquire(s.group.t.Context())
	require.NoError(s.group.t, err)
	return h
}

// outcome is the result of an Acquire in the background.
type outcome struct {
	held lock.Held
	err  error
}

func (g *group) acquireLater(ctx context.Context, id dmutex.NodeID, name string) <-chan outcome {
	return g.node(id).acquireLater(ctx, name)
}

func (s *member) acquireLater(ctx context.Context, name string) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		h, err := s.Mutex(name).Acquire(ctx)
		out <- outcome{h, err}
	}()
	synctest.Wait()
	return out
}

// granted waits until a call in the background is granted its lock.
func granted(t *testing.T, later <-chan outcome) lock.Held {
	t.Helper()
	o := <-later
	require.NoError(t, o.err)
	return o.held
}

// nameAt returns the name of a lock with that home.
func nameAt(home dmutex.NodeID, members []dmutex.NodeID) string { return namesAt(home, members, 1)[0] }

// namesAt returns the names of n locks with that home.
func namesAt(home dmutex.NodeID, members []dmutex.NodeID, n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint("lock ", i); locks.Home(name, members) == home {
			names = append(names, name)
		}
	}
	return names
}

// counter is the part of a fence that counts within the epoch.
func counter(fence uint64) uint32 {
	return uint32(fence - epochs.First(epochs.Of(fence)))
}

// build makes this process another build, until the test ends.
func build(t *testing.T, oldest, newest uint64) {
	was := protocol.Spoken
	protocol.Spoken = protocol.Versions{Oldest: oldest, Newest: newest}
	t.Cleanup(func() { protocol.Spoken = was })
}
