package node_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The name of a test file begins with the harness that it uses: strict for a group, which has no
// store, lease for a leaseGroup, both for these two, and soak for a referee, which drives a group. The
// other files use none of the three.
func TestHarness(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		uses := make(map[string]bool) // the types that it has pointers to
		ast.Inspect(file, func(n ast.Node) bool {
			if p, ok := n.(*ast.StarExpr); ok {
				if of, ok := p.X.(*ast.Ident); ok {
					uses[of.Name] = true
				}
			}
			return true
		})
		want := "none"
		switch {
		case uses["referee"]:
			want = "soak"
		case uses["group"] && uses["leaseGroup"]:
			want = "both"
		case uses["group"]:
			want = "strict"
		case uses["leaseGroup"]:
			want = "lease"
		}
		says, _, _ := strings.Cut(strings.TrimSuffix(name, "_test.go"), "_")
		if !strings.Contains(" soak both strict lease ", " "+says+" ") {
			says = "none"
		}
		require.Equal(t, want, says, name)
	}
}
