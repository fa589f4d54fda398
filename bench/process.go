package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// Servers and peers run in processes of their own, as where they are deployed. Each
// is this program again, with the one argument serveArg. It reads its part as a line
// of JSON, answers with a line that has its address, and lives until its standard
// input ends, so it does not outlive the process that started it.
const serveArg = "serve"

// A part is what another process does.
type part struct {
	Kind    string
	Profile string // file for a CPU profile, or ""
	Dir     string // of a NATS server

	NATS string // URL of the server that carries the messages, "" for TCP

	// Of a member of a group:
	Algorithm string
	Self      dmutex.NodeID
	Peers     []string // addresses of the members; those that dial us have none yet
	Prefix    string   // of the subjects, over NATS
}

const (
	partBare   = "bare" // the bare coordinator
	partEcho   = "echo" // sends frames back
	partNATS   = "NATS"
	partMember = "member"
)

var algorithms = map[string]dmutex.Algorithm{
	"central":         central.New,
	"ricart":          ricart.New,
	"ricart.Carvalho": ricart.Carvalho,
	"ring":            ring.New,
	"suzukikasami":    suzukikasami.New,
}

// A process is a part that runs.
type process struct {
	address string
	in      io.Writer
	out     *bufio.Reader
}

// launch runs a part until the end.
func (e *env) launch(p part) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if e.profile != "" {
		e.profiles++
		p.Profile = fmt.Sprintf("%s.%d", e.profile, e.profiles)
	}
	command := exec.Command(self, serveArg)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	e.defers(func() {
		in.Close()
		_ = command.Wait() // what went wrong is on its standard error
	})
	started := &process{in: in, out: bufio.NewReader(out)}
	if err := json.NewEncoder(in).Encode(p); err != nil {
		return nil, err
	}
	line, err := started.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the process of the %s has ended", p.Kind)
	}
	started.address = line[:len(line)-1]
	return started, nil
}

// serve is the program in such a process. For each byte that it reads it locks and
// unlocks once, and answers with the time at which it got the lock.
func serve(in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // the end of the input is ours
	runtime.GOMAXPROCS(1)
	r := bufio.NewReader(in)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	var p part
	if err := json.Unmarshal(line, &p); err != nil {
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
	if _, err := fmt.Fprintln(out, address); err != nil {
		return err
	}
	for {
		if _, err := r.ReadByte(); err != nil {
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
		if err := binary.Write(out, binary.BigEndian, at.UnixNano()); err != nil {
			return err
		}
	}
}

// rivalry is the lock that a member in another process locks when it is told to.
const rivalry = "rivalry"

// begin lets the part begin, and returns its address; of a member also the client.
func (p part) begin(e *env) (client, string, error) {
	switch p.Kind {
	case partBare:
		c, err := newCoordinator()
		if err != nil {
			return nil, "", err
		}
		return nil, c.listener.Addr().String(), nil
	case partEcho:
		if p.NATS == "" {
			address, err := echo()
			return nil, address, err
		}
		nc, err := e.connect()
		if err != nil {
			return nil, "", err
		}
		return nil, "", echoNATS(nc)
	case partNATS:
		url, err := serveNATS(p.Dir)
		return nil, url, err
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
	n, err = node.Open(e.ctx, node.Config{Self: p.Self, Members: members, Algorithm: algorithms[p.Algorithm], Link: link})
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
