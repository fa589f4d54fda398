//go:build nats

package main

import (
	"github.com/dmutex/dmutex/cmd/dmutex/internal/nats"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

func init() { tool.NATS = nats.Broker }
