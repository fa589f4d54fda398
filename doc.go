// Package dmutex is distributed mutual exclusion by message passing, with no
// lock server.
package dmutex
