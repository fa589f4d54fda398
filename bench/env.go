package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
)

// nobody is the user without permissions.
const nobody = 65534

// patience bounds waits that end sooner unless something is wrong.
const patience = 30 * time.Second

// errAbsent: the server of a system is not there.
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

// redis returns the address of a Redis server.
func (e *env) redis() (string, error) {
	path, port, err := e.find(e.redisAt, "redis-server")
	if path == "" {
		return e.redisAt, err
	}
	address := "127.0.0.1:" + port
	err = e.start(address, nil, path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", e.dir)
	e.redisAt = address
	return address, err
}

// etcd returns the address of an etcd server.
func (e *env) etcd() (string, error) {
	path, port, err := e.find(e.etcdAt, "etcd")
	if path == "" {
		return e.etcdAt, err
	}
	peer, err := freePort()
	if err != nil {
		return "", err
	}
	at, peerAt := "http://127.0.0.1:"+port, "http://127.0.0.1:"+peer
	err = e.start("127.0.0.1:"+port, nil, path, "--data-dir", filepath.Join(e.dir, "etcd"),
		"--listen-client-urls", at, "--advertise-client-urls", at,
		"--listen-peer-urls", peerAt, "--initial-advertise-peer-urls", peerAt, "--initial-cluster", "default="+peerAt)
	e.etcdAt = at
	return at, err
}

// postgres returns the URL of a PostgreSQL server. It does not run as root, so
// root runs it as nobody.
func (e *env) postgres() (string, error) {
	path, port, err := e.find(e.postgreAt, "postgres")
	if path == "" {
		return e.postgreAt, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	var as *syscall.SysProcAttr
	data := filepath.Join(e.dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		return "", err
	}
	if os.Getuid() == 0 {
		as = asUser(nobody)
		if err := errors.Join(os.Chmod(e.dir, 0o711), os.Chown(data, nobody, nobody)); err != nil {
			return "", err
		}
	}
	initdb := exec.CommandContext(e.ctx, filepath.Join(filepath.Dir(path), "initdb"), "-D", data, "-A", "trust", "-U", "bench", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = as, "/"
	if output, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, output)
	}
	err = e.start("127.0.0.1:"+port, as, path, "-D", data, "-p", port, "-h", "127.0.0.1", "-k", "", "-c", "max_connections=300")
	e.postgreAt = "postgres://bench@127.0.0.1:" + port + "/postgres?sslmode=disable"
	return e.postgreAt, err
}

// find returns where the program of a server is, and a free port to start it on; no
// path if one runs at an address already, or none is to be started.
func (e *env) find(address, program string) (path, port string, err error) {
	if address != "" {
		return "", "", nil
	}
	if path, err = exec.LookPath(program); err != nil || !e.external {
		return "", "", errAbsent
	}
	if port, err = freePort(); err != nil {
		return "", "", err
	}
	return path, port, nil
}

// start runs a server until the end, and waits until it accepts connections.
func (e *env) start(address string, as *syscall.SysProcAttr, path string, args ...string) error {
	command := exec.CommandContext(e.ctx, path, args...)
	command.SysProcAttr, command.Dir = as, "/"
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = patience
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	e.defers(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	return e.await(func() error {
		select {
		case <-ended:
			return fmt.Errorf("%s has ended", filepath.Base(path))
		default:
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// await repeats an operation until it succeeds.
func (e *env) await(op func() error) error {
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := op()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}
