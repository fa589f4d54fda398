// Command bench measures this library beside bare TCP and NATS, beside a
// hand-written lock server, and beside the locks of Redis, etcd, PostgreSQL and
// JetStream, in one run, and compares the ratios with the targets.
//
//	taskset -c 0 go run -tags rivals . # as root with nice -n -15 before it, on a busy machine
//
// Each server is a process of its own, as in a deployment: the bare coordinator, the NATS
// server and the coordinator of central. The other algorithms have one member in a process of
// its own, and in the rows that count peers, each peer. The clients share this process. A
// hand-off of ricart and suzukikasami goes to the member in the other process. Where re-entry or
// the load over the members is measured, all members are in this process. The row "each lock at
// its home" spreads the locks over the members; the other rows of central have all at one member.
//
// A client of a group is compared with a member's own locks plus a hop: a message to another
// process and back, or the time that a relay adds to such a message. A client writes a release
// with its next request, so its row counts Acquire and Release together.
//
// All processes share one core, so that a system which is spread over processes
// has no advantage: taskset pins this process and those that it starts, and
// the Go scheduler is told to use one thread in each (GOMAXPROCS=1). Without taskset
// they use all cores. The measurements are taken in rounds, each system in turn; a
// figure is the median of its rounds, and a ratio the median of the ratios within a
// round, so that a machine whose speed drifts favors no system.
//
// Without the tag rivals, the clients of Redis, etcd and PostgreSQL are not linked, and these
// systems are reported as absent. A server that is on the PATH (redis-server, etcd, postgres) is started on a
// free port of 127.0.0.1 with its data in a temporary directory, and stopped at
// the end; --redis, --etcd and --postgres take the addresses of running ones.
// Systems whose server is missing are reported as absent. The NATS server and the other
// parts are this program, which starts itself again for each of them.
//
// # How far the figures vary
//
// On a machine with two cores that did other work too, the ratios of Acquire, grants
// and hand-offs of central in five runs of 41 rounds were within 2 per cent of their
// median. On a busy machine, in runs of 5 rounds, grants fell from 0.75 to 0.55
// times the bare coordinator's.
//
// # Where the time goes
//
// These shares are from profiles of both processes, while 8 clients contend without a pause.
// 100 is the time that the bare coordinator and its clients together take for a grant.
// (--cpuprofile writes such profiles, but shows only the calls of the kernel.)
//
//	                                             bare   central
//	system calls                                   69        77
//	Go: scheduler, poller, memory, clock           28        36
//	mail                                                      6
//	node                                                      4
//	tcplink                                                   4
//	session                                                   2
//	codec                                                     2
//	central                                                   2
//	this program                                    2         1
//
// Both make the same system calls: about 3 writes, 6 reads and 5 polls for a grant.
// Those of central take longer, and so does the scheduler: a frame has 52 bytes and not
// 13, a waiter also waits for its context, and presumably more code and memory is cold
// after each switch between the processes. Our own code takes 21. These profiles, and those of 64
// goroutines below, are of a build that wrote each release by itself. Now a release and the next
// request share a write, and central gets more grants than the bare coordinator.
//
// An Acquire of ricart from 2 peers, each a process, likewise; 100 is the fan-out:
//
//	                                          fan-out    ricart
//	system calls                                   72        77
//	Go: scheduler, poller, memory, clock           27        36
//	mail                                                      5
//	node                                                      3
//	tcplink                                                   3
//	session, codec and ricart                                 5
//	this program                                    1         1
//
// 64 goroutines over 10,000 names; 100 is a lock of the bare coordinator:
//
//	                                             bare   central
//	system calls                                   74        73
//	Go: scheduler, poller, memory, clock           21        50
//	node                                                     16
//	central                                                   9
//	mail                                                      8
//	tcplink                                                   4
//	codec                                                     4
//	session                                                   3
//	this program                                    3         1
//
// Most of the difference comes from machines that are created and forgotten: their memory is
// allocated, collected and cold.
//
// Over NATS a grant to another node takes a message to the coordinator and one back, as a raw
// request does. So the rate of raw requests bounds the rate of grants. With 2 contenders the
// rate of raw requests is 7.4 times the rate of the lock on JetStream KV, so no lock with a
// coordinator reaches 8 times that rate.
//
// On one core, the lock of a client of a member takes about 90 us, a member's own lock 28, a
// message there and back 22, and a message through a relay 64. The member in between spends four
// fifths of its time in system calls: two writes, two reads that find data, two reads that find
// none, and those of Go's scheduler. A process that sleeps for longer than 20 us is woken together
// with the thread that watches the scheduler.
//
// Where 8 nodes contend without a pause on one core, the node that has the token of
// suzukikasami enters again and again before it hears of the others (Jain 0.13).
//
// # Memory
//
// A node keeps up to 512 idle locks that it used last, and those with a token to remember,
// as under ring and suzukikasami. ricart.Carvalho forgets the permissions with the lock, so
// re-entry is free only in those 512.
//
// # What needs no wire
//
// The packages themselves measure the rest, from the root:
//
//	go test ./PACKAGE -run '^$' -bench Machine
//	go test ./node -run '^$' -bench 'Acquire$' # messages and allocations
//	go test ./node -run '^$' -bench 'HeldMemory|IdleMemory' -benchtime 1x
package main
