package clientsession

import (
	"math"
	"slices"

	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/protocol"
)

// A Client is the client's side of one session after another. Times are nanoseconds of a clock
// that counts sleep. The driver
//
//	calls Connect when it has a connection and wants a session, with a name for a new one: with
//	another member if Elsewhere says so; and Unreached when it gets no connection
//	sends what Output returns, and acts on the news, after each input: a request is Granted, or it
//	is Refused, also if it was held and is lost. One that is Granted again is held by another member.
//	Confirm: the session goes on, or has begun if it is Fresh; Over: it has ended, and the Code is
//	None if the client has left it, which loses nothing
//	calls Tick at Deadline
//	drops the connection when Connected is false, and calls Disconnect when it has lost it
//	treats what is held as lost when its TermOf ends, by a timer of its own
type Client struct {
	side
	name      string
	stay           // what is held is valid while its term runs
	trial     stay // of the present connection, if it is with another member
	leaving   bool // the member closes
	connected bool
	heard     bool // the member has answered on this connection
	elsewhere bool // the next connection is to be with another member

	links uint64 // connections that there were
	last  uint64 // number of a request
}

// A stay is a session with one member.
type stay struct {
	session   string      // its name, empty if there is none
	sentAt    int64       // of the last beat of the connection
	confirmed bool        // that beat was answered
	term      leases.Term // its Length is S
	overAt    int64       // of the session, without another answer; due.Never while the member does not know it
}

// none is no session, with members whose sessions last so long.
func none(length int64) stay {
	return stay{term: leases.Term{Length: length}, overAt: due.Never}
}

// known reports whether the member has confirmed the session.
func (s *stay) known() bool { return s.overAt != due.Never }

const (
	often  = 6 // a beat is sent every 6th of S, and a member that is met again answers a hello in as long
	silent = 3 // a member that does not answer a beat for a 3rd of S is not reached

	firstLength = 9_000_000_000 // stands for S until a member has told it, in nanoseconds
)

// Late is why a hold is lost that was not confirmed in time.
const Late = "no member has confirmed it in time"

// New returns a client without a session. The name is for people.
func New(name string) *Client {
	return &Client{name: name, stay: none(firstLength), trial: none(firstLength)}
}

// Term returns the term of the session.
func (m *Client) Term() leases.Term { return m.term }

// TermOf returns the term of a request that is held.
func (m *Client) TermOf(number uint64) leases.Term {
	if i := m.find(number); i >= 0 && m.requests[i].left.Runs() {
		return m.requests[i].left
	}
	return m.term
}

// Connected reports whether the machine needs the connection that it has.
func (m *Client) Connected() bool { return m.connected }

// Away reports whether the member of the session is not reached, though something is held by it.
func (m *Client) Away() bool { return m.holding() && (!m.connected || m.Trying()) }

// Elsewhere reports whether the next connection is to be with another member than that of the session.
func (m *Client) Elsewhere() bool { return m.session == "" || m.elsewhere }

// Trying reports whether the present connection is with another member than that of the session.
func (m *Client) Trying() bool { return m.trial.session != "" }

// Session returns the name of the session, empty if there is none.
func (m *Client) Session() string { return m.session }

// Wanting reports whether there is a reason for a session.
func (m *Client) Wanting() bool { return m.session != "" || len(m.requests) > 0 }

// Ask asks for a lock, alone or to share it, and returns the number of the request.
func (m *Client) Ask(lock string, try, shares bool) (number uint64) {
	m.last++
	r := request{number: m.last, lock: lock, try: try, shares: shares}
	if len(m.requests) >= MaxRequests {
		m.refuse(r.number, Full, tooMany)
	} else if m.requests = append(m.requests, r); !m.Trying() {
		m.send(r.order())
	}
	return r.number
}

func (m *Client) refuse(number uint64, code Code, text string) {
	m.news = append(m.news, Message{Kind: Refused, Number: number, Code: code, Text: text})
}

