// Package run runs a command under a lock, which is one record in a store or one of a group's.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/lockrecord"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/semaphore"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/store/storelock"
)

// Cmd is dmutex run.
type Cmd struct {
	Store    *tool.Place   `xor:"place" env:"DMUTEX_STORE" placeholder:"URL" help:"Where the records of locks are: a directory or file:///directory, for processes of one machine, kube://NAMESPACE, s3://BUCKET/PREFIX, nats://HOST:PORT/BUCKET, postgres://USER@HOST/DATABASE, etcd://HOST:PORT/PREFIX, or redis://HOST:PORT/PREFIX."`
	At       []string      `xor:"place" env:"DMUTEX_AT" placeholder:"HOST:PORT,..." help:"Where members of a group serve clients, or nats://HOST:PORT/NAME, instead of --store: the lock is one of the group's."`
	Lock     string        `required:"" placeholder:"NAME" help:"The lock's name."`
	Permits  int           `env:"DMUTEX_PERMITS" default:"1" least:"1" most:"64" placeholder:"N" help:"Up to N may hold the lock at a time. The same in all runs."`
	Shared   bool          `env:"DMUTEX_SHARED" help:"Hold the lock together with other runs that share it, and with none that does not. With --at only."`
	Nonblock bool          `short:"n" xor:"wait" env:"DMUTEX_NONBLOCK" help:"Do not wait: if the lock is taken, run nothing."`
	Wait     *float64      `short:"w" xor:"wait" env:"DMUTEX_WAIT" least:"0" most:"9e9" unit:" seconds" placeholder:"SECONDS" help:"Wait no longer than this, then run nothing. 0 is --nonblock."`
	Code     int           `short:"E" name:"conflict-exit-code" env:"DMUTEX_CONFLICT_EXIT_CODE" default:"123" least:"0" most:"255" placeholder:"CODE" help:"The exit status if --nonblock or --wait run nothing because another holds the lock."`
	Lease    time.Duration `env:"DMUTEX_LEASE" default:"10s" least:"100ms" most:"1h" help:"How long the lock is held after the store has last confirmed it."`
	tool.Security
	Grace   time.Duration `env:"DMUTEX_GRACE" default:"10s" least:"0s" help:"Time between SIGTERM and SIGKILL when a command has to end."`
	Command []string      `arg:"" passthrough:"" help:"The command and its arguments, after --."`
}

// The exit statuses of run that are not its command's. All but the first are those of
// timeout, env and nohup.
const (
	statusBusy          = 123 // by default
	statusLost          = 124
	statusNoLock        = 125
	statusNotExecutable = 126
	statusNotFound      = 127
)

// UsageStatus is the exit status of a wrong command line: 2 may be that of the
// command.
func (*Cmd) UsageStatus() int { return statusNoLock }

