package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
)

// patience bounds waits that end sooner unless something is wrong.
const patience = 30 * time.Second

// errAbsent says that the server of a system is not there, or its client is not linked.
var errAbsent = errors.New("absent")

// An env is what a run has opened: the servers, and how to close them.
type env struct {
	ctx                        context.Context
	external                   bool // whether to look for servers
	redisAt, etcdAt, postgreAt string
	natsAt, bareAt             string
	echoAt                     []string
	dir                        string
	profile                    string // file for a CPU profile, or ""
	profiles                   int    // of other processes
	groups                     int
	served                     map[string]client // clients and members of served groups, by system
	last                       []func()
}

func (e *env) defers(f func()) { e.last = append(e.last, f) }

func (e *env) close() {
	for i := len(e.last) - 1; i >= 0; i-- {
		e.last[i]()
	}
	e.last = nil
}

// connect returns a connection to a NATS server, which the first call starts.
func (e *env) connect() (*nats.Conn, error) {
	if e.natsAt == "" {
		s, err := e.launch(part{Kind: partNATS, Dir: filepath.Join(e.dir, "nats")})
		if err != nil {
			return nil, err
		}
		e.natsAt = s.address
	}
	nc, err := nats.Connect(e.natsAt)
	if err != nil {
		return nil, err
	}
	e.defers(nc.Close)
	return nc, nil
}

// bare returns the address of a bare coordinator.
func (e *env) bare() (string, error) {
	if e.bareAt == "" {
		c, err := e.launch(part{Kind: partBare})
		if err != nil {
			return "", err
		}
		e.bareAt = c.address
	}
	return e.bareAt, nil
}

// echoes returns the addresses of n processes that send frames back.
func (e *env) echoes(n int) ([]string, error) {
	for len(e.echoAt) < n {
		p, err := e.launch(part{Kind: partEcho})
		if err != nil {
			return nil, err
		}
		e.echoAt = append(e.echoAt, p.address)
	}
	return e.echoAt[:n], nil
}
