package lamport

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

// OmitReplies is the algorithm without the replies that carry no news: a node
// answers no REQUEST while it has a request of its own, pending (withdrawn or
// not) or held. OmitReplies is a [dmutex.Algorithm]. Nodes that use it and
// nodes that use [New] work together.
//
// This is right because a REPLY serves only L1, and another message serves L1 as well. If
// our request is the later one, our REQUEST serves: we sent it before the peer's request
// arrived here, so it arrives sooner than a REPLY would. If our request goes first, our
// RELEASE serves: we send it after the peer's request arrived, so it is later, and by L2
// the peer awaits it anyway. If both share, the peer does not await it: then we reply. So no
// node enters later than with all replies; and of the requests that are pending or held, the
// first waits for no RELEASE that is not already sent. The channels must still keep the order:
// a RELEASE that overtakes its REQUEST leaves it in the queue.
//
// An entry costs 2(N-1) messages if all nodes always request, and 3(N-1) if no other node
// does. The paper itself, in a footnote to its rule 2, omits a REPLY if any later message
// has been sent to the same node already. The rule in textbooks (Singhal and Shivaratri,
// Advanced Concepts in Operating Systems, 1994) omits a REPLY only if our request is the
// later one, which saves messages only when requests cross.
func OmitReplies(s dmutex.Start) (dmutex.Machine, error) {
	own, err := site.NewShared(s)
	if err != nil {
		return nil, err
	}
	return site.Complete(&omitting{*newMachine(own, s)}), nil
}

// omitting is a machine that omits replies.
type omitting struct{ machine }

// Handle does what the plain machine does, and omits the REPLY if we have a
// request of our own: our REQUEST is later, or our RELEASE will be.
func (m *omitting) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	ours := !m.Idle()
	if together := msg.Kind == dmutex.Share && m.Shared(); together && m.Stamp().Less(dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}) {
		ours = false // the peer does not await our RELEASE
	}
	out, err := m.machine.Handle(msg)
	if ours {
		out = slices.DeleteFunc(out, func(o dmutex.Message) bool { return o.Kind == dmutex.Reply })
	}
	return out, err
}
