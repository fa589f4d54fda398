//go:build redis

package main

import (
	"github.com/dmutex/dmutex/cmd/dmutex/internal/redis"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

func init() {
	tool.Bases["redis"], tool.Bases["rediss"] = redis.Open, redis.Open
}
