package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/child"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// Servers and peers run in processes of their own, as in a deployment. Each process
// is this program again, with the one argument serveArg. Its first order is its part, and
// its first report is its address.
const serveArg = "serve"

// A part is what another process does.
type part struct {
	Kind    string
	Profile string // file for a CPU profile, or ""
	Dir     string // of a NATS server, or the record of a served group

	NATS     string   // URL of the server that carries the messages, "" for TCP
	Subjects []string // of an echo over NATS: where it answers, and where it passes requests on

	// Of a member of a group:
	Algorithm string
	Self      dmutex.NodeID
	Peers     []string // addresses of the members; those that dial us have none yet. Of a relay, the echo's
	Prefix    string   // of the subjects, over NATS
}

const (
	partBare    = "bare"  // the bare coordinator
	partEcho    = "echo"  // sends frames back
	partRelay   = "relay" // passes frames on to an echo, and back
	partNATS    = "NATS"
	partMember  = "member"
	partServing = "serving" // a member that serves clients
)

var algorithms = map[string]dmutex.Algorithm{
	"central":         central.At(1),
	"central, homes":  central.New,
	"ricart":          ricart.New,
	"ricart.Carvalho": ricart.Carvalho,
	"ring":            ring.New,
	"suzukikasami":    suzukikasami.New,
}

// A process is a part that runs.
type process struct {
	*child.Process
	address string
}

// launch runs a part in another process until the end of the run.
func (e *env) launch(p part) (*process, error) {
	if e.profile != "" {
		e.profiles++
		p.Profile = fmt.Sprintf("%s.%d", e.profile, e.profiles)
	}
	c, err := child.Start(serveArg)
	if err != nil {
		return nil, err
	}
	e.defers(func() {
		if err := c.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", p.Kind, err)
		}
	})
	started := &process{Process: c}
	if err := c.Tell(p); err != nil {
		return nil, err
	}
	return started, c.Hear(&started.address)
}

// serve is the program in such a process. For each further order it locks and unlocks
// once, and reports when it got the lock, in nanoseconds of the clock.
func serve(in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // this process ends with its input
	runtime.GOMAXPROCS(1)
	orders, reports := json.NewDecoder(in), json.NewEncoder(out)
	var p part
	if err := orders.Decode(&p); err != nil {
		return err
	}
	if p.Profile != "" {
		stop, err := startProfile(p.Profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	e := &env{ctx: context.Background(), natsAt: p.NATS}
	defer e.close()
	lock, address, err := p.begin(e)
	if err != nil {
		return err
	}
	if err := reports.Encode(address); err != nil {
		return err
	}
	for {
		var again bool
		if err := orders.Decode(&again); err != nil {
			return nil
		}
		release, err := lock(e.ctx, rivalry)
		if err != nil {
			return err
		}
		at := time.Now()
		if err := release(); err != nil {
			return err
		}
		if err := reports.Encode(at.UnixNano()); err != nil {
			return err
		}
	}
}

// rivalry is the lock that a member in another process locks on an order.
const rivalry = "rivalry"

// begin starts the part, and returns its address. A member is also returned as a client.
func (p part) begin(e *env) (client, string, error) {
	switch p.Kind {
	case partBare:
		address, err := coordinate()
		return nil, address, err
	case partEcho:
		if p.NATS == "" {
			address, err := echo()
			return nil, address, err
		}
		nc, err := e.connect()
		if err != nil {
			return nil, "", err
		}
		return nil, "", echoNATS(nc, p.Subjects)
	case partRelay:
		address, err := relay(p.Peers[0])
		return nil, address, err
	case partNATS:
		url, err := serveNATS(p.Dir)
		return nil, url, err
	case partServing:
		n, address, err := p.openServing(e)
		return member(n), address, err
	default:
		n, address, err := p.open(e)
		return member(n), address, err
	}
}

func serveNATS(dir string) (url string, err error) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir,
	})
	if err != nil {
		return "", err
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		return "", errors.New("the NATS server does not start")
	}
	return s.ClientURL(), nil
}

// open opens a member in this process.
func (p part) open(e *env) (n *node.Node, address string, err error) {
	var link transport.Link
	members, book := make([]dmutex.NodeID, len(p.Peers)), make(map[dmutex.NodeID]string)
	for i, peer := range p.Peers {
		members[i] = dmutex.NodeID(i + 1)
		book[members[i]] = peer
	}
	if p.NATS != "" {
		nc, err := e.connect()
		if err != nil {
			return nil, "", err
		}
		if link, err = natslink.New(nc, natslink.Config{Self: p.Self, Prefix: p.Prefix}); err != nil {
			return nil, "", err
		}
	} else {
		l, err := tcplink.New(tcplink.Config{Self: p.Self, Listen: "127.0.0.1:0", Peers: book})
		if err != nil {
			return nil, "", err
		}
		link, address = l, l.Addr().String()
	}
	n, err = node.OpenStrict(e.ctx, p.Self, members, link, node.Config{Algorithm: algorithms[p.Algorithm]})
	return n, address, err
}

func startProfile(file string) (stop func(), err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}
