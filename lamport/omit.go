package lamport

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// OmitReplies is the algorithm without the replies that tell nothing new: a
// node answers no REQUEST while it has a request of its own, pending (withdrawn
// or not) or held. It has the shape of [dmutex.Algorithm]. Nodes with and
// without it work together.
//
// This is right because a REPLY serves only L1, and something else serves as
// well. If our request is the later one, our REQUEST does: it was sent to the
// same peer before theirs came here, and is there sooner than a REPLY would be.
// If ours goes first, our RELEASE does: it is sent after theirs came, so it is
// later, and by L2 they await it anyway. So nobody enters any later than with
// all replies; and of the requests that are pending or held, the first waits for
// no RELEASE but those already sent. The channels must keep the order all the
// same: a RELEASE that overtakes its REQUEST leaves it in the queue.
//
// An entry costs 2(N-1) messages if everybody always requests, and 3(N-1) if
// nobody else does. The paper itself, in a footnote to its rule 2, omits a REPLY
// if any message stamped later than the request has been sent to the same node
// already. The rule in textbooks (Singhal and Shivaratri, Advanced Concepts in
// Operating Systems, 1994) omits a REPLY only if our request is the later one.
// That saves messages only when requests cross, and none if everybody always
// requests: a node that asks anew has heard of all other requests, and goes after
// them.
func OmitReplies(s dmutex.Start) (dmutex.Machine, error) {
	site, err := dmutex.NewSite(s)
	if err != nil {
		return nil, err
	}
	return &omitting{*newMachine(site, s.Holder)}, nil
}

// omitting is a machine that omits replies.
type omitting struct{ machine }

// Handle does what the plain machine does, and omits the REPLY if we have a
// request of our own: our REQUEST is later, or our RELEASE will be.
func (m *omitting) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	ours := !m.Idle()
	out, err := m.machine.Handle(msg)
	if ours {
		out = slices.DeleteFunc(out, func(o dmutex.Message) bool { return o.Kind == dmutex.Reply })
	}
	return out, err
}
