//go:build unix

package servers

import (
	"encoding/json"
	"errors"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Etcd returns the path of the program, or an error that says how to install it.
func Etcd() (string, error) {
	program, err := exec.LookPath("etcd")
	if err != nil {
		return "", errors.New("etcd is not installed, so etcdstore is not tested (Debian: apt-get install etcd-server)")
	}
	return program, nil
}

// StartEtcd starts a server of etcd with its data in the directory. It runs until stop is
// called or the test ends. StartEtcd skips the test where etcd is not installed.
func StartEtcd(t *testing.T, dir string) (address string, stop func()) {
	program, err := Etcd()
	if err != nil {
		t.Skip(err)
	}
	const local = "http://127.0.0.1:0"
	p, line := start(t, dir, nil, "KILL", `"serving client traffic insecurely`, program, "--data-dir", ".",
		"--listen-client-urls", local, "--advertise-client-urls", local,
		"--listen-peer-urls", local, "--initial-advertise-peer-urls", local, "--initial-cluster", "default="+local,
		"--logger", "zap", "--log-outputs", "stderr")
	var log struct{ Address string }
	require.NoError(t, json.Unmarshal([]byte(line), &log))
	return log.Address, p.stop
}
