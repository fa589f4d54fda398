//go:build postgres

package main

import (
	"github.com/dmutex/dmutex/cmd/dmutex/internal/postgres"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

func init() {
	tool.Bases["postgres"], tool.Bases["postgresql"] = postgres.Open, postgres.Open
}
