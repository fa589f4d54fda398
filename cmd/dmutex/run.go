package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// runCmd runs a command on every machine of a group, one at a time.
type runCmd struct {
	Self      dmutex.NodeID `required:"" placeholder:"N" help:"The number of this machine, one of the members."`
	Member    []member      `required:"" placeholder:"N=HOST:PORT" help:"A machine of the group, and where it listens; with --nats its number alone. Once for each, this one among them: the same at all of them."`
	Listen    string        `placeholder:"HOST:PORT" help:"Where this machine listens, if that is not how the others reach it."`
	Cert      string        `and:"tls" xor:"trust" placeholder:"FILE" help:"This machine's certificate, PEM. Over TCP it names URI:dmutex:node:N; see the documentation of transport/tcplink."`
	Key       string        `and:"tls" placeholder:"FILE" help:"The certificate's key, PEM."`
	Authority string        `and:"tls" placeholder:"FILE" help:"Whose certificates are believed, PEM."`
	Plain     bool          `xor:"trust" help:"No TLS, beyond the loopback interface too: whoever reaches the addresses is trusted."`
	NATS      string        `name:"nats" and:"nats" placeholder:"URL" help:"Meet over this NATS server instead of over TCP."`
	Prefix    string        `and:"nats" placeholder:"SUBJECT" help:"What the subjects begin with: another for each group that uses the server."`
	Lock      string        `default:"run" placeholder:"NAME" help:"The lock's name; whoever gives another one is not met."`
	Fence     uint64        `placeholder:"N" help:"Fences will be higher than this. The same at all machines; without it each run of the group counts from 1 again."`
	Grace     time.Duration `default:"10s" help:"Time between SIGTERM and SIGKILL, where a command has to end."`
	Command   []string      `arg:"" passthrough:"" help:"The command and its arguments, after --."`
}

// The exit statuses of run that are not its command's. They are those of
// timeout, env and nohup.
const (
	statusLost          = 124
	statusNoLock        = 125
	statusNotExecutable = 126
	statusNotFound      = 127
	statusSignal        = 128 // and the signal's number
)

// A commandStatus is the result of a run whose exit status is not ours to
// choose. What there is to say has been said.
type commandStatus int

func (s commandStatus) Error() string { return "exit status " + strconv.Itoa(int(s)) }

// Help is the text of run --help.
func (runCmd) Help() string {
	return `Start it once on each machine of the group. When all have met, the command runs on each of them, one at a time, in the ` +
		`order in which they asked. The machine with the lowest number grants the lock and stays until all others have left. A ` +
		`machine that crashes, or never comes, leaves the others waiting, for nobody can tell that it is not slow. One that comes ` +
		`a second time, once all had met, ends the run of those that wait.

The command runs in a process group of its own. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to all of it. What the command ` +
		`leaves behind there when it ends gets SIGTERM, and after --grace SIGKILL, and the lock is released when nothing is left. ` +
		`(A process that makes itself a group or a session of its own is not seen.) If the lock is lost meanwhile, the whole group ` +
		`is ended in the same way. Should dmutex run itself be killed by SIGKILL, then the command goes on, and nobody else is let ` +
		`in: see that it has ended before you start the group again.

A signal that comes before the lock ends the wait: nothing is run here, and this machine leaves when its turn has passed. A signal ` +
		`while it leaves makes it leave at once, and whoever still waits gets no lock.

The input, output and errors of the command are those of dmutex run, but a terminal is no input, since the command is in its ` +
		`background: it reads nothing then.

The command's environment has DMUTEX_LOCK, DMUTEX_NODE, and DMUTEX_FENCE: a number that rises with every grant. Let what is ` +
		`written keep it, and refuse lower ones, and a command that was paused for too long does no harm. For fences that also ` +
		`exceed those of yesterday give --fence, with room for a fence for each machine: --fence $(date +%Y%m%d)000.

Exit status: the command's, or 128+N if signal N has ended it, or has come before the lock; 124 if the lock was lost while the ` +
		`command ran; 125 if the command line is wrong, or the lock was not had, and nothing was run; 126 if the command cannot be ` +
		`executed; 127 if it was not found.`
}

