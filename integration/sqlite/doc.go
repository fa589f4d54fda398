// Package sqlite tests package sqlstore on SQLite, which runs inside the test's process.
package sqlite
