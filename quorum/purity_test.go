package quorum

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The package imports only these packages, and internal ones of the Go distribution.
func TestPurity(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skip("the go command is not at hand: ", err)
	}
	allowed := []string{"cmp", "errors", "iter", "math", "math/bits", "runtime", "slices", "strconv", "unicode/utf8", "unsafe", "github.com/dmutex/dmutex/quorum"}
	for _, dep := range strings.Fields(string(out)) {
		if !strings.HasPrefix(dep, "internal/") && !strings.HasPrefix(dep, "runtime/internal/") {
			require.Contains(t, allowed, dep)
		}
	}
}

// No goroutine, no file beyond 600 lines, and no map.
func TestHouseRules(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Less(t, strings.Count(string(text), "\n"), 600, name)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s has a go statement", name)
			case *ast.MapType:
				t.Errorf("%s has a map", name)
			}
			return true
		})
	}
}
