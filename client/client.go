// Package client takes the locks of a group in a process that is no member of it. Each pair of
// members keeps in touch, so a group is a handful of members, and the many or short-lived processes
// that want its locks are clients. A client has a session with one member, which takes locks for it
// as for its own goroutines: in the same queues, and with the same fences.
//
//	c, err := client.New(client.Config{Members: []string{"a:7100", "b:7100", "c:7100"}, TLS: certificates})
//	...
//	defer c.Close()
//	err = c.Mutex("invoices/42").Do(ctx, func(ctx context.Context, fence uint64) error { ... })
//
// A member serves clients with node.Config.Clients. To connect over NATS, see package natsclient.
//
// # Sessions
//
// The client sends beats, and the member confirms each for the length of the session, which the
// member sets. What the client holds is lost, by its own clock, when no confirmation comes in time,
// and before others can get it. Earlier, Held.Suspended says so. A lost connection costs nothing
// if another one comes in time.
//
// When a member closes, crashes or is excluded, its clients go to another member by themselves, and
// waiting calls wait there anew. What they hold they claim there: it stays held if that member can take
// it over in time, and has its fence still. Meanwhile Held.Suspended says so. When a client dies, its
// own locks are free after its session has ended, and no other lock waits.
//
// Exclusion assumes what it assumes of members: clocks whose rates are right within 1 %, and holders
// that stop when their context ends. A process that was paused may not: see package fence.
package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/dmutex/dmutex/internal/clientlink"
	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/internal/latelog"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/mistake"
	"github.com/dmutex/dmutex/internal/names"
	"github.com/dmutex/dmutex/lock"
)

// The errors of a client besides those of package lock, for [errors.Is]. Errors of a context are
// wrapped, too.
var (
	ErrClosed  = errors.New("the client is closed")
	ErrRefused = errors.New("the member refuses it") // the error says why
)

// Config configures a Client.
type Config struct {
	// Members are the addresses of some or all members that serve clients, host:port over
	// TCP. The client begins with any of them.
	Members []string

	// TLS is how the client and the members authenticate; nil is plain TCP, for networks where
	// everybody is trusted. Give it Certificates if the members ask for them.
	TLS *tls.Config

	// Dial connects with a member. Nil dials over TCP, with TLS if there is one. Dial may return
	// any connection that keeps bytes in order, such as those of natsclient.Dialer. If the network of
	// its RemoteAddr is "nats", Dial is called with that address to connect with the same member again.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Name is what the members call this client: up to 64 bytes of printable text. If it is empty, it is the names
	// of host and program, cut if need be, and the process ID, with slashes between them.
	Name string

	// Logger gets records of the sessions and their ends, and of members that are not reached. Nil
	// logs nothing.
	Logger *slog.Logger

	// Observer sees how waits and holds end. It may be nil.
	Observer *Observer
}

const (
	firstPause = 20 * time.Millisecond // between attempts to connect
	lastPause  = time.Second
	firstTry   = 300 * time.Millisecond // for a member to answer, while nothing is held, and there is another one; doubled each time
	courtesy   = 200 * time.Millisecond // for the member to say who holds the lock, when a context has ended
	backlog    = 1 << 20                // bytes, more than 1000 requests take
	maxSleep   = time.Second            // how late a hold is seen to have ended after the machine has slept
)

// A Client takes locks through one member at a time. Its methods are safe for concurrent use.
type Client struct {
	cfg     Config
	clock   *clock.Clock
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	trouble hold.Trouble // why there is no session
	log     *latelog.Log

	mu         sync.Mutex
	m          *clientsession.Client
	calls      map[uint64]*held
	away       bool  // Away of the machine, as of the last input
	since      int64 // when that has begun last
	timer      *time.Timer
	connecting bool             // run is running
	conn       *clientlink.Conn // nil while there is none
	ready      int              // calls of Ready
	begun      chan struct{}    // closed while there is a session
	status     Status           // counts

	address string // of the member of the session
	gone    bool   // the process there does not know the session
	at      string // of the member that is dialed, or connected with, which only run has
}