// Validate refuses what cannot be a group.
func (c *runCmd) Validate() error {
	seen := make(map[dmutex.NodeID]bool)
	for _, m := range c.Member {
		switch {
		case m.address == "" && c.NATS == "":
			return fmt.Errorf("--member=%v: give its address, as in %v=HOST:PORT", m.id, m.id)
		case m.address != "" && c.NATS != "":
			return fmt.Errorf("--member=%v=%s: over NATS a member has no address", m.id, m.address)
		case seen[m.id]:
			return fmt.Errorf("--member=%v is there twice", m.id)
		}
		seen[m.id] = true
	}
	switch {
	case c.Self != dmutex.None && len(c.Member) > 0 && !seen[c.Self]: // else they are missing, which is told
		return fmt.Errorf("--self=%v is none of the members", c.Self)
	case c.NATS != "" && c.Listen != "":
		return errors.New("--listen is for TCP, not for --nats")
	case c.NATS != "" && c.Plain:
		return errors.New("--plain is for TCP, not for --nats")
	case c.Grace < 0:
		return fmt.Errorf("--grace=%v: choose 0s or more", c.Grace)
	case len(c.command()) == 0:
		return errors.New("give a command, after --")
	}
	return nil
}

// command is what to run, without the -- before it.
func (c *runCmd) command() []string {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		return c.Command[1:]
	}
	return c.Command
}

// A member is a machine of the group, and over TCP where it listens.
type member struct {
	id      dmutex.NodeID
	address string
}

// UnmarshalText reads N or N=HOST:PORT.
func (m *member) UnmarshalText(text []byte) error {
	number, address, _ := strings.Cut(string(text), "=")
	id, err := strconv.ParseUint(number, 10, 64)
	if err != nil || id == 0 {
		return fmt.Errorf("%q is no member: give a number from 1 on, and over TCP its address, as in 2=HOST:PORT", text)
	}
	*m = member{dmutex.NodeID(id), address}
	return nil
}

// members are the numbers of all machines.
func (c *runCmd) members() (ids []dmutex.NodeID) {
	for _, m := range c.Member {
		ids = append(ids, m.id)
	}
	return ids
}

// coordinator is who grants the lock, see central.New.
func (c *runCmd) coordinator() dmutex.NodeID { return slices.Min(c.members()) }

// connect makes the link to the other machines.
func (c *runCmd) connect(log *slog.Logger) (conn connection, err error) {
	if c.NATS != "" {
		options := []nats.Option{nats.Name(fmt.Sprintf("dmutex run, node %d", c.Self)), nats.MaxReconnects(-1)}
		if c.Cert != "" {
			options = append(options, nats.ClientCert(c.Cert, c.Key), nats.RootCAs(c.Authority))
		}
		if conn.nc, err = dialNATS(c.NATS, options...); err != nil {
			return conn, err
		}
		link, err := natslink.New(conn.nc, natslink.Config{Self: c.Self, Prefix: c.Prefix, Logger: log})
		if err == nil {
			conn.link = link
		}
		return conn, err
	}
	config := tcplink.Config{Self: c.Self, Listen: c.Listen, AllowPlain: c.Plain, Logger: log, Peers: make(map[dmutex.NodeID]string)}
	for _, m := range c.Member {
		config.Peers[m.id] = m.address
	}
	if c.Cert != "" {
		if config.TLS, err = c.tls(); err != nil {
			return conn, err
		}
	}
	if conn.tcp, err = tcplink.New(config); err != nil {
		if errors.Is(err, dmutex.ErrMisuse) {
			err = fmt.Errorf("%w (Config.TLS is --cert, --key and --authority, Config.AllowPlain is --plain)", err)
		}
		return conn, err
	}
	conn.link = conn.tcp
	return conn, nil
}

// config is of the node that takes part in the group.
func (c *runCmd) config(link transport.Link, log *slog.Logger) node.Config {
	return node.Config{
		Self:      c.Self,
		Members:   c.members(),
		Algorithm: central.New,
		Link:      link,
		Group:     "dmutex run " + c.Lock, // so that who gives another lock is not met, instead of being let in beside
		Fence:     c.Fence,
		Logger:    log,
	}
}

func (c *runCmd) tls() (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(c.Authority)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s has no certificate", c.Authority)
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: roots}, nil
}
