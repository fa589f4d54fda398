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
// has replaced it, or after its lease has ended. Only a resource that checks fences
// is safe from that; see package fence.
//
// A group has one of two modes. In the strict mode, which is above, the members are a
// fixed list of numbers, and a member that crashes is waited for. With Config.Store
// members come, go and crash, and a record in a store says who is a member: that is the
// lease mode.
//
// # Views
//
// The processes that go on together are a view: an epoch, and the members with their
// processes. A view changes when a process starts, restarts or leaves, and after an
// event that an algorithm does not survive. In the strict mode all members agree on
// each view, and in the lease mode the record decides it. Package membership has both
// protocols and their proofs.
//
// In each view every lock in use has a new machine, which begins with the present
// holder. A lock that is held stays held, by the same handle and with the same
// fence. Waiting callers keep waiting. Messages of older views are dropped.
//
// Fences begin with the epoch, and epochs rise from view to view. They are milliseconds
// of the members' wall clocks, unless a group changes more than once in each.
//
// In the strict mode at most one process with each number is alive at a time, and no
// member is ever presumed dead. The group waits for a member that is down: locks go on
// unless their algorithm needs that member, and it rejoins when it is back. Then the
// locks that its former process held are free. If its machine is gone for good, an
// operator says so with [Node.Evict]. A group in which every process was stopped
// begins again at its members' wall clocks, so fences still rise, unless the clocks
// were set back by more than the time between stop and start; see Config.Fence.
//
// # Leases
//
// With Config.Store the members are in one small record in a store that the user
// already runs, such as a database or a JetStream bucket; see package store. If the
// store is away for a lease, all locks of the group are lost, and none is granted until
// it is back. An outage of up to two fifths of a lease costs nothing; in between it
// depends on when the leases were last renewed.
//
// Config.Self and Config.Members stay empty. When a process joins, the record gives it a
// number, which is never used again, and tells it the addresses of the others. Each
// member asks the store every third of a lease whether it still is one, and writes
// when it joins, leaves or excludes another. No lock is ever taken in the store.
//
// A member may hold locks until Config.Lease after it sent the last operation that
// confirmed its membership, by its own clock. A sixteenth of a lease before that, the
// locks that it holds are lost: [Held.Context] ends, with [ErrLost] and [ErrLease]. In
// that last sixteenth nobody else gets them, so a holder that stops at once is alone. What
// is lost stays lost. A later renewal brings nothing back, and a grant that arrives
// without a valid lease is given back. When two thirds of the lease have passed,
// [Held.Suspended] and Observer.Lease say that the renewal is late.
//
// A member that the others do not hear from is excluded:
//
//	after an eighth of a lease   the others count it as away
//	a third of a lease later     one of them removes it from the record;
//	                             up to a whole lease later if several are missing
//	1.02 leases after that       its own lease has ended by any clock, and grants resume
//
// So its locks are freed about one and a half leases after a crash. During the last step
// nothing is granted in the whole group, even if the member held no lock. Locks that
// other members hold stay held. A member that leaves by [Node.Close] costs no such wait.
//
// An excluded process that still runs learns of it from the store. Its locks are lost
// ([ErrExcluded]), it rejoins by itself as another life, under another number and with new
// sessions, and its waiting calls keep waiting. An outage that takes the link and the store
// away together excludes nobody, even if one member is back before the others. A process that reaches the others but not the store stays a member. It
// loses its locks at the end of its lease, and is granted nothing until the store
// answers: Acquire waits, and mentions [ErrStore] if its context ends, while TryAcquire
// returns ErrStore at once. A process that has not acted yet stops with
// [store.ErrUnusable] if the store says that only an operator can mend it.
//
// A new record waits for 1.02 leases before the first grant, because it may have taken
// the place of one that was lost. A group that all members have left cleanly begins
// again without a wait. A group that crashed as a whole first excludes its former members.
//
// If the record is deleted, nonsense or older than it was, all members stop with
// [ErrRecord], rather than use an epoch twice. While the record is not lost,
// fences rise, whatever the wall clocks say.
//
// The lease mode assumes three things that the strict mode does not. The store is
// linearizable and forgets nothing that it has acknowledged. The clocks of the
// processes run at the right rate within 1 %; their times do not matter, but a wall
// clock that is set forward may end a lease early, because it looks like a machine
// that slept. And a holder stops when its lease has ended. A process that is paused
// cannot stop: only fences protect a resource from it.
//
// # What a group survives
//
// Loss, repetition, reordering and delay of frames, lost connections and
// partitions cost time and nothing else. While a peer cannot be reached, the calls
// that need it wait; no lock is ever granted on a guess.
//
// A paused process costs time, too. In the lease mode it is excluded if the pause is
// long. In the strict mode another process may take its number meanwhile. Then
// the paused process learns of that when it first exchanges frames with any member:
// its handles are lost, and it grants nothing more ([ErrReplaced]). When it goes on
// after a pause it asks its peers at once. A process that was cut off does not notice
// that by itself: while it is idle it exchanges nothing, and until it does, a
// coordinator, or the holder of a token, may take a lock itself. A second process with
// a number whose first process still answers is refused ([ErrNumberTaken]).
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
// One more goroutine keeps time for sessions and views. Logger has a goroutine, and so
// have Observer.View and Observer.Lease together, and each operation of a store.
//
// Lock order: view machine, locks, mail, link. No other mutex is held while one is
// taken. None of the first three is held while a frame is sent, or while code of the
// application runs, except Config.Algorithm and the machines.
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
// order, so no cycle forms. It holds the first locks while it waits for the rest.
//
// Use a [Txn] with Config.Deadlock if the names are not known in advance. Cycles
// form, and package deadlock finds them: when a Txn that holds a lock has waited for
// another for Config.Deadlock, its node sends a probe that follows the locks to
// their holders, node by node, twice around. In each cycle one Acquire ends with
// [ErrDeadlock], and its Txn releases and tries again. Detection sees only locks
// taken through a Txn, within the group. It does not find a cycle of more than 64
// transactions, or a cycle whose probe exceeds a frame of the link; in a probe a
// transaction takes the name of its lock and about 10 bytes. Every cycle that is
// found did exist, but a wait in it may have been withdrawn since. A false probe,
// which only a faulty member sends, at worst ends a wait with ErrDeadlock.
//
// # Which leader
//
// An [Election] is a lock whose holder is announced. The machines of package
// election, which a program must drive itself, promise something else:
//
//	                               Election         Election           package            the same with its
//	                               strict           with a store       election           majority rule
//	two lead at the same instant   never            only if the older  possible           possible, until the
//	                                                ignores its end                       older notices
//	two lead in one epoch          never            never              never              never
//	epochs rise                    yes              yes                yes                yes
//	a leader that crashes          is replaced      is replaced after  is replaced        is replaced, if a
//	                               when it is back  about 1.5 leases                      majority lives
//	                               or evicted
//	a leader that is cut off       leads on, alone  is told to stop    leads its side     leads on until it
//	                                                within a lease                        suspects enough
//	the other side of a partition  waits            elects another if  elects another     elects another, if
//	                                                it has the store                      it is the majority
//	who becomes leader             a candidate      a candidate        the highest alive  the highest alive
//	hand-over                      Resign, Close    Resign, Close      none               none
//
// Use Election for work that must not be done twice at once, with a store if it must
// also survive crashes. Use package election for work that must go on without a store,
// where a second leader does no harm or is refused by its epoch. No election gives both
// for certain, because nobody can tell a crash from a pause.
package node