func (m *Client) send(msg Message) {
	if m.connected {
		m.out = append(m.out, msg)
	}
}

// Drop ends a request: the wait, or the hold.
func (m *Client) Drop(now int64, number uint64) {
	m.expire(now)
	i := m.find(number)
	if i < 0 {
		return
	}
	r := &m.requests[i]
	if r.released = m.holds(*r) && !r.shares && (!m.connected || m.leaving || m.Trying() || r.left.Runs()); !r.released {
		m.remove(i)
		return
	}
	if !m.Trying() && !r.left.Runs() {
		m.send(Message{Kind: Drop, Number: number})
	}
}

// remove ends a request.
func (m *Client) remove(i int) {
	m.send(Message{Kind: Drop, Number: m.requests[i].number})
	m.requests = slices.Delete(m.requests, i, i+1)
	m.finish()
}

// forget ends the requests that were released, once the member has heard that.
func (m *Client) forget(which func(r request) bool) {
	m.requests = slices.DeleteFunc(m.requests, func(r request) bool { return r.released && which(r) })
}

// holds reports whether the client holds what it asked for. A grant waits until the session is valid.
func (m *Client) holds(r request) bool { return r.fence != 0 && (m.term.Runs() || r.left.Runs()) }

func (m *Client) holding() bool { return slices.ContainsFunc(m.requests, m.holds) }

// Connect begins a session with this name on a new connection, or resumes the present one. If the
// connection is with another member than that of the session, it begins a trial.
func (m *Client) Connect(now int64, fresh string, elsewhere bool) {
	if m.expire(now); elsewhere && !m.holding() && m.session != "" {
		m.over(None, "")
	}
	switch {
	case m.session == "":
		m.session = fresh
	case elsewhere:
		m.trial.session = fresh
	}
	m.links++
	m.connected, m.heard, m.out = true, false, nil
	on := m.on()
	hello := Message{Kind: Hello, Number: m.links, Speaks: protocol.Spoken, Session: on.session, Name: m.name, Fresh: !on.known()}
	for i := range m.requests {
		if r := &m.requests[i]; m.Trying() || !r.released || r.left.Runs() {
			hello.Wants = append(hello.Wants, r.number)
		}
	}
	if m.beat(now, hello); !m.Trying() {
		m.askAgain()
	}
}

// on returns the session of the present connection.
func (m *Client) on() *stay {
	if m.Trying() {
		return &m.trial
	}
	return &m.stay
}

// askAgain asks for what is waited for.
func (m *Client) askAgain() {
	for i := range m.requests {
		if r := &m.requests[i]; !m.holds(*r) {
			m.send(Message{Kind: Ask, Number: r.number, Lock: r.lock, Try: r.try, Shares: r.shares})
		}
	}
}

// claim asks for what is held by a member that the client has left, or does not reach. What is shared is
// taken over by nobody.
func (m *Client) claim() {
	for i := range m.requests {
		if r := &m.requests[i]; m.holds(*r) && !r.shares && (m.Trying() || r.left.Runs()) {
			m.send(r.order())
			r.claimed = true
		}
	}
}

func (m *Client) beat(now int64, msg Message) {
	on := m.on()
	on.sentAt, on.confirmed = now, false
	m.send(msg)
}

// Disconnect tells the machine that the connection is lost. The session goes on, but no trial does. The next connection is
// with another member if this one was with that of the session, and it closes, or has not answered.
func (m *Client) Disconnect() {
	if !m.connected {
		return
	}
	trial, heard := m.Trying(), m.heard
	m.connected, m.heard, m.elsewhere, m.trial = false, false, false, none(m.term.Length)
	switch {
	case !m.known(): // the member may not have heard of it
		m.over(None, "")
	case !trial && !heard:
		m.Unreached()
	default:
		m.elsewhere = m.leaving && !trial
	}
}

