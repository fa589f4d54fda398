package ricart

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

// Carvalho is the algorithm with the improvement of Carvalho and Roucairol, "On Mutual
// Exclusion in Computer Networks", CACM 26(2), 1983. It is a [dmutex.Algorithm].
//
// A REPLY is a permission, and it is valid until the node that gave it asks for
// the lock itself. So a node has to ask only the peers to which it has replied
// since, and those that it has never asked. If a REQUEST comes that goes before
// its own, from a node whose permission it relied on, it replies and asks for
// the permission back: the REPLY has given it away.
//
// Mutual exclusion. Of two nodes at most one has the other's permission, and
// neither has it while a REPLY is in flight between them. In the critical
// section a node has the permission of all others, and gives none away.
//
// Progress. As for [New], because the same rule answers a REQUEST. But grants
// are in the order of stamps only where requests conflict.
//
// An entry costs between 0 and 2(N-1) messages: none while no other node asks,
// 2(N-1) at first and when all nodes ask in turn. The delay is none or two
// message hops, and one hop from a release to the next entry. The channels may
// reorder messages. A node that stops answering stops the nodes that must ask it
// and, through them, all nodes that must ask one of those.
//
// An idle node may forget its permissions: a permission is the right not to ask,
// and only its owner records it.
//
// Departures from the paper: those of [New]. As a canceled request runs its
// course, no permission comes that was not awaited.
func Carvalho(s dmutex.Start) (dmutex.Machine, error) {
	own, err := site.New(s)
	if err != nil {
		return nil, err
	}
	return site.Complete(&carvalho{newCore(own), make([]bool, len(own.Peers()))}), nil
}

// carvalho is a machine that keeps permissions. It is a [dmutex.Keeper], and no
// [dmutex.Sharer]: a permission that was given to share would stand for a request that does not.
type carvalho struct {
	core
	kept []bool // by peer: its permission is ours, and we do not owe it a REPLY
}

func (m *carvalho) Request() ([]dmutex.Message, error) {
	if fresh, err := m.Ask(dmutex.Request); err != nil || !fresh {
		return nil, err
	}
	for j, kept := range m.kept {
		if !kept {
			m.ask(j)
		}
	}
	m.tryEnter()
	return m.Out(), nil
}

func (m *carvalho) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	j, err := m.Check(msg, m.impossible)
	if err != nil {
		return nil, err
	}
	switch msg.Kind {
	case dmutex.Request:
		m.request(j, msg)
	case dmutex.Reply:
		m.reply(j, msg)
	}
	return m.Out(), nil
}

// request gives the permission away with the REPLY, now or when we leave. If that
// is now, and our pending request relied on it, we ask for it back.
func (m *carvalho) request(j int, msg dmutex.Message) {
	m.kept[j] = false
	m.core.request(j, msg)
	if m.Pending() && !m.awaiting[j] && m.deferred[j] == 0 {
		m.ask(j)
	}
}

// reply keeps the permission unless we owe that peer a REPLY.
func (m *carvalho) reply(j int, msg dmutex.Message) {
	if m.answers(j, msg) {
		m.kept[j] = m.deferred[j] == 0
	}
	m.core.reply(j, msg)
}
