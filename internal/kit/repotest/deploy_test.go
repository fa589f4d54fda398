package repotest

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/node"
)

const (
	closing = 10 * time.Second // the deadline of Close in the program of docs/operating.md
)

// The pages show files of docs/deploy as they are, and link to every file there.
func TestDeployFilesAreShown(t *testing.T) {
	shown := regexp.MustCompile("(?ms)^\\[(docs/deploy/[^]]+)\\]\\([^)]+\\):\n\n```\n(.*?)^```$")
	all := ""
	for page, text := range pages(t) {
		all += text
		for _, match := range shown.FindAllStringSubmatch(text, -1) {
			file, err := os.ReadFile(match[1])
			require.NoError(t, err)
			require.Equal(t, string(file), match[2], "%s does not show %s as it is", page, match[1])
		}
	}
	require.Len(t, shown.FindAllString(all, -1), 5)
	require.NoError(t, filepath.WalkDir("docs/deploy", func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			require.Contains(t, all, "("+strings.TrimPrefix(filepath.ToSlash(file), "docs/")+")")
		}
		return err
	}))
}

// A unit restarts its process, and leaves Close enough time. If systemd is installed, it
// verifies the unit.
func TestSystemd(t *testing.T) {
	files, err := filepath.Glob("docs/deploy/systemd/*.service")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		unit := make(map[string]string)
		section := ""
		for line := range strings.SplitSeq(string(text), "\n") {
			if line == "" || line[0] == '#' {
				continue
			}
			if line[0] == '[' {
				section = line
				continue
			}
			key, value, ok := strings.Cut(line, "=")
			require.True(t, ok, "%s: %s", file, line)
			require.NotContains(t, value, "#", "%s: systemd takes a comment after a value as part of the value", file)
			unit[section+key] = value
		}
		require.Equal(t, "always", unit["[Service]Restart"], file)
		stop, err := time.ParseDuration(unit["[Service]TimeoutStopSec"])
		require.NoError(t, err, file)
		require.Greater(t, stop, closing, file)
		require.Equal(t, "multi-user.target", unit["[Install]WantedBy"], file)

		verify, err := exec.LookPath("systemd-analyze")
		if err != nil {
			continue
		}
		program, _, _ := strings.Cut(unit["[Service]ExecStart"], " ")
		self, err := os.Executable()
		require.NoError(t, err)
		copied := filepath.Join(t.TempDir(), filepath.Base(file))
		require.NoError(t, os.WriteFile(copied, bytes.ReplaceAll(text, []byte(program), []byte(self)), 0o600))
		out, err := exec.Command(verify, "verify", copied).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, string(out))
	}
}

// Every metric that docs/operating.md says to watch has an alert, and the page has a row for each alert.
func TestAlertsOfPage(t *testing.T) {
	text, err := os.ReadFile("metrics/prom/alerts.yaml")
	require.NoError(t, err)
	metric := regexp.MustCompile(`\bdmutex_\w+`)
	alerts := make(map[string]bool)
	exprs := regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllString(string(text), -1)
	for _, expr := range exprs {
		for _, name := range metric.FindAllString(expr, -1) {
			alerts[name] = true
		}
	}
	watched := make(map[string]bool)
	_, page, _ := strings.Cut(pages(t)["docs/operating.md"], "\n## What to watch\n")
	page, _, _ = strings.Cut(page, "\n## ")
	for _, row := range regexp.MustCompile(`(?m)^\| [^|]*`).FindAllString(page, -1) {
		if name := metric.FindString(row); name != "" { // other rows explain the one before
			require.True(t, alerts[name], "no alert is about %s", name)
			watched[name] = true
		}
	}
	for _, expr := range exprs {
		require.True(t, slices.ContainsFunc(metric.FindAllString(expr, -1), func(name string) bool { return watched[name] }), "the page has no row for %s", expr)
	}
}

// Every field of a status that a page names exists.
func TestStatusOfPages(t *testing.T) {
	types := map[string]reflect.Type{
		"Status": reflect.TypeFor[node.Status](), "PeerStatus": reflect.TypeFor[node.PeerStatus](), "View": reflect.TypeFor[node.ViewStatus](),
		"MutexStatus": reflect.TypeFor[node.MutexStatus](), "Observer": reflect.TypeFor[node.Observer](),
	}
	named := 0
	for page, text := range pages(t) {
		if page == "CHANGELOG.md" { // names removed fields, too
			continue
		}
		for _, match := range regexp.MustCompile("`(\\w+)((?:\\.\\w+)+)`").FindAllStringSubmatch(text, -1) {
			of, ok := types[match[1]]
			if !ok {
				continue
			}
			for name := range strings.SplitSeq(match[2][1:], ".") {
				if of.Kind() == reflect.Pointer {
					of = of.Elem()
				}
				field, ok := of.FieldByName(name)
				require.True(t, ok, "%s: %s", page, match[0])
				of = field.Type
			}
			named++
		}
	}
	require.Greater(t, named, 10)
}
