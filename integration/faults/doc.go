// Package faults tests what only processes, kernels and servers show: real processes that are killed, paused and told to
// leave, connections of the kernel that break, with TLS and without it, files that are locked, and servers of NATS,
// PostgreSQL, MariaDB, etcd and Redis that crash and come back. All else, and far more faults, is in the simulation of
// internal/kit/world.
//
// A group has five processes, each with a node for every algorithm, and is in the strict mode or has leases. The processes
// say when their handles were good, by the clock of the machine, to a referee that knows nothing of locks. In the
// end a checker for histories, porcupine, judges each lock's history as a whole.
//
//	go test ./integration/faults                             # 4 seconds of faults in each of five settings
//	DMUTEX_LONG=1 go test ./integration/faults -timeout 60m  # 10 minutes in each of ten
//	go test ./integration/faults -run 'Storm/Strict' -seed 7 -length 1m -v
//	go test ./integration/faults -run 'Storm/(PostgreSQL|Etcd)' -length 1m
//
// The same seed gives the same faults in the same order, but not the same run,
// because the processes are real.
package faults
