// Package run runs a command under a lock, which is one record in a store or one of a group's.
package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/store/storelock"
)

// Cmd is dmutex run.
type Cmd struct {
	Store    *tool.Place   `env:"DMUTEX_STORE" placeholder:"URL" help:"Where the records of locks are: a directory or file:///directory, for processes of one machine, nats://HOST:PORT/BUCKET, or postgres://USER@HOST/DATABASE."`
	At       []string      `env:"DMUTEX_AT" placeholder:"HOST:PORT,..." help:"Where members of a group serve clients, or nats://HOST:PORT/NAME, instead of --store: the lock is one of the group's."`
	Lock     string        `required:"" placeholder:"NAME" help:"The lock's name."`
	Nonblock bool          `short:"n" xor:"wait" env:"DMUTEX_NONBLOCK" help:"Do not wait: if the lock is taken, run nothing."`
	Wait     float64       `short:"w" xor:"wait" env:"DMUTEX_WAIT" least:"0" most:"9e9" unit:" seconds" placeholder:"SECONDS" help:"Wait no longer than this, then run nothing."`
	Code     int           `short:"E" name:"conflict-exit-code" env:"DMUTEX_CONFLICT_EXIT_CODE" default:"125" least:"0" most:"255" placeholder:"CODE" help:"The exit status if --nonblock or --wait run nothing."`
	Lease    time.Duration `env:"DMUTEX_LEASE" default:"10s" least:"100ms" most:"1h" help:"How long the lock is held after the store has last confirmed it."`
	tool.TLS
	Grace   time.Duration `env:"DMUTEX_GRACE" default:"10s" least:"0s" help:"Time between SIGTERM and SIGKILL when a command has to end."`
	Command []string      `arg:"" passthrough:"" help:"The command and its arguments, after --."`
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
	return `This is flock(1) across processes and machines: it waits for the lock, runs the command, and releases the lock. ` +
		`With --store the lock is one record in a store, and waiting processes are served in no order. With --at it is a lock of a group, which serves them in theirs.

--store=DIRECTORY is for the processes of one machine, and is created if it does not exist. --store=nats://HOST:PORT/BUCKET is for any machines, and the bucket is created if it does not exist. --store=postgres://USER@HOST/DATABASE is, too, and the table dmutex_groups is created; give the password in PGPASSWORD. ` +
		`For etcd and other databases, write a program with package storelock, and etcdstore or sqlstore.

--at=HOST:PORT,HOST:PORT names some or all members of a group that serves clients, and --at=nats://HOST:PORT/NAME the group of that name which does so over NATS: see dmutex serve. This process is a client, and no member. --lease has no meaning then: what is said here of the lease is true of the session, whose length the members set.

If the machine crashes, the next process gets the lock after --lease. With NATS or PostgreSQL it must have waited for longer than that: with --nonblock, or a --wait that is shorter, ` +
		`no process ever gets the lock of a dead one, however often it is run. Such a run says so; with a lease of 10s, give --wait 11. If dmutex run is killed by SIGKILL: with a directory on a local disk of a Unix system the ` +
		`command goes on and keeps the lock, as with flock, until it and all processes that have its file descriptor 3 have ended; then the next one gets it at once. With NATS, PostgreSQL or --at, ` +
		`on Linux, the command is killed with it (not the processes that the command has started), and the next one gets the lock after --lease. Elsewhere the command goes on, and only a check of DMUTEX_FENCE protects what it writes to.

If the store or the member does not answer for a lease, the lock is lost. The command gets SIGTERM when a sixteenth of the lease is left, and SIGKILL after --grace: ` +
		`with a --grace below a sixteenth of the lease, before another machine gets the lock. ` +
		`If dmutex run itself is paused for a lease, the lock is lost too, but the command ends only when dmutex run goes on.

The command runs in a process group of its own, which gets every SIGINT, SIGTERM, SIGHUP and SIGQUIT that dmutex run gets. When the command ` +
		`ends, the processes that it leaves behind in that group get SIGTERM, and after --grace SIGKILL. The lock is released when none is left. ` +
		`(Processes that create a group or session of their own are not seen.) If the lock is lost meanwhile, the whole group ` +
		`is ended in the same way. A signal that arrives before the lock is acquired ends the wait: the command does not run.

The command has the standard input, output and error of dmutex run. If the input is a terminal, the command reads nothing instead, because it runs in ` +
		`the terminal's background.

The command's environment has DMUTEX_LOCK and DMUTEX_FENCE: a number that rises with every grant. ` +
		`Store it with what the command writes, and refuse lower ones; then a command that was paused for too long does no harm.

Exit status: the command's, or 128+N if signal N has ended it, or has come before the lock; 124 if the lock was lost while the ` +
		`command ran; 125, or the --conflict-exit-code, if the lock was not free in time; 125 if the command line is wrong, or if the lock cannot be taken; 126 if the command cannot be ` +
		`executed; 127 if it was not found.`
}

