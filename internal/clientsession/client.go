package clientsession

import (
	"math"
	"slices"

	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/protocol"
)

// A Client is the client's end of one session after another. Times are nanoseconds of a clock
// that counts sleep. The driver
//
//	calls Connect when it has a connection and wants a session, with a name for a new one
//	sends what Output returns, and acts on the news, after each input: a request is Granted, or it
//	is Refused, also if it was held and is lost
//	calls Tick at Deadline
//	drops the connection when Connected is false, and calls Disconnect when it has lost it
//	treats all that is held as lost a 16th of S before the end by Validity, by a timer of its own
type Client struct {
	end
	name      string
	session   string // empty if there is none
	leaving   bool   // the member closes
	connected bool

	sentAt    int64 // of the last beat of this connection
	confirmed bool  // that beat was answered
	length    int64 // S
	endAt     int64 // of what is held, never if nothing may be held yet
	overAt    int64 // of the session, without another answer; MaxInt64 while the member does not know it

	links uint64 // connections that there were
	last  uint64 // number of a request
}

const (
	often  = 6 // a beat is sent every 6th of S
	silent = 3 // a member that does not answer a beat for a 3rd of S is not reached

	firstLength = 9_000_000_000 // stands for S until a member has told it, in nanoseconds

	never = math.MinInt64 / 2
)

// Late is why a hold is lost that was not confirmed in time.
const Late = "no member has confirmed it in time"

// New returns a client without a session. The name is for people.
func New(name string) *Client {
	return &Client{name: name, length: firstLength, endAt: never, overAt: math.MaxInt64}
}

// Validity returns until when what is held is valid, with the margin, and S.
func (m *Client) Validity() (end, length int64) { return m.endAt, m.length }

// Connected reports whether the machine needs the connection that it has.
func (m *Client) Connected() bool { return m.connected }

// Session returns the name of the session, empty if there is none.
func (m *Client) Session() string { return m.session }

// Wanting reports whether there is a reason for a session.
func (m *Client) Wanting() bool { return m.session != "" || len(m.requests) > 0 }

// Ask asks for a lock, and returns the number of the request.
func (m *Client) Ask(lock string, try bool) (number uint64) {
	m.last++
	r := request{number: m.last, lock: lock, try: try}
	if len(m.requests) >= MaxRequests {
		m.refuse(r.number, Full, tooMany)
	} else {
		m.requests = append(m.requests, r)
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
	m.check(now)
	if i := m.find(number); i >= 0 {
		m.requests = slices.Delete(m.requests, i, i+1)
		m.send(Message{Kind: Drop, Number: number})
		m.finish()
	}
}

// holds reports whether the client holds what it asked for. A grant waits until the session is valid.
func (m *Client) holds(r request) bool { return r.fence != 0 && m.endAt != never }

// Connect begins a session with this name on a new connection, or resumes the present one.
func (m *Client) Connect(now int64, fresh string) {
	if m.check(now); m.session == "" {
		m.session = fresh
	}
	m.links++
	m.connected, m.out = true, nil
	hello := Message{Kind: Hello, Number: m.links, Speaks: protocol.Spoken, Session: m.session, Name: m.name, Fresh: !m.known()}
	for i := range m.requests {
		hello.Wants = append(hello.Wants, m.requests[i].number)
	}
	m.beat(now, hello)
	for i := range m.requests {
		if !m.holds(m.requests[i]) {
			m.send(m.requests[i].order())
		}
	}
}

// known reports whether the member has confirmed the session.
func (m *Client) known() bool { return m.overAt != math.MaxInt64 }

func (m *Client) beat(now int64, msg Message) {
	m.sentAt, m.confirmed = now, false
	m.send(msg)
}

// Disconnect tells the machine that the connection is lost. The session goes on.
func (m *Client) Disconnect() {
	if m.connected = false; !m.known() {
		m.over(None, "") // the member may not have heard of it
	}
}

// Close ends the session. What is held is given back: the driver has ended it.
func (m *Client) Close() {
	m.requests, m.leaving = nil, true
	m.finish()
}

// Deadline returns when Tick has something to do: [math.MaxInt64] if never.
func (m *Client) Deadline() int64 { return min(m.overAt, m.beatAt()) }

// beatAt returns when a beat is due, or the answer to one.
func (m *Client) beatAt() int64 {
	switch {
	case !m.connected:
		return math.MaxInt64
	case m.confirmed:
		return m.sentAt + m.length/often
	}
	return m.sentAt + m.length/silent
}

// Tick tells the machine that time has passed.
func (m *Client) Tick(now int64) {
	switch m.check(now); {
	case now < m.beatAt():
	case m.confirmed:
		m.beat(now, Message{Kind: Beat})
	default:
		m.Disconnect()
	}
}

// check comes before each input: an input may extend the session, and what has ended must not
// come back.
func (m *Client) check(now int64) {
	if now >= m.overAt {
		m.over(Unknown, Late)
	}
}

// over ends the session.
func (m *Client) over(code Code, text string) {
	m.out = nil
	m.requests = slices.DeleteFunc(m.requests, func(r request) bool {
		if m.holds(r) {
			m.refuse(r.number, code, text)
		}
		return m.holds(r)
	})
	for i := range m.requests {
		m.requests[i].fence = 0
	}
	m.session, m.leaving, m.connected, m.endAt, m.overAt = "", false, false, never, math.MaxInt64
}

// finish leaves a member that closes, when nothing is held.
func (m *Client) finish() {
	if m.leaving && !slices.ContainsFunc(m.requests, m.holds) {
		m.over(None, "")
		m.out = append(m.out, Message{Kind: Bye})
	}
}

// tell reports the grant of a request that is held.
func (m *Client) tell(r request) {
	if m.holds(r) {
		m.news = append(m.news, Message{Kind: Granted, Number: r.number, Fence: r.fence})
	}
}

// Handle takes a message of the member from the present connection.
func (m *Client) Handle(now int64, msg *Message) {
	if m.check(now); !m.connected {
		return
	}
	switch i := m.find(msg.Number); msg.Kind {
	case Confirm:
		if m.confirmed || msg.Length > math.MaxInt64/4 {
			return
		}
		m.confirmed, m.length = true, msg.Length
		first, term := m.endAt == never, min(msg.For, m.length)
		switch end := max(m.endAt, m.sentAt+term); {
		case term > 0 && now < end-m.length/leases.Margin:
			m.endAt, m.overAt = end, end-m.length/leases.Margin
			for i := range m.requests {
				if first {
					m.tell(m.requests[i])
				}
			}
		case term > 0:
			m.over(Unknown, Late)
		case !m.known(): // the member may not act yet
			m.overAt = m.sentAt + m.length
			m.check(now)
		}
	case Granted:
		if i >= 0 && m.requests[i].fence == 0 { // it was not dropped meanwhile
			m.requests[i].fence = max(msg.Fence, 1)
			m.tell(m.requests[i])
		}
	case Refused:
		if i < 0 || !m.holds(m.requests[i]) {
			m.requests = slices.Delete(m.requests, max(i, 0), i+1)
			m.refuse(msg.Number, max(msg.Code, Busy), msg.Text) // also if it was dropped: it says who holds the lock
		}
	case Leave:
		m.leaving = true
	case Over:
		if m.over(max(msg.Code, Busy), msg.Text); msg.Code == Forbidden { // there is no session for it
			for _, r := range m.requests {
				m.refuse(r.number, msg.Code, msg.Text)
			}
			m.requests = nil
		}
	}
	m.finish()
}
