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
// # Two modes
//
// In the strict mode, which is above, the members are a fixed list of numbers. At most
// one process with each number is alive at a time, and no member is ever presumed dead:
// the group waits for one that is down, and it rejoins when it is back. If its machine is
// gone for good, an operator says so with [Node.Evict].
//
// In the lease mode, with Config.Store, members come, go and crash, and a small record in
// a store lists them; see package store. Config.Self and Config.Members stay empty: the
// record gives each process a number, and tells it the addresses of the others. A member
// asks the store every third of a lease whether it still is one. No lock is ever taken in
// the store.
//
// A member may hold locks until Config.Lease after it sent the last operation that
// confirmed its membership, by its own clock. A sixteenth of a lease before that, the
// locks that it holds are lost: [Held.Context] ends, with [ErrLost] and [ErrLease].
// Nobody else gets them in that last sixteenth, so a holder that stops at once is alone.
// What is lost stays lost. After two thirds of the lease, [Held.Suspended] and
// Observer.Lease say that the renewal is late.
//
// A member that the others do not hear from is excluded, and its locks are freed about
// one and a half leases after a crash, or one over TCP if its machine goes on. If it still
// runs, its locks are lost ([ErrExcluded]), it rejoins by itself under another number, and
// its waiting calls keep waiting. While a process does not reach the store, it is granted
// nothing after its lease: Acquire waits, and TryAcquire returns [ErrStore]. If the record
// is deleted or restored, all members stop with [ErrRecord]. docs/modes.md compares the
// modes, and has the times of a lease and what it assumes.
//
// # Views
//
// The processes that go on together are a view: an epoch, and the members with their
// processes. A view changes when a process starts, restarts or leaves, and after an
// event that an algorithm does not survive, such as a message that no correct peer sends.
// In each view every lock in use has a new machine, which begins with the present holder.
// A lock that is held stays held, by the same handle and with the same fence. Waiting
// callers keep waiting. Messages of older views are dropped. Package membership has the
// protocols of both modes and their proofs.
//
// The coordinator of a lock under package central, and the member where its token begins
// under suzukikasami and ring, is the lock's home: a member that follows from the lock's
// name and the view. Each member is the home of about as many locks, and if one comes or
// goes, only its own move. A lock costs no message at its home, if no other member wants it.
//
// Fences begin with the epoch, and epochs rise from view to view. They are milliseconds
// of the members' wall clocks, unless a group changes more than once in each. With a
// store they rise whatever the clocks say; without one see Config.Fence.
//
// # What a group survives
//
// Loss, repetition, reordering and delay of frames, lost connections and
// partitions cost time and nothing else. While a peer cannot be reached, the calls
// that need it wait; no lock is ever granted on a guess.
//
// A process that was paused or cut off in the strict mode, while another took its number,
// learns of that when it first exchanges frames with any member: it grants nothing more,
// and its handles are lost ([ErrReplaced]) when a second member says so, or when for a
// second nobody denies it. While it is idle it exchanges nothing, and
// until it does, a coordinator, or the holder of a token, may take a lock itself.
//
// A link that is closed while its node is open, as natslink is when its connection
// closes, does not come back ([transport.ErrClosed]). These algorithms do not survive a
// member that lies about the algorithm itself.
//
// # One event path
//
//	            Acquire, Release        a frame of a peer
//	                   |                        |
//	                   v                        v
//	group -------->  locks  <------------- mail (package mail)
//	membership     machines, waiters   ---->  sessions, link
//	                                   send
//
// The goroutine that brings a frame carries it through session and machine to the
// answering frames. Only the grant itself passes from one goroutine to another, to the
// waiting caller. One more goroutine keeps time for sessions and views.
//
// Lock order: group, locks, mail, link. No other mutex is held while one is
// taken. None of the first three is held while a frame is sent, or while code of the
// application runs, except Config.Algorithm and the machines.
package node
