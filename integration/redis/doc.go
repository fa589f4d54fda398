// Package redis tests package redisstore on servers of Redis. Where that is not installed, go test says "no tests to
// run".
package redis
