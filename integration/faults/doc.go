// Package faults tests dmutex on processes of the operating system: while they are
// paused, while their connections break, stall and slow down, while strangers crowd
// their ports, while their log handler is stuck and the NATS server is away, and while
// they are killed, leave and are started again. Every other group over TCP uses TLS. A
// referee that knows nothing of locks watches the critical sections.
//
// Groups with leases go through more: their processes come and go, die for good and all at
// once, are paused for longer than their lease, and are cut off from the store and from
// some of the others. Their referee judges by what the holders read on the clock of the
// machine: an overlap is an instant at which two handles were good.
//
// What needs no kernel, no signal and no server is in the simulation of internal/kit/world, such as clients that
// lose their members.
//
// In the end a checker for histories, porcupine, judges each lock's history as a whole.
//
//	go test ./integration/faults                             # 4 seconds of faults over each link
//	DMUTEX_LONG=1 go test ./integration/faults -timeout 30m  # 10 minutes
//	go test ./integration/faults -run TCP -seed 7 -length 1m
//	go test ./integration/faults -run TestLease -v           # groups with leases
//	go test ./integration/faults -run 'PostgreSQL|Etcd' -length 1m
//
// The same seed gives the same faults in the same order, but not the same run,
// because the processes are real.
package faults
