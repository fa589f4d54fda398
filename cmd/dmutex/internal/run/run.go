// Package run runs a command on every machine of a group, one at a time.
package run

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// Cmd is dmutex run.
type Cmd struct {
	Self      dmutex.NodeID `required:"" placeholder:"N" help:"The number of this machine, one of the members."`
	Member    []member      `required:"" placeholder:"N=HOST:PORT" help:"A machine of the group, and where it listens; with --nats only its number. Once for each machine, this one included, and the same on all of them."`
	Listen    string        `placeholder:"HOST:PORT" help:"Where this machine listens, if the others reach it at another address."`
	Cert      string        `and:"tls" xor:"trust" placeholder:"FILE" help:"This machine's certificate, PEM. Over TCP it names URI:dmutex:node:N; see the documentation of transport/tcplink."`
	Key       string        `and:"tls" placeholder:"FILE" help:"The certificate's key, PEM."`
	Authority string        `and:"tls" placeholder:"FILE" help:"The authority that signed the certificates of all machines, PEM."`
	Plain     bool          `xor:"trust" help:"Use no TLS, even beyond the loopback interface: every process that reaches the addresses is trusted."`
	NATS      string        `name:"nats" and:"nats" placeholder:"URL" help:"Meet over this NATS server instead of over TCP."`
	Prefix    string        `and:"nats" placeholder:"SUBJECT" help:"What the subjects begin with: different for each group that uses the server."`
	Lock      string        `default:"run" placeholder:"NAME" help:"The lock's name. Machines that give different names do not meet."`
	Fence     uint64        `placeholder:"N" help:"Fences will be higher than this. Needed only if a machine's clock was set back; the highest given counts."`
	Grace     time.Duration `default:"10s" help:"Time between SIGTERM and SIGKILL when a command has to end."`
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

// UsageStatus is the exit status of a wrong command line: 2 may be that of the
// command.
func (*Cmd) UsageStatus() int { return statusNoLock }

// Help is the text of run --help.
func (Cmd) Help() string {
	return `Start it on each machine of the group. When all have met, the command runs on each of them, one at a time, in the ` +
		`order in which they asked. A machine leaves the group when its command has ended, and the others go on.

The group waits for a machine that has crashed or was never started, because a crash cannot be told from a slow machine: start dmutex run there again. ` +
		`The machine rejoins, the lock that it held is free, and it runs the command, even if it had run it before. Machines that have had their turn wait for it, too, ` +
		`before they leave; a signal cuts that short. If all others have left, the machine waits until dmutex run is started on ` +
		`them again. A second dmutex run with the same number runs nothing while the first is alive.

The command runs in a process group of its own, which gets every SIGINT, SIGTERM, SIGHUP and SIGQUIT that dmutex run gets. When the command ` +
		`ends, the processes that it leaves behind in that group get SIGTERM, and after --grace SIGKILL. The lock is released when none is left. ` +
		`(Processes that create a group or session of their own are not seen.) If the lock is lost meanwhile, the whole group ` +
		`is ended in the same way. If dmutex run itself is killed by SIGKILL, the command goes on, and no other machine gets the lock ` +
		`until dmutex run is started there again: make sure first that the command has ended.

A signal that arrives before the lock is acquired ends the wait: the command does not run, and this machine leaves. A signal while it leaves ` +
		`ends it at once; if the group has not agreed on its leaving by then, the others wait until it is started again.

The command has the standard input, output and error of dmutex run. If the input is a terminal, the command reads nothing instead, because it runs in ` +
		`the terminal's background.

The command's environment has DMUTEX_LOCK, DMUTEX_NODE, and DMUTEX_FENCE: a number that rises with every grant, even from one run of the group to the ` +
		`next. Store it with what the command writes, and refuse lower ones; then a command that was paused for too long does no harm. ` +
		`Fences follow the machines' clocks: if these were set back, give --fence the highest fence that was stored.

Exit status: the command's, or 128+N if signal N has ended it, or has come before the lock; 124 if the lock was lost while the ` +
		`command ran; 125 if the command line is wrong, or if this machine did not get the lock and nothing was run; 126 if the command cannot be ` +
		`executed; 127 if it was not found.`
}

// Validate refuses what cannot be a group.
func (c *Cmd) Validate() error {
	seen := make(map[dmutex.NodeID]bool)
	for _, m := range c.Member {
		switch {
		case m.address == "" && c.NATS == "":
			return fmt.Errorf("--member=%v: give its address, as in %v=HOST:PORT", m.id, m.id)
		case m.address != "" && c.NATS != "":
			return fmt.Errorf("--member=%v=%s: over NATS a member has no address", m.id, m.address)
		case seen[m.id]:
			return fmt.Errorf("--member=%v is given twice", m.id)
		}
		seen[m.id] = true
	}
	switch {
	case c.NATS != "" && tool.NATS == nil:
		return fmt.Errorf("--nats=%s: %w", c.NATS, tool.ErrNoNATS)
	case c.Self != dmutex.None && len(c.Member) > 0 && !seen[c.Self]: // otherwise the error is that they are missing
		return fmt.Errorf("--self=%v is not one of the members", c.Self)
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
func (c *Cmd) command() []string {
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
		return fmt.Errorf("%q is not a member: give a number from 1 on, and over TCP its address, as in 2=HOST:PORT", text)
	}
	*m = member{dmutex.NodeID(id), address}
	return nil
}

// members are the numbers of all machines.
func (c *Cmd) members() (ids []dmutex.NodeID) {
	for _, m := range c.Member {
		ids = append(ids, m.id)
	}
	return ids
}

// connect makes the link to the other machines, and returns how to close it.
func (c *Cmd) connect(log *slog.Logger) (transport.Link, func(), error) {
	if c.NATS != "" {
		return tool.NATS.Connect(tool.BrokerConfig{
			URL: c.NATS, Name: fmt.Sprintf("dmutex run, node %d", c.Self), Self: c.Self, Prefix: c.Prefix,
			Cert: c.Cert, Key: c.Key, Authority: c.Authority, Logger: log,
		})
	}
	config := tcplink.Config{Self: c.Self, Listen: c.Listen, AllowPlain: c.Plain, Logger: log, Peers: make(map[dmutex.NodeID]string)}
	for _, m := range c.Member {
		config.Peers[m.id] = m.address
	}
	if c.Cert != "" {
		var err error
		if config.TLS, err = c.tls(); err != nil {
			return nil, nil, err
		}
	}
	link, err := tcplink.New(config)
	if errors.Is(err, dmutex.ErrMisuse) {
		err = fmt.Errorf("%w (Config.TLS is --cert, --key and --authority, Config.AllowPlain is --plain)", err)
	}
	if err != nil {
		return nil, nil, err
	}
	return link, func() { _ = link.Close() }, nil // the node may have closed it
}

// config is that of the node that takes part in the group.
func (c *Cmd) config(link transport.Link, log *slog.Logger) node.Config {
	config := node.Config{
		Self:      c.Self,
		Members:   c.members(),
		Algorithm: central.New,
		Link:      link,
		Group:     "dmutex run " + c.Lock, // so that machines with different locks do not meet, instead of both getting in
		Logger:    log,
	}
	if c.Fence != 0 {
		config.Fence = dmutex.NextEpoch(c.Fence) // also above grants whose fence was not stored
	}
	return config
}

func (c *Cmd) tls() (*tls.Config, error) {
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
		return nil, fmt.Errorf("%s contains no certificate", c.Authority)
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: roots}, nil
}
