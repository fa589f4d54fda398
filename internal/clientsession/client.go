package clientsession

import (
	"math"
	"slices"
)

// A Client is the client's end of one session after another. Times are nanoseconds of a clock
// that counts sleep. The driver
//
//	calls Connect when it has a connection and wants a session, with a name for a new one
//	sends what Output returns, and acts on its events, after each input
//	calls Tick at Deadline
//	drops the connection when Connected is false, and calls Disconnect when it has lost it
//	treats all that is held as lost a 16th of S before End, by a timer of its own
type Client struct {
	name      string
	session   string // empty if there is none
	told      bool   // the member knows it
	leaving   bool   // the member closes
	connected bool

	sentAt    int64 // of the last beat of this connection
	confirmed bool  // that beat was answered
	length    int64 // S, 0 until the member has told it
	began     int64
	end       int64

	links    uint64    // connections that there were
	requests []request // ascending by number
	last     uint64    // number of a request
	out      []Message
	events   []Event
}

// A request is what the client asks for, until it is dropped, refused or lost.
type request struct {
	number uint64
	lock   string
	try    bool
	fence  uint64 // 0 until it is granted
	held   bool   // and the driver knows
}

// An Event is news of a request. The code is None if it is held now, with a fence, and Lapsed or
// Unknown if it was held and is lost. Other codes refuse it.
type Event struct {
	Number uint64
	Fence  uint64
	Code   Code
	Text   string
}

const (
	margin = 16 // what is held is lost a 16th of S before its time
	often  = 6  // a beat is sent every 6th of S
	silent = 3  // a member that does not answer a beat for a 3rd of S is not reached

	// firstAnswer is how long a client waits for the first answer of a member, in nanoseconds.
	firstAnswer = 3_000_000_000

	never = math.MinInt64 / 2
)

// Late is the text of an Event of a hold that was not confirmed in time.
const Late = "no member has confirmed it in time"

// New returns a client without a session. The name is for people.
func New(name string) *Client { return &Client{name: name, end: never} }

// End returns until when what is held is valid, with the margin.
func (m *Client) End() int64 { return m.end }

// Length returns S, 0 before a member has told it.
func (m *Client) Length() int64 { return m.length }

// Confirmed reports whether the last beat of this connection was answered.
func (m *Client) Confirmed() bool { return m.confirmed }

// Connected reports whether the machine needs the connection that it has.
func (m *Client) Connected() bool { return m.connected }

// Session returns the name of the session, empty if there is none.
func (m *Client) Session() string { return m.session }

// Wanting reports whether there is a reason for a session.
func (m *Client) Wanting() bool { return m.session != "" || len(m.requests) > 0 }

// Output returns what to send and what is new since the last call. Both slices are the
// machine's, until its next input.
func (m *Client) Output() (out []Message, events []Event) {
	out, events = m.out, m.events
	m.out, m.events = m.out[:0], m.events[:0]
	return out, events
}

// Ask asks for a lock, and returns the number of the request.
func (m *Client) Ask(lock string, try bool) (number uint64) {
	m.last++
	r := request{number: m.last, lock: lock, try: try}
	if len(m.requests) >= MaxRequests {
		m.events = append(m.events, Event{r.number, 0, Full, tooMany})
		return r.number
	}
	m.requests = append(m.requests, r)
	m.ask(&r)
	return r.number
}

func (m *Client) ask(r *request) {
	if m.connected && !m.leaving {
		m.send(Message{Kind: Ask, Number: r.number, Lock: r.lock, Try: r.try})
	}
}

func (m *Client) send(msg Message) {
	if m.connected {
		m.out = append(m.out, msg)
	}
}

// Drop ends a request: the wait, or the hold.
func (m *Client) Drop(now int64, number uint64) {
	m.check(now)
	i := m.find(number)
	if i < 0 {
		return
	}
	m.requests = slices.Delete(m.requests, i, i+1)
	m.send(Message{Kind: Drop, Number: number})
	m.settle(now)
}

func (m *Client) find(number uint64) int {
	return slices.IndexFunc(m.requests, func(r request) bool { return r.number == number })
}

// Connect begins a session with this name on a new connection, or resumes the present one.
func (m *Client) Connect(now int64, fresh string) {
	if m.check(now); m.session == "" {
		m.session, m.began, m.end = fresh, now, never
	}
	m.links++
	m.connected, m.out = true, m.out[:0]
	hello := Message{Kind: Hello, Number: m.links, Session: m.session, Name: m.name, Fresh: !m.told}
	for i := range m.requests {
		hello.Wants = append(hello.Wants, m.requests[i].number)
	}
	m.sendBeat(now, hello)
	for i := range m.requests {
		if !m.requests[i].held {
			m.ask(&m.requests[i])
		}
	}
}

