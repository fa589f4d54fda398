package world

import (
	"net"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client/natsclient"
	"github.com/dmutex/dmutex/internal/kit/natsnet"
	"github.com/dmutex/dmutex/internal/kit/stall"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
)

// In some worlds the members' links and the connections of their clients are over NATS: each process has a connection
// with one server. A message may get lost wherever a connection ends, and none comes twice.

// waits tells that nats.go waits to write and to connect, for which it needs a build with a fixed order.
const waits = stall.Points > 0

// front is where all members serve clients. Each also has an address of its own.
const front = "world.clients"

// logIn connects a process with the server.
func (p *process) logIn() {
	if p.w.nats == nil {
		return
	}
	p.way = p.w.nats.Way()
	p.way.Delay(p.w.late())
	var err error
	p.nc, err = p.way.Connect(
		nats.MaxReconnects(-1), nats.ReconnectWait(p.w.again), nats.ReconnectJitter(0, 0), nats.RetryOnFailedConnect(true),
		nats.PingInterval(leaseOf/8), nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the default handler prints
	)
	if err != nil {
		p.w.Wrong("%s does not log in: %v", p.who, err)
	}
}

// logOut ends the connection of a process with the server.
func (p *process) logOut() {
	if p.nc != nil {
		p.nc.Close()
		p.way.Kill()
	}
}

// tarries is for how long NATS keeps a process that closes: until a server that hangs is no longer waited for, and where
// sockets may be stuck until nats.go has given up to write, and to connect.
func (p *process) tarries() time.Duration {
	switch {
	case p.nc == nil:
		return 0
	case waits:
		return time.Minute + 5*time.Second
	}
	return 2 * time.Second
}

// late is how late bytes are at most, in calm not at all.
func (w *World) late() time.Duration {
	if w.calm.Load() {
		return 0
	}
	return w.path.MaxDelay
}

// natsLink returns the link of a member, in the strict mode of a number.
func (p *process) natsLink(self dmutex.NodeID) (transport.DynamicLink, error) {
	return natslink.New(p.nc, natslink.Config{Self: self, Prefix: "world.members"})
}

// natsListen returns the listener of a member for clients.
func (p *process) natsListen() (net.Listener, error) {
	l, err := natsclient.Listen(p.nc, front)
	if err == nil {
		p.address = l.Addr().String()
	}
	return l, err
}

// ways returns the ways of processes to the server.
func ways(all []*process) (ways []*natsnet.Way) {
	for _, p := range all {
		ways = append(ways, p.way)
	}
	return ways
}

// natsFaults are those of NATS.
func (w *World) natsFaults(on func(string, int, func())) {
	anybody := func(do func(p *process)) func() {
		return func() {
			if all := w.all(); len(all) > 0 {
				do(all[w.Luck.IntN(len(all))])
			}
		}
	}
	hold := func(all []*process, out, in bool, most time.Duration) {
		for _, way := range ways(all) {
			way.Hold(out, in)
		}
		w.forAWhile(most, func() {
			for _, way := range ways(all) {
				way.Hold(false, false)
			}
		})
	}
	on("a connection with the server ends", 5, anybody(func(p *process) { p.way.Drop() }))
	on("a process loses the server", 2, anybody(func(p *process) {
		p.way.Refuse(true)
		p.way.Drop()
		w.forAWhile(leaseOf*3/2, func() { p.way.Refuse(false) })
	}))
	on("a process is cut off from the server", 2, anybody(func(p *process) {
		way := w.Luck.IntN(4)
		hold([]*process{p}, way != 1, way != 2, leaseOf*5/2)
	}))
	on("a stranger publishes", 2, func() {
		if s := w.some(); s != nil {
			w.publishes(s.now)
		}
	})
	on("the server hangs", 1, func() { hold(w.all(), true, true, leaseOf) })
	on("the server restarts", 2, func() {
		w.nats.Stop()
		w.forAWhile(leaseOf, w.nats.Start)
	})
	on("a connection with the server is closed for good", 1, func() {
		all := w.all()
		if len(all) == 0 {
			return
		}
		p := all[w.Luck.IntN(len(all))]
		p.nc.Close()
		time.Sleep(w.UpTo(leaseOf / 2)) // until somebody notices
		if i := slices.Index(w.users, p); i >= 0 {
			w.replace(i, (*process).kill)
		} else if i := slices.IndexFunc(w.slots, func(s *slot) bool { return s.now == p }); i >= 0 {
			w.leave(w.slots[i]).kill()
			w.begin(w.slots[i])
		}
	})
}
