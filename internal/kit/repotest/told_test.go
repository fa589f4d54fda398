package repotest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/protocol"
)

// sources parses the files of a directory that are not tests.
func sources(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	return files
}

// Every algorithm of a package at the top is in the list that the tests run through.
func TestAlgorithmsAreListed(t *testing.T) {
	dirs, err := filepath.Glob("*")
	require.NoError(t, err)
	found := 0
	for _, dir := range dirs {
		for _, file := range sources(t, dir) {
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Recv != nil || !f.Name.IsExported() || signature(f.Type) != "(dmutex.Start) (dmutex.Machine, error)" {
					continue
				}
				found++
				name := strings.TrimSuffix(file.Name.Name+"."+f.Name.Name, ".New")
				require.True(t, slices.ContainsFunc(algorithms.All, func(a algorithms.Algorithm) bool { return a.Name == name }),
					"%s is an algorithm: add it to package algorithms, and the tests that run with each algorithm have it", name)
			}
		}
	}
	require.Len(t, algorithms.All, found)
}

// signature returns the types of a function as they are written.
func signature(f *ast.FuncType) string {
	list := func(fields *ast.FieldList) string {
		var types []string
		if fields != nil {
			for _, field := range fields.List {
				text := fmt.Sprint(field.Type)
				if s, ok := field.Type.(*ast.SelectorExpr); ok {
					text = fmt.Sprintf("%v.%v", s.X, s.Sel)
				}
				types = slices.Concat(types, slices.Repeat([]string{text}, max(len(field.Names), 1)))
			}
		}
		return "(" + strings.Join(types, ", ") + ")"
	}
	return list(f.Params) + " " + list(f.Results)
}

// Every field of what a node or a client says of itself is filled by somebody: a field that nobody
// fills would be shown as 0 by the page, the JSON and the metrics.
func TestStatusIsFilled(t *testing.T) {
	fields, filled, converted := make(map[string]string), make(map[string]bool), make(map[string]bool)
	for _, dir := range []string{"node", "node/internal/locks", "node/internal/group", "internal/lend", "client"} {
		for _, file := range sources(t, dir) {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					if s, ok := n.Type.(*ast.StructType); ok && strings.HasSuffix(n.Name.Name, "Status") {
						for _, field := range s.Fields.List {
							for _, name := range field.Names {
								fields[dir+" "+n.Name.Name+"."+name.Name] = dir + " " + n.Name.Name
							}
						}
					}
				case *ast.CallExpr: // to convert another struct fills all
					if name, ok := n.Fun.(*ast.Ident); ok {
						converted[dir+" "+name.Name] = true
					}
				case *ast.CompositeLit: // so does a literal without keys
					name, named := n.Type.(*ast.Ident)
					if named && len(n.Elts) > 0 {
						_, keyed := n.Elts[0].(*ast.KeyValueExpr)
						converted[dir+" "+name.Name] = converted[dir+" "+name.Name] || !keyed
					}
				case *ast.KeyValueExpr:
					if name, ok := n.Key.(*ast.Ident); ok {
						filled[name.Name] = true
					}
				case *ast.AssignStmt:
					for _, to := range n.Lhs {
						fill(filled, to)
					}
				case *ast.IncDecStmt:
					fill(filled, n.X)
				}
				return true
			})
		}
	}
	for field, of := range fields {
		name := field[strings.LastIndex(field, ".")+1:]
		require.True(t, filled[name] || converted[of], "nobody fills %s", field)
	}
	require.Greater(t, len(fields), 60)
}

func fill(filled map[string]bool, to ast.Expr) {
	if i, ok := to.(*ast.IndexExpr); ok {
		to = i.X
	}
	if s, ok := to.(*ast.SelectorExpr); ok {
		filled[s.Sel.Name] = true
	}
}

// A kind of message that a build does not know is refused by it. So each kind has the version of the protocol that
// began with it, and no build sends it to a peer that speaks a lower one.
func TestKindsHaveVersions(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("internal", "kit", "repotest", "testdata", "kinds.txt"))
	require.NoError(t, err)
	since := make(map[string]uint64)
	for line := range strings.Lines(string(text)) {
		kind, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.ParseUint(version, 10, 64)
		require.NoError(t, err, line)
		require.LessOrEqual(t, v, protocol.Spoken.Newest, "%s begins with a version that this build does not speak", kind)
		since[kind] = v
	}
	seen := 0
	for dir, first := range map[string][]string{
		".": {"Request"}, "deadlock": {"Probe"}, "election": {"Election"}, "internal/clientsession": {"Hello", "None"},
		"internal/membership": {"Prepare"}, "internal/stream": {"hello"}, "node/internal/group": {"saysMore"}, "node": {"saysLeads"},
	} {
		for _, name := range kindsFrom(t, dir, first) {
			seen++
			name = strings.Replace(dir, ".", "dmutex", 1) + "." + name
			if _, known := since[name]; !known {
				t.Errorf("%s is a new kind of message: a process of the release before refuses it. Send it only to peers that speak a version that has it, say so in docs/upgrades.md, and add it with that version to testdata/kinds.txt", name)
			}
		}
	}
	require.Len(t, since, seen, "testdata/kinds.txt has a kind that is gone: processes of the release before still send it")
}

// kindsFrom returns the names of the groups of constants that begin with one of those given.
func kindsFrom(t *testing.T, dir string, first []string) (names []string) {
	t.Helper()
	groups := 0
	for _, file := range sources(t, dir) {
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST || !slices.Contains(first, g.Specs[0].(*ast.ValueSpec).Names[0].Name) {
				continue
			}
			groups++
			for _, spec := range g.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					if end := strings.ToLower(name.Name); end != "kinds" && end != "codes" { // how many there are
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	require.Equal(t, len(first), groups, dir)
	return names
}

// A default is the same wherever it is said.
func TestDefaults(t *testing.T) {
	source := func(file, expression string) string {
		text, err := os.ReadFile(filepath.FromSlash(file))
		require.NoError(t, err)
		match := regexp.MustCompile(expression).FindSubmatch(text)
		require.NotNil(t, match, "%s: %s", file, expression)
		return strings.ReplaceAll(string(match[1]), ",", "")
	}
	for _, tt := range []struct {
		file, is string // where the default is, and as what
		said     map[string]string
	}{
		{"node/clients.go", `cmp\.Or\(c\.Max, (\d+)\)`, map[string]string{
			"node/clients.go": `at a time; 0 means (\d+)\.`, "cmd/dmutex/internal/serve/serve.go": `DMUTEX_CLIENTS" default:"(\d+)"`,
			"docs/modes.md": `\| ([\d,]+) a member by default \|`, "docs/questions.md": `a member serves ([\d,]+) clients`,
		}},
		{"internal/membership/message.go", `const MaxMembers = (\d+)`, map[string]string{
			"README.md": `A group has up to (\d+)\s+members`, "docs/modes.md": `\| up to (\d+) members;`, "docs/performance.md": `A group has at most (\d+) members`,
		}},
	} {
		is := source(tt.file, tt.is)
		for file, expression := range tt.said {
			require.Equal(t, is, source(file, expression), "%s says another default than %s", file, tt.file)
		}
	}
}
