//go:build unix

package postgres

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/integration/servers"
)

// url is where a user of the server finds the records.
func (p postgres) url(user string) string {
	at := url.URL{Scheme: "postgres", User: url.User(user), Path: "/postgres", RawQuery: url.Values{"host": {p.Dir()}}.Encode()}
	return at.String()
}

// runsOf runs a command n times at once, and requires that none fails.
func runsOf(t *testing.T, n int, tool string, args ...string) (said []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	said = make([]string, n)
	var running sync.WaitGroup
	for i := range said {
		running.Go(func() {
			out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput()
			if said[i] = string(out); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	running.Wait()
	return said
}

// testRuns is about many runs of the tool at once.
func testRuns(t *testing.T, p postgres) {
	tool, admin := servers.BuildTool(t, "postgres"), p.connect(t, "postgres")

	// A run that ends has given back each permit that it was granted, so no row names a holder then.
	t.Run("permits", func(t *testing.T) {
		for round := range 3 {
			lock := fmt.Sprint("permits", round)
			runsOf(t, 30, tool, "run", "--store="+p.url("postgres"), "--lock="+lock, "--permits=8", "--", "true")
			var taken string
			require.NoError(t, admin.QueryRowContext(t.Context(), `SELECT coalesce(string_agg(name, ' '), '') FROM dmutex_groups `+
				`WHERE name LIKE $1 || '%' AND position(E'\nholder \n' in convert_from(value, 'UTF8')) = 0`, lock).Scan(&taken))
			require.Empty(t, strings.TrimSpace(taken), "taken after all runs have ended, in round %d", round)
		}
	})

	// A role that may have few connections serves more runs, in turn: a run has one, for all permits, and one that gets
	// none waits.
	t.Run("few connections", func(t *testing.T) {
		execute(t, admin, `CREATE ROLE few LOGIN CONNECTION LIMIT 5`)
		execute(t, admin, `GRANT SELECT, INSERT, UPDATE ON dmutex_groups TO few`)
		runsOf(t, 9, tool, "run", "--store="+p.url("few"), "--lock=plain", "--", "sleep", "0.05")
		execute(t, admin, `ALTER ROLE few CONNECTION LIMIT 18`)
		runsOf(t, 18, tool, "run", "--store="+p.url("few"), "--lock=eight", "--permits=8", "--", "sleep", "0.3")
	})

	t.Run("serve", func(t *testing.T) { servers.ServeAt(t, tool, p.url("postgres")+"#served") })

	// A run that starts while the server is down waits, and one whose role does not exist ends at once.
	t.Run("outage", func(t *testing.T) {
		p.Crash()
		out, err := exec.Command(tool, "run", "--store="+p.url("postgres"), "--lock=outage", "-w", "0.5", "--", "true").CombinedOutput()
		require.ErrorContains(t, err, "exit status 125", "%s", out)
		require.Contains(t, string(out), "failed to connect")
		waiting := exec.Command(tool, "run", "--store="+p.url("postgres"), "--lock=outage", "--", "echo", "in")
		words, err := waiting.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, waiting.Start())
		p.Start()
		said, err := io.ReadAll(words)
		require.NoError(t, err)
		require.NoError(t, waiting.Wait())
		require.Equal(t, "in\n", string(said))
		out, err = exec.Command(tool, "run", "--store="+p.url("stranger"), "--lock=outage", "--", "true").CombinedOutput()
		require.ErrorContains(t, err, "exit status 125", "%s", out)
		require.Contains(t, string(out), `role "stranger" does not exist`)
	})
}
