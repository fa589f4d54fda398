// Package servers starts real servers for tests.
package servers
