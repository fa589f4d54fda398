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
// A process that was paused may still write after another process with its number
// has replaced it. Only a resource that checks fences is safe from that; see
// package fence.
//
// # Views
//
// The members of a group are a fixed list of numbers, and at most one process
// with each number is alive at a time. The processes that go on together are a view:
// an epoch, and the members with their processes. All members agree on each view.
// It changes when a process starts, restarts or leaves, and after an event that an
// algorithm does not survive. Package membership has the protocol and its proof.
//
// In each view every lock in use has a new machine, which begins with the present
// holder. A lock that is held stays held, by the same handle and with the same
// fence. Waiting callers go on waiting. Messages of older views are dropped.
//
// No member is ever presumed dead. The group waits for a member that is down: locks
// go on unless their algorithm needs that member, and it rejoins when it is back.
// Then the locks that its former process held are free. If its machine is gone for
// good, an operator says so with [Node.Evict].
//
// Fences begin with the epoch, and epochs rise from view to view. A group in which
// every process was stopped begins again at its members' wall clocks, so fences
// still rise, unless the clocks were set back by more than the time between stop
// and start; see Config.Fence. Views are limited to one a second on average since
// the group was founded, so that epochs never overtake the clock. A group that
// changes more often stalls.
//
// # What a group survives
//
// Loss, repetition, reordering and delay of frames, lost connections and
// partitions cost time and nothing else. While a peer cannot be reached, the calls
// that need it wait; no lock is ever granted on a guess.
//
// A paused process costs time, too. If another process takes its number meanwhile,
// the paused process learns of that when it first exchanges frames with any member:
// its handles are lost, and it grants nothing more ([ErrReplaced]). While it is idle it
// exchanges none. A coordinator, or the holder of a token, needs no frame to take a lock
// itself, so until then it may. A second process
// with a number whose first process still answers is refused ([ErrNumberTaken]).
//
// Crashes of one member, several or all: see above. A message that no correct peer
// sends, an overflow or used-up fences bring a new view, with back-off, so a faulty
// member costs time. These algorithms do not survive a member that lies about the
// algorithm itself.
//
// A link that is closed while its node is open, as natslink is when its connection
// closes, does not come back. The node finds out when it next sends, grants nothing
// more ([transport.ErrClosed]), and looks crashed to the others.
//
// While more than 2 MiB sent to a peer is unacknowledged, Acquire returns
// [ErrOverflow].
//
// # One event path
//
// Every lock in use has one machine at each node. All locks of a node share one
// session to each peer, over one link.
//
//	            Acquire, Release        a frame of a peer
//	                   |                        |
//	                   v                        v
//	views -------->  locks  <------------- mail (package mail)
//	membership     machines, waiters   ---->  sessions, link
//	                                   send
//
// The goroutine that brings a frame carries it through session and machine to the
// answering frames; a goroutine that calls Acquire or Release starts at the machine.
// Only the grant itself passes from one goroutine to another, to the waiting caller.
// One more goroutine keeps time for sessions and views, and Logger and Observer.View
// have a goroutine each.
//
// Mutexes are taken in the order views, shard, mail: the mutex of the view machine,
// those of the 64 shards of the locks, and those of package mail; under all others
// nothing is locked. No mutex of a view, a lock or a session is held while a frame is
// sent, or while code of the application runs, except Config.Algorithm and the
// machines.
//
// # Several locks
//
// If one node holds A and waits for B while another holds B and waits for A, both
// wait forever. There are three ways out.
//
// Take one lock at a time, or one lock for everything. Where the work is short, this
// is also the fastest.
//
// Use [Node.AcquireAll] if the names are known in advance. It takes the locks in one
// order, so no circle forms. It holds the first locks while it waits for the rest.
//
// Use a [Txn] with Config.Deadlock if the names are not known in advance. Circles
// form, and package deadlock finds them: when a Txn that holds a lock has waited for
// another for Config.Deadlock, its node sends a probe that follows the locks to
// their holders, node by node, twice around. In each circle one Acquire ends with
// [ErrDeadlock], and its Txn releases and tries again. Detection sees only locks
// taken through a Txn, within the group. It does not find a circle of more than 64
// transactions, or a circle whose probe exceeds a frame of the link; in a probe a
// transaction takes the name of its lock and about 10 bytes. Every circle that is
// found did exist, but a wait in it may have been withdrawn since. A false probe,
// which only a faulty member sends, at worst ends a wait with ErrDeadlock.
//
// # Which leader
//
// An [Election] is a lock whose holder is announced. The machines of package
// election, which a program must drive itself, promise something else:
//
//	                                 Election        package election   with its majority rule
//	two lead at the same instant     never           possible           possible, until the older notices
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
// Use Election for work that must not be done twice at once. Use package election
// for work that must go on, where a second leader does no harm or is refused by its
// epoch. No election gives both, because nobody can tell a crash from a pause.
package node