// Help is the text of run --help.
func (Cmd) Help() string {
	return `This is flock(1) across processes and machines: it waits for the lock, runs the command, and releases the lock. ` +
		`With --store the lock is one record in a store, and waiting processes are served in no order, in a directory about in theirs. With --at it is a lock of a group, which serves them in theirs.

--store=DIRECTORY is for the processes of one machine, and is created if it does not exist. --store=nats://HOST:PORT/BUCKET is for any machines, and the bucket is created if it does not exist. --store=postgres://USER@HOST/DATABASE is, too, and the table dmutex_groups is created; give the password in PGPASSWORD. ` +
		`So are --store=kube://NAMESPACE, with Leases for a service account that may get, create and update them, --store=s3://BUCKET/PREFIX, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_REGION or AWS_ENDPOINT_URL, --store=etcd://HOST:PORT,HOST:PORT/PREFIX, and --store=redis://HOST:PORT/PREFIX, with ?servers=N where replicas have the data, too. With Redis the first run after a restart of the server waits for --lease. ` +
		`For another service, write a program with package storelock.

--at=HOST:PORT,HOST:PORT names some or all members of a group that serves clients, and --at=nats://HOST:PORT/NAME the group of that name which does so over NATS: see dmutex serve. This process is a client, and no member. --lease has no meaning then: what is said here of the lease is true of the session, whose length the members set.

If the machine crashes, the next process gets the lock after --lease. Without a directory it must have waited for longer than that: with --nonblock, or a --wait that is shorter, ` +
		`no process ever gets the lock of a dead one, however often it is run. Such a run says so; with a lease of 10s, give --wait 11. If dmutex run is killed by SIGKILL: with a directory on a local disk of a Unix system the ` +
		`command goes on and keeps the lock, as with flock, until it and all processes that have inherited the file descriptor have ended (3, or the next one that is free: those of flock and of other runs are passed on); then the next one gets it at once. Without a directory, ` +
		`the process group of the command is killed with it, by a shell (/bin/sh) that waits for that, and the next one gets the lock after --lease. ` +
		`It cannot kill what this user may not kill, such as a command under sudo if dmutex run is not root, nor processes with a group or session of their own: only a check of DMUTEX_FENCE protects what these write to.

With a directory on a local disk the lock is held for as long as dmutex run lives, whatever becomes of the disk. Otherwise, if the store or the member does not answer for a lease, the lock is lost. The command gets SIGTERM when a sixteenth of the lease is left, and SIGKILL after --grace: ` +
		`with a --grace below a sixteenth of the lease, before another machine gets the lock. ` +
		`If dmutex run itself is paused for a lease, the lock is lost too, but the command ends only when dmutex run goes on.

The command runs in a process group of its own, which gets every SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGTSTP and SIGCONT that dmutex run gets, unless dmutex run was started to ignore it. When the command ` +
		`ends, the processes that it leaves behind in that group get SIGTERM, and after --grace SIGKILL. The lock is released when none is left. ` +
		`(Processes that create a group or session of their own are not seen.) If the lock is lost meanwhile, the whole group ` +
		`is ended in the same way. A signal that arrives before the lock is acquired ends the wait: the command does not run. ` +
		`While the lock is being released to a store that does not answer, a second signal gives up.

The command has the standard input, output and error of dmutex run, and the terminal if it needs that and dmutex run is in the foreground. Ctrl-Z stops both, all processes of the command's group too, and fg and bg continue both. ` +
		`While they are stopped, a lock in a local directory is kept; any other is lost after --lease, and then the command is ended when it continues.

The command's environment has DMUTEX_LOCK, DMUTEX_PERMIT, from 0, and DMUTEX_FENCE: a number that rises with every grant of the permit. ` +
		`Store it with what the command writes, and refuse lower ones; then a command that was paused for too long does no harm.

If something other than a holder keeps the lock away for 2 seconds, such as a store that does not answer, a run says so on standard error, once, and goes on waiting.

Exit status: the command's. If signal N has ended the command, or has come before the lock, dmutex run dies of it, too, which a shell shows as 128+N; 124 if the lock was lost while the ` +
		`command ran; 123, or the --conflict-exit-code, if another held the lock and --nonblock or --wait ended the wait; 125 if the command line is wrong, or if the lock cannot be taken, or nobody could tell in time whether it is held; 126 if the command cannot be ` +
		`executed; 127 if it was not found.`
}

// Validate refuses what cannot be a lock.
func (c *Cmd) Validate() error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	} else if len(c.Command) > 0 && strings.HasPrefix(c.Command[0], "-") {
		return fmt.Errorf("unknown flag %s: put -- before a command of that name", c.Command[0])
	}
	c.Nonblock = c.Nonblock || c.Wait != nil && *c.Wait == 0
	switch {
	case (c.Store == nil) == (len(c.At) == 0):
		return errors.New("give either --store=URL or --at=HOST:PORT (or DMUTEX_STORE, DMUTEX_AT)")
	case strings.ContainsRune(strings.Join(c.At, ""), utf8.RuneError): // kong puts it in the place of such bytes
		return errors.New("--at: a byte of it is not UTF-8: give hosts and names at NATS in UTF-8")
	case c.Lock == "":
		return errors.New("give --lock=NAME")
	case c.Shared && c.Store != nil:
		return errors.New("--shared needs --at: a lock that is one record in a store has one holder")
	case c.Shared && c.Permits > 1:
		return errors.New("--shared and --permits exclude each other: any number of runs share a lock")
	case c.Store != nil && len(tool.RecordName(c.Lock)) > maxRecordName:
		return fmt.Errorf("--lock=%s: the name of a lock has at most %d letters and digits, or fewer of other characters", c.Lock, maxRecordName)
	case c.Store != nil && c.Store.Servers != "" && tool.NATS == nil:
		return fmt.Errorf("--store: %w", tool.ErrNoNATS)
	case c.Store != nil && c.Store.Servers == "" && c.Cert != "":
		return errors.New("--cert, --key and --authority are for NATS and --at, not for another store")
	case len(c.Command) == 0:
		return errors.New("give a command, after --")
	}
	nats := c.Store != nil && c.Store.Servers != "" || strings.Contains(strings.Join(c.At, ","), "://")
	return c.Check(nats, !nats)
}

// A door is where a run waits: a lock, or a semaphore.
type door interface {
	Acquire(ctx context.Context) (lock.Held, error)
	TryAcquire(ctx context.Context) (lock.Held, error)
}

// permits is a semaphore as a door.
type permits struct{ *semaphore.Semaphore }

func (p permits) Acquire(ctx context.Context) (lock.Held, error) {
	return one(p.Semaphore.Acquire(ctx))
}

func (p permits) TryAcquire(ctx context.Context) (lock.Held, error) {
	return one(p.Semaphore.TryAcquire(ctx))
}