// Unreached tells the machine that the next member was not reached. A client that holds nothing goes elsewhere at once.
func (m *Client) Unreached() {
	if m.elsewhere = !m.elsewhere; m.session != "" && !m.holding() {
		m.over(None, "")
	}
}

// Close ends the session. What is held is given back: the driver has ended it.
func (m *Client) Close() {
	m.requests, m.leaving = nil, true
	m.finish()
}

// Deadline returns when Tick has something to do: [due.Never] if nothing.
func (m *Client) Deadline() int64 {
	at := min(m.overAt, m.trial.overAt, m.beatAt())
	for i := range m.requests {
		if r := &m.requests[i]; r.left.Runs() {
			at = min(at, r.left.Until())
		}
	}
	return at
}

// beatAt returns when a beat is due, or the answer to one.
func (m *Client) beatAt() int64 {
	switch on := m.on(); {
	case !m.connected:
		return due.Never
	case on.confirmed || !m.heard && m.known():
		return on.sentAt + on.term.Length/often
	default:
		return on.sentAt + on.term.Length/silent
	}
}

// Tick tells the machine that time has passed.
func (m *Client) Tick(now int64) {
	switch m.expire(now); {
	case now < m.beatAt():
	case m.on().confirmed:
		m.beat(now, Message{Kind: Beat})
	default:
		trial := m.Trying()
		m.Disconnect()
		m.elsewhere = m.elsewhere || !trial && m.holding()
	}
}

// expire ends what has run out. It comes before each input: an input may extend the session, and what
// has ended must not come back.
func (m *Client) expire(now int64) {
	if now >= m.overAt {
		m.over(Unknown, Late)
	}
	if now >= m.trial.overAt {
		m.giveUp()
	}
	for i, r := range slices.Backward(m.requests) {
		if r.left.Runs() && now >= r.left.Until() {
			m.requests = slices.Delete(m.requests, i, i+1)
			m.send(Message{Kind: Drop, Number: r.number})
			m.refuse(r.number, Unknown, Late)
		}
	}
}

// over ends the session.
func (m *Client) over(code Code, text string) {
	trial := m.Trying()
	m.out = nil
	if m.term.Runs() {
		m.news = append(m.news, Message{Kind: Over, Code: code, Text: text})
	}
	m.requests = slices.DeleteFunc(m.requests, func(r request) bool {
		lost := m.holds(r) && !r.left.Runs()
		if lost {
			m.refuse(r.number, code, text)
		}
		return lost
	})
	for i := range m.requests {
		if r := &m.requests[i]; !r.left.Runs() {
			r.fence, r.of, r.via = 0, nil, ""
		}
	}
	m.stay, m.trial = none(m.term.Length), none(m.term.Length)
	m.leaving, m.connected, m.elsewhere = false, false, false
	if trial {
		m.out = append(m.out, Message{Kind: Bye})
	}
}

// giveUp ends the trial.
func (m *Client) giveUp() {
	m.send(Message{Kind: Bye})
	m.Disconnect()
}

// goOn goes on with the member of the trial. What is held by the other one until T is claimed.
func (m *Client) goOn() {
	for i := range m.requests {
		if r := &m.requests[i]; m.holds(*r) && !r.left.Runs() {
			r.left = m.term
		}
	}
	m.news = append(m.news, Message{Kind: Confirm, Fresh: !m.term.Runs()})
	m.stay, m.trial, m.leaving = m.trial, none(m.term.Length), false
	m.askAgain()
}

// finish leaves a member that closes, when nothing is held, and that of a trial, when it has refused
// all claims: the client claims again later.
func (m *Client) finish() {
	switch {
	case m.leaving && !m.holding():
		if m.over(None, ""); len(m.out) == 0 {
			m.out = append(m.out, Message{Kind: Bye})
		}
	case m.Trying() && m.trial.term.Runs() && !slices.ContainsFunc(m.requests, func(r request) bool { return r.claimed }):
		m.giveUp()
	}
}

