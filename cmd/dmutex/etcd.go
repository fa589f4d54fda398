//go:build etcd

package main

import (
	"github.com/dmutex/dmutex/cmd/dmutex/internal/etcd"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

func init() {
	tool.Bases["etcd"], tool.Bases["etcds"] = etcd.Open, etcd.Open
}