func one(p *semaphore.Permit, err error) (lock.Held, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// door opens what the run waits for. stop closes the connections to its store or its group. refuse is told why no
// member of the group can be reached, if waiting does not mend that.
func (c *Cmd) door(refuse func(error)) (d door, stop func(), err error) {
	open, stop, err := c.locks(refuse)
	if err != nil {
		return nil, nil, err
	}
	if c.Permits == 1 {
		d, err = open(c.Lock)
	} else {
		d = permits{semaphore.New(c.Lock, c.Permits, func(name string) lock.Mutex {
			m, failed := open(name)
			err = cmp.Or(err, failed)
			return m
		})}
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return d, stop, nil
}

// locks returns how to open a lock.
func (c *Cmd) locks(refuse func(error)) (open func(name string) (lock.Mutex, error), stop func(), err error) {
	if c.Store != nil {
		record, stop, err := c.records()
		if err != nil {
			return nil, nil, err
		}
		return func(name string) (lock.Mutex, error) {
			s, err := record(name)
			if err != nil {
				return nil, err
			}
			return storelock.New(s, name, c.Lease)
		}, stop, nil
	}
	cfg, leave, err := c.group(refuse)
	if err != nil {
		return nil, nil, err
	}
	members, err := client.New(cfg)
	if err != nil {
		leave()
		return nil, nil, err
	}
	return func(name string) (lock.Mutex, error) {
		if c.Shared {
			return members.Mutex(name).Shared(), nil
		}
		return members.Mutex(name), nil
	}, func() { _ = members.Close(); leave() }, nil
}

// group says where the members of the group are. leave closes the connection to NATS.
func (c *Cmd) group(refuse func(error)) (cfg client.Config, leave func(), err error) {
	at := strings.Join(c.At, ",")
	if !strings.Contains(at, "://") {
		dial, err := c.Dial()
		return client.Config{Members: c.At, Dial: dial}, func() {}, err
	}
	var p tool.Place
	switch err := p.Parse(at); {
	case err != nil:
		return cfg, nil, fmt.Errorf("--at: %w", err)
	case p.Name == "":
		return cfg, nil, errors.New("--at: give HOST:PORT or nats://HOST:PORT/NAME, not a store")
	case tool.NATS == nil:
		return cfg, nil, fmt.Errorf("--at: %w", tool.ErrNoNATS)
	}
	cfg, leave = tool.NATS.Visit(p.Servers, p.Name, "dmutex run "+c.Lock, c.Security)
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if errors.Is(err, store.ErrUnusable) {
			refuse(err)
		}
		return conn, err
	}
	return cfg, leave, nil
}

// maxRecordName is less than stores take: the number of a permit follows.
const maxRecordName = 200

// records returns how to open the record of a lock. stop closes the connection to the store.
func (c *Cmd) records() (open func(name string) (store.Store, error), stop func(), err error) {
	switch {
	case c.Store.URL != "":
		base, err := c.Store.Base(c.Lease)
		if err != nil {
			return nil, nil, fmt.Errorf("--store: %w", err)
		}
		return func(name string) (store.Store, error) { return base.Lock(name), nil }, base.Stop, nil
	case c.Store.Path == "":
		open, stop := tool.NATS.Open(c.Store.Servers, c.Store.Name, "dmutex run "+c.Lock, c.Lease, c.Security)
		return func(name string) (store.Store, error) { return open(tool.RecordName(name)), nil }, stop, nil
	}
	if err := os.Mkdir(c.Store.Path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, err
	}
	return func(name string) (store.Store, error) {
		return filestore.Open(filepath.Join(c.Store.Path, tool.RecordName(name)))
	}, func() {}, nil
}

// unused is for how long a lock must be unused before its files are removed. Its fences begin at the clock
// when it is used again, so they rise if no clock was set back by more than that.
const unused = 24 * time.Hour

// tidy removes the files of locks in a directory that are free and unused, once a day. It takes a second at most.
func tidy(dir string) {
	begin, mark := time.Now(), filepath.Join(dir, ".tidied")
	if info, err := os.Lstat(mark); err == nil && info.Mode().IsRegular() && begin.Sub(info.ModTime()).Abs() < unused {
		return
	}
	_ = os.Remove(mark) // it may be a link to a file of somebody
	f, err := os.OpenFile(mark, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	f.Close()
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	rand.Shuffle(len(names), reflect.Swapper(names)) // so that another day goes on
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, name := range names {
		if strings.Contains(name, ".") || ctx.Err() != nil { // it is no record
			continue
		}
		path := filepath.Join(dir, name)
		s, err := filestore.Open(path)
		if err != nil {
			continue
		}
		value, rev, err := s.Load(ctx)
		if err == nil && lockrecord.Free(value, epochs.Fence(begin.Add(-unused).UnixNano())) &&
			s.(interface {
				Remove(context.Context, store.Revision) error
			}).Remove(ctx, rev) == nil {
			_ = os.Remove(path + ".queue")
		}
	}
}
