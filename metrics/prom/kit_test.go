package dmutexprom_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/dmutex/dmutex/metrics/prom"
)

// families are the series that the code says it exports.
type families map[string][]string // the labels, by name

// described returns all that a node and its observer export.
func described(t *testing.T) families {
	h, err := dmutexprom.NewHistograms(dmutexprom.Options{})
	require.NoError(t, err)
	of := regexp.MustCompile(`fqName: "(\w+)".* variableLabels: \{([^}]*)\}`)
	known := make(families)
	add := func(c prometheus.Collector, histograms bool) {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			match := of.FindStringSubmatch(d.String())
			require.NotNil(t, match, "%s", d)
			labels := strings.FieldsFunc(match[2], func(r rune) bool { return r == ',' })
			if !histograms {
				known[match[1]] = labels
				continue
			}
			known[match[1]+"_count"], known[match[1]+"_sum"] = labels, labels
			known[match[1]+"_bucket"] = append([]string{"le"}, labels...)
		}
	}
	add(dmutexprom.NewCollector(nil), false)
	add(dmutexprom.NewClientCollector(nil), false)
	add(h, true)
	require.Contains(t, known, "dmutex_up")
	require.Contains(t, known["dmutex_wait_seconds_bucket"], "outcome")
	return known
}

// values are patterns for the values of some labels.
var values = map[string]string{
	"outcome": "^(granted|busy|canceled|deadline|deadlock|failed|released|lost)$",
	"state":   "^(held|waiting)$",
	"job":     `^\$job$`,
}

// check compares the names, labels and values of a PromQL expression with the code. It returns
// the names.
func (known families) check(t *testing.T, expr string) (names []string) {
	t.Helper()
	require.NotContains(t, expr, "\n")
	may := map[string]bool{"job": true, "instance": true} // every scrape adds them
	for _, series := range regexp.MustCompile(`\bdmutex_\w+(\{[^}]*\})?`).FindAllStringSubmatch(expr, -1) {
		name, _, _ := strings.Cut(series[0], "{")
		labels, ok := known[name]
		require.True(t, ok, "%s: there is no metric %s", expr, name)
		names = append(names, name)
		of := map[string]bool{"job": true, "instance": true}
		for _, l := range labels {
			of[l], may[l] = true, true
		}
		for _, matcher := range regexp.MustCompile(`(\w+)\s*[!=]=?~?\s*"([^"]*)"`).FindAllStringSubmatch(series[1], -1) {
			require.True(t, of[matcher[1]], "%s: %s has no label %s", expr, name, matcher[1])
			require.Regexp(t, values[matcher[1]], matcher[2], expr)
		}
	}
	require.NotEmpty(t, names, expr)
	for _, by := range regexp.MustCompile(`\bby \(([^)]*)\)`).FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(by[1], ",") {
			require.True(t, may[strings.TrimSpace(label)], "%s: there is no label %s", expr, label)
		}
	}
	for open, shut := range map[string]string{"(": ")", "[": "]", "{": "}"} {
		require.Equal(t, strings.Count(expr, open), strings.Count(expr, shut), expr)
	}
	return names
}

// text checks the labels that a text uses as variables.
func (known families) text(t *testing.T, text string, label string, names []string) {
	t.Helper()
	for _, use := range regexp.MustCompile(label).FindAllStringSubmatch(text, -1) {
		has := use[1] == "instance"
		for _, name := range names {
			for _, l := range known[name] {
				has = has || l == use[1]
			}
		}
		require.True(t, has, "%s: the series have no label %s", text, use[1])
	}
}

// The pages name no metric that the code does not export.
func TestPages(t *testing.T) {
	known := described(t)
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	named := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile("`(dmutex_\\w+)(?:\\{[^`]*\\})?`").FindAllStringSubmatch(string(text), -1) {
			if page == "../../docs/metrics.md" && known[name[1]+"_sum"] != nil {
				continue // it has the histograms without what Prometheus adds
			}
			require.Contains(t, known, name[1], page)
			named++
		}
	}
	require.Greater(t, named, 10)
}

// The alerts use only what the code exports.
func TestAlerts(t *testing.T) {
	known := described(t)
	file, err := os.Open("alerts.yaml")
	require.NoError(t, err)
	defer file.Close()
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For string
				Labels           map[string]string
				Annotations      struct{ Summary, Description string }
			}
		}
	}
	in := yaml.NewDecoder(file)
	in.KnownFields(true)
	require.NoError(t, in.Decode(&rules))
	require.Len(t, rules.Groups, 1)
	seen := make(map[string]bool)
	for _, r := range rules.Groups[0].Rules {
		require.Regexp(t, `^Dmutex[A-Z]\w+$`, r.Alert)
		require.False(t, seen[r.Alert], r.Alert)
		seen[r.Alert] = true
		if r.For != "" {
			_, err := time.ParseDuration(r.For)
			require.NoError(t, err, r.Alert)
		}
		require.Regexp(t, "^(info|warning|critical)$", r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.Annotations.Description, r.Alert)
		names := known.check(t, r.Expr)
		known.text(t, r.Annotations.Summary, `\$labels\.(\w+)`, names)
		for _, name := range regexp.MustCompile(`\bdmutex_\w+`).FindAllString(r.Annotations.Description, -1) {
			require.Contains(t, known, name, r.Alert)
		}
	}
	require.NotEmpty(t, seen)
}

// The panels of the dashboard show only what the code exports, and no panel covers another.
func TestDashboard(t *testing.T) {
	known := described(t)
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			ID         int
			Title      string
			GridPos    struct{ X, Y, W, H int }
			Datasource struct{ UID string }
			Targets    []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Type string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.Len(t, dashboard.Templating.List, 2)
	require.Equal(t, "datasource", dashboard.Templating.List[0].Name)
	require.Equal(t, "job", dashboard.Templating.List[1].Name)
	taken, ids := make(map[[2]int]string), make(map[int]bool)
	for _, p := range dashboard.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Less(t, x, 24, p.Title)
				require.Empty(t, taken[[2]int{x, y}], p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			names := known.check(t, target.Expr)
			known.text(t, target.LegendFormat, `\{\{(\w+)\}\}`, names)
			require.Contains(t, target.Expr, `{job=~"$job"`, p.Title)
		}
	}
	require.NotEmpty(t, taken)
}
