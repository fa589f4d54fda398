package clientsession

import (
	"slices"

	"github.com/dmutex/dmutex/internal/leases"
)

// A Member is the member's side of one session. Times are nanoseconds of a clock that does not run
// ahead when the wall clock is set: locks must not be given back too soon. The driver
//
//	passes on the messages of the newest connection of the session, and no others: that of a Hello
//	is the newest if Newer says so
//	gives with each the time for which this member may surely hold locks
//	sets Code and Text of a request that is not allowed, and Text of a Drop while the request waits:
//	who holds the lock
//	sends what Output returns, and follows its orders, after each input: an Ask is to take a lock,
//	and a Drop to end that, whether the lock was granted or not. With a Code the session has ended
//	without the client's word, and the lock is freed as package clientsession says. Moved is to tell the
//	other members that the lock is free of the one that the claim names last
//	calls Tick at Deadline, Close when this member closes, and End when it has lost its locks
//	forgets the session when it is Over
type Member struct {
	side
	length int64 // S
	drain  int64 // D

	link    uint64 // number of the newest connection
	overAt  int64
	leaving bool
	heard   bool // the client has answered that
	over    bool
}

// NewMember returns the member's side of a session that begins with a Hello. S is in nanoseconds.
func NewMember(now, length int64) *Member {
	return &Member{length: length, drain: leases.Drain(length), overAt: now + leases.Drain(length)}
}

// Over reports whether the session is over.
func (m *Member) Over() bool { return m.over }

// Newer reports whether the connection of this number is newer than those before. If so, it is the
// newest from now on. An old hello must not end what was asked for since.
func (m *Member) Newer(link uint64) (newer bool) {
	newer = link > m.link
	m.link = max(m.link, link)
	return newer
}

// Deadline returns when the session runs out.
func (m *Member) Deadline() int64 { return m.overAt }

func (m *Member) send(msg Message) { m.out = append(m.out, msg) }

// Tick tells the machine that time has passed.
func (m *Member) Tick(now int64) {
	if now >= m.overAt {
		m.End(Unknown, "no beat has come in time")
	}
}

// End ends the session. All that the client has is given back.
func (m *Member) End(code Code, text string) {
	if !m.over {
		m.over, m.leaving = true, true
		m.drop(code, func(request) bool { return true })
		m.send(Message{Kind: Over, Code: code, Text: text})
	}
}

// Close tells the client that this member closes. The session is over when the client has given
// back what it holds, or when it has run out.
func (m *Member) Close() {
	if !m.leaving {
		m.leaving = true
		m.drop(None, func(r request) bool { return r.fence == 0 })
		m.send(Message{Kind: Leave})
	}
}

// Handle takes a message of the client. This member may surely hold locks for so long, by its own
// lease.
func (m *Member) Handle(now, term int64, msg *Message) {
	if m.Tick(now); m.over {
		return
	}
	switch msg.Kind {
	case Hello:
		m.drop(None, func(r request) bool { return !slices.Contains(msg.Wants, r.number) })
		m.beat(now, term)
		if m.leaving {
			m.send(Message{Kind: Leave})
		}
	case Beat:
		m.beat(now, term)
	case Ask:
		m.ask(msg)
	case Drop:
		if m.Awaits(msg.Number) != "" {
			m.Refuse(msg.Number, max(msg.Code, Busy), msg.Text)
		} else if m.drop(None, func(r request) bool { return r.number == msg.Number }); m.leaving {
			m.send(Message{Kind: Refused, Number: msg.Number, Code: Unknown, Text: "it is released"}) // else the client cannot know
		}
	case Leave:
		m.heard = true
	case Moved:
		if i := m.find(msg.Number); i >= 0 && m.requests[i].fence != 0 && len(m.requests[i].of) > 0 {
			m.news = append(m.news, Message{Kind: Moved, Number: msg.Number})
		}
	case Bye:
		m.drop(None, func(request) bool { return true })
		m.End(Unknown, "the client has ended it")
	}
}

func (m *Member) beat(now, term int64) {
	if m.leaving {
		term = 0
	} else {
		m.overAt = max(m.overAt, now+m.drain)
	}
	m.send(Message{Kind: Confirm, For: max(min(term, m.length), 0), Length: m.length})
}

func (m *Member) ask(msg *Message) {
	switch i := m.find(msg.Number); {
	case i >= 0 && m.requests[i].fence != 0: // again, on another connection
		m.Granted(msg.Number, m.requests[i].fence, m.requests[i].by)
	case i >= 0 || m.leaving:
	case msg.Code != None:
		m.Refuse(msg.Number, msg.Code, msg.Text)
	case len(m.requests) >= MaxRequests:
		m.Refuse(msg.Number, Full, tooMany)
	default:
		r := request{number: msg.Number, lock: msg.Lock, try: msg.Try, shares: msg.Shares, of: slices.Clone(msg.Of), via: msg.Session}
		m.requests, m.news = append(m.requests, r), append(m.news, r.order())
	}
}

// Settled reports whether nothing that the client has released before it heard that this member closes is on
// its way.
func (m *Member) Settled() bool {
	return m.heard || !slices.ContainsFunc(m.requests, func(r request) bool { return r.fence != 0 })
}

// Moved returns what the client holds and had held by another member.
func (m *Member) Moved() (locks []string) {
	for _, r := range m.requests {
		if r.fence != 0 && len(r.of) > 0 {
			locks = append(locks, r.lock)
		}
	}
	return locks
}

// Awaits returns the lock that a request waits for, empty if it does not wait.
func (m *Member) Awaits(number uint64) string {
	if i := m.find(number); i >= 0 && m.requests[i].fence == 0 {
		return m.requests[i].lock
	}
	return ""
}

// Refuse ends a request that is not granted, or did not become one, and tells the client why.
func (m *Member) Refuse(number uint64, code Code, text string) {
	m.drop(None, func(r request) bool { return r.number == number })
	m.send(Message{Kind: Refused, Number: number, Code: code, Text: text})
}

// drop ends requests, the last first: none of them is granted because another one is given back.
// code says why the session is over, None if it goes on.
func (m *Member) drop(code Code, which func(request) bool) {
	for i, r := range slices.Backward(m.requests) {
		if which(r) {
			m.requests = slices.Delete(m.requests, i, i+1)
			m.news = append(m.news, Message{Kind: Drop, Number: r.number, Code: code})
		}
	}
}

// Granted tells the machine that a lock was taken, which it has not ordered to drop since, by the
// member of that number.
func (m *Member) Granted(number, fence, node uint64) {
	r := &m.requests[m.find(number)]
	r.fence, r.by = fence, node
	m.send(Message{Kind: Granted, Number: number, Fence: fence, Node: node})
}
