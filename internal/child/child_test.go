package child

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain makes this program the child as well.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "child" {
		os.Exit(m.Run())
	}
	switch in := json.NewDecoder(os.Stdin); os.Args[2] {
	case "double":
		for n := 0; in.Decode(&n) == nil; {
			fmt.Println(2 * n)
		}
	case "die":
		fmt.Fprintln(os.Stderr, "broken"+strings.Repeat(" in many ways", 2000))
		os.Exit(3)
	case "mumble":
		fmt.Println("what?")
		io.Copy(io.Discard, os.Stdin)
	}
}

func TestTellAndHear(t *testing.T) {
	p, err := Start("child", "double")
	require.NoError(t, err)
	for n := range 3 {
		var doubled int
		require.NoError(t, p.Tell(n))
		require.NoError(t, p.Hear(&doubled))
		require.Equal(t, 2*n, doubled)
	}
	require.NoError(t, p.Tell(7), "nobody hears the answer")
	require.NoError(t, p.Close(), "the child ends when its input ends")
	require.Equal(t, io.EOF, p.Hear(new(int)))
	require.Error(t, p.Tell(8))
	require.ErrorIs(t, p.Signal(os.Kill), os.ErrProcessDone)
}

// The error of a child that died has its status and the beginning of what it said.
func TestDeath(t *testing.T) {
	p, err := Start("child", "die")
	require.NoError(t, err)
	err = p.Hear(new(int))
	require.ErrorContains(t, err, fmt.Sprintf("process %d died (exit status 3): broken in many ways", p.Pid()))
	require.Less(t, len(err.Error()), 17<<10)
	require.Equal(t, err, p.Close())

	p, err = Start("child", "double")
	require.NoError(t, err)
	require.NoError(t, p.Signal(os.Kill))
	require.ErrorContains(t, p.Hear(new(int)), "died (signal: killed)")
}

// A child that prints something other than a report is killed.
func TestMalformed(t *testing.T) {
	p, err := Start("child", "mumble")
	require.NoError(t, err)
	require.ErrorContains(t, p.Hear(new(int)), "sent a malformed report: invalid character 'w'")
}
