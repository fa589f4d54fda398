// Command bench measures this library beside bare TCP and NATS, beside a
// hand-written lock server, and beside the locks of Redis, etcd, PostgreSQL and
// JetStream, in one run, and holds the ratios against the targets.
//
//	taskset -c 0 go run . --plot bench.svg
//
// Each server is a process of its own, as where it is deployed: the bare coordinator,
// the NATS server, the coordinator of central, and of the other algorithms one
// member or, where peers are counted, each of them. The clients share this process.
// A hand-off of ricart and suzukikasami goes to the member that does not.
//
// Everything shares one core, so that a system which is spread over processes
// has no advantage: taskset pins this process and those that it starts, and
// the Go scheduler is told to use one thread in each (GOMAXPROCS=1). Without taskset
// they have the cores that there are. The measurements are taken in rounds, each system in turn; a figure is the median of its rounds, and
// a ratio the median of the ratios within a round, so that a machine whose speed
// drifts does not favour anybody.
//
// A server that is on the PATH (redis-server, etcd, postgres) is started on a
// free port of 127.0.0.1 with its data in a temporary directory, and stopped at
// the end; --redis, --etcd and --postgres take the addresses of running ones.
// What is absent is named as absent. The NATS server is a part of this program, which
// starts itself again for all that is not a server on the PATH.
//
// What is known of the figures in docs/performance.md, which are those of one run on a machine
// with nothing else to do: in nine runs there, times came out within a few per
// cent, but for a single hand-off (1.25 to 1.40 x the bare server), and 64
// goroutines had 0.92 to 1.05. With other work beside, a hand-off had 1.05 to 1.36,
// and rates fell by up to a third.
//
// Where 64 goroutines lock 10,000 names, writes are shared where requests arrive
// together: their answers leave together, so there are 2.1 writes a lock and not
// 3. A request still leaves as soon as it is made. By the profile the bare server
// and its clients spend nine tenths of their time in system calls, and central a
// little more than half: what it saves in writes goes into sessions and into
// machines that are born and forgotten. A hand-off makes the system calls of the
// bare server, no more; its rest is our own code as well. Where 8 contend without
// a pause on one core, the node that has the token of suzukikasami enters again
// and again before it hears of the others (Jain 0.13).
//
// Of memory: up to 512 idle locks that a node used last are kept, and those whose
// token is remembered. With suzukikasami, in a group of more than 11 or once a
// member has locked a lock more than 65,535 times, each node has up to 100 bytes
// and 24 a member more for it. With ricart.Carvalho, who agreed is forgotten with
// the lock: re-entry is free in those 512.
//
// What needs no wire is measured in the packages themselves, from the root:
//
//	go test ./PACKAGE -run '^$' -bench Machine
//	go test ./node -run '^$' -bench 'Acquire$' # messages and allocations
//	go test ./node -run '^$' -bench 'HeldMemory|IdleMemory' -benchtime 1x
package main
