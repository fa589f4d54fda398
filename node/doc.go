// Package node is the runtime: it gives a process the locks of a group.
//
//	n, err := filenode.Open(ctx, "/var/lib/invoices/members", node.Config{})
//	...
//	held, err := n.Mutex("invoices/42").Acquire(ctx)
//	if err != nil {
//		return err // no lock
//	}
//	defer held.Release()
//	// Work under held.Context(), and pass held.Fence() to what you write to.
//
// A paused process may still write after another has replaced it, or after its lease has
// ended. Only a resource that checks fences is safe from that; see package fence.
//
// # Two modes
//
// In the lease mode, that of [Open], members come, go and crash, and a small record in a
// store lists them, with the number and the address of each; see package store. A member asks
// the store repeatedly whether it is still one. No lock is ever taken in the store. With
// [Config.Clients] a member also takes locks for processes that are no members; see package
// client.
//
// A member may hold locks until Config.Lease after it sent the last operation that
// confirmed its membership, by its own clock. Shortly before that, the locks that it holds
// are lost: [lock.Held.Context] ends, with [ErrLost] and [ErrLease]. No other process gets
// them yet, so a holder that stops at once is alone. What is lost stays lost. Earlier,
// [lock.Held.Suspended] and Observer.Lease say that the renewal is late.
//
// A member that the others do not hear from is excluded, and its locks are freed when its
// lease has ended, or at once if the store is a [store.Prover]. If it still
// runs, its locks are lost ([ErrExcluded]), it rejoins by itself under another number, and its
// waiters keep waiting. After its lease, a process that does not reach the store is granted
// nothing: Acquire waits, and TryAcquire returns [ErrStore]. If the record is deleted or
// restored, members stop with [ErrRecord]. docs/modes.md has the times and what they assume.
//
// In the strict mode, that of [OpenStrict], the members are a fixed list of numbers. At most
// one process with each number is alive at a time, and no member is ever presumed dead:
// the group waits for one that is down, and it rejoins when it is back. An operator
// removes one whose machine is gone for good with [Node.Evict].
//
// # Views
//
// A view is an epoch, and the members with their processes. It changes when a process
// starts, restarts or leaves, and after an event that an algorithm does not survive, such as
// a message that no correct peer sends. In each view every lock in use has a new machine. A
// lock that is held stays held, by the same handle and with the same fence, and waiting
// callers keep waiting. Messages of older views are dropped. Package internal/membership has
// the protocols of both modes and their proofs.
//
// The name of a lock and the view determine its home: its coordinator under package
// central, and the member where its token begins under suzukikasami and ring. Homes are
// spread evenly. At its home, a lock that no other member wants costs no message.
//
// Fences begin with the epoch, and epochs rise from view to view. They are milliseconds
// of the members' wall clocks, unless a group changes more than once a millisecond. With
// a store they rise whatever the clocks say; without one see Config.Fence.
//
// # What a group survives
//
// Loss, repetition, reordering and delay of frames, lost connections and partitions cost
// only time. Calls that need an unreachable peer wait; no lock is ever granted on a guess.
//
// In the strict mode, a process may be paused or cut off while another takes its number.
// When it next exchanges frames with a member, it grants nothing more, and its handles are
// lost ([ErrReplaced]) when a second member says so, or when no member denies it for a
// second. Until then a coordinator, or the holder of a token, may take a lock itself, and
// an idle process exchanges no frames.
//
// A link that is closed while its node is open does not come back ([transport.ErrClosed]). No
// algorithm survives a member that lies about the algorithm itself.
//
// # Concurrency
//
// A frame and what it brings about stay in one goroutine, see package internal/mail. Only a grant
// passes to another, that of the waiting caller.
//
// Lock order: group, locks, mail, link. No other mutex is held while one is taken. The first
// three are not held while a frame is sent, nor while code of the application runs, except
// the code of its machines.
package node
