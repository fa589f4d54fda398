// Package clientsession has the rules of a session between a client, which is no member of the
// group, and the member that takes locks for it, as machines without I/O: [Client] and [Member]
// are its two sides.
//
// # The rules
//
// The client sends beats, and the member confirms each of them for some time.
//
//	validity   what the client holds is valid until that time has passed since it sent the last
//	           beat that was confirmed, by its own clock, less a margin. Then it is lost for
//	           good, and so is the session. It sends no beat before the last was answered
//	own lease  the member confirms for S, and never for longer than it may surely hold locks
//	           itself: its own lease. If it loses its locks, all its sessions are over
//	freeing    the member gives back what the client holds when D has passed since it
//	           received the last beat. D = S(1+rho)/(1-rho), see package leases
//	closing    a member that closes confirms nothing more, and its sessions go on until it has left the
//	           record. The last member waits until each client has given back what it holds, or
//	           its session has run out
//	resuming   a session outlives its connection. On the next one the client says what it
//	           still wants: the member gives back everything else, and the client asks again
//	           for what it waits for. Nothing from the former connection counts any more,
//	           and if its hello comes late, the member refuses it: connections are numbered
//
// A client whose session is over begins another one, with this member or another. It asks again
// for what it waited for. What it held is lost.
//
// # Claims
//
// A client's locks outlive its member. Only the member A knew what its client holds, and the client
// knows, too: it carries the evidence. T is until when what it holds by A is valid.
//
//	asking     a client that does not reach A, or whose connection ends while A closes, begins a trial session
//	           with another member B. When B has confirmed that, the client claims each lock that it holds: it
//	           asks for it, with Of: the member by which it holds the lock, and those that it left for that one.
//	           There is one trial at a time. After a trial the client tries A again
//	taking     B takes the claim if none of Of is in its view, the last of Of is a former member
//	           that may hold the lock, and the lock is free of, or cleared of, every former that is
//	           not in Of. Else B refuses at once. It requests the lock before the wait for Of is over
//	going on   the client goes on with B if B's grant of this request comes before T and within the
//	           session with B, which covers the lock from then on. The client keeps its old fence.
//	           What B has not granted by T is lost then
//	freeing    what a client has when its session ends without its word, A frees only after an
//	           operation on the record that was sent after that end has shown A as a member
//	parting    going on with B, the client says nothing to A any more
//	last word  A member that closes hears no client any more, and then tells the others which client has which
//	           lock. A client claims only in the name of the session by which it holds the lock, so B refuses
//	           a false claim. After a crash nobody knows
//	moved      going on with B, the client says so. If A has said its last word, the lock is free of A then, for
//	           all members
//	released   what the client releases while A is not reached, or closes and does not answer, it claims, and
//	           gives back at B. A asks its clients whether they have heard that it closes, before it is deaf
//	own grant  B's request for a claim serves that claim only: if it is dropped, or its session
//	           ends, the grant goes to no other waiter of B, who waits for A as everybody
//	over       that A says that the session is over ends no hold: T does
//
// # Why it is right
//
// The member received the last beat after the client had sent it. So the client ends less than
// S/(1-rho) of true time after the beat was sent, and the member gives the lock back at least
// D/(1+rho) after that, which is the same. This needs no word about how long messages take.
//
// If the member is excluded, its locks are free when the others have waited for its lease. Let the
// lease L begin at the true time t0, and let the member receive a beat at tr, sent at ts. Its word
// is good for at most L-(tr-t0)(1-rho), so it ends at the client by
// ts+(L-(tr-t0)(1-rho))/(1-rho), which is not after t0+L/(1-rho), where the lease ends. So a
// client needs no other wait than the member itself. But the proof that a member's process is
// dead says nothing about its clients: where it serves clients, nobody may skip the wait.
//
// While T runs, A is Held for the client in every view in which A acts. If the client goes on with
// B before T, B acts in a view without A, so A was excluded, or has left, before. A frees the lock
// without the client's word only after an operation that cannot exist. So A's hold is a dead one,
// and everybody else requests the lock only after the wait for A, and so behind B. A wrong or late
// claim gives B a hold that nobody uses.
//
// When the client has moved, A's hold is a dead one, and B has the lock for the client in its view. So the lock
// is free of A. That is not so if somebody else says it who never held the lock by A: then the client and the next
// one would both hold it. So it counts only where A itself has named the session, and only A, the client, and the
// members know that name.
package clientsession

