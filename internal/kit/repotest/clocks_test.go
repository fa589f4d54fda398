package repotest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// numbered are the functions in which an instant becomes a number, and why none of another clock meets it there.
// A clock.Steady, a time.Time and the numbers of clock.Clock.Now cannot be compared or subtracted: the compiler
// refuses it. A number has no clock, so each place is looked at before it comes here.
var numbered = map[string]string{
	"internal/clock.Read":       "it makes the clocks",
	"internal/clock.Steady":     "likewise",
	"internal/clock.sleepMeter": "likewise",

	"internal/mail.now":              "the time of the sessions, which have no other",
	"internal/lend.now":              "likewise",
	"node/internal/group.now":        "the time of the machine, which has no other: in the strict mode it is steady",
	"node/internal/group.time":       "the same time, for a duration until a deadline of the machine",
	"node/internal/group.trace":      "a trace is read by people",
	"node/internal/locks.trace":      "likewise",
	"node/internal/locks.step":       "likewise",
	"node/internal/group.Open":       "likewise: the time of day",
	"node/internal/group.sinceEpoch": "epochs and lives begin at the time of day",
	"store/natsstore.revision":       "the time is part of a name",
	"internal/metrics.readNode":      "a metric is read by people",
	"store/storelock.floor":          "fences begin at the time of day",
	"node.wait":                      "transactions are ordered by the time of day",
	"transport/channel.Open":         "a life begins at the time of day",
}

// LESSONS L55. No other function makes a number of an instant: then a second clock would look like the first.
func TestClocks(t *testing.T) {
	found := make(map[string]bool)
	for _, pkg := range packages(t) {
		if strings.Contains(pkg.path, "/internal/kit/") {
			continue
		}
		for _, name := range pkg.files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && makesNumber(f) {
					found[strings.TrimPrefix(strings.TrimPrefix(pkg.path, module), "/")+"."+f.Name.Name] = true
				}
			}
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(numbered)), slices.Sorted(maps.Keys(found)))
}

// makesNumber reports whether a function makes a number of an instant.
func makesNumber(n ast.Node) (makes bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch f := call.Fun.(type) {
		case *ast.SelectorExpr:
			makes = makes || len(call.Args) == 0 && slices.Contains([]string{"Wall", "UnixNano", "UnixMicro", "UnixMilli", "Unix"}, f.Sel.Name)
		case *ast.Ident:
			if f.Name == "int64" || f.Name == "uint64" {
				makes = makes || callsAny(call.Args[0], "Since", "Sub", "Age")
			}
		}
		return true
	})
	return makes
}

func callsAny(n ast.Node, names ...string) (calls bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if f, ok := call.Fun.(*ast.SelectorExpr); ok {
				calls = calls || slices.Contains(names, f.Sel.Name)
			}
		}
		return true
	})
	return calls
}

func TestMakesNumber(t *testing.T) {
	for source, makes := range map[string]bool{
		"int64(time.Since(birth))":         true,
		"int64(t.Sub(birth))":              true,
		"limit < int64(m.Now().Age())":     true,
		"time.Now().UnixNano()":            true,
		"time.Duration(term.Until()-now)":  false,
		"m.Now().Sub(called) < cfg.Lease":  false,
		"int64(cfg.Lease)":                 false,
		"x.Age()":                          false,
		"slog.Duration(\"x\", now.Sub(t))": false,
	} {
		e, err := parser.ParseExpr(source)
		require.NoError(t, err)
		require.Equal(t, makes, makesNumber(e), source)
	}
}
