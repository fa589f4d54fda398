package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
)

// An Observer has functions that are called with the outcome of each Acquire and each hold. A nil
// function costs nothing.
//
// Wait and Hold run in the goroutine that called Acquire, TryAcquire, Release or Close, before that
// call returns; Hold runs in a goroutine of its own for a hold that is lost, and Move always does. They
// may use the client and its locks, but not close it. Several may run at the same time. For one handle
// Wait is called before Hold.
type Observer struct {
	Wait func(lock.Event) // an Acquire or TryAcquire has ended
	Hold func(lock.Event) // a hold has ended
	Move func(lock.Event) // another member has taken a hold over, which was suspended for Took
}

// Status describes the present state of a Client.
type Status struct {
	Member    string        // the address of the member that it has a session with, empty if it has none
	Remaining time.Duration // until the session ends, with all that is held, unless the member confirms it
	Holds     []string      // locks, in the order of the calls
	WaitsFor  []string      // locks, likewise
	Sessions  uint64        // that have begun
	Lost      uint64        // those that ended although the client had not left, as it does only when it holds nothing
	Refused   uint64        // requests that were not allowed, or too many
	Moved     uint64        // holds that another member has taken over, after the member of the session was gone
	Trouble   error         // the last with a member, nil if there was none: Member tells whether it is over
}

// Status returns how the client stands now.
func (c *Client) Status() Status {
	if c.m == nil {
		return Status{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.status
	st.Holds, st.WaitsFor = c.m.Locks()
	if term := c.m.Term(); term.Runs() {
		st.Member, st.Remaining = c.address, time.Duration(max(term.Expiry()-c.clock.Now(), 0))
	}
	return st
}

// Ready waits until the client has a session with a member, and begins one if it has none. If ctx
// ends first, the error wraps its cause and says why no member was reached.
func (c *Client) Ready(ctx context.Context) error {
	switch err := hold.ContextError(ctx); {
	case err != nil:
		return fmt.Errorf("client: %w", err)
	case c.m == nil:
		return fmt.Errorf("client: %w", errUnmade)
	}
	var begun <-chan struct{} // nil if the client is closed
	c.input(func(int64) {
		c.ready++
		begun = c.begun
	})
	defer c.input(func(int64) { c.ready-- })
	err := ErrClosed
	select {
	case <-begun:
		return nil
	case <-c.ctx.Done():
	case <-ctx.Done():
		err = c.trouble.Add(hold.ContextError(ctx))
	}
	return fmt.Errorf("client: %w", err)
}

// wanting reports whether there is a reason for a session. The caller has the mutex.
func (c *Client) wanting() bool { return c.m.Wanting() || c.ready > 0 && c.ctx.Err() == nil }

// note remembers why there is no session. The caller has the mutex.
func (c *Client) note(err error) {
	err = fmt.Errorf("no session: member %s: %w", c.at, err)
	c.trouble.Note(err)
	c.status.Trouble = err
	c.log.Often(slog.LevelWarn, "client: a member is not reached", slog.String("address", c.at), slog.Any("err", err))
}

// connecting is what stands in the way while a member is dialed that has not answered yet.
type connecting struct {
	at    string
	began time.Time
}

func (e connecting) Error() string {
	return fmt.Sprintf("no session: connecting with %s for %v, without an answer: %s", e.at, time.Since(e.began).Round(100*time.Millisecond), hint)
}

// idle says that a member grants nothing now. It is nil if the member does grant.
func idle(at string, confirm *clientsession.Message) error {
	if confirm.For > 0 && confirm.Text == "" {
		return nil
	}
	return fmt.Errorf("member %s grants nothing now: %s", at, cmp.Or(confirm.Text, "its lease is not confirmed, and its log says why"))
}

const hint = "give an address where a member serves clients, and use TLS if and only if the member does"

// explain says what the end of a connection over which no message came means, or the end of an attempt to
// dial.
func explain(err error, dialed bool) error {
	e, _ := errors.AsType[*net.OpError](err)
	_, unbelieved := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case unbelieved:
		return fmt.Errorf("the member's certificate is not believed: %w", err)
	case e != nil && e.Op == "remote error" && strings.HasSuffix(e.Error(), "internal error"): // an alert of TLS
		return fmt.Errorf("the member cannot use its own certificate, and its log says why: %w", err)
	case e != nil && e.Op == "remote error":
		return fmt.Errorf("the member refuses the certificate of this client, and its log says why: %w", err)
	}
	if dialed || plain || errors.Is(err, io.EOF) || e != nil && e.Op == "read" { // it ends a handshake
		err = fmt.Errorf("no member answers there: %s: %w", hint, err)
	}
	return err
}

// seen tells the Observer, if there is one, how a call that began then has ended.
func (c *Client) seen(name string, called time.Time, got lock.Held, err error) {
	o := c.cfg.Observer
	if o == nil {
		return
	}
	h, _ := got.(*held)
	if o.Wait != nil {
		hold.Tell(o.Wait, lock.Event{Lock: name, Err: err, Took: time.Since(called), Outcome: hold.Outcome(err)}, h)
	}
	if h == nil || o.Hold == nil {
		return
	}
	granted := time.Now()
	tell := func() {
		e := lock.Event{Lock: name, Fence: h.Fence(), Took: time.Since(granted), Err: h.Err(), Outcome: "lost"}
		if errors.Is(e.Err, lock.ErrReleased) {
			e.Err, e.Outcome = nil, "released"
		}
		o.Hold(e)
	}
	c.mu.Lock()
	open := c.ctx.Err() == nil
	if open {
		c.running.Add(1)
		h.tell = func() {
			defer c.running.Done()
			tell()
		}
		h.stop = context.AfterFunc(h.Context(), h.tell)
	}
	c.mu.Unlock()
	if !open { // Close has ended the hold, and does not wait for what begins later
		tell()
	}
}
