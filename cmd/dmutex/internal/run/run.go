// Package run runs a command under a lock, on one machine of a group at a time. The
// machines are a fixed list (list.go), or those in the record of a store (store.go).
package run

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
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
	Store     *record       `env:"DMUTEX_STORE" placeholder:"URL" help:"Meet by this record, which lists the machines: a path or file:///path, for processes of one machine, or nats://HOST:PORT/BUCKET/KEY."`
	Lease     time.Duration `env:"DMUTEX_LEASE" placeholder:"10s" help:"With --store: how long a machine may hold the lock after the store has last confirmed that it is a member; 10s if not given. The same for all that use the record."`
	Self      dmutex.NodeID `env:"DMUTEX_SELF" placeholder:"N" help:"Without --store: the number of this machine, one of the members."`
	Member    []member      `env:"DMUTEX_MEMBER" placeholder:"N=HOST:PORT" help:"Without --store: a machine of the group, and where it listens; with --nats only its number. Once for each machine, this one included, and the same on all of them."`
	Listen    string        `env:"DMUTEX_LISTEN" placeholder:"HOST:PORT" help:"Where this machine listens: with --store=FILE, 127.0.0.1:0 if not given; with --member, if the others reach it at another address."`
	Advertise string        `env:"DMUTEX_ADVERTISE" placeholder:"HOST:PORT" help:"With --store=FILE: where the others reach this machine, if not at --listen."`
	Cert      string        `env:"DMUTEX_CERT" and:"tls" xor:"trust" placeholder:"FILE" help:"This machine's certificate, PEM. Over TCP it names URI:dmutex:node:N, or with --store the host that the others dial; see the documentation of transport/tcplink."`
	Key       string        `env:"DMUTEX_KEY" and:"tls" placeholder:"FILE" help:"The certificate's key, PEM."`
	Authority string        `env:"DMUTEX_AUTHORITY" and:"tls" placeholder:"FILE" help:"The authority that signed the certificates of all machines, PEM."`
	Plain     bool          `env:"DMUTEX_PLAIN" xor:"trust" help:"Use no TLS, even beyond the loopback interface: every process that reaches the addresses is trusted."`
	NATS      string        `env:"DMUTEX_NATS" name:"nats" and:"nats" placeholder:"URL" help:"Without --store: meet over this NATS server instead of over TCP."`
	Prefix    string        `env:"DMUTEX_PREFIX" and:"nats" placeholder:"SUBJECT" help:"With --nats: what the subjects begin with, different for each group that uses the server."`
	Lock      string        `default:"run" placeholder:"NAME" help:"The lock's name. A record serves any number of locks. Machines of a list that give different names do not meet."`
	Fence     uint64        `placeholder:"N" help:"Fences will be higher than this. Needed only if a machine's clock was set back; the highest given counts, and one that is more than a day ahead must be given to all."`
	Grace     time.Duration `env:"DMUTEX_GRACE" default:"10s" help:"Time between SIGTERM and SIGKILL when a command has to end."`
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
	return `With --store, dmutex run is a flock(1) across processes and machines: it joins the group that a record lists, waits for the lock, runs the command, and leaves. ` +
		`Nobody configures who the others are, processes come and go, and the lock of one that crashes comes free. ` +
		`With --self and --member the machines are a fixed list, and a machine that crashed is waited for.

--store=FILE is for the processes of one machine, which meet over TCP. --store=nats://HOST:PORT/BUCKET/KEY is for any machines, which meet over NATS, in the subjects ` +
		`dmutex.BUCKET.KEY.>; create the bucket with nats kv add BUCKET --storage=file --replicas=3. One record serves any number of --lock names. ` +
		`This tool has no drivers for PostgreSQL and etcd: for those, write a program with package node, and sqlstore or etcdstore.

The first dmutex run on a new record waits for one lease, because there may have been another record, with members who still hold locks. ` +
		`Later ones do not wait, if those before them have left, as dmutex run does at its end. ` +
		`If dmutex run is killed by SIGKILL, or its machine crashes, the next one gets the lock after about one and a half leases. After SIGKILL the ` +
		`command goes on, and may still run then: only a check of DMUTEX_FENCE protects what it writes to.

If the store does not answer for a lease, the lock is lost. The command gets SIGTERM when a sixteenth of the lease is left, and SIGKILL after --grace: ` +
		`with a --grace below a sixteenth of the lease, before another machine gets the lock. ` +
		`If dmutex run itself is paused for a lease, the lock is lost too, but the command ends only when dmutex run goes on.

With --self and --member, start it on each machine of the list. When all have met, the command runs on each of them, one at a time, in the ` +
		`order in which they asked. A machine leaves the group when its command has ended, and the others go on. ` +
		`The group waits for a machine that has crashed or was never started, because a crash cannot be told from a slow machine: start dmutex run there again. ` +
		`The machine rejoins, the lock that it held is free, and it runs the command, even if it had run it before. Machines that have had their turn wait for it, too, ` +
		`before they leave; a signal cuts that short. If all others have left, the machine waits until dmutex run is started on ` +
		`them again. A second dmutex run with the same number runs nothing while the first is alive. If dmutex run is killed by SIGKILL, the command goes on, and no other ` +
		`machine gets the lock until dmutex run is started there again: make sure first that the command has ended.

The command runs in a process group of its own, which gets every SIGINT, SIGTERM, SIGHUP and SIGQUIT that dmutex run gets. When the command ` +
		`ends, the processes that it leaves behind in that group get SIGTERM, and after --grace SIGKILL. The lock is released when none is left. ` +
		`(Processes that create a group or session of their own are not seen.) If the lock is lost meanwhile, the whole group ` +
		`is ended in the same way.

A signal that arrives before the lock is acquired ends the wait: the command does not run, and this machine leaves. A signal while it leaves ` +
		`ends it at once; if the group has not agreed on its leaving by then, the others wait until it is started again, or with --store for about one and a half leases.

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
	check := c.checkList
	if c.Store != nil {
		check = c.checkStore
	}
	switch err := check(); {
	case err != nil:
		return err
	case c.Lock == "" || len(c.Lock) > transport.MaxName:
		return fmt.Errorf("--lock=%s: the name of a lock has 1 to %d bytes", c.Lock, transport.MaxName)
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

// connect makes the meeting of the command line.
func (c *Cmd) connect(log *slog.Logger) (*tool.Meeting, error) {
	if c.Store != nil {
		return c.connectStore(log)
	}
	return c.connectList(log)
}

// overTCP makes a meeting over TCP of what the config does not say yet.
func (c *Cmd) overTCP(config tcplink.Config, log *slog.Logger) (m *tool.Meeting, err error) {
	config.AllowPlain, config.Logger = c.Plain, log
	if c.Cert != "" {
		if config.TLS, err = c.tls(); err != nil {
			return nil, err
		}
	}
	m, err = tool.MeetOverTCP(config)
	if errors.Is(err, dmutex.ErrMisuse) {
		err = fmt.Errorf("%w (Config.TLS is --cert, --key and --authority, Config.AllowPlain is --plain, Config.Listen and Config.Advertise are --listen and --advertise)", err)
	}
	return m, err
}

// overNATS says how to connect to NATS.
func (c *Cmd) overNATS(url, prefix string, log *slog.Logger) tool.BrokerConfig {
	config := tool.BrokerConfig{
		URL: url, Name: "dmutex run", Self: c.Self, Prefix: prefix,
		Cert: c.Cert, Key: c.Key, Authority: c.Authority, Logger: log,
	}
	if c.Self != dmutex.None {
		config.Name += fmt.Sprintf(", node %d", c.Self)
	}
	return config
}

// config is that of the node that takes part in the group.
func (c *Cmd) config(m *tool.Meeting, log *slog.Logger) node.Config {
	config := node.Config{
		Self:      c.Self,
		Members:   c.members(),
		Algorithm: central.New,
		Link:      m.Link,
		Group:     "dmutex run " + c.Lock, // so that machines with different locks do not meet, instead of both getting in
		Logger:    log,
		Fence:     c.Fence,
	}
	if m.Store != nil {
		config.Store, config.Lease, config.Group = m.Store, c.lease(), "dmutex run"
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
