// Package stores tests the stores of package store on real databases. PostgreSQL and etcd are
// started from the programs that the machine has. Where it has none, those tests are
// skipped. SQLite runs inside the test's process.
package stores
