// Package etcd tests package etcdstore on etcd, and compares how long a lock of a dead holder
// stays taken. Where etcd is not installed, go test says "no tests to run".
package etcd
