package repotest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
	"github.com/dmutex/dmutex/ricart"
)

// pages are what a user reads: README.md and docs.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("docs", "*.md"))
	require.NoError(t, err)
	texts := make(map[string]string)
	for _, file := range append(files, "README.md", "CHANGELOG.md", "CONTRIBUTING.md", ".github/SECURITY.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		texts[filepath.ToSlash(file)] = string(text)
	}
	return texts
}

// Every Go snippet of a page is a whole file that compiles, and a snippet that is
// a test passes; or it is a part of an example of the root package or of natsnode.
func TestSnippets(t *testing.T) {
	if quicktest.On() {
		t.Skip("takes seconds; set CI=1")
	}
	// Packages of this module, so that they see the module's own requirements; the
	// underscore hides them from patterns like ./...
	dir, err := os.MkdirTemp(".", "_snippets")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	snippet := regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	unindented := regexp.MustCompile(`(?m)^\t+`)
	examples := unindented.ReplaceAllString(strings.Join(read(t, "dmutex_test.go", "node/natsnode/example_test.go"), ""), "")
	args := []string{"test"} // it also compiles a package without tests
	for file, text := range pages(t) {
		for i, match := range snippet.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(match[1], "package ") {
				require.Contains(t, examples, unindented.ReplaceAllString(match[1], ""), "%s shows a part of no example", file)
				continue
			}
			name := "main.go"
			if strings.Contains(match[1], "_test\n") {
				name = "snippet_test.go"
			}
			place := filepath.Join(dir, fmt.Sprint(strings.Trim(strings.ReplaceAll(file, "/", "-"), ".-"), "-", i+1))
			require.NoError(t, os.Mkdir(place, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(place, name), []byte(match[1]), 0o600))
			args = append(args, "./"+filepath.ToSlash(place))
		}
	}
	require.Greater(t, len(args), 1)
	out, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A reader can copy what README.md says about getting started.
func TestGetIt(t *testing.T) {
	readme := pages(t)["README.md"]
	require.Regexp(t, `(?m)^go mod init [a-z./]+$`, readme)
	code, _, found := strings.Cut(readme, "```go\n")
	require.True(t, found)
	require.Less(t, len(strings.Fields(code)), 100, "words before the first code")
	require.LessOrEqual(t, len(strings.Fields(readme)), 1100)
	require.NotContains(t, readme, "`go mod init`")
}

// The script of docs/testing.md is what the machines say.
func TestScriptOfPage(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```\n(group .*?)^```$").FindStringSubmatch(pages(t)["docs/testing.md"])
	require.NotNil(t, block)
	file := filepath.Join(t.TempDir(), "script.txt")
	require.NoError(t, os.WriteFile(file, []byte(block[1]), 0o600))
	dmutextest.TestScript(t, ricart.New, file)
}

// Every link of a page leads to a file that is there, and to a heading of it.
func TestLinks(t *testing.T) {
	texts := pages(t)
	link := regexp.MustCompile(`\]\(([^):]*)\)`)
	for file, text := range texts {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			to, heading, _ := strings.Cut(match[1], "#")
			target := file
			if to != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(file), to))
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s links to %s", file, match[1])
			if heading != "" {
				require.Contains(t, headings(texts[target]), heading, "%s links to %s", file, match[1])
			}
		}
	}
}

// headings returns the headings of a page as links name them.
func headings(text string) (names []string) {
	for _, match := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(match[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// The comment of the root package says of every public package whether it is stable.
func TestStability(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "// # Stability\n")
	stable, rest, _ := strings.Cut(section, "The packages for those who study")
	// Not by go list, which would download what the other modules require.
	sources, err := filepath.Glob("*/*.go")
	require.NoError(t, err)
	deeper, err := filepath.Glob("*/*/*.go")
	require.NoError(t, err)
	own := regexp.MustCompile(`^(cmd|examples|integration|docs|internal)/|/(internal|testdata)/|_test\.go$`)
	seen := make(map[string]bool)
	for _, file := range append(sources, deeper...) {
		dir := filepath.Dir(file)
		if own.MatchString(filepath.ToSlash(file)) || seen[dir] {
			continue
		}
		seen[dir] = true
		name := regexp.MustCompile(`\b` + filepath.Base(dir) + `\b`)
		require.NotEqual(t, name.MatchString(stable), name.MatchString(rest), "%s must be named once", dir)
	}
	require.Greater(t, len(seen), 20)
}

// Each store is where a user looks for stores, and passes the suite.
func TestStores(t *testing.T) {
	dirs, err := filepath.Glob("store/*")
	require.NoError(t, err)
	stores := 0
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if text := strings.Join(read(t, dir+"/*.go"), ""); name == "storelock" || name == "storetest" || !strings.Contains(text, ") Swap(ctx context.Context") {
			continue
		}
		stores++
		for _, place := range []string{"docs/start.md", "CONTRIBUTING.md", "doc.go", "store/store.go", "docs/*.md", "cmd/dmutex/internal/*/*.go"} {
			require.True(t, strings.Contains(strings.Join(read(t, place), ""), name), "%s does not name %s", place, name)
		}
		require.True(t, slices.ContainsFunc(read(t, "store/*/*_test.go", "integration/*_test.go", "integration/*/*_test.go"), func(text string) bool {
			return strings.Contains(text, "storetest.Run(") && strings.Contains(text, "store/"+name+`"`)
		}), "no test runs the suite with %s", name)
	}
	require.Equal(t, 7, stores, "count the new store")
}

// read returns the texts of the files that match.
func read(t *testing.T, patterns ...string) (texts []string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			texts = append(texts, string(text))
		}
	}
	return texts
}