func (m *Client) sendBeat(now int64, msg Message) {
	m.sentAt, m.confirmed = now, false
	m.send(msg)
}

// Disconnect tells the machine that the connection is lost. The session goes on.
func (m *Client) Disconnect() {
	if m.connected = false; !m.told {
		m.over(None, "") // it is not known there, or nothing of it is known here
	}
}

// Close ends the session. What is held is given back: the driver has ended it.
func (m *Client) Close() {
	m.requests = nil
	m.over(None, "")
	m.out = append(m.out, Message{Kind: Bye})
}

// Deadline returns when Tick has something to do: [math.MaxInt64] if never.
func (m *Client) Deadline() int64 {
	at := m.overAt()
	switch {
	case !m.connected:
	case m.confirmed:
		at = min(at, m.sentAt+m.length/often)
	default:
		at = min(at, m.silentAt())
	}
	return at
}

// overAt returns when the session is over if nothing is confirmed.
func (m *Client) overAt() int64 {
	switch {
	case m.session == "" || !m.told:
		return math.MaxInt64
	case m.end == never: // the member may not act yet
		return m.began + m.length
	}
	return m.validTo()
}

func (m *Client) validTo() int64 { return m.end - m.length/margin }

func (m *Client) silentAt() int64 {
	if m.length == 0 {
		return m.sentAt + firstAnswer
	}
	return m.sentAt + m.length/silent
}

// Tick tells the machine that time has passed.
func (m *Client) Tick(now int64) {
	m.check(now)
	switch {
	case !m.connected:
	case m.confirmed && now >= m.sentAt+m.length/often:
		m.sendBeat(now, Message{Kind: Beat})
	case !m.confirmed && now >= m.silentAt():
		m.Disconnect()
	}
}

// check comes before each input: an input may extend the session, and what has ended must not
// come back.
func (m *Client) check(now int64) {
	if now >= m.overAt() {
		m.over(Unknown, Late)
	}
}

// over ends the session.
func (m *Client) over(code Code, text string) {
	m.session, m.told, m.leaving, m.connected, m.end = "", false, false, false, never
	m.out = m.out[:0]
	m.requests = slices.DeleteFunc(m.requests, func(r request) bool {
		if r.held {
			m.events = append(m.events, Event{r.number, r.fence, code, text})
		}
		return r.held
	})
	for i := range m.requests {
		m.requests[i].fence = 0
	}
}

// settle reports grants that are valid, and leaves a member that closes.
func (m *Client) settle(now int64) {
	held := false
	for i := range m.requests {
		r := &m.requests[i]
		if r.fence != 0 && !r.held && now < m.validTo() {
			r.held = true
			m.events = append(m.events, Event{Number: r.number, Fence: r.fence})
		}
		held = held || r.held
	}
	if m.leaving && !held {
		m.over(None, "")
		m.out = append(m.out, Message{Kind: Bye})
	}
}

// Handle takes a message of the member from the present connection.
func (m *Client) Handle(now int64, msg *Message) {
	if m.check(now); !m.connected {
		return
	}
	i := -1
	if msg.Kind == Granted || msg.Kind == Refused {
		if i = m.find(msg.Number); i < 0 { // it was dropped meanwhile
			return
		}
	}
	switch msg.Kind {
	case Confirm:
		if m.confirmed || msg.Length > math.MaxInt64/4 {
			return
		}
		m.told, m.confirmed, m.length = true, true, int64(msg.Length)
		if term := int64(min(msg.For, msg.Length)); term > 0 {
			m.end = max(m.end, m.sentAt+term)
		}
		m.check(now)
	case Granted:
		m.requests[i].fence = max(msg.Fence, 1)
	case Refused:
		if !m.requests[i].held {
			m.requests = slices.Delete(m.requests, i, i+1)
			m.events = append(m.events, Event{Number: msg.Number, Code: max(msg.Code, Busy), Text: msg.Text})
		}
	case Leave:
		m.leaving = true
	case Over:
		if m.over(max(msg.Code, Busy), msg.Text); msg.Code == Forbidden { // there is no session for it
			for _, r := range m.requests {
				m.events = append(m.events, Event{r.number, 0, msg.Code, msg.Text})
			}
			m.requests = nil
		}
	}
	m.settle(now)
}
