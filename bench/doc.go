// Command bench measures this library beside bare TCP and NATS, beside a
// hand-written lock server, and beside the locks of Redis, etcd, PostgreSQL and
// JetStream, in one run, and holds the ratios against the targets.
//
//	taskset -c 0 go run . --plot bench.svg
//
// Everything shares one core, so that a system which is spread over processes
// has no advantage: taskset pins this process and the servers that it starts, and
// the Go scheduler is told to use one thread (GOMAXPROCS=1). The measurements are
// taken in rounds, each system in turn; a figure is the median of its rounds, and
// a ratio the median of the ratios within a round, so that a machine whose speed
// drifts does not favour anybody.
//
// A server that is on the PATH (redis-server, etcd, postgres) is started on a
// free port of 127.0.0.1 with its data in a temporary directory, and stopped at
// the end; --redis, --etcd and --postgres take the addresses of running ones.
// What is absent is named as absent. A NATS server is part of the program.
package main
