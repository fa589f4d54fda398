package world

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/storm"
	"github.com/dmutex/dmutex/internal/kit/streamnet"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// In some worlds the members' links and the connections of their clients are TCP: each place has a machine.

// A machine is where one process after the other runs, with one address.
type machine struct {
	*streamnet.Host
	ip  string
	off bool
}

// machineOf returns the machine of a place.
func (w *World) machineOf(place string) *machine {
	m := w.machines[place]
	if m == nil {
		m = &machine{ip: fmt.Sprintf("10.0.0.%d", len(w.machines)+1)}
		m.Host = w.streams.Host(m.ip, place)
		w.machines[place] = m
		w.paths()
	}
	return m
}

// boot gives a process its sockets.
func (p *process) boot() {
	if p.w.streams == nil {
		return
	}
	p.at = p.w.machineOf(p.name)
	if p.at.off {
		p.at.off = false
		p.at.PowerOn()
	}
	p.socket = p.at.Process()
	p.machine.Network = p.socket
}

// link returns the link of a member, in the strict mode of a number.
func (p *process) link(self dmutex.NodeID) (transport.DynamicLink, error) {
	switch {
	case p.nc != nil:
		return p.natsLink(self)
	case p.w.streams == nil:
		return p.w.net.Link(self), nil
	}
	c := tcplink.Config{Self: self, Listen: p.at.ip + ":7000", AllowPlain: true}
	if p.w.secure {
		c.AllowPlain, c.TLS = false, p.certificates(self)
	}
	if self != dmutex.None {
		if p.w.secure {
			c.NodeOf = tcplink.NodeOf
		}
		c.Peers = make(map[dmutex.NodeID]string)
		for _, o := range p.w.slots {
			c.Peers[o.place] = p.w.machineOf(o.name()).ip + ":7000"
		}
	}
	return tcplink.New(c)
}

// A porch is where a member listens for clients over TCP or NATS.
type porch struct {
	net.Listener
	p    *process
	kept chan net.Conn // connections that hear nothing
}

// Accept implements [net.Listener]. While the member is shut or hangs, it keeps who comes, and says nothing.
func (d porch) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil || !d.p.shut.Load() && !d.p.hangs.Load() {
			return c, err
		}
		select {
		case d.kept <- c:
		default:
			(<-d.kept).Close()
			d.kept <- c
		}
	}
}

// Close implements [net.Listener].
func (d porch) Close() error {
	for len(d.kept) > 0 {
		(<-d.kept).Close()
	}
	return d.Listener.Close()
}

// listen returns the listener of a member for clients.
func (p *process) listen() (net.Listener, error) {
	p.address = p.name + ":80"
	kept := make(chan net.Conn, 100)
	switch {
	case p.nc != nil:
		l, err := p.natsListen()
		return porch{l, p, kept}, err
	case p.socket != nil:
		l, err := p.socket.Listen(context.Background(), p.at.ip+":80")
		l = porch{l, p, kept}
		if err == nil && p.w.secure {
			l = tls.NewListener(l, p.certificates(dmutex.None))
		}
		return l, err
	}
	p.door = newDoor(p)
	return p.door, nil
}

// paths says how bytes travel between all machines: in calm at once.
func (w *World) paths() {
	for _, p := range w.all() {
		if p.way != nil {
			p.way.Delay(w.late())
		}
	}
	path := w.path
	if w.calm.Load() {
		path = streamnet.Path{}
	}
	for _, from := range w.machines {
		for _, to := range w.machines {
			if from != to {
				w.streams.Set(from.Host, to.Host, path)
			}
		}
	}
}

// cut lets nothing arrive any more that goes from one process to another.
func (w *World) cut(from, to *process) {
	switch {
	case w.nats != nil:
		w.nats.Cut(from.way, to.way)
	case w.streams == nil:
		w.net.Cut(from.node.Self(), to.node.Self())
	case from.at != to.at:
		w.streams.Cut(from.at.Host, to.at.Host)
	}
}

// part cuts some members from the others.
func (w *World) part(some []*process) {
	switch {
	case w.nats != nil:
		w.nats.Heal()
		w.nats.Partition(ways(some)...)
		return
	case w.streams == nil:
		var part []dmutex.NodeID
		for _, p := range some {
			part = append(part, p.node.Self())
		}
		w.net.Partition(part)
		return
	}
	var groups [2][]*streamnet.Host
	there := make(map[*machine]bool)
	for _, p := range some {
		there[p.at] = true
	}
	for _, s := range w.slots {
		m, group := w.machineOf(s.name()), 0
		if there[m] {
			group = 1
		}
		groups[group] = append(groups[group], m.Host)
	}
	w.streams.Partition(groups[:]...)
}

// heal ends all cuts of the network.
func (w *World) heal() {
	w.net.Heal()
	if w.nats != nil {
		w.nats.Heal()
	}
	for _, from := range w.machines {
		for _, to := range w.machines {
			if from != to {
				w.streams.Mend(from.Host, to.Host)
			}
		}
	}
}

// apart cuts the machine of a process off from all others, in some directions, or ends that.
func (p *process) apart(out, in bool) {
	for _, m := range p.w.machines {
		if m == p.at {
			continue
		}
		p.w.streams.Mend(p.at.Host, m.Host)
		p.w.streams.Mend(m.Host, p.at.Host)
		if out {
			p.w.streams.Cut(p.at.Host, m.Host)
		}
		if in {
			p.w.streams.Cut(m.Host, p.at.Host)
		}
	}
}

// crash ends the sockets of a process: either the process ends, which its system tells the others, or its machine.
func (p *process) crash() {
	switch {
	case p.way != nil && p.powerOff:
		p.way.PowerOff()
	case p.way != nil:
		p.way.Kill()
	}
	if p.socket == nil {
		return
	}
	p.socket.Kill()
	if p.powerOff {
		p.at.off = true
		p.at.PowerOff()
	}
}

// streamFaults are those of TCP.
func (w *World) streamFaults(on func(string, int, func())) {
	pair := func(do func(from, to *process)) func() {
		return func() {
			from := w.some()
			all := w.all()
			if from == nil {
				return
			}
			if to := all[w.Luck.IntN(len(all))]; to.at != nil && to.at != from.now.at {
				do(from.now, to)
			}
		}
	}
	on("connections are reset", 3, pair(func(from, to *process) {
		w.streams.Reset(from.at.Host, to.at.Host, w.Luck.IntN(2000))
		w.streams.Reset(to.at.Host, from.at.Host, w.Luck.IntN(2000))
	}))
	on("a way is stalled", 2, pair(func(from, to *process) {
		w.streams.Stall(from.at.Host, to.at.Host, w.UpTo(leaseOf))
	}))
	on("a way is cut for a while", 2, pair(func(from, to *process) {
		w.streams.Cut(from.at.Host, to.at.Host)
		w.forAWhile(leaseOf*5/2, func() { w.streams.Mend(from.at.Host, to.at.Host) })
	}))
	on("a machine is cut off", 2, pair(func(from, _ *process) {
		from.apart(true, true)
		w.forAWhile(leaseOf*5/2, func() { from.apart(false, false) })
	}))
}

// drawPath draws how the bytes of TCP travel.
func drawPath(s *storm.Storm) (p streamnet.Path) {
	delays := []time.Duration{0, time.Millisecond, 20 * time.Millisecond, leaseOf / 100}
	p.MaxDelay = delays[s.Luck.IntN(len(delays))]
	p.Segment = []int{0, 50, 1400}[s.Luck.IntN(3)]
	return p
}