// Validate refuses what cannot be a lock.
func (c *Cmd) Validate() error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	switch {
	case (c.Store == nil) == (len(c.At) == 0):
		return errors.New("give either --store=URL or --at=HOST:PORT (or DMUTEX_STORE, DMUTEX_AT)")
	case c.Lock == "":
		return errors.New("give --lock=NAME")
	case c.Store != nil && len(recordName(c.Lock)) > maxRecordName:
		return fmt.Errorf("--lock=%s: the name of a lock has at most %d letters and digits, or fewer of other characters", c.Lock, maxRecordName)
	case c.Store != nil && c.Store.Servers != "" && tool.NATS == nil:
		return fmt.Errorf("--store: %w", tool.ErrNoNATS)
	case c.Store != nil && c.Store.Database != "" && tool.PostgreSQL == nil:
		return fmt.Errorf("--store: %w", tool.ErrNoPostgreSQL)
	case c.Store != nil && c.Store.Servers == "" && c.Cert != "":
		return errors.New("--cert, --key and --authority are for NATS and --at, not for a directory or a database")
	case len(c.Command) == 0:
		return errors.New("give a command, after --")
	}
	return nil
}

// lock opens the lock. stop closes the connection to its store or its group.
func (c *Cmd) lock() (mutex lock.Mutex, stop func(), err error) {
	if c.Store == nil {
		cfg, leave, err := c.group()
		if err != nil {
			return nil, nil, err
		}
		members, err := client.New(cfg)
		if err != nil {
			leave()
			return nil, nil, err
		}
		return members.Mutex(c.Lock), func() { _ = members.Close(); leave() }, nil
	}
	s, stop, err := c.open()
	if err != nil {
		return nil, nil, err
	}
	mutex, err = storelock.New(s, c.Lock, c.Lease)
	return mutex, stop, err
}

// group says where the members of the group are. leave closes the connection to NATS.
func (c *Cmd) group() (cfg client.Config, leave func(), err error) {
	at := strings.Join(c.At, ",")
	if !strings.Contains(at, "://") {
		security, err := c.Config()
		return client.Config{Members: c.At, TLS: security}, func() {}, err
	}
	var p tool.Place
	switch err := p.UnmarshalText([]byte(at)); {
	case err != nil:
		return cfg, nil, fmt.Errorf("--at: %w", err)
	case p.Name == "":
		return cfg, nil, errors.New("--at: give HOST:PORT or nats://HOST:PORT/NAME, not a store")
	case tool.NATS == nil:
		return cfg, nil, fmt.Errorf("--at: %w", tool.ErrNoNATS)
	}
	return tool.NATS.Visit(p.Servers, p.Name, "dmutex run "+c.Lock, c.TLS)
}

const maxRecordName = 200

// recordName returns the name of the record of a lock, which every store takes: the letters, digits,
// - and _ of the lock's name, and =XX for all other bytes.
func recordName(lock string) string {
	var b strings.Builder
	for _, c := range []byte(lock) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

func (c *Cmd) open() (s store.Store, stop func(), err error) {
	switch {
	case c.Store.Database != "":
		return tool.PostgreSQL(c.Store.Database, recordName(c.Lock))
	case c.Store.Path == "":
		return tool.NATS.Open(c.Store.Servers, c.Store.Name, recordName(c.Lock), "dmutex run "+c.Lock, c.TLS)
	}
	if err := os.Mkdir(c.Store.Path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, err
	}
	s, err = filestore.Open(filepath.Join(c.Store.Path, recordName(c.Lock)))
	return s, func() {}, err
}
