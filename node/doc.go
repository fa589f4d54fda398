// Package node is the runtime: it gives a process the locks of a group.
//
//	n, err := node.Open(ctx, node.Config{Self: 1, Members: ids, Algorithm: ricart.New, Link: link})
//	...
//	held, err := n.Mutex("invoices/42").Acquire(ctx)
//	if err != nil {
//		return err // no lock
//	}
//	defer held.Release()
//	// Work under held.Context(), and give held.Fence() to what you write to.
//
// # One event path
//
// For every lock in use there is one machine at every node; all locks of a
// node share one session to each peer, over one link. An arriving frame runs
// in the goroutine that brought it: session, machines, sessions, link. A call
// of Acquire or Release does the same from the machine on. Nothing is handed
// from goroutine to goroutine but the grant itself, to the one that waits for
// it, and nothing waits for the network under a lock. When several goroutines
// have something for the same peer, one of them sends it for all.
//
// # Several locks
//
// Who holds one lock and waits for another may be part of a circle of such, in
// which everybody waits for ever. There are three ways out.
//
// One lock at a time, or one lock for all: nothing to do, and the fastest where
// the work is short.
//
// [Node.AcquireAll], if the names are known beforehand: it takes them in one
// order, and there are no circles. It holds what it has while it waits for the
// rest.
//
// A [Txn] and Config.Deadlock, if the work shows which lock is next: circles
// come about, and are found by package deadlock. A Txn that holds something and
// waits for longer than that lets a probe follow the locks to their holders,
// node by node, twice around. Of each circle one Acquire ends in [ErrDeadlock],
// whose Txn releases and tries again. A lock that is held by itself, without a
// Txn, closes no circle that is found; nor does one that is held outside of the
// group, or a circle of more than 64 transactions, or one whose probe is longer
// than a frame of the link (a transaction takes its lock's name and some 10
// bytes of it). What is found was a circle, though it may be one no more if
// somebody withdrew in the last moment. A false probe, which only a faulty
// member sends, ends at worst a wait in ErrDeadlock.
//
// # What a group of fixed members survives
//
// Loss, repetition, reordering and delay of frames, lost connections and
// partitions: they cost time, and nothing else. While a peer cannot be
// reached, whatever needs it waits; no lock is ever granted on a guess.
//
// A pause of the process: the same. But a paused holder does not know the
// time; what it writes to must check fences.
//
// A crash stops the algorithms in which every node has a say, for good, and
// the central one if the coordinator crashes, or a node that holds or waits.
//
// A restart of one member fails closed. Nobody acts before all members have met
// each other; from then on, whoever meets a new life of a member grants nothing
// more ([ErrRestarted]), and does not help the new life either, which therefore
// never becomes ready.
// Locks that are held stay held until they are released. To go on, stop all
// members and start them again, in a new epoch of fences; see Config.Fence.
// A member that closes before it is ready may come back to those that have not met
// everybody either; the others grant nothing then ([ErrLeft]).
//
// A link that is closed under its node, as natslink is with its connection, does
// not come back. The node finds out when it next sends, grants nothing more
// ([transport.ErrClosed]), and to the others has crashed.
//
// An orderly Close of members is no fault. A lock stops once a request for it,
// made before or after, awaits something of one that has left
// ([dmutex.Machine.WaitsFor]): that request, those of all other members and all
// later ones end in [ErrLeft], which names who has left; who holds the lock
// keeps it. The other locks go on. What stops a lock is then
//
//   - under central, a request to a coordinator that has left;
//   - under maekawa, a request of one in whose quorum it was;
//   - under ricart.Carvalho, a request that must ask it anew;
//   - under lamport and ricart, any request that it has not answered;
//   - under ring and suzukikasami, any request of one who has not the token.
//
// # Which leader
//
// An [Election] is a lock whose holder is announced. The machines of package
// election, which a program must drive itself, promise something else:
//
//	                                 Election        package election   with its majority rule
//	two lead at the same instant     never           yes                yes, until the older notices
//	two lead in one epoch            never           never              never
//	epochs rise                      yes             yes                yes
//	a leader that crashes            is not replaced is replaced        is replaced, if a majority lives
//	a leader that is cut off         leads on, alone leads its side     leads on until it suspects enough
//	the other side of a partition    waits           elects another     elects another, if it is the majority
//	who becomes leader               who campaigns   the highest alive  the highest alive
//	hand-over                        Resign, Close   none               none
//
// So take Election for work that must not be done twice at once, and package
// election for work that must go on, and does no harm, or is refused by epoch,
// when two do it. A group of fixed members cannot have both: nobody can tell a
// crash from a pause.
//
// Too much at once, while a peer cannot be reached, is refused: when 2 MiB wait
// for its acknowledgement, Acquire says [ErrOverflow] until there is room. A
// peer to which more than 4 MiB of answers are owed breaks the group.
package node