import (
	"slices"

	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/protocol"
)

// A Kind says what a message is.
type Kind uint8

// The kinds of messages, first those of the client.
const (
	Hello Kind = iota + 1 // begins or resumes the session on a new connection, and is a beat
	Beat
	Ask   // for a lock; with Of it is a claim
	Drop  // a request: whether it waits or is granted. One that waits is Refused
	Bye   // the session is over, with all that it has
	Moved // the client goes on with the claim that was granted, and not with the member that it names
	Confirm
	Granted
	Refused
	Leave // the member closes: finish, and go elsewhere; the client's answer comes behind what it has released before
	Over  // the session is over

	Kinds
)

// A Code says why a request is refused or a session is over.
type Code uint8

// The codes.
const (
	None      Code = iota
	Busy           // the lock is held, and the request was a try
	Forbidden      // the client may not have the lock, or no session
	Full           // the client or the member has too much of something
	Failed         // see the text
	Unknown        // the member does not know the session, or not any more
	Lapsed         // the member has lost its own locks

	Codes
)

const (
	// MaxRequests is how many requests a client may have at a time, with what it holds. A hello
	// that names more is malformed: a lower bound would refuse clients of older releases.
	MaxRequests = 1000

	// MaxOf is how many members a claim names at most, the last of them.
	MaxOf = 8

	tooMany = "the client asks for too many locks at a time"
)

// A Message has the fields that its kind needs. The others are zero.
type Message struct {
	Kind   Kind
	Number uint64 // of the request: Ask, Drop, Granted, Refused; of the connection: Hello

	Speaks  protocol.Versions // Hello
	Session string            // Hello: drawn by the client, so that nobody can guess it; Ask: of a claim, that by which the lock is held
	Name    string            // Hello: of the client, for people
	Fresh   bool              // Hello: begins the session if it is not there
	Wants   []uint64          // Hello: the requests that were asked for and not dropped

	Lock string   // Ask
	Try  bool     // Ask: do not wait for a holder
	Of   []uint64 // Ask: of a claim, the members by which the client held the lock, the last at the end

	Shares bool // Ask: hold the lock with others that share it

	Fence uint64 // Granted
	Node  uint64 // Granted: the number of the member

	For    int64 // Confirm: the nanoseconds that the last beat is confirmed for, from its sending; 0 is none
	Length int64 // Confirm: S, in nanoseconds

	Code Code   // Refused, Over; Ask: why the driver does not allow it, Drop: why the session is over, which is not sent
	Text string // Refused, Over, Ask
}

// A request is what a client asks for, at either side, until it is dropped, refused or lost.
type request struct {
	number uint64
	lock   string
	try    bool
	shares bool
	fence  uint64   // 0 until it is granted
	of     []uint64 // at the client those by which it was held; at the member those that a claim names
	by     uint64   // at the member: its number, when it is granted
	via    string   // the name of the session by which the client holds it; at the member that of a claim

	// At the client, T of the member by which it is held: it runs if the client goes on with
	// another one, which has not granted the claim yet.
	left    leases.Term
	claimed bool // at the client: the claim is not answered yet

	released bool // at the client: it is held no more, but the member may not have heard so
}

func (r *request) order() Message {
	return Message{Kind: Ask, Number: r.number, Lock: r.lock, Try: r.try, Shares: r.shares, Of: r.of, Session: r.via}
}

// A side is what both sides of a session have.
type side struct {
	requests []request // ascending by number at the client, in the order in which they came at the member
	out      []Message // to send
	news     []Message // for the driver: what has become of requests, or what to do
}

func (s *side) find(number uint64) int {
	return slices.IndexFunc(s.requests, func(r request) bool { return r.number == number })
}

// Output returns what to send, and the news for the driver, since the last call: until the next input.
func (s *side) Output() (out, news []Message) {
	out, news = s.out, s.news
	if s.out, s.news = out[:0], news[:0]; cap(out)+cap(news) > 8 {
		s.out, s.news = nil, nil // an idle session keeps little
	}
	return out, news
}

// Locks returns what the client holds and waits for.
func (s *side) Locks() (held, waited []string) {
	for _, r := range s.requests {
		if r.released {
			continue
		}
		if r.fence != 0 {
			held = append(held, r.lock)
		} else {
			waited = append(waited, r.lock)
		}
	}
	return held, waited
}
