// Package tooltest runs commands in tests.
package tooltest

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/base"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/nats"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/lock"
)

var _ = flag.Bool("update", false, "rewrite the golden files")

// Main is for TestMain. It runs the tests, or makes the test binary a tool with
// this grammar if it is started with a command line of the tool: some commands
// start their own executable, and in a test that is the test binary. NATS is
// linked in.
func Main(m *testing.M, grammar any) {
	tool.NATS = nats.Broker
	maps.Copy(tool.Bases, base.All)
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		con := &tool.Console{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
		tool.Exit(tool.Main(grammar, os.Args[1:], con), con)
	}
	const race = "GORACE" // without this each process waits a second before it exits
	if os.Getenv(race) == "" {
		os.Setenv(race, "atexit_sleep_ms=0")
	}
	tool.TellEvery = time.Hour // on a slow machine too, commands say no more than expected
	// Parallel tests mostly wait, for leases and views. A flag of the command line has the last word.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// Run runs a command line in this process.
func Run(grammar any, stdin string, args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = tool.Main(grammar, args, &tool.Console{In: strings.NewReader(stdin), Out: &out, Err: &err})
	return status, out.String(), err.String()
}

// Refused checks that each command line is refused with its words, and that the
// tool says where to find help.
func Refused(t *testing.T, run func(args ...string) (status int, stdout, stderr string), lines [][2]string) {
	t.Helper()
	for _, c := range lines {
		t.Run(c[0], func(t *testing.T) {
			status, stdout, stderr := run(strings.Fields(c[0])...)
			require.Equal(t, tool.StatusUsage, status)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c[1])
			require.Contains(t, stderr, "\nTry: dmutex ")
		})
	}
}

// Decode requires that a command's standard output is exactly one JSON value, and decodes it.
func Decode(t *testing.T, stdout, stderr string, into any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(into), "%s\n%s", stdout, stderr)
	_, err := dec.Token()
	require.ErrorIs(t, err, io.EOF)
}

// TooLong is how long a test waits before it fails.
const TooLong = time.Minute

// Acquire acquires a lock. The test fails if that takes too long.
func Acquire(t *testing.T, mutex lock.Mutex) lock.Held {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), TooLong)
	defer cancel()
	held, err := mutex.Acquire(ctx)
	require.NoError(t, err)
	return held
}
