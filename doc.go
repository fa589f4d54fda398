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
// ctx ends when the lock is lost. Each grant has a number, the fence, that rises from grant to grant of one
// lock. Send it to the resource that the lock guards, and let the resource refuse a number lower than
// one it has seen (package fence): a holder that was paused for a long time cannot know that it should
// have stopped.
//
// # Machines and links
//
// An algorithm is a [Machine]: Handle takes a message and returns those to send. It does no I/O, starts no
// goroutine and reads no clock. This package defines the types that all machines share. The algorithms are
// in packages central, lamport, maekawa, ricart, ring and suzukikasami; docs/algorithms.md compares them.
// Packages election and deadlock have machines of other kinds, quorum builds and validates coteries,
// and dmutextest checks a machine of your own. Package transport has the links, over memory, TCP and NATS.
//
// Drive a machine from one goroutine at a time, or under a mutex. Send what a call returns,
// before the next call overwrites it, and Handle what arrives, until Phase says that the
// machine is Held: see the examples. An Idle or Held machine still has to Handle what arrives, because
// the others wait for its answers. The driver must deliver each message exactly once to the machine of
// node To; package transport/channel does that over any network, in order per pair. Without a network
// the loop is a unit test: deliver the messages yourself, in any order.
//
// [Start].Home is where the coordinator is, or where the token begins. When a group starts again,
// [Start.Fence] is the highest fence that was granted before; package site has the rule for fences.
//
// # A lock service
//
// Package node is a member of a group: it drives a machine for each lock. Packages filenode, natsnode, sqlnode
// and kubenode open one over a file, over NATS and JetStream, or over TCP with an SQL database or a Lease of Kubernetes. A process that is no
// member takes the same locks by package client, and one that needs no group takes a lock in one record
// of a store by package storelock. All are a lock.Mutex, so code that uses a lock need not know which.
// A lock can be shared by readers, and package semaphore lets up to k callers in. Packages filestore,
// kubestore, s3store, sqlstore, natsstore, etcdstore and redisstore keep the record of a group.
//
// # Stability
//
// From version 1.0 on, a minor version breaks no program that uses the packages for locks:
// this one, lock, semaphore, locktest, node, filenode, kubenode, natsnode, sqlnode, nodehttp, client, natsclient, fence,
// central, lamport, maekawa, ricart, ring, suzukikasami, store, filestore, kubestore, s3store, sqlstore, natsstore, etcdstore, redisstore,
// storelock, memlink, tcplink, natslink, and the metrics prom and otel. The same holds for the flags
// and exit statuses of the tool, and for the names of metrics and log keys.
//
// The packages for those who study algorithms or build parts of their own may change with a
// minor version, and the changelog says how: site, quorum, election, deadlock, dmutextest,
// trace, transport, channel, linktest and storetest. The texts of errors, logs and reports,
// and the contents of examples and bench, may change at any time.
//
// Before 1.0 every minor version may break programs. Patch versions never do.
package dmutex
