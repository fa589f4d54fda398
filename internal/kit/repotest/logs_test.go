package repotest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/operating.md explains each key of the log, and no other.
func TestLogKeys(t *testing.T) {
	used := make(map[string]bool)
	for _, dir := range []string{"node", "internal", "transport", "store", "client", "cmd"} {
		require.NoError(t, filepath.WalkDir(dir, func(file string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			return logKeys(file, used)
		}))
	}
	_, text, _ := strings.Cut(pages(t)["docs/operating.md"], "\n| keys | |\n")
	table, _, _ := strings.Cut(text, "\n\n")
	var explained []string
	for _, row := range strings.Split(table, "\n") {
		keys, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		for _, key := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(keys, -1) {
			explained = append(explained, key[1])
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(used)), explained)
}

// logKeys collects the keys that a file gives to a slog.Logger, or to functions of slog that
// make attributes.
func logKeys(file string, used map[string]bool) error {
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil || !slices.ContainsFunc(tree.Imports, func(i *ast.ImportSpec) bool { return strings.Contains(i.Path.Value, "log") }) {
		return err
	}
	text := func(e ast.Expr) (string, bool) {
		literal, ok := e.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return "", false
		}
		s, err := strconv.Unquote(literal.Value)
		return s, err == nil
	}
	first := map[string]int{"With": 0, "Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "Log": 3} // the place of the first key, by method
	ast.Inspect(tree, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, method := first[f.Sel.Name]
		if of, plain := f.X.(*ast.Ident); plain && of.Name == "slog" && len(call.Args) == 2 {
			from, method = 0, true
		}
		for i := from; method && i < len(call.Args); i += 2 {
			if key, ok := text(call.Args[i]); ok {
				used[key] = true
			}
		}
		return true
	})
	return nil
}
