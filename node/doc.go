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
// store lists them; see package store. No lock is ever taken in the store. With [Config.Clients] a
// member also takes locks for processes that are no members; see package client.
//
// A member may hold locks until Config.Lease after it sent the last operation of the store that
// confirmed its membership, by its own clock. Shortly before that, the locks that it holds
// are lost: [lock.Held.Context] ends, with [ErrLost] and [ErrLease]. No other process gets
// them yet, so a holder that stops at once is alone. Earlier, [lock.Held.Suspended] and Observer.Lease
// say that the renewal is late. A member that the others do not hear from is excluded, and its locks
// are freed when its lease has ended, or at once if the store is a [store.Prover]. If it still runs,
// its locks are lost ([ErrExcluded]), and it rejoins by itself; its waiters keep waiting. If the record
// is deleted or restored, members stop with [ErrRecord], but if the store says that it has forgotten the record, they
// join again, too.
//
// In the strict mode, that of [OpenStrict], the members are a fixed list of numbers. No member is ever
// presumed dead: the group waits for one that is down, and it rejoins when it is back. An operator
// removes one whose machine is gone for good with [Node.Evict]. A process that another has replaced
// stops with [ErrReplaced].
//
// # Views
//
// A view is an epoch, and the members with their processes. It changes when a process
// starts, restarts or leaves. A lock that is held stays held, by the same handle and with the same
// fence, and waiting callers keep waiting. Fences begin with the epoch, which is in milliseconds of
// the members' wall clocks, and rises from view to view whatever the clocks say; without a store see
// Config.Fence for a restart of all. The name of a lock and the view determine its home: its
// coordinator, or where its token begins.
//
// Loss, repetition, reordering and delay of frames, lost connections and partitions cost
// only time: no lock is ever granted on a guess. A link that is closed while its node is open does
// not come back ([transport.ErrClosed]). docs/modes.md has the times, and what they assume.
package node