// New returns a client. It connects when it is first used.
func New(cfg Config) (*Client, error) {
	if cfg.Name == "" {
		host, _ := os.Hostname()
		cfg.Name = names.Of(host, filepath.Base(os.Args[0]), os.Getpid())
	}
	switch {
	case len(cfg.Members) == 0 || slices.Contains(cfg.Members, ""):
		return nil, errors.New("client: Config.Members is empty, or one of them is: give the addresses of members")
	case !names.Is(cfg.Name):
		return nil, fmt.Errorf("client: Config.Name is %q: choose %s", cfg.Name, names.Rule)
	case cfg.Dial != nil && cfg.TLS != nil:
		return nil, errors.New("client: Config.TLS has no meaning with Config.Dial: let Dial do it")
	case cfg.Dial == nil:
		for _, address := range cfg.Members {
			if _, _, err := net.SplitHostPort(address); err != nil {
				return nil, fmt.Errorf("client: Config.Members has %q: give host:port", address)
			}
		}
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			if cfg.TLS != nil {
				return (&tls.Dialer{Config: cfg.TLS}).DialContext(ctx, "tcp", address)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	cfg.Members = slices.Clone(cfg.Members)
	own := clock.New()
	luck := mathrand.New(mathrand.NewPCG(uint64(own.UpTo(math.MaxInt64)), 0))
	luck.Shuffle(len(cfg.Members), reflect.Swapper(cfg.Members))
	c := &Client{cfg: cfg, clock: own, m: clientsession.New(cfg.Name), calls: make(map[uint64]*held), log: latelog.New(cfg.Logger), begun: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.timer = time.AfterFunc(due.Never, func() { c.input(c.m.Tick) })
	return c, nil
}

// Mutex returns the lock of that name, 1 to 255 bytes. Callers of one client are served in the
// order of their calls.
//
// Acquire and TryAcquire wait while no member can be reached. If their context ends first, the
// error wraps its cause, and says why no member was reached, or, as a [lock.ErrBusy], who holds the lock: the
// member is asked for that, for up to 200 ms. Other errors are [lock.ErrBusy], [ErrRefused] and [ErrClosed].
func (c *Client) Mutex(name string) lock.Sharable {
	return &hold.Sharable{Mutex: hold.Mutex{
		Package: "client", Lock: name,
		Take: func(ctx context.Context, try, shares bool) (lock.Held, error) {
			return c.acquire(ctx, name, try, shares)
		},
		Seen: func(called time.Time, h lock.Held, err error) { c.seen(name, called, h, err) },
	}}
}

var errUnmade = errors.New("the client was not made by New")

// Close ends the session. What is held is lost, and free at once: release it before. Waiting calls
// return [ErrClosed]. Close waits for each Hold and Move of the Observer that runs, and until the handler of
// Config.Logger has taken what was logged: if one of them blocks, so does Close.
func (c *Client) Close() error {
	if c.m == nil {
		return nil
	}
	var tell []func()
	c.input(func(int64) {
		c.cancel()
		for _, h := range c.calls {
			tell = append(tell, h.quiet())
			h.end(fmt.Errorf("%w: %w", lock.ErrLost, ErrClosed), ErrClosed)
		}
		c.m.Close()
	})
	func() {
		for _, f := range tell {
			defer f() // all of them, also if one panics
		}
	}()
	c.timer.Stop()
	c.running.Wait()
	c.log.Close()
	return nil
}

// input gives the machine an input, and does what it wants. It does nothing if the client is closed.
func (c *Client) input(input func(now int64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	now := c.clock.Now()
	input(now)
	out, news := c.m.Output()
	if c.conn != nil {
		if c.conn.Send(out...); !c.m.Connected() {
			c.conn.Hurry()
			c.conn = nil
		} else if !c.m.Trying() {
			c.address, c.gone = c.at, false
		}
	}
	for i := range news {
		c.take(now, &news[i])
	}
	if away := c.m.Away(); away != c.away {
		if c.away = away; away {
			c.since = now
		}
	}
	wake := time.Duration(c.m.Deadline() - now)
	if len(c.calls) > 0 {
		wake = min(wake, maxSleep)
	}
	c.timer.Reset(c.clock.Span(wake))
	if !c.connecting && c.wanting() {
		c.connecting = true
		c.running.Go(c.run)
	}
}

// take acts on news of the machine. The caller has the mutex.
func (c *Client) take(now int64, news *clientsession.Message) {
	h := c.calls[news.Number]
	switch {
	case news.Kind == clientsession.Confirm:
		for _, h := range c.calls {
			if h.Hold != nil {
				h.Extend(c.m.TermOf(h.number))
			}
		}
		if news.Fresh {
			close(c.begun)
			c.status.Sessions++
			c.log.Often(slog.LevelInfo, "client: a session has begun", slog.String("address", c.address))
		}
	case news.Kind == clientsession.Over:
		c.begun = make(chan struct{})
		if news.Code == clientsession.None {
			c.log.Often(slog.LevelInfo, "client: the session is over", slog.String("address", c.address))
			break
		}
		c.status.Lost++
		c.log.Often(slog.LevelWarn, "client: the session is lost", slog.String("address", c.address), slog.String("err", news.Text))
	case h == nil:
	case news.Kind == clientsession.Granted && h.Hold != nil:
		c.status.Moved++
		c.log.Log(slog.LevelInfo, "client: a lock is taken over", slog.String("lock", h.lock), slog.String("address", c.address))
		h.Extend(c.m.TermOf(news.Number))
		if o := c.cfg.Observer; o != nil && o.Move != nil {
			e := lock.Event{Lock: h.lock, Fence: news.Fence, Took: time.Duration(now - c.since), Outcome: "moved"}
			c.running.Go(func() { o.Move(e) })
		}
	case news.Kind == clientsession.Granted:
		h.Hold = hold.New(h.ctx, c.clock, c.m.TermOf(news.Number), news.Fence, func() error {
			return c.loss(clientsession.Late)
		})
		close(h.ready)
	default:
		if news.Code == clientsession.Forbidden || news.Code == clientsession.Full {
			c.status.Refused++
		}
		why := fmt.Errorf("%w: %s", ErrRefused, news.Text)
		switch {
		case news.Code == clientsession.Busy:
			why = fmt.Errorf("%w: %s", lock.ErrBusy, news.Text)
		case h.ctx.Err() != nil: // it says what the call has waited for
			why = errors.New(news.Text)
		}
		h.end(c.loss(news.Text), why)
	}
}

// run keeps the client connected while it wants anything.
func (c *Client) run() {
	try := firstTry
	for pause, on := firstPause, true; on; pause *= 2 {
		begin := c.clock.Now()
		good, most := c.attach(try)
		lasted := time.Duration(c.clock.Now() - begin) // a member may confirm a session, and end each connection at once
		if pause, try = min(pause, most), min(2*try, clientlink.Patience); good && lasted >= lastPause {
			pause, try = firstPause, firstTry
		}
		select {
		case <-c.ctx.Done():
		case <-time.After(c.clock.Span(pause/2 + c.clock.UpTo(pause))):
		}
		c.mu.Lock()
		on = c.wanting()
		c.connecting = on
		c.mu.Unlock()
	}
}

// attach connects with a member, and takes what it says until the connection ends. Without a session, it
// gives up one of several members that does not answer in time: try is for that. It reports
// whether it was the member of the session, and has answered, and how long to wait at most before the
// next attempt.
func (c *Client) attach(try time.Duration) (good bool, most time.Duration) {
	elsewhere, patience, answers := false, clientlink.Patience, clientlink.Patience
	most = lastPause
	c.input(func(int64) {
		elsewhere = c.m.Elsewhere() || c.gone
		term := c.m.Term()
		if c.m.Session() != "" { // it is urgent
			patience, most = min(patience, time.Duration(term.Length)/leases.RenewServing), min(most, time.Duration(term.Length)/leases.Ask)
		}
		if c.m.Session() == "" && len(c.cfg.Members) > 1 {
			patience, answers = try, try
		}
		if c.at = c.address; elsewhere { // of another member, if there is one
			i := max(slices.IndexFunc(c.cfg.Members, func(address string) bool { return c.gone || address != c.address }), 0)
			c.at = c.cfg.Members[i]
			c.cfg.Members = append(slices.Delete(c.cfg.Members, i, i+1), c.at)
		}
		if c.m.Session() == "" {
			c.address = "" // after others that of the last session is tried again: it may be the only one that is reached
		}
	})
	ctx, cancel := context.WithTimeout(c.ctx, c.clock.Span(patience))
	defer cancel()
	if c.trouble.Err() == nil { // else what is known says more
		c.trouble.Note(connecting{c.at, time.Now()})
	}
	nc, err := c.cfg.Dial(ctx, c.at)
	if err != nil {
		c.input(func(int64) {
			c.note(explain(err, false))
			c.m.Unreached()
		})
		return false, most
	}
	conn := clientlink.New(nc, backlog)
	defer conn.Close()
	defer context.AfterFunc(c.ctx, conn.Hurry)()
	c.input(func(now int64) {
		if a := nc.RemoteAddr(); a != nil && a.Network() == "nats" {
			c.at = a.String() // of this member, where the other is of any
		}
		c.conn = conn
		c.m.Connect(now, rand.Text(), elsewhere)
	})
	hangs := time.AfterFunc(c.clock.Span(answers), conn.Hurry) // one that hangs may accept connections
	defer hangs.Stop()
	for answered := false; err == nil; answered = true {
		var msg *clientsession.Message
		msg, err = conn.Read()
		hangs.Stop()
		c.input(func(now int64) {
			if err != nil && !answered {
				err = explain(err, true)
			}
			if err != nil && (!answered || c.conn == conn) {
				c.note(err)
			}
			switch {
			case c.conn != conn:
				err = net.ErrClosed
			case err != nil:
				c.m.Disconnect()
			case msg.Kind == clientsession.Confirm:
				good = good || !c.m.Trying()
				c.trouble.Note(idle(c.at, msg))
			case msg.Kind == clientsession.Over:
				c.gone = !c.m.Trying() || c.gone
				c.note(errors.New(msg.Text))
			}
			if err == nil {
				c.m.Handle(now, msg)
			}
		})
	}
	return good, most
}

// loss is why a hold is lost.
func (c *Client) loss(text string) error {
	return c.trouble.Add(fmt.Errorf("%w: the session is over: %s", lock.ErrLost, text))
}

// acquire takes the lock of that name.
func (c *Client) acquire(ctx context.Context, name string, try, shares bool) (lock.Held, error) {
	switch {
	case c.m == nil:
		return nil, errUnmade
	case len(name) == 0 || len(name) > lock.MaxName:
		return nil, mistake.Misuse(fmt.Sprintf("a name has 1 to %d bytes, not %d", lock.MaxName, len(name)))
	}
	hold.Show(ctx, &c.trouble)
	h := &held{c: c, lock: name, ctx: ctx, ready: make(chan struct{})}
	c.input(func(int64) {
		h.number = c.m.Ask(name, try, shares)
		c.calls[h.number] = h
	})
	if h.number == 0 {
		return nil, ErrClosed
	}
	select {
	case <-h.ready:
		if h.err != nil {
			return nil, h.err
		}
		return h, nil
	case <-ctx.Done():
	}
	c.input(func(now int64) {
		c.m.Drop(now, h.number)
		if c.calls[h.number] == h && (h.Hold != nil || c.conn == nil) {
			h.end(lock.ErrReleased, nil)
		}
	})
	select { // the member answers that the lock is busy, and who holds it
	case <-h.ready:
	case <-time.After(c.clock.Span(courtesy)):
	}
	err := hold.ContextError(ctx)
	c.input(func(int64) {
		switch delete(c.calls, h.number); {
		case errors.Is(h.err, lock.ErrBusy):
			err = fmt.Errorf("%w: %w", h.err, err)
		case h.err != nil:
			err = fmt.Errorf("%v: %w", h.err, err)
		default:
			err = c.trouble.Add(err)
		}
	})
	return nil, err
}

// A held is the handle that Acquire returns, and before that its request.
type held struct {
	*hold.Hold // nil until it is granted
	c          *Client
	lock       string
	number     uint64 // of the request
	ctx        context.Context
	ready      chan struct{} // closed when the Hold or err is set
	err        error
	tell       func()      // tells the Observer that the hold has ended, once
	stop       func() bool // keeps the goroutine for a lost hold from that, unless it has begun; nil if nobody is to be told
}

// quiet returns what tells the Observer that the hold has ended. It comes before the end: else another goroutine tells.
func (h *held) quiet() (tell func()) {
	if h.stop == nil || !h.stop() {
		return func() {}
	}
	return h.tell
}

// end ends the hold or the request, for these reasons. The caller has the mutex of the client.
func (h *held) end(lost, err error) {
	if delete(h.c.calls, h.number); h.Hold != nil {
		h.End(lost)
		return
	}
	h.err = err
	close(h.ready)
}

// Suspended reports whether the renewal is late, or the member that holds the lock for this client is not
// reached, while the client looks for it, and for another one that takes the lock over.
func (h *held) Suspended() bool {
	h.c.mu.Lock()
	away := h.c.away
	h.c.mu.Unlock()
	return h.Hold.Suspended() || away && h.Err() == nil
}

// Release gives the lock back. It does not wait until the member knows.
func (h *held) Release() error {
	defer h.quiet()()
	err := h.Released(lock.ErrReleased)
	h.c.input(func(now int64) {
		delete(h.c.calls, h.number)
		h.c.m.Drop(now, h.number) // nothing, if it was lost or dropped
	})
	return err
}
