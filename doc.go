// Package dmutex provides distributed mutual exclusion by message passing, without
// a lock server: each node of a group runs a small state machine for each lock,
// and the machines talk over whatever network the application already has.
//
// A process that has a NATS connection takes a lock of the group invoices so:
//
//	n, err := natsnode.Open(ctx, nc, "invoices", node.Config{})
//	...
//	err = n.Mutex("invoices/42").Do(ctx, func(ctx context.Context, fence uint64) error {
//		return write(ctx, fence) // stop when ctx ends, because the lock is lost
//	})
//
// Package filenode does the same with a file, for the processes of one machine, and package
// sqlnode with an SQL database and TCP. Package node has the locks.
//
// This package defines the types that all others share. To see, test or drive an algorithm,
// which is a [Machine], read on.
//
// # The driving loop
//
// Drive a machine from one goroutine at a time, or under a mutex. Send what a call returns,
// before the next call overwrites it, and Handle what arrives, until Phase says that the
// machine is Held: see the example.
//
// An Idle or Held machine still has to Handle what arrives, because the others wait
// for its answers. The driver must deliver each message exactly once to the
// machine of node To; package transport/channel does that over any network, in
// order per pair. Without a network the loop is a unit test: deliver the messages yourself,
// in any order.
//
// # The algorithms
//
// N is the number of nodes and T the time of one message; what a node sends to
// itself does not count. Delay is the time from a request to its entry when no other
// node is interested, and next the time from a release to the next entry, if its
// request had already arrived.
//
//	                     after                    messages an entry       delay         next                   channels   one crash stops                              with leases, wait
//	central              folklore                 3; own 0                2T; own 0     2T                     any order  all, if coordinator, holder or waiter        those that it held or that were at home with it
//	lamport              Lamport '78              3(N-1)                  2T            T                      in order   all                                          all
//	lamport.OmitReplies  Lamport '78              2(N-1) to 3(N-1)        2T            T                      in order   all                                          all
//	ricart               Ricart, Agrawala '81     2(N-1)                  2T            T                      any order  all                                          all
//	ricart.Carvalho      Carvalho, Roucairol '83  0 to 2(N-1)             2T or 0       T                      any order  nodes that must ask it, transitively         all
//	maekawa              Maekawa '85              3(K-1), mean to 6(K-1)  2T            2T                     any order  all, once a node with it in its quorum asks  those that it held
//	suzukikasami         Suzuki, Kasami '85       N or 0                  2T or 0       T                      any order  all, if it has or gets the token             those whose token no survivor has
//	ring                 Le Lann '77              0 to N                  NT or 0       T to NT                in order   all                                          those whose token no survivor has
//	ring.Circulate       Le Lann '77              1 or more               to N(T+pace)  T to (N-1)T+(N-2)pace  any order  all                                          -
//
// K is the size of a quorum, such as a row and a column of a grid. The coordinator, and the
// node where the token begins, is [Start].Home: package node gives each lock its own, so that
// a crash stops only the locks that need that node. Where the table says in order, the
// channels must keep the order of messages from one node to another. Textbook algorithms
// assume that processes do not fail; a crash costs progress, never exclusion.
//
// # Measured
//
// The messages of an entry, and the two delays in T, as package dmutextest
// measures them; a number without decimals is exact. Rare is one request at a
// time, by nodes drawn at random; busy is every node always requesting.
//
//	                     rare, N=5  busy, N=5  rare, N=9  busy, N=9  delay, N=9  next, N=9
//	central                   2.40       2.40       2.67       2.67        1.78       1.78
//	lamport                     12         12         24         24           2          1
//	lamport.OmitReplies         12          8         24         16           2          1
//	ricart                       8          8         16         16           2          1
//	ricart.Carvalho           4.00          8       8.12         16        1.79          1
//	maekawa                   7.18       9.60         12      16.00           2          2
//	suzukikasami              4.00       5.00       8.04       9.00        1.79          1
//	ring                      4.00       2.00       8.04       2.00        8.04          1
//	ring.Circulate            4.21          1       7.60          1        6.10          1
//
// # Fences
//
// Every grant has a number, the fence, that rises from grant to grant of one
// lock; see package site for the rule. Send it to the resource that the lock guards,
// and let the resource refuse a number lower than one it has seen: a holder
// that was paused for a long time cannot know that it should have stopped. When a
// group starts again, [Start.Fence] is the highest fence that was granted before.
//
// # Stability
//
// From version 1.0 on, a minor version breaks no program that uses the packages for locks:
// this one, lock, locktest, node, filenode, natsnode, sqlnode, nodehttp, client, natsclient, fence,
// central, lamport, maekawa, ricart, ring, suzukikasami, store, filestore, sqlstore, natsstore, etcdstore,
// storelock, memlink, tcplink, natslink, dmutexprom and dmutexotel. The same holds for the flags
// and exit statuses of the tool, and for the names of metrics and log keys.
//
// The packages for those who study algorithms or build parts of their own may change with a
// minor version, and the changelog says how: site, quorum, election, deadlock, dmutextest,
// trace, transport, channel, linktest and storetest. The texts of errors, logs and reports,
// and the contents of examples and bench, may change at any time.
//
// Before 1.0 every minor version may break programs. Patch versions never do.
package dmutex