// tell reports the grant of a request that is held.
func (m *Client) tell(r request) {
	if m.holds(r) && !r.released {
		m.news = append(m.news, Message{Kind: Granted, Number: r.number, Fence: r.fence})
	}
}

// Handle takes a message of the member from the present connection.
func (m *Client) Handle(now int64, msg *Message) {
	if m.expire(now); !m.connected {
		return
	}
	switch i := m.find(msg.Number); msg.Kind {
	case Confirm:
		m.confirm(now, msg)
	case Granted:
		if i >= 0 {
			m.granted(&m.requests[i], msg)
		}
	case Refused:
		switch {
		case i < 0 || !m.holds(m.requests[i]):
			m.requests = slices.Delete(m.requests, max(i, 0), i+1)
			m.refuse(msg.Number, max(msg.Code, Busy), msg.Text) // also if it was dropped: it says who holds the lock
		case m.requests[i].released && !m.Trying() && !m.requests[i].left.Runs(): // the answer to a late release
			m.requests = slices.Delete(m.requests, i, i+1)
		default:
			m.requests[i].claimed = false
		}
	case Leave:
		if !m.Trying() && !m.leaving {
			m.leaving = true
			m.send(Message{Kind: Leave})
		}
	case Over:
		m.ended(max(msg.Code, Busy), msg.Text)
	}
	m.finish()
}

// confirm takes the answer to a beat.
func (m *Client) confirm(now int64, msg *Message) {
	on := m.on()
	if on.confirmed || msg.Length < leases.Min || msg.Length > math.MaxInt64/4 || on.known() && msg.Length != on.term.Length {
		return // as if it were silent
	}
	if !m.heard && !m.Trying() { // the hello has told it
		m.forget(func(r request) bool { return !r.left.Runs() })
	}
	on.confirmed, m.heard, on.term.Length = true, true, msg.Length
	switch ran := on.term.Runs(); {
	case msg.For > 0 && on.term.Confirm(now, on.sentAt, min(msg.For, msg.Length)):
		on.overAt = on.term.Until()
		if !m.Trying() {
			m.news = append(m.news, Message{Kind: Confirm, Fresh: !ran})
		}
		for i := range m.requests {
			if r := &m.requests[i]; !ran && !m.Trying() && !r.left.Runs() {
				m.tell(*r)
			}
		}
		if !ran || !m.Trying() {
			m.claim()
		}
	case m.Trying():
		m.giveUp()
	case msg.For > 0:
		m.over(Unknown, Late)
	case !m.known(): // the member may not act yet
		m.overAt = m.sentAt + msg.Length
		m.expire(now)
	}
}

// granted takes a grant of a request, or of a claim: it counts if it comes before T and within the
// session.
func (m *Client) granted(r *request, msg *Message) {
	switch {
	case r.fence == 0:
		r.fence, r.of, r.via = max(msg.Fence, 1), []uint64{msg.Node}, m.session
		m.tell(*r)
	case !m.holds(*r) || !m.on().term.Runs():
	case m.Trying() || r.left.Runs():
		if m.Trying() {
			m.goOn()
		}
		r.left, r.claimed, r.via = leases.Term{}, false, m.session
		m.send(Message{Kind: Moved, Number: r.number})
		if r.released {
			m.remove(m.find(r.number))
			return
		}
		m.tell(*r)
		r.of = append(r.of[max(0, len(r.of)-MaxOf+1):len(r.of):len(r.of)], msg.Node)
	}
}

// ended takes the word that the session is over, or that there is none. What is held stays valid
// until T.
func (m *Client) ended(code Code, text string) {
	switch {
	case m.Trying():
		m.giveUp()
	case code == Forbidden: // there is no session for it
		m.over(code, text)
		for _, r := range m.requests {
			m.refuse(r.number, code, text)
		}
		m.requests = nil
	case m.holding():
		m.Disconnect()
		m.elsewhere = true
	default:
		m.over(code, text)
	}
}
