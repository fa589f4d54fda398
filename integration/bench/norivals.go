//go:build !rivals

package main

// rivals says whether the clients of other systems are linked. They take a minute of CPU time
// to compile, so only the tag rivals links them.
const rivals = false

func absent(*env, int) ([]client, error) { return nil, errAbsent }

var openRedislock, openRedsync, openEtcd, openPostgres = absent, absent, absent, absent
