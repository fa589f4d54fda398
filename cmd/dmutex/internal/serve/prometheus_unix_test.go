//go:build unix

package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
)

// A prometheus scrapes members, and evaluates our alerts, with seconds for their minutes.
type prometheus struct {
	t   *testing.T
	api string
}

func startPrometheus(t *testing.T, members ...*process) prometheus {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("there is no prometheus in the PATH, such as that of the Debian package")
	}
	rules, err := os.ReadFile("../../../../metrics/prom/alerts.yaml")
	require.NoError(t, err)
	faster := regexp.MustCompile(`\b(\d+)([mh])\b`).ReplaceAllStringFunc(string(rules), func(d string) string {
		return strings.NewReplacer("m", "s", "h", "m").Replace(d)
	})
	var targets []string
	for _, m := range members {
		targets = append(targets, m.instance())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	config, err := json.Marshal(map[string]any{ // which is YAML, too
		"global":         map[string]any{"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
		"rule_files":     []string{file(t, faster)},
		"scrape_configs": []any{map[string]any{"job_name": "locks", "static_configs": []any{map[string]any{"targets": targets}}}},
	})
	require.NoError(t, err)
	cmd := exec.Command(program, "--config.file="+file(t, string(config)), "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+address)
	var log strings.Builder
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return prometheus{t, "http://" + address + "/api/v1/query?query="}
}

// instance is what Prometheus calls the process.
func (s *process) instance() string { return strings.TrimPrefix(s.page, "http://") }

// waits waits until an expression has results, and returns the number of them.
func (p prometheus) waits(expr string) (results int) {
	p.t.Helper()
	for late := time.After(tooltest.TooLong); results == 0; {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-late:
			require.Fail(p.t, "Prometheus has no "+expr)
		}
		answer, err := http.Get(p.api + url.QueryEscape(expr))
		if err != nil {
			continue // it starts
		}
		var v struct{ Data struct{ Result []any } }
		err = json.NewDecoder(answer.Body).Decode(&v)
		_ = answer.Body.Close()
		if err == nil { // else it starts, too
			results = len(v.Data.Result)
		}
	}
	return results
}

// fires waits until an alert of a member fires.
func (p prometheus) fires(alert string, of *process) {
	p.t.Helper()
	p.waits(fmt.Sprintf(`ALERTS{alertname=%q, alertstate="firing", instance=%q}`, alert, of.instance()))
}

// A Prometheus that scrapes three members has no alert while all is well. It has one when a member
// was killed, one if somebody waits for a lock of that member's client, when one was paused for longer
// than its lease, and when a client is refused.
func TestAlerts(t *testing.T) {
	group := "--group=" + filepath.Join(t.TempDir(), "members")
	rules := "--allow=" + file(t, "* lock x*")
	one, two, three := serve(t, group, rules), serve(t, group, rules), serve(t, group, rules)
	p := startPrometheus(t, one, two, three)
	p.waits("count(dmutex_up == 1) == 3 and count(up == 1) == 3")
	require.Equal(t, 1, p.waits("vector(1) unless ALERTS"))

	of := dial(t, tool.Security{}, two)
	held := tooltest.Acquire(t, of.Mutex("x"))
	tooltest.Acquire(t, dial(t, tool.Security{}, three).Mutex("xx"))
	freed := make(chan error, 1)
	waits := dial(t, tool.Security{}, one).Mutex("xx")
	go func() {
		freed <- waits.Do(t.Context(), func(context.Context, uint64) error { return nil })
	}()
	p.waits(fmt.Sprintf(`dmutex_client_locks{state="waiting", instance=%q} == 1`, one.instance()))
	require.NoError(t, three.cmd.Process.Kill())
	p.fires("DmutexDown", three)
	p.fires("DmutexLocksWaitForFormerMember", one)
	require.NoError(t, <-freed)
	require.NoError(t, two.cmd.Process.Signal(syscall.SIGSTOP))
	p.waits(fmt.Sprintf("dmutex_view_members{instance=%q} == 1", one.instance()))
	<-held.Context().Done()
	require.NoError(t, two.cmd.Process.Signal(syscall.SIGCONT))
	for _, alert := range []string{"DmutexExcluded", "DmutexLocksLost", "DmutexClientsLost"} {
		p.fires(alert, two)
	}
	requireRefused(t, dial(t, tool.Security{}, one).Mutex("y"), "may not take")
	p.fires("DmutexClientsRefused", one)
}
