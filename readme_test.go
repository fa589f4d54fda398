package dmutex_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every Go snippet of the README is a whole file that compiles, and a snippet
// that is a test passes.
func TestReadmeSnippets(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	snippets := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllSubmatch(text, -1)
	require.NotEmpty(t, snippets)
	for i, match := range snippets {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			// A package of this module, so that it sees the module's own
			// requirements; the underscore hides it from patterns like ./...
			dir, err := os.MkdirTemp(".", "_readme")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
			name, verb := "main.go", "vet"
			if strings.Contains(string(match[1]), "_test\n") {
				name, verb = "snippet_test.go", "test"
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), match[1], 0o600))
			out, err := exec.Command("go", verb, "./"+dir).CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}
