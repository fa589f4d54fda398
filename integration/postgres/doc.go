// Package postgres tests package sqlstore on PostgreSQL. Where that is not installed, go test
// says "no tests to run".
package postgres
