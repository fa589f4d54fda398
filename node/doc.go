// Package node is the runtime: it gives a process the locks of a group.
//
//	n, err := node.Open(ctx, node.Config{Self: 1, Members: ids, Algorithm: ricart.New, Link: link})
//	...
//	held, err := n.Mutex("invoices/42").Acquire(ctx)
//	if err != nil {
//		return err // no lock
//	}
//	defer held.Release()
//	// Work under held.Context(), and pass held.Fence() to what you write to.
//
// A paused process may write after it was replaced by another one with its
// number. Only a resource that checks fences is safe from that; see package
// fence.
//
// # Views
//
// The members of a group are a fixed list of numbers, and at most one process
// with each number is alive at a time. The processes that go on together are a view:
// an epoch, and the members with their processes. A view is agreed by all
// members and changes when a process starts, restarts or leaves, and when
// something has happened that an algorithm does not survive. Package membership
// has the protocol and its proof.
//
// Each lock has one machine a view, born with the holder that is carried over. A
// lock that is held stays held, by the same handle and with the same fence.
// Callers that wait go on waiting. Messages of older views are dropped.
//
// No member is ever presumed dead. A member that is down is waited for: locks go on
// for as long as their algorithm does not need it, and it is taken in when it is
// back. What its former process held is free then. If its machine is gone for
// good, an operator says so by [Node.Evict].
//
// Fences begin with the epoch, and epochs rise from view to view. A group that was
// stopped as a whole begins at its members' wall clocks, so fences rise from then on
// too, if clocks are not set back by more than the time between; see
// Config.Fence. A view acts no earlier than a second per epoch after the group was
// founded, so that epochs never overtake the clock: a group that changes more
// than once a second on average stalls.
//
// # What a group survives
//
// Loss, repetition, reordering and delay of frames, lost connections and
// partitions cost time and nothing else. While a peer cannot be reached, whatever
// needs it waits; no lock is ever granted on a guess.
//
// A pause of a process does the same. If another process has taken its number
// meanwhile, the paused one learns of that from the first frame that it exchanges
// with any member: its handles are lost, and it grants nothing more
// ([ErrReplaced]). A second process with the number of one that still answers
// is refused ([ErrNumberTaken]).
//
// A crash of one member or several, and of all at once: see above. A message that no
// correct peer sends, an overflow and used-up fences bring a new view, ever more
// rarely: a faulty member costs time. A member that lies about the algorithm
// itself is beyond these algorithms.
//
// A link that is closed under its node, as natslink is with its connection, does
// not come back. The node finds out when it next sends, grants nothing more
// ([transport.ErrClosed]), and to the others has crashed.
//
// When more than 2 MiB wait for a peer's acknowledgement, Acquire returns
// [ErrOverflow] until there is room.
//
// # One event path
//
// For every lock in use there is one machine at every node; all locks of a
// node share one session to each peer, over one link.
//
//	            Acquire, Release        a frame of a peer
//	                   |                        |
//	                   v                        v
//	views -------->  locks  <------------- mail (package mail)
//	membership     machines, waiters   ---->  sessions, link
//	                                   send
//
// The concurrency of a node in five sentences. A frame runs from the link through
// session and machine to the answering frames in the goroutine that brought it,
// and a call of Acquire or Release does the same from the machine on. Nothing
// is handed from goroutine to goroutine but the grant itself, to the caller that waits
// for it. There are three kinds of mutexes, taken in the order views, shard, mail:
// that of the view machine, those of 64 shards of the locks, and those of package
// mail; all others are leaves, under which nothing else is taken. No mutex is
// held while a frame is sent, or while code of the application runs. One goroutine
// keeps time, and each of Logger and Observer.View has one to be told in.
//
// # Several locks
//
// If one node holds A and waits for B while another holds B and waits for A, both
// wait forever. There are three ways out.
//
// One lock at a time, or one lock for everything: nothing to do, and the fastest
// where the work is short.
//
// [Node.AcquireAll], if the names are known in advance: it takes them in one
// order, so there are no circles. It holds what it has while it waits for the
// rest.
//
// A [Txn] and Config.Deadlock, if the work shows which lock is next: circles
// come about, and are found by package deadlock. A Txn that holds something and
// waits for longer than that lets a probe follow the locks to their holders,
// node by node, twice around. Of each circle one Acquire ends in [ErrDeadlock],
// and its Txn releases and tries again. Detection sees only locks taken through a
// Txn, within the group. It does not find a circle of more than 64 transactions, nor
// one whose probe is longer than a frame of the link (a transaction takes its
// lock's name and some 10 bytes of it). What is found was a circle, though a wait
// of it may have been withdrawn in the last moment. A false probe, which only a faulty
// member sends, at worst ends a wait in ErrDeadlock.
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
//	a leader that crashes            is replaced     is replaced        is replaced, if a majority lives
//	                                 when it is back
//	                                 or evicted
//	a leader that is cut off         leads on, alone leads its side     leads on until it suspects enough
//	the other side of a partition    waits           elects another     elects another, if it is the majority
//	who becomes leader               a candidate     the highest alive  the highest alive
//	hand-over                        Resign, Close   none               none
//
// Use Election for work that must not be done twice at once, and package
// election for work that must go on, and does no harm, or is refused by epoch,
// when two nodes do it. A group in which nobody is presumed dead cannot have both.
package node
