//go:build !rivals

package main

// rivals: the clients of other systems take a minute of CPU time to compile, so that only the
// tag rivals links them.
const rivals = false

func absent(*env, int) ([]client, error) { return nil, errAbsent }

var openRedislock, openRedsync, openEtcd, openPostgres = absent, absent, absent, absent
