// Package stores tests the stores of package store on real databases. PostgreSQL is
// started from the programs that the machine has; where it has none, that test is
// skipped, and says so. The others run inside the test's process.
package stores
