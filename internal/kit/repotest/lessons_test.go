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
	"testing"

	"github.com/stretchr/testify/require"
)

// The table of docs/lessons.md has every row, and each row names the tests that keep it.
// These tests exist and cite the row.
func TestLessons(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("docs", "lessons.md"))
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| L(\d+) \| .+ \| .+ \| (.+) \|$`).FindAllSubmatch(text, -1)
	require.Len(t, rows, 81)
	test := regexp.MustCompile("`([a-z/]+)\\.((?:Test|Example|Fuzz)\\w*)`")
	docs := make(map[string]map[string]string) // by package
	for i, row := range rows {
		name, kept := "L"+string(row[1]), string(row[2])
		require.Equal(t, "L"+strconv.Itoa(i+1), name)
		tests := test.FindAllStringSubmatch(kept, -1)
		require.NotEmpty(t, tests, name)
		for _, match := range tests {
			if docs[match[1]] == nil {
				docs[match[1]] = testsOf(t, match[1])
			}
			doc, found := docs[match[1]][match[2]]
			if !found {
				t.Errorf("%s names %s, which is not there", name, match[0])
			} else if !regexp.MustCompile(`\b` + name + `\b`).MatchString(doc) {
				t.Errorf("%s names %s, whose comment does not cite it", name, match[0])
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
