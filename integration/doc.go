// Package integration tests dmutex against real NATS servers. They run inside the
// test's process, so that nothing has to be installed and nothing is skipped.
package integration
