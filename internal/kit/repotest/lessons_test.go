package repotest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table of docs/lessons.md has every row, and testdata/lessons.txt names the tests that keep each.
// These tests exist and cite the row.
func TestLessons(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("docs", "lessons.md"))
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (L\d+) \| .+ \| .+ \|$`).FindAllSubmatch(page, -1)
	require.Len(t, rows, 81)
	list, err := os.ReadFile(filepath.Join("internal", "kit", "repotest", "testdata", "lessons.txt"))
	require.NoError(t, err)
	kept := strings.Split(strings.TrimSpace(string(list)), "\n")
	require.Len(t, kept, len(rows))
	docs := make(map[string]map[string]string) // by package
	for i, row := range rows {
		name, tests, _ := strings.Cut(kept[i], " ")
		require.Equal(t, "L"+strconv.Itoa(i+1), name)
		require.Equal(t, string(row[1]), name)
		require.NotEmpty(t, tests, name)
		for test := range strings.FieldsSeq(tests) {
			pkg, function, _ := strings.Cut(test, ".")
			if docs[pkg] == nil {
				docs[pkg] = testsOf(t, pkg)
			}
			doc, found := docs[pkg][function]
			if !found {
				t.Errorf("%s names %s, which is not there", name, test)
			} else if !regexp.MustCompile(`\b` + name + `\b`).MatchString(doc) {
				t.Errorf("%s names %s, whose comment does not cite it", name, test)
			}
		}
	}
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), fmt.Sprintf("lists %d lessons", len(rows)))
}

// testsOf returns the comments of a package's test functions.
func testsOf(t *testing.T, pkg string) map[string]string {
	t.Helper()
	dir := filepath.FromSlash(pkg)
	if pkg == "dmutex" {
		dir = "."
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	docs := make(map[string]string)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				docs[f.Name.Name] = f.Doc.Text()
			}
		}
	}
	return docs
}
