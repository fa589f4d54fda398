// Package faults tests dmutex on processes of the operating system: while they are
// paused, their connections break, stall and are slow, strangers crowd at their
// doors, their log handler is stuck and the NATS server goes away; and while they
// are killed, leave and are started again. Every other group over TCP speaks TLS. A
// referee that knows no locks watches the critical sections.
//
//	go test ./integration/faults                             # 30 seconds of faults over each link
//	DMUTEX_LONG=1 go test ./integration/faults -timeout 30m  # 10 minutes
//	go test ./integration/faults -run TCP -seed 7 -length 1m
//
// The same seed gives the same faults in the same order, but not the same run:
// real processes are not so obedient.
package faults
