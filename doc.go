// Package dmutex is distributed mutual exclusion by message passing, with no
// lock server: each node of a group runs a small state machine for each lock,
// and the machines talk over whatever network the application already has.
//
// This package is the words that all others speak. Who wants a lock, reads
// package node. Who wants to see, test or drive an algorithm itself, stays
// here: every algorithm is a [Machine] that does no I/O, starts no goroutine,
// reads no clock and draws no random number.
//
// # The driving loop
//
// A machine is driven by one goroutine at a time (or under a mutex). Whatever
// a call returns is to be sent, and whatever arrives is to be handled:
//
//	m, err := ricart.New(dmutex.Start{Self: 1, Members: []dmutex.NodeID{1, 2, 3}})
//	if err != nil {
//		return err // the Start is not lawful
//	}
//	out, err := m.Request() // a local wish
//	send(out)
//	for m.Phase() != dmutex.Held { // a grant is a phase, not an event
//		out, err = m.Handle(<-arrived)
//		if errors.Is(err, dmutex.ErrPeer) {
//			log.Print(err) // no correct peer sends this; nothing has changed
//		}
//		send(out) // before the next call, which overwrites it
//	}
//	write(m.Fence()) // the critical section
//	out, err = m.Release()
//	send(out)
//
// While it is Idle or Held the machine still has to Handle what arrives, for
// the others wait for its answers. send must deliver each message exactly once
// to the machine of node To; package transport/session makes any network do
// that, in order per pair. With no network at all the loop is a unit test:
// hand the messages over yourself, in any order you like.
//
// # The algorithms
//
// N is the number of nodes, a message to oneself is none, T is the time of one
// message. The first delay is from request to entry when nobody else is
// interested, the second from a release to the next waiting entry.
//
//	package   paper                          messages per entry   delay     next   channels         one crash stops
//	central   folklore                       3; 0 coordinator's   2T; 0     2T     exactly once     if coordinator or holder: all
//	ricart    Ricart and Agrawala, CACM '81  2(N-1)               2T        T      exactly once     all
//
// Textbook algorithms assume that processes do not fail; a crash costs
// progress, never exclusion.
//
// # Fences
//
// Every grant has a number, the fence, that rises from grant to grant of one
// lock; see [Site] for the rule. Hand it to the resource that the lock guards,
// and let the resource refuse a number lower than one it has seen: a holder
// that was paused for long cannot know that it should have stopped. A fence is
// epoch<<40 | counter; in a group of fixed members the epoch is 0 and, where
// nothing was forgotten in between, the n-th grant has fence n.
package dmutex
